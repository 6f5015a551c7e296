"""The guard's events in words, for a terminal and for the report: pure functions of the fields of an event.

round_line   audit and verdict  ->  "round 3  healthy   people 68% vs reference (24 pairs), ...; ensemble claims 81%"
event_line   a refusal, an action, advice, a choice, a rollback, a stop, a mean  ->  a line; None for the rest

Events are read back from files too, so a field may be absent, null, or of another kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Fields = Mapping[str, object]
Against = Literal["reference", "anchor"]

LONGEST = 600  # characters of a sentence that somebody else wrote
INDENT = " " * 9  # as wide as "round 3  "

RUNGS = {
    "tighten": "hold the policy closer to the reference",
    "slow_down": "lower the learning rate",
    "label_more": "label more where members disagree",
    "refresh": "refresh the ensemble",
    "adversarial": "label the hacked answers for the replay",
    "rollback": "roll back to the last good policy",
    "stop": "stop and ask",
}


@dataclass(frozen=True)
class Rate:
    """How often people preferred the policy to one opponent, a tie as half, beside what the ensemble claimed."""

    rate: float
    low: float | None
    high: float | None
    pairs: int | None
    claimed: float | None

    @property
    def overclaimed(self) -> bool:
        """Whether the claim lies above all that people's answers leave possible."""
        return self.claimed is not None and self.high is not None and self.claimed > self.high


def rate_of(audit: Fields, against: Against) -> Rate | None:
    """People's win rate in an audit; None where nobody was asked. The interval may be flat or with its rate."""
    given = audit.get(f"{against}_rate")
    nested = given if isinstance(given, Mapping) else {}
    pairs, wins = number(audit.get(f"{against}_pairs")), number(audit.get(f"{against}_wins"))
    rate = number(nested.get("value") if nested else given)
    if rate is None and wins is not None and pairs:
        rate = wins / pairs
    if rate is None or pairs == 0:
        return None
    low = number(nested.get("low") if nested else audit.get(f"{against}_low"))
    high = number(nested.get("high") if nested else audit.get(f"{against}_high"))
    claimed = number(audit.get(f"claimed_{against}"))
    return Rate(rate, low, high, None if pairs is None else int(pairs), claimed)


def round_line(round: int, audit: Fields, verdict: Fields) -> str:
    """A round as it ended. A watch gives its reason below; a hacking verdict leaves that to what is done about it."""
    level = text(verdict.get("level")) or "no verdict"
    line = f"{_at(round)}{level:<9} {people(audit)}".rstrip()
    sentence = text(verdict.get("sentence"))
    return f"{line}\n{INDENT}{sentence}" if level == "watch" and sentence else line


def event_line(kind: str, round: int, fields: Fields) -> str | None:
    """What is said of an event while a run goes on; None where nothing need be said."""
    say = _LINES.get(kind)
    return None if say is None else say(round, fields)


def people(audit: Fields) -> str:
    """Win rates and claims in half a line."""
    rates = [(name, rate_of(audit, against)) for name, against in _OPPONENTS]
    known = [(name, rate) for name, rate in rates if rate is not None]
    if not known:
        if "labels_left" in audit and audit["labels_left"] is None:
            return "no audit: nobody answers"
        return "no audit: no labels are left" if number(audit.get("labels_left")) == 0 else "no audit"
    said = ", ".join(f"{share(rate.rate)} vs {name}{_in_pairs(rate, n == 0)}" for n, (name, rate) in enumerate(known))
    claims = [share(rate.claimed) for _, rate in known if rate.claimed is not None]
    return f"people {said}" + (f"; ensemble claims {' and '.join(claims)}" if claims else "")


def interval(rate: Rate) -> str:
    """ "48% to 83%", or nothing where it is not known."""
    return "" if rate.low is None or rate.high is None else f"{share(rate.low)} to {share(rate.high)}"


def goal(name: object) -> str:
    """Where a rollback went: "the policy of round 3" for round-0003, and what came before any round by its name."""
    words = text(name)
    found = re.fullmatch(r"round-0*(\d+)", words)
    if not found:
        return words or "the last good checkpoint"
    return f"the policy of round {found[1]}" if found[1] != "0" else "the reference"


def undone(fields: Fields) -> str:
    """ "10 steps and 2.1 nats undone", as far as it is known."""
    first, last, kl = (number(fields.get(name)) for name in ("step_to", "step_from", "kl_undone"))
    parts = []
    if first is not None and last is not None:
        steps = int(last - first)
        parts.append(f"{steps:,} step" if steps == 1 else f"{steps:,} steps")
    if kl is not None:
        parts.append(f"{figure(kl)} nats")
    return f"{' and '.join(parts)} undone" if parts else ""


