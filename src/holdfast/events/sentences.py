"""What is said of events: the clauses that terminal and report share, and the sentences of the report.

Every field was checked when it was written. A number that was not finite is null where it is read back from a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.statistics import Share
from holdfast.text import as_number, because, counted, figure, format_setting, format_value, one_line, percent, sentence

Fields = Mapping[str, Any]
Opponent = Literal["reference", "anchor"]

RUNGS = {
    "tighten": "hold the policy closer to the reference",
    "slow_down": "lower the learning rate",
    "label_more": "label more where members disagree",
    "refresh": "refresh the ensemble",
    "adversarial": "label the hacked answers for the replay",
    "rollback": "roll back to the last good policy",
    "discount": "count the component that is hacked for less",
    "stop": "stop and ask",
}


# --- preferences and claims ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """How often the policy was preferred to one opponent, a tie as half, by whom, beside what was claimed by whom."""

    rate: float
    low: float
    high: float
    pairs: int
    claimed: float | None
    answered_by: str
    claimant: str = "ensemble"

    @property
    def overclaimed(self) -> bool:
        """Whether the claim lies above all that the answers leave possible."""
        return self.claimed is not None and self.claimed > self.high

    @property
    def share(self) -> Share:
        """As it is said."""
        return Share(self.rate, self.pairs)


def rate_of(audit: Fields, opponent: Opponent) -> Rate | None:
    """The win rate in an audit; None where nobody has answered."""
    interval = audit[f"{opponent}_rate"]
    if interval is None:
        return None
    pairs, claimed = audit[f"{opponent}_pairs"], audit[f"claimed_{opponent}"]
    rate = interval["value"], interval["low"], interval["high"]
    return Rate(*rate, pairs, claimed, audit["answered_by"], claimant(audit))


def preferences(audit: Fields) -> str:
    """Win rates and claims in half a line."""
    opponents: tuple[tuple[str, Opponent], ...] = (("reference", "reference"), ("last good", "anchor"))
    known = [(name, rate) for name, opponent in opponents if (rate := rate_of(audit, opponent)) is not None]
    if not known and audit["asked"]:
        return f"no audit: {none_answered(audit['asked'])}"
    if not known:
        left = audit["labels_left"]
        return "no audit: nobody answers" if left is None else f"no audit{'' if left else ': no labels are left'}"
    rates = [f"{rate.share.of('pair')} vs {name}" for name, rate in known]
    claims = [percent(rate.claimed) for _, rate in known if rate.claimed is not None]
    return f"{audit['answered_by']}: {', '.join(rates)}" + (
        f"; {claimant(audit)} claims {' and '.join(claims)}" if claims else ""
    )


def claimant(audit: Fields) -> str:
    """Who claims which answers people prefer, without an article."""
    return str(audit.get("claimed_by", "the ensemble")).removeprefix("the ")


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


def setting_changed(fields: Fields) -> str:
    """Which setting is another one from here on, with both values."""
    name, before, after = (one_line(fields[key]) for key in ("name", "before", "after"))
    if name == "run.rounds":
        return f"the run is to have {after} rounds in all and not {before}, those that were taken back not counted"
    return f"{name} is {after} {'for rounds to come' if fields.get('ended') else 'from here on'}, and was {before}"


def settings_unused(fields: Fields) -> str:
    """Which settings were changed that the run has no use for."""
    return f"not used by this run: {one_line(fields['words'])}"


def averaged(fields: Fields) -> str:
    """What the last round's policy is made of."""
    words = f"the policy is now the mean of {fields['policies']} policies of the last rounds"
    return f"{words}, {format_value(fields['kl'])} nats from the reference"


def chosen(fields: Fields) -> str:
    """What came of asking again before a run ends with an earlier policy."""
    more = counted(fields["labels"], "more pair was", "more pairs were")
    words = f"{more} asked about before the run ends with an earlier policy"
    # Where it goes back the rollback says what was answered.
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


# --- how many labels ---------------------------------------------------------------------------------------------


def asked_for(fields: Fields) -> str:
    """What comparisons are for, and why they are more than the settings' own number."""
    return because(one_line(fields["reason"]), fields["more"])


def cut(fields: Fields) -> str:
    """That the budget of labels is used up, or all of it that is not kept for audits."""
    asked, kept = f"{fields['comparisons']:,} of {counted(fields['wanted'], 'comparison')} asked", fields["kept"]
    rest = f"leaves {kept:,}, kept for audits" if kept else "is used up, and the run goes on with the labels it has"
    return f"{asked} ({one_line(fields['reason'])}): labels.budget = {fields['budget']} {rest}"


def missing(fields: Fields) -> str:
    """How many of the comparisons that a labeller was asked it has answered."""
    answered = f"{fields['answered']:,} of {counted(fields['comparisons'], 'comparison')} answered"
    return f"{answered} by {one_line(fields['labeller'])} ({one_line(fields['reason'])})"


def none_answered(asked: int) -> str:
    """That nobody has answered what was asked."""
    return f"{asked:,} asked, none answered"


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
    for name, count, on in (("train_accuracy", "trained_on", "training"), ("holdout_accuracy", "held_out", "held-out")):
        if fields[name] is not None:
            words += f", right on {Share(fields[name], fields[count]).of(f'{on} comparison')}"
    return words


def refresh(fields: Fields) -> str:
    if not fields["accepted"]:
        return sentence(f"Refresh{in_brackets(fields)} {refused(fields)}")
    words = f"Reward ensemble refreshed to v{fields['version']}{in_brackets(fields)}{fit(fields)}."
    gate = one_line(fields["gate_reason"])
    return f"{words} {sentence(f'gate: {gate}')}" if gate else words


def left_out(fields: Fields) -> str:
    """Which reward member is left out, and why."""
    return (
        f"reward member {fields['member']} is left out, since it {one_line(fields['why'])}; "
        f"{fields['left']} of {fields['members']} are left"
    )


def far_out(fields: Fields) -> str:
    """That a learning rate which somebody has set does not fit the model."""
    kl, budget, suits = fields.get("kl"), fields["budget"], format_value(fields["suits"])
    moved = "to where nothing is a number" if kl is None else f"by {format_value(kl)} nats an answer"
    size = "large" if kl is None or kl > budget / 2 else "small"
    return (
        f"ppo.lr = {format_setting(fields['lr'])} is far too {size} for this model: one step moves the policy {moved}, "
        f"of a KL budget of {format_value(budget)} in all (tried before the first step, and taken back); leave ppo.lr "
        f"out to have it chosen, or set about {suits}"
    )


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
        was, now = (Share(newest["accuracy"], newest["pairs"]).of("newest label") for newest in (before, after))
        right = f" (before: right on {was}, after: on {now})"
    decision = "accepted" if fields["accepted"] else "refused"
    return sentence(because(f"Gate {decision} v{fields['version']}{right}", fields["reason"]))


def ensemble_right(audit: Fields) -> str:
    """On how many of an audit's pairs that were no tie the ensemble was right; empty where there were none."""
    right = audit["accuracy"]
    return "" if right is None else f"right on {Share(right, audit['decided']).of('pair')}"


def audit(fields: Fields) -> str:
    left, right, calibration = fields["labels_left"], ensemble_right(fields), fields["ece"]
    figures = [f"{claimant(fields)} {right}"] if right else []
    figures += [] if calibration is None else [f"ECE {format_value(calibration, percent=True)}"]
    figures += [] if left is None else [f"{counted(left, 'label')} left"]
    figures += beside_people(fields)
    return f"Audit of {counted(fields['labels'], 'label')}: {'; '.join([preferences(fields), *figures])}."


def beside_people(fields: Fields) -> list[str]:
    """What a judge beside people did in an audit: how often both said the same, and what it has saved so far."""
    judge = fields.get("judge")
    if not judge or not judge["pairs"]:
        return []
    agreed = f"the judge agreed with people in {judge['agreed']} of {judge['both']}"
    return [f"{agreed} and has saved {counted(max(0, judge['saved']), 'label')} so far"]


def judge_drifted(fields: Fields) -> str:
    """That the judge, and not the policy, is another one."""
    pairs = counted(fields["pairs"], "pair")
    found = f"of {pairs} given again it is further from people in {fields['lost']}, nearer in {fields['gained']}"
    return f"The judge has drifted, not the policy: {found}; it has no say in audits until it is known again."


def baselines(fields: Fields) -> str:
    """That signals have read, and which cannot in this run."""
    needs: dict[str, list[str]] = {}
    for name, need in fields.get("left_out", {}).items():
        needs.setdefault(need, []).append(name.removeprefix("signal/"))
    left = "; ".join(f"{', '.join(names)} (they need {need})" for need, names in needs.items())
    return f"The signals have read the reference's answers{f'; left out: {left}' if left else ''}."


def claims_learnt(fields: Fields) -> str:
    """What audits say a difference in reward is worth."""
    slope, sd = format_value(fields["slope"]), format_value(fields["sd"])
    worth = f"a difference of 1 in reward is worth {slope} log-odds to people (standard deviation {sd})"
    yet = "" if fields["ready"] else "; too uncertain to claim anything yet, so the guard goes by whom people prefer"
    return f"By {counted(fields['audits'], 'audit')}, {worth}{yet}."


def rollback(fields: Fields) -> str:
    version = fields.get("ensemble_version")
    ensemble = "" if version is None else f" and ensemble v{version}"
    return sentence(because(f"Rolled back {back_to(fields, ensemble)}", fields["reason"]))


def with_reason(words: Callable[[Fields], str]) -> Callable[[Fields], str]:
    return lambda fields: sentence(because(words(fields), fields.get("reason")))


def standardised(fields: Fields) -> str:
    """Such as: the reward mine.py:score on 128 of 128 answers of the reference: mean 0.31, standard deviation 0.2."""
    answers = f"{fields['scored']:,} of {counted(fields['answers'], 'answer')} of the reference"
    words = f"the reward {one_line(fields['reward'])} on {answers}: mean {format_value(fields['mean'])}"
    if fields["flat"]:
        return f"{words} for each, so that a policy learns nothing as long as that is so; look at what it reads"
    return f"{words}, standard deviation {format_value(fields['sd'])}"


def unscored(fields: Fields) -> str:
    """Such as: 3 of 64 answers of a step could not be scored (2 answers: the reward gave None)."""
    reasons = "; ".join(one_line(reason) for reason in fields["reasons"])
    return f"{fields['unscored']} of {counted(fields['answers'], 'answer')} of a step could not be scored ({reasons})"


def reward_changed(fields: Fields) -> str:
    """Such as: my_reward.py is not what the reward was before; scores before and after are not one curve."""
    return f"{_files_are(fields)} not what the reward was made of before; scores before and after are not one curve"


def grammar_changed(fields: Fields) -> str:
    """Such as: layout.json is not what answers were spelt by before; answers before and after are not of one kind."""
    return f"{_files_are(fields)} not what answers were spelt by before; answers before and after are not of one kind"


def _files_are(fields: Fields) -> str:
    return f"{', '.join(map(one_line, fields['files']))} {'is' if len(fields['files']) == 1 else 'are'}"
