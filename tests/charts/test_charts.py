import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from holdfast.charts.chart import Band, ChartSpec, Marker, Series, grid, line_chart

NS = {"s": "http://www.w3.org/2000/svg"}


def draw(spec: ChartSpec) -> ET.Element:
    return ET.fromstring(line_chart(spec))


def texts(root: ET.Element, kind: str) -> list[str]:
    return [node.text or "" for node in root.iterfind(f".//s:text[@class='{kind}']", NS)]


def label_places(root: ET.Element) -> list[float]:
    return sorted(float(node.get("y", "nan")) for node in root.iterfind(".//s:text[@class='label']", NS))


SPEC = ChartSpec("Proxy", "How to read it.", "score", [Series("proxy", [0, 1, 2], [0.0, 1.0, 0.5])])


def test_a_chart_names_and_describes_itself():
    root = draw(replace(SPEC, markers=[Marker(1, "v2")], limit=Series("budget", [0], [8.0])))
    assert root.findtext("s:title", namespaces=NS) == "Proxy"
    description = root.findtext("s:desc", namespaces=NS) or ""
    assert "proxy: 3 points, from 0.00 to 0.50, lowest 0.00, highest 1.00." in description
    named = {root.find("s:title", NS).get("id"), root.find("s:desc", NS).get("id")}
    assert set(root.get("aria-labelledby").split()) == named
    assert texts(root, "title") == ["Proxy"]
    assert texts(root, "subtitle") == ["How to read it."]
    assert texts(root, "unit") == ["score", "step"]
    assert texts(root, "marker-label") == ["v2"]
    assert texts(root, "label") == ["proxy 0.50", "budget 8"]


def test_points_land_where_the_scales_say():
    # from zero and up to 1 the y scale is [0, 1.06]; height h of the plot: y = bottom - value / 1.06 * h
    svg = line_chart(replace(SPEC, from_zero=True), inline=True)
    left, top, right, bottom, x_low, x_high, y_low, y_high = map(
        float, re.search(r'data-frame="([^"]+)"', svg)[1].split()
    )
    assert (x_low, x_high, y_low) == (0, 2, 0)
    assert y_high == pytest.approx(1.06)
    path = re.search(r'<path class="line c0" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', svg)
    got = [float(number) for number in path.groups()]
    height = bottom - top
    want = [left, bottom, (left + right) / 2, bottom - height / 1.06, right, bottom - 0.5 * height / 1.06]
    assert got == pytest.approx(want, abs=0.06)


def test_powers_of_ten_are_evenly_spaced_on_logarithmic_axes():
    series = [Series("a", [1e3, 1e4, 1e6], [0.01, 0.1, 10.0])]
    svg = line_chart(replace(SPEC, series=series, log_x=True, log_y=True))
    path = re.search(r'<path class="line c0" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', svg)
    x1, y1, x2, y2, x3, y3 = (float(number) for number in path.groups())
    assert x3 - x2 == pytest.approx(2 * (x2 - x1), abs=0.2)
    assert y2 - y3 == pytest.approx(2 * (y1 - y2), abs=0.2)
    for label in (">0.01<", ">0.1<", ">1<", ">10<", ">1k<", ">10k<", ">1M<"):
        assert label in svg


def test_the_pen_is_lifted_over_gaps():
    spec = replace(SPEC, series=[Series("a", range(5), [1.0, 2.0, None, float("nan"), 3.0])])
    path = re.search(r'<path class="line c0" d="([^"]+)"', line_chart(spec))[1]
    assert path.count("M") == 2
    assert path.count("L") == 1


def test_values_that_stand_apart_are_dots_that_no_line_joins():
    svg = line_chart(replace(SPEC, series=[Series("", range(3), [1.0, 3.0, 2.0], bare=True, apart=True)]))
    assert svg.count('class="dot') == 3
    assert '<path class="line' not in svg
    assert '<line class="line' not in svg, "and none that has no name is named"


def test_a_smoothed_line_has_its_raw_values_faint_under_it():
    spec = replace(SPEC, series=[Series("a", range(9), [0.0, 1.0] * 4 + [0.0], smooth=3)])
    svg = line_chart(spec)
    assert svg.index('class="line raw c0"') < svg.index('class="line c0"')


def test_labels_of_lines_that_end_together_do_not_overlap():
    series = [Series(f"method {k}", [0, 1], [0.0, 1.0 + 0.001 * k]) for k in range(5)]
    places = label_places(draw(replace(SPEC, series=series)))
    assert len(places) == 5
    assert all(b - a >= 14 for a, b in itertools.pairwise(places))


def test_lines_differ_by_dash_and_not_by_colour_alone():
    svg = line_chart(replace(SPEC, series=[Series(n, [0, 1], [0.0, 1.0]) for n in "abc"]))
    looks = re.findall(r'<path class="line c\d"( stroke-dasharray="[^"]+")? d=', svg)
    assert len(set(looks)) == 3


