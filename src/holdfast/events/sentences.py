"""What is said of events: the clauses that terminal and report share, and the sentences of the report.

Every field was checked when it was written. A number that was not finite is null where it is read back from a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.text import as_number, because, counted, figure, format_value, one_line, percent, sentence

Fields = Mapping[str, Any]
Opponent = Literal["reference", "anchor"]

RUNGS = {
    "tighten": "hold the policy closer to the reference",
    "slow_down": "lower the learning rate",
    "label_more": "label more where members disagree",
    "refresh": "refresh the ensemble",
    "adversarial": "label the hacked answers for the replay",
    "rollback": "roll back to the last good policy",
    "stop": "stop and ask",
}


# --- people and claims ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """How often people preferred the policy to one opponent, a tie as half, beside what the ensemble claimed."""

    rate: float
    low: float
    high: float
    pairs: int
    claimed: float | None

    @property
    def overclaimed(self) -> bool:
        """Whether the claim lies above all that people's answers leave possible."""
        return self.claimed is not None and self.claimed > self.high

    @property
    def interval(self) -> str:
        """ "48% to 83%"."""
        return f"{percent(self.low)} to {percent(self.high)}"


def rate_of(audit: Fields, opponent: Opponent) -> Rate | None:
    """People's win rate in an audit; None where nobody was asked."""
    interval = audit[f"{opponent}_rate"]
    if interval is None:
        return None
    pairs, claimed = audit[f"{opponent}_pairs"], audit[f"claimed_{opponent}"]
    return Rate(interval["value"], interval["low"], interval["high"], pairs, claimed)


def people(audit: Fields) -> str:
    """Win rates and claims in half a line."""
    opponents: tuple[tuple[str, Opponent], ...] = (("reference", "reference"), ("last good", "anchor"))
    known = [(name, rate) for name, opponent in opponents if (rate := rate_of(audit, opponent)) is not None]
    if not known:
        left = audit["labels_left"]
        return "no audit: nobody answers" if left is None else f"no audit{'' if left else ': no labels are left'}"
    counts = [f"{rate.pairs}" if n else counted(rate.pairs, "pair") for n, (_, rate) in enumerate(known)]
    rates = [f"{percent(rate.rate)} vs {name} ({count})" for (name, rate), count in zip(known, counts, strict=True)]
    claims = [percent(rate.claimed) for _, rate in known if rate.claimed is not None]
    return f"people {', '.join(rates)}" + (f"; ensemble claims {' and '.join(claims)}" if claims else "")


# --- clauses that several say -----------------------------------------------------------------------------------


def goal(name: str) -> str:
    """Where a rollback went: "the policy of round 3" for round-0003, and what came before any round by its name."""
    round = re.fullmatch(r"round-0*(\d+)", name)
    if not round:
        return name
    return f"the policy of round {round[1]}" if round[1] != "0" else "the reference"


def back_to(fields: Fields, ensemble: str = "") -> str:
    """Where a rollback went and what it undid: "10 steps and 2.1 nats undone"."""
    steps, kl = counted(fields["step_from"] - fields["step_to"], "step"), fields.get("kl_undone")
    lost = steps if kl is None else f"{steps} and {figure(kl)} nats"
    return f"to {goal(fields['to'])}{ensemble}, {lost} undone"


