"""A server that is asked in JSON over HTTP, and may be slow, busy, broken or away for a moment.

What fails in passing is asked again after a random wait that grows, until the tries or the seconds are used up. The
seconds count from the first connection to the last byte of the last try: on the event loop that all requests of a
process share, a request can be cut off wherever it is, also in a header that comes a byte at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from holdfast.documents import TOO_DEEP, json_of
from holdfast.errors import HoldfastError
from holdfast.remote.event_loop import event_loop
from holdfast.text import visible

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

# Further tries of a question that failed. The n-th wait is drawn between 0 and FIRST_WAIT * 2^n ("full jitter"), so
# that those who were turned away together do not come back together.
RETRIES = 3
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
# A connection that nobody accepts is given up early enough to try another.
CONNECT_SECONDS = 10.0
# An idle connection is not used again after this long: what lies between may have forgotten it without a word.
IDLE_SECONDS = 5.0
LONGEST_REMARK = 160
# Not one of the run's streams, which have to be the same whether a server was busy or not.
_jitter = random.SystemRandom()


@dataclass(frozen=True)
class RemoteService:
    """What is asked, in the words of a sentence about it.

    `key` is the environment variable with the key; `setting` has the address. `late` and `away` say what to do where it
    is slow or cannot be reached, and `like` how it should have answered. `proxied`: by way of the environment's proxy.
    """

    name: str
    url: str
    key: str
    setting: str
    like: str
    late: str
    away: str
    longest_reply: int
    proxied: bool = False


@dataclass(frozen=True)
class Reply:
    """A whole answer: JSON, or the beginning of its text where the status is an error and it is no JSON."""

    status: int
    document: Any
    retry_after: float = 0.0

    @property
    def good(self) -> bool:
        """Whether the question was answered."""
        return 200 <= self.status < 300

    @property
    def passing(self) -> bool:
        """Whether the status may be another one a little later."""
        return self.status in (408, 425, 429) or self.status >= 500

    @property
    def remark(self) -> str:
        """The server's own words about an error, after a colon and shortened."""
        reply = self.document
        error = reply.get("error", reply.get("detail", reply)) if isinstance(reply, dict) else reply
        text = error.get("message", error) if isinstance(error, dict) else error
        return f": {visible(' '.join(str(text).split())[:LONGEST_REMARK]).rstrip('.')}" if text else ""


class Unanswered(HoldfastError):
    """A question without an answer that could be used, after all tries."""


class Endpoint:
    """A service's address, with connections that are kept from one question to the next; any thread may ask."""

    def __init__(
        self, service: RemoteService, sleep: Callable[[float], None] = time.sleep, key: str | None = None
    ) -> None:
        self._service, self._sleep, self._key = service, sleep, key
        self._base = service.url.rstrip("/")
        self._line: _Line | None = None
        self._lock = threading.Lock()

    def ask(
        self,
        method: str,
        path: str,
        document: object,
        seconds: float,
        read: Callable[[Reply], T],
        retries: int = RETRIES,
    ) -> T:
        """What `read` makes of the reply. Where it refuses a good one with a HoldfastError, the question is repeated.

        It is given every reply that does not pass by itself, and the last one whatever it is.
        """
        body = json.dumps(document).encode("utf-8", "surrogatepass")
        end = time.monotonic() + seconds
        tries = 0
        while True:
            reply: Reply | None = None
            try:
                reply = self._once(method, path, body, end, seconds)
                if not reply.passing:
                    return read(reply)
            except HoldfastError as error:
                if isinstance(error, _Hopeless) or (reply is not None and not reply.good):
                    raise
                failure = error
            left = end - time.monotonic()
            pause = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**tries, left / 2) * _jitter.random()
            pause += reply.retry_after if reply is not None else 0.0
            if tries >= retries or pause >= left:
                if reply is not None and reply.passing:
                    return read(reply)
                raise failure
            self._sleep(pause)
            tries += 1

    def refusal(self, reply: Reply) -> HoldfastError:
        """What to say of a reply whose status is an error."""
        service, status = self._service, reply.status
        if 300 <= status < 400:
            words = f"sends elsewhere ({status}), which is not followed with the key: set {service.setting} to the "
            return HoldfastError(f"{service.name} {words}address itself.")
        if status in (401, 403):
            return HoldfastError(
                f"{service.name} answered {status}{reply.remark} and wants a key, or another one: set {service.key} in "
                "the environment."
            )
        later = f" and wants to be asked again in {reply.retry_after:g} seconds" if reply.retry_after else ""
        advice = f"; {service.late}" if reply.passing else f"; check {service.setting}" if status in (404, 405) else ""
        return HoldfastError(f"{service.name} answered {status}{reply.remark}{later}{advice}.")

    def strange(self, what: str = "") -> HoldfastError:
        """What to say of a reply that is not what such a service gives."""
        service = self._service
        shown = f" ({what})" if what else ""
        return Unanswered(f"{service.name} did not answer as {service.like} does{shown}; check {service.setting}.")

    def _once(self, method: str, path: str, body: bytes, end: float, seconds: float) -> Reply:
        service, line = self._service, self._connected()
        import httpx

        try:
            left = end - time.monotonic()
            status, headers, text = line.exchange(method, self._base + path, body, self._headers(), left)
        except TimeoutError as error:
            raise self._late(seconds) from error
        except _TooLong as error:
            raise self.strange(str(error)) from error
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            raise self.strange(_reason(error)) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise _Hopeless(
                f"{service.name} has an address that is none ({_reason(error)}); correct {service.setting}."
            ) from error
        except httpx.TimeoutException as error:
            raise Unanswered(f"{service.name} cannot be reached (no connection in time); {service.away}.") from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise Unanswered(f"{service.name} cannot be reached ({_reason(error)}); {service.away}.") from error
        wait = _seconds_in(headers.get("retry-after", ""))
        try:
            return Reply(status, json_of(text) if text else None, wait)
        except ValueError as error:
            if 200 <= status < 300:
                raise self.strange(TOO_DEEP if str(error) == TOO_DEEP else "it is no JSON") from None
            return Reply(status, text[: 4 * LONGEST_REMARK].decode("utf-8", "replace"), wait)

    def _late(self, seconds: float) -> HoldfastError:
        return Unanswered(f"{self._service.name} did not answer within {seconds:g} seconds; {self._service.late}.")

    def _headers(self) -> dict[str, str]:
        key = (self._key or os.environ.get(self._service.key, "")).strip()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise _Hopeless(f"The key in {self._service.key} has characters that no key has; set it again.")
        # Compressed, a small reply could become any size.
        plain = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        return {**plain, **({"Authorization": f"Bearer {key}"} if key else {})}

    def _connected(self) -> _Line:
        with self._lock:
            if self._line is None or self._line.process != os.getpid():  # a fork has none of its parent's threads
                self._line = _Line(self._service)
                weakref.finalize(self, self._line.hang_up)
            return self._line


