"""The guard as a callback of a trainer's: audits, beta, rollback and stop while GRPO or RLOO goes on.

on_train_begin   a new guard with baselines from the reference's answers, or the saved one of a resumed run
on_step_end      signals of the step, beta; every so many steps an audit, a verdict, and what follows from it
on_save          what the saved state refers to is kept
on_train_end     a last audit where the last step had none
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from holdfast.checkpoint.store import CheckpointStore
from holdfast.config.schema import AuditConfig, GuardConfig, LabelsConfig
from holdfast.control.kl import FixedKL, KLController
from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.guard.plan import budget_for
from holdfast.guard.review import Review
from holdfast.interop.trl.answers import Player, TrainerAnswers
from holdfast.interop.trl.host import Batch, TrainerHost
from holdfast.interop.trl.refresher import EnsembleTeacher, take_over_labels
from holdfast.interop.trl.reward import EnsembleReward
from holdfast.interop.trl.snapshot import bare_model, trained_weights
from holdfast.interop.trl.texts import TRLPrompt, prompt_of
from holdfast.preferences.collector import Collector
from holdfast.preferences.labeller import Ask, Labeller, labeller_of
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import generator
from holdfast.reward.ensemble import Tokens, VersionStore
from holdfast.reward.refresher import Refresher
from holdfast.reward.source import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.track.progress import Silent
from holdfast.track.tracker import Tracker

# Under this name the guard's state is in the trainer's own trainer_state.json. It is not that of a class, because the
# trainer would then make a new callback from it, which would know neither the ensemble nor the labeller.
SAVED_AS = "holdfast"
# How the keys of all sittings of a trainer begin: with this and the step at which one began.
FAMILY = "trl@"
# Prompts that audits and baselines are drawn from: enough that few come twice, few enough to encode at the start.
AUDIT_PROMPTS = 2000
# The trainer's own numbers that signals are made from.
READ = ("kl", "entropy", "clip_ratio/region_mean")


class HoldfastCallback(TrainerCallback):  # type: ignore[misc]
    """Watches over a GRPO or RLOO trainer; make it, then `attach` it.

    `labeller` answers the audits: a function of (prompt, a, b), a judge, or a world's labeller. There are `every` steps
    between audits. `controller` steers beta (fixed by default). `prompts` are asked about in audits (those of the
    training set by default). `refresh` lets the ensemble learn from the audits' labels. Everything of the guard's own
    is written to `directory` (OUTPUT_DIR/holdfast by default).
    """

    def __init__(
        self,
        reward: EnsembleReward,
        labeller: Labeller | Ask,
        *,
        every: int = 10,
        guard: GuardConfig | None = None,
        audit: AuditConfig | None = None,
        labels: LabelsConfig | None = None,
        controller: KLController | None = None,
        prompts: Sequence[TRLPrompt] | None = None,
        refresh: bool = False,
        seed: int = 0,
        directory: str | Path | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        if every < 1:
            raise HoldfastError(f"There are {every} steps between audits; make it 1 or more.")
        if guard is not None and guard.mode == "off":
            raise HoldfastError("The guard's mode is off; leave the callback out, or set the mode to act or advise.")
        self.reward, self.labeller = reward, labeller_of(labeller)
        self.guard, self.audit, self.labels = guard or GuardConfig(), audit or AuditConfig(), labels or LabelsConfig()
        self._every, self._controller, self._prompts, self._refresh = every, controller, prompts, refresh
        self._seed, self._directory, self._say = seed, directory, say
        self._trainer: Any = None
        self._host: TrainerHost | None = None
        self._batches: list[Batch] = []
        self._read: dict[str, int] = {}  # how many of each of the trainer's numbers have been read

    def attach(self, trainer: Any) -> HoldfastCallback:
        """Join a trainer, which must not have begun; refused in one sentence where it cannot be guarded."""
        check_trainer(trainer, self.reward)
        self._trainer = trainer
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ends = getattr(trainer, "eos_token_ids", None) or [tokenizer.eos_token_id]
        self.reward.end_ids = frozenset(int(i) for i in ends)
        self.reward.watch = self._watch
        if self._controller is not None:
            trainer.beta = self._controller.beta
        trainer.add_callback(self)
        return self

    @property
    def host(self) -> TrainerHost:
        """The guard at work; only while and after the trainer trains."""
        if self._host is None:
            raise HoldfastError("The trainer has not begun to train yet, so there is nothing to see.")
        return self._host

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._trainer is None:
            raise HoldfastError("HoldfastCallback was given to a trainer as a callback; call attach(trainer) instead.")
        if self._host is not None:
            self._host.close()
        self._batches, self._read = [], {}
        saved = (state.stateful_callbacks or {}).get(SAVED_AS)
        self._host = self._oversee(args, state, saved)
        if saved is None:
            self._host.audited = int(state.global_step)
            self._host.begin()
        else:
            self._host.restore(saved)
        self._export(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        host = self.host
        metrics = self._metrics()
        if self._batches:
            # Of several generations in a step the last one: the newest policy's.
            host.see(self._batches[-1], metrics)
            self._batches = []
        last = state.global_step >= state.max_steps
        if (last or state.global_step - host.audited >= self._every) and host.audit(last):
            control.should_training_stop = True
        self._export(state)
        return control

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._read = {}  # the trainer forgets its numbers once they are logged

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what rollbacks of this run, resumed from any of its checkpoints, would go back to; let the rest go."""
        host = self.host
        named = {host.review.good.name, *names_in(Path(args.output_dir))}
        there, pinned = set(host.kept.names()), host.kept.pinned
        for name in (named & there) - pinned:
            host.kept.pin(name)
        for name in pinned - named:
            host.kept.unpin(name)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        host = self.host
        if state.global_step > host.audited and not host.review.stopped:
            host.audit(last=True)
            self._export(state)

    def _watch(self, rollout: Rollout, scored: Scored, tokens: Sequence[int]) -> None:
        # Evaluation is scored by the same function, and is no step of training.
        if self._trainer is not None and self._trainer.model.training:
            self._batches.append(Batch(rollout, scored, list(tokens)))

    def _metrics(self) -> dict[str, float]:
        """The trainer's own numbers since the last step: the mean over its micro-batches."""
        logged = getattr(self._trainer, "_metrics", {}).get("train", {})
        means = {}
        for name in READ:
            values = list(logged.get(name, ()))
            new = values[self._read.get(name, 0) :]
            self._read[name] = len(values)
            if new:
                means[name] = sum(new) / len(new)
        return means

    def _export(self, state: Any) -> None:
        """Into what the trainer saves with its checkpoints."""
        state.stateful_callbacks[SAVED_AS] = self.host.state()

    def _oversee(self, args: Any, state: Any, saved: Any) -> TrainerHost:
        """Put the guard together."""
        trainer, reward = self._trainer, self.reward
        directory = Path(self._directory or Path(args.output_dir) / "holdfast")
        if saved is None and (directory / "labels.db").exists():
            raise HoldfastError(
                f"{directory} holds the guard of an earlier run; resume that with resume_from_checkpoint, "
                "choose another output_dir, or remove it."
            )
        directory.mkdir(parents=True, exist_ok=True)
        store = PreferenceStore.open(f"sqlite:///{directory / 'labels.db'}")
        if saved is None:
            take_over_labels(reward, store)
            reward.ensemble.watermark = store.watermark()
        planned = max(1, math.ceil((state.max_steps - state.global_step) / self._every))
        rounds = planned if saved is None else int(saved["rounds"])
        originals = self._audit_prompts()
        prompts = [prompt_of(p) for p in originals]
        answers = TrainerAnswers(
            trainer, reward, {tuple(reward.codec.encode_prompt(p)): g for p, g in zip(prompts, originals, strict=True)}
        )
        key = free_key(store, f"{FAMILY}{state.global_step}")
        collector = Collector(
            key, reward.codec, prompts, store, self.labeller, reward.ensemble, reward.config.preferences, self._seed,
            budget=budget_for(self.labels, self.audit, rounds), family=FAMILY,
        )  # fmt: skip
        anchor = Player("anchor", trainer)
        anchor.load_state_dict(trained_weights(bare_model(trainer)))
        host = TrainerHost(
            trainer=trainer,
            review=Review.planned(self.guard, self.audit, rounds, self._seed, collector),
            controller=self._controller or FixedKL(float(trainer.beta)),
            answers=answers,
            policy=Player("policy", trainer),
            reference=Player("reference", trainer),
            anchor=anchor,
            kept=CheckpointStore(directory / "good", keep=2),
            tracker=Tracker(directory),
            refresher=self._refresher(directory, store, answers),
            say=self._say,
            rounds=rounds,
        )  # fmt: skip
        collector.event = host.event
        reward.ensemble.tell = lambda left_out: host.event("member_degraded", **asdict(left_out))
        return host

    def _refresher(self, directory: Path, store: PreferenceStore, answers: TrainerAnswers) -> EnsembleTeacher:
        reward = self.reward
        versions = VersionStore(directory / "rewards")
        standard: tuple[Tokens, Tokens] = [], []
        if self._refresh:
            if reward.ensemble.version not in versions.numbers():
                versions.save(reward.ensemble)
            rng, prompts = generator(self._seed, "standardise"), list(answers.prompts)
            rows = torch.randint(len(prompts), (reward.config.reward.standardise_samples,), generator=rng).tolist()
            drawn = answers.sample(Player("reference", self._trainer), [list(prompts[i]) for i in rows], rng)
            standard = drawn.prompts, drawn.responses
        refreshing = Refresher(
            reward.ensemble, versions, store, reward.codec, reward.config.reward, reward.config.refresh, *standard,
            Silent(), reward.config.gate,
        )  # fmt: skip
        return EnsembleTeacher(reward, store, refreshing, self._seed, self._refresh)

    def _audit_prompts(self) -> list[TRLPrompt]:
        """Those that were given, or those of the training set; of many a draw."""
        prompts: Any = self._prompts
        if prompts is None:
            dataset = self._trainer.train_dataset
            if not hasattr(dataset, "__len__"):
                raise HoldfastError("The training set is a stream; give the callback prompts to ask about in audits.")
            rows: Any = range(len(dataset))
            if len(rows) > AUDIT_PROMPTS:
                order = torch.randperm(len(rows), generator=generator(self._seed, "audit prompts"))
                rows = order[:AUDIT_PROMPTS].tolist()
            prompts = [dataset[i]["prompt"] for i in rows]
        if not len(prompts):
            raise HoldfastError("There is no prompt to ask about in audits; give the callback some.")
        return list(prompts)


