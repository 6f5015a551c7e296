"""Tables for people, aligned. Nothing in them is cut off: one too wide for a terminal is a list there, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from holdfast.text import visible

# More than any table takes.
WIDEST = 1000


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """`left` columns are words, the rest numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(visible, row))
    console = Console(markup=False)
    width = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
    if console.is_terminal and width > console.width:
        show_list(console, title, columns, rows, left)
        return
    console.size = ConsoleDimensions(width, console.height)
    console.print(table)


def show_list(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    """Every row with its words as a heading and its numbers below, one a line."""
    if title:
        console.print(title, style="bold")
    names = max((len(column) for column in columns[left:]), default=0)
    for row in rows:
        console.print(Text(visible("  ".join(cell for cell in row[:left] if cell))))
        for column, cell in zip(columns[left:], row[left:], strict=True):
            console.print(Text(f"  {column:<{names}}  {visible(cell)}"))
