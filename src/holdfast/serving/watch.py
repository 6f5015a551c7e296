"""Watching the stream of answers that the service scores, as the guard watches a run.

    scored answers -> windows of one version -> signals -> the first windows are the baseline
    the newest windows against the baseline -> suspicion -> one sentence when it rises, one when it has passed

Nothing is known here of the policy that writes the answers: no log-probs, no updates, no people to ask. So the signals
are those that need the answers and the ensemble alone, what they are compared with is how the stream began, and all
that follows from a suspicion is that somebody should look. Under a new version of the ensemble the baseline's own
answers are scored again, so that like is compared with like.

Shapes: K member, B answers, D features.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from holdfast.guard.baseline import Baseline, Deviation, Reading
from holdfast.guard.signal import Recent, read_all
from holdfast.guard.signals import SIGNALS
from holdfast.guard.suspicion import Suspicion, suspicion_of
from holdfast.guard.view import StepView
from holdfast.reward.aggregate import spread
from holdfast.reward.ensemble import Judgement
from holdfast.serving.scorer import Scorer

# The signals that can be read from answers and ensemble alone. The others need the policy or its updates.
STREAM = (
    "compression", "ensemble_spread", "ensemble_spread_growth", "feature_distance", "feature_shift", "length",
    "prompt_copying", "rare_tokens", "repeated_spans", "repeated_trigrams", "similarity", "unlabelled_tokens",
)  # fmt: skip
HISTORY = 200


@dataclass(frozen=True)
class WatchSettings:
    """Answers in a window, windows in the baseline, windows that are looked at together, and how unusual is told."""

    window: int = 64
    baseline: int = 8
    recent: int = 4
    level: float = 0.001


@dataclass(frozen=True, eq=False)
class StreamRows:
    """Scored answers, in the order in which they came."""

    prompts: list[list[int]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    judged: list[Judgement] = field(default_factory=list)

    def take(self, count: int) -> tuple[StreamRows, StreamRows]:
        """The first `count` rows, and the rest."""
        whole = _joined(self.judged)
        parts = []
        for rows in (slice(0, count), slice(count, None)):
            judged = Judgement(whole.scores_KB[:, rows], whole.features_BD[rows])
            parts.append(StreamRows(self.prompts[rows], self.responses[rows], [judged]))
        return parts[0], parts[1]

    def view(self) -> StepView:
        """As the signals see it; of the policy there is nothing to see."""
        judged, nothing = _joined(self.judged), torch.zeros(len(self.responses), 0)
        lengths_B = torch.tensor([len(response) for response in self.responses])
        mask_BT = torch.arange(int(lengths_B.max()))[None] < lengths_B[:, None]
        return StepView(
            self.prompts, self.responses, [], nothing, nothing, mask_BT, judged.scores_KB, judged.features_BD
        )


def _joined(judged: Sequence[Judgement]) -> Judgement:
    if len(judged) == 1:
        return judged[0]
    return Judgement(torch.cat([j.scores_KB for j in judged], 1), torch.cat([j.features_BD for j in judged]))


@dataclass(eq=False)
class Start:
    """The baseline of one version of the ensemble: the stream's first windows as that version sees them."""

    baselines: dict[str, Baseline]
    windows: int = 0
    recent: Recent = field(default_factory=dict)


