"""What is said of events: the clauses that terminal and report share, and the sentences of the report.

They are made from fields that may have been read back from a file, so any of them may be absent or null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.text import as_number, because, counted, figure, format_setting, format_value, one_line, percent, sentence

Fields = Mapping[str, object]
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
    low: float | None
    high: float | None
    pairs: int | None
    claimed: float | None

    @property
    def overclaimed(self) -> bool:
        """Whether the claim lies above all that people's answers leave possible."""
        return self.claimed is not None and self.high is not None and self.claimed > self.high

    @property
    def interval(self) -> str:
        """ "48% to 83%", or nothing where it is not known."""
        return "" if self.low is None or self.high is None else f"{percent(self.low)} to {percent(self.high)}"


def rate_of(audit: Fields, opponent: Opponent) -> Rate | None:
    """People's win rate in an audit; None where nobody was asked."""
    interval = audit.get(f"{opponent}_rate")
    value, low, high = (
        as_number(interval.get(name)) if isinstance(interval, Mapping) else None for name in ("value", "low", "high")
    )
    pairs = as_number(audit.get(f"{opponent}_pairs"))
    if value is None or pairs == 0:
        return None
    return Rate(value, low, high, None if pairs is None else int(pairs), as_number(audit.get(f"claimed_{opponent}")))


def people(audit: Fields) -> str:
    """Win rates and claims in half a line."""
    opponents: tuple[tuple[str, Opponent], ...] = (("reference", "reference"), ("last good", "anchor"))
    known = [(name, rate) for name, opponent in opponents if (rate := rate_of(audit, opponent)) is not None]
    if not known:
        if "labels_left" in audit and audit["labels_left"] is None:
            return "no audit: nobody answers"
        return "no audit: no labels are left" if as_number(audit.get("labels_left")) == 0 else "no audit"
    rates = ", ".join(f"{percent(rate.rate)} vs {name}{_pairs(rate, n == 0)}" for n, (name, rate) in enumerate(known))
    claims = [percent(rate.claimed) for _, rate in known if rate.claimed is not None]
    return f"people {rates}" + (f"; ensemble claims {' and '.join(claims)}" if claims else "")


def _pairs(rate: Rate, in_full: bool) -> str:
    if rate.pairs is None:
        return ""
    return f" ({rate.pairs} {'pair' if rate.pairs == 1 else 'pairs'})" if in_full else f" ({rate.pairs})"


# --- clauses that several say -----------------------------------------------------------------------------------


def goal(name: object) -> str:
    """Where a rollback went: "the policy of round 3" for round-0003, and what came before any round by its name."""
    words = one_line(name)
    round = re.fullmatch(r"round-0*(\d+)", words)
    if not round:
        return words or "the last good checkpoint"
    return f"the policy of round {round[1]}" if round[1] != "0" else "the reference"


def undone(fields: Fields) -> str:
    """ "10 steps and 2.1 nats undone", as far as it is known."""
    first, last, kl = (as_number(fields.get(name)) for name in ("step_to", "step_from", "kl_undone"))
    parts = [] if first is None or last is None else [counted(int(last - first), "step")]
    parts += [] if kl is None else [f"{figure(kl)} nats"]
    return f"{' and '.join(parts)} undone" if parts else ""


def back_to(fields: Fields, ensemble: str = "") -> str:
    """Where a rollback went and what it undid."""
    lost = undone(fields)
    return f"to {goal(fields.get('to'))}{ensemble}" + (f", {lost}" if lost else "")


