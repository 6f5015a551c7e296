"""Pages from templates: text from a run or a person is escaped and made visible where it is printed."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from holdfast.report.page import DRAWN_STYLE, environment
from holdfast.web.security import Visitor, site_of, visitor_of

ASSETS = {
    "report.css": ("report", "text/css"),
    "site.css": ("web", "text/css"),
    "report.js": ("report", "text/javascript"),
    "label.js": ("web", "text/javascript"),
    "live.js": ("web", "text/javascript"),
    "icon.svg": ("web", "image/svg+xml"),
}

ENVIRONMENT = environment("holdfast.web")


def render(template: str, /, **values: Any) -> str:
    """A template as text."""
    return ENVIRONMENT.get_template(template).render(asset=asset_address, **values)


def page(
    request: Request, template: str, visitor: Visitor | None = None, /, status: int = 200, **values: Any
) -> HTMLResponse:
    """A whole page, with the navigation that its reader has."""
    site = site_of(request)
    here = request.url.path
    more = {"visitor": visitor, "run_name": site.run.name, "here": here, **values}
    return HTMLResponse(render(template, **more), status_code=status)


def wants_json(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def refusal(request: Request, status: int, words: str) -> HTMLResponse:
    """A page that says why not."""
    return page(request, "refused.html", visitor_of(request), status=status, words=words, status_code=status)


@cache
def asset_text(name: str) -> str:
    part, _ = ASSETS[name]
    place = resources.files(f"holdfast.{part}")
    folder = place if part == "report" else place.joinpath("static")
    text = folder.joinpath(name).read_text("utf-8")
    return text + DRAWN_STYLE if name == "report.css" else text


@cache
def asset_address(name: str) -> str:
    """Where a file of the pages is; it changes with what is in it, so that browsers may keep it."""
    return f"/static/{name}?{hashlib.sha256(asset_text(name).encode()).hexdigest()[:10]}"


def asset_response(name: str) -> Response | None:
    """A file of the pages, or None."""
    if name not in ASSETS:
        return None
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(asset_text(name), media_type=f"{ASSETS[name][1]}; charset=utf-8", headers=headers)
