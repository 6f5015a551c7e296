"""The reward service's HTTP: who is let in, the trainers' routes, versions, the watch.

A token comes as `Authorization: Bearer TOKEN`, as a part of the path (`/t/TOKEN/get_reward`) or as `?token=TOKEN`: two
of the trainers can send nothing but a URL. It is taken out of the path before anything else sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.serving.protocols import PROTOCOLS, TrainerProtocol, json_object
from holdfast.serving.service import Service, metrics_text
from holdfast.serving.tokens import Tokens
from holdfast.web.security import HEADERS, Refused

LARGEST_BODY = 8 * 1024 * 1024
OPEN = ("/health",)
ANSWERED_BY = "X-Holdfast-Version"


def create_app(service: Service, tokens: Tokens) -> ASGIApp:
    """The whole server of a service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    routes = [
        *(Route(protocol.path, _scoring(protocol), methods=["POST"]) for protocol in PROTOCOLS),
        Route("/versions", _versions, methods=["GET"]),
        Route("/versions", _use_version, methods=["POST"]),
        Route("/watch", _watch, methods=["GET"]),
        Route("/watch/restart", _restart, methods=["POST"]),
        Route("/metrics", _metrics, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=lifespan)
    app.state.service = service
    return Doorkeeper(app, tokens)


class Doorkeeper:
    """Lets in who has a token, takes the token out of the request, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, "Cache-Control": "no-store"}.items():
                    headers.setdefault(name, value)
            await send(message)

        scope, token = without_token(scope)
        role = self._tokens.role(token) if token else None
        if role is None and scope["path"] not in OPEN:
            words = "This token is not known here." if token else "This needs a token: `Authorization: Bearer TOKEN`."
            answer = JSONResponse({"detail": words}, 401, headers={"WWW-Authenticate": "Bearer"})
            await answer(scope, receive, dressed)
            return
        scope["state"] = {**scope.get("state", {}), "role": role}
        await self._app(scope, receive, dressed)


def without_token(scope: Scope) -> tuple[Scope, str]:
    """The request without its token, and the token: of the header, else of the path, else of the query."""
    authorization = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = authorization[0].decode("latin-1").partition(" ") if authorization else ("", "", "")
    if kind.lower() != "bearer":
        token = ""
    path = str(scope["path"])
    if path.startswith("/t/"):
        in_path, _, after = path.removeprefix("/t/").partition("/")
        path, token = f"/{after}", token or in_path
    query = parse_qsl(scope["query_string"].decode("latin-1"))
    token = token or next((value for name, value in query if name == "token"), "")
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    rest = urlencode([(name, value) for name, value in query if name != "token"]).encode()
    cleaned = {"path": path, "raw_path": path.encode("latin-1", "replace"), "query_string": rest, "headers": headers}
    return {**scope, **cleaned}, token.strip()


async def body_of(request: Request, largest: int = LARGEST_BODY) -> bytes:
    """The body, counted as it arrives: one that is sent in chunks does not say how long it will be."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > largest:
                raise Refused(413, f"The body is larger than {largest // 2**20} MB; send fewer answers at once.")
            parts.append(part)
    except ClientDisconnect:
        raise Refused(400, "The connection was closed before the body was complete.") from None
    return b"".join(parts)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _scoring(protocol: TrainerProtocol) -> Callable[[Request], Awaitable[Response]]:
    async def score(request: Request) -> Response:
        service, began, status = _service(request), perf_counter(), 500
        try:
            asked = protocol.read(await body_of(request))
            scored = await service.score(asked.asked)
            body, media_type = protocol.answer(scored, asked)
            status = 200
            return Response(body, 200, {ANSWERED_BY: str(scored.version)}, media_type)
        except Refused as refused:
            status = refused.status
            raise
        finally:
            service.tally.request(protocol.name, status, perf_counter() - began)

    return score


async def _versions(request: Request) -> Response:
    numbers = await asyncio.to_thread(_service(request).source.numbers)
    return JSONResponse({"in_use": _service(request).scorer.version, "versions": numbers})


def _owned(request: Request, what: str) -> None:
    if request.scope["state"]["role"] != "owner":
        raise Refused(403, f"{what} takes the owner's token.")


async def _use_version(request: Request) -> Response:
    _owned(request, "Changing the version")
    body = await body_of(request)
    version = json_object(body).get("version") if body.strip() else None
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise Refused(422, "version has to be a number, or left out for the version that the run uses.")
    return JSONResponse({"in_use": await _service(request).use(version)})


async def _watch(request: Request) -> Response:
    # In a thread: the watch may be at work, and nobody else should wait for it.
    return JSONResponse(await asyncio.to_thread(_service(request).watch.report))


async def _restart(request: Request) -> Response:
    _owned(request, "Beginning the baseline anew")
    await asyncio.to_thread(_service(request).watch.restart)
    return await _watch(request)


async def _metrics(request: Request) -> Response:
    text = await asyncio.to_thread(metrics_text, _service(request))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def health(request: Request) -> Response:
    """That the server is there; the only thing that it tells without a token."""
    return JSONResponse({"status": "ok"})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {"Retry-After": str(max(1, int(error.retry_after)))} if error.status == 503 else None
    return JSONResponse({"detail": error.words}, error.status, headers)


async def _bad(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 409)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing here.", 405: "This cannot be done here."}
    return JSONResponse({"detail": words.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


# How every refusal is said: a status, and one sentence in `detail`.
HANDLERS = {Refused: _refused, HoldfastError: _bad, HTTPException: _http}
