"""A labeller that falls silent: it answers the first questions, and of the others every other one, or none."""

from collections.abc import Sequence

from holdfast.preferences.comparison import Choice, Comparison, Label

SILENT, HALF = f"{__file__}:Silent", f"{__file__}:Half"


class Half:
    """Of what is asked after the first comparisons it answers every other one."""

    name = "half"

    def __init__(self, seed: int) -> None:
        pass

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        heard = [c for n, c in enumerate(comparisons) if c.purpose == "first" or self.hears(n)]
        return [Label(c.id, self.name, Choice.A if len(c.a.text) < len(c.b.text) else Choice.B) for c in heard]

    def hears(self, number: int) -> bool:
        return number % 2 == 0


class Silent(Half):
    """After the first comparisons it answers nothing."""

    name = "silent"

    def hears(self, number: int) -> bool:
        return False
