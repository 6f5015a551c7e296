"""What the command line says of the guard: while a run goes on, and at its end."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

import small_run
from holdfast.cli.session import show_result
from holdfast.cli.terminal import StopRequest, Watch
from holdfast.config import load_config
from holdfast.config.schema import AuditConfig
from holdfast.run.notes import notes, rounds_audited
from holdfast.run.rates import ChosenRates


def watched(terminal: bool, width: int = 80) -> tuple[Watch, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, highlight=False)
    return Watch(StopRequest(), console), out


def test_words_are_printed_as_they_are() -> None:
    watch, out = watched(terminal=False)
    watch.say("round 3  healthy [bold]people[/bold] :smile: " + "word " * 30)
    assert out.getvalue().startswith("round 3  healthy [bold]people[/bold] :smile: word")
    assert out.getvalue().count("\n") == 1


@pytest.mark.parametrize("width", [80, 100])
def test_a_line_of_a_round_goes_on_below_its_beginning(width: int) -> None:
    """Nothing is lost, no line is wider than the terminal, and none that goes on looks like another round."""
    watch, out = watched(terminal=True, width=width)
    words = "people: 7 of 12 pairs (32% to 81%) vs reference, 20 of 48 (29% to 56%) vs last good; ensemble claims 51%"
    watch.say(f"round 2  healthy   {words}\n         the policy is held closer to the reference (beta 0.05 to 0.169)")
    lines = out.getvalue().splitlines()
    assert len(lines) > 2
    assert all(len(line) <= width and line == line.rstrip() for line in lines), lines
    assert " ".join(out.getvalue().split()).startswith(f"round 2 healthy {words} the policy is held")
    assert [line[:9] for line in lines[1:]] == [" " * 9] * (len(lines) - 1)


@pytest.mark.parametrize("width", [80, 100])
def test_progress_fits_the_terminal_with_all_its_figures(width: int) -> None:
    watch, _ = watched(terminal=True, width=width)
    watch.begin("ppo", 1200)
    watch.advance(round=3, score=0.11, kl=0.13, beta=0.048, length=11.5)
    watch.hold("waiting for people (`holdfast serve`)", 3, 66)
    bars = watch._bars
    assert bars is not None
    watch.finish()
    with watch.console.capture() as captured:
        watch.console.print(*bars.get_renderables(), sep="\n")
    shown = [line for line in Text.from_ansi(captured.get()).plain.splitlines() if line.strip()]
    assert all(len(line) <= width for line in shown)
    policy, waiting, figures = shown
    assert ("optimising the policy" in policy, "1/1200" in policy, "left" in policy) == (True, True, True)
    assert waiting.startswith("waiting for people (`holdfast serve`)")
    assert "3/66" in waiting
    assert figures.split("  ")[1:] == ["round 3", "score 0.11", "kl 0.13", "beta 0.048", "length 11.50"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    watch, out = watched(terminal=True)
    watch.say("a\x1b[2Jb")
    assert "\x1b[2J" not in out.getvalue()
    assert "␛" in out.getvalue()


def test_words_come_above_the_bars() -> None:
    watch, out = watched(terminal=True)
    watch.begin("ppo", 10)
    watch.advance(score=1.0)
    watch.say("round 1  healthy")
    watch.finish()
    assert "round 1  healthy" in out.getvalue()


@dataclass
class Run:
    path: Path

    @property
    def report_file(self) -> Path:
        return self.path / "report.html"


def shown(run: Path) -> str:
    with redirect_stdout(io.StringIO()) as out:
        show_result(Run(run), False)  # type: ignore[arg-type]
    return out.getvalue()


def test_the_result_of_a_guarded_run(guarded: Path) -> None:
    lines = shown(guarded).splitlines()
    assert "verdict                   healthy; 1 rollback" in lines
    audits = small_run.events_of(guarded, "audit")
    # 12 of 12 is 100%, and Wilson's interval begins at 12 / (12 + 1.96^2) = 75.7%.
    claims = f"{audits[-1]['claimed_reference']:.0%}"
    text = " ".join(shown(guarded).split())
    assert f"preferred to reference 12 of 12 pairs (76% to 100%) by the labeller; the ensemble claims {claims}" in text
    assert max(map(len, lines[:-2])) <= 80
    assert f", of which {sum(row['labels'] for row in audits)} in audits and " in text
    assert f" asked again; {audits[-1]['labels_left']} left for audits " in text


def test_the_result_of_a_run_without_a_guard_is_as_ever(unguarded: Path) -> None:
    text = shown(unguarded)
    assert "verdict" not in text
    assert "gold on held-out prompts" in text


def test_the_result_as_json_has_the_guards_part(guarded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(Run(guarded), True)  # type: ignore[arg-type]
    document = json.loads(capsys.readouterr().out)
    assert document["guard"]["verdict"] == "healthy"
    assert document["guard"]["rollbacks"] == 1
    assert document["delivered"]["preferred_to_reference"]["pairs"] == 12


def test_the_end_of_the_table_is_the_policy_that_was_kept(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(Run(stopped), True)  # type: ignore[arg-type]
    figures = json.loads(capsys.readouterr().out)["figures"]
    steps = small_run.rows_of(stopped / "metrics.jsonl")
    assert figures["KL to reference"]["end"] == pytest.approx(steps[1]["objective/kl"])  # step 2, of six
    assert steps[1]["objective/kl"] != steps[-1]["objective/kl"]


def said(*settings: str, labeller: Any = "someone") -> str:
    config = load_config(None, list(settings))
    task = SimpleNamespace(labeller=labeller, demonstrations=())
    ingredients: Any = SimpleNamespace(config=config, task=task, chosen=ChosenRates(), grammars=None)
    return " ".join(notes(ingredients, False))


def test_notes_say_what_the_guard_cannot_do() -> None:
    assert "guard" not in said()
    assert "The guard only advises" in said("guard.mode=advise")
    assert "The guard is off" in said("guard.mode=off")
    assert "nobody answers audits" in said(labeller=None)
    assert "nobody answers audits" not in said("guard.mode=off", labeller=None)
    assert "lasts for about 16 of 40 rounds" in said("run.rounds=40", "audit.pairs=24", "audit.budget=1200")
    assert "lasts for" not in said("run.rounds=40", "guard.mode=off")


def test_for_how_many_rounds_audits_last() -> None:
    config = AuditConfig(pairs=24, budget=1200)
    assert rounds_audited(config) == 16
    assert rounds_audited(replace(config, pairs=0)) == config.budget
