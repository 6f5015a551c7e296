"""A trial: paired with the other arms of its seed, resumed where it was cut, read where it has ended."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nostalgic
import small_run
from holdfast.errors import HoldfastError
from holdfast.lab.beginning import beginning_key
from holdfast.lab.observer import GoldObserver
from holdfast.lab.references import reference_key
from holdfast.lab.trial import TRIAL_FILE, Job, ended, read_trial, run_trial, summary
from holdfast.preferences.collector import Collector
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.repeats import repeat_of
from holdfast.run import answers
from holdfast.run.directory import RunDirectory
from holdfast.run.learner import Learner
from holdfast.worlds.registry import load_task, load_world
from lone_events import fields_of

SEED = 5
SMALL = tuple(
    f"{name}={value}" for name, value in small_run.SETTINGS.items() if name not in ("run.seed", "run.threads")
)
UNGUARDED = (*SMALL, "guard.mode=off")


def job(path: Path, *more: str, **changes: Any) -> Job:
    made = Job((*UNGUARDED, "gate.repeats=0", *more), SEED, path, heldout=8, references=path.parent / "references")
    return replace(made, **changes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def one(place: Path) -> Job:
    """A trial that has ended."""
    made = job(place / "one")
    run_trial(made)
    return made


def test_the_measurements_of_a_run(one: Job) -> None:
    trial = run_trial(one)
    assert trial.seed == SEED
    assert trial.steps == [1, 2, 3, 4, 5, 6]
    assert trial.rounds == [1, 1, 2, 2, 3, 3]
    assert len(trial.proxy) == len(trial.gold) == len(trial.kl) == 6
    assert trial.heldout_steps == [0, 2, 4, 6]
    # Nothing rolls back, so what is delivered is the last round's policy, measured with the same draws.
    assert trial.delivered == trial.heldout[-1]
    # 24 at the start, 8 in each of the rounds 2 and 3.
    assert (trial.labels.training, trial.labels.audit, trial.labels.total) == (40, 0, 40)
    assert trial.seconds is not None
    assert trial.seconds > 0
    assert trial.prepared_seconds is not None
    assert trial.prepared_seconds > 0
    assert trial.prepared_cpu_seconds is not None
    assert trial.prepared_cpu_seconds > 0
    assert trial.verdicts == {}
    assert trial.first_alarm is None
    json.dumps(summary(trial))


@pytest.mark.parametrize("shaping", ["none", "sigmoid"])
def test_every_token_that_the_run_samples_is_counted_and_none_of_the_observers(
    shaping: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where the sampler is called: what is thrown away unlabelled as well."""
    sampled: dict[str, int] = {"run": 0, "observer": 0}
    real, answer, asking = answers.sample, answers.Answers.answer, ["run"]

    def counting(*args: Any) -> Any:
        rollout = real(*args)
        sampled[asking[-1]] += sum(rollout.lengths)
        return rollout

    def observed(self: answers.Answers, *args: Any) -> Any:
        asking.append("observer")
        try:
            return answer(self, *args)
        finally:
            asking.pop()

    monkeypatch.setattr(answers, "sample", counting)
    # Answers of the reference that set the scores' zero and unit stand before everything that is counted.
    first = Collector.collect_initial

    def from_here(self: Collector, *args: Any) -> int:
        sampled["run"] = 0
        return first(self, *args)

    monkeypatch.setattr(Collector, "collect_initial", from_here)
    monkeypatch.setattr(answers.Answers, "answer", observed)
    settings = ("guard.mode=act", "audit.pairs=6", "gate.repeats=4", f"reward.shaping={shaping}")
    trial = run_trial(job(place / f"counted-{shaping}", *settings, references=None))
    assert sampled["observer"] > 0
    assert trial.tokens == sampled["run"]


def test_a_beginning_of_a_class_that_was_edited_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine: ...")
    spec = json.dumps(f"{file}:Mine")
    settings = {
        "flaw": [f"flaw.name={spec}", "flaw.where=labels"],
        "world": [f"world.name={spec}"],
        "labeller": [f"world.labeller={spec}"],
    }
    configs = {name: replace(job(tmp_path), overrides=tuple(those)).config() for name, those in settings.items()}
    before = {name: beginning_key(config, "key") for name, config in configs.items()}
    file.write_text("class Mine: x = 1")
    assert all(beginning_key(config, "key") != before[name] for name, config in configs.items())
    # Nobody who labels sees a flaw of the reward.
    rewarding = replace(job(tmp_path), overrides=(f"flaw.name={spec}", "flaw.where=reward")).config()
    was = beginning_key(rewarding, "key")
    file.write_text("class Mine: x = 2")
    assert beginning_key(rewarding, "key") == was


