"""Prompts and completions as TRL hands them over, in Holdfast's own types.

Shapes: B answers, T response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, Prompt
from holdfast.rollout.sampler import Rollout

# A prompt as a dataset for TRL has it: a text, or the turns of a conversation.
TRLPrompt = str | Sequence[Mapping[str, Any]]
# A row of such a dataset: the prompt, and the columns that reward functions are given beside it.
Row = Mapping[str, Any]


def prompt_of(prompt: TRLPrompt) -> Prompt:
    """A prompt; a conversation of one question is that question, which a chat template renders the same."""
    if isinstance(prompt, str):
        return prompt
    turns = tuple(Message(str(turn["role"]), content_of(turn)) for turn in prompt)
    return turns[0].content if len(turns) == 1 and turns[0].role == "user" else turns


def completion_of(completion: TRLPrompt) -> str:
    """The text of a completion; of several turns those that the model itself has said."""
    if isinstance(completion, str):
        return completion
    return "\n".join(content_of(turn) for turn in completion if turn["role"] == "assistant")


def completion_as(prompt: TRLPrompt, text: str) -> TRLPrompt:
    """A text as the completion of a prompt, in the prompt's own shape."""
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def content_of(turn: Mapping[str, Any]) -> str:
    """What a turn says, whether it is one text or parts."""
    content = turn.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if any(part.get("type") != "text" for part in content):
        raise HoldfastError("A message holds something other than text, and Holdfast reads text only.")
    return "".join(str(part["text"]) for part in content)


def texts_of(completions: Sequence[TRLPrompt]) -> list[str]:
    """Completions as people read them."""
    return [completion_of(completion) for completion in completions]


def rollout_of(
    prompts: list[list[int]], responses: list[list[int]], finished: Sequence[bool], texts: list[str]
) -> Rollout:
    """Answers whose likelihood is not known."""
    lengths = torch.tensor([len(ids) for ids in responses])
    mask_BT = torch.arange(int(lengths.max()) if len(lengths) else 0)[None] < lengths[:, None]
    return Rollout(prompts, responses, torch.full(mask_BT.shape, torch.nan), None, mask_BT, list(finished), texts=texts)
