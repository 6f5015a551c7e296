"""The reward service without its HTTP: the version in use, the queue in front of it, and the watch behind it.

requests -> Batcher -> the scorer of this moment -> answers
                               ^        |
    POST /versions, or a new version    -> StreamWatch
    of the run that is followed
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.errors import HoldfastError, first_line
from holdfast.serving.batcher import Batcher, Limits, Requests
from holdfast.serving.encoder import AnswerToScore
from holdfast.serving.scorer import Pass, ScoredRequest, Scorer
from holdfast.serving.watch import StreamWatch, WatchSettings
from holdfast.web.security import Refused

# Upper ends of the bins of the answers' times, in seconds.
TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Tally:
    """What has been asked and answered so far."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    answers: int = 0
    swaps: int = 0
    times: Counter[float] = field(default_factory=Counter)
    seconds: float = 0.0

    def request(self, protocol: str, status: int, seconds: float) -> None:
        self.requests[protocol, status] += 1
        self.times[next((t for t in TIMES if seconds <= t), float("inf"))] += 1
        self.seconds += seconds


class ServedScorer(Protocol):
    """Scores requests: a version of an ensemble, or a reward that is given."""

    @property
    def version(self) -> int: ...

    @property
    def degraded(self) -> Mapping[int, str]: ...

    def tell_of(self, say: Callable[[str], None]) -> None: ...

    def answer(self, requests: Sequence[Sequence[AnswerToScore]]) -> Pass: ...


class ServedVersions(Protocol):
    """Where scorers come from, by the numbers of their versions."""

    def in_use(self) -> int: ...

    def numbers(self) -> list[int]: ...

    def load(self, number: int) -> ServedScorer: ...


