"""Several processes working on one run: the first leads, the others follow.

    process 0    runs the whole program: loop, guard, labels, files. Before heavy work it says what is to be done
    the others   hold the same models, and wait; told of a piece of work, they do their share of it

    joint(work, models, ...)   process 0 tells the others, and all of them are in the same code until the block ends
      part(items)              this process's share of them
      add(tensors)             sums over the processes, in place

Everything that is decided is decided once, by process 0: which answers are drawn with which random numbers, what people
say, what the guard does. With one process all of this does nothing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast.errors import HoldfastError, SaidElsewhere
from holdfast.parallel.wire import put_together, take_apart

Item = TypeVar("Item")

# Bytes of a sentence that processes tell each other when they agree whether to begin.
SENTENCE = 1024
# What torch's engines say when another process is gone or silent.
SIGNS_OF_LOSS = ("gloo", "connection", "nccl", "timed out", "timeout", "peer", "socket", "broken pipe")
BEAT_SECONDS = 20.0


def world_size() -> int:
    """How many processes `torchrun` or `accelerate launch` has started; 1 without them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def remedy_of(run: str) -> str:
    """What to do about a run of which a process is lost."""
    return (
        f" (processes.timeout_minutes); `holdfast resume {run}`, with as many processes as you like, goes on from the "
        "newest checkpoint"
    )


@dataclass(frozen=True)
class Order:
    """A piece of work: its name, the models it is about by their names, and what it needs."""

    work: str
    models: tuple[str, ...] = ()
    needed: Mapping[str, Any] = field(default_factory=dict)