class _Hopeless(HoldfastError):
    """Asking again would fail in the same way."""


class _TooLong(Exception):
    """A reply that goes on beyond what anybody needs."""


class _Line:
    """The connections to one service, which live on the process's event loop."""

    def __init__(self, service: RemoteService) -> None:
        self.process = os.getpid()
        self._longest = service.longest_reply
        self._loop = event_loop()
        self._client = _client(service)

    def exchange(
        self, method: str, url: str, body: bytes, headers: dict[str, str], seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer; a TimeoutError once the seconds are over, whatever was going on."""
        request = asyncio.run_coroutine_threadsafe(self._exchange(method, url, body, headers, seconds), self._loop)
        try:
            return request.result()
        except BaseException:  # the user may be in a hurry
            request.cancel()
            raise

    async def _exchange(
        self, method: str, url: str, body: bytes, headers: dict[str, str], seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        import httpx

        timeout = httpx.Timeout(None, connect=min(CONNECT_SECONDS, seconds / 4))
        parts, size = [], 0
        async with (
            asyncio.timeout(seconds),
            self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as reply,
        ):
            async for part in reply.aiter_raw():
                size += len(part)
                if size > self._longest:
                    raise _TooLong(f"more than {self._longest >> 20} MB")
                parts.append(part)
        return reply.status_code, reply.headers, b"".join(parts)

    def hang_up(self) -> None:
        if self.process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop)


def _client(service: RemoteService) -> httpx.AsyncClient:
    """Certificates are the system's. Redirects are not followed: they would carry the key to wherever they lead."""
    try:
        import httpx
    except ImportError:
        raise _Hopeless(f"Asking {shown(service.url)} needs httpx; run `pip install httpx`.") from None
    import ssl

    secure = urlsplit(service.url).scheme == "https"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_SECONDS)
    try:
        return httpx.AsyncClient(
            verify=ssl.create_default_context() if secure else False,
            limits=limits,
            proxy=_proxy_to(service.url) if service.proxied else None,
            trust_env=False,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise _Hopeless(
            f"The proxy that the environment names for {shown(service.url)} cannot be used ({_reason(error)}); correct "
            "it, or add the host to NO_PROXY."
        ) from error


def check_address(url: str, setting: str) -> None:
    """Refuse an address without a host, or with a port that is no number, before anybody is asked."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise HoldfastError(
            f"{setting} is {url.rpartition('@')[2]!r}, which is no server's address; write it like "
            "http://127.0.0.1:8000."
        )


def shown(url: str) -> str:
    """An address to print: without a name and password, should it carry any."""
    try:
        parts = urlsplit(url)
    except ValueError:
        bare = url.rpartition("@")[2]
        raise HoldfastError(f"{bare!r} is not a server's address; write it like http://127.0.0.1:8000.") from None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _proxy_to(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc.rpartition("@")[2]) else getproxies().get(parts.scheme)


def _reason(error: BaseException) -> str:
    """What went wrong beneath an error, in the system's words where it has any."""
    cause: BaseException | None = error
    words = ""
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OSError) and cause.errno is not None:
            # asyncio writes addresses into its words for an error; those of a name that is not found are its own.
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        words = words or str(cause)
        cause = cause.__cause__ or cause.__context__
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return visible((lines[0] if lines else type(error).__name__)[:LONGEST_REMARK]).rstrip(".")


def _seconds_in(text: str) -> float:
    """A Retry-After: seconds, or a date; 0 where it is neither."""
    text = text.strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
