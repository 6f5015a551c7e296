"""The trainers' own words: what each of them sends, and what each expects back.

    OpenRLHF  POST /get_reward    {"query", "prompts", "labels"}      -> {"rewards", "scores", "extra_logs"}
    slime     POST /slime         {"prompt", "response", "label"}     -> a number
    OAT       POST /get_feedback  msgpack {"batch_prompt", "batch_response", "batch_candidates"}
                                                                      -> {"batch_score", "batch_first_win_prob"}
    plain     POST /score         {"prompts", "responses"} or {"messages"} or one of each -> version, answers

In the trainers' own an empty answer is scored as the end token alone: a policy may well say nothing, and a trainer
that is refused would stop. Their labels are what a rule compares with: a reward that is given reads them as the column
`label`, and an ensemble has no use for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.documents import json_of
from holdfast.models.prompt import Message, Prompt
from holdfast.serving.encoder import AnswerToScore
from holdfast.serving.scorer import ScoredRequest
from holdfast.web.security import Refused

MOST_ANSWERS = 1024


@dataclass(frozen=True)
class TrainerRequest:
    """The answers to be scored; with `pairs` each two of them are to be compared."""

    asked: Sequence[AnswerToScore]
    pairs: bool = False


@dataclass(frozen=True)
class TrainerProtocol:
    """How a trainer's request is read, and how it is answered: a body and its media type."""

    name: str
    path: str
    read: Callable[[bytes], TrainerRequest]
    answer: Callable[[ScoredRequest, TrainerRequest], tuple[bytes, str]]


# --- reading ----------------------------------------------------------------------------------------------------


def json_object(body: bytes) -> Mapping[str, Any]:
    """The body as a JSON object."""
    try:
        document = json_of(body)
    except ValueError:
        raise Refused(400, "The body is not JSON.") from None
    return _object(document)


def _object(document: object) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise Refused(422, f"The body is {_kind(document)}, but it has to be an object with fields.")
    return document


