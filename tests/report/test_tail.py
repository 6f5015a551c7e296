"""Following a run: what is new is read, what was cut is read anew, and the result is that of reading it all at once."""

import json

from rows import event

from holdfast.report.data import RunFollower, read_run


def row(step, **values):
    return json.dumps({"step": step, "round": 1, **values}) + "\n"


def happened(step, kind):
    return json.dumps(event(step, 1, kind)) + "\n"


def same(follower, path):
    one, other = follower.read(), read_run(path)
    assert [list(m) for m in (one.events, one.samples, one.gold)] == [
        list(m) for m in (other.events, other.samples, other.gold)
    ]
    assert [one.metrics.steps, one.metrics.names] == [other.metrics.steps, other.metrics.names]
    assert all(one.metric(name) == other.metric(name) for name in one.metrics.names)
    return one


def test_what_is_new_is_added(tmp_path):
    metrics, events = tmp_path / "metrics.jsonl", tmp_path / "events.jsonl"
    metrics.write_text(row(1, x=1.0))
    follower = RunFollower(tmp_path)
    first = same(follower, tmp_path)
    with metrics.open("a") as file:
        file.write(row(2, x=2.0))
    events.write_text(happened(2, "refresh"))
    assert len(same(follower, tmp_path).metrics) == 2
    assert len(first.metrics) == 1  # who looked before sees what they saw


def test_half_a_line_waits_for_its_other_half(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(row(1, x=1.0) + row(2, x=2.0)[:9])
    follower = RunFollower(tmp_path)
    assert len(follower.read().metrics) == 1
    metrics.write_text(row(1, x=1.0) + row(2, x=2.0))
    assert len(same(follower, tmp_path).metrics) == 2


def test_a_file_that_was_cut_and_written_on_is_read_anew(tmp_path):
    metrics, events = tmp_path / "metrics.jsonl", tmp_path / "events.jsonl"
    metrics.write_text("".join(row(n, x=float(n)) for n in range(1, 9)))
    events.write_text(happened(8, "verdict") + happened(8, "audit"))
    follower = RunFollower(tmp_path)
    follower.read()
    metrics.write_text("".join(row(n, x=float(n)) for n in range(1, 4)) + "".join(row(n, x=-1.0) for n in range(4, 12)))
    events.write_text(happened(8, "verdict") + happened(9, "rollback") + happened(9, "audit"))
    data = same(follower, tmp_path)
    assert data.known("x")[-1] == (11, -1.0)
    assert [row.kind for row in data.events] == ["verdict", "rollback", "audit"]