class Processes:
    """The processes of this run. One per process, like torch's own process group."""

    def __init__(self) -> None:
        self.rank, self.world, self.local_rank = 0, 1, 0
        self.sharded = False
        self.remedy = remedy_of("RUN")  # what to do where another process is lost
        self.models: dict[str, nn.Module] = {}
        self._mode: Literal["free", "joint", "apart"] = "free"
        self._minutes = 0.0
        self._control: Any = None
        self._turn = threading.RLock()
        self._broken = False
        self._host = threading.Event()
        self._listening = True

    @property
    def main(self) -> bool:
        return self.rank == 0

    @property
    def broken(self) -> bool:
        """Whether nothing can be told to the others any more."""
        return self._broken

    @property
    def together(self) -> bool:
        """Whether all processes are in the same piece of work just now."""
        return self._mode == "joint"

    def start(self, minutes: float, cpu: bool, sharded: bool) -> None:
        """Join the other processes, if there are any; `minutes` is how long one may keep the others waiting."""
        if world_size() == 1 or self._control is not None:
            return
        from accelerate import PartialState

        patience = timedelta(minutes=minutes)
        with self.watched():
            state = PartialState(cpu=cpu, timeout=patience)
            self._control = dist.new_group(backend="gloo", timeout=patience)
        self.rank, self.world = state.process_index, state.num_processes
        self.local_rank, self.sharded, self._minutes = state.local_process_index, sharded, minutes
        if self.main:
            threading.Thread(target=self._beat, name="holdfast-beat", daemon=True).start()

    def hold(self, models: Mapping[str, nn.Module | None]) -> None:
        """Name the models that every process holds; work on any other is done by whoever has it, alone."""
        if self.world > 1:
            self.models |= {name: model for name, model in models.items() if model is not None}

    @contextmanager
    def joint(self, work: str, models: Sequence[nn.Module] = (), **needed: Any) -> Iterator[None]:
        """Have all processes do this work; a no-op for one process, inside joint work, and for unknown models.

        `needed` is what the others need for it: whatever `wire` takes apart.
        """
        names = self._names(models)
        if self.world == 1 or not self.main or self._mode != "free" or names is None:
            yield
            return
        with self._turn:
            self._send(Order(work, names, needed))
            with self._as("joint"), self.watched():
                try:
                    yield
                except BaseException as error:
                    # The others are still in the middle of it, unless they have met the same thing.
                    self._broken = not getattr(error, "met_by_all", False)
                    raise

    @contextmanager
    def joined(self) -> Iterator[None]:
        """A follower's side of `joint`."""
        with self._as("joint"), self.watched():
            yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Inside joint work: something that this process does by itself."""
        with self._as("apart" if self.together else self._mode):
            yield

    def part(self, items: Sequence[Item]) -> list[Item]:
        """This process's share of the items: every n-th in joint work, otherwise all."""
        return list(items[self.rank :: self.world]) if self.together else list(items)

    def add(self, *tensors: Tensor) -> None:
        """Add up each tensor over the processes, in place, in joint work."""
        if not self.together:
            return
        with self.watched():
            for tensor in tensors:
                dist.all_reduce(tensor, group=self._group(tensor))

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums of numbers over the processes, in joint work."""
        if not self.together:
            return list(values)
        sums = torch.tensor(list(values), dtype=torch.float64)
        self.add(sums)
        return sums.tolist()

    def spread(self, tensor: Tensor, source: int) -> None:
        """Give one process's tensor to all, in place, in joint work."""
        with self.watched():
            dist.broadcast(tensor, source, group=self._group(tensor))

    def gather(self, document: Any) -> list[Any]:
        """What each process has, as JSON, told to all of them; all have to come here."""
        if self.world == 1:
            return [document]
        own = torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
        with self.watched():
            sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]
            dist.all_gather(sizes, torch.tensor([len(own)]), group=self._control)
            longest = max(int(size) for size in sizes)
            rows = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.world)]
            dist.all_gather(rows, nn.functional.pad(own, (0, longest - len(own))), group=self._control)
        return [json.loads(row[: int(size)].numpy().tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def listen(self, listening: bool) -> None:
        """Whether the others wait to be told things, so that process 0 may tell them that it is still there."""
        with self._turn:
            self._listening = listening

    def receive(self) -> Order:
        """What process 0 wants done next; for followers, which wait here."""
        with self.watched():
            header = json.loads(bytes(self._receive_bytes()))
            tensors = [torch.empty(shape, dtype=getattr(torch, kind)) for kind, shape in header["tensors"]]
            for tensor in tensors:
                dist.broadcast(_as_sent(tensor), 0, group=self._control)
        return Order(header["work"], tuple(header["models"]), put_together(header["needed"], tensors))

    def agree(self, complaint: str) -> None:
        """Go on only if no process has a complaint. Process 0 says the first there is, the others end quietly."""
        if self.world == 1:
            if complaint:
                raise HoldfastError(complaint)
            return
        own = torch.zeros(SENTENCE, dtype=torch.uint8)
        words = complaint.encode()[:SENTENCE]
        own[: len(words)] = torch.tensor(list(words), dtype=torch.uint8)
        everyone = [torch.zeros_like(own) for _ in range(self.world)]
        with self.watched():
            dist.all_gather(everyone, own, group=self._control)
        texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in everyone]
        complaints = [text if rank == 0 else f"Process {rank}: {text}" for rank, text in enumerate(texts) if text]
        if complaints:
            self.part_ways()
            raise HoldfastError(complaints[0]) if self.main else SaidElsewhere(complaints[0])

    def end(self) -> None:
        """Let the followers go."""
        if self.world > 1 and self.main and not self._broken:
            with self._turn:
                self._send(Order("end"))
                self.part_ways()

    def part_ways(self) -> None:
        """Wait until all processes have heard the last word: one that left earlier would take it for a loss.

        The engines' threads are ended here: left to the end of the program they may bring it down.
        """
        self._broken = True  # nothing is told to anybody from now on
        self._host.set()
        with self._turn, suppress(RuntimeError):
            dist.barrier(group=self._control)
            dist.destroy_process_group()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn an engine's error about another process into a sentence."""
        try:
            yield
        except RuntimeError as error:
            if not is_loss(error):
                raise
            self._broken = True
            raise HoldfastError(
                "Another process of this run has ended, or kept this one waiting for more than "
                f"{self._minutes:g} minutes{self.remedy}."
            ) from error

    def _names(self, models: Sequence[nn.Module]) -> tuple[str, ...] | None:
        names = {id(model): name for name, model in self.models.items()}
        if any(id(model) not in names for model in models):
            return None
        return tuple(names[id(model)] for model in models)

    def _group(self, tensor: Tensor) -> Any:
        return self._control if tensor.device.type == "cpu" else None

    @contextmanager
    def _as(self, mode: Literal["free", "joint", "apart"]) -> Iterator[None]:
        before, self._mode = self._mode, mode
        try:
            yield
        finally:
            self._mode = before

    def _send(self, order: Order) -> None:
        inside: list[Tensor] = []
        header = {"work": order.work, "models": order.models, "needed": take_apart(order.needed, inside)}
        tensors = [tensor.detach().cpu().contiguous() for tensor in inside]
        header["tensors"] = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
        with self.watched():
            self._send_bytes(json.dumps(header).encode())
            for tensor in tensors:
                dist.broadcast(_as_sent(tensor), 0, group=self._control)

    def _send_bytes(self, data: bytes) -> None:
        dist.broadcast(torch.tensor([len(data)]), 0, group=self._control)
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0, group=self._control)

    def _receive_bytes(self) -> bytes:
        size = torch.zeros(1, dtype=torch.long)
        dist.broadcast(size, 0, group=self._control)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self._control)
        return data.numpy().tobytes()

    def _beat(self) -> None:
        """Process 0 may be waiting for people for days; the others are told that it is still there."""
        while not self._host.wait(min(BEAT_SECONDS, 60.0 * self._minutes / 4)):
            if not self._turn.acquire(blocking=False):
                continue  # at work together: that is a sign of life already
            try:
                if self._broken:
                    return
                if self._listening:
                    self._send(Order("wait"))
            except HoldfastError:
                return  # the main thread meets the same at its next piece of work
            finally:
                self._turn.release()


def _as_sent(tensor: Tensor) -> Tensor:
    """The same memory in a type that gloo sends, which short integers are not."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.int16 else tensor


def is_loss(error: BaseException) -> bool:
    """Whether an error says that another process is gone or silent."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS_OF_LOSS)


PROCESSES = Processes()