def text_of(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(422, f"{what} is {_kind(value)}, but it has to be text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(422, f"{what} is not valid text: half of a surrogate pair stands alone.") from None
    return value


def list_of(value: object, what: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise Refused(422, f"{what} is {_kind(value)}, but it has to be a list.")
    if len(value) > MOST_ANSWERS:
        raise Refused(413, f"{what} holds {len(value)} entries; send at most {MOST_ANSWERS} at once.")
    return value


def message_of(value: object, what: str) -> Message:
    """One turn; content in parts is joined where all of them are text."""
    if not isinstance(value, Mapping) or "role" not in value or "content" not in value:
        raise Refused(422, f"{what} is not a message with role and content.")
    content = value["content"]
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"]
        if len(parts) < max(1, len(content)) or any(not isinstance(part, str) for part in parts):
            raise Refused(422, f"{what} has parts that are not text, which the ensemble cannot see.")
        content = "".join(str(part) for part in parts)
    return Message(text_of(value["role"], f"the role of {what}"), text_of(content, f"the content of {what}"))


def prompt_of(value: object, what: str) -> Prompt:
    """A text, or the turns of a conversation."""
    if isinstance(value, list | tuple):
        return tuple(message_of(turn, f"message {i} of {what}") for i, turn in enumerate(list_of(value, what)))
    return text_of(value, what)


def _equal(many: Mapping[str, Sequence[Any]]) -> int:
    """How many there are, where all lists have to be of one length and hold something."""
    counts = {len(values) for values in many.values()}
    if len(counts) != 1:
        words = " and ".join(f"{len(values)} {name}" for name, values in many.items())
        raise Refused(422, f"There are {words}; send as many of the one as of the other.")
    if counts == {0}:
        raise Refused(422, f"{' and '.join(many)} are empty, so there is nothing to score.")
    return counts.pop()


def _field(document: Mapping[str, Any], name: str) -> Any:
    if name not in document:
        have = ", ".join(sorted(map(str, document))[:9]) or "none"
        raise Refused(422, f"The field {name!r} is missing; there are {have}.")
    return document[name]


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"of type {type(value).__name__}")


# --- OpenRLHF ---------------------------------------------------------------------------------------------------


def read_openrlhf(body: bytes) -> TrainerRequest:
    document = json_object(body)
    queries = list_of(_field(document, "query"), "query")
    prompts = list_of(_field(document, "prompts"), "prompts")
    count = _equal({"query": queries, "prompts": prompts})
    labels = list_of(document.get("labels") or [None] * count, "labels")
    _equal({"query": queries, "labels": labels})
    return TrainerRequest(
        [
            AnswerToScore(
                text_of(prompts[i], f"prompts[{i}]"),
                text_of(queries[i], f"query[{i}]"),
                True,
                may_be_empty=True,
                columns=_labelled(labels[i]),
            )
            for i in range(count)
        ]
    )


def answer_openrlhf(scored: ScoredRequest, request: TrainerRequest) -> tuple[bytes, str]:
    """`rewards` are the scores; `scores`, by which OpenRLHF filters prompts, have to lie between 0 and 1."""
    version = [float(scored.version)] * len(request.asked)
    logs = {"ensemble_spread": scored.spreads, "ensemble_version": version}
    if scored.given:
        logs = {name: list(values) for name, values in scored.components.items()}
    squashed = [1.0 / (1.0 + math.exp(-max(-500.0, x))) for x in scored.all_scores()]
    return _json({"rewards": scored.scores, "scores": squashed, "extra_logs": logs})


# --- slime ------------------------------------------------------------------------------------------------------


def read_slime(body: bytes) -> TrainerRequest:
    document = json_object(body)
    prompt = prompt_of(_field(document, "prompt"), "prompt")
    response, columns = text_of(_field(document, "response"), "response"), _labelled(document.get("label"))
    return TrainerRequest([AnswerToScore(prompt, response, may_be_empty=True, columns=columns)])


def answer_slime(scored: ScoredRequest, request: TrainerRequest) -> tuple[bytes, str]:
    return _json(scored.all_scores()[0])


# --- OAT --------------------------------------------------------------------------------------------------------


def read_oat(body: bytes) -> TrainerRequest:
    """Answers one by one, or two candidates for each prompt, which then stand next to each other."""
    document = _object(_unpacked(body))
    batch = list_of(_field(document, "batch_prompt"), "batch_prompt")
    prompts = [text_of(prompt, f"batch_prompt[{i}]") for i, prompt in enumerate(batch)]
    pairs = list_of(document.get("batch_candidates") or [], "batch_candidates")
    if pairs:
        _equal({"batch_prompt": prompts, "batch_candidates": pairs})
        asked = []
        for i, pair in enumerate(pairs):
            sides = list_of(pair, f"batch_candidates[{i}]")
            if len(sides) != 2:
                raise Refused(422, f"batch_candidates[{i}] holds {len(sides)} answers, but it has to hold 2.")
            asked += [_silent(prompts[i], text_of(side, f"batch_candidates[{i}]")) for side in sides]
        return TrainerRequest(asked, pairs=True)
    responses = list_of(document.get("batch_response") or [], "batch_response")
    _equal({"batch_prompt": prompts, "batch_response": responses})
    return TrainerRequest([_silent(prompts[i], text_of(r, f"batch_response[{i}]")) for i, r in enumerate(responses)])


def answer_oat(scored: ScoredRequest, request: TrainerRequest) -> tuple[bytes, str]:
    if not request.pairs:
        return _packed({"batch_score": scored.all_scores(), "batch_first_win_prob": []})
    wins = [scored.first_wins(i, i + 1) for i in range(0, len(request.asked), 2)]
    return _packed({"batch_score": [], "batch_first_win_prob": wins})


def _silent(prompt: str, text: str) -> AnswerToScore:
    return AnswerToScore(prompt, text, may_be_empty=True)


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise Refused(501, "OAT speaks msgpack, which is not installed here: pip install msgpack.") from None
    return msgpack


def _unpacked(body: bytes) -> object:
    msgpack = _msgpack()
    try:
        return msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException):
        raise Refused(400, "The body is not msgpack.") from None


def _packed(document: Mapping[str, Any]) -> tuple[bytes, str]:
    packed: bytes = _msgpack().packb(document)
    return packed, "application/msgpack"


# --- plain ------------------------------------------------------------------------------------------------------


def read_plain(body: bytes) -> TrainerRequest:
    """Prompts with responses, or conversations whose last message is the answer; lists of them, or one."""
    document = json_object(body)
    empty = document.get("allow_empty", False)
    if not isinstance(empty, bool):
        raise Refused(422, f"allow_empty is {_kind(empty)}, but it has to be true or false.")
    if "messages" in document:
        sent = list_of(document["messages"], "messages")
        one = bool(sent) and isinstance(sent[0], Mapping)
        conversations = [sent] if one else sent
        _equal({"messages": conversations})
        return TrainerRequest([_conversation(turns, f"messages[{i}]", empty) for i, turns in enumerate(conversations)])
    if "prompt" in document:
        document = {"prompts": [document["prompt"]], "responses": [_field(document, "response")]}
    prompts = list_of(_field(document, "prompts"), "prompts")
    responses = list_of(_field(document, "responses"), "responses")
    count = _equal({"prompts": prompts, "responses": responses})
    rows = list_of(document.get("columns") or [{}] * count, "columns")
    _equal({"prompts": prompts, "columns": rows})
    return TrainerRequest(
        [
            AnswerToScore(
                prompt_of(prompts[i], f"prompts[{i}]"),
                text_of(responses[i], f"responses[{i}]"),
                may_be_empty=empty,
                columns=_object(rows[i]),
            )
            for i in range(count)
        ]
    )


def _conversation(turns: object, what: str, empty: bool) -> AnswerToScore:
    prompt = prompt_of(list_of(turns, what), what)
    assert isinstance(prompt, tuple)
    if len(prompt) < 2 or prompt[-1].role != "assistant":
        raise Refused(422, f"{what} does not end with a message of the assistant after one of somebody else.")
    return AnswerToScore(prompt[:-1], prompt[-1].content, may_be_empty=empty)


def answer_plain(scored: ScoredRequest, request: TrainerRequest) -> tuple[bytes, str]:
    if scored.given:
        given = [_given(scored, place) for place in range(len(request.asked))]
        return _json({"version": scored.version, "answers": given})
    answers = [
        {"score": score, "spread": scored.spreads[i], "members": scored.members(i)}
        for i, score in enumerate(scored.scores)
    ]
    return _json({"version": scored.version, "answers": answers})


def _given(scored: ScoredRequest, place: int) -> dict[str, Any]:
    """One answer's score with its components, or why it has none."""
    if place in scored.unscored:
        return {"score": None, "reason": scored.unscored[place]}
    components = {name: values[place] for name, values in scored.components.items() if not math.isnan(values[place])}
    return {"score": scored.scores[place], "components": components}


def _labelled(label: object) -> dict[str, Any]:
    """What a trainer sends as the label of a prompt, as a column of its row."""
    return {} if label is None else {"label": label}


def _json(document: object) -> tuple[bytes, str]:
    return json.dumps(document, allow_nan=False).encode(), "application/json"


PROTOCOLS = (
    TrainerProtocol("openrlhf", "/get_reward", read_openrlhf, answer_openrlhf),
    TrainerProtocol("slime", "/slime", read_slime, answer_slime),
    TrainerProtocol("oat", "/get_feedback", read_oat, answer_oat),
    TrainerProtocol("plain", "/score", read_plain, answer_plain),
)
