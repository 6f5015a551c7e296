"""Answers that nobody would call a layout or a curve, and some that only just are none."""

import json

MARKUP = "<script>window.hacked = 1</script>\"'><svg onload=window.hacked=1>"


def box(**changes: object) -> dict[str, object]:
    return {"type": "title", "x": 0, "y": 0, "w": 12, "h": 2} | changes


HOSTILE = (
    json.dumps([box(type=MARKUP), box(type="]]>&lt;/svg><image href=//evil.example/x>", y=4)]),
    json.dumps([box(type="\u202egnidaer\u2066\0\x1b[31m \ud800 " + "x" * 500)]),
    json.dumps([box(x=10**400)]),
    json.dumps([box(x=1e308), box(w=-1e308)]),
    json.dumps([box(x=999_999, y=-999_999, w=1_000_000, h=1e-9)]),
    json.dumps([box(w=float("nan"))]),
    json.dumps([box(h=float("inf"))]),
    '[{"x": 1e999, "y": 0, "w": 1, "h": 1}]',
    '[{"x": ' + "9" * 6000 + ', "y": 0, "w": 1, "h": 1}]',
    json.dumps([box(x=n % 12, y=n % 16, w=1, h=1) for n in range(10_000)]),
    json.dumps([box(type=f"t{n}", x=n % 7, w=9, h=9) for n in range(100)]),
    "[" * 20_000,
    "[" * 20_000 + "]" * 20_000,
    '{"boxes": ' * 10_000,
    json.dumps([box(type="a" * 1_000_000)]),
    json.dumps({"grid": [1e-300, 1e300], "boxes": [box()]}),
    json.dumps({"grid": [0, 0], "boxes": [box()]}),
    json.dumps({"grid": [1_000_000, 900_000], "boxes": [box(w=10**6)]}),
    json.dumps({"x": ["<b>", None], "p": [0, 1]}),
    json.dumps({"p": [0.5, MARKUP]}),
    json.dumps({"p": [float("nan")] * 3}),
    json.dumps({"p": [0.1] * 10_000}),
    json.dumps({"x": [0, 0], "p": [0, 1]}),
    json.dumps({"x": [0, 5e-324], "p": [0, 1]}),
    json.dumps({"x": [-1e6, 1e6], "p": [1e-300, 1], "<b>": [MARKUP]}),
    json.dumps({"p": [n % 2 for n in range(200)]}),
    json.dumps({"p": [0.9, 0.1]}),
    "null", "[]", "{}", "true", "", " ", '"<b>"', "[[[]]]", "[null]", "\x00", "NaN",
)  # fmt: skip