class Service:
    """One version at a time: a pass takes the scorer once, and a swap replaces it between two passes."""

    def __init__(
        self,
        source: ServedVersions,
        version: int | None = None,
        follow_seconds: float = 0.0,
        limits: Limits | None = None,
        watch: WatchSettings | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.source, self._say, self._follow = source, say, follow_seconds
        self.watch = StreamWatch(watch or WatchSettings(), say)
        self.tally = Tally()
        self.scorer: ServedScorer = self._loaded(source.in_use() if version is None else version)
        self._pinned = version is not None
        self.batcher = Batcher(self._work, limits or Limits())
        self._following: asyncio.Task[None] | None = None
        self._swapping = asyncio.Lock()

    async def start(self) -> None:
        self.batcher.start()
        if self._follow > 0 and not self._pinned:
            self._following = asyncio.get_running_loop().create_task(self._keep_up())

    async def close(self) -> None:
        """Finish what has been accepted, then end."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        await self.batcher.close()

    async def score(self, asked: Sequence[AnswerToScore]) -> ScoredRequest:
        scored = await self.batcher.submit(asked)
        self.tally.answers += len(asked)
        return scored

    async def use(self, version: int | None) -> int:
        """Swap to a version (the one that the source has in use), and stay there if it was named; returns its number.

        It is loaded beside the present one, which answers until the other is ready.
        """
        async with self._swapping:
            number = await asyncio.to_thread(self.source.in_use) if version is None else version
            await self._swap_to(number)
            self._pinned = version is not None
            return number

    async def _swap_to(self, number: int) -> None:
        if number == self.scorer.version:
            return
        was = self.scorer.version
        self.scorer = await asyncio.to_thread(self._prepared, number)
        self.tally.swaps += 1
        self._say(f"Version {number} of the ensemble scores from now on, in the place of version {was}.")

    def _loaded(self, number: int) -> ServedScorer:
        """A version, whose members that are left out while it serves are told of."""
        scorer = self.source.load(number)
        for member, why in scorer.degraded.items():
            self._say(f"Version {number} was made without reward member {member}, since it {why}.")
        scorer.tell_of(self._say)
        return scorer

    def _prepared(self, number: int) -> ServedScorer:
        scorer = self._loaded(number)
        if isinstance(scorer, Scorer):
            self.watch.prepare(scorer)
        return scorer

    async def _keep_up(self) -> None:
        """Look every few seconds whether the run uses another version."""
        reported = ""
        while True:
            await asyncio.sleep(self._follow)
            try:
                async with self._swapping:
                    if not self._pinned:
                        await self._swap_to(await asyncio.to_thread(self.source.in_use))
                reported = ""
            except (HoldfastError, OSError, KeyError, ValueError) as error:
                # The version that is here goes on; a fault that lasts is said once.
                sentence = f"A new version cannot be used, so version {self.scorer.version} stays: {error}"
                if sentence != reported:
                    self._say(sentence)
                reported = sentence

    def _work(self, requests: Requests, tell: Callable[[list[ScoredRequest | Refused]], None]) -> None:
        """One pass, in the scoring thread: answers first, then the watch, for which nobody waits."""
        scorer = self.scorer
        try:
            done = scorer.answer(requests)
        except HoldfastError as error:
            self._say(str(error))
            tell([Refused(503, "Too few reward members are left to score; the server's log says why.")] * len(requests))
            return
        except (RuntimeError, ValueError, IndexError, TypeError):
            if len(requests) == 1:
                raise
            # Something that one of them holds: each by itself, so that only that one fails.
            tell([self._alone(scorer, request) for request in requests])
            return
        tell(done.outcomes)
        if not isinstance(scorer, Scorer) or done.judgement is None:
            return
        if bool(done.judgement.scores_KB.isfinite().all()):
            self.watch.see(scorer, done.prompts, done.responses, done.judgement)

    def _alone(self, scorer: ServedScorer, request: Sequence[AnswerToScore]) -> ScoredRequest | Refused:
        try:
            return scorer.answer([request]).outcomes[0]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            self._say(f"A request could not be scored: {first_line(error)}")
            return Refused(500, "The ensemble could not score this; the server's log says why.")


def metrics_text(service: Service) -> str:
    """The state of the service in Prometheus's text format."""
    tally, report = service.tally, service.watch.report()
    lines: list[str] = []

    def family(name: str, kind: str, text: str, *samples: tuple[str, float]) -> None:
        lines.extend([f"# HELP holdfast_reward_{name} {text}", f"# TYPE holdfast_reward_{name} {kind}"])
        lines.extend(f"holdfast_reward_{name}{labels} {value:.9g}" for labels, value in samples)

    requests = [(f'{{protocol="{p}",status="{s}"}}', float(n)) for (p, s), n in sorted(tally.requests.items())]
    family("requests_total", "counter", "Requests by protocol and status.", *requests)
    family("answers_total", "counter", "Answers that were scored.", ("", float(tally.answers)))
    family("passes_total", "counter", "Passes over a batch.", ("", float(service.batcher.passes)))
    family("waiting", "gauge", "Answers that wait to be scored.", ("", float(service.batcher.waiting)))
    family("version", "gauge", "The ensemble's version in use.", ("", float(service.scorer.version)))
    degraded = float(len(service.scorer.degraded))
    family("members_degraded", "gauge", "Reward members that are left out.", ("", degraded))
    family("swaps_total", "counter", "Changes of the version.", ("", float(tally.swaps)))
    buckets, below = [], 0
    for end in (*TIMES, float("inf")):
        below += tally.times[end]
        buckets.append((f'_bucket{{le="{"+Inf" if end == float("inf") else end}"}}', float(below)))
    samples = [*buckets, ("_sum", tally.seconds), ("_count", float(below))]
    family("request_seconds", "histogram", "Time from a request to its answer.", *samples)
    family("suspicious", "gauge", "1 while the stream looks unlike its start.", ("", float(report["suspicious"])))
    if report["p"] is not None:
        family("suspicion_p", "gauge", "Combined p-value of the newest windows.", ("", report["p"]))
    now = [(f'{{signal="{name}"}}', float(told["now"])) for name, told in report["signals"].items()]
    family("signal", "gauge", "Mean of each signal over the newest windows.", *now)
    return "\n".join(lines) + "\n"
