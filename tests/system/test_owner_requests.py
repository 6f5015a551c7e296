"""What owners ask of a run is carried out between steps, once, with an event that says who asked."""

from pathlib import Path

import pytest

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.guard.review import Review
from holdfast.people.requests import RequestStore
from holdfast.preferences.collector import Collector
from holdfast.preferences.store import PreferenceStore
from holdfast.report.data import read_run
from holdfast.report.undone import undone
from holdfast.run.owner import Owner

KEY = "concierge-3"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Runs a small run that finds requests in its database from its first step on."""

    def run(*requests, code=0, **settings):
        real = Owner.__init__

        def with_requests(self, *parts):
            real(self, *parts, poll_seconds=0.05)
            for n, (action, arguments) in enumerate(requests):
                self.requests.ask(f"request-{n:04d}", action, arguments, "a test", "anna")

        monkeypatch.setattr(Owner, "__init__", with_requests)
        assert main(small_run.run_arguments(tmp_path, **settings)) == code
        return tmp_path / small_run.NAME

    return run


def settled(run: Path) -> dict[str, tuple[str, str | None]]:
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        return {r.action: (r.state, r.outcome) for r in RequestStore(store.database, KEY).recent()}


def test_beta_and_budget_are_changed_and_read_back(asked):
    run = asked(("beta", {"value": 0.2}), ("budget", {"value": 1.5}))
    beta, budget = small_run.events_of(run, "owner")
    assert (beta["by"], beta["reason"], beta["step"]) == ("anna", "a test", 1)
    assert beta["after"]["beta"] == pytest.approx(0.2)
    assert budget["after"]["kl_target"] == pytest.approx(1.5)
    rows = small_run.rows_of(run / "metrics.jsonl")
    assert rows[0]["control/beta"] == pytest.approx(0.05, rel=0.2)
    assert rows[1]["control/beta"] == pytest.approx(0.2, rel=0.05)
    assert {state for state, _ in settled(run).values()} == {"done"}


def test_an_audit_ends_the_round_and_asks_about_more_pairs(asked):
    run = asked(("audit", {}), run__steps_per_round="4")
    first = small_run.events_of(run, "round_finished")[0]
    assert (first["round"], first["step"]) == (1, 1)
    assert (
        small_run.events_of(run, "audit")[0]["labels"] == 24
    )  # audit.more_pairs as they come, and as many pointed ones
    assert small_run.events_of(run, "round_finished")[1]["step"] == 5


def test_an_audit_asked_for_in_the_last_step_leaves_the_next_round_whole(asked, monkeypatch):
    ask, looks = RequestStore.pending, iter(range(10_000))
    # Nothing is found before the round's three steps are done.
    monkeypatch.setattr(RequestStore, "pending", lambda self: ask(self) if next(looks) >= 2 else [])
    run = asked(("audit", {}), run__steps_per_round="3", run__rounds="2")
    (owner,) = small_run.events_of(run, "owner")
    assert (owner["round"], owner["step"]) == (1, 3)
    assert [event["step"] for event in small_run.events_of(run, "round_finished")] == [3, 6]
    assert small_run.events_of(run, "audit")[0]["labels"] == 24


def test_what_was_carried_out_before_an_audit_is_said_before_it(asked, monkeypatch):
    seen = []
    judge, looks, ask = Review.judge, iter(range(10_000)), RequestStore.pending

    def look(self, *args, **kwargs):
        seen.append(settled_in(requests[0]))
        return judge(self, *args, **kwargs)

    requests = []
    real = RequestStore.__init__

    def keep(self, *args, **kwargs):
        real(self, *args, **kwargs)
        requests.append(self)

    monkeypatch.setattr(RequestStore, "__init__", keep)
    monkeypatch.setattr(RequestStore, "pending", lambda self: ask(self) if next(looks) >= 1 else [])
    monkeypatch.setattr(Review, "judge", look)
    asked(("beta", {"value": 0.2}), run__steps_per_round="2")
    assert seen[0] == ["done"]


def settled_in(store: RequestStore) -> list[str]:
    return [request.state for request in store.recent()]


def test_a_rollback_that_an_owner_asked_for(asked):
    run = asked(("rollback", {"checkpoint": "round-0000"}), run__steps_per_round="3")
    event = small_run.events_of(run, "rollback")[0]
    assert (event["by"], event["to"], event["step_from"], event["step_to"]) == ("anna", "round-0000", 1, 0)
    assert settled(run)["rollback"] == ("done", "rolled back to round-0000")
    assert small_run.events_of(run, "run_finished")


@pytest.fixture
def good_until_round_3(monkeypatch):
    """Rounds 1 to 3 are found good, and owners are heard from round 4 on; what was the last good one at each audit."""
    goods, ask = [], RequestStore.pending

    def is_good(self, verdict, pairs):
        goods.append(self.good.name)
        return len(goods) <= 3

    monkeypatch.setattr(Review, "is_good", is_good)
    monkeypatch.setattr(RequestStore, "pending", lambda self: ask(self) if len(goods) >= 3 else [])
    return goods


def test_the_guard_returns_to_nothing_that_an_owner_left(asked, good_until_round_3):
    """The owner goes back behind the last good policy, to a checkpoint that the next one would have removed."""
    run = asked(("rollback", {"checkpoint": "round-0002"}), run__rounds="4", checkpoint__keep="2")
    # Round 3 was undone, and so it is done again: in round 4, before a fifth and last one.
    assert good_until_round_3 == ["round-0000", "round-0001", "round-0002", "round-0002", "round-0002"]
    checkpoints = CheckpointStore(run / "checkpoints")
    assert checkpoints.pinned == {"round-0002"}
    assert checkpoints.load("round-0002")
    assert small_run.events_of(run, "rollback")[0]["undone"] == [[4, 7]]


def test_a_rollback_that_cannot_be_is_refused_before_anything_has_moved(asked, good_until_round_3, monkeypatch):
    """The disk is full when the checkpoint is to be kept: the policy is the one of before, and the guard's good one."""

    pin = CheckpointStore.pin

    def full(self, name):
        if name == "round-0002" and len(good_until_round_3) > 2:
            raise HoldfastError("The disk is full.")
        pin(self, name)

    monkeypatch.setattr(CheckpointStore, "pin", full)
    run = asked(("rollback", {"checkpoint": "round-0002"}), run__rounds="4", checkpoint__keep="3")
    assert settled(run)["rollback"] == ("refused", "The disk is full.")
    assert good_until_round_3[3] == "round-0003"
    ledger = CheckpointStore(run / "checkpoints").load("round-0004").tensors["ledger"]
    assert not ledger["undone"].any()


