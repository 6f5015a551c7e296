"""What a client posts, checked: batches of answers, answers that it was asked for, and what it did about an advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.models.prompt import Prompt
from holdfast.preferences.encoding import prompt_json
from holdfast.reward.outcome import number_of
from holdfast.serving.guard.records import LONGEST_ID
from holdfast.serving.guard.settings import whole
from holdfast.serving.protocols import list_of, prompt_of, text_of
from holdfast.web.security import Refused

Poster = Literal["policy", "reference", "evaluation"]
MOST_COMPONENTS = 64
LONGEST_NAME = 100


@dataclass(frozen=True)
class PostedAnswer:
    """An answer as the client knows it. `reward` is None where it could not be scored.

    `logprob` is log pi of the whole answer, `kl` that less the reference's; `tokens` are the policy's own.
    """

    prompt: Prompt
    text: str
    reward: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    finished: bool = True
    tokens: int | None = None
    logprob: float | None = None
    kl: float | None = None


def batch_of(document: Mapping[str, Any]) -> tuple[str, dict[str, Any], int]:
    """A batch's id, the document to store, and how many answers it has."""
    known = {
        "id", "prompts", "answers", "rewards", "components", "finished", "tokens", "logprobs", "reference_logprobs",
        "kl", "of", "step", "checkpoint",
    }  # fmt: skip
    check_names(document, known, "A batch")
    name = name_of(document.get("id"), "id", LONGEST_ID)
    if (of := document.get("of", "policy")) not in get_args(Poster):
        raise Refused(422, f"of is {of!r:.40}; whose answers they are is one of {', '.join(get_args(Poster))}.")
    if document.get("step") is not None:
        whole(document["step"], "step", 0, 2**53)
    if document.get("checkpoint") is not None:
        name_of(document["checkpoint"], "checkpoint", LONGEST_NAME)
    prompts = list_of(document.get("prompts"), "prompts")
    answers = answers_of(document, [prompt_of(each, f"prompts[{n}]") for n, each in enumerate(prompts)])
    if not answers:
        raise Refused(422, "prompts and answers are empty, so there is nothing to store.")
    if document.get("rewards") is None:
        raise Refused(422, "rewards is missing; give a number for each answer, null where it could not be scored.")
    about = {key: document[key] for key in ("of", "step", "checkpoint") if document.get(key) is not None}
    return name, {**about, **columns_of(answers)}, len(answers)


def answers_of(document: Mapping[str, Any], prompts: Sequence[Prompt]) -> list[PostedAnswer]:
    """The answers of a batch, or to a need whose prompts these are."""
    texts = list_of(document.get("answers"), "answers")
    if len(texts) != len(prompts):
        raise Refused(422, f"There are {len(prompts)} prompts and {len(texts)} answers; send one answer to each.")
    columns = {
        name: _column(document.get(name), name, len(texts), read)
        for name, read in (
            ("rewards", reward_of), ("finished", _boolean), ("tokens", _tokens), ("logprobs", _sum),
            ("reference_logprobs", _sum),
        )
    }  # fmt: skip
    parts = document.get("components") or {}
    if not isinstance(parts, Mapping) or len(parts) > MOST_COMPONENTS:
        raise Refused(422, f"components has to be an object of at most {MOST_COMPONENTS} lists, by their names.")
    named = {
        name_of(name, "the name of a component", LONGEST_NAME): _column(values, str(name), len(texts), reward_of)
        for name, values in parts.items()
    }
    kl = document.get("kl")
    kls = _column([kl] * len(texts) if isinstance(kl, int | float) else kl, "kl", len(texts), _sum)
    return [
        PostedAnswer(
            prompt=prompts[n],
            text=text_of(texts[n], f"answers[{n}]"),
            reward=columns["rewards"][n],
            components={name: value for name, values in named.items() if (value := values[n]) is not None},
            finished=columns["finished"][n] is not False,
            tokens=columns["tokens"][n],
            logprob=columns["logprobs"][n],
            kl=kls[n] if kls[n] is not None else _less(columns["logprobs"][n], columns["reference_logprobs"][n]),
        )
        for n in range(len(texts))
    ]


def stored_answers(document: Mapping[str, Any]) -> list[PostedAnswer]:
    """The answers of a batch that was checked before it was stored."""
    return answers_of(document, [prompt_of(each, "prompt") for each in document["prompts"]])


def columns_of(answers: Sequence[PostedAnswer]) -> dict[str, Any]:
    """Answers as they are stored, without a number that is none; `stored_answers` makes the same of it."""
    names = dict.fromkeys(name for each in answers for name in each.components)
    columns: dict[str, list[Any]] = {
        "prompts": [prompt_json(each.prompt) for each in answers],
        "answers": [each.text for each in answers],
        "rewards": [each.reward for each in answers],
        "finished": [each.finished for each in answers],
        "tokens": [each.tokens for each in answers],
        "logprobs": [each.logprob for each in answers],
        "kl": [each.kl for each in answers],
    }
    parts = {name: [each.components.get(name) for each in answers] for name in names}
    return {**columns, "components": parts}


def report_of(document: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """An action's id, and what the client did about it."""
    check_names(document, {"id", "done", "before", "after", "note"}, "A report")
    name = name_of(document.get("id"), "id", LONGEST_ID)
    if not isinstance(document.get("done"), bool):
        raise Refused(422, "done has to be true, or false where the action was declined.")
    values = {side: document.get(side) or {} for side in ("before", "after")}
    if not all(isinstance(value, Mapping) for value in values.values()):
        raise Refused(422, "before and after have to be objects with the values that were changed.")
    note = text_of(document.get("note") or "", "note")[:2000]
    return name, {"done": document["done"], **values, "note": note}


def check_names(document: Mapping[str, Any], known: set[str], what: str) -> None:
    """Refuse a field that nothing reads: it may be a known one misspelt."""
    if strange := sorted(map(str, document.keys() - known)):
        raise Refused(422, f"{what} has no field {strange[0]!r:.60}; there are {', '.join(sorted(known))}.")


def name_of(value: object, what: str, longest: int) -> str:
    text = text_of(value, what)
    if not text or len(text) > longest or not text.isprintable():
        raise Refused(422, f"{what} has to be a text of 1 to {longest} printable characters.")
    return text


def reward_of(value: object) -> float | None:
    """A reward; what is none, or beyond any score, is an answer that could not be scored."""
    number = number_of(value)
    return None if isinstance(number, str) else number


def _column(values: object, name: str, count: int, read: Any) -> list[Any]:
    """A value for each answer, None for all where the client gives none."""
    if values is None:
        return [None] * count
    if len(column := list_of(values, name)) != count:
        raise Refused(422, f"There are {count} answers, and {len(column)} values in {name}; send one for each.")
    return [read(value) for value in column]


def _boolean(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, bool):
        raise Refused(422, "finished has to hold true and false only.")
    return value


def _tokens(value: object) -> int | None:
    return None if value is None else whole(value, "tokens", 0, 10_000_000)


def _sum(value: object) -> float | None:
    """A number, or the sum of those of single tokens; None where it is unknown."""
    if value is None:
        return None
    numbers: list[Any] = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
        raise Refused(422, "Log-probs and kl have to be numbers, or lists of a number for each token.")
    try:
        total = math.fsum(numbers)
    except (OverflowError, ValueError):
        return None
    return total if math.isfinite(total) else None


def _less(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs
