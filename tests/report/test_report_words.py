import pytest
from rows import event, write_lines

from holdfast.report.data import RunData, read_run
from holdfast.report.words import duration, result, status, tiles


def make_run(tmp_path, *, metrics=(), events=(), gold=()) -> RunData:
    write_lines(tmp_path / "metrics.jsonl", metrics)
    write_lines(tmp_path / "events.jsonl", events)
    write_lines(tmp_path / "gold.jsonl", gold)
    return read_run(tmp_path)


def curve(name, values):
    return [{"step": step, "round": 1, name: value} for step, value in enumerate(values)]


def gold(values, split="heldout"):
    return [{"step": step, "split": split, "gold": value} for step, value in enumerate(values)]


def test_the_result_of_a_good_run(tmp_path):
    metrics = [
        {"step": 0, "objective/scores": 0.0, "objective/kl": 0.0, "control/kl_target": 8},
        {"step": 100, "objective/scores": 1.84, "objective/kl": 6.1, "control/kl_target": 8},
    ]
    truth = [{"step": s, "split": "heldout", "gold": g} for s, g in ((0, 0.31), (84, 0.74), (100, 0.72))]
    events = [event(s, 1, "refresh", version=v) for s, v in ((20, 2), (40, 3), (60, 4))]
    assert result(make_run(tmp_path, metrics=metrics, events=events, gold=truth)) == (
        "Proxy rose from 0.00 to 1.84; gold on held-out prompts rose from 0.31 to 0.72 "
        "(peak 0.74 at step 84). 3 refreshes. KL to reference ended at 6.10 nats of a budget of 8."
    )


def test_a_run_that_ends_with_a_mean_of_policies_is_told_by_the_mean_s_figures_unless_it_was_taken_back(tmp_path):
    metrics = [{"step": step, "objective/scores": step, "objective/kl": 2.0 * step} for step in (0, 1, 2)]
    mean = event(2, 1, "averaged", policies=3, kl=3.5, score=2.25)
    ended = result(make_run(tmp_path, metrics=metrics, events=[mean]))
    assert "Proxy rose from 0.00 to 2.25" in ended
    assert "KL to reference ended at 3.50 nats" in ended
    gone = event(2, 1, "rollback", step_from=2, step_to=1)
    assert "KL to reference ended at 2.00 nats" in result(make_run(tmp_path, metrics=metrics, events=[mean, gone]))


def test_a_given_reward_that_was_changed_on_the_way_is_two_rewards(tmp_path):
    changes = {"rung": "discount", "before": {"share": 1.0}, "after": {"share": 0.25}}
    less = [event(0, 0, "standardised", reward="mine.py:score"), event(2, 1, "action", **changes, changed=True)]
    steps, truth = curve("objective/scores", [0, 1, 2, 3]), gold([0.1, 0.6, 0.3, 0.2])
    told = result(make_run(tmp_path, metrics=steps, events=less, gold=truth))
    assert "Reward was 0.00 at first and is 3.00 as it has been counted since round 1: two rewards" in told
    assert "over-optimised" not in told
    declined = event(2, 1, "action", **changes, changed=False)
    told = result(make_run(tmp_path, metrics=steps, events=[less[0], declined], gold=truth))
    assert "Reward rose from 0.00 to 3.00" in told
    assert "gold fell by 0.40 while the proxy rose by 2.00" in told


def test_gold_that_falls_while_the_proxy_rises_is_named(tmp_path):
    # gold: peak 0.6 at step 2, end 0.2, so a fall of 0.4; the proxy rose from 1.0 at step 2 to 2.5
    run = make_run(
        tmp_path,
        metrics=curve("objective/scores", [0, 0.5, 1.0, 1.5, 2.5]),
        gold=gold([0.3, 0.5, 0.6, 0.4, 0.2]),
    )
    assert "After its peak gold fell by 0.40 while the proxy rose by 1.50" in result(run)


def test_a_small_dip_after_the_peak_is_not_called_over_optimisation(tmp_path):
    run = make_run(tmp_path, metrics=curve("objective/scores", [0, 1, 2, 3]), gold=gold([0.1, 0.4, 0.62, 0.6]))
    assert "over-optimised" not in result(run)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([], "No step recorded yet."),
        ([{"step": 0}], "1 step recorded, none with a score. No refresh."),
        ([{"step": 0, "objective/scores": 0.2}], "Proxy was 0.20 before the first step. No refresh."),
        (curve("objective/scores", [0.5, 0.7, 0.501]), "Proxy stayed at 0.50. No refresh."),
        (curve("objective/scores", [0.5, -0.5]), "Proxy fell from 0.50 to −0.50. No refresh."),
        (
            [{"step": 0, "objective/kl": 9.5, "control/kl_target": 8}],
            "1 step recorded, none with a score. No refresh. KL to reference was 9.50 nats, over its budget of 8.",
        ),
        (
            [{"step": 0, "objective/kl": 0.67, "control/kl_target": 1.5092}],
            "1 step recorded, none with a score. No refresh. KL to reference was 0.67 nats of a budget of 1.51.",
        ),
        (
            [{"step": 0, "objective/kl": 0.01, "control/kl_target": 0.5}],
            "1 step recorded, none with a score. No refresh. KL to reference was 0.010 nats of a budget of 0.5.",
        ),
    ],
)
def test_short_runs_have_a_sensible_sentence(tmp_path, metrics, expected):
    assert result(make_run(tmp_path, metrics=metrics)) == expected


