"""Formats that other data sets come in, each turned into the columns that are read here, row by row.

hh-rlhf            chosen, rejected: whole dialogues as text      the same as messages
sharegpt           conversations of from and value                messages
alpaca             instruction, input, output                     prompt, completion
ultrafeedback      instruction, completions with scores           prompt, chosen and rejected: the best and the worst
openai-chat        messages                                       messages
openai-preference  input, preferred_output, non_preferred_output  prompt, chosen, rejected
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from holdfast.data.rows import Row
from holdfast.data.turns import OTHER_ROLES, answer, messages
from holdfast.text import counted

Values = dict[str, Any]

# A turn begins a paragraph; "Human:" within one is text.
_TURN = re.compile(r"(?:\A|\n[ \t\r]*\n)[ \t]*(Human|Assistant):")
_SPEAKERS = {"Human": "user", "Assistant": "assistant"}
# Where UltraFeedback has the score of a completion; its overall score is known to be wrong for some, so not first.
_SCORES = ("fine-grained_score", "overall_score", "score", "rating")


def dialogue(row: Row, column: str, text: str) -> list[dict[str, str]]:
    """The turns of `Human: ...` and `Assistant: ...` paragraphs, without the space around them."""
    text = text.lstrip()
    marks = list(_TURN.finditer(text))
    if not marks:
        what = f"'{column}' has no paragraph that begins with Human: or Assistant:"
        raise row.error("not_a_dialogue", f"{what}; give whole dialogues, or a column 'prompt' beside the answers")
    if before := text[: marks[0].start()].strip():
        raise row.error("not_a_dialogue", f"'{column}' has text before its first turn ({before[:30]!r}); cut it off")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [
        {"role": _SPEAKERS[mark[1]], "content": text[mark.end() : end].strip()}
        for mark, end in zip(marks, ends, strict=True)
    ]


def is_hh(values: Mapping[str, Any]) -> bool:
    sides = values.get("chosen"), values.get("rejected")
    texts = all(isinstance(side, str) for side in sides)
    return texts and values.get("prompt") is None and any(_TURN.match(str(side).lstrip()) for side in sides)


def from_hh(row: Row) -> Values:
    prompt = row.get("prompt")
    if isinstance(prompt, str):  # as in copies that cut the answers off: the prompt ends with "Assistant:"
        turns = dialogue(row, "prompt", prompt)
        if turns[-1] == {"role": "assistant", "content": ""}:
            turns.pop()
        answers = {side: _text(row, side).strip() for side in ("chosen", "rejected")}
        return {"prompt": turns, **{side: [_said("assistant", text)] for side, text in answers.items()}}
    return {side: dialogue(row, side, _text(row, side)) for side in ("chosen", "rejected")}


def is_sharegpt(values: Mapping[str, Any]) -> bool:
    return isinstance(values.get("conversations"), list)


def from_sharegpt(row: Row) -> Values:
    turns = [_turn(row, "conversations", turn) for turn in _list(row, "conversations")]
    system = row.get("system")
    if isinstance(system, str) and system.strip():
        turns.insert(0, _said("system", system))
    if row.get("chosen") is None and row.get("rejected") is None:
        return {"messages": turns}
    return {"prompt": turns, **{side: [_turn(row, side, row.require(side))] for side in ("chosen", "rejected")}}


def _turn(row: Row, column: str, turn: Any) -> dict[str, Any]:
    if not isinstance(turn, dict) or not ({"from", "value"} <= turn.keys() or {"role", "content"} <= turn.keys()):
        raise row.error("wrong_type", f"a turn of '{column}' must be an object with 'from' and 'value'")
    role, text = (turn["from"], turn["value"]) if "from" in turn else (turn["role"], turn["content"])
    if not isinstance(role, str) or not isinstance(text, str):
        raise row.error("wrong_type", f"a turn of '{column}' has 'from' and 'value' that are not both strings")
    return _said(OTHER_ROLES.get(role.lower(), role.lower()), text)


def is_alpaca(values: Mapping[str, Any]) -> bool:
    answered = "output" in values or {"chosen", "rejected"} <= values.keys()
    return "instruction" in values and answered and values.get("prompt") is None


def from_alpaca(row: Row) -> Values:
    asked = _text(row, "instruction")
    more = row.get("input")
    if more is not None and not isinstance(more, str):
        raise row.error("wrong_type", "'input' must be a string, or left out")
    if more and more.strip():
        asked = f"{asked}\n\n{more}" if asked.strip() else more
    earlier, system = row.get("history") or [], row.get("system")
    prompt: Any = asked
    if earlier or (isinstance(system, str) and system.strip()):
        prompt = [_said("system", system)] if isinstance(system, str) and system.strip() else []
        for pair in earlier if isinstance(earlier, list) else [None]:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
                raise row.error("wrong_type", "'history' must be a list of question and answer, two strings each")
            prompt += [_said("user", pair[0]), _said("assistant", pair[1])]
        prompt.append(_said("user", asked))
    if row.get("output") is None and row.get("chosen") is not None:
        return {"prompt": prompt, "chosen": _text(row, "chosen"), "rejected": _text(row, "rejected")}
    return {"prompt": prompt, "completion": _text(row, "output")}


def is_ultrafeedback(values: Mapping[str, Any]) -> bool:
    if not ("instruction" in values or "prompt" in values):
        return False
    scored = isinstance(values.get("completions"), list)
    binarized = "score_chosen" in values and isinstance(values.get("chosen"), list)
    return scored or binarized or {"chosen_response", "rejected_response"} <= values.keys()


def from_ultrafeedback(row: Row) -> Values:
    if isinstance(row.get("chosen"), list):  # the binarized form has our own columns
        return {name: row.get(name) for name in ("prompt", "chosen", "rejected") if row.get(name) is not None}
    prompt = row.get("prompt") if row.get("instruction") is None else row.get("instruction")
    if row.get("chosen_response") is not None or row.get("rejected_response") is not None:
        sides = {side: _text(row, f"{side}_response") for side in ("chosen", "rejected")}
        return {"prompt": prompt, **sides}
    completions = [_completion(row, value) for value in _list(row, "completions")]
    rated = [(score, text) for text, score in completions if score is not None]
    if len(rated) < 2:
        raise row.error(
            "no_scores", f"has {counted(len(rated), 'completion')} with a score; two are needed to make a pair"
        )
    best, worst = max(rated, key=lambda item: item[0]), min(rated, key=lambda item: item[0])
    if best[0] == worst[0]:
        raise row.error("no_scores", f"gives all {len(rated)} completions the score {best[0]:g}, so none is better")
    return {"prompt": prompt, "chosen": best[1], "rejected": worst[1]}


def _completion(row: Row, value: Any) -> tuple[str, float | None]:
    """Text and score of a completion; the score is None where none can be read."""
    text = value.get("response", value.get("text")) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise row.error("wrong_type", "each of 'completions' must be an object with 'response' as a string")
    for name in _SCORES:
        if (score := _number(value.get(name))) is not None:
            return text, score
    aspects = value.get("annotations")
    ratings = [_rating(aspect) for aspect in aspects.values()] if isinstance(aspects, dict) else []
    known = [rating for rating in ratings if rating is not None]
    return text, sum(known) / len(known) if known else None


def _rating(aspect: Any) -> float | None:
    return _number(aspect.get("Rating")) if isinstance(aspect, dict) else None


def _number(value: Any) -> float | None:
    """A finite number, perhaps written as a text; "N/A" is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_openai_chat(values: Mapping[str, Any]) -> bool:
    return isinstance(values.get("messages"), list) and not {"chosen", "rejected"} & values.keys()


