"""Logging in and out, and making an account with an invitation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from holdfast.errors import HoldfastError
from holdfast.people.accounts import SESSION_SECONDS, Account, folded
from holdfast.web.renderer import page
from holdfast.web.security import AnyoneForm, Refused, TheSite, check_origin, cookie_of, scheme_of, visitor_of
from holdfast.web.site import Site

router = APIRouter(include_in_schema=False)

Field = Annotated[str, Form(max_length=2000)]


@router.get("/login")
def login_page(request: Request) -> Response:
    visitor = visitor_of(request)
    return RedirectResponse(home_of(visitor.role), 303) if visitor else page(request, "login.html", words="", name="")


@router.post("/login")
def login(request: Request, site: TheSite, name: Field = "", password: Field = "") -> Response:
    check_origin(request.headers)
    account = check_login(request, site, name, password)
    if account is None:
        words = "Name or password is not right."
        return page(request, "login.html", status=401, words=words, name=name[:60])
    return welcome(request, site, account)


def check_login(request: Request, site: Site, name: str, password: str) -> Account | None:
    """The account, None if name and password are wrong; too many wrong ones have to wait."""
    keys = (f"from {request.client.host if request.client else ''}", f"as {folded(name[:200])}")
    if wait := site.logins.begin(*keys):
        raise Refused(429, f"Too many tries; wait {wait:.0f} seconds.", wait)
    account = site.accounts.check_password(name, password)
    if account is not None:
        site.logins.succeeded(*keys)
    return account


@router.post("/logout")
def logout(request: Request, visitor: AnyoneForm, site: TheSite) -> Response:
    site.accounts.close_session(visitor.token)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(cookie_of(request))
    return response


@router.get("/join/{token}")
def join_page(request: Request, site: TheSite, token: str) -> Response:
    invitation = site.accounts.invitation(token)
    if invitation is None:
        raise Refused(404, "This invitation has been used or is too old; ask for another one.")
    return page(request, "join.html", invitation=invitation, token=token, words="", name="")


@router.post("/join/{token}")
def join(request: Request, site: TheSite, token: str, name: Field = "", password: Field = "") -> Response:
    check_origin(request.headers)
    invitation = site.accounts.invitation(token)
    if invitation is None:
        raise Refused(404, "This invitation has been used or is too old; ask for another one.")
    try:
        if invitation.account is not None:
            account = site.accounts.set_password(token, password)
        else:
            account = site.accounts.accept(token, name.strip(), password)
    except HoldfastError as error:
        return page(
            request, "join.html", status=400, invitation=invitation, token=token, words=str(error), name=name[:60]
        )
    return welcome(request, site, account)


def welcome(request: Request, site: Site, account: Account) -> Response:
    """A new session, and on to where the person works."""
    token, _ = site.accounts.open_session(account)
    response = RedirectResponse(home_of(account.role), 303)
    response.set_cookie(
        cookie_of(request), token, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict",
        secure=scheme_of(request) == "https",
    )  # fmt: skip
    return response


def home_of(role: str) -> str:
    return "/label" if role == "labeller" else "/"
