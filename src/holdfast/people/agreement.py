"""How far people agree: Krippendorff's alpha, and agreement of one labeller with the others.

Mathematics only: answers in, figures out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations


def krippendorff_alpha(units: Iterable[Sequence[Hashable]]) -> float | None:
    """Krippendorff's alpha for nominal data: 1 - observed / expected disagreement; None where it is not defined.

    A unit is all the values that one item was given; how many people gave them may differ, and a unit with fewer than
    two says nothing (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"):

        o_ck = sum over units of (pairs of values c, k in the unit) / (values in the unit - 1)
        alpha = 1 - (n - 1) * sum_{c != k} o_ck / sum_{c != k} n_c n_k
    """
    totals: Counter[Hashable] = Counter()
    differing = 0.0
    for values in units:
        if len(values) < 2:
            continue
        counts = Counter(values)
        totals.update(counts)
        same = sum(count * (count - 1) for count in counts.values())
        differing += (len(values) * (len(values) - 1) - same) / (len(values) - 1)
    n = sum(totals.values())
    expected = n * n - sum(count * count for count in totals.values())
    if expected == 0:
        # Nobody ever said anything else: there is nothing that agreement could be measured by.
        return None
    return 1.0 - (n - 1) * differing / expected


def worth(one: str, other: str) -> float:
    """How far two choices agree: 1 if equal, 0 if opposite, and half where one of them is a tie."""
    if one == other:
        return 1.0
    return 0.5 if "tie" in (one, other) else 0.0


def pairwise(answers: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], tuple[float, int]]:
    """For every two labellers (in order of name) who answered the same items: their agreement, and on how many.

    `answers` is by item and labeller.
    """
    sums: dict[tuple[str, str], list[float]] = {}
    for choice_of in answers.values():
        for one, other in combinations(sorted(choice_of), 2):
            entry = sums.setdefault((one, other), [0.0, 0.0])
            entry[0] += worth(choice_of[one], choice_of[other])
            entry[1] += 1
    return {pair: (total / count, int(count)) for pair, (total, count) in sums.items()}
