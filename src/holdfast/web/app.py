"""The application: routes from one file for each page, and what holds for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.preferences.queue import Conflict
from holdfast.web import api, api_page, browsing, comparing, dashboard, entering, labelling, owning
from holdfast.web.pages import asset_response, refusal, wants_json
from holdfast.web.security import HEADERS, LARGEST_BODY, SAFE, Refused, check_host
from holdfast.web.site import Site

PARTS = (entering, labelling, dashboard, browsing, comparing, owning, api_page, api)


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
    app.middleware("http")(_guarded)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    return app


async def _guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """What holds for every request, whatever it asks for."""
    try:
        check_host(request.app.state.site, request.headers)
        length = request.headers.get("content-length", "0")
        if request.method not in SAFE and (not length.isdigit() or int(length) > LARGEST_BODY):
            raise Refused(413, "That is too much at once.")
        response = await call_next(request)
    except Refused as error:
        response = JSONResponse({"detail": error.words}, error.status)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _static(name: str) -> Response:
    found = asset_response(name)
    if found is None:
        raise HTTPException(404)
    return found


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
    words = {404: "There is nothing here.", 405: "This cannot be done here."}.get(error.status_code, str(error.detail))
    response = _answer(request, error.status_code, words)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0] if error.errors() else {"loc": (), "msg": "not valid"}
    where = ".".join(str(part) for part in first["loc"])
    return _answer(request, 422, f"{where}: {first['msg']}".encode("utf-8", "replace").decode())
