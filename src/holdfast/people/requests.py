"""What owners ask of a run that is under way: written here by the web page, carried out by the loop at a safe point."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import insert, select, update

from holdfast.errors import HoldfastError
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import requests

OwnerAction = Literal["pause", "resume", "audit", "rollback", "reward", "beta", "budget"]
ACTIONS: tuple[OwnerAction, ...] = ("pause", "resume", "audit", "rollback", "reward", "beta", "budget")
_ARGUMENTS: Mapping[str, Sequence[str]] = {
    "rollback": ("checkpoint",), "reward": ("version",), "beta": ("value",), "budget": ("value",)
}  # fmt: skip
LONGEST_REASON = 500
# Of beta, of the budget and of a version: far beyond any use, and far from where arithmetic ends.
LARGEST_VALUE = 1e6


@dataclass(frozen=True)
class OwnerRequest:
    """One thing that an owner asks for. `state` is asked, done, refused or withdrawn."""

    id: int
    action: OwnerAction
    arguments: Mapping[str, Any]
    reason: str
    asked_by: str
    asked_at: float
    state: str
    outcome: str | None
    settled_at: float | None


class RequestStore:
    """The requests to one run."""

    def __init__(self, database: Database, run: str) -> None:
        self._database = database
        self._run = run

    def ask(
        self, key: str, action: OwnerAction, arguments: Mapping[str, Any], reason: str, asked_by: str
    ) -> OwnerRequest:
        """Write a request down; the same key again gives the request that is there already."""
        row = {
            "run": self._run,
            "key": key,
            "action": action,
            "arguments": checked(action, arguments),
            "reason": reason[:LONGEST_REASON],
            "asked_by": asked_by,
            "asked_at": time.time(),
            "state": "asked",
        }
        with self._database.write() as connection:
            stored = connection.execute(select(requests).where(requests.c.key == key)).first()
            if stored is None:
                connection.execute(insert(requests), row)
                stored = connection.execute(select(requests).where(requests.c.key == key)).one()
        request = _request(stored)
        if (stored.run, request.action, request.asked_by) != (self._run, action, asked_by):
            raise HoldfastError("Another request has this id already; send it with an id of its own.")
        return request

    def pending(self) -> list[OwnerRequest]:
        """What has been asked for and not been settled, oldest first."""
        return self._read(requests.c.state == "asked", newest_first=False, limit=100)

    def recent(self, limit: int = 20) -> list[OwnerRequest]:
        """The newest requests, settled or not, newest first."""
        return self._read(requests.c.id > 0, newest_first=True, limit=limit)

    def settle(self, request_id: int, state: Literal["done", "refused"], outcome: str) -> None:
        """Say what became of a request; one that is settled stays as it is."""
        change = update(requests).where(requests.c.id == request_id, requests.c.state == "asked")
        with self._database.write() as connection:
            connection.execute(change.values(state=state, outcome=outcome, settled_at=time.time()))

    def withdraw(self, request_id: int) -> bool:
        """Take back a request that has not been carried out."""
        change = update(requests).where(requests.c.id == request_id, requests.c.run == self._run)
        with self._database.write() as connection:
            done = connection.execute(
                change.where(requests.c.state == "asked").values(state="withdrawn", settled_at=time.time())
            )
        return done.rowcount == 1

    def _read(self, which: Any, newest_first: bool, limit: int) -> list[OwnerRequest]:
        order = requests.c.id.desc() if newest_first else requests.c.id
        query = select(requests).where(requests.c.run == self._run, which).order_by(order).limit(limit)
        with self._database.read() as connection:
            return [_request(row) for row in connection.execute(query)]


def checked(action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an action, or a sentence about them."""
    if action not in ACTIONS:
        raise HoldfastError(f"There is no action {action[:40]!r}; the actions are {', '.join(ACTIONS)}.")
    wanted = _ARGUMENTS.get(action, ())
    if set(arguments) != set(wanted):
        raise HoldfastError(f"The action {action} takes {' and '.join(wanted) or 'no argument'}.")
    if "value" in arguments:
        value = arguments["value"]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_VALUE:
            raise HoldfastError(f"The {action} has to be a number above 0, and at most a million.")
        return {"value": float(value)}
    if "checkpoint" in arguments:
        name = arguments["checkpoint"]
        if not isinstance(name, str) or not 0 < len(name) <= 100 or "\0" in name:
            raise HoldfastError("A rollback needs the name of a checkpoint.")
        return {"checkpoint": name}
    if "version" in arguments:
        version = arguments["version"]
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version <= LARGEST_VALUE:
            raise HoldfastError("A version of the reward ensemble is a whole number, from 1 on.")
        return {"version": version}
    return {}


def _request(row: Any) -> OwnerRequest:
    return OwnerRequest(
        row.id, row.action, row.arguments, row.reason, row.asked_by, row.asked_at, row.state, row.outcome,
        row.settled_at,
    )  # fmt: skip
