"""The guard of a trainer put together: what it watches, where it writes, whom it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from holdfast.config import Config, load_config
from holdfast.config.schema import AuditConfig, GuardConfig, LabelsConfig
from holdfast.control.kl import FixedKL, KLController
from holdfast.errors import HoldfastError
from holdfast.guard.plan import budget_for
from holdfast.guard.review import Review
from holdfast.interop.trl.draws import KEPT_PROMPTS, TrainerAnswers
from holdfast.interop.trl.hands import Hands
from holdfast.interop.trl.host import BEGINNING, TrainerHost
from holdfast.interop.trl.readings import EnsembleReading, FunctionsReading, RewardReading
from holdfast.interop.trl.refresher import EnsembleTeacher, take_over_labels
from holdfast.interop.trl.reward import EnsembleReward
from holdfast.interop.trl.snapshot import trained_weights
from holdfast.interop.trl.texts import prompt_of
from holdfast.interop.trl.trainer import bare_model, end_ids_of, has_adapters
from holdfast.parallel.processes import PROCESSES
from holdfast.people.team import TeamLabeller
from holdfast.preferences.collector import Collector
from holdfast.preferences.labeller import Ask, Labeller, labeller_of
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import derive_seed, generator
from holdfast.reward.ensemble import Tokens, VersionStore
from holdfast.reward.refresher import Refresher
from holdfast.run.directory import TRAINER, RunDirectory
from holdfast.track.memory import available
from holdfast.track.progress import Silent
from holdfast.track.tracker import Tracker

# What the comparisons of a trainer's guard are known by.
KEY = "trl"
# Good policies that stay on disk beside those that checkpoints refer to.
KEEP = 2
# Copies of the trained weights that there has to be memory for, before one is kept of the beginning: that one, the last
# good policy's, the policy's own while one of them answers, and a spare one.
COPIES = 4
KEPT_ANSWERS_FILE = "beginning.json"


@dataclass
class Assembly:
    """What a callback was given, and the trainer that it was attached to."""

    trainer: Any
    reward: EnsembleReward | None
    labeller: Labeller | Ask | Literal["people"]
    guard: GuardConfig
    audit: AuditConfig
    labels: LabelsConfig
    controller: KLController | None
    refresh: bool
    seed: int
    say: Callable[[str], None]
    _reading: RewardReading | None = None
    _asked: Labeller | None = None

    def check(self) -> None:
        """Refuse what does not fit together; tell the ensemble which tokens end an answer."""
        people = isinstance(self.labeller, str) and self.labeller == "people"
        self._asked = TeamLabeller("people", self.config) if people else labeller_of(self.labeller)  # type: ignore[arg-type]
        if self.refresh and self.reward is None:
            raise HoldfastError("refresh teaches an ensemble, and there is none among the trainer's reward_funcs.")
        if self.refresh and int(self.trainer.args.world_size) > 1:
            raise HoldfastError("With several processes the ensemble cannot be refreshed; leave refresh out.")
        if self.reward is not None:
            self.reward.end_ids = end_ids_of(self.trainer)

    @property
    def config(self) -> Config:
        """The settings that the guard's parts are read from."""
        return load_config() if self.reward is None else self.reward.config

    def reading(self, hands: Hands) -> RewardReading:
        """The trainer's reward as the guard sees it: the same for as long as the trainer trains."""
        if self._reading is None:
            if self.reward is not None:
                self._reading = EnsembleReading(self.reward)
            else:
                self._reading = FunctionsReading(self.trainer, lambda *asked: self._ask(*asked))
        return self._reading

    def host(self, directory: Path, hands: Hands, saved: Any, planned: int, step: int) -> TrainerHost:
        """The guard, begun or restored."""
        store = self._store(directory, saved is None)
        if saved is None and self.reward is not None:
            take_over_labels(self.reward, store)
            self.reward.ensemble.watermark = store.watermark()
        self._reading = None
        reading, rounds = self.reading(hands), planned if saved is None else int(saved["rounds"])
        self._keep_beginning(hands, saved is None)
        answers = TrainerAnswers(hands, reading, self._places(hands, reading))
        self._ask = answers.values
        host = TrainerHost(
            hands=hands,
            review=Review.planned(
                self.guard, self.audit, rounds, self.seed, self._collector(hands, answers, store, rounds)
            ),
            controller=self.controller or FixedKL(float(self.trainer.beta)),
            answers=answers,
            store=store,
            tracker=Tracker(directory),
            teacher=self._teacher(directory, store, answers),
            say=self.say,
            rounds=rounds,
        )  # fmt: skip
        host.review.auditor.collector.event = host.event
        self._connect(host, directory)
        if self.reward is not None:
            self.reward.ensemble.tell = lambda left_out: host.event("member_degraded", **asdict(left_out))
        self._begin(host, directory / KEPT_ANSWERS_FILE, saved, step)
        return host

    def _store(self, directory: Path, new: bool) -> PreferenceStore:
        """The labels, in a run directory that `holdfast serve` and `holdfast report` read like any other."""
        if not new:
            run = RunDirectory.open(directory)
            return run.open_store(run.config())
        if (directory / "manifest.json").exists():
            raise HoldfastError(
                f"{directory} holds the guard of an earlier run; resume that with resume_from_checkpoint, "
                "choose another output_dir, or remove it."
            )
        config = replace(load_config(), guard=self.guard, audit=self.audit, labels=self.labels)
        trainer = type(self.trainer).__name__
        facts = {"key": KEY, "stage": "trl", TRAINER: trainer, "seed": self.seed, "policy": self.policy}
        return RunDirectory.create(directory, config, facts).open_store(config)

    @property
    def policy(self) -> str:
        """What the model is called."""
        return str(getattr(bare_model(self.trainer).config, "_name_or_path", "") or type(self.trainer.model).__name__)

    @property
    def _overlap(self) -> float:
        return self.config.people.overlap if isinstance(self._asked, TeamLabeller) else 0.0

    def _connect(self, host: TrainerHost, directory: Path) -> None:
        """Give people their queue, and say where it is while they are waited for."""
        if not isinstance(self._asked, TeamLabeller):
            return
        told: list[int] = []

        def hold(words: str, done: int, of: int) -> None:
            if words and not told:
                self.say(f"waiting for people to answer {of} pairs: `holdfast serve {directory.parent}` shows them")
            told[:] = [done] if words and done < of else []

        self._asked.connect(host.store, KEY, hold, lambda: False, host.event)

    def _begin(self, host: TrainerHost, file: Path, saved: Any, step: int) -> None:
        if not host.reference.there:
            if saved is None:
                host.answers.keep_answers(derive_seed(self.seed, "beginning"), file)
            else:
                host.answers.load_answers(file)
        if host.controller.beta > 0.0 and not host.hands.can_hold:
            raise HoldfastError(
                "The trainer was made with beta 0 and cannot be given a reference model here, so a controller has "
                "nothing to steer; make it with a beta, or leave the controller out."
            )
        if saved is None:
            host.audited = step
            host.hands.do("hold", beta=host.controller.beta)
            host.begin()
        else:
            host.restore(saved)

    def _keep_beginning(self, hands: Hands, new: bool) -> None:
        """Where the trainer has no reference of its own: the policy's present weights, if there is memory for them."""
        hands.do("keep_anchor") if new else None
        if self.trainer.ref_model is not None or has_adapters(self.trainer):
            return
        size = sum(one.numel() * one.element_size() for one in trained_weights(bare_model(self.trainer)).values())
        room = available()
        if room is not None and room < COPIES * size * PROCESSES.world:
            self.say(
                "There is no memory for a copy of the policy's beginning, so its answers to "
                f"{min(KEPT_PROMPTS, len(hands.rows))} prompts are kept in its place, and KL is not measured."
            )
            return
        if new:
            hands.do("keep_beginning")
        else:
            hands.do("load", player="reference", name=BEGINNING)

    def _places(self, hands: Hands, reading: RewardReading) -> dict[tuple[int, ...], int]:
        """Where the prompts of audits stand among the rows; of two that are alike the first one."""
        rows = hands.rows if hands.reference.there else hands.rows[:KEPT_PROMPTS]
        places: dict[tuple[int, ...], int] = {}
        for place, row in enumerate(rows):
            places.setdefault(tuple(reading.codec.encode_prompt(prompt_of(row["prompt"]))), place)
        return places

    def _collector(self, hands: Hands, answers: TrainerAnswers, store: PreferenceStore, rounds: int) -> Collector:
        prompts = [prompt_of(hands.rows[place]["prompt"]) for place in answers.places.values()]
        reading = answers.reading
        return Collector(
            KEY, reading.codec, prompts, store, self._asked, reading.claimant, self.config.preferences, self.seed,
            budget=budget_for(self.labels, self.audit, rounds, self._overlap), branches=True,
        )  # fmt: skip

    def _teacher(self, directory: Path, store: PreferenceStore, answers: TrainerAnswers) -> EnsembleTeacher | None:
        reward = self.reward
        if reward is None:
            return None
        versions = VersionStore(directory / "rewards")
        standard: tuple[Tokens, Tokens] = [], []
        if self.refresh:
            if reward.ensemble.version not in versions.numbers():
                versions.save(reward.ensemble)
            rng, prompts = generator(self.seed, "standardise"), list(answers.places)
            rows = torch.randint(len(prompts), (reward.config.reward.standardise_samples,), generator=rng).tolist()
            drawn = answers.sample(answers.hands.reference, [list(prompts[i]) for i in rows], rng)
            standard = drawn.prompts, drawn.responses
        refreshing = Refresher(
            reward.ensemble, versions, store, reward.codec, reward.config.reward, reward.config.refresh, *standard,
            Silent(), reward.config.gate,
        )  # fmt: skip
        return EnsembleTeacher(reward, store, refreshing, self.seed, self.refresh)
