"""Tables for people, aligned. Nothing in them is cut off, so a wide one is as wide as it has to be."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleDimensions
from rich.table import Table

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
    console.size = ConsoleDimensions(width, console.height)
    console.print(table)