def check_trainer(trainer: Any, reward: EnsembleReward) -> None:
    """Refuse, in one sentence, a trainer over which the guard would have no power."""
    for name in ("beta", "ref_model", "reward_funcs", "processing_class", "accelerator"):
        if not hasattr(trainer, name):
            raise HoldfastError(f"The trainer has no {name}; attach to a GRPOTrainer or an RLOOTrainer of TRL's.")
    if not any(function is reward for function in trainer.reward_funcs):
        raise HoldfastError("The trainer is not trained on this reward; give it to the trainer among its reward_funcs.")
    if float(trainer.beta) <= 0.0:
        raise HoldfastError(
            "The trainer was made with beta 0, so it has no reference model to compare with or to hold the policy to; "
            "make it with a beta above 0, such as 0.001."
        )
    if int(trainer.args.world_size) > 1:
        raise HoldfastError(f"The trainer runs in {trainer.args.world_size} processes; the guard works in one only.")
    if getattr(trainer, "is_deepspeed_enabled", False) or getattr(trainer, "is_fsdp_enabled", False):
        raise HoldfastError("The trainer's weights are sharded (DeepSpeed or FSDP), which the guard cannot put back.")
    if getattr(trainer.args, "sync_ref_model", False):
        raise HoldfastError("With sync_ref_model the reference follows the policy into a hack; set it to False.")


def free_key(store: PreferenceStore, key: str) -> str:
    """What comparison ids begin with; a run resumed twice from one checkpoint asks about other answers each time."""
    number = 1
    while store.has_run(f"{key}.{number}"):
        number += 1
    return f"{key}.{number}"


def names_in(output: Path) -> set[str]:
    """The good policies that the trainer's checkpoints refer to."""
    names = set()
    for path in output.glob("checkpoint-*/trainer_state.json"):
        # Not by our own reader: a trainer's log may hold NaN.
        try:
            saved = (json_of(path.read_text(encoding="utf-8")).get("stateful_callbacks") or {}).get(SAVED_AS)
        except ValueError as error:
            raise HoldfastError(f"{path} is damaged: it is not JSON ({error}); remove that checkpoint.") from error
        if saved is not None:
            names.add(str(saved["review"]["good"]["name"]))
    return names
