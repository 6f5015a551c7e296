"""The figures of the policy that a run delivers: of what `holdfast export` writes, and of no policy that was undone.

    metrics, events, gold -> undone steps -> the step that the policy stands on -> what was measured there -> Delivered

Terminal, JSON, model card, report, dashboard and *Compare* all show these. A step's figures are means over the batch
that the policy drew before that step's update. The reference's are those of the run's first batch, which it drew; its
KL is 0 by definition. Scores of two versions of the ensemble are two scales, so the version is told.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.checkpoint.files import JSON
from holdfast.events.sentences import Opponent, Rate, goal, rate_of
from holdfast.report.data import EventRow, RunData
from holdfast.report.undone import Curve, Undone, undone, undone_by
from holdfast.statistics import Share, wilson
from holdfast.text import counted

# What is shown of a policy: a name and its metric.
PROXY_FIGURE, REWARD_FIGURE, KL_FIGURE = "proxy (ensemble score)", "reward as given", "KL to reference"
FIGURES = (
    (PROXY_FIGURE, "objective/scores"),
    (KL_FIGURE, "objective/kl"),
    ("answer length", "response/length_mean"),
    ("right about pairs", "rewards/accuracies"),
    ("right about held-out pairs", "rewards/heldout_accuracies"),
)
NEVER = "never"
GOLD = "gold on held-out prompts"
# Metrics of a batch of answers, which the reference has as well: those of the first batch.
OF_ANSWERS = ("objective/scores", "objective/kl", "response/length_mean", "response/unfinished")
# What the event of a mean of policies calls the metrics that it was measured by.
OF_THE_MEAN = {"objective/scores": "score", "objective/kl": "kl", "response/length_mean": "length"}


@dataclass(frozen=True)
class Figure:
    """A number of the reference and of the delivered policy, each over `count` answers or pairs.

    The count is None where nobody has written it down. A figure `of_pairs` is a share.
    """

    start: float
    end: float
    count: int | None = None
    of_pairs: bool = False

    @property
    def over(self) -> str:
        """What the end is a mean over: "mean of 8 answers", "1 of 2 pairs (9% to 91%)"."""
        if self.count is None:
            return ""
        return Share(self.end, self.count).of("pair") if self.of_pairs else f"mean of {counted(self.count, 'answer')}"

    def record(self) -> dict[str, JSON]:
        """As JSON has it; a share has its interval."""
        known: dict[str, JSON] = {"start": self.start, "end": self.end, "count": self.count}
        if not self.of_pairs or not self.count:
            return known
        interval = wilson(self.end * self.count, self.count)
        return {**known, "low": interval.low, "high": interval.high}


@dataclass(frozen=True)
class Delivered:
    """The policy that a run delivers, or would if it ended now, and what is known of it.

    `preferred_to_reference` and `preferred_to_last_good` are of an audit of this very policy, in `audited_in`; nothing
    stands there where it was never audited, or where nobody has answered the `unanswered` comparisons of its audit.
    `verdict` is the last one on this policy, in `judged_in`. `reward_version` scored its proxy, and
    `reference_version` the reference's.
    """

    policy: str
    step: int
    round: int
    measured: str
    reward_version: int | None
    reference_version: int | None
    figures: Mapping[str, Figure]
    preferred_to_reference: Rate | None
    preferred_to_last_good: Rate | None
    verdict: str
    judged_in: int | None
    audited_in: int | None
    unanswered: int
    rollbacks: int
    steps_undone: int

    @property
    def is_reference(self) -> bool:
        """Whether nothing that was learnt is in it."""
        return self.step == 0

    @property
    def two_scales(self) -> bool:
        """Whether two versions of the ensemble scored the proxy of the reference and its own."""
        return None not in (versions := {self.reward_version, self.reference_version}) and len(versions) > 1

    @property
    def measured_words(self) -> str:
        """What was measured on what. Gold has answers of its own, which its count tells."""
        proxy = {PROXY_FIGURE: "proxy", REWARD_FIGURE: "reward"}
        apart = [f"{word}, KL and length " for name, word in proxy.items() if name in self.figures]
        return f"{apart[0] if apart and GOLD in self.figures else ''}{self.measured}"

    @property
    def words(self) -> str:
        """Which policy it is and what its figures were measured on."""
        if self.measured == NEVER:
            return f"{self.policy}, which was never measured"
        scored = "" if self.reward_version is None else f"; proxy by v{self.reward_version} of the ensemble"
        return f"{self.policy}, measured {self.measured}{scored}"

    def record(self) -> dict[str, JSON]:
        """As JSON has it, without the figures."""
        rates = {
            "preferred_to_reference": self.preferred_to_reference,
            "preferred_to_last_good": self.preferred_to_last_good,
        }
        return {
            "policy": self.policy,
            "step": self.step,
            "round": self.round,
            "measured": self.measured,
            "reward_version": self.reward_version,
            "reference_version": self.reference_version,
            "verdict": self.verdict or None,
            "judged_in": self.judged_in,
            "audited_in": self.audited_in,
            "unanswered": self.unanswered,
            "rollbacks": self.rollbacks,
            "steps_undone": self.steps_undone,
            **{name: None if rate is None else asdict(rate) for name, rate in rates.items()},
        }


def delivered(run: RunData) -> Delivered:
    """The policy that a run stands on, with its figures."""
    gone = undone(run)
    newest = run.metrics.steps[-1] if run.metrics else 0
    learnt = _learnt(run)
    step = gone.newest_kept(learnt, newest)
    audits = _audits_of(run, learnt, step)
    audit = next((event for event in reversed(audits) if event.fields["labels"]), None)
    at = (audits[-1].step, audits[-1].round) if audits else None
    verdict = next((event for event in run.happened("verdict") if (event.step, event.round) == at), None)
    mean = _mean_at(run, step)
    return Delivered(
        policy=_policy(run, step, mean),
        step=step,
        round=_round_of(run, step),
        measured=_measured(run, step, mean),
        reward_version=version_at(run, step),
        reference_version=version_at(run, 0),
        figures=_figures(run),
        preferred_to_reference=_rate(audit, "reference"),
        preferred_to_last_good=_rate(audit, "anchor"),
        verdict=str(verdict.fields["level"]) if verdict else "",
        judged_in=verdict.round if verdict else None,
        audited_in=audit.round if audit else None,
        unanswered=0 if audit else sum(event.fields["asked"] for event in audits),
        rollbacks=len(run.happened("rollback")),
        steps_undone=sum(map(gone.covers, run.metrics.steps)) if gone.spans else 0,
    )


# ---- on which step it stands


def _learnt(run: RunData) -> list[int]:
    """The steps that had an update; one that was dropped had none, and logs no figure of its answers."""
    return [step for step, _ in run.known("control/lr") or run.known("objective/scores") if step]


def _audits_of(run: RunData, learnt: list[int], step: int) -> list[EventRow]:
    """The audits of the policy of a step: at that time the run stood there."""
    rollbacks: list[EventRow] = []
    found: list[EventRow] = []
    gone = Undone()
    for event in run.events:
        if event.kind == "rollback":
            rollbacks.append(event)
            gone = undone_by(rollbacks)
        elif event.kind == "audit" and gone.newest_kept(learnt, event.step) == step:
            found.append(event)
    return found


def _rate(audit: EventRow | None, opponent: Opponent) -> Rate | None:
    return None if audit is None else rate_of(audit.fields, opponent)


def _mean_at(run: RunData, step: int) -> EventRow | None:
    """The event by which the policy of a step is a mean of several."""
    return next((event for event in reversed(run.happened("averaged")) if event.step == step > 0), None)


def _round_of(run: RunData, step: int) -> int:
    rows = zip(run.metrics.steps, run.metrics.rounds, strict=True)
    return next((number for at, number in rows if at == step > 0), 0)


# ---- what it is, and what it was measured on


def _policy(run: RunData, step: int, mean: EventRow | None) -> str:
    if not step:
        return "the reference"
    number = _round_of(run, step)
    if mean is not None:
        return f"the mean of {mean.fields['policies']} policies up to round {number:,}"
    if any(event.step == step for event in run.happened("round_finished")):
        return goal(f"round-{number}")
    return f"the policy of step {step:,}, within round {number:,}"


def _measured(run: RunData, step: int, mean: EventRow | None) -> str:
    count = answers_of(run, step)
    answers = "answers" if count is None else counted(count, "answer")
    if run.known("loss/dpo"):
        at = [number for number, _ in kept_curve(run, "objective/kl")]
        return f"on held-out prompts and pairs after update {at[-1]:,}" if at else NEVER
    if not run.known("objective/scores"):
        return NEVER
    if not step:
        return f"on its {answers} in the first step; KL 0 by definition"
    if mean is not None:
        return f"on {answers} of the mean"
    return f"on {answers} in step {step:,}, before its last update"


def version_at(run: RunData, step: int) -> int | None:
    """The version of the ensemble that scored the batch by which a step's policy is known; the reference's at 0."""
    known = run.known("ensemble/version")
    version = [number for at, number in known if at == step] or [number for _, number in known[:1] if not step]
    return int(version[0]) if version else None


def answers_of(run: RunData, step: int) -> int | None:
    """How many answers the figures of a step are of, by the settings that the run had in it; the reference's at 0."""
    settings: Any = run.manifest.get("settings", {})
    known = run.known("objective/scores")
    at = step or (known[0][0] if known else 0)

    def then(name: str) -> int:
        """A setting as it was: a change after some step goes for the steps that follow."""
        later = [event.fields for event in run.settings_changed if event.fields["name"] == name and event.step >= at]
        return int(later[0]["before"] if later else settings[name])

    try:
        # A mean of policies answers as many prompts as a step has, once each where no given reward sees groups.
        grouped = _mean_at(run, step) is None or run.given_reward
        return then("ppo.batch") * (then("ppo.samples_per_prompt") if grouped else 1)
    except (LookupError, TypeError, ValueError):
        return None


