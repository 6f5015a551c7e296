"""Who is asking, and may they: sessions, roles, cross-site requests, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Form, Header, Request
from starlette.datastructures import Headers

from holdfast.people.accounts import Role, Session
from holdfast.web.site import LOOPBACK, Site

SAFE = ("GET", "HEAD", "OPTIONS")
LARGEST_BODY = 256 * 1024

# Nothing from elsewhere, nothing inline, nothing framed: whatever text a page shows, it can run and fetch nothing.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Refused(Exception):
    """A request that is not answered: `status` and a sentence."""

    def __init__(self, status: int, words: str, retry_after: float = 0.0) -> None:
        super().__init__(words)
        self.status, self.words, self.retry_after = status, words, retry_after


@dataclass(frozen=True)
class Visitor:
    """Somebody who is logged in. `bearer` is set for programs, which no other site can make send anything."""

    session: Session
    token: str
    bearer: bool

    @property
    def name(self) -> str:
        return self.session.account.name

    @property
    def role(self) -> Role:
        return self.session.account.role

    @property
    def csrf(self) -> str:
        return self.session.csrf


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def cookie_name(port: int | None) -> str:
    """The session's cookie: browsers send cookies to every port of a machine, so each server has a name of its own."""
    return f"holdfast_session_{port or 0}"


def cookie_of(request: Request) -> str:
    server = request.scope.get("server")
    return cookie_name(server[1] if server else None)


def visitor_of(request: Request) -> Visitor | None:
    """Whose session the request carries: in a cookie, or as a bearer token."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = kind.lower() == "bearer"
    if not bearer:
        token = request.cookies.get(cookie_of(request), "")
    session = site_of(request).accounts.session(token) if token else None
    return None if session is None else Visitor(session, token, bearer)


def _netloc(address: str) -> str | None:
    """Host and port of an address; None for one that is malformed."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return None


def scheme_of(request: Request) -> str:
    """http or https as the browser has it: behind a proxy with TLS the request itself arrives as plain HTTP."""
    origin = request.headers.get("origin", "")
    return "https" if origin.startswith("https://") else request.url.scheme


def _hostname(host: str) -> str | None:
    """The name in a Host header; None where there is none or it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def check_origin(headers: Headers) -> None:
    """Refuse what another site has a browser send."""
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    if site not in ("same-origin", "none") or (origin and _netloc(origin) != headers.get("host", "")):
        raise Refused(403, "This request came from another site.")


def check_host(site: Site, headers: Headers) -> None:
    """On a local server refuse names that only point here, by which another site could read the pages."""
    if site.is_local and _hostname(headers.get("host", "")) not in LOOPBACK:
        raise Refused(400, "This server answers to localhost and 127.0.0.1 only.")


def _enter(request: Request, roles: tuple[Role, ...], csrf: str | None) -> Visitor:
    visitor = visitor_of(request)
    if visitor is None:
        raise Refused(401, "Log in first.")
    if visitor.role not in roles:
        raise Refused(403, f"This is not for a {visitor.role}.")
    if request.method not in SAFE and not visitor.bearer:
        check_origin(request.headers)
        if csrf is None or not compare_digest(csrf.encode(), visitor.csrf.encode()):
            raise Refused(403, "The form is out of date; load the page again and send it once more.")
    return visitor


def allowed(*roles: Role) -> Callable[..., Visitor]:
    """Lets these roles in; what changes something needs the session's token in a header."""

    def enter(request: Request, x_csrf_token: Annotated[str | None, Header(include_in_schema=False)] = None) -> Visitor:
        return _enter(request, roles, x_csrf_token)

    return enter


def allowed_form(*roles: Role) -> Callable[..., Visitor]:
    """The same for a form, which has the token in a field."""

    def enter(
        request: Request,
        csrf: Annotated[str | None, Form()] = None,
        x_csrf_token: Annotated[str | None, Header(include_in_schema=False)] = None,
    ) -> Visitor:
        return _enter(request, roles, csrf or x_csrf_token)

    return enter


TheSite = Annotated[Site, Depends(site_of)]
Anyone = Annotated[Visitor, Depends(allowed("owner", "labeller", "viewer"))]
Labelling = Annotated[Visitor, Depends(allowed("owner", "labeller"))]
Watching = Annotated[Visitor, Depends(allowed("owner", "viewer"))]
Owning = Annotated[Visitor, Depends(allowed("owner"))]
AnyoneForm = Annotated[Visitor, Depends(allowed_form("owner", "labeller", "viewer"))]
LabellingForm = Annotated[Visitor, Depends(allowed_form("owner", "labeller"))]
OwningForm = Annotated[Visitor, Depends(allowed_form("owner"))]
