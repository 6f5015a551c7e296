"""What a model is asked: a text, or the turns of a conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


# A plain prompt, or the turns of a conversation that the model is to answer.
Prompt = str | tuple[Message, ...]


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """A prompt as the list of messages a chat template takes."""
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    return [{"role": m.role, "content": m.content} for m in turns]


def as_sent(prompt: Prompt) -> str | list[dict[str, str]]:
    """A prompt as JSON holds it: a text, or a list of messages."""
    return prompt if isinstance(prompt, str) else messages_of(prompt)


def plain_text(prompt: Prompt) -> str:
    """A prompt as one text, for tokenizers without a chat template and for people."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m.role}: {m.content}" for m in prompt)
