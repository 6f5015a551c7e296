"""Which charts the report shows, and what each of them says about a run."""

from dataclasses import dataclass, replace

from holdfast.charts import axes
from holdfast.charts.layers import gutter_width
from holdfast.charts.spec import Band, ChartSpec, Marker, Series, Span
from holdfast.report.data import RunData
from holdfast.report.guard_panels import audit_charts, signal_charts, window
from holdfast.report.undone import undone
from holdfast.text import one_line
from holdfast.track.metrics import COMPONENTS

WIDE = 870.0  # scaled up to the page, its text is then as large as in the charts that stand side by side
MOST_MARKERS = 60
MOST_MOVED = 6
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = range(6)


@dataclass(frozen=True)
class Panels:
    """The charts of a run: the head pair, people's audits, the main ones, the guard's signals (those that moved most
    and the rest), the ones for a closer look, and what is missing."""

    head: tuple[ChartSpec, ...]
    audits: tuple[ChartSpec, ...]
    signals: tuple[ChartSpec, ...]
    more_signals: tuple[ChartSpec, ...]
    main: tuple[ChartSpec, ...]
    more: tuple[ChartSpec, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class MetricPanel:
    """A chart of one metric."""

    metric: str
    title: str
    subtitle: str
    unit: str = ""
    colour: int = BLUE
    percent: bool = False
    from_zero: bool = True
    smooth_from: int | None = 25  # how many values it takes before the line is smoothed; None is never


MAIN = (
    MetricPanel("objective/kl", "KL to the reference",
                "How far the policy has moved from where it started. It should level off below the budget.",
                "nats per answer", GREEN),
    # Its spikes are what it is for, until there are too many to tell apart.
    MetricPanel("objective/kl_step", "KL of each step",
                "How far one step moved the policy. Spikes mean steps that were too large.", "nats per answer", GREEN,
                smooth_from=400),
    MetricPanel("objective/kl_cumulative", "KL spent in all",
                "The sum of every step's KL. It keeps growing even when the policy only wanders.", "nats", GREEN,
                smooth_from=None),
    MetricPanel("control/beta", "KL penalty (beta)",
                "The price of one nat of KL in reward. It rises when KL runs ahead of its target.", "reward per nat",
                PURPLE, smooth_from=None),
    MetricPanel("ensemble/spread", "Spread of the ensemble",
                "How much the reward models disagree. Rising spread means answers they were not trained on.",
                "standard deviations of score", ORANGE),
    MetricPanel("response/length_mean", "Answer length",
                "Steady growth with a rising proxy is a common way to fool a reward model.", "tokens", SKY),
    MetricPanel("response/unfinished", "Unfinished answers", "The share of answers cut off at the token limit.", "",
                SKY, percent=True),
    MetricPanel("control/lr", "Learning rate",
                "The size of the optimiser's steps as the schedule and the guards set it.", "", BLUE, smooth_from=None),
    MetricPanel("policy/clipfrac_avg", "Clipped updates",
                "The share of tokens whose update PPO cut short. A high share means that the steps are too large.", "",
                BLUE, percent=True),
)  # fmt: skip

PAIRS = (
    MetricPanel("loss/dpo", "Loss on pairs", "What DPO minimises; log 2 is where sigmoid's begins.", "nats", BLUE,
                from_zero=False),
    MetricPanel("rewards/margins", "Margin of chosen over rejected",
                "What the policy gives chosen more than rejected, beyond the reference, times beta.", "reward", GREEN,
                from_zero=False),
    MetricPanel("rewards/accuracies", "Right about pairs",
                "The share of training pairs whose chosen answer the policy now favours more than the reference does.",
                "", PURPLE, percent=True, from_zero=False),
)  # fmt: skip

UNSCORED = MetricPanel("reward/unscored", "Answers without a score",
                       "They have no part in what is learnt. A rise means that the reward, or the policy, is failing.",
                       "", VERMILION, percent=True)  # fmt: skip
MOST_COMPONENTS = 6

MORE = (
    MetricPanel("objective/rlhf_reward", "Reward after the KL penalty",
                "What PPO maximises: proxy minus beta times KL.", "reward", BLUE, from_zero=False),
    MetricPanel("objective/kl_round", "KL of the round so far", "Distance from the policy that began the round.",
                "nats per answer", GREEN, smooth_from=None),
    MetricPanel("objective/entropy", "Entropy of the policy",
                "How undecided the policy is. A fall to near zero means that it always says the same.", "nats", PURPLE),
    MetricPanel("response/distinct2", "Different word pairs",
                "The share of neighbouring token pairs that are not repeats. A fall means repetition.", "", SKY,
                percent=True, from_zero=False),
    MetricPanel("policy/approxkl_avg", "KL inside the update",
                "How far the policy moved between sampling and the end of the update, as PPO estimates it.",
                "nats per token", GREEN),
    MetricPanel("val/ratio", "Probability ratio",
                "New probability over old, averaged. Far from 1 means an unstable update.", "", BLUE, from_zero=False),
    MetricPanel("val/explained_variance", "Explained variance of the critic",
                "1 is a perfect value estimate, 0 is no better than the mean, below 0 is worse.", "", VERMILION,
                from_zero=False),
)  # fmt: skip


def panels(run: RunData) -> Panels:
    """Every chart that has data, with the shared x axis, refreshes, rollbacks and rounds drawn into each."""
    marks, gone = _marks(run), tuple(Span(float(a), float(b)) for a, b in undone(run).spans[-MOST_MARKERS:])
    alarms = [mark for mark in marks if mark.kind == "alarm"]
    starts = _round_starts(run)
    span = _x_range(run)

    def with_marks(spec: ChartSpec, markers: list[Marker] = marks) -> ChartSpec:
        if spec.x_label != "step":
            return spec
        return replace(spec, markers=tuple(markers), spans=gone, rounds=starts, x_range=span)

    signals = [with_marks(spec, alarms) for spec in signal_charts(run)]
    head = [with_marks(spec) for spec in (_proxy(run), _gold(run)) if spec.has_data()]
    main = [(panel.title, with_marks(_metric_chart(run, panel))) for panel in main_panels(run)]
    if not run.given_reward:
        main.insert(5, ("Reward-model accuracy", _accuracy(run)))
    components = with_marks(_components(run))  # not every reward has several
    pairs = [with_marks(spec) for panel in PAIRS if (spec := _metric_chart(run, panel)).has_data()]
    # A run of DPO alone has no reward model, no critic and no rounds of PPO to miss.
    alone = bool(pairs) and not run.known("objective/scores")
    more = [(panel.title, with_marks(_metric_chart(run, panel))) for panel in MORE]
    return Panels(
        head=tuple(_aligned(head)),
        # A new version often comes right after an audit and would be drawn over its interval; small charts have no
        # room for it. What matters in both is where the run went back.
        audits=tuple(with_marks(spec, alarms) for spec in audit_charts(run)),
        signals=tuple(signals[:MOST_MOVED]),
        more_signals=tuple(signals[MOST_MOVED:]),
        main=(*pairs, *(spec for spec in (components, *(spec for _, spec in main)) if spec.has_data())),
        more=tuple(spec for _, spec in more if spec.has_data()),
        missing=() if alone else tuple(title for title, spec in [*main, *more] if not spec.has_data()),
    )


def main_panels(run: RunData) -> tuple[MetricPanel, ...]:
    """The charts of single metrics that are always there: of a reward that is given nothing about an ensemble."""
    if not run.given_reward:
        return MAIN
    return (*(panel for panel in MAIN if not panel.metric.startswith("ensemble/")), UNSCORED)


def _marks(run: RunData) -> list[Marker]:
    """New versions of the ensemble, refreshes that the gate refused, and rollbacks; of very many only some."""
    refreshes = [event for event in run.refreshes if event.step]
    refused = [event for event in run.refused if event.step]
    back = [event.fields["step_from"] for event in run.happened("rollback")]
    return [
        *(
            Marker(float(event.step), f"v{event.fields['version']}")
            for event in refreshes[:: marked_every(len(refreshes))]
        ),
        *(Marker(float(event.step), "×", "refused") for event in refused[:: marked_every(len(refused))]),
        *(Marker(float(step), "rollback", "alarm") for step in back[:: marked_every(len(back))]),
    ]


def narrow(spec: ChartSpec) -> ChartSpec:
    """The same chart for a narrow screen."""
    return replace(spec, width=430.0, height=270.0, gutter=None)


def _aligned(specs: list[ChartSpec]) -> list[ChartSpec]:
    """Wide charts whose plots end at the same x, so that one can be read above the other."""
    wide = [replace(spec, width=WIDE, height=240.0) for spec in specs]
    gutter = max((gutter_width(spec) for spec in wide), default=0.0)
    return [replace(spec, gutter=gutter) for spec in wide]


def marked_every(refreshes: int) -> int:
    """1 where every refresh is marked; of very many every 2nd, 5th, 10th, 20th ... one, so that lines stay lines."""
    power = 1
    while True:
        for every in (power, 2 * power, 5 * power):
            if refreshes <= every * MOST_MARKERS:
                return every
        power *= 10


def _round_starts(run: RunData) -> tuple[float, ...]:
    steps, rounds = run.metrics.steps, run.metrics.rounds
    return tuple(float(steps[i]) for i in range(len(steps)) if i == 0 or rounds[i] != rounds[i - 1])


def _x_range(run: RunData) -> tuple[float, float] | None:
    steps = [*run.metrics.steps, *(row.step for row in run.gold)]
    return (float(min(steps)), float(max(steps))) if steps else None


def _proxy(run: RunData) -> ChartSpec:
    xs, ys = run.metric("objective/scores")
    span = window(run.metrics.count("objective/scores"))
    spread = run.metric("ensemble/spread")[1]
    middle = axes.smooth(ys, span) if span else ys
    width = axes.smooth(spread, span) if span else spread
    pairs = list(zip(middle, width, strict=True))
    band = Band(
        xs,
        low=[m - w if m is not None and w is not None else None for m, w in pairs],
        high=[m + w if m is not None and w is not None else None for m, w in pairs],
        colour=BLUE,
    )
    subtitle = "The score that the policy is trained on. The band is the spread of the reward models around it."
    title, name = "Proxy: what the reward ensemble says", "proxy"
    if run.given_reward:
        title, name = f"Reward: what {one_line(run.given_reward)[:60]} says", "reward"
        subtitle = "The reward that the policy is trained on, in its own unit: the mean of the answers that have one."
    return ChartSpec(
        title=title,
        subtitle=subtitle + (f" Faint: each step; line: mean of {span} steps." if span else ""),
        unit="reward" if run.given_reward else "standardised score",
        series=(Series(name, xs, ys, BLUE, smooth=span),),
        band=band if band.known else None,
    )


def _components(run: RunData) -> ChartSpec:
    """The components of a reward that has several; of very many those that moved most."""
    known = {name: run.known(name) for name in run.metrics.names if name.startswith(COMPONENTS)}
    moved = {name: abs(curve[-1][1] - curve[0][1]) for name, curve in known.items() if curve}
    chosen = sorted(sorted(moved, key=lambda name: -moved[name])[:MOST_COMPONENTS])
    series = []
    for colour, name in enumerate(chosen):
        xs, ys = run.metric(name)
        series.append(
            Series(one_line(name.removeprefix(COMPONENTS))[:40], xs, ys, colour, smooth=window(len(known[name])))
        )
    left = f" The {len(chosen)} of {len(moved)} that moved most." if len(moved) > len(chosen) else ""
    return ChartSpec(
        title="Components of the reward",
        subtitle=f"One that rises alone may be the one that is fooled.{left}",
        unit="reward",
        series=tuple(series) if len(series) > 1 else (),
    )


def _gold(run: RunData) -> ChartSpec:
    series = []
    for split, name, colour in (("heldout", "held-out", VERMILION), ("rollout", "rollouts", ORANGE)):
        curve = _gold_before_and_after(run) if split == "heldout" else run.gold_of(split)
        span = window(len(curve))
        xs, ys = [float(step) for step, _ in curve], [value for _, value in curve]
        dots = split == "heldout" and len(curve) <= 60
        series.append(Series(name, xs, ys, colour, smooth=span, dots=dots))
    return ChartSpec(
        title="Gold: what is true",
        subtitle="The truth, unseen in training. If it falls while the proxy rises, the proxy is fooled.",
        unit="gold score",
        series=tuple(series),
    )


def _gold_before_and_after(run: RunData) -> list[tuple[int, float]]:
    """Held-out gold; where a rollback was measured, that of the policy it took back comes before the older one's."""
    back = {event.fields["step_from"] for event in run.happened("rollback")}
    taken_back = [(row.step, row.gold) for row in run.gold_undone if row.gold is not None and row.step in back]
    return sorted([*taken_back, *run.gold_of("heldout")], key=lambda point: point[0])


def _metric_chart(run: RunData, panel: MetricPanel) -> ChartSpec:
    xs, ys = run.metric(panel.metric)
    count = run.metrics.count(panel.metric)
    # Measured now and then only: points, and a line from one to the next.
    sparse = 1 < count <= 60 and count < len(xs) / 2
    if sparse:
        xs, ys = [float(step) for step, _ in run.known(panel.metric)], [value for _, value in run.known(panel.metric)]
    span = window(count) if panel.smooth_from is not None and count >= panel.smooth_from else 0
    limit = None
    if panel.metric == "objective/kl":
        target_xs, targets = run.metric("control/kl_target")
        limit = Series("budget", target_xs, targets) if run.metrics.count("control/kl_target") else None
    return ChartSpec(
        title=panel.title,
        subtitle=panel.subtitle,
        unit=panel.unit,
        series=(Series("KL" if limit else "", xs, ys, panel.colour, smooth=span, dots=sparse),),
        limit=limit,
        percent=panel.percent,
        from_zero=panel.from_zero,
    )


def _accuracy(run: RunData) -> ChartSpec:
    trained = [event for event in run.happened("ensemble_trained", "refresh") if not event.refused]
    by_version = {event.fields["version"]: event.fields for event in trained}
    xs = sorted(by_version)
    return ChartSpec(
        title="Reward-model accuracy",
        subtitle="How often the ensemble picks the preferred answer. A wide gap means that it memorises.",
        x_label="version",
        x_prefix="v",
        series=(
            Series("held-out", xs, [by_version[x]["holdout_accuracy"] for x in xs], BLUE, dots=True),
            Series("training", xs, [by_version[x]["train_accuracy"] for x in xs], ORANGE, dots=True),
        ),
        percent=True,
    )
