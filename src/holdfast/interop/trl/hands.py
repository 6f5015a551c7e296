"""What is done with a trainer's models, in every process that has a part of them.

    process 0    leads: the review is its alone. Each piece of work is told to the others and done by all together
    the others   follow from the beginning of a review to its end

With one process all of this is a plain call. A rollback is compared bit for bit in every process.

Shapes: B answers, F reward functions, T response tokens.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import HoldfastError, SaidElsewhere, first_line
from holdfast.interop.trl.answers import Drawn, Player, decode, draw, likelihoods
from holdfast.interop.trl.snapshot import RNG, capture, differences, drop_answers, inner, put_back, shares_among
from holdfast.interop.trl.texts import Row, TRLPrompt, completion_as
from holdfast.interop.trl.trainer import bare_model, has_adapters
from holdfast.parallel.processes import PROCESSES

# Answers of a batch, in each process, by which the KL to the beginning is measured.
KL_ANSWERS = 32
# Values that reward functions want logged; those of an audit are no step of training.
PENDING = ("_pending_extra_logs", "_pending_metrics")


@dataclass
class Hands:
    """A process's own side of the guard: players, prompts, and every change that is made to the trainer.

    `calculate` is the trainer's own way of asking its reward functions. `newest` are the prompts and answers, in the
    policy's tokens, of the last generation in this process.
    """

    trainer: Any
    rows: list[Row]
    kept: CheckpointStore
    calculate: Callable[..., Tensor]
    policy: Player
    reference: Player
    anchor: Player
    newest: tuple[list[TRLPrompt], list[list[int]]] = field(default_factory=lambda: ([], []))

    # ---- leading and following

    def do(self, work: str, **needed: Any) -> Any:
        """One piece of work, in every process; what comes of it here."""
        with PROCESSES.joint(work, (), **needed):
            return getattr(self, work)(**needed)

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Process 0's side of a review. Where it fails, the others are told."""
        if PROCESSES.world == 1:
            yield
            return
        PROCESSES.listen(True)
        try:
            yield
        except BaseException as error:
            if PROCESSES.broken:
                raise
            with PROCESSES.joint("fail", (), words=first_line(error)):
                raise
        finally:
            PROCESSES.listen(False)

    def follow(self) -> dict[str, Any]:
        """The others' side, to its end; what process 0 says at last."""
        while True:
            order = PROCESSES.receive()
            if order.work == "wait":
                continue
            if order.work == "end_review":
                return dict(order.needed)
            if order.work == "fail":
                raise SaidElsewhere(order.needed["words"])
            with PROCESSES.joined():
                getattr(self, order.work)(**order.needed)

    def end_review(self, **said: Any) -> None:
        """The last word of a review."""

    # ---- answers

    def answer(self, who: str, places: Sequence[int], seed: int) -> list[Drawn]:
        """One answer to each of these prompts; every process draws its share."""
        player: Player = getattr(self, who)
        mine = PROCESSES.part([self.rows[place]["prompt"] for place in places])
        drawn = draw(self.trainer, player, mine, seed + (PROCESSES.rank if PROCESSES.together else 0))
        return [Drawn(*one) for one in self._dealt([[one.ids, one.entropy] for one in drawn], len(places))]

    def score(self, places: Sequence[int], answers: Sequence[Sequence[int]]) -> Tensor:
        """values_BF of answers to these prompts by the trainer's own reward functions, which note nothing of it."""
        at_once = max(1, int(self.trainer.args.generation_batch_size))
        parts = [
            self._score(places[start : start + at_once], answers[start : start + at_once])
            for start in range(0, len(places), at_once)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.trainer.reward_funcs))

    def _score(self, places: Sequence[int], answers: Sequence[Sequence[int]]) -> Tensor:
        world, rank = (PROCESSES.world, PROCESSES.rank) if PROCESSES.together else (1, 0)
        # What the trainer gathers has to be equally long in every process: the last answers stand in.
        share = -(-len(places) // world)
        mine = [min(n * world + rank, len(places) - 1) for n in range(share)]
        rows = [self.rows[places[n]] for n in mine]
        ids = [list(answers[n]) for n in mine]
        prompts = [row["prompt"] for row in rows]
        texts = [completion_as(prompt, decode(self.trainer, one)) for prompt, one in zip(prompts, ids, strict=True)]
        before = {name: getattr(self.trainer, name) for name in PENDING if hasattr(self.trainer, name)}
        for name in before:
            setattr(self.trainer, name, defaultdict(list))
        try:
            values_BF = self.calculate([dict(row) for row in rows], prompts, texts, ids).detach().cpu()
        finally:
            for name, value in before.items():
                setattr(self.trainer, name, value)
        order = [(n % world) * share + n // world for n in range(len(places))]
        return values_BF[order]

    def kl(self) -> float | None:
        """KL to the beginning in nats a token, of the last batch: the mean of exp(-r) - 1 + r, r = log pi - log ref."""
        prompts, answers = self.newest[0][:KL_ANSWERS], self.newest[1][:KL_ANSWERS]
        total, tokens = 0.0, 0
        if answers:
            told = []
            for player in (self.policy, self.reference):
                with player.playing() as model:
                    told.append(likelihoods(self.trainer, model, prompts, answers))
            r_BT = (told[0] - told[1]).double()
            total, tokens = float((torch.expm1(-r_BT) + r_BT).sum()), sum(map(len, answers))
        sums = PROCESSES.gather([total, tokens]) if PROCESSES.together else [[total, tokens]]
        count = sum(each[1] for each in sums)
        return sum(each[0] for each in sums) / count if count else None

    def _dealt(self, mine: list[Any], count: int) -> list[Any]:
        """Everybody's shares in the order of the whole."""
        if not PROCESSES.together:
            return mine
        everyone = PROCESSES.gather(mine)
        return [everyone[n % PROCESSES.world][n // PROCESSES.world] for n in range(count)]

    # ---- keeping and going back

    def keep(self, name: str, documents: Mapping[str, Any]) -> None:
        """Put the trainer, as it is now, where a rollback finds it; process 0 writes."""
        now = capture(self.trainer)
        rng = _plain_rng(now.tensors[RNG])
        everyone = PROCESSES.gather(rng) if PROCESSES.together else [rng]
        if PROCESSES.main:
            tensors = {group: each for group, each in now.tensors.items() if group != RNG}
            tensors |= {f"{RNG}-{n}": _rng_of(each) for n, each in enumerate(everyone)}
            self.kept.save(name, Snapshot(tensors, {**now.documents, **documents}))
            self.kept.pin(name)

    def keep_anchor(self) -> None:
        """The present policy is the last good one."""
        self.anchor.keep()

    def keep_beginning(self) -> None:
        """The present policy is the reference."""
        self.reference.keep()

    def load(self, player: str, name: str) -> None:
        """A player's weights out of what was kept."""
        weights = self.kept.load(name).tensors["policy"]
        getattr(self, player).kept = shares_among(bare_model(self.trainer), weights)

    def go_back(self, name: str) -> None:
        """Everything of the trainer that was kept, back in its place, and compared in every process."""
        loaded = self.kept.load(name)
        tensors = {group: each for group, each in loaded.tensors.items() if not group.startswith(RNG)}
        if f"{RNG}-{PROCESSES.rank}" in loaded.tensors:
            tensors[RNG] = loaded.tensors[f"{RNG}-{PROCESSES.rank}"]
        documents = {part: loaded.documents[part] for part in ("optimiser", "scheduler", "scaler")}
        snapshot = Snapshot(tensors, documents)
        put_back(self.trainer, snapshot)
        different = differences(snapshot, capture(self.trainer))
        complaint = ""
        if different:
            complaint = (
                f"After the rollback the trainer's {different[0]} is not what was kept; "
                "resume the run from one of its checkpoints."
            )
        if PROCESSES.together:
            PROCESSES.agree(complaint)
        elif complaint:
            raise HoldfastError(complaint)

    # ---- changes

    def hold(self, beta: float) -> None:
        """Set beta, and where it was 0 and the trainer has no reference model, give it the beginning for one."""
        if beta > 0.0 and self.trainer.ref_model is None and not has_adapters(self.trainer):
            self.trainer.ref_model = self._reference_model()
        if beta > 0.0 and float(self.trainer.beta) == 0.0:
            drop_answers(self.trainer)  # they lack the reference's log-probs
        self.trainer.beta = beta

    @property
    def can_hold(self) -> bool:
        """Whether beta may be raised above 0 while the trainer goes on."""
        if float(self.trainer.beta) > 0.0 or self.trainer.ref_model is not None or has_adapters(self.trainer):
            return True
        fixed = getattr(self.trainer, "use_liger_kernel", False) or getattr(self.trainer, "is_fsdp_enabled", False)
        return bool(self.reference.kept) and not fixed

    def _reference_model(self) -> Any:
        """A frozen copy of the model with the weights of the beginning."""
        with self.reference.playing() as model:
            reference = copy.deepcopy(model)
        return reference.requires_grad_(False).eval()

    def slow(self, factor: float) -> None:
        """Multiply the learning rate, and that of the scheduler, which sets it anew in every step."""
        scheduler = inner(self.trainer.lr_scheduler, "scheduler")
        for group in self.trainer.optimizer.param_groups:
            group["lr"] *= factor
            if "initial_lr" in group:
                group["initial_lr"] *= factor
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]

    def weigh(self, weights: Sequence[float]) -> None:
        """Set the weights of the reward functions."""
        now = self.trainer.reward_weights
        self.trainer.reward_weights = torch.tensor(list(weights), dtype=now.dtype, device=now.device)


def _plain_rng(state: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    return {name: [str(tensor.dtype).removeprefix("torch."), tensor.tolist()] for name, tensor in state.items()}


def _rng_of(plain: Mapping[str, Sequence[Any]]) -> dict[str, Tensor]:
    return {name: torch.tensor(values, dtype=getattr(torch, kind)) for name, (kind, values) in plain.items()}