def test_a_trial_that_has_ended_is_read_and_not_run(one: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_trial(one)
    before = small_run.tree_of(one.path)
    monkeypatch.setattr("holdfast.lab.trial._work", _never)
    assert run_trial(one) == first
    assert small_run.tree_of(one.path) == before


def _never(*args: object) -> None:
    raise AssertionError("it had ended")


def test_the_shared_reference_is_the_one_that_the_run_would_have_trained(one: Job, place: Path) -> None:
    alone = job(place / "alone", references=None)
    run_trial(alone)
    different = small_run.differences(small_run.result_of(one.path), small_run.result_of(alone.path))
    assert different == []


def test_arms_of_a_seed_are_paired(one: Job, place: Path) -> None:
    """Same reference, same first comparisons with the same labels, same held-out prompts; then they part."""
    other = job(place / "other", "kl.controller=fixed", "kl.beta=0.5")
    trials = [run_trial(one), run_trial(other)]
    assert trials[0].heldout[0] == trials[1].heldout[0]
    assert trials[0].heldout[1:] != trials[1].heldout[1:]
    for name in ("model.safetensors", "tokenizer.json"):
        assert (one.path / "reference" / name).read_bytes() == (other.path / "reference" / name).read_bytes()
    labelled = []
    for path in (one.path, other.path):
        with PreferenceStore.open(f"sqlite:///{path / 'run.db'}") as store:
            labelled.append([x for x in store.labelled() if x.comparison.round == 0])
    assert len(labelled[0]) == 24
    assert labelled[0] == labelled[1]
    assert len(list((place / "references").iterdir())) == 1


def test_arms_that_begin_alike_share_a_beginning_that_each_would_have_come_to_itself(one: Job, place: Path) -> None:
    run_trial(one)
    settings = (
        "reward.aggregation=worst",
        "flaw.name=verbosity",
        "flaw.where=reward",
        "flaw.onset=1",
        "gate.repeats=4",
    )
    shared, alone = job(place / "shared", *settings), job(place / "by-itself", *settings, references=None)
    for made in (shared, alone):
        run_trial(made)
    assert small_run.differences(small_run.result_of(shared.path), small_run.result_of(alone.path)) == []
    told = [[event["event"] for event in small_run.events_of(made.path)] for made in (shared, alone)]
    assert told[0] == [kind for kind in told[1] if kind != "sft_finished"]
    assert beginning_key(one.config(), KEY) == beginning_key(shared.config(), KEY)
    assert len(list((place / "references").glob(f"*/beginnings/{beginning_key(one.config(), KEY)}"))) == 1


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("kl.beta=0.5", True),
        ("reward.aggregation=mean", True),
        ("reward.aggregation=averaged", False),
        ("guard.mode=act", True),
        ("flaw.name=verbosity", True),
        ("reward.members=3", False),
        ("reward.initial_comparisons=30", False),
        ("world.label_noise=0.3", False),
        ("rollout.temperature=0.9", False),
        (("flaw.name=verbosity", "flaw.where=labels"), False),
    ],
)
def test_a_beginning_follows_from_what_its_labels_and_its_training_follow_from(
    change: str | tuple[str, ...], same: bool, tmp_path: Path
) -> None:
    changes = (change,) if isinstance(change, str) else change
    plain, changed = (job(tmp_path / "t", *more).config() for more in ((), changes))
    assert (beginning_key(plain, KEY) == beginning_key(changed, KEY)) is same
    assert beginning_key(plain, KEY) != beginning_key(plain, f"{KEY}-again")


KEY = f"concierge-{SEED}"


def test_the_same_arm_again_has_other_labels_and_the_same_reference(one: Job, place: Path) -> None:
    again = run_trial(job(place / "again", again=True))
    first = run_trial(one)
    assert again.heldout[0] == first.heldout[0]
    assert again.proxy != first.proxy


def test_a_reference_follows_from_texts_model_and_seed_alone(place: Path) -> None:
    def key(*more: str) -> str:
        config = job(place / "x", *more).config()
        return reference_key(config, load_task(config, load_world(config)))

    same = [key(), key("kl.beta=0.3"), key("reward.members=3"), key("flaw.name=verbosity", "flaw.where=labels")]
    assert len(set(same)) == 1
    others = [key("sft.lr=0.01"), key("policy.hidden=32"), key("world.options={prompts = 65, demonstrations = 64}")]
    assert len({*same, *others}) == 4


class Cut(Exception):
    """As if the process had been killed."""


def cut_after(steps: int) -> Callable[[Learner], None]:
    whole = Learner.step

    def step(self: Learner) -> None:
        if self.journal.position.step == steps:
            raise Cut
        whole(self)

    return step


