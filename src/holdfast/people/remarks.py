"""Flags and notes that people have left on pairs, for those who look after the labels."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from holdfast.preferences import records
from holdfast.preferences.comparison import Comparison
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import remarks
from holdfast.preferences.records import RowDecoder, select_in
from holdfast.preferences.schema import comparisons

MOST_SHOWN = 100


@dataclass(frozen=True)
class Remark:
    """What one person has left on one comparison: a flag, a note, or both."""

    comparison: Comparison
    labeller: str
    flagged: bool
    note: str


def read_remarks(database: Database, run: str) -> list[Remark]:
    """What stands on the run's comparisons now, the newest first; a flag taken back, or an emptied note, is gone."""
    query = (
        select(remarks)
        .where(remarks.c.comparison_id >= f"{run}/", remarks.c.comparison_id < f"{run}0")
        .order_by(remarks.c.seq.desc())
        .limit(10 * MOST_SHOWN)
    )
    newest: dict[tuple[str, str], dict[str, str]] = {}
    with database.read() as connection:
        for row in connection.execute(query):
            standing = newest.setdefault((row.comparison_id, row.labeller), {})
            standing.setdefault("note" if row.kind == "note" else "flag", row.text if row.kind == "note" else row.kind)
        ids = list(dict.fromkeys(key for key, _ in newest))
        items = {
            row.id: RowDecoder().comparison(row)
            for row in select_in(connection, records.comparison_query(), comparisons.c.id, ids)
        }
    everything = [
        Remark(items[key], labeller, standing.get("flag") == "flag", standing.get("note", ""))
        for (key, labeller), standing in newest.items()
    ]
    return [remark for remark in everything if remark.flagged or remark.note][:MOST_SHOWN]