def test_a_rollback_that_is_not_what_the_checkpoint_holds_ends_the_run(asked, good_until_round_3, monkeypatch):
    """Half a rollback is never saved, nor taken for a request that was refused."""
    monkeypatch.setattr("holdfast.run.rollback.differences", lambda before, now, names: ["policy"])
    run = asked(("rollback", {"checkpoint": "round-0002"}), run__rounds="4", checkpoint__keep="3", code=2)
    assert settled(run)["rollback"] == ("asked", None)
    assert CheckpointStore(run / "checkpoints").names()[-1] == "round-0003"


def test_an_owner_goes_back_and_then_forth_after_all(asked, good_until_round_3):
    """To round 1 and then to round 3, whose steps the policy stands on again; the ledger and the report say so."""
    back, forth = ({"checkpoint": name} for name in ("round-0001", "round-0003"))
    run = asked(("rollback", back), ("rollback", forth), run__rounds="4", checkpoint__keep="6")
    assert good_until_round_3[3] == "round-0001"
    first, second = small_run.events_of(run, "rollback")
    assert (first["undone"], second["undone"]) == ([[2, 7]], [[6, 7]])
    assert first["kl_undone"] > 0
    assert second["kl_undone"] == 0, "the one step of round 4 was undone before"
    ledger = CheckpointStore(run / "checkpoints").load("round-0004").tensors["ledger"]
    standing = [int(s) for s, gone in zip(ledger["step"], ledger["undone"], strict=True) if not gone]
    assert standing == [1, 2, 3, 4, 5, 6, 8]
    assert undone(read_run(run)).spans == ((6, 7),)


def test_an_earlier_version_of_the_ensemble_is_gone_back_to(asked, monkeypatch):
    """Asked for in round 3: the policy goes on, and round 4 refreshes version 1 with all that was labelled since."""
    ask = RequestStore.pending
    monkeypatch.setattr(RequestStore, "pending", lambda self: ask(self) if versions_of(self) >= 3 else [])
    settings = {"run__rounds": "4", "gate__use": "false", "refresh__old_per_new": "0.0"}
    run = asked(("reward", {"version": 1}), **settings)
    (event,) = small_run.events_of(run, "owner")
    assert (event["round"], event["before"], event["after"]) == (3, {"version": 3}, {"version": 1})
    assert settled(run)["reward"] == ("done", "went back to version 1 of the ensemble")
    assert not small_run.events_of(run, "rollback")
    refreshes = small_run.events_of(run, "refresh")
    assert [e["version"] for e in refreshes] == [2, 3, 4], "no number is used twice"
    # A round collects 8 comparisons and asks about some in its audit; a fifth never trains.
    assert refreshes[2]["trained_on"] > refreshes[0]["trained_on"] + refreshes[1]["trained_on"]


