"""What a world is: a task with prompts, demonstrations and a simulated labeller, and perhaps a known truth.

    world --(prompts, demonstrations, labeller)--> Task --> the loop
    world --(gold)-------------------------------> lab.observer --> gold.jsonl

The loop is handed a `Task`, which has no way to the gold score; only `holdfast.lab` asks a world for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.drawings.registry import own_drawing
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller


@dataclass(frozen=True)
class LabellerSettings:
    """How a simulated labeller errs: flips (`noise`), blurred close calls (`temperature`).

    `taste(prompt, response)` is a further liking, in gold units, that the lab gives people to see what comes of it.
    """

    noise: float = 0.0
    temperature: float = 0.1
    seed: int = 0
    taste: Callable[[str, str], float] | None = None


@runtime_checkable
class World(Protocol):
    """A task anyone can bring as `path/to/file.py:Class`; the class is called with the run's seed.

    Three more methods are looked for and may be missing: `gold(prompt, response, finished) -> float`, the truth,
    which only the lab reads; `policy_directory() -> Path`, a pretrained policy with its own tokenizer, without which a
    small Llama with a word-level tokenizer over the world's texts is built; and `columns()`, what a reward may read of
    a prompt beside its text (a test's expected value, say), by prompt: `{prompt: {"target": 42}}`.

    One more method, `grammar() -> str`, says what answers may be where `rollout.grammar` does not, in the same words or
    as the text of a JSON schema. An attribute `pieces`, a regular expression, makes that model's tokens its matches,
    which joined are the text.

    A world whose answers people should see drawn says so with `drawing`, a name that `world.drawing` takes.

    The lab also looks for `lab_settings`, settings (section.key=value) for trials of a size that suits the world, and
    for `flaws`, the names of those that it has of its own, each with the settings with which it is planted.
    """

    name: str

    def prompts(self) -> Sequence[Prompt]:
        """Prompts the policy is trained on."""
        ...

    def heldout_prompts(self) -> Sequence[Prompt]:
        """Prompts that never train anything; the report's samples and the lab's measurements use them."""
        ...

    def demonstrations(self) -> Sequence[Demonstration]:
        """Answers that supervised fine-tuning imitates; empty where the policy needs none."""
        ...

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        """Whoever answers comparisons, or None where there are only imported labels."""
        ...


@dataclass(frozen=True)
class Task:
    """The side of a world that training may see."""

    name: str
    prompts: Sequence[Prompt]
    heldout_prompts: Sequence[Prompt]
    demonstrations: Sequence[Demonstration]
    labeller: Labeller | None
    policy_directory: Path | None
    notes: tuple[str, ...] = ()  # what a person should know about the data before the work begins
    columns: Mapping[Prompt, Mapping[str, Any]] = field(default_factory=dict)  # what else a prompt's row has
    grammar: str = ""  # what answers may be, where the settings do not say
    pieces: str = ""  # what the built-in model's tokens are; empty for words
    left_out: tuple[str, ...] = ()  # rows of the data that could not be used, as JSON with place and reason
    drawing: str = ""  # how answers are drawn; empty where they are not


def task_of(world: World, settings: LabellerSettings) -> Task:
    """Take from a world what training may see, and nothing else."""
    directory: Callable[[], Path] | None = getattr(world, "policy_directory", None)
    columns: Callable[[], Mapping[Prompt, Mapping[str, Any]]] | None = getattr(world, "columns", None)
    grammar: Callable[[], str] | None = getattr(world, "grammar", None)
    return Task(
        name=world.name,
        prompts=list(world.prompts()),
        heldout_prompts=list(world.heldout_prompts()),
        demonstrations=list(world.demonstrations()),
        labeller=world.labeller(settings),
        policy_directory=None if directory is None else Path(directory()),
        notes=tuple(getattr(world, "notes", ())),
        columns={} if columns is None else dict(columns()),
        grammar="" if grammar is None else str(grammar()),
        pieces=str(getattr(world, "pieces", "")),
        left_out=tuple(getattr(world, "left_out", ())),
        drawing=own_drawing(world),
    )