def test_a_budget_that_changes_is_drawn_as_steps():
    spec = replace(SPEC, limit=Series("budget", [0, 1, 2], [6.0, 8.0, 8.0]))
    path = re.search(r'<path class="limit" d="M([^"]+)"', line_chart(spec))[1]
    corners = [tuple(map(float, point.split())) for point in path.split("L")]
    # it goes right at the old height before it goes up
    assert corners[0][1] == corners[1][1]
    assert corners[1][0] == corners[2][0]
    assert corners[2][1] < corners[1][1]


def test_marker_labels_that_would_collide_are_left_out_but_their_lines_are_not():
    spec = replace(SPEC, markers=[Marker(1.0, "v2"), Marker(1.01, "v3"), Marker(9.0, "outside")])
    root = draw(spec)
    assert texts(root, "marker-label") == ["v2"]
    assert len(root.findall(".//s:line[@class='marker']", NS)) == 2


def test_the_band_goes_along_the_top_and_back_along_the_bottom():
    spec = replace(SPEC, band=Band([0, 1, 2], [-0.5, None, 0.0], [0.5, 1.5, 1.0]))
    path = re.search(r'<path class="band f0" d="M([^"]+)Z"', line_chart(spec))[1]
    xs = [float(point.split()[0]) for point in path.split("L")]
    assert xs == [xs[0], xs[1], xs[1], xs[0]]  # the place with an unknown edge is left out


@pytest.mark.parametrize(
    "series",
    [
        [],
        [Series("a", [], [])],
        [Series("a", [0], [None])],
        [Series("a", [0, 1], [float("nan"), float("inf")])],
    ],
)
def test_a_chart_without_values_says_so(series):
    root = draw(replace(SPEC, series=series, markers=[Marker(0, "v2")]))
    assert "No values recorded." in texts(root, "tick")


@pytest.mark.parametrize(
    "ys", [[0.0], [5.0], [-3.0], [2.0, 2.0], [0.0, 0.0], [1e-12, 2e-12], [-1e290, 1e290], [1e8, 5e8]]
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_odd_ranges_draw_finite_numbers(ys, from_zero):
    svg = line_chart(replace(SPEC, series=[Series("a", range(len(ys)), ys, dots=True)], from_zero=from_zero))
    ET.fromstring(svg)
    assert not re.search(r"\b(nan|inf)\b", svg)


def test_text_is_escaped_and_control_characters_are_visible():
    spec = replace(SPEC, title='</title><script>alert("x")</script>', subtitle="a\x00b\u202ec\ud800")
    svg = line_chart(spec)
    assert "<script" not in svg
    root = ET.fromstring(svg)  # a NUL or a lone surrogate would not be XML
    assert texts(root, "title") == ['</title><script>alert("x")</script>']
    assert texts(root, "subtitle") == ["a␀b⟨U+202E⟩c⟨U+D800⟩"]


def test_a_chart_stands_alone_and_an_inline_one_leaves_style_to_the_page():
    alone, inline = line_chart(SPEC), line_chart(SPEC, inline=True)
    assert "prefers-color-scheme: dark" in alone
    assert 'class="card"' in alone
    assert "data-values" not in alone
    assert "<style>" not in inline
    assert 'data-name="proxy" data-values="0 0 0.00;1 1 1.00;2 0.5 0.50"' in inline
    assert not re.search(r"(href|src|url\()", alone)


def test_a_grid_lines_up_its_plots():
    wide_label = replace(SPEC, series=[Series("a much longer name", [0, 1], [0.0, 1.0])])
    tall_header = replace(SPEC, subtitle="many words " * 20)
    root = ET.fromstring(grid([SPEC, tall_header, wide_label], columns=2))
    panels = root.findall("s:g", NS)
    moves = [panel.get("transform") for panel in panels]
    assert moves == ["translate(0 0)", "translate(430 0)", "translate(0 270)"]

    def top(panel):
        return min(float(line.get("y1")) for line in panel.iterfind("s:line[@class='grid']", NS))

    def right(panel):
        return {line.get("x2") for line in panel.iterfind("s:line[@class='grid']", NS)}

    assert top(panels[0]) == pytest.approx(top(panels[1]), abs=0.1)
    words = [float(text.get("y")) for text in panels[1].iterfind("s:text[@class='subtitle']", NS)]
    assert len(words) > 1
    assert top(panels[0]) > max(words)  # the taller header decides, and no plot runs into it
    assert right(panels[0]) == right(panels[2])
    assert root.get("viewBox") == "0 0 860 540"


def test_a_long_run_gives_a_small_drawing():
    long = Series("a", range(100_000), [float(x % 97) for x in range(100_000)])
    assert len(line_chart(replace(SPEC, series=[long]), inline=True)) < 120_000
