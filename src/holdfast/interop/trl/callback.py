"""The guard as a callback of a trainer's: audits, beta, rollback and stop while GRPO or RLOO goes on.

on_train_begin   a new guard with baselines from the beginning's answers, or the saved one of a resumed run
on_step_end      signals of the step, beta; every so many steps an audit, a verdict, and what follows from it
on_save          what the saved state refers to is kept
on_train_end     a last audit where the last step had none

Of several processes the first leads: it alone asks the labeller and judges. The others do their share of the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from transformers import TrainerCallback

from holdfast.checkpoint.store import CheckpointStore
from holdfast.config.schema import AuditConfig, GuardConfig, LabelsConfig
from holdfast.control.kl import KLController
from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.interop.trl.answers import Player
from holdfast.interop.trl.assembly import KEEP, Assembly
from holdfast.interop.trl.hands import Hands
from holdfast.interop.trl.host import BEGINNING, Batch, TrainerHost
from holdfast.interop.trl.reward import EnsembleReward
from holdfast.interop.trl.texts import Row, TRLPrompt, rollout_of, texts_of
from holdfast.interop.trl.trainer import check_trainer, rows_of
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.labeller import Ask, Labeller

# Under this name the guard's state is in the trainer's own trainer_state.json. It is not that of a class, because the
# trainer would then make a new callback from it, which would know neither the reward nor the labeller.
SAVED_AS = "holdfast"
# The trainer's own numbers that signals are made from.
READ = ("kl", "entropy", "clip_ratio/region_mean")
# How long one process may keep the others waiting, in minutes.
PATIENCE = 30.0


class HoldfastCallback(TrainerCallback):  # type: ignore[misc]
    """Watches over a GRPO or RLOO trainer, whatever its reward functions are; make it, then `attach` it.

    `labeller` answers the audits: a function of (prompt, a, b), a judge, a world's labeller, or "people", who answer on
    the labelling page of `holdfast serve OUTPUT_DIR`. There are `every` steps between audits. `controller` steers beta
    (fixed by default). `prompts` are asked about in audits, as prompts or as rows with the columns that reward
    functions need (the training set by default). `refresh` lets an ensemble among the reward functions learn from the
    audits' labels. Everything of the guard's own is written to `directory` (OUTPUT_DIR/holdfast by default).
    """

    def __init__(
        self,
        labeller: Labeller | Ask | Literal["people"],
        *,
        every: int = 10,
        guard: GuardConfig | None = None,
        audit: AuditConfig | None = None,
        labels: LabelsConfig | None = None,
        controller: KLController | None = None,
        prompts: Sequence[TRLPrompt | Row] | None = None,
        refresh: bool = False,
        seed: int = 0,
        directory: str | Path | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        if every < 1:
            raise HoldfastError(f"There are {every} steps between audits; make it 1 or more.")
        if guard is not None and guard.mode == "off":
            raise HoldfastError("The guard's mode is off; leave the callback out, or set the mode to act or advise.")
        self.guard, self.audit, self.labels = guard or GuardConfig(), audit or AuditConfig(), labels or LabelsConfig()
        self.labeller = labeller
        self.reward: EnsembleReward | None = None  # the ensemble among the reward functions, where there is one
        self._every, self._controller, self._prompts, self._refresh = every, controller, prompts, refresh
        self._seed, self._directory, self._say = seed, directory, say
        self._trainer: Any = None
        self._calculate: Callable[..., Tensor]
        self._hands: Hands | None = None
        self._host: TrainerHost | None = None
        self._assembly: Assembly | None = None
        self._batches: list[Batch] = []
        self._audited = 0
        self._stopped = False
        self._read: dict[str, int] = {}  # how many of each of the trainer's numbers have been read

    def attach(self, trainer: Any) -> HoldfastCallback:
        """Join a trainer, which must not have begun; refused in one sentence where it cannot be guarded."""
        check_trainer(trainer)
        self._trainer = trainer
        self.reward = ensemble_among(trainer.reward_funcs)
        self._assembly = Assembly(
            trainer, self.reward, self.labeller, self.guard, self.audit, self.labels, self._controller, self._refresh,
            self._seed, self._say,
        )  # fmt: skip
        self._assembly.check()
        self._calculate = trainer._calculate_rewards
        trainer._calculate_rewards = self._scored
        trainer.add_callback(self)
        return self

    @property
    def host(self) -> TrainerHost:
        """The guard at work; only while and after the trainer trains, and in the first process."""
        if self._host is None:
            raise HoldfastError("The trainer has not begun to train yet, so there is nothing to see.")
        return self._host

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._trainer is None or self._assembly is None:
            raise HoldfastError("HoldfastCallback was given to a trainer as a callback; call attach(trainer) instead.")
        PROCESSES.start(PATIENCE, cpu=self._trainer.accelerator.device.type == "cpu", sharded=False)
        PROCESSES.remedy = "; resume the training from its newest checkpoint"
        PROCESSES.listen(False)
        if self._host is not None:
            self._host.close()
        self._batches, self._read, self._stopped = [], {}, False
        saved = (state.stateful_callbacks or {}).get(SAVED_AS)
        self._audited = int(state.global_step) if saved is None else int(saved["audited"])
        directory = Path(self._directory or Path(args.output_dir) / "holdfast")
        self._hands = Hands(
            self._trainer,
            rows_of(self._trainer, self._prompts, self._seed),
            CheckpointStore(directory / "good", keep=KEEP),
            self._calculate,
            policy=Player("policy", self._trainer),
            reference=Player("reference", self._trainer),
            anchor=Player("anchor", self._trainer),
        )
        if not PROCESSES.main:
            self._hands.follow()
            return
        with self._hands.leading():
            rounds = max(1, math.ceil((state.max_steps - state.global_step) / self._every))
            self._host = self._assembly.host(directory, self._hands, saved, rounds, int(state.global_step))
            self._export(state)
            self._hands.do("end_review")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        last = state.global_step >= state.max_steps
        due = last or state.global_step - self._audited >= self._every
        metrics = self._metrics()
        if due and "kl" not in metrics:
            metrics |= self._measured()
        if self._batches and self._host is not None:
            # Of several generations in a step the last one: the newest policy's.
            self._host.see(self._batches[-1], metrics)
        self._batches = []
        self._steer()
        if due:
            self._review(state, last)
        if self._host is not None:
            self._export(state)
        if self._stopped:
            control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._read = {}  # the trainer forgets its numbers once they are logged

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what rollbacks of this run, resumed from any of its checkpoints, would go back to; let the rest go."""
        if not PROCESSES.main:
            return
        host = self.host
        kept = host.hands.kept
        named = {host.review.good.name, *names_in(Path(args.output_dir))}
        if host.reference.kept:
            named.add(BEGINNING)  # the reference's weights are there and nowhere else
        there, pinned = set(kept.names()), kept.pinned
        for name in (named & there) - pinned:
            kept.pin(name)
        for name in pinned - named:
            kept.unpin(name)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step > self._audited and not self._stopped:
            self._review(state, last=True)
            if self._host is not None:
                self._export(state)

    def _review(self, state: Any, last: bool) -> None:
        """An audit: the first process leads, the others do their share."""
        assert self._hands is not None
        if PROCESSES.main:
            with self._hands.leading():
                self._stopped = self.host.audit(last)
                self._hands.do("end_review", stopped=self._stopped)
        else:
            self._stopped = bool(self._hands.follow()["stopped"])
        self._audited = int(state.global_step)

    def _scored(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> Tensor:
        """In the place of the trainer's own method: the same rewards, noted."""
        values_BF = self._calculate(inputs, prompts, completions, completion_ids)
        # Evaluation is scored by the same functions, and is no step of training.
        if self._hands is not None and self._trainer.model.training:
            self._note(list(prompts), completions, [list(ids) for ids in completion_ids], values_BF)
        return values_BF

    def _note(self, prompts: list[TRLPrompt], completions: Any, ids: list[list[int]], values_BF: Tensor) -> None:
        assert self._hands is not None
        assert self._assembly is not None
        self._hands.newest = prompts, ids
        reading = self._assembly.reading(self._hands)
        rollout = reading.read(prompts, texts_of(completions), ids)
        if PROCESSES.world > 1:
            own = [rollout.prompts, rollout.responses, rollout.finished, rollout.texts, [len(each) for each in ids]]
            columns = zip(*PROCESSES.gather(own), strict=True)
            parts: list[list[Any]] = [[one for part in column for one in part] for column in columns]
            rollout, tokens = rollout_of(*parts[:4]), parts[4]
        else:
            tokens = [len(each) for each in ids]
        if self._host is not None:
            self._batches.append(Batch(rollout, reading.of_batch(rollout, values_BF), tokens))

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

    def _measured(self) -> dict[str, float]:
        """The KL to the beginning, where the trainer does not tell it."""
        hands = self._hands
        if hands is None or not hands.reference.there:
            return {}
        if not PROCESSES.main:
            hands.follow()
            return {}
        with hands.leading():
            kl = hands.do("kl")
            hands.do("end_review")
        return {} if kl is None else {"kl": kl}

    def _steer(self) -> None:
        """Every process's beta is what the controller of the first says."""
        told = PROCESSES.gather(self._host.controller.beta if self._host is not None else None)
        if float(self._trainer.beta) != told[0]:
            assert self._hands is not None
            self._hands.hold(float(told[0]))

    def _export(self, state: Any) -> None:
        """Into what the trainer saves with its checkpoints."""
        state.stateful_callbacks[SAVED_AS] = self.host.state()


def ensemble_among(functions: Sequence[Any]) -> EnsembleReward | None:
    """The ensemble among reward functions, whose claims the guard then tests."""
    found = [function for function in functions if isinstance(function, EnsembleReward)]
    if len(found) > 1:
        raise HoldfastError("The trainer has several ensembles among its reward_funcs; the guard tests one's claims.")
    return found[0] if found else None


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
