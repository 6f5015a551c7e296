"""What a person sees and does while a run goes on: progress bars, and Ctrl-C that stops at a resumable point."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from holdfast.errors import Interrupted
from holdfast.events import INDENT
from holdfast.text import counted, visible

WORDS = {
    "sft": "imitating demonstrations",
    "first comparisons": "collecting first comparisons",
    "reward model": "training the reward ensemble",
    "ppo": "optimising the policy",
    "dpo": "learning from pairs",
    "best of n": "sampling and scoring",
}
LINE_EVERY_SECONDS = 15.0
# Columns of a terminal: a line of progress has words, a bar, and as much for "1200/1200 0:00:00 left 0:00:00".
LONGEST_WORDS = 37
COUNTS_AND_TIMES = 34
NARROWEST_BAR = 8
WIDEST_BAR = 24


class StopRequest:
    """Turns SIGINT and SIGTERM into a question the loop asks at safe points; a second one ends at once."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, object] = {}

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nStopping at the next safe point (again to stop at once) ...", file=sys.stderr)


class Watch:
    """A `Progress` for people: bars in a terminal, a line now and then elsewhere."""

    def __init__(self, stop: StopRequest, console: Console | None = None) -> None:
        self.stop = stop
        self.console = console or Console(stderr=True, highlight=False)
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._what, self._total, self._done, self._last_line = "", 0, 0, 0.0
        self._waiting: TaskID | None = None
        self._held: tuple[str, int] | None = None

    def begin(self, what: str, total: int) -> None:
        self.finish()
        self._what, self._total, self._done = what, total, 0
        self._last_line = time.monotonic()
        if not total:
            return
        words = WORDS.get(what, what)
        if not self.console.is_terminal:
            self.console.print(f"{words} ({counted(total, 'step')})")
            return
        # What is left of a line of the terminal when words, counts and times have theirs.
        room = min(WIDEST_BAR, self.console.width - LONGEST_WORDS - COUNTS_AND_TIMES)
        self._bars = Bars(
            TextColumn("{task.description:<28}", table_column=Column(no_wrap=True, max_width=LONGEST_WORDS)),
            BarColumn(bar_width=max(NARROWEST_BAR, room)),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task = self._bars.add_task(words, total=total, figures="")
        self._bars.start()

    def advance(self, **figures: float) -> None:
        self._done += 1
        text = "  ".join(f"{name} {format_figure(value)}" for name, value in figures.items())
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=1, figures=text)
        elif time.monotonic() - self._last_line > LINE_EVERY_SECONDS or self._done == self._total:
            self._last_line = time.monotonic()
            self.console.print(f"  {self._done}/{self._total}  {text}")
        # Steps and updates are stopped by their loop, which saves first; before that there is nothing to save.
        if self.stop.asked and self._what not in ("ppo", "dpo"):
            raise Interrupted

    def say(self, words: str) -> None:
        # Not read for markup, and made visible: reasons may quote what a model or a labeller wrote.
        if not self.console.is_terminal:
            self.console.print(Text(visible(words)), soft_wrap=True)
            return
        for line in visible(words).split("\n"):
            self.console.print(hanging(line, self.console))

    def hold(self, words: str, done: int, total: int) -> None:
        """A second bar below the first while the run waits; elsewhere a line now and then."""
        if done >= total:
            self._held = None
            if self._bars is not None and self._waiting is not None:
                self._bars.remove_task(self._waiting)
            self._waiting = None
            return
        if self._bars is None:
            news = (words, done) != self._held
            if self._held is None or (news and time.monotonic() - self._last_line > LINE_EVERY_SECONDS):
                self._held, self._last_line = (words, done), time.monotonic()
                self.console.print(f"{visible(words)}: {done}/{total}", markup=False)
        elif self._waiting is None:
            self._waiting = self._bars.add_task(visible(words), total=total, completed=done, figures="")
        else:
            self._bars.update(self._waiting, completed=done, total=total, description=visible(words))

    def finish(self) -> None:
        self._waiting = None
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


class Bars(Progress):
    """Bars of one line each, with the newest figures in a line below them."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if figures := task.fields["figures"]:
                yield Text(f"  {figures}", style="dim", no_wrap=True, overflow="ellipsis")


def hanging(line: str, console: Console) -> Text:
    """A line in the width of the terminal; what does not fit goes on below its own beginning."""
    indent = len(INDENT) if line.startswith("round ") else len(line) - len(line.lstrip()) or 2
    first, *rest = Text(line).wrap(console, console.width) or [Text()]
    first.rstrip()
    if not rest:
        return first
    below = Text(line[len(first.plain) :].lstrip()).wrap(console, max(20, console.width - indent))
    return Text("\n").join([first, *(Text(" " * indent + part.plain.rstrip()) for part in below)])


@contextmanager
def watching() -> Iterator[Watch]:
    """A `Watch` for as long as work is under way; its `stop` is to be asked at safe points."""
    with StopRequest() as stop:
        watch = Watch(stop)
        try:
            yield watch
        finally:
            watch.finish()


def format_figure(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