def test_a_trial_that_was_cut_goes_on_and_ends_the_same(one: Job, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = job(place / "cut")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", cut_after(3))
        with pytest.raises(Cut):
            run_trial(cut)
    assert not ended(cut.path)
    resumed = run_trial(cut)
    unbroken = run_trial(one)
    # The clock of a run that was cut says nothing.
    names = ("seconds", "cpu_seconds", "prepared_seconds", "prepared_cpu_seconds")
    assert [getattr(resumed, name) for name in names] == [None] * 4
    clock = {name: getattr(unbroken, name) for name in names}
    assert replace(resumed, **clock) == unbroken


def test_a_trial_that_stopped_to_ask_and_was_cut_before_it_was_measured_has_ended_all_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody in the lab answers, so that it is begun again is no leave to go on."""
    audits = ("audit.pairs=12", "audit.more_pairs=24", "audit.budget=500", "guard.baseline_batches=4")
    acts = (*SMALL, *audits, "guard.mode=act", "guard.rollbacks=0", "run.rounds=4", f"world.labeller={nostalgic.SPEC}")
    whole, cut = (job(place / name, overrides=acts) for name in ("stopped", "stopped-and-cut"))
    unbroken = run_trial(whole)
    assert unbroken.stopped
    assert max(unbroken.rounds) < 4

    def interrupted(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(GoldObserver, "after_run", interrupted)
        with pytest.raises(Cut):
            run_trial(cut)
    resumed = run_trial(cut)
    assert resumed.rounds == unbroken.rounds
    assert (resumed.stopped, resumed.delivered) == (unbroken.stopped, unbroken.delivered)


def test_a_trial_cut_before_it_had_a_manifest_begins_anew(place: Path) -> None:
    early = job(place / "early", "run.rounds=1")
    early.path.mkdir()
    (early.path / "config.toml").write_text("[run]\n")
    assert run_trial(early).heldout_steps == [0, 2]


def test_another_trials_directory_is_left_alone(one: Job, place: Path) -> None:
    before = small_run.tree_of(one.path)
    for other in (job(one.path, "kl.beta=0.5"), job(one.path, labels="always-left")):
        with pytest.raises(HoldfastError, match="holds a trial with other settings; remove it or give another --runs"):
            run_trial(other)
    foreign = place / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(HoldfastError, match="is not empty"):
        run_trial(job(foreign))
    assert (foreign / "notes.txt").read_text() == "mine"
    assert small_run.tree_of(one.path) == before


def test_a_world_without_gold_cannot_be_measured(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\nb\n")
    blind = Job((*UNGUARDED, "world.name=files", f"data.prompts={prompts}"), 1, tmp_path / "trial")
    with pytest.raises(HoldfastError, match="knows no gold score"):
        run_trial(blind)
    assert not blind.path.exists()


def test_events_become_measurements(one: Job, tmp_path: Path) -> None:
    """What the guard writes, as it writes it, added to a finished trial."""
    copy = tmp_path / "copy"
    shutil.copytree(one.path, copy)
    events = [
        {"event": "verdict", "round": 1, "level": "healthy", "sentence": "fine", "evidence": {}},
        {"event": "verdict", "round": 2, "level": "hacking", "sentence": "longer", "evidence": {}},
        {"event": "rollback", "round": 2, "to": "round-0001", "step_from": 4, "step_to": 2},
        {"event": "verdict", "round": 3, "level": "hacking", "sentence": "again", "evidence": {}},
        {"event": "stopped", "round": 3, "reason": "three times"},
    ]
    with (copy / "events.jsonl").open("a") as file:
        for event in events:
            file.write(json.dumps({"step": 4, "time": "now", **fields_of(event["event"]), **event}) + "\n")
    trial = read_trial(copy)
    assert trial.verdicts == {1: "healthy", 2: "hacking", 3: "hacking"}
    assert trial.sentences[2] == "longer"
    assert trial.first_alarm == 2
    assert trial.rollbacks == [{"step": 4, "round": 2, "to": "round-0001", "step_from": 4, "step_to": 2, "reason": ""}]
    assert trial.stopped == "three times"


def test_labels_that_measure_are_counted_apart(one: Job, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(one.path, copy)
    with PreferenceStore.open(f"sqlite:///{copy / 'run.db'}") as store:
        item = store.labelled()[0]
        audited = replace(item.comparison, id="concierge-5/audit-r0001-00000", purpose="audit")
        again = repeat_of(item.comparison, 2)
        store.add_comparisons([audited, again])
        store.add_labels([replace(item.labels[0], comparison_id=asked.id) for asked in (audited, again)])
    trial = read_trial(copy)
    assert (trial.labels.training, trial.labels.audit) == (40, 2)


def test_without_held_out_answers_only_the_clock_is_of_use(place: Path) -> None:
    timed = run_trial(job(place / "timed", "run.rounds=1", heldout=0))
    assert timed.heldout == []
    assert timed.delivered != timed.delivered
    assert summary(timed)["delivered"] is None
    assert timed.seconds is not None


def test_the_key_does_not_depend_on_the_directory(one: Job) -> None:
    assert RunDirectory.open(one.path).key == f"concierge-{SEED}"
    assert (one.path / TRIAL_FILE).is_file()


def test_a_trial_may_leave_its_weights_behind(place: Path) -> None:
    light = job(place / "light", "run.rounds=1", keep_weights=False)
    first = run_trial(light)
    assert {p.name for p in light.path.iterdir() if p.is_dir()} == set()
    assert run_trial(light) == first


def test_wrong_labels_reach_the_store(place: Path) -> None:
    left = job(place / "left", "run.rounds=4", labels="always-left")
    run_trial(left)
    with PreferenceStore.open(f"sqlite:///{left.path / 'run.db'}") as store:
        late = [x.share_a for x in store.labelled() if x.comparison.round == 4]
        early = [x.share_a for x in store.labelled() if x.comparison.round < 4]
    assert len(late) == 8
    assert set(late) == {1.0}
    assert 0.0 in early