@pytest.mark.parametrize(("action", "arguments"), [("reward", {"version": 1}), ("beta", {"value": 0.5})])
def test_a_round_that_was_cut_in_its_audit_asks_other_things_after_a_change(tmp_path, monkeypatch, action, arguments):
    """The audit of round 3 is stored and not answered; done again under another reward or beta its answers differ."""
    ask = Collector.ask

    def cut(self, comparisons, *args, **settings):
        if "/audit-r0003" in comparisons[0].id:
            self.store.add_comparisons(comparisons)
            raise KeyboardInterrupt
        return ask(self, comparisons, *args, **settings)

    # No save between the round's steps and its audit, as a slow machine makes one: the round is done again whole.
    monkeypatch.setattr("holdfast.checkpoint.pace.SHARE", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr(Collector, "ask", cut)
        assert main(small_run.run_arguments(tmp_path, gate__use="false")) == 130
    run = tmp_path / small_run.NAME
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        RequestStore(store.database, KEY).ask("after-the-cut", action, arguments, "", "ben")
    assert main(["resume", str(run)]) == 0
    assert settled(run)[action][0] == "done"
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        asked = [item.comparison.id for item in store.labelled()]
    # What stood before the round's steps is asked once, what came after them under another name.
    assert len([i for i in asked if "/r0003-" in i]) == 8
    assert [i for i in asked if "/audit-r0003+1-" in i]
    assert not [i for i in asked if "/audit-r0003-" in i]


def versions_of(requests: RequestStore) -> int:
    """How many versions the run has whose requests these are."""
    database = Path(str(requests._database._engine.url.database))
    return len(list((database.parent / "rewards").glob("v*")))


@pytest.mark.parametrize(
    ("request_", "settings", "words"),
    [
        (("reward", {"version": 99}), {}, "no version 99"),
        (("reward", {"version": 1}), {}, "in use already"),
        (("rollback", {"checkpoint": "round-0099"}), {}, "no checkpoint round-0099"),
        (("budget", {"value": 2.0}), {"kl__controller": "fixed"}, "no KL budget"),
        (("audit", {}), {"guard__mode": "off"}, "guard is off"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_run_goes_on(asked, request_, settings, words):
    run = asked(request_, **settings)
    state, outcome = settled(run)[request_[0]]
    assert state == "refused"
    assert words in outcome
    assert small_run.events_of(run, "run_finished")


def test_a_pause_outlasts_the_process_until_somebody_lets_it_go_on(asked, tmp_path, monkeypatch):
    from holdfast.cli.terminal import StopRequest

    # Stopped while it is paused, as Ctrl-C would.
    looks = iter(range(10_000))
    monkeypatch.setattr(StopRequest, "__call__", lambda self: next(looks) > 3)
    run = asked(("pause", {}), code=130)
    assert settled(run)["pause"] == ("done", "paused the run")
    before = (run / "metrics.jsonl").read_bytes()
    monkeypatch.undo()
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        RequestStore(store.database, KEY).ask("let-it-go-on", "resume", {}, "", "ben")
    assert main(["resume", str(run)]) == 0
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    assert [(e["by"], e["words"]) for e in small_run.events_of(run, "owner")] == [
        ("anna", "paused the run"), ("ben", "let the run go on"),
    ]  # fmt: skip


def test_nothing_is_carried_out_twice_after_a_crash(asked, monkeypatch):
    """Killed after the checkpoint and before the request is marked as done."""

    def crash(self):
        if self.unsettled:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Owner, "settle", crash)
        run = asked(("beta", {"value": 0.2}), code=130)
    assert settled(run)["beta"] == ("asked", None)
    monkeypatch.undo()
    assert main(["resume", str(run)]) == 0
    assert settled(run)["beta"] == ("done", "carried out before the run was restarted")
    assert len(small_run.events_of(run, "owner")) == 1


@pytest.mark.parametrize(
    "bad",
    [
        ("beta", {"value": 0}),
        ("beta", {"value": 1e308}),
        ("budget", {"value": float("nan")}),
        ("beta", {}),
        ("reward", {"version": 0}),
        ("reward", {"version": "1"}),
        ("reward", {"checkpoint": "round-0001"}),
        ("pause", {"x": 1}),
        ("explode", {}),
    ],
)
def test_a_bad_request_is_refused_before_it_is_stored(tmp_path, bad):
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store, pytest.raises(HoldfastError):
        RequestStore(store.database, "run").ask("request-1", *bad, "", "anna")
