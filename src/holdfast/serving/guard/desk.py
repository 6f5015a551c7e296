"""What the client is asked for and advised to do, and its replies: the guard's side waits here for the trainer's.

Questions and replies are stored before anybody is told of them. A review that is done again after a kill asks the same
questions, finds the replies that came in before, and waits for the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Interrupted
from holdfast.serving.guard.records import GuardRecords, Settled
from holdfast.web.security import Refused

# How often whoever waits looks whether the server is to end.
LOOK_SECONDS = 0.5


class GuardDesk:
    """Open needs and actions, by their ids and in order; the review's thread waits, those of requests reply."""

    def __init__(self, records: GuardRecords) -> None:
        self.records = records
        self.needs: dict[str, Mapping[str, Any]] = {}
        self.actions: dict[str, Mapping[str, Any]] = {}
        self._news = threading.Condition()
        self._closed = False

    # ---- the guard's side

    def ask(self, name: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The client's answer to a question; waits for it."""
        name, known = self._place_of(name, question)
        if known is not None and known[1] is not None:
            return known[1]
        if known is None:
            self.records.add_need(name, question)
        with self._news:
            self.needs[name] = question
            self._wait(self.needs, name)
        answered = self.records.need(name)
        assert answered is not None
        assert answered[1] is not None
        return answered[1]

    def known(self, name: str, question: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """An answer that is there already."""
        _, known = self._place_of(name, question)
        return None if known is None else known[1]

    def note(self, name: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep an answer that was had without the client."""
        name, known = self._place_of(name, question)
        if known is None:
            self.records.add_need(name, question)
        self.records.answer_need(name, answer)

    def advise(self, name: str, advice: Mapping[str, Any]) -> None:
        """Tell the client to do something; `outcome` waits for what it did."""
        known = self.records.action(name)
        if known is None:
            self.records.add_action(name, advice)
        if known is None or known[1] is None:
            with self._news:
                self.actions[name] = advice

    def outcome(self, name: str) -> Settled:
        """What the client reports of an advised action; waits for it."""
        with self._news:
            self._wait(self.actions, name)
        settled = self.records.action(name)
        assert settled is not None
        assert settled[1] is not None
        return settled[1]

    def _place_of(
        self, name: str, question: Mapping[str, Any]
    ) -> tuple[str, tuple[Mapping[str, Any], Mapping[str, Any] | None] | None]:
        """A question's id. People who answer late may change what a review that is done again asks."""
        free, number = name, 1
        while (known := self.records.need(free)) is not None and known[0] != question:
            number += 1
            free = f"{name}.{number}"
        return free, known

    def _wait(self, among: Mapping[str, object], name: str) -> None:
        self._news.notify_all()
        while name in among:
            if self._closed:
                raise Interrupted
            self._news.wait(LOOK_SECONDS)

    def close(self) -> None:
        """Nobody waits any more."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def clear(self) -> None:
        """What is open is asked again by whoever goes on."""
        with self._news:
            self.needs.clear()
            self.actions.clear()

    # ---- the client's side

    def question(self, name: str) -> Mapping[str, Any]:
        """What a need asks for."""
        known = self.records.need(name)
        if known is None:
            raise Refused(
                404, f"There is no need called {name!r:.60}; those that are open are in the training's state."
            )
        return known[0]

    def answer(self, name: str, answer: Mapping[str, Any]) -> None:
        """The client's answer to a need; the first one counts."""
        self.records.answer_need(name, answer)
        with self._news:
            self.needs.pop(name, None)
            self._news.notify_all()

    def report(self, name: str, report: Mapping[str, Any]) -> None:
        """What the client did about an action; the first report counts."""
        if self.records.action(name) is None:
            raise Refused(
                404, f"There is no action called {name!r:.60}; those that are open are in the training's state."
            )
        self.records.settle_action(name, report)
        with self._news:
            self.actions.pop(name, None)
            self._news.notify_all()
