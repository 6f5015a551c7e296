import pytest
from moods import BAD_ROUND
from rows import event, of_round, sample, write_lines

import small_run
from holdfast.preferences.store import PreferenceStore
from holdfast.report.data import RunData, read_run
from holdfast.report.delivered import delivered, kept_gold
from holdfast.report.rounds import MOST_ROWS, ending, round_table, summary
from holdfast.report.samples import before_and_after
from holdfast.report.undone import Undone, undone
from holdfast.report.words import result, status, tiles
from holdfast.statistics import Share
from holdfast.text import figure


def run_of(tmp_path, events, metrics=(), gold=()) -> RunData:
    write_lines(tmp_path / "events.jsonl", events)
    write_lines(tmp_path / "metrics.jsonl", metrics)
    write_lines(tmp_path / "gold.jsonl", gold)
    return read_run(tmp_path)


def rolled_back(number, to=3, start=30, stop=40):
    return event(stop, number, "rollback", to=f"round-{to:04d}", step_from=stop, step_to=start, reason="why")


def verdict(number, level="healthy", sentence="no signal is unusual"):
    return event(10 * number, number, "verdict", level=level, sentence=sentence, evidence={})


# ---- the end in one sentence


def test_a_run_without_a_guard_has_no_ending_and_no_table(unguarded):
    run = read_run(unguarded)
    assert ending(run, status(run)) is None
    assert summary(run) is None
    assert round_table(run).rows == ()
    assert not undone(run).spans


def test_the_run_as_it_ended(guarded):
    run = read_run(guarded)
    end = ending(run, status(run))
    assert end.level == "healthy"
    assert end.headline == "Healthy at the end; 1 rollback, in round 3."
    assert end.evidence.startswith("The labeller preferred the policy to the last good policy in 24 of 24 fresh pairs")


def test_a_run_that_stopped_to_ask(stopped):
    run = read_run(stopped)
    assert status(run) == "stopped"
    end = ending(run, status(run))
    assert end.level == "stopped"
    assert end.headline == (
        "Stopped by the guard in round 3 at the policy of round 1; it asks what to do; 2 rollbacks, in rounds 2 and 3."
    )
    assert end.evidence == f"1 rollback has not cured it: {of_round(stopped, 'verdict', 3)['sentence']}."


def test_a_run_with_a_guard_that_only_advises(advised):
    run = read_run(advised)
    assert ending(run, status(run)).headline == "Hacking at the end; no rollback; the guard only advises."


FINISHED = event(99, 99, "run_finished")


@pytest.mark.parametrize(
    ("events", "level", "headline"),
    [
        ([verdict(1)], "healthy", "Healthy so far, in round 1; no rollback."),
        ([verdict(1), verdict(2, "watch"), FINISHED], "watch", "Watch at the end; no rollback."),
        (
            [verdict(4, "hacking"), rolled_back(4), FINISHED],
            "hacking",
            "Hacking in the last round, which was undone; 1 rollback, in round 4.",
        ),
        (
            [verdict(4), rolled_back(4), FINISHED],
            "healthy",
            "Healthy at the end, which is the policy of round 3, since that was liked better; 1 rollback, in round 4.",
        ),
        (
            [rolled_back(2), rolled_back(4), rolled_back(5), verdict(6), FINISHED],
            "healthy",
            "Healthy at the end; 3 rollbacks, in rounds 2, 4 and 5.",
        ),
        (
            [*(rolled_back(n) for n in range(2, 62)), verdict(62), FINISHED],
            "healthy",
            "Healthy at the end; 60 rollbacks, the last in round 61.",
        ),
        ([event(10, 1, "audit")], "none", "No verdict yet."),
        (
            [event(10, 1, "stopped")],
            "stopped",
            "Stopped by the guard in round 1 at its last good policy; it asks what to do; no rollback.",
        ),
    ],
)
def test_endings(tmp_path, events, level, headline):
    run = run_of(tmp_path, events)
    end = ending(run, status(run))
    assert end.level == level
    assert end.headline == headline


def test_a_resumed_run_is_no_longer_stopped(tmp_path):
    run = run_of(
        tmp_path, [verdict(4, "hacking"), rolled_back(4), event(40, 4, "stopped"), event(40, 4, "resumed"), verdict(5)]
    )
    assert ending(run, status(run)).headline == "Healthy so far, in round 5; 1 rollback, in round 4."


# ---- the table


def test_every_round_says_what_was_seen_and_done(guarded):
    table = round_table(read_run(guarded))
    rows = {row.number: row for row in table.rows}
    assert list(rows) == [1, 2, 3, 4, 5]
    assert table.in_all == 5
    assert [row.level for row in table.rows] == ["healthy", "healthy", "hacking", "healthy", "healthy"]
    assert [number for number, row in rows.items() if row.undone] == [BAD_ROUND]
    assert rows[1].anchor is None
    audit = of_round(guarded, "audit", BAD_ROUND)
    seen = rows[BAD_ROUND].anchor
    assert (seen.rate, seen.claimed, seen.overclaimed) == (0.0, audit["claimed_anchor"], True)
    assert not rows[2].reference.overclaimed
    deeds = [deed.words for deed in rows[BAD_ROUND].deeds]
    sentence = of_round(guarded, "verdict", BAD_ROUND)["sentence"]
    back = of_round(guarded, "rollback", BAD_ROUND)
    grown, tightened, _ = [row for row in small_run.events_of(guarded, "action") if row["round"] == BAD_ROUND]
    before, after = tightened["before"], tightened["after"]
    assert deeds[-5:] == [
        sentence[:1].upper() + sentence[1:] + ".",
        "12 hacked answers labelled beside good ones "
        f"(labels {grown['before']['labels']} to {grown['after']['labels']}).",
        f"Rolled back to the policy of round 2, 2 steps and {back['kl_undone']:.3g} nats undone.",
        f"The policy is held closer to the reference (beta {figure(before['beta'])} to {figure(after['beta'])}, "
        f"kl target {figure(before['kl_target'])} to {figure(after['kl_target'])}).",
        "The ensemble is refreshed in the next round.",
    ]
    # The sentence that four actions quote as their reason stands once.
    assert sum(words.lower().count("24 of 24") for words in deeds) == 1
    refused = of_round(guarded, "refresh", 4)
    assert rows[4].deeds[0].weight == "alarm"
    assert rows[4].deeds[0].words == f"Refresh refused by the gate: {refused['gate_reason']}."
    passed = of_round(guarded, "refresh", 5)
    assert [deed.words for deed in rows[5].deeds][:2] == [
        f"Refreshed to v{passed['version']}: {passed['reason']}.",
        f"Gate: {passed['gate_reason']}.",
    ]


def test_a_reason_that_is_not_the_verdicts_is_said(tmp_path):
    (row,) = round_table(run_of(tmp_path, [verdict(4, "hacking"), rolled_back(4)])).rows
    assert row.deeds[-1].words == "Rolled back to the policy of round 3, 10 steps undone: why."


def test_the_table_of_a_long_run_has_its_ends_and_what_happened(tmp_path):
    events = [verdict(number) for number in range(1, 501)]
    events += [verdict(200, "watch"), rolled_back(300, 299, 2990, 3000)]
    table = round_table(run_of(tmp_path, sorted(events, key=lambda row: row["round"])))
    numbers = [row.number for row in table.rows]
    assert table.in_all == 500
    assert len(numbers) == MOST_ROWS
    assert numbers == sorted(numbers)
    assert {1, 200, 300, 491, 500} <= set(numbers)


def test_many_rollbacks_leave_the_newest_rounds_in_the_table(tmp_path):
    events = [e for n in range(1, 301) for e in (verdict(n, "hacking"), rolled_back(n, 0, 0, 10 * n))]
    run = run_of(tmp_path, events)
    numbers = [row.number for row in round_table(run).rows]
    assert numbers == [1, *range(300 - MOST_ROWS + 2, 301)]
    assert undone(run).spans == ((0, 3000),)


# ---- what was undone


def test_stretches_that_touch_are_one():
    gone = Undone(((30, 40), (60, 70)))
    assert [step for step in range(80) if gone.covers(step)] == [*range(31, 41), *range(61, 71)]
    assert not Undone().covers(1)


def test_rollbacks_that_go_farther_back_take_more(tmp_path):
    # 30 -> 40 undone; then from 60 back to 20; 70 -> 80 later
    events = [rolled_back(4), rolled_back(6, 2, 20, 60), rolled_back(8, 7, 70, 80)]
    assert undone(run_of(tmp_path, events)).spans == ((20, 60), (70, 80))


def test_words_speak_of_the_line_that_was_kept(tmp_path):
    metrics = [
        {"step": s, "round": 1 + s // 11, "objective/scores": s / 10, "objective/kl": s / 10} for s in range(1, 21)
    ]
    gold = [{"step": s, "split": "heldout", "gold": g} for s, g in ((0, 0.3), (10, 0.6), (20, 0.1), (20, 0.6))]
    run = run_of(tmp_path, [rolled_back(2, 1, 10, 20)], metrics, gold)
    assert result(run) == (
        "The run stands on the policy of step 10, within round 1. Proxy rose from 0.10 to 1.00; gold on held-out "
        "prompts rose from 0.30 to 0.60. No refresh. KL to reference ended at 1.00 nats."
    )
    assert kept_gold(run, "heldout") == [(0, 0.3), (10, 0.6), (20, 0.6)]
    assert [(row.step, row.gold) for row in run.gold_undone] == [(20, 0.1)]
    (steps,) = [tile for tile in tiles(run) if tile.label == "Last step"]
    assert (steps.value, steps.note) == ("20", "2 rounds, 10 steps undone")


def test_gold_that_was_not_measured_again_goes_with_its_steps(tmp_path):
    gold = [{"step": s, "split": "heldout", "gold": g} for s, g in ((0, 0.3), (10, 0.6), (20, 0.1))]
    run = run_of(tmp_path, [rolled_back(2, 1, 10, 20)], (), gold)
    assert kept_gold(run, "heldout") == [(0, 0.3), (10, 0.6)]


def test_a_run_of_which_nothing_was_kept_says_so(tmp_path):
    metrics = [{"step": s, "round": 1, "objective/scores": 1.0} for s in range(1, 11)]
    run = run_of(tmp_path, [rolled_back(1, 0, 0, 10)], metrics)
    assert result(run) == "The run stands on the reference. Proxy was 1.00 before the first step. No refresh."


def test_samples_begin_with_the_last_answers_that_were_kept(tmp_path):
    write_lines(
        tmp_path / "samples.jsonl",
        [sample(s, 0, "p", f"at {s}", s // 10) for s in (0, 10, 20)],
    )
    shown = before_and_after(run_of(tmp_path, [rolled_back(2, 1, 10, 20)]))
    assert shown.shown == 0
    assert [moment.label for moment in shown.moments] == ["step 10, after round 1", "step 20, after round 2 (undone)"]


# ---- refreshes, figures, events


def test_refused_refreshes_do_not_count_and_versions_may_come_again_after_a_rollback(tmp_path):
    def refresh(step, version, accepted=True):
        return event(step, step // 10 + 1, "refresh", version=version, accepted=accepted)

    run = run_of(
        tmp_path, [refresh(10, 2), refresh(20, 3, False), refresh(30, 3), rolled_back(4, 1, 10), refresh(40, 3)]
    )
    assert [row.step for row in run.refreshes] == [10, 30, 40]
    assert [row.step for row in run.refused] == [20]
    assert "3 refreshes, 1 refused by the gate." in result(
        run_of(tmp_path, [event(0, 0, "run_finished"), *guard_refreshes(refresh)], [{"step": 1, "round": 1}])
    )


def test_what_stands_again_is_not_undone_and_dropped_steps_are(tmp_path):
    def back(number, to, start, stop, *spans):
        return rolled_back(number, to, start, stop) | {"undone": [list(span) for span in spans]}

    # Steps 7 to 9 were dropped, so the ledger knows nothing of them, then or later.
    dropped, later = back(2, 1, 6, 9), back(4, 2, 12, 15, (12, 15))
    assert undone(run_of(tmp_path, [dropped, later])).spans == ((6, 9), (12, 15))
    # To 10 and then to 20 after all: the ledger has the last word on the steps between.
    assert undone(run_of(tmp_path, [back(3, 1, 10, 24, (10, 24)), back(4, 2, 20, 30, (20, 30))])).spans == ((20, 30),)
    # A run of before told nothing of all of them.
    assert undone(run_of(tmp_path, [rolled_back(3, 1, 10, 20), rolled_back(4, 2, 15, 30)])).spans == ((10, 30),)


def guard_refreshes(refresh):
    return [refresh(10, 2), refresh(20, 3), refresh(30, 4), refresh(40, 5, False)]


def test_the_figures_of_a_guarded_run(guarded):
    run = read_run(guarded)
    found, policy = summary(run), delivered(run)
    audits = small_run.events_of(guarded, "audit")
    assert (found.verdict, found.rollbacks) == ("healthy", 1)
    assert (policy.preferred_to_reference.rate, policy.preferred_to_reference.pairs) == (1.0, 12)
    assert policy.preferred_to_reference.claimed == audits[-1]["claimed_reference"]
    assert found.audit_labels == sum(row["labels"] for row in audits)
    assert found.audit_labels_left == int(small_run.SETTINGS["audit.budget"]) - found.audit_labels
    with PreferenceStore.open(f"sqlite:///{guarded / 'run.db'}") as store:
        assert found.labels == store.counts().labels


def test_a_rate_is_of_the_last_audit_that_has_one(guarded, tmp_path):
    events = [of_round(guarded, "audit", 1), event(20, 2, "audit", labels_left=0, labels=0)]
    run = run_of(tmp_path, events)
    assert delivered(run).preferred_to_reference.rate == 1.0
    assert delivered(run).preferred_to_last_good is None
    assert summary(run).audit_labels_left == 0


def test_pairs_asked_about_for_the_choice_at_the_end_are_audit_labels_too(tmp_path):
    events = [
        event(10, 1, "audit", labels=72, labels_left=40),
        event(10, 1, "choice", labels=30, labels_left=10, back=False, sentence="people like both alike"),
    ]
    found = summary(run_of(tmp_path, events))
    assert (found.audit_labels, found.audit_labels_left) == (102, 10)


def test_what_decided_at_the_end_is_what_people_said_in_all_pairs(tmp_path):
    events = [
        event(10, 1, "verdict", level="healthy", sentence="people preferred the last good policy in 83 of 144"),
        event(10, 1, "choice", labels=288, back=False, sentence="people preferred the policy in 218 of 432"),
    ]
    run = run_of(tmp_path, events)
    assert ending(run, status(run)).evidence == "People preferred the policy in 218 of 432."
    later = run_of(tmp_path, [*events, event(20, 2, "verdict", level="healthy", sentence="all is well")])
    assert ending(later, status(later)).evidence == "All is well."


def test_tiles_of_a_guarded_run(guarded):
    shown = {tile.label: (tile.value, tile.note) for tile in tiles(read_run(guarded))}
    assert list(shown)[:5] == [
        "Verdict",
        "Delivers",
        "Preferred to the reference",
        "Preferred to the last good",
        "Audit labels",
    ]
    assert shown["Delivers"] == ("round 5", "the mean of 2 policies up to round 5, step 10")
    assert shown["Verdict"] == ("healthy", "1 rollback")
    claimed = small_run.events_of(guarded, "audit")[-1]["claimed_reference"]
    note = f"76% to 100% in 12 pairs, by the labeller; ensemble claims {claimed:.0%}"
    assert shown["Preferred to the reference"] == ("100%", note)
    gated = [row["accepted"] for row in small_run.events_of(guarded, "refresh")]
    assert shown["Refreshes"][0] == str(sum(gated))
    refused = len(gated) - sum(gated)
    assert shown["Refreshes"][1].startswith(f"{refused} refused by the gate; ensemble learnt from ")


def test_events_of_the_guard_in_words(guarded):
    lines = [line.text for line in read_run(guarded).events]
    audit = of_round(guarded, "audit", BAD_ROUND)
    sentence = of_round(guarded, "verdict", BAD_ROUND)["sentence"]
    back = of_round(guarded, "rollback", BAD_ROUND)
    begins = f"Audit of {audit['labels']} labels: the labeller: 0 of 12 pairs (0% to 24%) vs reference"
    (told,) = [line for line in lines if line.startswith(begins)]
    assert "0 of 24 pairs (0% to 14%) vs last good" in told
    right = Share(audit["accuracy"], 36).of("pair")
    assert told.endswith(f"ensemble right on {right}; ECE {audit['ece']:.1%}; 1,080 labels left.")
    assert f"Verdict hacking: {sentence}." in lines
    assert (
        f"Rolled back to the policy of round 2 and ensemble v{back['ensemble_version']}, 2 steps and "
        f"{back['kl_undone']:.3g} nats undone: {sentence}." in lines
    )
    for row in small_run.events_of(guarded, "refresh"):
        words = f"Gate: {row['gate_reason']}" if row["accepted"] else f"refused by the gate: {row['gate_reason']}"
        assert any(words in line for line in lines)


def test_what_weighs_in_the_list_of_events(tmp_path):
    rows = [verdict(1), verdict(2, "watch"), verdict(3, "hacking"), rolled_back(3), event(1, 1, "audit")]
    rows += [event(1, 1, "refresh", accepted=False), event(1, 1, "refresh", accepted=True), event(1, 1, "stopped")]
    assert [row.weight for row in run_of(tmp_path, rows).events] == [
        *("minor", "main", "alarm", "alarm", "minor", "alarm", "main", "alarm")
    ]


UNMEASURED = {"before": {"newest": None}, "after": {"newest": None}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"accepted": False, "version": 3, "reason": "worse"} | UNMEASURED, "Gate refused v3: worse."),
        (
            {
                "version": 3,
                "before": {"newest": {"accuracy": 0.65, "pairs": 20}},
                "after": {"newest": {"accuracy": 0.7, "pairs": 20}},
            },
            "Gate accepted v3 (before: right on 13 of 20 newest labels (43% to 82%), after: on 14 of 20 newest labels "
            "(48% to 85%)).",
        ),
    ],
)
def test_what_the_gate_did_in_words(tmp_path, fields, expected):
    (line,) = run_of(tmp_path, [event(1, 1, "gate", **fields)]).events
    assert (line.text, line.weight) == (expected, "minor")
