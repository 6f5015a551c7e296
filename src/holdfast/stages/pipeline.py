"""The pipeline: stages one after the other, each a run directory of its own, with one store, one ledger, one report.

    runs/NAME/  config.toml  manifest.json  run.db  ledger.jsonl  probes.json  report.html
                stages/1-sft/  2-reward/  3-ppo/  4-dpo/

A stage that has ended has `stage.json`, its row of the ledger, and is not done again; one that was cut goes on from its
own newest checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.files import check_sums, read_sealed_json, sums_of, write_atomic, write_sealed_json
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm, save_model
from holdfast.models.policy import Policy
from holdfast.preferences.comparison import Choice, Comparison, PreferencePair, Provenance, Response
from holdfast.preferences.labeller import answers_of
from holdfast.preferences.store import PreferenceStore
from holdfast.probes.probe_set import build_set, demonstration_pairs, labelled_pairs
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients, gather, grammars_of
from holdfast.run.observer import Observer
from holdfast.run.origin import load_policy
from holdfast.run.probes import SET_FILE
from holdfast.stages.dpo_run import refuse_people
from holdfast.stages.measurement import Spent, Truth, asking, compare_with_sft, labels_between, measure_policy
from holdfast.stages.plan import Stage, check_reward, plan_stages
from holdfast.stages.work import BEGUN, WORK, Place
from holdfast.track.progress import Progress
from holdfast.worlds.protocol import Task

# Labels of a DPO stage that goes on from PPO's policy, where dpo.newest is 0: older ones are about answers that PPO has
# left behind.
NEWEST_AFTER_PPO = 800
# Held-out prompts on which each stage is measured.
PROMPTS = 200
LEDGER = "ledger.jsonl"
ENDED = "stage.json"
MODEL = "model"


@dataclass
class Pipeline:
    """The stages of one pipeline directory; `run` does those that are left."""

    run_directory: RunDirectory
    config: Config
    task: Task
    progress: Progress
    threads: int = 0
    truth: Truth | None = None
    observe: Callable[[RunDirectory], Sequence[Observer]] = lambda run: ()
    stop_requested: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.stages = plan_stages(self.config.pipeline.stages)

    def run(self) -> list[dict[str, Any]]:
        """All stages that have not ended; returns the ledger."""
        for stage in self.stages:
            place = self.place(stage)
            if (place.run.path / ENDED).is_file():
                check_ended(place.run)
            else:
                self.progress.say(f"stage {stage.number} of {len(self.stages)}: {stage.label}")
                with self.run_directory.keeping_failures():
                    self.work(stage, place)
            self.write_ledger()
        return self.ledger()

    def place(self, stage: Stage) -> Place:
        """Where a stage works, what it starts from, and which ensemble there is by then."""
        run = RunDirectory(self.run_directory.path / "stages" / stage.directory)
        earlier, _ = self.before(stage)
        name = stage.start or (earlier.label if earlier else self.config.policy.path or "built in")
        return Place(stage, run, self.start_of(stage), name, self.ensemble_before(stage), self.key(stage))

    def before(self, stage: Stage) -> tuple[Stage | None, str]:
        """The stage of this pipeline whose policy another one starts from, if it is one, and which checkpoint of it."""
        named, _, checkpoint = stage.start.partition(":")
        for other in reversed(self.stages[: stage.number - 1]):
            if other.label == named if named else other.kind != "reward":
                return other, checkpoint
        return None, ""

    def key(self, stage: Stage) -> str:
        # Ids decide held-out labels and a simulated labeller's slips, so they follow from the seed, not from a name.
        return f"{Path(self.task.name).name}-{self.config.run.seed}/{stage.label}"

    def work(self, stage: Stage, place: Place) -> None:
        """One stage: its work, then what it did, then the file that says it has ended."""
        config = self.stage_config(stage, place)
        ingredients = self.ingredients(config, place)
        had_labels = any((self.run_directory.path / "stages").glob(f"*/{BEGUN}"))
        with PreferenceStore.open(self.database_url(), create=not had_labels) as store:
            before = store.watermark()
            self.prepare_directory(stage, place, config, ingredients)
            begun = place.begun_at(before)
            clock = time.perf_counter()
            done = WORK[stage.kind](ingredients, place, self.progress, self.observe(place.run), self.stop_requested)
            seconds = time.perf_counter() - clock
            spent = labels_between(store, begun, store.watermark())
            if done.model is not None and not (place.run.path / MODEL).is_dir():
                save_model(place.run.path / MODEL, done.model, ingredients.codec)
            row = self.measured(stage, place, config, store, spent) | {
                "tokens_sampled": done.tokens_sampled + spent.tokens,
                "tokens_trained": done.tokens_trained,
                "seconds": seconds,
                "note": done.note,
            }
        model = place.run.path / MODEL
        sums = sums_of(model) if model.is_dir() else {}
        write_sealed_json(place.run.path / ENDED, {"row": row, MODEL: sums})

    def measured(
        self, stage: Stage, place: Place, config: Config, store: PreferenceStore, spent: Spent
    ) -> dict[str, Any]:
        """A row of the ledger."""
        row: dict[str, Any] = {
            "stage": stage.label, "kind": stage.kind, "number": stage.number, "start": place.start_name,
            "labels": spent.labels, "audit_labels": spent.audit_labels,
        }  # fmt: skip
        model = place.run.path / MODEL if stage.kind != "sft" else place.run.reference
        if stage.kind == "reward" or not model.is_dir():
            return row
        fast = config.policy.fast
        lm, codec = load_causal_lm(model)
        policy = Policy(lm, fast=fast).to(config.run.device)
        sft = Policy(load_policy(self.sft_model(model))[0], fast=fast).to(config.run.device)
        prompts = list(self.task.heldout_prompts[:PROMPTS]) or list(self.task.prompts[:100])
        grammars = grammars_of(config, self.task, codec)
        row |= measure_policy(config, codec, policy, sft, prompts, self.truth, grammars)
        asked = None
        if self.sft_model(model) != str(model):  # nobody is asked to compare SFT with itself
            sides = stage.label, policy, sft, grammars
            asked = compare_with_sft(config, self.task, codec, store, self.key(stage), *sides)
        row["win_rate"], row["measure_labels"] = asked, 0 if asked is None else asked["count"]
        return row

    def sft_model(self, otherwise: Path) -> str:
        """What KL is measured to: the first SFT stage's policy, or what the pipeline started from."""
        for stage in self.stages:
            if stage.kind == "sft":
                return str(self.place(stage).run.reference)
        first = self.place(self.stages[0])
        return first.start or str(first.run.reference if first.run.reference.is_dir() else otherwise)

    def start_of(self, stage: Stage) -> str:
        """A stage's policy to begin with, as `load_policy` takes it; empty for one that is built."""
        earlier, checkpoint = self.before(stage)
        return self.policy_of(earlier, checkpoint) if earlier else stage.start or self.config.policy.path

    def starts_from_ppo(self, stage: Stage) -> bool:
        """Whether a stage goes on from a policy of a PPO stage of this pipeline, or from what became of one."""
        earlier, _ = self.before(stage)
        return earlier is not None and (
            earlier.kind == "ppo" or (earlier.kind != "sft" and self.starts_from_ppo(earlier))
        )

    def policy_of(self, stage: Stage, checkpoint: str) -> str:
        run = self.run_directory.path / "stages" / stage.directory
        if checkpoint:
            return f"{run}@{checkpoint}"
        if stage.kind == "reward":
            return self.start_of(stage)
        return str(run / ("reference" if stage.kind == "sft" else MODEL))

    def ensemble_before(self, stage: Stage) -> Path | None:
        """The newest ensemble of the stages before."""
        for other in reversed(self.stages[: stage.number - 1]):
            if other.kind in ("reward", "ppo"):
                return self.run_directory.path / "stages" / other.directory / "rewards"
        return None

    def database_url(self) -> str:
        return self.run_directory.database_url(self.config)

    def stage_config(self, stage: Stage, place: Place) -> Config:
        """The pipeline's settings as a stage needs them."""
        config = self.config
        sft = config.sft if stage.kind == "sft" else replace(config.sft, epochs=0)
        dpo = config.dpo
        if stage.kind == "dpo" and not dpo.newest and self.starts_from_ppo(stage):
            dpo = replace(dpo, newest=NEWEST_AFTER_PPO)
        return replace(
            config,
            sft=sft,
            dpo=dpo,
            policy=replace(config.policy, path=place.start),
            preferences=replace(config.preferences, url=self.database_url()),
        )

    def ingredients(self, config: Config, place: Place) -> Ingredients:
        place.run.check_reference()
        directory = Path(place.start) if place.start else None
        if place.run.reference.is_dir() and place.stage.kind != "sft":
            directory = place.run.reference
        # Given preferences join the store in the first stage that has to do with labels.
        before = self.stages[: place.stage.number - 1]
        stored = any(stage.kind in ("reward", "ppo", "dpo") for stage in before)
        return gather(config, self.task, directory, ensemble_given=True, threads=self.threads, labels_stored=stored)

    def prepare_directory(self, stage: Stage, place: Place, config: Config, ingredients: Ingredients) -> None:
        """The stage's run directory, with the pipeline's probes in it."""
        if not place.run.manifest_file.is_file() and place.run.sealed() is None:
            facts = {
                "world": self.task.name, "seed": config.run.seed, "policy": place.start or "built in",
                "stage": stage.kind, "pipeline": self.run_directory.name, "key": place.key,
                "threads": ingredients.threads,
            }  # fmt: skip
            if self.task.drawing:
                facts["drawing"] = self.task.drawing
            RunDirectory.create(place.run.path, config, facts)
        RunDirectory.open(place.run.path).adopt(config)  # the pipeline's settings were agreed to when it was resumed
        shared = self.run_directory.path / SET_FILE
        if config.probes.every and not shared.is_file():
            self.build_probes(ingredients, shared)
        if shared.is_file() and not (place.run.path / SET_FILE).is_file():
            write_atomic(place.run.path / SET_FILE, shared.read_bytes())

    def build_probes(self, ingredients: Ingredients, path: Path) -> None:
        """The probes of all stages: labelled pairs where there are some, else demonstrations that people compare.

        A demonstration and the one to the most similar prompt are put to the labeller like any comparison, and join
        the store, so that DPO learns from the very pairs that are probed.
        """
        config = self.config
        pairs = labelled_pairs(ingredients.imported)
        if len(pairs) < 2:
            shown = demonstration_pairs(self.task.demonstrations, config.run.seed, config.probes.prompts)
            pairs = self.compared(shown, ingredients.codec)
        if len(pairs) >= 2:
            context = Policy(ingredients.lm, fast=False).context
            build_set(pairs, ingredients.codec, config.run.seed, config.probes.prompts, context).save(path)

    def compared(self, pairs: Sequence[PreferencePair], codec: Codec) -> list[PreferencePair]:
        if self.task.labeller is None:
            return list(pairs)
        written = Provenance("demonstration", 0, 0)
        key = f"{Path(self.task.name).name}-{self.config.run.seed}"
        sides = [(Response(p.chosen, written), Response(p.rejected, written)) for p in pairs]
        asked = [
            Comparison(f"{key}/probe-{n:05d}", pair.prompt, *both, 0, "probe", key)
            for n, (pair, both) in enumerate(zip(pairs, sides, strict=True))
        ]
        with PreferenceStore.open(self.database_url()) as store:
            asked = asking(self.config, self.task, codec, store, key).within_budget(asked, "the probes")
            store.add_comparisons(asked)
            labels = [label for label in answers_of(self.task.labeller, asked) if label.choice != Choice.TIE]
            store.add_labels(labels)
            return labelled_pairs(store.labelled_among([c.id for c in asked]))

    def ledger(self) -> list[dict[str, Any]]:
        files = [self.place(stage).run.path / ENDED for stage in self.stages]
        return [dict(read_sealed_json(file)["row"]) for file in files if file.is_file()]

    def write_ledger(self) -> None:
        text = "".join(json.dumps(row) + "\n" for row in self.ledger())
        write_atomic(self.run_directory.path / LEDGER, text.encode())


