"""The application: routes from one file for each page, and what holds for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.people.queue import Conflict
from holdfast.web import api, api_page, dashboard, labelling, login, owners, runs, samples
from holdfast.web.renderer import asset_response, refusal, wants_json
from holdfast.web.security import HEADERS, LARGEST_BODY, SAFE, Refused, check_host
from holdfast.web.site import Site

TOO_MUCH = "That is too much at once."
WORDS = {404: "There is nothing here.", 405: "This cannot be done here.", 413: TOO_MUCH}
PARTS = (login, labelling, dashboard, samples, runs, owners, api_page, api)


def create_app(site: Site) -> FastAPI:
    """The whole server of a site."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        site.live.start(lambda data: dashboard.draw(data, site))
        yield
        site.close()

    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Labelling, quality and the state of a run. Log in with POST /api/v1/session and send its token as "
        "`Authorization: Bearer TOKEN`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.state.site = site
    for part in PARTS:
        app.include_router(part.router)
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HoldfastError, _bad)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(BodyLimit)
    app.middleware("http")(_guarded)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    return app


class BodyLimit:
    """Counts a body as it arrives: one that is sent in chunks does not say how long it will be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > LARGEST_BODY:
                # Of this kind, since reading a form or JSON takes any other error for a body that is malformed.
                raise HTTPException(413)
            return message

        await self._app(scope, counted, send)


async def _guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """What holds for every request, whatever it asks for."""
    try:
        check_host(request.app.state.site, request.headers)
        length = request.headers.get("content-length", "0")
        if request.method not in SAFE and (not length.isdigit() or int(length) > LARGEST_BODY):
            raise Refused(413, TOO_MUCH)
        response = await call_next(request)
    except Refused as error:
        response = JSONResponse({"detail": error.words}, error.status)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _static(name: str) -> Response:
    asset = asset_response(name)
    if asset is None:
        raise HTTPException(404)
    return asset


def _answer(request: Request, status: int, words: str) -> Response:
    if wants_json(request):
        return JSONResponse({"detail": words}, status)
    return refusal(request, status, words)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    if error.status == 401 and not wants_json(request) and request.method in SAFE:
        return RedirectResponse("/login", 303)
    response = _answer(request, error.status, error.words)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after:
        response.headers["Retry-After"] = str(int(error.retry_after) + 1)
    return response


def _bad(request: Request, error: Exception) -> Response:
    return _answer(request, 409 if isinstance(error, Conflict) else 400, str(error))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _answer(request, error.status_code, WORDS.get(error.status_code, str(error.detail)))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0] if error.errors() else {"loc": (), "msg": "not valid"}
    where = ".".join(str(part) for part in first["loc"])
    return _answer(request, 422, f"{where}: {first['msg']}".encode("utf-8", "replace").decode())