def changes(fields: Fields) -> str:
    """ "beta 0.05 to 0.075, kl target 6 to 4.2": the numbers that an action changed."""
    before, after = fields.get("before"), fields.get("after")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return ""
    pairs = [(one_line(name), as_number(before.get(name)), as_number(value)) for name, value in after.items()]
    moved = [(name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]
    return ", ".join(f"{name.replace('_', ' ')} {figure(a)} to {figure(b)}" for name, a, b in moved)


def done(fields: Fields) -> str:
    """An action in words, with what it changed."""
    words = one_line(fields.get("words")) or _rung(fields, "an action")
    moved = changes(fields)
    if moved:
        return f"{words} ({moved})"
    return f"{words} (nothing changed)" if fields.get("changed") is False else words


def owner(fields: Fields) -> str:
    """What an owner asked of the run, with what it changed."""
    moved = changes(fields)
    words = f"{one_line(fields.get('by')) or 'an owner'} {one_line(fields.get('words') or fields.get('action'))}"
    return f"{words} ({moved})" if moved else words


def averaged(fields: Fields) -> str:
    """What the last round's policy is made of."""
    policies, kl = (as_number(fields.get(name)) for name in ("policies", "kl"))
    count = "the" if policies is None else figure(policies)
    words = f"the policy is now the mean of {count} policies of the last rounds"
    return words if kl is None else f"{words}, {figure(kl)} nats from the reference"


def chosen(fields: Fields) -> str:
    """What came of asking again before a run ends with an earlier policy."""
    labels = as_number(fields.get("labels"))
    more = "more" if labels is None else f"{figure(labels)} more"
    words = f"{more} pairs were asked about before the run ends with an earlier policy"
    if fields.get("back") is True:
        return words  # the rollback says what people said
    return because(f"{words}, and the present one stays", fields.get("sentence"))


def advised(fields: Fields) -> str:
    """What the guard would have done."""
    return f"would {_rung(fields, 'act')}"


def refused(fields: Fields) -> str:
    """That the gate did not let a refresh in, and why."""
    return because("refused by the gate", fields.get("gate_reason"))


def is_refused(kind: str, fields: Fields) -> bool:
    """Whether this is a refresh that the gate refused."""
    return kind == "refresh" and fields.get("accepted") is False


def _rung(fields: Fields, otherwise: str) -> str:
    rung = one_line(fields.get("rung"))
    return RUNGS.get(rung, rung) or otherwise


# --- sentences of the report ------------------------------------------------------------------------------------


def number(fields: Fields, name: str) -> float | None:
    return as_number(fields.get(name))


def details(fields: Fields) -> str:
    parts = [f"{name.replace('_', ' ')} {shown(value)}" for name, value in fields.items() if name != "time"]
    return f" ({', '.join(parts)})" if parts else ""


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    figures = as_number(value)
    if figures is not None:
        return format_value(figures)
    words = "unknown" if value is None else str(value)
    return words if len(words) <= 300 else words[:300] + "…"


def count_of(fields: Fields, name: str, noun: str = "") -> str:
    """ "3 comparisons", or "comparisons" where it is not known how many."""
    count, noun = number(fields, name), noun or name.removesuffix("s")
    return f"{noun}s" if count is None else counted(int(count), noun)


def in_brackets(fields: Fields) -> str:
    reason = fields.get("reason")
    return f" ({shown(reason)})" if reason else ""


def version(fields: Fields) -> str:
    value = number(fields, "version")
    return "" if value is None else f" v{value:g}"


def fit(fields: Fields) -> str:
    """What is known of a reward model's training."""
    labels = number(fields, "labels")
    clauses = [] if labels is None else [f" from {counted(int(labels), 'label')}"]
    for name, words in (("train_accuracy", "training"), ("holdout_accuracy", "held-out")):
        if (accuracy := number(fields, name)) is not None:
            clauses.append(f"{format_value(accuracy, percent=True)} right on {words} comparisons")
    words = ", ".join(clauses)
    return f", {words}" if words and labels is None else words


def refresh(fields: Fields) -> str:
    if is_refused("refresh", fields):
        return sentence(f"Refresh{in_brackets(fields)} {refused(fields)}")
    words = f"Reward ensemble refreshed to{version(fields) or ' a new version'}{in_brackets(fields)}{fit(fields)}."
    gate = one_line(fields.get("gate_reason"))
    return f"{words} {sentence(f'gate: {gate}')}" if gate else words


def labels_collected(fields: Fields) -> str:
    got, comparisons = count_of(fields, "labels"), number(fields, "comparisons")
    on = f" on {counted(int(comparisons), 'comparison')}" if comparisons else ""
    return sentence(f"{got} collected{on}")


def labels_repeated(fields: Fields) -> str:
    return f"{count_of(fields, 'repeats', 'easy comparison')} asked again, for the gate to compare with."


def waiting(fields: Fields) -> str:
    return f"Waiting for people to answer {count_of(fields, 'comparisons')} ({shown(fields.get('purpose'))})."


def waited(fields: Fields) -> str:
    answered = number(fields, "answered")
    got = "Some" if answered is None else f"{int(answered):,}"
    return sentence(because(f"{got} of {count_of(fields, 'comparisons')} answered", fields.get("reason")))


def label_quality(fields: Fields) -> str:
    rows = fields.get("changed")
    words = [_weighed(row) for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return sentence("Quality of labels: " + "; ".join(words)) if words else "Quality of labels looked at."


def _weighed(row: Fields) -> str:
    who, reasons = row.get("labeller"), row.get("reasons")
    if not reasons:
        return f"{shown(who)} is reliable again"
    why = ", ".join(map(shown, reasons)) if isinstance(reasons, list) else ""
    return f"{shown(who)} is unreliable ({why}) and counts {shown(number(row, 'weight'))}"


def kl_limit(fields: Fields) -> str:
    kl, limit = number(fields, "kl"), number(fields, "limit")
    if kl is None or limit is None:
        return f"KL went over its limit{details(fields)}."
    return f"KL reached {format_value(kl)} nats, over the limit of {format_setting(limit)}."


def lr_decayed(fields: Fields) -> str:
    lr = number(fields, "lr")
    return "Learning rate lowered" + (f" to {format_value(lr)}." if lr is not None else ".")


def gate(fields: Fields) -> str:
    """The gate's decision with how right both versions are on the newest labels, which neither has learnt from."""
    taken = "refused" if fields.get("accepted") is False else "accepted"
    before, after = (_newest(fields.get(name)) for name in ("before", "after"))
    right = ""
    if before is not None and after is not None:
        right = f" ({format_value(before, percent=True)} right before, {format_value(after, percent=True)} after)"
    return sentence(because(f"Gate {taken}{version(fields)}{right}", fields.get("reason")))


def _newest(quality: object) -> float | None:
    newest = quality.get("newest") if isinstance(quality, Mapping) else None
    return as_number(newest.get("accuracy")) if isinstance(newest, Mapping) else None


def audit(fields: Fields) -> str:
    labels, left = number(fields, "labels"), number(fields, "labels_left")
    asked = "Audit" if labels is None else f"Audit of {counted(int(labels), 'label')}"
    measures = ((name, number(fields, field)) for name, field in (("accuracy", "accuracy"), ("ECE", "ece")))
    figures = [f"{name} {format_value(value, percent=True)}" for name, value in measures if value is not None]
    figures += [] if left is None else [f"{counted(int(left), 'label')} left"]
    return f"{asked}: {'; '.join([people(fields), *figures])}."


def verdict(fields: Fields) -> str:
    return sentence(because(f"Verdict {one_line(fields.get('level')) or 'unknown'}", fields.get("sentence")))


def rollback(fields: Fields) -> str:
    version = number(fields, "ensemble_version")
    ensemble = "" if version is None else f" and ensemble v{version:g}"
    return sentence(because(f"Rolled back {back_to(fields, ensemble)}", fields.get("reason")))


def sft_finished(fields: Fields) -> str:
    loss = number(fields, "loss")
    return "Supervised fine-tuning finished" + (f" with a loss of {format_value(loss)}." if loss is not None else ".")


def with_reason(words: Callable[[Fields], str]) -> Callable[[Fields], str]:
    return lambda fields: sentence(because(words(fields), fields.get("reason")))