class StreamWatch:
    """Reads windows of the stream; one thread scores and calls `see`, any may ask for a `report`."""

    def __init__(self, settings: WatchSettings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._signals = {name: SIGNALS[name] for name in STREAM}
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._first: list[StreamRows] = []  # the windows of the baseline, to be scored again by the next version
        self._start = self._no_start()
        self._prepared: tuple[Scorer, Start] | None = None
        self._version: tuple[int, ...] = ()
        self._rows = StreamRows()
        self._recent: Recent = {}
        self._readings: dict[str, deque[Reading]] = {}
        self._answers = self._windows = 0
        self._suspicion: Suspicion | None = None
        self._deviations: dict[str, Deviation] = {}
        self._history: deque[dict[str, float]] = deque(maxlen=HISTORY)
        self._sentence = ""

    def restart(self) -> None:
        """Forget the stream so far: what comes next is the new baseline."""
        with self._lock:
            self._begin()

    def see(self, scorer: Scorer, prompts: list[list[int]], responses: list[list[int]], judged: Judgement) -> None:
        """Take in what one pass has scored."""
        with self._lock:
            if self._scoring(scorer) != self._version:
                self._turn_to(scorer)
            self._answers += len(responses)
            rows = StreamRows(
                [*self._rows.prompts, *prompts], [*self._rows.responses, *responses], [*self._rows.judged, judged]
            )
            while len(rows.responses) >= self._settings.window:
                window, rows = rows.take(self._settings.window)
                self._look(scorer, window)
            self._rows = rows

    @staticmethod
    def _scoring(scorer: Scorer) -> tuple[int, ...]:
        """Whose scores they are: another version's, or those of fewer members, are not comparable."""
        return (scorer.version, *scorer.ensemble.sound)

    def prepare(self, scorer: Scorer) -> None:
        """Read the baseline as another version sees it, before that version is used and somebody has to wait."""
        with self._lock:
            first = list(self._first)
        start = self._read_again(scorer, first, self._no_start())
        with self._lock:
            self._prepared = scorer, start

    def _turn_to(self, scorer: Scorer) -> None:
        """Another version: rows and readings of the one before are not comparable, and the baseline is read again."""
        self._rows, self._recent, self._readings = StreamRows(), {}, {}
        made_for, start = self._prepared or (None, self._no_start())
        start = start if made_for is scorer else self._no_start()
        # What has joined the baseline since the version was prepared is all that is left to read.
        self._start = self._read_again(scorer, self._first[start.windows :], start)
        self._version, self._prepared = self._scoring(scorer), None

    def _read_again(self, scorer: Scorer, windows: Sequence[StreamRows], start: Start) -> Start:
        for rows in windows:
            judged = scorer.judge(rows.prompts, rows.responses)
            self._add_to_baseline(scorer, StreamRows(rows.prompts, rows.responses, [judged]), start)
        return start

    def _look(self, scorer: Scorer, window: StreamRows) -> None:
        self._windows += 1
        if len(self._first) < self._settings.baseline:
            self._first.append(window)
            self._add_to_baseline(scorer, window, self._start)
            return
        readings, self._recent = read_all(self._signals, window.view(), scorer.known, self._recent)
        for name, value in readings.items():
            kept = self._readings.setdefault(name, deque(maxlen=self._settings.recent))
            kept.append((self._windows, value))
        compared = {name: self._start.baselines[name].compare(list(kept)) for name, kept in self._readings.items()}
        self._deviations = {name: deviation for name, deviation in compared.items() if deviation is not None}
        self._judge(window)

    def _judge(self, window: StreamRows) -> None:
        """Say so when suspicion rises, and when it has passed; a single odd window is not looked at by itself."""
        was = self._suspicion is not None and self._suspicion.suspicious
        now = suspicion_of(self._signals, self._deviations, self._settings.level)
        self._suspicion = now
        scores_KB = _joined(window.judged).scores_KB
        self._history.append({"answers": float(self._answers), "p": now.p, **_figures(scores_KB)})
        if any(len(kept) < self._settings.recent for kept in self._readings.values()):
            return
        if now.suspicious and not was:
            self._sentence = (
                f"After {self._answers} answers the stream looks unlike its start: {'; '.join(now.words())}."
            )
            self._say(f"{self._sentence} Have people compare some of them before you trust the score.")
        elif was and not now.suspicious:
            self._sentence = ""
            self._say(f"After {self._answers} answers the stream looks like its start again.")

    def _add_to_baseline(self, scorer: Scorer, window: StreamRows, start: Start) -> None:
        readings, start.recent = read_all(self._signals, window.view(), scorer.known, start.recent)
        for name, value in readings.items():
            start.baselines[name].add_reference(value)
        start.windows += 1

    def _no_start(self) -> Start:
        return Start({name: Baseline(signal, 1, of_start=True) for name, signal in self._signals.items()})

    def report(self) -> dict[str, Any]:
        """Where the stream stands, for a program to read."""
        with self._lock:
            suspicion = self._suspicion
            return {
                "version": self._version[0] if self._version else 0,
                "answers": self._answers,
                "windows": self._windows,
                "window": self._settings.window,
                "baseline": {"windows": len(self._first), "of": self._settings.baseline},
                "suspicious": suspicion is not None and suspicion.suspicious,
                "p": None if suspicion is None else suspicion.p,
                "level": self._settings.level,
                "sentence": self._sentence,
                "signals": {name: self._signal(name, d) for name, d in sorted(self._deviations.items())},
                "history": list(self._history),
            }

    def _signal(self, name: str, deviation: Deviation) -> dict[str, Any]:
        signal = self._signals[name]
        return {
            "now": deviation.value,
            "start": deviation.usual.value,
            "z": deviation.z,
            "p": deviation.p,
            "words": signal.words(deviation.value, deviation.usual),
            "meaning": signal.meaning,
            "unit": signal.unit,
        }


def _figures(scores_KB: Tensor) -> dict[str, float]:
    means = scores_KB.mean(0)
    return {"mean_score": fmean(means.tolist()), "spread": float(spread(scores_KB).mean())}
