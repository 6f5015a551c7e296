"""The arithmetic of a chart: ticks, number formats, smoothing, thinning and labels that do not overlap."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeGuard

from holdfast.text import scientific, signed


def nice_ticks(low: float, high: float, target: int = 5, integer: bool = False) -> list[float]:
    """About `target` ticks inside [low, high], in steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, target)
    power = 10.0 ** math.floor(math.log10(rough))
    sizes = (1, 2, 5, 10) if integer and power < 10 else (1, 2, 2.5, 5, 10)
    step = next((size * power for size in sizes if size * power >= rough * 0.999), 10 * power)
    if integer:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Multiplying whole numbers, not adding steps, keeps 0.3 from printing as 0.30000000000000004.
    return [index * step for index in range(first, last + 1)]


def log_ticks(low: float, high: float, target: int = 5) -> list[float]:
    """Powers of ten inside [low, high], every second or third one where they are many, with 2 and 5 where few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 1:
        every = -(-(last - first + 1) // max(1, target))
        return [10.0**power for power in range(first, last + 1, every)]
    steps = [size * 10.0**power for power in range(first - 1, last + 1) for size in (1, 2, 5)]
    return [step for step in steps if low * (1 - 1e-9) <= step <= high * (1 + 1e-9)] or [low]


def log_label(tick: float) -> str:
    """A tick of a logarithmic axis: 0.01, 5, 200, 1k, 10M."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tick >= power:
            return f"{tick / power:g}{letter}"
    return f"{tick:g}" if tick >= 1e-4 else scientific(tick, 1)


def tick_labels(ticks: Sequence[float], percent: bool = False, prefix: str = "") -> list[str]:
    """Labels with just the decimals that tell the ticks apart."""
    if not ticks:
        return []
    factor = 100.0 if percent else 1.0
    gap = factor * (abs(ticks[1] - ticks[0]) if len(ticks) > 1 else max(abs(ticks[0]), 1.0))
    labels = [prefix + _tick(factor * tick, gap) for tick in ticks]
    return [label + "%" for label in labels] if percent else labels


def _tick(value: float, gap: float) -> str:
    if abs(value) < gap * 1e-6:
        return "0"
    if gap < 1e-3:
        return signed(scientific(value, 1))
    if gap >= 1e6:
        return signed(f"{value:.3g}")
    # 2.5-steps need one more decimal than their power of ten says.
    decimals = max(0, math.ceil(-math.log10(gap) - 1e-9))
    if abs(round(gap, decimals) - gap) > 1e-9 * gap:
        decimals += 1
    return signed(f"{value:,.{decimals}f}")


def smooth(values: Sequence[float | None], window: int) -> list[float | None]:
    """Centred moving mean over `window` values; a gap stays a gap and is left out of the means near it."""
    return smooth_at(values, window, range(len(values)))


def smooth_at(values: Sequence[float | None], window: int, places: Iterable[int]) -> list[float | None]:
    """The same, at some places only."""
    # Running sums keep a long run fast. Their rounding error is far below the height of a pixel, because the
    # chart's scale spans the same values that are summed.
    known = values
    counts: Sequence[int] = range(len(values) + 1)
    if not gapless(values):
        known = [value if value is not None and math.isfinite(value) else None for value in values]
        counts = list(accumulate([value is not None for value in known], initial=0))
    sums = list(accumulate([value or 0.0 for value in known], initial=0.0))
    half = window // 2
    result: list[float | None] = []
    for index in places:
        # The window shrinks on both sides near an end: a one-sided mean would lag behind a rising line.
        reach = min(half, index, len(known) - 1 - index)
        start, stop = index - reach, index + reach + 1
        mean = (sums[stop] - sums[start]) / max(1, counts[stop] - counts[start])
        result.append(None if known[index] is None else mean)
    return result


Point = tuple[float, float | None]


def thin_places(ys: Sequence[float | None], buckets: int) -> list[int]:
    """The places of the first, lowest, highest and last point of each bucket, so that peaks survive in a long run."""
    if len(ys) <= 4 * buckets:
        return list(range(len(ys)))
    kept: list[int] = []
    for bucket in range(buckets):
        start, stop = bucket * len(ys) // buckets, (bucket + 1) * len(ys) // buckets
        part = ys[start:stop]
        known = part if gapless(part) else [y for y in part if y is not None and math.isfinite(y)]
        picks = {start, stop - 1}
        if known:
            picks |= {start + part.index(min(known)), start + part.index(max(known))}
        kept.extend(sorted(picks))
    return kept


def gapless(ys: Sequence[float | None]) -> TypeGuard[Sequence[float]]:
    """Whether every value is there and finite: quick to tell, as it nearly always is so."""
    return None not in ys and math.isfinite(sum(ys))  # type: ignore[arg-type]


def spread_labels(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels as little as possible so that neighbours are `gap` apart and all lie in [low, high].

    Labels that would touch are pooled into a block centred on the mean of their wanted places (the pool-
    adjacent-violators algorithm on wanted_i - i * gap). If they cannot all fit, the gap shrinks.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[float, int]] = []  # (sum of shifted places, how many labels)
    for rank, index in enumerate(order):
        total, count = wanted[index] - rank * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    shifted = [total / count for total, count in blocks for _ in range(count)]
    room = high - low - (len(wanted) - 1) * gap
    placed = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        placed[index] = min(max(shifted[rank], low), low + max(0.0, room)) + rank * gap
    return placed


_NARROW = frozenset("ijlt.,:;|!'()[] f-I")
_WIDE = frozenset("mwMW%@")


def text_width(text: str, size: float) -> float:
    """Rough width of a line of sans-serif text, a little generous so that reserved space is enough."""
    units = 0.0
    for char in text:
        if char in _NARROW:
            units += 0.33
        elif char in _WIDE or ord(char) > 0x2E80:
            units += 0.95
        else:
            units += 0.70 if char.isupper() else 0.62
    return units * size


def wrap(text: str, size: float, width: float) -> list[str]:
    """Break text into lines that fit `width`; a single longer word stays whole."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines
