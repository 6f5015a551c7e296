"""The rows of the table: a fault, when it counts as survived, and the tests that try it.

A row's tests count what they try (tests/tally.py). Two rows are about rates, which take hundreds of runs to measure:
for these the lab's kept results are quoted beside a check that is made now.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A fault; `tests` are files or test functions below tests/, `kept` results of the lab that are quoted."""

    fault: str
    passes_when: str
    tests: tuple[str, ...]
    kept: tuple[str, ...] = ()


SYSTEM, WEB, PEOPLE, CHECKPOINT = "tests/system", "tests/web", "tests/people", "tests/checkpoint"
KILLS, RUN_FAULTS = f"{SYSTEM}/test_kill_resume.py", f"{SYSTEM}/test_faults.py"
STORE = f"{CHECKPOINT}/test_checkpoint_faults.py"

ROWS: dict[str, Row] = {
    "kills": Row(
        "SIGKILL at named points and at random times",
        "bit-equal to the unbroken run; at most one step redone",
        (
            f"{KILLS}::test_killed_and_resumed_equals_unbroken",
            f"{KILLS}::test_killed_again_and_again",
            f"{KILLS}::test_killed_at_random_times",
            f"{KILLS}::test_at_most_one_step_is_done_again",
            f"{KILLS}::test_nobody_is_asked_twice",
            f"{SYSTEM}/test_rollback.py::test_a_killed_rollback_resumes",
        ),
    ),
    "power": Row(
        "power loss at every write",
        "the newest complete checkpoint loads, a torn one never does",
        (
            f"{STORE}::test_power_loss_at_every_write",
            f"{STORE}::test_left_over_temporary_directories_never_load_and_are_cleared",
            f"{STORE}::test_a_replacement_cut_short_loads_and_gets_its_name_back",
        ),
    ),
    "disk": Row(
        "disk full or I/O error at every write; read-only",
        "the checkpoint before is intact; a sentence; non-zero exit",
        (
            f"{STORE}::test_a_disk_that_fails_at_the_nth_call_for_every_n",
            f"{STORE}::test_a_full_disk_gets_its_space_back",
            f"{STORE}::test_a_read_only_directory",
            f"{RUN_FAULTS}::test_a_disk_that_fails_ends_the_run_in_a_sentence_and_a_good_one_lets_it_go_on",
        ),
    ),
    "damage": Row(
        "checkpoint files flipped, cut, swapped, missing",
        "SHA-256 refuses it; the run falls back and says so",
        (
            f"{STORE}::test_any_damaged_file_is_found_and_the_one_before_is_used",
            f"{STORE}::test_every_bit_of_every_file_is_guarded",
            f"{STORE}::test_two_files_of_one_checkpoint_swapped",
            f"{STORE}::test_two_whole_checkpoints_swapped",
            f"{STORE}::test_every_checkpoint_damaged_is_an_error_that_names_each",
            f"{KILLS}::test_a_damaged_checkpoint_is_passed_over_and_told_of",
            f"{KILLS}::test_a_damaged_last_good_checkpoint_is_replaced_by_the_one_the_run_goes_on_from",
            f"{KILLS}::test_a_run_whose_checkpoints_are_all_damaged_is_left_alone",
        ),
    ),
    "lock": Row(
        "two trainers on one run directory",
        "the lock refuses the second; a dead owner's is taken over",
        (f"{CHECKPOINT}/test_run_lock.py", f"{KILLS}::test_a_run_in_use_is_left_to_its_owner"),
    ),
    "numbers": Row(
        "NaN or Inf in loss, gradient, reward, log-prob",
        "the step is dropped and counted; after k the run rolls back",
        (
            f"{RUN_FAULTS}::test_steps_with_bad_scores_are_dropped_and_too_many_end_the_run",
            f"{RUN_FAULTS}::test_a_guarded_run_goes_back_and_on_with_a_lower_learning_rate",
            f"{RUN_FAULTS}::test_one_bad_step_does_not_move_the_policy",
            f"{RUN_FAULTS}::test_a_learning_rate_that_blows_the_policy_up",
            "tests/algorithms/test_finite.py",
            "tests/reward/test_reward_training.py::test_a_gradient_that_is_not_a_number_never_reaches_the_weights",
        ),
    ),
    "member": Row(
        "a member raises, hangs, is NaN or constant",
        "degraded is recorded and shown; never a silent zero",
        (
            "tests/reward/test_degraded.py",
            f"{RUN_FAULTS}::test_a_reward_member_that_breaks_is_left_out_told_of_and_shown",
            f"{RUN_FAULTS}::test_a_run_whose_steps_were_all_dropped_does_not_pass_for_one_that_worked",
            "tests/reward/test_ensemble.py::test_a_member_that_gives_no_number_is_refused",
        ),
    ),
    "labels": Row(
        "label server killed; duplicate, late, replayed",
        "every acknowledged label is stored exactly once",
        (
            f"{WEB}/test_load.py::test_the_server_is_killed_in_the_middle",
            f"{PEOPLE}/test_label_queue.py",
            f"{WEB}/test_entering.py::test_a_replayed_answer_changes_nothing",
        ),
    ),
    "labellers": Row(
        "random, left, length-loving, colluding; flips",
        "the gate's verdicts, false accepts and rejects measured",
        (f"{PEOPLE}/test_label_quality.py", "tests/reward/test_gate_power.py", "tests/reward/test_labelcheck.py"),
        kept=("lab-gate-from-1150",),
    ),
    "hacks": Row(
        "length, repetition, rare tokens, unplanned hacks",
        "found in stated rounds; false alarms stated",
        (
            f"{SYSTEM}/test_rollback.py::test_the_audit_finds_it_and_the_run_goes_back",
            f"{SYSTEM}/test_rollback.py::test_the_state_is_bit_for_bit_that_of_the_good_checkpoint_but_for_what_was_changed",
            "tests/guard/test_guard_signals.py",
            "tests/guard/test_guard_audit.py",
        ),
        kept=("lab-detection-from-1150", "lab-false_alarms-from-1150"),
    ),
    "texts": Row(
        "replies with scripts, bidi, NUL, 1 MB, injection",
        "in a browser no script runs; the text is shown as text",
        (
            f"{WEB}/test_browser.py::test_hostile_text_is_shown_as_text",
            f"{WEB}/test_browser.py::test_a_megabyte_is_shown_and_the_rest_is_behind_a_link",
            f"{SYSTEM}/test_people_label.py::test_an_answer_cannot_end_its_own_part_of_the_question",
            "tests/cli/test_data_cli.py::test_text_from_a_file_cannot_steer_the_terminal",
        ),
    ),
    "web": Row(
        "cross-site, forged session, others' items, guessing",
        "refused with 4xx; nothing changed",
        (f"{WEB}/test_entering.py", f"{WEB}/test_roles.py"),
    ),
    "pickles": Row("a pickle anywhere", "never unpickled", ("tests/test_no_pickle.py",)),
    "code": Row(
        "a model or run directory that carries code",
        "never run by looking, whatever is answered",
        ("tests/models/test_no_code_of_a_model.py", "tests/cli/test_foreign_run.py"),
    ),
    "settings": Row(
        "config, key, reference, logs changed or cut",
        "seen, named, refused or asked for",
        (
            f"{SYSTEM}/test_seal.py",
            f"{SYSTEM}/test_doctor.py",
            f"{KILLS}::test_a_changed_reference_is_refused",
            "tests/track/test_sinks.py::test_a_log_goes_back_to_a_commit_and_refuses_to_go_forward",
        ),
    ),
    "time": Row(
        "SIGTERM, clock jump, second rollback, new schema",
        "a defined outcome",
        (
            f"{KILLS}::test_a_signal_stops_the_run_where_it_can_be_resumed",
            f"{KILLS}::test_a_second_signal_stops_at_once_and_can_be_resumed_too",
            f"{KILLS}::test_the_clock_may_jump_between_two_starts",
            f"{PEOPLE}/test_label_queue.py::test_a_clock_that_goes_back_hands_no_pair_to_two_and_loses_no_answer",
            f"{SYSTEM}/test_rungs.py::test_two_rollbacks_are_remedied_and_the_third_stops_the_run",
            f"{SYSTEM}/test_rollback_verb.py",
            f"{SYSTEM}/test_extension.py::test_a_rollback_frees_the_rounds_that_it_undid",
            "tests/preferences/test_preference_database.py::test_another_schema_is_refused",
            "tests/preferences/test_preference_database.py::test_a_schema_upgraded_under_an_open_store_stops_its_writes",
        ),
    ),
}
