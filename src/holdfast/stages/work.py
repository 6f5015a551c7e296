"""What each kind of stage does, in a run directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.files import read_sealed_json, write_sealed_json
from holdfast.models.lora import merged
from holdfast.preferences.pair import pairs_of
from holdfast.reward.replay import holdout_place
from holdfast.reward.standalone import load_ensemble
from holdfast.reward.training import labels_for
from holdfast.run.answers import sampling_of
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.observer import Observer
from holdfast.run.probes import own_answers, probe_set, prober_of
from holdfast.run.reference import imitator, prepare_reference, take_in
from holdfast.stages.distillation import EPOCHS, distil
from holdfast.stages.dpo_run import assemble_dpo
from holdfast.stages.plan import Stage
from holdfast.text import counted
from holdfast.track.progress import Progress
from holdfast.track.sinks import read_rows
from holdfast.track.tracker import METRICS_FILE, PROBES_FILE, Tracker
from holdfast.train.best_of_n import BestOfN

BEGUN = "begun.json"


@dataclass(frozen=True)
class Place:
    """Where a stage works: its run directory, what it starts from, the ensemble there is, its key for ids.

    `start` is what `load_policy` takes, `start_name` what people call it.
    """

    stage: Stage
    run: RunDirectory
    start: str
    start_name: str
    ensemble: Path | None
    key: str

    def begun_at(self, watermark: int) -> int:
        """The newest label when the stage began, also after it was cut and resumed."""
        file = self.run.path / BEGUN
        if not file.is_file():
            write_sealed_json(file, {"watermark": watermark})
        return int(read_sealed_json(file)["watermark"])


@dataclass(frozen=True)
class Done:
    """A stage's policy, where it has a new one that is not on disk yet, and the tokens it took."""

    model: Any = None
    tokens_sampled: int = 0
    tokens_trained: int = 0
    note: str = ""


Stop = Callable[[], bool]


def work_sft(
    ingredients: Ingredients, place: Place, progress: Progress, observers: Sequence[Observer], stop: Stop
) -> Done:
    """Supervised fine-tuning; the result is the run's reference."""
    with closing(Tracker(place.run.path)) as tracker:
        if not place.run.reference.is_dir():
            tracker.forget(PROBES_FILE)
        prepare_reference(ingredients, place.run, tracker, progress)
    codec, config = ingredients.codec, ingredients.config
    tokens = sum(len(codec.encode_response(d.response)) for d in ingredients.task.demonstrations)
    return Done(tokens_trained=config.sft.epochs * tokens)


def work_reward(
    ingredients: Ingredients, place: Place, progress: Progress, observers: Sequence[Observer], stop: Stop
) -> Done:
    """The first version of an ensemble, from every label there is and fresh ones."""
    with assemble(ingredients, place.run, progress, (), stop) as loop:
        accuracy = loop.training.holdout_accuracy()
        ensemble, store = loop.training.ensemble, loop.collector.store
        known = store.labelled(watermark=ensemble.watermark)
    config = ingredients.config.reward
    pairs = pairs_of(ingredients.codec, [x for x in known if holdout_place(x.comparison.id) >= config.holdout])
    shares = [labels_for(k, len(ensemble.members), pairs) for k in range(len(ensemble.members))]
    tokens = config.epochs * sum(len(p.a) + len(p.b) for share in shares for p in share)
    right = "" if accuracy is None else f", right on {accuracy.of('held-out label')}"
    return Done(tokens_trained=tokens, note=f"{counted(ensemble.labels, 'label')}{right}")


def work_ppo(
    ingredients: Ingredients, place: Place, progress: Progress, observers: Sequence[Observer], stop: Stop
) -> Done:
    """Rounds of the online loop under the guard."""
    ensemble = place.ensemble if place.ensemble is not None and place.ensemble.is_dir() else None
    config = ingredients.config
    with assemble(ingredients, place.run, progress, observers, stop, ensemble) as loop:
        loop.run()
        note = "stopped by the guard at its last good policy" if loop.stopped else ""
        lm = merged(loop.learner.policy.lm)
    tokens = rollout_tokens(place.run.path, config.ppo.batch * config.ppo.samples_per_prompt)
    return Done(lm, tokens, config.ppo.epochs * tokens, note)


def work_dpo(
    ingredients: Ingredients, place: Place, progress: Progress, observers: Sequence[Observer], stop: Stop
) -> Done:
    """DPO on the store's labels: all, or the newest."""
    with assemble_dpo(ingredients, place.run, progress, observers, stop) as dpo:
        dpo.run()
        pairs, lm = dpo.pairs, merged(dpo.policy.lm)
    tokens = sum(len(p.chosen) + len(p.rejected) for p in pairs)
    return Done(lm, 0, ingredients.config.dpo.epochs * tokens, counted(len(pairs), "pair"))


def work_distil(
    ingredients: Ingredients, place: Place, progress: Progress, observers: Sequence[Observer], stop: Stop
) -> Done:
    """Best-of-n answers back into the policy."""
    config, codec = ingredients.config, ingredients.codec
    assert place.ensemble is not None
    ensemble = load_ensemble(place.ensemble, ingredients.lm, codec, config)
    policy = imitator(ingredients)
    with closing(Tracker(place.run.path)) as tracker:
        aggregation = config.reward.aggregation
        chooser = BestOfN(policy, ensemble, codec, sampling_of(config), aggregation, ingredients.grammars)
        tracker.forget(PROBES_FILE)
        probes = probe_set(config, place.run, codec, policy.context, ())
        prober = prober_of(config, place.run, codec, tracker, "distil", probes)
        if prober is not None:
            prober.begin(policy, own_answers(ingredients, "distil"))

        def after_update(update: int) -> None:
            if prober is not None and prober.due(update):
                prober.probe(policy, update, 0)

        done = distil(chooser, ingredients.task.prompts, config, progress, after_update)
    take_in(ingredients, policy)
    trained = EPOCHS * done.answers * done.tokens_sampled // max(1, config.bestofn.n * done.answers)
    return Done(ingredients.lm, done.tokens_sampled, trained, f"imitated {counted(done.answers, 'answer')}")


WORK = {"sft": work_sft, "reward": work_reward, "ppo": work_ppo, "dpo": work_dpo, "distil": work_distil}


def rollout_tokens(run: Path, answers: int) -> int:
    """Tokens of the answers that the policy was trained on."""
    file = run / METRICS_FILE
    rows = read_rows(file) if file.is_file() else ()
    return int(sum(answers * row["response/length_mean"] for row in rows if row.get("response/length_mean")))
