"""The guard's HTTP: trainings, their batches, what they are asked for, and what they did.

    PUT  /trainings/NAME            begin one, or find it again
    GET  /trainings, /trainings/NAME, /trainings/NAME/settings
                                    where it is: what is needed, what is advised, the verdict; how it was begun
    POST /trainings/NAME/batches    answers of a step, or of a part of one
    POST /trainings/NAME/answers    answers or rewards that were asked for
    POST /trainings/NAME/actions    what was done about an advice
    POST /trainings/NAME/end        the last step was made
    POST /trainings/NAME/resume     go on after a stop or a failure

Every reply about a training is its state. `?wait=SECONDS` has it wait until nothing is under way but what the client
itself is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast.serving.app import HANDLERS, Doorkeeper, body_of, health
from holdfast.serving.guard.service import GuardService
from holdfast.serving.guard.training import Training
from holdfast.serving.protocols import json_object
from holdfast.serving.tokens import Tokens
from holdfast.web.security import Refused

LONGEST_WAIT = 60.0
# A thousand long answers.
LARGEST_BODY = 64 * 1024 * 1024
LOOK_SECONDS = 0.02


def create_app(service: GuardService, tokens: Tokens) -> ASGIApp:
    """The whole server of a directory's trainings."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        await asyncio.to_thread(service.close)

    one = "/trainings/{name}"
    routes = [
        Route("/trainings", _trainings, methods=["GET"]),
        Route(one, _begin, methods=["PUT"]),
        Route(one, _state, methods=["GET"]),
        Route(f"{one}/settings", _settings, methods=["GET"]),
        Route(f"{one}/batches", _doing(Training.post), methods=["POST"]),
        Route(f"{one}/answers", _doing(Training.answer), methods=["POST"]),
        Route(f"{one}/actions", _doing(Training.report), methods=["POST"]),
        Route(f"{one}/end", _doing(lambda training, document: training.end()), methods=["POST"]),
        Route(f"{one}/resume", _doing(lambda training, document: training.resume()), methods=["POST"]),
        Route("/health", health, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=lifespan)
    app.state.service = service
    return Doorkeeper(app, tokens)


def _service(request: Request) -> GuardService:
    service: GuardService = request.app.state.service
    return service


async def _trainings(request: Request) -> Response:
    states = [training.state() for _, training in sorted(_service(request).trainings.items())]
    shown = ("training", "state", "waits_for", "batches", "answers", "verdict")
    return JSONResponse({"trainings": [{name: state[name] for name in shown} for state in states]})


async def _begin(request: Request) -> Response:
    document, name = json_object(await body_of(request, LARGEST_BODY)), request.path_params["name"]
    new = await asyncio.to_thread(_service(request).begin, name, document)
    return await _told(request, {"new": new}, 201 if new else 200)


async def _settings(request: Request) -> Response:
    return JSONResponse(_service(request).training(request.path_params["name"]).settings.document())


async def _state(request: Request) -> Response:
    return await _told(request, {})


def _doing(act: Callable[[Training, Mapping[str, Any]], bool | None]) -> Callable[[Request], Awaitable[Response]]:
    """A route that does something to a training, and answers with its state once that is stored."""

    async def route(request: Request) -> Response:
        body = await body_of(request, LARGEST_BODY)
        training = _service(request).training(request.path_params["name"])
        document = json_object(body) if body.strip() else {}
        new = await asyncio.to_thread(act, training, document)
        return await _told(request, {} if new is None else {"new": new})

    return route


async def _told(request: Request, more: Mapping[str, Any], status: int = 200) -> Response:
    training = _service(request).training(request.path_params["name"])
    end = time.monotonic() + _wait_of(request)
    while not training.settled and time.monotonic() < end:
        await asyncio.sleep(LOOK_SECONDS)
    return JSONResponse({**training.state(), **more}, status)


def _wait_of(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST_WAIT:
        raise Refused(422, f"wait is {text!r:.40}; it has to be a number of seconds from 0 to {LONGEST_WAIT:g}.")
    return seconds
