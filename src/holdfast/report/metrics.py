"""The metrics of a run as columns: a long run has millions of values, and a chart wants one name at a time."""

import math
from array import array
from collections.abc import Mapping
from functools import cached_property

from holdfast.text import as_number


class MetricTable:
    """Rows in order of step. A step that is written again takes back its first writing and all that came after it."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.rounds = array("q")
        self.taken_back = 0
        self._columns: dict[str, array[float]] = {}

    def add(self, step: int, round: int, values: Mapping[str, object]) -> None:
        """Take in a row as JSON has it; what is not a number is no value."""
        while self.steps and self.steps[-1] >= step:
            self._drop_last()
        count = len(self.steps)
        self.steps.append(step)
        self.rounds.append(round)
        columns = self._columns
        for name, value in values.items():
            number = value if type(value) is float and -1e300 < value < 1e300 else as_number(value)
            if number is None:
                continue
            if name not in columns:
                columns[name] = array("d")
            column = columns[name]
            # Where a metric was missing for a while its column is shorter; the gap is filled when it is known.
            if len(column) < count:
                column.extend([math.nan] * (count - len(column)))
            column.append(number)

    def copy(self) -> "MetricTable":
        """A table that stays as this one is now."""
        other = MetricTable()
        other.steps, other.rounds, other.taken_back = self.steps[:], self.rounds[:], self.taken_back
        other._columns = {name: column[:] for name, column in self._columns.items()}
        return other

    def _drop_last(self) -> None:
        self.taken_back += 1
        self.steps.pop()
        self.rounds.pop()
        for column in self._columns.values():
            del column[len(self.steps) :]

    def column(self, name: str) -> list[float | None]:
        """The values of a metric, one for each row; None where it has none."""
        known = self._columns.get(name, array("d"))
        values: list[float | None] = [None if value != value else value for value in known]
        return values + [None] * (len(self.steps) - len(known))

    @property
    def names(self) -> list[str]:
        """The metrics that have had a value."""
        return list(self._columns)

    def count(self, name: str) -> int:
        """How many rows have a value of a metric."""
        return sum(value == value for value in self._columns.get(name, ()))

    @cached_property
    def places(self) -> list[float]:
        """The steps as places on an axis, shared by all charts; only once the table is complete."""
        return [float(step) for step in self.steps]

    def __len__(self) -> int:
        return len(self.steps)
