"""A small world whose answers are layouts and drawn as such; its prompts ask for a title and a picture."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller

SPEC = f"{Path(__file__)}:Boxed"
ANSWER = '[ {"type":"title","x":0,"y":0,"w":12,"h":2} ]'


class Boxed:
    """Every demonstration is the same layout."""

    name = "boxed"
    drawing = "boxes"

    def __init__(self, seed: int) -> None:
        self._prompts = [f"a poster number {n} with a title" for n in range(12)]

    def prompts(self) -> Sequence[str]:
        return self._prompts[:8]

    def heldout_prompts(self) -> Sequence[str]:
        return self._prompts[8:]

    def demonstrations(self) -> Sequence[Demonstration]:
        return [Demonstration(prompt, ANSWER) for prompt in self.prompts()]

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        return SimulatedLabeller("guests", lambda prompt, response, finished=True: float(len(response)), settings)
