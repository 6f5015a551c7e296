"""A reward service over HTTP, in our own words, OpenRLHF's or slime's. Its address says which:

    ends in /score, or has no path   ours        {"prompts", "responses"}       -> {"answers": [{"score"}]}
    ends in /get_reward              OpenRLHF's  {"query", "prompts", "labels"} -> {"rewards"}
    ends in /slime                   slime's     {"prompt", "response", "label"} -> a number

Any other is sent one answer with the fields of all three at the start, and what it answers says which it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holdfast.models.prompt import Prompt, as_sent, plain_text
from holdfast.remote.endpoint import Endpoint, RemoteService, Reply, check_address, shown
from holdfast.remote.reward_service import LONGEST_REPLY, TOKEN
from holdfast.reward.outcome import OneScore, Unscored, read_outcome
from holdfast.reward.scores import Asked, Columns, Scores, scores_of
from holdfast.reward.sources.overlap import side_by_side
from holdfast.reward.sources.plain import Nature
from holdfast.reward.sources.workers import Allowance
from holdfast.text import listed

# Which column of the prompt's row is sent as the label: the first that there is.
LABELS = ("label", "ground_truth", "answer", "target")


@dataclass(frozen=True)
class Shape:
    """One way of asking and of answering; `read` gives None where an answer is not of this shape."""

    ending: str
    body: Callable[[Prompt, str, Columns], dict[str, Any]]
    read: Callable[[Any], OneScore | Unscored | None]


def _ours(prompt: Prompt, answer: str, columns: Columns) -> dict[str, Any]:
    return {"prompts": [as_sent(prompt)], "responses": [answer], "allow_empty": True}


def _read_ours(reply: Any) -> OneScore | Unscored | None:
    answers = reply.get("answers") if isinstance(reply, Mapping) else None
    if not isinstance(answers, list) or len(answers) != 1 or not isinstance(answers[0], Mapping):
        return None
    (answer,) = answers
    if answer.get("score") is None:
        return Unscored(str(answer.get("reason") or "the service gave no score"))
    components = answer.get("components")
    return read_outcome({**(components if isinstance(components, Mapping) else {}), "score": answer["score"]})


def _openrlhf(prompt: Prompt, answer: str, columns: Columns) -> dict[str, Any]:
    text = plain_text(prompt)
    return {"query": [text + answer], "prompts": [text], "labels": [_label(columns)]}


def _read_openrlhf(reply: Any) -> OneScore | Unscored | None:
    rewards = reply.get("rewards") if isinstance(reply, Mapping) else None
    return read_outcome(rewards[0]) if isinstance(rewards, list) and len(rewards) == 1 else None


def _slime(prompt: Prompt, answer: str, columns: Columns) -> dict[str, Any]:
    return {"prompt": as_sent(prompt), "response": answer, "label": _label(columns)}


def _read_slime(reply: Any) -> OneScore | Unscored | None:
    return read_outcome(reply) if isinstance(reply, int | float) and not isinstance(reply, bool) else None


OURS = Shape("/score", _ours, _read_ours)
SHAPES = (OURS, Shape("/get_reward", _openrlhf, _read_openrlhf), Shape("/slime", _slime, _read_slime))


class ServiceSource:
    """One request for each answer, as OpenRLHF and slime send them: what fails with one fails with one."""

    nature = Nature()

    def __init__(
        self,
        url: str,
        allowance: Allowance,
        setting: str = "reward.source",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_address(url, setting)
        path = urlsplit(url).path.rstrip("/")
        address = url.rstrip("/") + ("" if path else OURS.ending)
        self.name, self._allowance = shown(address), allowance
        service = RemoteService(
            name=f"the reward service {shown(address)}",
            url=address,
            key=TOKEN,
            setting=setting,
            like="a reward service",
            late="raise reward.timeout_seconds or lower reward.parallel",
            away=f"start it, or correct {setting}",
            longest_reply=LONGEST_REPLY,
            proxied=True,
        )
        self._endpoint = Endpoint(service, sleep)
        known = next((shape for shape in SHAPES if (path or OURS.ending).endswith(shape.ending)), None)
        self._shape = known or self._probed()

    def score(self, asked: Asked) -> Scores:
        """Each answer by itself, so many at once."""

        def one(row: int) -> OneScore | Unscored:
            body = self._shape.body(asked.prompts[row], asked.answers[row], asked.columns_of(row))
            return self._answer(body, [self._shape])[1]

        return scores_of(side_by_side(one, range(len(asked)), self._allowance.parallel), {})

    def close(self) -> None:
        """There is nothing to let go of."""

    def _probed(self) -> Shape:
        """The shape in which a request with the fields of all is answered."""
        body = {name: value for shape in SHAPES for name, value in shape.body("Say hello.", "Hello.", {}).items()}
        return self._answer(body, SHAPES)[0]

    def _answer(self, body: Mapping[str, Any], shapes: Sequence[Shape]) -> tuple[Shape, OneScore | Unscored]:
        """What is answered, and in which of these shapes."""

        def read(reply: Reply) -> tuple[Shape, OneScore | Unscored]:
            if not reply.good:
                raise self._endpoint.refusal(reply)
            for shape in shapes:
                if (found := shape.read(reply.document)) is not None:
                    return shape, found
            raise self._endpoint.strange(f"not as one at {listed([s.ending for s in shapes])}")

        return self._endpoint.ask("POST", "", body, self._allowance.seconds, read)


def _label(columns: Columns) -> Any:
    return next((columns[name] for name in LABELS if columns.get(name) is not None), None)