def changes(fields: Fields) -> str:
    """ "beta 0.05 to 0.075, kl target 6 to 4.2": the numbers that an action changed."""
    before, after = fields.get("before"), fields.get("after")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return ""
    pairs = [(text(name), number(before.get(name)), number(value)) for name, value in after.items()]
    moved = [(name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]
    return ", ".join(f"{name.replace('_', ' ')} {figure(a)} to {figure(b)}" for name, a, b in moved)


def done(fields: Fields) -> str:
    """An action in words, with what it changed."""
    words = text(fields.get("words")) or RUNGS.get(text(fields.get("rung")), text(fields.get("rung")) or "an action")
    moved = changes(fields)
    if moved:
        return f"{words} ({moved})"
    return f"{words} (nothing changed)" if fields.get("changed") is False else words


def owner(fields: Fields) -> str:
    """What an owner asked of the run, with what it changed."""
    moved = changes(fields)
    words = f"{text(fields.get('by')) or 'an owner'} {text(fields.get('words')) or text(fields.get('action'))}"
    return f"{words} ({moved})" if moved else words


def averaged(fields: Fields) -> str:
    """What the last round's policy is made of."""
    policies, kl = (number(fields.get(name)) for name in ("policies", "kl"))
    words = (
        f"the policy is now the mean of {'the' if policies is None else figure(policies)} policies of the last rounds"
    )
    return words if kl is None else f"{words}, {figure(kl)} nats from the reference"


def chosen(fields: Fields) -> str:
    """What came of asking again before a run ends with an earlier policy."""
    labels = number(fields.get("labels"))
    more = "more" if labels is None else f"{figure(labels)} more"
    words = f"{more} pairs were asked about before the run ends with an earlier policy"
    if fields.get("back") is True:
        return words  # the rollback says what people said
    return because(f"{words}, and the present one stays", fields.get("sentence"))


def advised(fields: Fields) -> str:
    """What the guard would have done."""
    return f"would {RUNGS.get(text(fields.get('rung')), text(fields.get('rung')) or 'act')}"


# ---- small pieces

_OPPONENTS: tuple[tuple[str, Against], ...] = (("reference", "reference"), ("last good", "anchor"))


def number(value: object) -> float | None:
    """A number of ordinary size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -1e300 < value < 1e300 else None


def text(value: object) -> str:
    """A field as one line of bounded length; None is nothing."""
    words = "" if value is None else " ".join(str(value)[: 2 * LONGEST].split())
    return words if len(words) <= LONGEST else words[:LONGEST] + "…"


def share(value: float) -> str:
    """A share in whole percent."""
    return f"{value:.0%}"


def figure(value: float) -> str:
    """Three digits, or a whole number with its thousands apart."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e9 else f"{value:.3g}"


def because(words: str, reason: object) -> str:
    sentence = text(reason)
    return f"{words}: {sentence}" if sentence else words


def _at(round: int) -> str:
    return f"round {round:<2} "


def _in_pairs(rate: Rate, in_full: bool) -> str:
    if rate.pairs is None:
        return ""
    return f" ({rate.pairs} {'pair' if rate.pairs == 1 else 'pairs'})" if in_full else f" ({rate.pairs})"


def _refresh_line(round: int, fields: Fields) -> str | None:
    if fields.get("accepted") is not False:
        return None
    return f"{_at(round)}refresh {refused(fields)}"


def refused(fields: Fields) -> str:
    """That the gate did not let a refresh in, what is used in its place, and why."""
    member, now = fields.get("joined"), fields.get("in_use")
    words = "refused by the gate"
    if isinstance(member, int):
        words += f", and its member {member + 1} let in" + (f" (v{now})" if isinstance(now, int) else "")
    return because(words, fields.get("gate_reason"))


def _rollback_line(round: int, fields: Fields) -> str:
    lost = undone(fields)
    words = f"{_at(round)}ROLLED BACK to {goal(fields.get('to'))}" + (f", {lost}" if lost else "")
    return because(words, fields.get("reason"))


def _advice_line(round: int, fields: Fields) -> str:
    # The reason is the verdict's and the same for every rung; the gravest one says it.
    grave = fields.get("rung") in ("rollback", "stop")
    words = f"{_at(round)}advice: {advised(fields)}"
    return because(words, fields.get("reason")) if grave else words


_LINES: dict[str, Callable[[int, Fields], str | None]] = {
    "refresh": _refresh_line,
    "action": lambda round, fields: f"{INDENT}{done(fields)}",
    "owner": lambda round, fields: because(f"{_at(round)}{owner(fields)}", fields.get("reason")),
    "advice": _advice_line,
    "averaged": lambda round, fields: f"{_at(round)}{averaged(fields)}",
    "choice": lambda round, fields: f"{_at(round)}{chosen(fields)}",
    "rollback": _rollback_line,
    "stopped": lambda round, fields: because(f"{_at(round)}STOPPED at the last good policy", fields.get("reason")),
}
