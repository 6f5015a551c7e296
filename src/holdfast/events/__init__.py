"""Every event there is: its kind, when it is written, its fields, and what is said of it. Any other is refused.

Tracker.event -> EventKind.check -> events.jsonl -> event_sentence and weight_of (the report), event_line (a terminal)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Literal, get_args

from holdfast.errors import HoldfastError
from holdfast.events import sentences as say
from holdfast.events.levels import ALARMS, LEVELS
from holdfast.events.sentences import Fields
from holdfast.text import because, counted, format_setting, format_value, one_line, sentence

Weight = Literal["main", "minor", "alarm"]
Type = type | UnionType
NUMBER = int | float

INDENT = " " * 9  # as wide as "round 3  "


@dataclass(frozen=True)
class EventKind:
    """One kind of event, with the types of its fields; those in `optional` may be left out.

    Without a sentence of its own it is shown by its name and fields; most have no line in a terminal.
    """

    name: str
    meaning: str
    fields: Mapping[str, Type]
    sentence: Callable[[Fields], str] | None = None
    weight: Weight = "main"
    line: Callable[[str, Fields], str | None] | None = None
    optional: Mapping[str, Type] = field(default_factory=dict)

    def check(self, fields: Fields) -> None:
        """Refuse a field that the kind does not have or that is of another type, and one that is missing."""
        known = {**self.fields, **self.optional}
        for name, value in fields.items():
            if name not in known:
                raise HoldfastError(f"The event {self.name!r} has no field {name!r}; {_hint(name, known)}")
            if not isinstance(value, known[name]):
                raise HoldfastError(f"The event {self.name!r} holds {value!r} in its field {name!r}; give another.")
        for name in self.fields:
            if name not in fields:
                raise HoldfastError(f"The event {self.name!r} lacks its field {name!r}; give it.")


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else "add it to holdfast/events.py."


_REASON: Mapping[str, Type] = {"reason": str}
_RUNG: Mapping[str, Type] = {"rung": str, "reason": str}
_CHANGE: Mapping[str, Type] = {"before": object, "after": object}
_VERSION: Mapping[str, Type] = {
    "version": int, "labels": int, "loss": NUMBER, "trained_on": int, "train_accuracy": NUMBER,
    "holdout_accuracy": NUMBER | None, "held_out": int,
}  # fmt: skip
_GATE: Mapping[str, Type] = {"accepted": bool, "in_use": int}
_REPORTED: Mapping[str, Type] = {"reported": dict, "answers_skipped": int}
_OPPONENTS = ("reference", "anchor", "pointed")
_AUDIT: Mapping[str, Type] = {
    "answered_by": str, "asked": int, "labels": int, "labels_left": int | None, "pairs": int,
    "accuracy": NUMBER | None, "decided": int, "ece": NUMBER | None,
    "brier": NUMBER | None, "reliability": list, "gap_z": NUMBER, "gap_p": NUMBER,
    **{f"{opponent}_pairs": int for opponent in _OPPONENTS}, **{f"{opponent}_wins": NUMBER for opponent in _OPPONENTS},
    **{f"{opponent}_rate": dict | None for opponent in _OPPONENTS},
    **{f"claimed_{opponent}": NUMBER | None for opponent in _OPPONENTS},
    **{f"{opponent}_gap": dict | None for opponent in _OPPONENTS},
}  # fmt: skip


def _comparisons(fields: Fields) -> str:
    return counted(fields["comparisons"], "comparison")


def _advice_line(at: str, fields: Fields) -> str:
    # The reason is the verdict's and the same for every rung; the gravest one says it.
    words = f"{at}advice: {say.advised(fields)}"
    return because(words, fields["reason"]) if fields["rung"] in ("rollback", "stop") else words


_KINDS = (
    # Preparation
    EventKind(
        "sft_finished", "the reference has learnt from demonstrations", {"loss": NUMBER, "demonstrations": int},
        lambda fields: f"Supervised fine-tuning finished with a loss of {format_value(fields['loss'])}.",
    ),
    EventKind(
        "ensemble_trained", "the first version of the ensemble is there", _VERSION,
        lambda fields: f"Reward ensemble v{fields['version']} trained{say.fit(fields)}.",
    ),
    EventKind(
        "standardised",
        "zero and unit of a reward that is given were taken from the reference's answers; where all of them got the "
        "same (`flat`) the unit stays the reward's own",
        {
            "reward": str, "mean": NUMBER, "sd": NUMBER, "scored": int, "answers": int, "flat": bool,
            "components": dict,
        },
        lambda fields: sentence(say.standardised(fields)),
    ),
    EventKind(
        "baselines", "the signals have read the reference's answers; mean and standard deviation of each",
        {"signals": dict},
        say.baselines, "minor",
        optional={"left_out": dict},
    ),
    EventKind(
        "claims_learnt",
        "audits have told what a difference in a reward that is one number is worth to people, in log-odds; nothing is "
        "claimed until it is `ready`",
        {"audits": int, "slope": NUMBER, "sd": NUMBER, "ready": bool},
        say.claims_learnt, "minor",
    ),
    # Labels
    EventKind(
        "labels_collected", "a round's comparisons have been answered, and some easy ones of before again",
        {"comparisons": int, "labels": int, "repeats": int},
        lambda fields: f"{counted(fields['labels'], 'label')} collected on {_comparisons(fields)}.", "minor",
    ),
    EventKind(
        "labels_repeated", "some of the first comparisons were asked again, for the gate to compare with",
        {"repeats": int},
        lambda fields: f"{counted(fields['repeats'], 'easy comparison')} asked again, for the gate to compare with.",
        "minor",
    ),
    EventKind(
        "labels_asked", "comparisons are put to whoever answers; where they are more than the settings' own number, "
        "`more` says what they are and why",
        {"comparisons": int, "reason": str, "more": str},
        lambda fields: sentence(f"{_comparisons(fields)} asked: {say.asked_for(fields)}"), "minor",
        lambda at, fields: f"{at}asks {fields['comparisons']:,} {one_line(fields['more'])}" if fields["more"] else None,
    ),
    EventKind(
        "labels_cut", "`labels.budget` does not last for all that was to be asked; `kept` are for audits to come",
        {"reason": str, "wanted": int, "comparisons": int, "budget": int, "kept": int},
        lambda fields: sentence(say.cut(fields)), "alarm", lambda at, fields: f"{at}{say.cut(fields)}",
    ),
    EventKind(
        "labels_missing", "the labeller has left comparisons unanswered that it was asked",
        {"reason": str, "comparisons": int, "answered": int, "labeller": str},
        lambda fields: sentence(say.missing(fields)), "alarm", lambda at, fields: f"{at}{say.missing(fields)}",
    ),
    EventKind(
        "waiting", "the run waits for people", {"purpose": str, "comparisons": int, "batch": str, "reason": str},
        say.with_reason(lambda fields: f"Waiting for people to answer {_comparisons(fields)}"), "minor",
    ),
    EventKind(
        "waited", "people have answered, or the time was up",
        {"purpose": str, "comparisons": int, "answered": int, "reason": str, "batch": str},
        say.with_reason(lambda fields: f"{fields['answered']:,} of {_comparisons(fields)} answered"), "minor",
    ),
    EventKind(
        "second_opinions_missing",
        "the judge did not give the opinions that are only measured; the run goes on without",
        {"comparisons": int, "reason": str},
        say.with_reason(lambda fields: f"No second opinions of the judge on {_comparisons(fields)}"),
    ),
    EventKind(
        "label_quality", "what is known of labellers has changed: `labeller`, `weight` and `reasons` of each",
        {"changed": list, "unreliable": str},
        say.label_quality,
    ),
    EventKind(
        "pairs_ready",
        "DPO begins: pairs to train on, `batch` of them an update, pairs and prompts that its policies are measured on",
        {"train": int, "held_out": int, "batch": int, "prompts": int},
        lambda fields: f"{counted(fields['train'], 'pair')} to train on, {fields['held_out']:,} held out.", "minor",
    ),
    # The ensemble
    EventKind(
        "refresh",
        "a new version was trained; `in_use` is used from now on",
        {**_REASON, **_VERSION, **_GATE, "gate_reason": str}, say.refresh,
        line=lambda at, fields: f"{at}refresh {say.refused(fields)}" if say.is_refused("refresh", fields) else None,
    ),
    EventKind(
        "gate", "a new version was tested; `before` and `after` are on labels that neither version learnt from",
        {**_REASON, "version": int, **_GATE, "checks": list, "before": dict, "after": dict}, say.gate, "minor",
    ),
    EventKind(
        "refresh_skipped", "a refresh was due, and there is nothing new to learn from", _REASON,
        lambda fields: f"No refresh this time{say.in_brackets(fields)}.", "minor",
    ),
    # The guard
    EventKind(
        "audit",
        "the round's fresh pairs were `asked` and are answered, by people or by whom `answered_by` names; the anchor "
        "is the last good policy, and `labels_left` is null where nobody answers",
        _AUDIT, say.audit, "minor",
        optional={"claimed_by": str, "judge": dict},
    ),
    EventKind(
        "verdict", f"a round is judged: {', '.join(LEVELS)}; `evidence` has the numbers",
        {"level": str, "sentence": str, "evidence": Mapping},
        lambda fields: sentence(because(f"Verdict {one_line(fields['level'])}", fields["sentence"])),
    ),
    EventKind(
        "judge_drifted",
        "given a fixed set of pairs again, the judge beside people no longer answers as it did: it has changed, not "
        "the policy, and the judge has no say in audits until it is known again",
        {"pairs": int, "gained": int, "lost": int, "evidence": NUMBER, "bar": NUMBER}, say.judge_drifted, "main",
    ),
    EventKind(
        "choice", "in the last round the last good policy seemed to be liked better, and it was asked about again",
        {"labels": int, "labels_left": int | None, "back": bool, "sentence": str},
        lambda fields: sentence(say.chosen(fields)),
        # That they are asked was said before, and where the run goes back the rollback says so.
        line=lambda at, fields: None if fields["back"] else f"{at}{say.chosen(fields)}",
    ),
    EventKind(
        "action",
        "the guard did something; `after` is read back from the live object, or is what a trainer over HTTP reports",
        {**_RUNG, "words": str, **_CHANGE, "changed": bool}, say.with_reason(say.done),
        line=lambda at, fields: f"{INDENT}{say.done(fields)}",
    ),
    EventKind(
        "advice", "the guard would have done something (`guard.mode = \"advise\"`)", _RUNG,
        say.with_reason(lambda fields: f"Advice only: the guard {say.advised(fields)}"), line=_advice_line,
    ),
    EventKind("left_out", "the guard would have done something that this trainer cannot, or would not", _RUNG),
    EventKind(
        "advised", "the client of a trainer over HTTP was told to do something; what it reports is an event of its own",
        {"id": str, "do": str, "words": str, **_REASON},
        lambda fields: sentence(because(f"Advised ({fields['id']}): {one_line(fields['words'])}", fields["reason"])),
        line=lambda at, fields: f"{INDENT}advises: {one_line(fields['words'])}",
    ),
    EventKind(
        "declined", "the client of a trainer over HTTP did not do what it was advised to", {"id": str, "note": str},
        lambda fields: sentence(because(f"The trainer declined {fields['id']}", fields["note"])), "alarm",
        lambda at, fields: because(f"{INDENT}the trainer declined {fields['id']}", fields["note"]),
    ),
    EventKind(
        "rollback",
        "the run went back to its last good checkpoint, or to the one that an owner chose (`by`); `undone` are all "
        "steps that do not stand now, as stretches after the first number up to the second",
        {"to": str, "step_from": int, "step_to": int, **_REASON}, say.rollback, "alarm",
        lambda at, fields: because(f"{at}ROLLED BACK {say.back_to(fields)}", fields["reason"]),
        {"kl_undone": NUMBER, "undone": list, "ensemble_version": int, "by": str, **_REPORTED},
    ),
    EventKind(
        "stopped", "the guard ended the run at its last good policy, and asks", _REASON,
        say.with_reason(lambda fields: "Stopped by the guard at its last good policy"), "alarm",
        lambda at, fields: because(f"{at}STOPPED at the last good policy", fields["reason"]),
    ),
    EventKind(
        "owner", "something that an owner asked for was carried out or refused",
        {"action": str, "by": str, "words": str, "changed": bool}, say.with_reason(say.owner),
        line=lambda at, fields: because(f"{at}{say.owner(fields)}", fields.get("reason")),
        optional={**_CHANGE, **_REASON},
    ),
    # Steps and rounds
    EventKind(
        "kl_limit", "KL went over `kl.hard_limit`; the round ends", {"kl": NUMBER, "limit": NUMBER},
        lambda fields: f"KL reached {format_value(fields['kl'])} nats, over the limit of "
        f"{format_setting(fields['limit'])}.", "alarm",
    ),
    EventKind(
        "kl_stop", "KL reached `run.stop_at_kl`; the run ends with this policy", {"kl": NUMBER, "limit": NUMBER},
        lambda fields: f"The run ends: KL reached {format_value(fields['kl'])} nats, and it was to stop at "
        f"{format_setting(fields['limit'])}.",
    ),
    EventKind(
        "rate_far_out",
        "before the first step: a step at the learning rate that is set, tried and taken back, moved the policy by so "
        "much of the KL budget, or so little of it; `suits` is a rate whose step fits",
        {"lr": NUMBER, "budget": NUMBER, "suits": NUMBER},
        lambda fields: sentence(say.far_out(fields)), "alarm", lambda at, fields: f"WARNING: {say.far_out(fields)}",
        {"kl": NUMBER},
    ),
    EventKind(
        "lr_decayed", "the policy has settled", {"lr": NUMBER},
        lambda fields: f"Learning rate lowered to {format_value(fields['lr'])}.", "alarm",
    ),
    EventKind(
        "member_degraded",
        "a reward member is left out from here on, since it fails or gives every answer the same score; "
        "`left` of all `members` go on",
        {"member": int, "why": str, "version": int, "left": int, "members": int},
        lambda fields: sentence(say.left_out(fields)), "alarm", lambda at, fields: f"{at}{say.left_out(fields)}",
    ),
    EventKind(
        "step_skipped", "a step was dropped, since a value was not a number or too few answers were scored", _REASON,
        lambda fields: f"Step skipped{say.in_brackets(fields)}.", "alarm",
    ),
    EventKind(
        "unscored",
        "some of a step's answers could not be scored, and have no part in what is learnt; told once a round",
        {"answers": int, "unscored": int, "reasons": list},
        lambda fields: sentence(say.unscored(fields)), line=lambda at, fields: f"{at}{say.unscored(fields)}",
    ),
    EventKind(
        "squeezing", "in DPO, the argmax rises while chosen answers fall",
        {"sentence": str, "peak_step": int, "chosen_fall": NUMBER, "rejected_fall": NUMBER, "argmax_rise": NUMBER},
        lambda fields: sentence(f"Squeezing: {one_line(fields['sentence'])}"), "alarm",
    ),
    EventKind("round_finished", "a round is over", {"kl": NUMBER, "kl_round": NUMBER}, weight="minor"),
    EventKind(
        "averaged",
        "the last round's policy was replaced by a mean with those of the rounds before; its figures on a batch",
        {"policies": int, "kl": NUMBER, "score": NUMBER, "length": NUMBER},
        lambda fields: sentence(say.averaged(fields)), line=lambda at, fields: f"{at}{say.averaged(fields)}",
    ),
    EventKind(
        "checkpoint_skipped", "a damaged checkpoint was passed over, or another took the place of the last good one",
        _REASON,
    ),
    EventKind(
        "reward_changed", "files of a reward that is given are not those that the checkpoint was saved with",
        {"files": list},
        lambda fields: sentence(say.reward_changed(fields)), "alarm",
        lambda at, fields: f"{at}{say.reward_changed(fields)}",
    ),
    EventKind(
        "grammar_changed", "files of rollout.grammar are not those that the checkpoint was saved with",
        {"files": list},
        lambda fields: sentence(say.grammar_changed(fields)), "alarm",
        lambda at, fields: f"{at}{say.grammar_changed(fields)}",
    ),
    EventKind("resumed", "the run goes on from a checkpoint", {"checkpoint": str}),
    EventKind(
        "setting_changed", "the run goes on with another value of a setting than its checkpoint was saved with",
        {"name": str, "before": str, "after": str},
        lambda fields: sentence(say.setting_changed(fields)), "alarm",
        lambda at, fields: f"{'' if fields.get('ended') else at}{say.setting_changed(fields)}",
        optional={"ended": bool},
    ),
    EventKind(
        "settings_unused", "settings were changed that the run does not use, since it has no such stage",
        {"words": str}, lambda fields: sentence(say.settings_unused(fields)), "minor",
        lambda at, fields: say.settings_unused(fields),
    ),
    EventKind("run_finished", "the run has done all its rounds", {}),
)  # fmt: skip

KINDS: dict[str, EventKind] = {kind.name: kind for kind in _KINDS}


def event_kind(name: str) -> EventKind:
    """Look a kind of event up; one that is not in the registry is refused."""
    if name in KINDS:
        return KINDS[name]
    raise HoldfastError(f"There is no event {name!r} in the registry; {_hint(name, KINDS)}")


def event_sentence(kind: str, fields: Fields) -> str:
    """What the report says of an event."""
    own = KINDS[kind].sentence
    return own(fields) if own else f"{kind.replace('_', ' ').capitalize()}{say.details(fields)}."


def event_line(kind: str, round: int, fields: Fields) -> str | None:
    """What is said of an event while a run goes on; None where nothing need be said."""
    own = KINDS[kind].line
    return None if own is None else own(_at(round), fields)


def round_line(round: int, audit: Fields, verdict: Fields) -> str:
    """A round as it ended, with its reason below; a healthy one needs none, an alarm's stands by what is done."""
    level = verdict["level"]
    line = f"{_at(round)}{level:<10} {say.preferences(audit)}"
    return line if level == "healthy" or level in ALARMS else f"{line}\n{INDENT}{one_line(verdict['sentence'])}"


