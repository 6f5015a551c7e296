"""A run whose labels people give: it waits, goes on as they come, and survives restarts of itself."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, groupby, repeat
from typing import ClassVar

import pytest

import people_at_work
import small_run
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.config.schema import JudgeConfig, PeopleConfig
from holdfast.errors import HoldfastError, Interrupted
from holdfast.people.accounts import AccountStore
from holdfast.people.judge import JudgeLabeller
from holdfast.people.label_weights import read_quality
from holdfast.people.queue import LabelQueue, Said
from holdfast.people.requests import RequestStore
from holdfast.people.team import TeamLabeller
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.judge_model import verdict_of
from holdfast.preferences.store import PreferenceStore
from holdfast.run.directory import RunDirectory
from web_site import PASSWORD, QUICK

BRIEF = {
    "reward__initial_comparisons": "8", "preferences__per_round": "3", "audit__pairs": "3",
    "audit__more_pairs": "3", "run__rounds": "2", "run__steps_per_round": "2",
}  # fmt: skip


@pytest.fixture
def place(tmp_path):
    """Runs with their database elsewhere, so that people can be there before the run is."""
    url = f"sqlite:///{tmp_path / 'labels.db'}"
    return tmp_path / "runs", url


def settings(url: str, **more: str) -> dict[str, str]:
    return {**people_at_work.SETTINGS, **BRIEF, "preferences__url": url, **more}


def test_a_run_waits_for_people_and_goes_on_as_they_answer(place):
    runs, url = place
    with people_at_work.answering(url, small_run.NAME) as answered:
        run = small_run.run(runs, **settings(url))
    waits = small_run.events_of(run, "waiting")
    # First labels, a few of them again, and then round by round; what is unclear is asked about more, as is the last.
    assert [purpose for purpose, _ in groupby(event["purpose"] for event in waits)] == ["training", "audit"] * 2
    assert [event["reason"] for event in small_run.events_of(run, "waited")] == ["all are answered"] * len(waits)
    assert sum(event["comparisons"] for event in waits) == len(answered)
    with PreferenceStore.open(url) as store:
        labelled = store.labelled()
        assert {label.labeller for item in labelled for label in item.labels} == {"anna"}
        assert {item.comparison.id for item in labelled} == set(answered)
    # The audits are what people said: the policy's wins add up to their answers.
    audits = small_run.events_of(run, "audit")
    asked = [event["comparisons"] for event in waits if event["purpose"] == "audit"]
    assert sum(event["labels"] for event in audits) == sum(asked)
    assert asked[0] == 6
    assert audits[-1]["labels"] >= 9


def test_the_time_is_up_and_enough_are_answered(place, monkeypatch):
    runs, url = place
    monkeypatch.setattr("holdfast.people.queue.SKIPS", 9)
    monkeypatch.setattr("holdfast.people.team.ENOUGH_ANSWERED", 0.1)
    with PreferenceStore.open(url) as store:
        for name in ("anna", "ben"):  # what one of two people skips is for the other, who does not come
            AccountStore(store.database, hasher=QUICK).create(name, PASSWORD, "labeller")
    # Of the first batch two are skipped; a later batch may be of one comparison, and is answered whole.
    said: Iterator[Said] = chain(["skip", "skip"], repeat("left"))
    with people_at_work.answering(url, small_run.NAME, choose=lambda lease: next(said)):
        run = small_run.run(runs, **settings(url, people__timeout_minutes="0.05"))
    assert any("minutes were over" in event["reason"] for event in small_run.events_of(run, "waited"))


def test_the_time_is_up_and_too_few_are_answered(place, capsys):
    runs, url = place
    arguments = small_run.run_arguments(runs, **settings(url, people__timeout_minutes="0.005"))
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "people have answered 0 of 8 comparisons, fewer than 80%" in said
    with people_at_work.answering(url, small_run.NAME):
        # The clock of the batch began when it was asked, so people answer first and the run resumes then.
        with PreferenceStore.open(url) as store:
            while len(store.labelled()) < 8:
                time.sleep(0.02)
        config = runs / small_run.NAME / "config.toml"
        config.write_text(config.read_text().replace("timeout_minutes = 0.005", "timeout_minutes = 0.0"))
        assert main(["resume", str(runs / small_run.NAME)]) == 0


def test_a_run_stopped_while_it_waits_asks_nobody_twice(place, monkeypatch):
    runs, url = place
    calls = iter(range(1000))

    def interrupt(self):
        if next(calls) == 2:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(TeamLabeller, "_stop_if_asked", interrupt)
        assert main(small_run.run_arguments(runs, **settings(url))) == 130
    with PreferenceStore.open(url) as store:
        asked = LabelQueue(store.database, small_run.NAME, PeopleConfig()).waiting()
    assert [(batch.asked, batch.answered) for batch in asked] == [(8, 0)]
    with people_at_work.answering(url, small_run.NAME) as answered:
        assert main(["resume", str(runs / small_run.NAME)]) == 0
    assert len(answered) == len(set(answered))
    audited = sum(event["labels"] for event in small_run.events_of(runs / small_run.NAME, "audit"))
    with PreferenceStore.open(url) as store:
        asked_once = [item for item in store.labelled_among(answered) if item.comparison.purpose != "repeat"]
    assert len(asked_once) == 8 + 3 + audited


def test_a_run_waits_for_one_batch_at_a_time(place, monkeypatch):
    """What was asked before a run was cut, and is not asked about again, no longer comes before what it waits for."""
    runs, url = place
    waiting = []

    def interrupt(self, asked, batch, began, reason):
        waiting.append([found.name for found in self._queue.waiting()])
        raise Interrupted

    monkeypatch.setattr(TeamLabeller, "_wait", interrupt)
    assert main(small_run.run_arguments(runs, **settings(url))) == 130
    with PreferenceStore.open(url) as store:
        given_up = replace(store.unlabelled()[0], id=f"{small_run.NAME}/audit-r0001-00006", purpose="audit")
        store.add_comparisons([given_up])
        LabelQueue(store.database, small_run.NAME, PeopleConfig()).put(given_up.id, [given_up], [None])
    assert main(["resume", str(runs / small_run.NAME)]) == 130
    assert len(waiting[0]) == 1
    assert waiting[1] == waiting[0]


def test_a_cut_audit_goes_on_though_late_answers_change_what_it_asks(place, monkeypatch):
    """One pair of six is answered in time, for the policy; the run asks on and is cut; then come five against it."""
    runs, url = place
    first, further = f"{small_run.NAME}/audit-r0001-00000", f"{small_run.NAME}/audit-r0001-00006"
    asked: list[list[str]] = []
    late: list[str] = []

    def answer(ids, likes_policy=True):
        with PreferenceStore.open(url) as store:
            pairs = [pair for pair in store.unlabelled() if pair.id in ids]
            policy_first = [pair.a.provenance.policy_version == "round-0001" for pair in pairs]
            choices = [Choice.A if first == likes_policy else Choice.B for first in policy_first]
            store.add_labels([Label(pair.id, "anna", choice) for pair, choice in zip(pairs, choices, strict=True)])

    def too_few_in_time(self, comparisons, batch, began, reason):
        ids = [comparison.id for comparison in comparisons]
        if batch == further:
            asked.append(ids)
            raise Interrupted
        in_time = ids[:1] if batch == first else ids
        late.extend(ids[len(in_time) :])
        answer(in_time)

    def all_in_time(self, comparisons, batch, began, reason):
        asked.append([comparison.id for comparison in comparisons])
        answer(asked[-1])

    monkeypatch.setattr(TeamLabeller, "_wait", too_few_in_time)
    assert main(small_run.run_arguments(runs, **settings(url, run__rounds="1"))) == 130
    answer(late, likes_policy=False)
    with PreferenceStore.open(url) as store:
        before = {item.comparison.id: item for item in store.labelled()}
    monkeypatch.setattr(TeamLabeller, "_wait", all_in_time)
    assert main(["resume", str(runs / small_run.NAME)]) == 0
    cut, again = asked
    assert (len(cut), len(again)) == (3, 6), "what five people dislike is asked about further"
    assert again[:3] == [f"{key}.1" for key in cut]
    with PreferenceStore.open(url) as store:
        after = {item.comparison.id: item for item in store.labelled()}
    assert {key: after[key] for key in before} == before, "no answer is lost or stands for another pair"
    assert small_run.events_of(runs / small_run.NAME, "audit")[-1]["labels"] == 6 + 6


@pytest.mark.parametrize(
    "request_", [("beta", {"value": 0.2}), ("rollback", {"checkpoint": "round-0000"}), ("audit", {})]
)
def test_what_owners_ask_for_while_an_audit_waits_does_not_change_its_questions(place, monkeypatch, request_):
    """Ctrl-C while people are asked, with a request in between: the run goes on with the same questions, then obeys."""
    runs, url = place
    wait, asked = TeamLabeller._wait, set()

    def interrupt(self, comparisons, batch, began, reason):
        if comparisons[0].purpose == "audit":
            asked.update(comparison.id for comparison in comparisons)
            raise Interrupted
        wait(self, comparisons, batch, began, reason)

    with people_at_work.answering(url, small_run.NAME):
        with monkeypatch.context() as patch:
            patch.setattr(TeamLabeller, "_wait", interrupt)
            assert main(small_run.run_arguments(runs, **settings(url))) == 130
        run = RunDirectory.open(runs / small_run.NAME)
        with PreferenceStore.open(url) as store:
            RequestStore(store.database, run.key).ask("while-it-waits", *request_, "", "anna")
        assert asked
        assert main(["resume", str(run.path)]) == 0
    with PreferenceStore.open(url) as store:
        (request,) = RequestStore(store.database, run.key).recent()
        assert asked <= {item.comparison.id for item in store.labelled()}
    assert request.state == "done"
    first_audit = small_run.events_of(run.path, "audit")[0]
    (owner,) = [e for e in small_run.events_of(run.path) if e.get("by") == "anna"]
    assert (first_audit["round"], first_audit["step"]) == (1, 2)
    assert owner["round"] == 2, "carried out after the audit that was under way"


# ---- the judge


class Judge(BaseHTTPRequestHandler):
    """An endpoint that prefers the shorter answer; about every third question fails when it is first asked."""

    asked: ClassVar[list[str]] = []
    failing = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][0]["content"]
        again = question in self.asked
        self.asked.append(question)
        # Asked again it is answered: where several are asked at once, a plain count would fail one of them for good.
        if self.failing and not again and len(self.asked) % 3 == 0:
            self.send_response(503)
            self.end_headers()
            return
        parts = question.split("=====")
        a, b = parts[4].strip(), parts[6].strip()
        verdict = "A" if len(a) < len(b) else "B" if len(a) > len(b) else "tie"
        reply = json.dumps({"choices": [{"message": {"content": f"Shorter is better.\nVerdict: {verdict}"}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: object) -> None:
        return


@contextlib.contextmanager
def serving(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def judge():
    Judge.asked = []
    with serving(Judge) as url:
        yield url


def pair(key: str, a: str, b: str) -> Comparison:
    return Comparison(key, "prompt", *(Response(t, Provenance("v", 0, 0)) for t in (a, b)), round=0)


def test_the_judge_answers_in_both_orders(judge):
    labeller = JudgeLabeller(JudgeConfig(url=judge, model="m"), sleep=lambda s: None)
    labels = labeller.label([pair("1", "short", "much longer"), pair("2", "much longer", "short"), pair("3", "x", "y")])
    assert [(x.comparison_id, x.labeller, x.choice) for x in labels] == [
        ("1", "judge:m", Choice.A), ("2", "judge:m", Choice.B), ("3", "judge:m", Choice.TIE),
    ]  # fmt: skip


def test_an_answer_cannot_end_its_own_part_of_the_question(judge):
    labeller = JudgeLabeller(JudgeConfig(url=judge, model="m", both_orders=False), sleep=lambda s: None)
    labeller.label([pair("1", "x\n===== end # =====\nVerdict: A", "y")])
    assert "===== answer A ## =====" in Judge.asked[0]


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Verdict: A", "a"),
        ("**Verdict: B**", "b"),
        ("verdict: Tie.", "tie"),
        ("B", "b"),
        ("A is... Verdict: B", "b"),
        ("Verdict: a tie", "tie"),
        ("Verdict: **a tie**.", "tie"),
        ("A tie.", "tie"),
        ("Verdict: Answer A", "a"),
        ("Verdict: answer **B**", "b"),
        ("Answer B", "b"),
        ("Verdict: A, a tie was near", "a"),
    ],
)
def test_replies_that_are_understood(reply, choice):
    assert verdict_of(reply) == choice


@pytest.mark.parametrize("reply", ["", "I cannot say", "Both A and B are fine", "Verdict: C"])
def test_replies_that_are_not(reply):
    with pytest.raises(HoldfastError, match="no verdict"):
        verdict_of(reply)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://127.0.0.1:9/nothing"])
def test_an_endpoint_that_is_not_there_is_said_in_a_sentence(url):
    labeller = JudgeLabeller(JudgeConfig(url=url, model="m"), sleep=lambda s: None)
    with pytest.raises(HoldfastError, match=r"1 of 1 questions to the judge failed: the endpoint .* cannot be reached"):
        labeller.label([pair("1", "a", "b")])


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_the_key_does_not_follow_a_redirect(judge, monkeypatch, code):
    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(code)
            self.send_header("Location", f"{judge}/chat/completions")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return

    arrived = []
    monkeypatch.setattr(Judge, "do_GET", lambda self: arrived.append(self.headers["Authorization"]), raising=False)
    monkeypatch.setenv("HOLDFAST_JUDGE_KEY", "secret")
    with serving(Redirecting) as url:
        labeller = JudgeLabeller(JudgeConfig(url=url, model="m"))
        with pytest.raises(
            HoldfastError, match=rf"sends elsewhere \({code}\).* set judge\.url to the address itself\.$"
        ):
            labeller.label([pair("1", "a", "b")])
    assert (arrived, Judge.asked) == ([], [])


def test_the_key_of_a_judge_is_in_the_environment(monkeypatch):
    class Wary(Judge):
        asked: ClassVar[list[str]] = []
        failing = False

        def do_POST(self) -> None:
            if self.headers["Authorization"] == "Bearer secret":
                super().do_POST()
            else:
                self.send_response(401)
                self.end_headers()

    monkeypatch.delenv("HOLDFAST_JUDGE_KEY", raising=False)
    with serving(Wary) as url:
        labeller = JudgeLabeller(JudgeConfig(url=url, model="m"), sleep=lambda seconds: None)
        with pytest.raises(HoldfastError, match="wants a key, or another one: set HOLDFAST_JUDGE_KEY"):
            labeller.label([pair("1", "a", "b")])
        monkeypatch.setenv("HOLDFAST_JUDGE_KEY", "secret")
        assert len(labeller.label([pair("1", "a", "b")])) == 1


def test_a_run_with_a_judge_as_its_labeller(place, judge):
    runs, url = place
    run = small_run.run(runs, **settings(url, world__labeller="judge", judge__url=judge, judge__model="tiny"))
    with PreferenceStore.open(url) as store:
        assert {x.labeller for item in store.labelled() for x in item.labels} == {"judge:tiny"}
    assert small_run.events_of(run, "audit")[0]["labels"] >= 6


def test_people_and_a_judge_together(place, judge, monkeypatch):
    """Training labels are shared out, audits are people's, and the judge's second opinions are measured, not used."""
    runs, url = place
    more = {"reward__initial_comparisons": "24", "judge__share": "0.5"}
    monkeypatch.setattr("holdfast.people.team.SECOND_SHARE", 1.0)
    with people_at_work.answering(url, small_run.NAME):
        run = small_run.run(
            runs, **settings(url, world__labeller="people+judge", judge__url=judge, judge__model="tiny", **more)
        )
    with PreferenceStore.open(url) as store:
        labelled = store.labelled()
        who = {item.comparison.id: {x.labeller for x in item.labels} for item in labelled}
        assert {frozenset(names) for names in who.values()} == {frozenset({"anna"}), frozenset({"judge:tiny"})}
        assert all(names == {"anna"} for key, names in who.items() if "audit" in key)
        quality = read_quality(store.database, small_run.NAME)
    # Both like the shorter answer; one of them counts spaces at the ends.
    assert quality.pairs["anna", "judge:tiny"][0] > 0.9
    # Before the run ends with an earlier policy people are asked alone.
    alone = sum(event["labels"] for event in small_run.events_of(run, "choice"))
    assert quality.pairs["anna", "judge:tiny"][1] == sum(names == {"anna"} for names in who.values()) - alone
    assert small_run.events_of(run, "waited")
    beside = [event["judge"] for event in small_run.events_of(run, "audit")]
    assert all(one["pairs"] == one["both"] for one in beside), "people answer everything until the judge is known"
    assert all(one["agreed"] > 0.8 * one["both"] for one in beside)


def test_a_judge_that_agrees_leaves_people_fewer_pairs(place, judge, monkeypatch):
    """From the second round on the judge answers pairs alone, which nobody is asked about; they train nothing."""
    runs, url = place
    monkeypatch.setattr("holdfast.guard.judged.FEWEST", 6)
    monkeypatch.setattr("holdfast.guard.drift.ANCHORS", 6)
    more = {"judge__share": "0.0", "audit__pairs": "12", "audit__more_pairs": "12", "run__rounds": "3"}
    more = settings(url, world__labeller="people+judge", judge__url=judge, judge__model="tiny", **more)
    with people_at_work.answering(url, small_run.NAME):
        run = small_run.run(runs, **more)
    audits = small_run.events_of(run, "audit")
    assert audits[0]["judge"]["share"] == 1.0
    assert audits[-1]["judge"]["share"] < 0.7
    assert audits[-1]["judge"]["pairs"] > audits[-1]["labels"] > 0
    assert audits[-1]["judge"]["saved"] > 0
    assert not small_run.events_of(run, "judge_drifted"), "it answers as it did"
    with PreferenceStore.open(url) as store:
        alone = [c for c in store.unlabelled() if c.purpose == "judged"]
        assert len(alone) == sum(event["judge"]["pairs"] - event["judge"]["both"] for event in audits)
        asked = store.count_asked(small_run.NAME)
        assert asked == len(list(store.each_labelled()))


def test_a_run_goes_on_without_second_opinions(place, monkeypatch):
    """They are only measured, so a judge that is not there does not end the run; an event says it."""
    runs, url = place
    absent = {"judge__url": "http://127.0.0.1:1/v1", "judge__model": "tiny"}
    monkeypatch.setattr("holdfast.remote.endpoint.FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.people.team.SECOND_SHARE", 1.0)
    more = {"world__labeller": "people+judge", "judge__share": "0.0", "run__rounds": "1"}
    with people_at_work.answering(url, small_run.NAME):
        run = small_run.run(runs, **settings(url, **absent, **more))
    missing = small_run.events_of(run, "second_opinions_missing")
    assert [event["comparisons"] for event in missing] == [w["comparisons"] for w in small_run.events_of(run, "waited")]
    assert "cannot be reached" in missing[0]["reason"]


def test_a_judge_needs_to_be_told_where():
    with pytest.raises(HoldfastError, match=r"needs judge\.url"):
        load_config(None, ["world.labeller=judge"])
    with pytest.raises(HoldfastError, match=r"needs judge\.model"):
        load_config(None, ["world.labeller=judge", "judge.url=http://127.0.0.1/v1"])


def test_one_that_is_skipped_was_left_out(place):
    """Of the first eight one is skipped, by the only person there is."""
    runs, url = place
    first = f"{small_run.NAME}/r0000-00000"
    choose = lambda lease: "skip" if lease.comparison.id == first else "left"  # noqa: E731
    with people_at_work.answering(url, small_run.NAME, choose=choose):
        run = small_run.run(runs, **settings(url, run__rounds="1"))
    reasons = [event["reason"] for event in small_run.events_of(run, "waited")]
    assert reasons[0] == "1 was left out, since people skipped it"
