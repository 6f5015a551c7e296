"""Why people answered as they did: the tags that they gave, counted by whose answer they preferred."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from holdfast.errors import HoldfastError
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import submissions
from holdfast.preferences.schema import comparisons, responses

_a, _b = responses.alias("reasons_a"), responses.alias("reasons_b")
_ROUND = re.compile(r"round-(\d+)")


@dataclass(frozen=True)
class ReasonCount:
    """How often people gave a reason where they preferred the later of two policies, the earlier, or neither.

    `neither` holds ties, and pairs that one policy wrote both sides of.
    """

    reason: str
    later: int
    earlier: int
    neither: int


def check_reasons(given: Sequence[str], offered: Sequence[str]) -> list[str]:
    """The reasons of an answer, each once; one that is not offered is refused."""
    for reason in given:
        if reason not in offered:
            raise HoldfastError(f"There is no reason {reason[:60]!r} in people.reasons; load the page again.")
    return list(dict.fromkeys(given))


def read_reasons(database: Database, run: str) -> tuple[ReasonCount, ...]:
    """The reasons of the answers that stand, those first that speak most often for the earlier policy."""
    query = (
        select(submissions.c.reasons, submissions.c.answer, _a.c.policy_version, _b.c.policy_version)
        .join(comparisons, comparisons.c.id == submissions.c.comparison_id)
        .join(_a, _a.c.id == comparisons.c.a)
        .join(_b, _b.c.id == comparisons.c.b)
        .where(submissions.c.run == run, submissions.c.undone_at.is_(None), submissions.c.answer != "skip")
    )
    counts: Counter[tuple[str, str]] = Counter()
    with database.read() as connection:
        for reasons, answer, version_a, version_b in connection.execute(query):
            counts.update((reason, preferred(answer, version_a, version_b)) for reason in reasons)
    rows = [
        ReasonCount(name, *(counts[name, side] for side in ("later", "earlier", "neither")))
        for name in sorted({name for name, _ in counts})
    ]
    return tuple(sorted(rows, key=lambda row: (-row.earlier, -row.later, row.reason)))


def preferred(answer: str, version_a: str, version_b: str) -> str:
    """Whether an answer is for the later of two policies, the earlier one, or neither."""
    a, b = _age(version_a), _age(version_b)
    if answer not in ("a", "b") or a is None or b is None or a == b:
        return "neither"
    return "later" if (a > b) == (answer == "a") else "earlier"


def _age(version: str) -> int | None:
    """The place of a policy among those of its run; None for one that is not known by its name."""
    found = _ROUND.fullmatch(version)
    return -1 if version == "reference" else int(found[1]) if found else None