def test_gold_of_the_rollouts_stands_in_for_held_out_gold(tmp_path):
    run = make_run(tmp_path, gold=gold([0.1, 0.2], "rollout"))
    assert result(run) == "Gold on rollouts rose from 0.10 to 0.20."


def test_a_refresh_written_twice_by_a_resume_counts_once(tmp_path):
    events = [event(s, 1, "refresh", version=v) for s, v in ((20, 2), (40, 3), (38, 3))]
    run = make_run(tmp_path, events=events)
    assert [row.step for row in run.refreshes] == [20, 38]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], "not finished"),
        (["sft_finished", "round_finished"], "not finished"),
        (["sft_finished", "resumed", "run_finished"], "finished"),
        (["sft_finished", "stopped"], "stopped"),
        (["sft_finished", "stopped", "resumed"], "not finished"),
    ],
)
def test_status_follows_the_last_word(tmp_path, kinds, expected):
    assert status(make_run(tmp_path, events=[event(1, 1, kind) for kind in kinds])) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "event": "refresh",
                "version": 2,
                "reason": "spread",
                "labels": 520,
                "trained_on": 460,
                "train_accuracy": 0.66,
                "holdout_accuracy": 0.75,
                "held_out": 60,
            },
            "Reward ensemble refreshed to v2 (spread) from 520 labels, right on 66% of 460 training comparisons, right "
            "on 45 of 60 held-out comparisons (63% to 84%).",
        ),
        (
            {"event": "ensemble_trained", "version": 1, "labels": 300, "trained_on": 300, "train_accuracy": 0.83},
            "Reward ensemble v1 trained from 300 labels, right on 83% of 300 training comparisons.",
        ),
        (
            {"event": "labels_collected", "comparisons": 40, "labels": 1},
            "1 label collected on 40 comparisons.",
        ),
        ({"event": "refresh_skipped", "reason": "too few labels"}, "No refresh this time (too few labels)."),
        ({"event": "kl_limit", "kl": 0.44, "limit": 0.4}, "KL reached 0.44 nats, over the limit of 0.4."),
        ({"event": "step_skipped", "reason": "loss was NaN"}, "Step skipped (loss was NaN)."),
        ({"event": "lr_decayed", "lr": 1.4e-5}, "Learning rate lowered to 1.4e-5."),
        (
            {"event": "averaged", "policies": 4, "kl": 3.25},
            "The policy is now the mean of 4 policies of the last rounds, 3.25 nats from the reference.",
        ),
        (
            {"event": "choice", "labels": 288, "back": False, "sentence": "people preferred both alike"},
            "288 more pairs were asked about before the run ends with an earlier policy, and the present one stays: "
            "people preferred both alike.",
        ),
        (
            {"event": "choice", "labels": 48, "back": True},
            "48 more pairs were asked about before the run ends with an earlier policy.",
        ),
        ({"event": "sft_finished", "loss": None}, "Supervised fine-tuning finished with a loss of unknown."),
        (
            {"event": "second_opinions_missing", "comparisons": 3, "reason": "the endpoint cannot be reached."},
            "No second opinions of the judge on 3 comparisons: the endpoint cannot be reached.",
        ),
        ({"event": "round_finished", "kl": 1.5, "kl_round": None}, "Round finished (kl 1.50, kl round unknown)."),
    ],
)
def test_events_are_said_in_words(tmp_path, fields, expected):
    kind = fields.pop("event")
    (row,) = make_run(tmp_path, events=[event(1200, 3, kind, **fields)]).events
    assert row.text == expected
    assert row.when == "step 1,200, round 3"


def test_tiles_show_only_what_was_recorded(tmp_path):
    run = make_run(tmp_path, metrics=curve("objective/kl", [0.0, 2.0]))
    assert [(tile.label, tile.value) for tile in tiles(run)] == [
        ("Last step", "1"),
        ("KL to reference", "2.00"),
        ("Refreshes", "0"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "250 ms"), (3.7, "3.7 s"), (443, "7 min 23 s"), (7260, "2 h 1 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
