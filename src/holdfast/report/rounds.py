"""A guarded run round by round: what was preferred, the verdict, what was done about it, each with its reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from holdfast.charts.layers import px
from holdfast.events.levels import ALARMS
from holdfast.events.sentences import (
    Rate,
    advised,
    averaged,
    back_to,
    chosen,
    done,
    goal,
    missing,
    rate_of,
    refused,
)
from holdfast.report.data import EventRow, RunData
from holdfast.report.undone import Undone, undone
from holdfast.text import because, counted, listed, one_line, sentence

GUARD_EVENTS = frozenset({"audit", "verdict", "action", "advice", "rollback", "stopped"})
MOST_ROWS = 40
MOST_DEEDS = 12
MOST_NAMED = 6  # rounds that a sentence names one by one


# ---- the end in one sentence


@dataclass(frozen=True)
class Ending:
    """How the run stands: a level for the eye, the verdict in a sentence, and its evidence in another."""

    level: str
    headline: str
    evidence: str


def is_guarded(run: RunData) -> bool:
    """Whether a guard watched over the run."""
    return bool(run.happened(*GUARD_EVENTS))


def ending(run: RunData, status: str) -> Ending | None:
    """The verdict on the run as it ended, or as it stands; None without a guard."""
    if not is_guarded(run):
        return None
    last: dict[str, EventRow] = {event.kind: event for event in run.events}
    stop, verdict = last.get("stopped"), last.get("verdict")
    if stop is not None and status == "stopped":
        return Ending("stopped", f"{_stopped(run, stop)}; {_rollback_words(run)}.", sentence(stop.fields["reason"]))
    if verdict is None:
        return Ending("none", "No verdict yet.", "")
    level = verdict.fields["level"]
    back = [event for event in run.happened("rollback") if event.round == verdict.round]
    clauses = [_standing(level, verdict, status, back), _rollback_words(run)]
    if "advice" in last and not run.happened("rollback"):
        clauses.append("the guard only advises")
    # Where it was asked again at the end, all the answers together are what decided.
    choice = last.get("choice")
    last_word = choice if choice is not None and choice.round == verdict.round else verdict
    return Ending(level, f"{'; '.join(clauses)}.", sentence(last_word.fields["sentence"]))


def _standing(level: str, verdict: EventRow, status: str, back: Sequence[EventRow]) -> str:
    word = level.capitalize()
    if back and level not in ALARMS and "by" not in back[-1].fields:
        # Nobody asked for it and nothing was wrong: the choice that is made at the end of a run.
        return f"{word} at the end, which is {goal(back[-1].fields['to'])}, since that was liked better"
    if back:
        return f"{word} in the last round, which was undone"
    if status == "finished":
        return f"{word} at the end"
    return f"{word} so far, in round {verdict.round:,}"


def _stopped(run: RunData, stop: EventRow) -> str:
    back = run.happened("rollback")
    at = goal(back[-1].fields["to"]) if back else "its last good policy"
    return f"Stopped by the guard in round {stop.round:,} at {at}; it asks what to do"


def _rollback_words(run: RunData) -> str:
    back = run.happened("rollback")
    if not back:
        return "no rollback"
    rounds = [f"{event.round:,}" for event in back]
    words = counted(len(back), "rollback")
    if len(rounds) > MOST_NAMED:
        return f"{words}, the last in round {rounds[-1]}"
    return f"{words}, in {'round' if len(rounds) == 1 else 'rounds'} {listed(rounds)}"


# ---- figures


@dataclass(frozen=True)
class Summary:
    """What a guarded run came to, in figures. The verdict is on the last round, which may have been undone since.

    `advice` is what its sentence says of settings that are far out.
    """

    verdict: str
    sentence: str
    advice: tuple[str, ...]
    round: int
    undone: bool
    rollbacks: int
    audit_labels: int
    audit_labels_left: int | None
    repeats: int
    labels: int
    unanswered: int


def summary(run: RunData) -> Summary | None:
    """The figures of a guarded run; None without a guard."""
    if not is_guarded(run):
        return None
    last = next(reversed(run.happened("verdict")), None)
    asked = run.happened("audit", "choice")
    left = [number for event in asked if (number := event.fields["labels_left"]) is not None]
    audited = _total(asked, "labels")
    first = run.happened("ensemble_trained")[-1:]
    collected = run.happened("labels_collected")
    # Those of an attempt that was cut were asked once.
    repeats = _total(collected + run.happened("labels_repeated")[-1:], "repeats")
    bought = _total(first, "labels") + _total(collected, "labels") + repeats
    return Summary(
        verdict=last.fields["level"] if last else "",
        sentence=one_line(last.fields["sentence"]) if last else "",
        advice=tuple(map(one_line, last.fields["evidence"].get("advice", ()))) if last else (),
        round=last.round if last else 0,
        undone=last is not None and _taken_back(run, last),
        rollbacks=len(run.happened("rollback")),
        audit_labels=audited,
        audit_labels_left=left[-1] if left else None,
        repeats=repeats,
        labels=audited + bought + sum(_adversarial(event) for event in run.happened("action")),
        unanswered=sum(e.fields["comparisons"] - e.fields["answered"] for e in run.happened("labels_missing")),
    )


def _taken_back(run: RunData, verdict: EventRow) -> bool:
    """Whether the policy that a verdict is on was undone after it."""
    later = run.events[run.events.index(verdict) :]
    return undone(run).covers(verdict.step) and any(event.kind == "rollback" for event in later)


def _total(events: list[EventRow], name: str) -> int:
    return sum(event.fields[name] for event in events)


def _adversarial(event: EventRow) -> int:
    """Labels that an action bought: its watermarks of the store, before and after."""
    return int(event.fields["after"].get("labels", 0) - event.fields["before"].get("labels", 0))


def answered_by(run: RunData) -> str:
    """Who answers the audits."""
    return next((str(event.fields["answered_by"]) for event in reversed(run.happened("audit"))), "")


# ---- the table


@dataclass(frozen=True)
class Deed:
    """Something that was seen or done; `weight` is main, minor or alarm."""

    words: str
    weight: str


@dataclass(frozen=True)
class RoundRow:
    """One round of the table; `level` is empty where there was no verdict."""

    number: int
    level: str
    reference: Rate | None
    anchor: Rate | None
    deeds: tuple[Deed, ...]
    undone: bool

    @property
    def eventful(self) -> bool:
        return self.undone or self.level not in ("", "healthy") or any(deed.weight == "alarm" for deed in self.deeds)


@dataclass(frozen=True)
class RoundTable:
    """The rounds that are shown, in order, and how many there are in all."""

    rows: tuple[RoundRow, ...]
    in_all: int


def round_table(run: RunData) -> RoundTable:
    """Every round of a guarded run; of very many the eventful ones, the first and the last."""
    by_round: dict[int, list[EventRow]] = {}
    for event in run.events:
        if event.kind in _DEEDS:
            by_round.setdefault(event.round, []).append(event)
    gone = undone(run)
    rows = [_row(number, by_round[number], gone) for number in sorted(by_round)] if is_guarded(run) else []
    return RoundTable(tuple(_shortened(rows)), len(rows))


def _shortened(rows: list[RoundRow]) -> list[RoundRow]:
    if len(rows) <= MOST_ROWS:
        return rows
    places = range(len(rows))
    wanted = [0, *reversed(places[-MOST_ROWS // 4 :]), *(i for i in reversed(places) if rows[i].eventful), *places]
    kept = sorted(list(dict.fromkeys(wanted))[:MOST_ROWS])
    return [rows[i] for i in kept]


def _row(number: int, events: list[EventRow], gone: Undone) -> RoundRow:
    last = {event.kind: event for event in events}
    audit, verdict = last.get("audit"), last.get("verdict")
    why = one_line(verdict.fields["sentence"]) if verdict else ""
    deeds = [deed for event in events for deed in _DEEDS[event.kind](event, why)]
    judged = verdict or audit
    return RoundRow(
        number=number,
        level=verdict.fields["level"] if verdict else "",
        reference=rate_of(audit.fields, "reference") if audit else None,
        anchor=rate_of(audit.fields, "anchor") if audit else None,
        deeds=tuple(deeds[-MOST_DEEDS:]),
        undone=judged is not None and gone.covers(judged.step),
    )


GLYPH_WIDTH, GLYPH_HEIGHT = 104.0, 14.0


def glyph(rate: Rate) -> Markup:
    """A small scale from 0 to 100%: the win rate's interval and itself, a tick at one half, a diamond at the claim."""

    def at(value: float) -> float:
        return 4 + min(max(value, 0.0), 1.0) * (GLYPH_WIDTH - 8)

    middle = GLYPH_HEIGHT / 2
    parts = [
        f'<line class="rail" x1="4" x2="{px(GLYPH_WIDTH - 4)}" y1="{px(middle)}" y2="{px(middle)}"/>',
        f'<line class="half" x1="{px(at(0.5))}" x2="{px(at(0.5))}" y1="2" y2="{px(GLYPH_HEIGHT - 2)}"/>',
        f'<line class="range" x1="{px(at(rate.low))}" x2="{px(at(rate.high))}" y1="{px(middle)}" y2="{px(middle)}"/>',
    ]
    if rate.claimed is not None:
        x = at(rate.claimed)
        parts.append(f'<path class="claim" d="M{px(x - 4)} {px(middle)}l4 -5l4 5l-4 5z"/>')
    parts.append(f'<circle class="people" cx="{px(at(rate.rate))}" cy="{px(middle)}" r="3"/>')
    size = f'width="{px(GLYPH_WIDTH)}" height="{px(GLYPH_HEIGHT)}"'
    return Markup(f'<svg class="glyph" {size} aria-hidden="true">{"".join(parts)}</svg>')


