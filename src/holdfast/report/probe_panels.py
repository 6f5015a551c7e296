"""Charts of the learning dynamics: how likely the model finds fixed answers as it learns, stage by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.charts.spec import ChartSpec, Marker, Series
from holdfast.report.data import ProbeRow

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = range(6)

# What stands in the first chart of a stage and what in the second: kind -> name, colour.
COMPARED = {
    "chosen": ("chosen", BLUE),
    "chosen_varied": ("chosen, reordered", SKY),
    "rejected": ("rejected", VERMILION),
    "rejected_varied": ("rejected, reordered", ORANGE),
}
OTHERS = {
    "initial": ("its own first answer", GREEN),
    "other": ("another prompt's", PURPLE),
    "permuted": ("permuted", ORANGE),
    "random": ("random tokens", SKY),
}
SIDE_BY_SIDE = {"chosen": COMPARED["chosen"], "rejected": COMPARED["rejected"], "other": OTHERS["other"]}
TITLES = {"sft": "SFT", "ppo": "PPO", "dpo": "DPO", "online dpo": "Online DPO", "distil": "Distillation"}
UPDATES = ("sft", "dpo", "distil")


@dataclass(frozen=True)
class Dynamics:
    """The charts of one stage."""

    title: str
    charts: tuple[ChartSpec, ...]


def dynamics(rows: Sequence[ProbeRow], squeezed_at: int | None = None) -> list[Dynamics]:
    """A group of charts for each stage that was probed, in the order of the stages."""
    groups = []
    for stage, own in by_stage(rows).items():
        seen = squeezed_at is not None and stage.startswith("dpo")
        marks = (Marker(float(squeezed_at or 0), "squeezing", "alarm"),) if seen else ()
        charts = (*stage_charts(title_of(stage), axis(stage), own, marks), signs_chart(own))
        groups.append(Dynamics(title_of(stage), tuple(chart for chart in charts if chart.has_data())))
    return groups


def stage_charts(title: str, x_label: str, rows: Sequence[ProbeRow], marks: Sequence[Marker]) -> list[ChartSpec]:
    """What a stage does to answers that were compared, to others, and to their margin."""
    xs = [float(row.step) for row in rows]
    return [
        ChartSpec(
            title=f"{title}: chosen, rejected and the argmax",
            subtitle="Log-probs of fixed answers, summed. Argmax: of the likeliest token at each place of chosen.",
            unit="nats per answer",
            x_label=x_label,
            series=lines(rows, COMPARED, argmax=True),
            markers=marks,
        ),
        ChartSpec(
            title=f"{title}: answers that nobody compared",
            subtitle="Its own answer from when the stage began, another prompt's answer, and two that are no language.",
            unit="nats per answer",
            x_label=x_label,
            series=lines(rows, OTHERS),
        ),
        ChartSpec(
            title=f"{title}: margin and entropy",
            subtitle="Margin: what chosen gained over rejected since the stage began. "
            "Entropy: of a token, along chosen.",
            unit="nats",
            x_label=x_label,
            series=(
                Series("margin", xs, [row.margin_gain for row in rows], BLUE),
                Series("entropy", xs, [row.entropy for row in rows], PURPLE),
            ),
        ),
    ]


def side_by_side(rows: Sequence[ProbeRow]) -> list[ChartSpec]:
    """One chart for each stage with the same lines, for reading across."""
    groups = by_stage(rows)
    if len(groups) < 2:
        return []
    charts = []
    for stage, own in groups.items():
        # A model that knows nothing yet is far below anything that comes later, and would flatten all lines.
        shown = own[1:] if stage == "sft" and len(own) > 3 else own
        charts.append(
            ChartSpec(
                title=title_of(stage),
                subtitle=stage_sentence(own),
                unit="nats per answer",
                x_label=axis(stage),
                series=lines(shown, SIDE_BY_SIDE, argmax=True),
            )
        )
    return charts


def stage_sentence(rows: Sequence[ProbeRow]) -> str:
    """What a stage did, in a sentence."""
    chosen, rejected = ([row.logprob.get(kind) for row in rows] for kind in ("chosen", "rejected"))
    if None in (chosen[0], chosen[-1], rejected[0], rejected[-1]):
        return ""
    up, down = (chosen[-1] or 0.0) - (chosen[0] or 0.0), (rejected[-1] or 0.0) - (rejected[0] or 0.0)
    return f"Chosen {up:+.1f} nats over the stage, rejected {down:+.1f}."


def by_stage(rows: Sequence[ProbeRow]) -> dict[str, list[ProbeRow]]:
    groups: dict[str, list[ProbeRow]] = {}
    for row in rows:
        groups.setdefault(row.stage, []).append(row)
    return groups


def title_of(stage: str) -> str:
    """What a stage is called; one that comes again has a number."""
    kind, _, number = stage.partition("-")
    return f"{TITLES.get(kind, kind)} {number}".rstrip()


def axis(stage: str) -> str:
    return "update" if stage.partition("-")[0] in UPDATES else "step"


def lines(rows: Sequence[ProbeRow], kinds: Mapping[str, tuple[str, int]], argmax: bool = False) -> list[Series]:
    xs = [float(row.step) for row in rows]
    known = [kind for kind in kinds if any(kind in row.logprob for row in rows)]
    found = [Series(kinds[kind][0], xs, [row.logprob.get(kind) for row in rows], kinds[kind][1]) for kind in known]
    return [*found, Series("argmax", xs, [row.argmax for row in rows], GREEN)] if argmax else found


def signs_chart(rows: Sequence[ProbeRow]) -> ChartSpec:
    """For a stage with advantages: what an update did to the tokens that it praised and blamed."""
    own = [row for row in rows if row.positive is not None or row.negative is not None]
    xs = [float(row.step) for row in own]
    return ChartSpec(
        title="Tokens by the sign of their advantage",
        subtitle="Change of log-prob by the step's own update, mean over the tokens it was to raise and to lower.",
        unit="nats per token",
        series=(
            Series("positive", xs, [row.positive for row in own], BLUE, dots=True),
            Series("negative", xs, [row.negative for row in own], VERMILION, dots=True),
        ),
    )
