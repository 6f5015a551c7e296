"""The queue: who gets which pair, what an answer stores, and that nothing is handed out or stored twice."""

import threading

import pytest

import tally
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.errors import HoldfastError
from holdfast.people.accounts import AccountStore
from holdfast.people.queue import Conflict, LabelQueue
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Purpose, Response
from holdfast.preferences.store import PreferenceStore

PLAIN = PeopleConfig(overlap=0.0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def pair(key: str, round: int = 0, purpose: Purpose = "training") -> Comparison:
    sides = [Response(f"{key} {s}", Provenance(f"v{s}", 0, 0)) for s in "ab"]
    return Comparison(key, "q", *sides, round=round, purpose=purpose)


@pytest.fixture
def store(url):
    with PreferenceStore.open(url) as opened:
        yield opened


@pytest.fixture
def clock():
    return Clock()


def queue_of(store, clock, config=PLAIN, n=3, purpose="training", name="run"):
    queue = LabelQueue(store.database, name, config, clock)
    items = [pair(f"{name}/{purpose}-{i}", purpose=purpose) for i in range(n)]
    if items:
        store.add_comparisons(items)
        queue.put(items[0].id, items, [0.25] * n)
    return queue


def answer(queue, who, said="left", key=None):
    lease = queue.next(who)
    return queue.submit(key or f"{who}-{lease.comparison.id}-{said}".replace(" ", ""), who, lease.token, said)


def test_an_answer_becomes_a_label_of_the_side_that_was_shown(store, clock):
    queue = queue_of(store, clock, n=20)
    said = {}
    for _ in range(20):
        lease = queue.next("anna")
        assert lease.shown.a == (lease.comparison.b if lease.swapped else lease.comparison.a)
        queue.submit(f"s-{lease.comparison.id}", "anna", lease.token, "left")
        said[lease.comparison.id] = Choice.B if lease.swapped else Choice.A
    assert {item.comparison.id: item.labels[0].choice for item in store.labelled()} == said
    assert set(said.values()) == {Choice.A, Choice.B}  # sides are shuffled
    assert queue.next("anna") is None


def test_audits_come_before_training(store, clock):
    queue = queue_of(store, clock, n=2)
    queue_of(store, clock, n=2, purpose="audit")
    assert [answer(queue, "anna").comparison_id for _ in range(4)] == [
        "run/audit-0", "run/audit-1", "run/training-0", "run/training-1",
    ]  # fmt: skip


def test_a_pair_is_kept_for_one_person_until_the_time_is_up(store, clock):
    queue = queue_of(store, clock, n=1)
    first = queue.next("anna")
    assert queue.next("anna") == first  # a page loaded again shows the same, the same way round
    assert queue.next("ben") is None
    clock.now += 601
    late = queue.next("ben")
    assert late.comparison == first.comparison
    with pytest.raises(Conflict, match="no longer yours"):
        queue.submit("too-late-1", "anna", first.token, "left")
    assert store.counts().labels == 0
    queue.submit("in-time-1", "ben", late.token, "tie")
    assert [label.labeller for item in store.labelled() for label in item.labels] == ["ben"]


def test_a_late_answer_is_welcome_while_nobody_else_has_the_pair(store, clock):
    queue = queue_of(store, clock, n=1)
    lease = queue.next("anna")
    clock.now += 10_000
    queue.submit("very-late", "anna", lease.token, "left")
    assert store.counts().labels == 1


def test_a_clock_that_goes_back_hands_no_pair_to_two_and_loses_no_answer(store, clock):
    queue = queue_of(store, clock, n=2)
    anna = queue.next("anna")
    clock.now -= 86400.0
    ben = queue.next("ben")
    assert ben.token != anna.token
    assert queue.next("carla") is None
    for name, lease in (("anna", anna), ("ben", ben)):
        queue.submit(f"clock-{name}-1", name, lease.token, "left")
    assert store.counts().labels == 2
    tally.count("clock jumps")


def test_the_same_submission_again_stores_nothing(store, clock):
    queue = queue_of(store, clock)
    lease = queue.next("anna")
    first = queue.submit("one-and-only", "anna", lease.token, "right")
    again = queue.submit("one-and-only", "anna", lease.token, "right")
    assert (first.again, again.again) == (False, True)
    assert first.answer == again.answer
    assert store.counts().labels == 1
    with pytest.raises(Conflict, match="id of its own"):
        queue.submit("one-and-only", "anna", lease.token, "left")
    with pytest.raises(Conflict, match="answered already"):
        queue.submit("another-one", "anna", lease.token, "left")
    with pytest.raises(Conflict):
        queue.submit("one-and-only", "ben", lease.token, "right")
    assert store.counts().labels == 1


def test_nobody_answers_with_the_lease_of_another(store, clock):
    queue = queue_of(store, clock)
    lease = queue.next("anna")
    with pytest.raises(Conflict):
        queue.submit("not-mine-1", "ben", lease.token, "left")
    with pytest.raises(Conflict):
        queue.remark("not-mine-2", "ben", lease.token, "flag")
    assert store.counts().labels == 0


@pytest.mark.parametrize("bad", ["", "short", "x" * 65, "nul\0nul\0nul", "ümläut-ümläut"])
def test_a_bad_submission_id_is_refused(store, clock, bad):
    queue = queue_of(store, clock)
    with pytest.raises(HoldfastError, match="plain characters"):
        queue.submit(bad, "anna", queue.next("anna").token, "left")


def test_both_bad_trains_as_a_tie(store, clock):
    queue = queue_of(store, clock, n=1)
    assert answer(queue, "anna", "both_bad").answer == "both_bad"
    assert store.labelled()[0].share_a == 0.5


def test_what_the_ensemble_thought_is_told_after_the_answer(store, clock):
    queue = queue_of(store, clock, n=1)
    lease = queue.next("anna")
    with pytest.raises(Conflict):
        queue.reveal("reveal-me", "anna")
    queue.submit("reveal-me", "anna", lease.token, "left")
    with pytest.raises(Conflict):
        queue.reveal("reveal-me", "ben")
    for _ in range(2):
        found = queue.reveal("reveal-me", "anna")
        assert found.claim_left == (0.75 if lease.swapped else 0.25)
        assert found.versions == (("vb", "va") if lease.swapped else ("va", "vb"))


def test_an_answer_that_was_looked_behind_stands(store, clock):
    queue = queue_of(store, clock, n=1)
    answer(queue, "anna", key="looked-behind")
    queue.reveal("looked-behind", "anna")
    with pytest.raises(Conflict, match="no longer be taken back"):
        queue.undo("anna")
    assert len(store.labelled()) == 1
    assert queue.next("anna") is None


def test_nothing_is_told_of_a_skip_or_of_an_answer_that_was_taken_back(store, clock):
    people(store, "olga", "anna", "ben")
    queue = queue_of(store, clock, n=2)
    answer(queue, "anna", "skip", key="skipped-1")
    with pytest.raises(Conflict, match="not behind a skip"):
        queue.reveal("skipped-1", "anna")
    answer(queue, "anna", key="answered-1")
    assert queue.undo("anna") is not None
    with pytest.raises(Conflict):
        queue.reveal("answered-1", "anna")


def test_undo_takes_an_answer_back_and_gives_the_pair_again(store, clock):
    queue = queue_of(store, clock, n=2)
    first = queue.next("anna")
    queue.submit("answer-1", "anna", first.token, "left")
    waiting = queue.next("anna")
    again = queue.undo("anna")
    assert (again.comparison, again.swapped) == (first.comparison, first.swapped)
    assert again.token != first.token
    assert store.labelled() == []
    assert store.answered([first.comparison.id]) == set()
    assert queue.batch("run/training-0").answered == 0
    queue.submit("answer-2", "anna", again.token, "right")
    assert [x.choice for x in store.labelled()[0].labels] == [Choice.A if first.swapped else Choice.B]
    assert queue.next("anna").comparison == waiting.comparison  # the one that was interrupted
    assert store.counts().labels == 3  # said, taken back, said otherwise: all on record


def test_undo_goes_back_one_by_one_and_ends(store, clock):
    queue = queue_of(store, clock, n=3)
    given = [answer(queue, "anna").comparison_id for _ in range(3)]
    assert [queue.undo("anna").comparison.id for _ in range(3)] == given[::-1]
    assert queue.undo("anna") is None
    assert store.labelled() == []


def test_what_is_skipped_goes_to_somebody_else_and_is_left_out_after_two(store, clock):
    accounts = AccountStore(store.database)
    for name in ("anna", "ben", "cleo"):
        accounts.create(name, "correct horse battery", "labeller")
    queue = queue_of(store, clock, n=1)
    answer(queue, "anna", "skip")
    assert queue.next("anna") is None
    assert queue.batch("run/training-0").open == 1
    answer(queue, "ben", "skip")
    assert queue.next("cleo") is None
    assert queue.batch("run/training-0").dropped == 1
    assert store.counts().labels == 0
    undone = queue.undo("ben")
    queue.submit("after-all", "ben", undone.token, "left")
    assert queue.batch("run/training-0").answered == 1


def test_a_person_alone_need_not_skip_twice(store, clock):
    AccountStore(store.database).create("anna", "correct horse battery", "owner")
    queue = queue_of(store, clock, n=1)
    answer(queue, "anna", "skip")
    assert queue.batch("run/training-0").open == 0


def people(store, *names):
    accounts = AccountStore(store.database, hasher=web_site.QUICK)
    for name in names:
        accounts.create(name, web_site.PASSWORD, "owner" if name == names[0] else "labeller")
    return accounts


def test_what_a_disabled_person_holds_is_handed_out_again(store, clock):
    accounts = people(store, "olga", "anna", "ben")
    queue = queue_of(store, clock, n=1)
    held = queue.next("anna")
    assert queue.next("ben") is None
    accounts.disable("anna")
    assert queue.next("ben").comparison == held.comparison


def test_a_check_item_of_a_disabled_person_goes_to_nobody_else_in_their_name(store, clock, monkeypatch):
    monkeypatch.setattr("holdfast.people.queue.CHECK_EVERY", 2)
    accounts = people(store, "olga", "anna", "ben")
    queue = queue_of(store, clock, n=1)
    known = pair("run/check-0", purpose="check")
    store.add_comparisons([known])
    queue.put_checks([(known, Choice.A)])
    answer(queue, "anna")
    assert queue.next("anna").comparison.purpose == "check"
    accounts.disable("anna")
    assert queue.next("ben") is None


def test_a_pair_that_everybody_left_has_skipped_is_left_out(store, clock):
    accounts = people(store, "olga", "anna")
    queue = queue_of(store, clock, n=2)
    skipped = answer(queue, "olga", "skip").comparison_id
    accounts.disable("anna")
    assert queue.batch("run/training-0").dropped == 1
    assert queue.next("olga").comparison.id != skipped


def test_the_skip_of_a_disabled_person_no_longer_counts(store, clock):
    accounts = people(store, "olga", "anna", "ben", "cleo")
    queue = queue_of(store, clock, n=1)
    answer(queue, "anna", "skip")
    accounts.disable("anna")
    answer(queue, "ben", "skip")
    assert queue.batch("run/training-0").open == 1
    assert queue.next("cleo") is not None


def test_undo_passes_over_a_skip_that_somebody_else_has_taken_up(store, clock):
    people(store, "olga", "anna", "ben")
    queue = queue_of(store, clock, n=3)
    mine = answer(queue, "anna").comparison_id
    answer(queue, "anna", "skip")
    taken = queue.next("ben")
    assert queue.undo("anna").comparison.id == mine
    queue.submit("after-all", "ben", taken.token, "left")
    assert queue.undo("anna") is None
    assert [label.labeller for item in store.labelled() for label in item.labels] == ["ben"]


def test_overlap_asks_two_people_and_never_one_twice(store, clock):
    config = PeopleConfig(overlap=1.0)
    queue = queue_of(store, clock, config, n=3)
    mine = [answer(queue, "anna").comparison_id for _ in range(3)]
    assert queue.next("anna") is None
    theirs = [answer(queue, "ben").comparison_id for _ in range(3)]
    assert sorted(mine) == sorted(theirs)
    assert queue.next("cleo") is None
    assert [len(item.labels) for item in store.labelled()] == [2, 2, 2]


def test_the_share_of_overlap_is_as_set(store, clock):
    queue_of(store, clock, PeopleConfig(overlap=0.2), n=200)
    queue = LabelQueue(store.database, "run", PLAIN, clock)
    with store.database.read() as connection:
        from sqlalchemy import text

        second = connection.execute(text("SELECT count(*) FROM queue WHERE slot = 1")).scalar()
    assert 20 <= second <= 60
    assert queue.batch("run/training-0").asked == 200


def test_asking_again_after_a_restart_changes_nothing(store, clock):
    queue = queue_of(store, clock, n=2)
    answer(queue, "anna")
    clock.now += 50
    items = [pair("run/training-0"), pair("run/training-1"), pair("run/training-2")]
    store.add_comparisons(items)
    assert queue.put("run/training-0", items, [None] * 3) == 1000.0
    batch = queue.batch("run/training-0")
    assert (batch.asked, batch.answered, batch.asked_at) == (3, 1, 1000.0)


def test_late_questions_stand_behind_all_others(store, clock):
    queue = queue_of(store, clock, n=1, purpose="audit")
    queue.close("run/audit-0")
    assert queue.waiting() == []  # an answer is welcome, but no run waits for it
    queue_of(store, clock, n=1)
    assert [batch.name for batch in queue.waiting()] == ["run/training-0"]
    assert answer(queue, "anna").comparison_id == "run/training-0"
    assert answer(queue, "anna").comparison_id == "run/audit-0"


def test_check_items_are_mixed_in_once_each_and_make_no_label(store, clock, monkeypatch):
    monkeypatch.setattr("holdfast.people.queue.CHECK_EVERY", 4)
    queue = queue_of(store, clock, n=12)
    known = [pair(f"run/check-{n}", purpose="check") for n in range(2)]
    store.add_comparisons(known)
    queue.put_checks([(known[0], Choice.A), (known[1], Choice.B)])
    seen = []
    while lease := queue.next("anna"):
        seen.append(lease.comparison.id)
        queue.submit(f"s-{lease.comparison.id}", "anna", lease.token, "left")
    assert [n for n, key in enumerate(seen) if "check" in key] == [3, 7]
    assert len({key for key in seen if "check" in key}) == 2
    assert store.counts().labels == 12


def test_notes_and_flags_stay_with_the_pair(store, clock):
    queue = queue_of(store, clock, n=1)
    lease = queue.next("anna")
    queue.remark("note-0001", "anna", lease.token, "note", "odd \0 \ud800 prompt")
    queue.remark("flag-0001", "anna", lease.token, "flag")
    queue.remark("flag-0001", "anna", lease.token, "flag")
    shown = queue.next("anna")
    assert (shown.flagged, shown.note) == (True, "odd \0 \ud800 prompt")
    queue.remark("flag-0002", "anna", lease.token, "unflag")
    assert queue.next("anna").flagged is False


def test_each_run_has_a_queue_of_its_own(store, clock):
    queue_of(store, clock, n=1, name="one")
    other = queue_of(store, clock, n=0, name="other")
    assert other.next("anna") is None
    assert other.waiting() == []


def test_many_people_at_once_are_never_given_the_same_pair(store):
    queue = queue_of(store, __import__("time").time, n=40)
    given, errors = [], []

    def work(who):
        try:
            while lease := queue.next(who):
                given.append(lease.comparison.id)
                queue.submit(f"{who}-{lease.comparison.id}", who, lease.token, "tie")
        except Exception as error:  # noqa: BLE001 (it is looked at below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"p{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(given) == sorted({f"run/training-{i}" for i in range(40)})
    assert store.counts().labels == 40