# ---- deeds: lines for each event of a round; the verdict's sentence stands once, however many quote it


def _unless_said(words: str, reason: object, verdict: str) -> str:
    return sentence(words if one_line(reason) == verdict else because(words, reason))


def _verdict_deed(event: EventRow, verdict: str) -> list[Deed]:
    if event.fields["level"] != "healthy":
        return [Deed(sentence(verdict), "main")] if verdict else []
    # In a healthy round what was preferred stands in the row already; what is left is what the signals say.
    preferred, _, rest = verdict.partition("; ")
    words = rest if rest and " preferred " in preferred else verdict
    return [Deed(sentence(words), "minor")] if words else []


def _refresh_deed(event: EventRow, verdict: str) -> list[Deed]:
    gate, reason = one_line(event.fields["gate_reason"]), one_line(event.fields["reason"])
    if event.refused:
        return [Deed(sentence(f"Refresh {refused(event.fields)}"), "alarm")]
    why = "the guard asked for it" if reason.startswith("the guard asked for it") else reason
    refreshed = Deed(sentence(because(f"Refreshed to v{event.fields['version']}", why)), "main")
    return [refreshed, Deed(sentence(f"gate: {gate}"), "minor")] if gate else [refreshed]


def _rollback_deed(event: EventRow, verdict: str) -> list[Deed]:
    return [Deed(_unless_said(f"Rolled back {back_to(event.fields)}", event.fields["reason"], verdict), "alarm")]


def _advice_deed(event: EventRow, verdict: str) -> list[Deed]:
    words = f"Advice only: the guard {advised(event.fields)}"
    return [Deed(_unless_said(words, event.fields["reason"], verdict), "main")]


def _stopped_deed(event: EventRow, verdict: str) -> list[Deed]:
    reason = one_line(event.fields["reason"])
    short = reason.removesuffix(verdict).rstrip(" :") if verdict else reason
    return [Deed(sentence(because("Stopped, and asks", short)), "alarm")]


_DEEDS: dict[str, Callable[[EventRow, str], list[Deed]]] = {
    "refresh": _refresh_deed,
    "averaged": lambda event, verdict: [Deed(sentence(averaged(event.fields)), "main")],
    "choice": lambda event, verdict: [Deed(sentence(chosen(event.fields)), "main")],
    "labels_missing": lambda event, verdict: [Deed(sentence(missing(event.fields)), "alarm")],
    "audit": lambda event, verdict: [],
    "verdict": _verdict_deed,
    "action": lambda event, verdict: [Deed(sentence(done(event.fields)), "main")],
    "advice": _advice_deed,
    "rollback": _rollback_deed,
    "stopped": _stopped_deed,
}