def from_openai_chat(row: Row) -> Values:
    if not isinstance(row.get("messages"), list):
        return row.values
    return row.values | {"messages": _messages(row, "messages", _list(row, "messages"))}


def is_openai_preference(values: Mapping[str, Any]) -> bool:
    return "preferred_output" in values and "non_preferred_output" in values


def from_openai_preference(row: Row) -> Values:
    asked = row.require("input")
    turns = asked.get("messages") if isinstance(asked, dict) else asked
    if not isinstance(turns, list):
        raise row.error("wrong_type", "'input' must be an object with 'messages', a list")
    outputs = {"chosen": "preferred_output", "rejected": "non_preferred_output"}
    sides = {
        side: answer(row, column, messages(row, column, _messages(row, column, _list(row, column))))
        for side, column in outputs.items()
    }
    return {"prompt": _messages(row, "input", turns), **sides}


def _messages(row: Row, column: str, turns: list[Any]) -> list[Any]:
    """Messages whose content is text: parts of text are joined, and calls of tools and pictures are refused."""
    return [_message(row, column, turn) for turn in turns]


def _message(row: Row, column: str, turn: Any) -> Any:
    if not isinstance(turn, dict):
        return turn
    content = turn.get("content")
    if content is None and (turn.get("tool_calls") or turn.get("function_call")):
        raise row.error("wrong_type", f"'{column}' has a call of a tool where a text is needed; remove the row")
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {} for part in content]
        texts = [part.get("text") if part.get("type") == "text" else None for part in parts]
        if not all(isinstance(text, str) for text in texts):
            raise row.error("wrong_type", f"'{column}' has a message with parts that are not text; remove the row")
        content = "".join(map(str, texts))
    role = "tool" if turn.get("role") == "function" else turn.get("role")
    return {"role": role, "content": content}


def _said(role: Any, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def _text(row: Row, column: str) -> str:
    value = row.require(column)
    if not isinstance(value, str):
        raise row.error("wrong_type", f"'{column}' must be a string")
    return value


def _list(row: Row, column: str) -> list[Any]:
    value = row.require(column)
    if not isinstance(value, list):
        raise row.error("wrong_type", f"'{column}' must be a list")
    return value