# ---- figures


def kept_curve(run: RunData, metric: str) -> Curve:
    """A metric on the way to the delivered policy, whose own value is the last one.

    Where the way begins anew from the reference, that is its first point; at the end stands the mean of the last
    policies, if the policy is that.
    """
    whole = run.known(metric)
    curve = undone(run).kept(whole)
    if metric in OF_ANSWERS and whole and (not curve or curve[0] != whole[0]):
        curve = [(0, 0.0 if metric == "objective/kl" else whole[0][1]), *curve]
    mean = _mean_at(run, curve[-1][0]) if curve else None
    value = None if mean is None else mean.fields.get(OF_THE_MEAN.get(metric, ""))
    return curve if value is None else [*curve[:-1], (curve[-1][0], value)]


def kept_gold(run: RunData, split: str) -> Curve:
    """Gold of a split on the line that was kept. Right after a rollback held-out gold is the older policy's."""
    gone = undone(run)
    again = {row.step for row in run.gold_undone} if split == "heldout" else set()
    return [(step, value) for step, value in run.gold_of(split) if step in again or not gone.covers(step)]


def _figures(run: RunData) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    pairs = next((event.fields for event in reversed(run.happened("pairs_ready"))), {})
    is_dpo = bool(run.known("loss/dpo"))
    counts = {
        "rewards/accuracies": pairs.get("batch"),
        "rewards/heldout_accuracies": pairs.get("held_out"),
    }
    for name, metric in FIGURES:
        if curve := kept_curve(run, metric):
            (_, start), (step, end) = curve[0], curve[-1]
            of_answers = pairs.get("prompts") if is_dpo else answers_of(run, step)
            count = of_answers if metric in OF_ANSWERS else counts[metric]
            start = 0.0 if metric == "objective/kl" else start  # what was measured of it is rounding
            name = REWARD_FIGURE if name == PROXY_FIGURE and run.given_reward else name
            figures[name] = Figure(start, end, count, metric.startswith("rewards/"))
    if heldout := kept_gold(run, "heldout"):
        figures[GOLD] = Figure(heldout[0][1], heldout[-1][1], run.heldout_answers)
    return figures
