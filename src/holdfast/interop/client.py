"""What the clients of our services have in common: one endpoint for each service, and replies that are objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.remote.endpoint import Endpoint, RemoteService, Reply, shown
from holdfast.remote.reward_service import LONGEST_REPLY


def place_of(url: str | None, token: str | None, url_name: str, token_name: str, what: str) -> tuple[str, str]:
    """Address and token of a service: those that were given, else what the environment says."""
    url, token = url or os.environ.get(url_name, ""), token or os.environ.get(token_name, "")
    for name, value in ((url_name, url), (token_name, token)):
        if not value:
            raise HoldfastError(f"Where is {what}? Set {url_name} and {token_name}; {name} is empty.")
    return url.rstrip("/"), token.strip()


@lru_cache(32)
def endpoint_of(
    url: str, token: str, sleep: Callable[[float], None], name: str, key: str, setting: str, like: str, late: str
) -> Endpoint:
    """One for all clients of a service, so that they share its connections. Straight to it: it is no one's outside."""
    service = RemoteService(
        name=f"{name} at {shown(url)}",
        url=url,
        key=key,
        setting=setting,
        like=like,
        late=late,
        away="start it, and go on",
        longest_reply=LONGEST_REPLY,
    )
    return Endpoint(service, sleep, key=token)


def asked(
    endpoint: Endpoint,
    method: str,
    path: str,
    document: Mapping[str, Any],
    timeout: float,
    retries: int,
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda reply: reply,
) -> dict[str, Any]:
    """The object that a service replies with, which `read` may refuse."""

    def checked(reply: Reply) -> dict[str, Any]:
        if not reply.good:
            raise endpoint.refusal(reply)
        if not isinstance(reply.document, dict):
            raise endpoint.strange()
        return read(reply.document)

    return endpoint.ask(method, path, document, timeout, checked, retries)
