"""How somebody's reward function is called: by the names of its parameters, with lists or with one answer at a time.

A function that takes `completions`, `answers` or `responses` gets whole batches as lists, as TRL's do; one that takes
`completion`, `response`, `solution_str` or `answer` gets one answer at a time.

Plain Python: this runs in the worker processes too, which need nothing else of this package.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, first_line, last_frames
from holdfast.reward.outcome import OneScore, Unscored, read_outcome
from holdfast.text import counted

# What an answer's parameter may be called, the likeliest first: of two, the other is a column of the data.
MANY = ("completions", "responses", "answers")
ONE = ("completion", "response", "solution_str", "answer")
# These are lists of messages where the prompt is one, as in TRL.
AS_PROMPTS = ("completions", "completion")
LONGEST_REASON = 200
# An error whose class is called so may be gone when the function is called again.
PASSING = ("connect", "timeout", "ratelimit", "temporar")

# A prompt as a function sees it: a text, or a list of messages with role and content.
PlainPrompt = str | list[dict[str, str]]


@dataclass(frozen=True)
class Question:
    """One answer to be scored, in plain Python."""

    prompt: PlainPrompt
    answer: str
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A function with what it wants: its parameter for the answer, and the columns that it needs or may have."""

    function: Callable[..., Any]
    answer: str
    wanted: tuple[str, ...]
    needed: tuple[str, ...]
    all_columns: bool
    asynchronous: bool

    @classmethod
    def of(cls, thing: Any, name: str) -> Call:
        """A function as it is; of a class an object, made without arguments."""
        if inspect.isclass(thing):
            thing = thing()
        if not callable(thing):
            raise HoldfastError(
                f"{name} is {type(thing).__name__}, which cannot be called; name a function or a class."
            )
        try:
            parameters = inspect.signature(thing).parameters
        except (TypeError, ValueError):
            raise HoldfastError(f"{name} does not say what it takes; wrap it in a function of yours.") from None
        named = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = [p.name for p in named]
        answer = next((word for word in (*MANY, *ONE) if word in names), None)
        if answer is None or any(p.kind is p.POSITIONAL_ONLY for p in parameters.values()):
            raise HoldfastError(
                f"{name} has to take completions (lists, for a whole batch) or completion (one answer at a time) by "
                f"that name, beside what it wants of the prompt's row; it takes {', '.join(parameters) or 'nothing'}."
            )
        own = (answer, "prompts" if answer in MANY else "prompt")
        columns = [p for p in named if p.name not in own]
        called = thing if inspect.isroutine(thing) else type(thing).__call__
        return cls(
            thing,
            answer,
            tuple(names),
            tuple(p.name for p in columns if p.default is p.empty),
            any(p.kind is p.VAR_KEYWORD for p in parameters.values()),
            inspect.iscoroutinefunction(thing) or inspect.iscoroutinefunction(called),
        )

    @property
    def batched(self) -> bool:
        """Whether it takes whole batches."""
        return self.answer in MANY

    def takes(self, column: str) -> bool:
        """Whether it is given a column of the data."""
        return self.all_columns or column in self.wanted

    async def outcomes(self, asked: Sequence[Question]) -> list[OneScore | Unscored]:
        """What it gives for each of some answers; for all of them why not, where it fails."""
        given = self._begun(asked)
        return self._read(await _caught(given) if inspect.isawaitable(given) else given, len(asked))

    def outcomes_now(self, asked: Sequence[Question]) -> list[OneScore | Unscored]:
        """The same outside of any event loop, of which a function may begin one of its own."""
        given = self._begun(asked)
        return self._read(asyncio.run(_caught(given)) if inspect.isawaitable(given) else given, len(asked))

    def _begun(self, asked: Sequence[Question]) -> Any:
        """What the function returns, or why it does not."""
        if lacking := self._lacking(asked):
            return Unscored(lacking)
        try:
            return self.function(**self._arguments(asked))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code may raise anything
            return failure(error)

    def _lacking(self, asked: Sequence[Question]) -> str | None:
        many = self.batched
        for name in self.needed:
            there = any if many else all
            if not there(name in one.columns for one in asked):
                return f"the reward needs a column {name!r}, which the prompt's row does not have"
        return None

    def _arguments(self, asked: Sequence[Question]) -> dict[str, Any]:
        prompts = [one.prompt for one in asked]
        as_prompts = self.answer in AS_PROMPTS
        answers = [_as_prompt(one) if as_prompts else one.answer for one in asked]
        names = dict.fromkeys(name for one in asked for name in one.columns if self.takes(name))
        columns = {name: [one.columns.get(name) for one in asked] for name in names}
        own: dict[str, Sequence[Any]] = {"prompts" if self.batched else "prompt": prompts, self.answer: answers}
        given = {**columns, **{name: values for name, values in own.items() if self.takes(name)}}
        return given if self.batched else {name: values[0] for name, values in given.items()}

    def _read(self, given: Any, count: int) -> list[OneScore | Unscored]:
        if isinstance(given, Unscored):
            return [given] * count
        if not self.batched:
            return [read_outcome(given)]
        rows = _by_row(given) if isinstance(given, Mapping) else given
        if isinstance(rows, Unscored):
            return [rows] * count
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            why = Unscored(f"the reward gave {type(given).__name__}, and not a list of scores")
            return [why] * count
        try:
            scores = list(rows)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a generator is somebody's code too
            return [failure(error)] * count
        if len(scores) != count:
            return [Unscored(f"the reward gave {counted(len(scores), 'score')} for {counted(count, 'answer')}")] * count
        return [read_outcome(score) for score in scores]


async def _caught(given: Awaitable[Any]) -> Any:
    try:
        return await given
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code may raise anything
        return failure(error)


def failure(error: BaseException) -> Unscored:
    """What to say of an answer at which a function has failed."""
    places = [line.strip() for line in last_frames(error) if line.startswith("  ") and not line.startswith("    ")]
    where = f" ({places[-1].rpartition(' in ')[0]})" if places else ""
    message = first_line(error).rstrip(".")[:LONGEST_REASON]
    kind = type(error).__name__
    words = f"the reward raised {kind}{where}" if message == kind else f"the reward raised {kind}: {message}{where}"
    passing = any(sign in base.__name__.lower() for base in type(error).__mro__ for sign in PASSING)
    return Unscored(words, passing)


def _as_prompt(one: Question) -> PlainPrompt:
    return one.answer if isinstance(one.prompt, str) else [{"role": "assistant", "content": one.answer}]


def _by_row(lists: Mapping[Any, Any]) -> list[dict[Any, Any]] | Unscored:
    """Components by name, each a list over the batch, as components of each answer."""
    try:
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    except (TypeError, ValueError):
        return Unscored("the reward gave components that are not lists of the same length")
