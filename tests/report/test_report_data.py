import json

import pytest
from rows import copy_of, event, write_lines

import small_run
from holdfast.errors import HoldfastError
from holdfast.report.data import read_run


def test_a_whole_run_is_read(unguarded, tmp_path):
    rows = small_run.rows_of(copy_of(unguarded, tmp_path) / "metrics.jsonl")
    rows[0]["val/explained_variance"] = None
    write_lines(tmp_path / "metrics.jsonl", rows)
    run = read_run(tmp_path)
    assert run.name == f"{tmp_path.name} (begun as {small_run.NAME})"
    assert list(run.metrics.steps) == [1, 2, 3, 4, 5, 6]
    assert list(run.metrics.rounds) == [1, 1, 2, 2, 3, 3]
    assert run.metric("val/explained_variance")[1][0] is None
    assert {name: run.metric(name)[1][1] for name in run.metrics.names} == {
        name: value for name, value in rows[1].items() if name not in ("step", "round")
    }
    assert [step for step, _ in run.gold_of("heldout")] == [0, 2, 4, 6]
    assert set(run.sample_gold()) == {(step, index) for step in (0, 2, 4, 6) for index in range(4)}
    assert run.timings[0].seconds.keys() >= {"sample", "score", "update"}
    assert run.notes == ()


def test_a_torn_last_line_is_left_out_without_a_word(tmp_path):
    whole = '{"step": 1, "objective/kl": 0.5}\n'
    for cut in range(1, len(whole) - 2):
        (tmp_path / "metrics.jsonl").write_text(whole.replace("1", "0", 1) + whole[:cut])
        run = read_run(tmp_path)
        assert list(run.metrics.steps) == [0]
        assert run.notes == ()


IMPOSSIBLE = {
    "version": 1, "labels": 9, "loss": 0.5, "trained_on": 8, "train_accuracy": 1e308,
    "holdout_accuracy": 0.5, "held_out": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "row"),
    [
        ("timings.jsonl", {"step": 1, "round": 1, "sample": "soon"}),
        ("events.jsonl", {"step": 1, "round": 1, "event": "step_skipped", "reason": 7}),
        ("events.jsonl", {"step": 1, "round": 1, "event": "ensemble_trained"} | IMPOSSIBLE),
        (
            "samples.jsonl",
            {"step": 1, "round": 1, "prompt_index": 0, "prompt": "q", "response": None, "finished": True},
        ),
    ],
)
def test_a_row_with_a_value_of_another_kind_is_left_out_and_said(file, row, tmp_path):
    write_lines(tmp_path / file, [row])
    (tmp_path / "metrics.jsonl").touch()
    assert read_run(tmp_path).notes == (f"1 line of {file} could not be read and was left out.",)


def test_a_broken_line_in_the_middle_is_left_out_and_said(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n{"st\xff\n[1]\n{"step": "x"}\n{"step": 1}\n')
    run = read_run(tmp_path)
    assert list(run.metrics.steps) == [0, 1]
    assert run.notes == ("3 lines of metrics.jsonl could not be read and were left out.",)


def test_values_that_are_no_numbers_are_gaps(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "a": null, "b": NaN, "c": Infinity, "d": "1", "e": true, "f": 1e999, "g": 2, "h": '
        + "9" * 400
        + "}\n"
    )
    run = read_run(tmp_path)
    assert run.metrics.names == ["g"]
    assert run.known("g") == [(0, 2.0)]


def test_steps_that_were_done_again_replace_the_ones_before(tmp_path):
    # steps 3 and 4 are taken back by the second 2, as after a resume from a checkpoint at step 1
    rows = [{"step": s, "objective/kl": k} for s, k in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (2, 9.0))]
    write_lines(tmp_path / "metrics.jsonl", rows)
    run = read_run(tmp_path)
    assert run.known("objective/kl") == [(1, 1.0), (2, 9.0)]
    assert "3 steps were taken back" in run.notes[0]


def test_gold_splits_and_samples_do_not_take_each_other_back(tmp_path):
    rows = [
        {"step": 5, "split": "rollout", "gold": 0.5},
        {"step": 0, "split": "heldout", "gold": 0.1},
        {"step": 5, "split": "samples", "prompt_index": 0, "gold": 0.2},
        {"step": 5, "split": "samples", "prompt_index": 1, "gold": 0.3},
        {"step": 5, "split": "heldout", "gold": None},
    ]
    write_lines(tmp_path / "gold.jsonl", rows)
    run = read_run(tmp_path)
    assert run.gold_of("rollout") == [(5, 0.5)]
    assert run.gold_of("heldout") == [(0, 0.1)]
    assert run.sample_gold() == {(5, 0): 0.2, (5, 1): 0.3}


def test_deeply_nested_json_does_not_end_the_report(tmp_path):
    (tmp_path / "events.jsonl").write_text("[" * 100_000 + "\n" + json.dumps(event(1, 1, "resumed")) + "\n")
    assert [row.kind for row in read_run(tmp_path).events] == ["resumed"]


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(HoldfastError, match="holds no run"):
        read_run(tmp_path)
    with pytest.raises(HoldfastError, match="no run directory"):
        read_run(tmp_path / "missing")


def test_a_metric_that_comes_and_goes_leaves_gaps(tmp_path):
    rows = [
        {"step": 1, "a": 1.0},
        {"step": 2, "b": 5},
        {"step": 3, "a": None, "b": "x"},
        {"step": 4, "a": 4.0, "b": True},
    ]
    write_lines(tmp_path / "metrics.jsonl", rows)
    run = read_run(tmp_path)
    assert run.metric("a") == ([1.0, 2.0, 3.0, 4.0], [1.0, None, None, 4.0])
    assert run.metric("b")[1] == [None, 5.0, None, None]
    assert run.metric("c")[1] == [None] * 4
    assert run.known("a") == [(1, 1.0), (4, 4.0)]
    assert [run.metrics.count(name) for name in "abc"] == [2, 1, 0]


def test_steps_done_again_take_back_every_column(tmp_path):
    rows = [{"step": s, "a": float(s)} for s in (1, 2, 3)]
    rows += [{"step": 2, "b": 20.0}, {"step": 3, "a": 30.0}]
    write_lines(tmp_path / "metrics.jsonl", rows)
    run = read_run(tmp_path)
    assert run.metric("a")[1] == [1.0, None, 30.0]
    assert run.metric("b")[1] == [None, 20.0, None]
    assert any("2 steps were taken back" in note for note in run.notes)


def test_an_event_that_is_not_whole_or_of_no_known_kind_is_left_out_and_said(tmp_path):
    rows = [event(1, 1, "resumed", checkpoint="round-0001"), {"step": 1, "round": 1, "event": "resumed"}]
    rows += [{"step": 1, "round": 1, "event": "from_elsewhere"}, event(2, 1, "run_finished")]
    write_lines(tmp_path / "events.jsonl", rows)
    run = read_run(tmp_path)
    assert [row.kind for row in run.events] == ["resumed", "run_finished"]
    assert run.notes == ("2 lines of events.jsonl could not be read and were left out.",)