def check_ended(run: RunDirectory) -> None:
    """Refuse a stage that has ended and is not as it ended: later stages go on from it."""
    ended = read_sealed_json(run.path / ENDED)
    why = "and later stages go on from it"
    check_sums(run.path / MODEL, ended[MODEL], why)
    run.check_reference()


def check_pipeline(config: Config, task: Task) -> None:
    """Refuse what cannot work before anything is written."""
    refuse_people("A pipeline", task)
    stages = plan_stages(config.pipeline.stages)
    check_reward(stages, config.reward.given)
    first = stages[0]
    if first.kind != "sft" and not config.policy.path and not first.start and task.policy_directory is None:
        raise HoldfastError(
            f"The pipeline begins with {first.kind}, which needs a trained policy: "
            "begin with sft, or give --policy DIR."
        )
    if any(s.kind == "sft" for s in stages) and (not task.demonstrations or config.sft.epochs == 0):
        raise HoldfastError("The stage sft has nothing to imitate: give demonstrations and sft.epochs of at least 1.")
    if any(s.kind != "sft" for s in stages) and task.labeller is None and not config.data.preferences:
        raise HoldfastError("Without a labeller there are no labels: set data.preferences or world.labeller.")
    fresh = config.dpo.comparisons or config.reward.initial_comparisons
    if any(s.kind != "sft" for s in stages) and not config.data.preferences and fresh < 2:
        raise HoldfastError(
            "There are no labels to learn from: raise reward.initial_comparisons or set data.preferences."
        )