def changes(fields: Fields) -> str:
    """ "beta 0.05 to 0.075, kl target 6 to 4.2": the numbers that an action changed."""
    before, after = fields.get("before", {}), fields.get("after", {})
    pairs = [(one_line(name), as_number(before.get(name)), as_number(value)) for name, value in after.items()]
    moved = [(name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]
    return ", ".join(f"{name.replace('_', ' ')} {figure(a)} to {figure(b)}" for name, a, b in moved)


def done(fields: Fields) -> str:
    """An action in words, with what it changed."""
    words, moved = one_line(fields["words"]), changes(fields)
    if moved:
        return f"{words} ({moved})"
    return words if fields["changed"] else f"{words} (nothing changed)"


def owner(fields: Fields) -> str:
    """What an owner asked of the run, with what it changed."""
    words, moved = f"{one_line(fields['by'])} {one_line(fields['words'])}", changes(fields)
    return f"{words} ({moved})" if moved else words


def averaged(fields: Fields) -> str:
    """What the last round's policy is made of."""
    words = f"the policy is now the mean of {fields['policies']} policies of the last rounds"
    return f"{words}, {format_value(fields['kl'])} nats from the reference"


def chosen(fields: Fields) -> str:
    """What came of asking again before a run ends with an earlier policy."""
    words = f"{figure(fields['labels'])} more pairs were asked about before the run ends with an earlier policy"
    # Where it goes back the rollback says what people said.
    return words if fields["back"] else because(f"{words}, and the present one stays", fields["sentence"])


def advised(fields: Fields) -> str:
    """What the guard would have done."""
    return f"would {RUNGS[fields['rung']]}"


def refused(fields: Fields) -> str:
    """That the gate did not let a refresh in, and why."""
    return because("refused by the gate", fields["gate_reason"])


def is_refused(kind: str, fields: Fields) -> bool:
    """Whether this is a refresh that the gate refused."""
    return kind == "refresh" and not fields["accepted"]


# --- sentences of the report ------------------------------------------------------------------------------------


def details(fields: Fields) -> str:
    parts = [f"{name.replace('_', ' ')} {shown(value)}" for name, value in fields.items() if name != "time"]
    return f" ({', '.join(parts)})" if parts else ""


def shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return format_value(value) if value is None or isinstance(value, float) else one_line(value)


def in_brackets(fields: Fields) -> str:
    return f" ({one_line(fields['reason'])})"


def fit(fields: Fields) -> str:
    """What is known of a reward model's training."""
    words = f" from {counted(fields['labels'], 'label')}"
    for name, on in (("train_accuracy", "training"), ("holdout_accuracy", "held-out")):
        if fields[name] is not None:
            words += f", {format_value(fields[name], percent=True)} right on {on} comparisons"
    return words


def refresh(fields: Fields) -> str:
    if not fields["accepted"]:
        return sentence(f"Refresh{in_brackets(fields)} {refused(fields)}")
    words = f"Reward ensemble refreshed to v{fields['version']}{in_brackets(fields)}{fit(fields)}."
    gate = one_line(fields["gate_reason"])
    return f"{words} {sentence(f'gate: {gate}')}" if gate else words


def label_quality(fields: Fields) -> str:
    words = [_weighed(row) for row in fields["changed"]]
    return sentence("Quality of labels: " + "; ".join(words)) if words else "Quality of labels looked at."


def _weighed(row: Fields) -> str:
    who = one_line(row["labeller"])
    if not row["reasons"]:
        return f"{who} is reliable again"
    return f"{who} is unreliable ({', '.join(map(one_line, row['reasons']))}) and counts {format_value(row['weight'])}"


def gate(fields: Fields) -> str:
    """The gate's decision with how right both versions are on the newest labels, which neither has learnt from."""
    before, after = (fields[name]["newest"] for name in ("before", "after"))
    right = ""
    if before is not None and after is not None:
        was, now = (format_value(newest["accuracy"], percent=True) for newest in (before, after))
        right = f" ({was} right before, {now} after)"
    decision = "accepted" if fields["accepted"] else "refused"
    return sentence(because(f"Gate {decision} v{fields['version']}{right}", fields["reason"]))


def audit(fields: Fields) -> str:
    left, measures = fields["labels_left"], (("accuracy", fields["accuracy"]), ("ECE", fields["ece"]))
    figures = [f"{name} {format_value(value, percent=True)}" for name, value in measures if value is not None]
    figures += [] if left is None else [f"{counted(left, 'label')} left"]
    return f"Audit of {counted(fields['labels'], 'label')}: {'; '.join([people(fields), *figures])}."


def rollback(fields: Fields) -> str:
    version = fields.get("ensemble_version")
    ensemble = "" if version is None else f" and ensemble v{version}"
    return sentence(because(f"Rolled back {back_to(fields, ensemble)}", fields["reason"]))


def with_reason(words: Callable[[Fields], str]) -> Callable[[Fields], str]:
    return lambda fields: sentence(because(words(fields), fields.get("reason")))