def _at(round: int) -> str:
    return f"round {round:<2} "


def weight_of(kind: str, fields: Fields) -> Weight:
    """How much an event weighs among others."""
    if kind == "verdict":
        level = fields["level"]
        return "alarm" if level in ALARMS else "minor" if level == "healthy" else "main"
    return "alarm" if say.is_refused(kind, fields) else KINDS[kind].weight


def events_markdown() -> str:
    """The reference page of all events, docs/reference/events.md."""
    lines = [
        "# Events",
        "",
        "Everything that a run writes to `events.jsonl`, generated from `holdfast.events`.",
        "",
        "Every row has `step`, `round`, `event` (the kind) and `time` (UTC), and the fields of its kind. Those in",
        "parentheses may be absent. `labels` counts all labels known at the time, `trained_on` the comparisons of the",
        "replay mix; `holdout_accuracy` is over `held_out` comparisons, and null where none has a clear label.",
        "",
        "| kind | when it is written | fields |",
        "|---|---|---|",
    ]
    for kind in KINDS.values():
        fields = [f"`{name}` {_type_words(hint)}" for name, hint in kind.fields.items()]
        fields += [f"(`{name}` {_type_words(hint)})" for name, hint in kind.optional.items()]
        lines.append(f"| `{kind.name}` | {kind.meaning} | {', '.join(fields)} |")
    return "\n".join(lines) + "\n"


_TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    list: "list",
    NoneType: "null",
    object: "any",
}


def _type_words(hint: Type) -> str:
    parts = get_args(hint) or (hint,)
    return " or ".join(_TYPES.get(part, "object") for part in parts if not (part is int and float in parts))
