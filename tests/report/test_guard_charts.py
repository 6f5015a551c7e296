import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from rows import of_round, write_lines

from holdfast.charts.chart import ChartSpec, Marker, Series, Span, line_chart
from holdfast.report.data import EventRow, read_run
from holdfast.report.guard_panels import audit_charts, movement, pooled_bins, rate_line, signal_charts
from lone_events import fields_of

NS = {"s": "http://www.w3.org/2000/svg"}
SPEC = ChartSpec(
    "Rate", "", "", [Series("people", [0, 1, 2], [0.5, 0.6, 0.7], low=[0.3, None, 0.4], high=[0.8, 0.9, 0.9])]
)


def frame(svg: str) -> list[float]:
    return [float(number) for number in re.search(r'data-frame="([^"]+)"', svg)[1].split()]


def test_whiskers_reach_from_the_low_to_the_high_end():
    svg = line_chart(SPEC, inline=True)
    left, top, right, bottom, _, _, y_low, y_high = frame(svg)
    path = re.search(r'<path class="whisker c0" d="([^"]+)"', svg)[1]
    bars = [tuple(map(float, bar)) for bar in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", path)]

    def y(value):
        return bottom - (value - y_low) / (y_high - y_low) * (bottom - top)

    # the middle value has no lower end, so no whisker; the others are at the two edges of the plot
    assert [bar[0] for bar in bars] == pytest.approx([left, right], abs=0.1)
    assert bars[0][1:] == pytest.approx((y(0.3), y(0.8)), abs=0.1)
    assert bars[1][1:] == pytest.approx((y(0.4), y(0.9)), abs=0.1)
    assert 'data-values="0 0.5 0.50 (0.30 to 0.80);1 0.6 0.60;2 0.7 0.70 (0.40 to 0.90)"' in svg


def test_the_scale_has_room_for_the_intervals():
    *_, y_low, y_high = frame(line_chart(SPEC, inline=True))
    assert (y_low, y_high) == pytest.approx((0.3 - 0.06 * 0.6, 0.9 + 0.06 * 0.6))


def test_very_many_intervals_are_a_band():
    many = Series("p", range(100), [0.5] * 100, low=[0.4] * 100, high=[0.6] * 100)
    svg = line_chart(replace(SPEC, series=[many]))
    assert 'class="band f0"' in svg
    assert 'class="whisker' not in svg


def test_intervals_of_another_length_are_left_out():
    assert Series("p", [0, 1], [0.5, 0.5], low=[0.4], high=[0.6]).intervals == []


def test_a_span_is_tinted_and_its_strokes_stay_inside():
    svg = line_chart(replace(SPEC, spans=[Span(0.5, 1.5), Span(5, 9), Span(1.5, 1.5)]), inline=True)
    left, top, right, bottom, *_ = frame(svg)
    (rect,) = ET.fromstring(svg).findall(".//s:rect[@class='undone']", NS)
    start, width = float(rect.get("x")), float(rect.get("width"))
    assert start == pytest.approx(left + 0.25 * (right - left), abs=0.1)
    assert width == pytest.approx(0.5 * (right - left), abs=0.1)
    (path,) = re.findall(r'<path class="hatch" d="([^"]+)"', svg)
    points = [tuple(map(float, point)) for point in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    assert len(points) > 20
    assert all(start - 0.1 <= x <= start + width + 0.1 and top - 0.1 <= y <= bottom + 0.1 for x, y in points)


def test_spans_reach_to_the_edge_of_the_plot_and_no_farther():
    svg = line_chart(replace(SPEC, spans=[Span(-5, 50)]), inline=True)
    left, _, right, *_ = frame(svg)
    (rect,) = ET.fromstring(svg).findall(".//s:rect[@class='undone']", NS)
    assert float(rect.get("x")) == pytest.approx(left, abs=0.1)
    assert float(rect.get("width")) == pytest.approx(right - left, abs=0.1)


def test_of_colliding_labels_a_rollback_keeps_its_own():
    marks = [Marker(1.0, "v2"), Marker(1.0, "×", "refused"), Marker(1.0, "rollback", "alarm"), Marker(2.0, "v3")]
    root = ET.fromstring(line_chart(replace(SPEC, markers=marks)))
    labels = [node.text for node in root.iterfind(".//s:text", NS) if "marker-label" in node.get("class")]
    assert sorted(labels) == ["rollback", "v3"]
    lines = [node.get("class") for node in root.iterfind(".//s:line", NS) if "marker" in node.get("class")]
    assert sorted(lines) == ["marker", "marker", "marker alarm", "marker refused"]


def test_a_bare_line_is_named_without_its_value():
    svg = line_chart(replace(SPEC, series=[Series("as claimed", [0, 1], [0.0, 1.0], bare=True)]))
    assert ">as claimed<" in svg


def test_an_axis_of_shares_has_percents_and_a_given_range():
    spec = replace(SPEC, x_percent=True, percent=True, x_range=(0.0, 1.0), y_range=(0.0, 1.0))
    svg = line_chart(replace(spec, series=[Series("a", [0.0, 1.0], [0.0, 1.0])]), inline=True)
    assert frame(svg)[4:] == [0, 1, 0, 1]
    assert svg.count(">20%<") >= 1


def test_an_axis_of_names_has_each_name_at_its_place():
    svg = line_chart(replace(SPEC, x_names=["never", "<1>", "often"], x_range=(-1.0, 3.0)), inline=True)
    left, right = frame(svg)[0], frame(svg)[2]
    ticks = re.findall(r'<text class="tick" x="([\d.]+)"[^>]*text-anchor="middle"[^>]*>([^<]+)<', svg)
    assert [name for _, name in ticks] == ["never", "&lt;1&gt;", "often"]
    places = [left + (n + 1) / 4 * (right - left) for n in range(3)]
    assert [float(x) for x, _ in ticks] == pytest.approx(places, abs=0.1)


# ---- which charts


def audit_row(step, **fields):
    return EventRow(step, step // 10, "audit", fields_of("audit", **fields))


def one_bin(count, claimed, observed, low=0.6):
    return {"low": low, "high": low + 0.1, "count": count, "claimed": claimed, "observed": observed}


def test_bins_of_several_audits_are_pooled_by_their_counts():
    # 10 pairs at 64% of which 5 won, and 30 at 68% of which 18 won: 40 pairs, 67%, 23 won
    audits = [
        audit_row(10, reliability=[one_bin(10, 0.64, 0.5)]),
        audit_row(20, reliability=[one_bin(30, 0.68, 0.6), one_bin(4, 0.12, 0.25, low=0.1)]),
    ]
    first, second = pooled_bins(audits)
    assert (first.count, first.claimed, first.observed) == (4, 0.12, 0.25)
    assert second.count == 40
    assert (second.claimed, second.observed) == pytest.approx((0.67, 0.575))


def test_empty_bins_are_left_out():
    assert pooled_bins([audit_row(10, reliability=[one_bin(0, None, None)])]) == []


def test_charts_without_data_are_not_drawn(guarded, tmp_path):
    write_lines(tmp_path / "events.jsonl", [of_round(guarded, "audit", 1) | {"reliability": []}])
    assert [chart.title for chart in audit_charts(read_run(tmp_path))] == ["Preferred: policy or reference?"]


@pytest.mark.parametrize(("audits", "dots"), [(1, True), (60, True), (61, False)])
def test_audits_are_dots_while_there_are_few(guarded, audits, dots):
    fields = of_round(guarded, "audit", 1)
    line = rate_line("people", [EventRow(n, n, "audit", fields) for n in range(audits)], "reference", 0)
    assert (len(line.xs), line.dots) == (audits, dots)


def test_a_signal_that_ran_away_and_came_back_has_moved_and_one_that_flickers_has_not():
    flickers = [1.0, 2.0, 3.0] * 20
    away = [1.0 + 0.1 * (n % 2) + (5.0 if 24 <= n < 30 else 0.0) for n in range(60)]
    assert movement(flickers) == pytest.approx(0.0, abs=1e-9)
    assert movement(away) > 10
    # two stretches of three: means 1 and 4, standard deviation within each sqrt(2/3)
    assert movement([0.0, 1.0, 2.0, None, 3.0, 4.0, 5.0]) == pytest.approx(3 / (2 / 3) ** 0.5)
    assert movement([1.0, 1.0]) == 0.0
    assert movement([]) == 0.0
    assert movement([0.0] * 9) == 0.0


def test_signals_come_in_the_order_of_their_movement(tmp_path):
    rows = [
        {"step": s, "round": 1, "signal/kl_step": s % 3, "signal/length": float(s), "signal/from_elsewhere": 0.5}
        for s in range(1, 31)
    ]
    write_lines(tmp_path / "metrics.jsonl", rows)
    charts = signal_charts(read_run(tmp_path))
    assert [chart.title for chart in charts] == ["Length", "From elsewhere", "KL step"]
    assert charts[0].subtitle == "Tokens in an answer (under a grammar those that were free), mean over answers."
    assert charts[1].subtitle == ""


def test_a_run_without_signals_has_no_charts_of_them(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [{"step": 1, "objective/kl": 1.0}])
    assert signal_charts(read_run(tmp_path)) == []
