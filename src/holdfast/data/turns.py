"""Conversations in a row: the turns of a prompt, the one answer after it, and what is not a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.data.problems import Problem
from holdfast.data.rows import Row
from holdfast.models.prompt import Message

ROLES = ("system", "developer", "user", "assistant", "tool")
# What other data sets call them.
OTHER_ROLES = {"human": "user", "prompter": "user", "gpt": "assistant", "bot": "assistant", "chatbot": "assistant",
               "model": "assistant", "ai": "assistant", "chatgpt": "assistant", "bing": "assistant",
               "bard": "assistant", "function": "tool", "observation": "tool"}  # fmt: skip


def messages(row: Row, column: str, value: Any) -> tuple[Message, ...]:
    """A list of {"role", "content"} as messages."""
    wanted = f"'{row.name(column)}' must be a string, or a list of messages with 'role' and 'content' as strings"
    if not isinstance(value, list):
        raise row.error("wrong_type", f"{wanted}, and is {_named(value)}")
    turns = []
    for turn in value:
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(content, str):
            raise row.error("wrong_type", wanted + _share_gpt(turn))
        if role not in ROLES:
            meant = OTHER_ROLES.get(role.lower())
            hint = f"write '{meant}'" if meant else f"the roles are {', '.join(ROLES)}"
            raise row.error("unknown_role", f"'{row.name(column)}' has a turn of {role!r:.30}; {hint}")
        turns.append(Message(role, row.sound(column, content)))
    return tuple(turns)


def question(row: Row, column: str, turns: Sequence[Message]) -> tuple[Message, ...]:
    """The turns of a prompt: none empty, and the last one not the assistant's, since that is who is to answer."""
    if not turns:
        raise row.error("empty_prompt", f"the prompt in '{row.name(column)}' is empty; write one or remove the row")
    for number, turn in enumerate(turns, start=1):
        if not turn.content or turn.content.isspace():
            what = f"turn {number} ({turn.role}) of the prompt in '{row.name(column)}' is empty; remove it"
            raise row.error("empty_message", what)
    if turns[-1].role == "assistant":
        what = f"the prompt in '{row.name(column)}' ends with an answer of the assistant"
        raise row.error("ends_with_assistant", f"{what}; cut it off, or add the user's next turn")
    return tuple(turns)


def answer(row: Row, column: str, turns: Sequence[Message]) -> str:
    """The text of the assistant's one message."""
    if len(turns) != 1 or turns[0].role != "assistant":
        what = f"'{row.name(column)}' must hold exactly one answer of the assistant after the prompt"
        raise row.error("no_answer", what)
    return turns[0].content


def doubts(row: Row, turns: Sequence[Message]) -> list[Problem]:
    """What some chat templates refuse and others take."""
    problems = []
    roles = [turn.role for turn in turns]
    if roles[0] not in ("system", "developer", "user"):
        problems.append(
            (
                "starts_with_assistant",
                f"the conversation begins with a turn of {roles[0]}, which many chat templates refuse",
            )
        )
    twice = next((n for n in range(1, len(roles)) if roles[n] == roles[n - 1] != "tool"), None)
    if twice is not None:
        problems.append(("role_twice", f"turns {twice} and {twice + 1} are both of {roles[twice]}; join them into one"))
    if "system" in roles[1:]:
        problems.append(
            ("system_inside", "a system turn is not the first, which many chat templates refuse; move it there")
        )
    return [row.problem(kind, text) for kind, text in problems]


def _named(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _share_gpt(turn: Any) -> str:
    if isinstance(turn, dict) and "from" in turn and "value" in turn:
        return "; rename 'from' to 'role' and 'value' to 'content'"
    return ""
