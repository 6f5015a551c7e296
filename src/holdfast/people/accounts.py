"""Who may come in: accounts with a role, sessions, and invitations. Only hashes of secrets are stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Connection, Select, delete, func, insert, select, update

from holdfast.errors import HoldfastError
from holdfast.people.leases import drop_unanswerable, free_leases
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import accounts, invitations, sessions

Role = Literal["owner", "labeller", "viewer"]

SESSION_SECONDS = 14 * 24 * 3600.0
INVITATION_SECONDS = 7 * 24 * 3600.0
SERVER = "the server"  # who makes the first invitation; no person can have a name with a space
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,59}")


@dataclass(frozen=True)
class Account:
    """A person and what they may do."""

    id: int
    name: str
    role: Role
    disabled: bool = False


@dataclass(frozen=True)
class Session:
    """Somebody who is logged in; `csrf` has to come with everything that changes something."""

    account: Account
    csrf: str


@dataclass(frozen=True)
class Invitation:
    """A role that is offered to whoever has the link, or a new password for the account of that name."""

    role: Role
    made_by: str
    expires_at: float
    account: str | None = None


class AccountStore:
    """Accounts, sessions and invitations of one database."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, hasher: PasswordHasher | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._hasher = hasher or PasswordHasher()

    @cached_property
    def _nobody(self) -> str:
        """Checked where there is no such account, so that a wrong name takes as long as a wrong password."""
        return self._hasher.hash(secrets.token_urlsafe(16))

    def any(self) -> bool:
        """Whether there is an account that may log in as an owner."""
        with self._database.read() as connection:
            return connection.execute(_owners().limit(1)).first() is not None

    def all(self) -> list[Account]:
        """Everybody, by name."""
        with self._database.read() as connection:
            return [_account(row) for row in connection.execute(select(accounts).order_by(accounts.c.name))]

    def create(self, name: str, password: str, role: Role) -> Account:
        """A new account; a name that is taken and a password that is too short are refused."""
        hashed = self._checked(name, password)
        with self._database.write() as connection:
            return self._insert(connection, name, hashed, role)

    def disable(self, name: str) -> None:
        """Shut somebody out, with the links they have made; what they hold goes to others.

        What they have labelled stays, and so does their name. The last owner stays in.
        """
        with self._database.write() as connection:
            active = accounts.c.disabled_at.is_(None)
            row = connection.execute(select(accounts).where(accounts.c.folded == folded(name), active)).first()
            if row is None:
                raise HoldfastError(f"There is no account {name[:60]!r} to disable.")
            owners = select(func.count()).select_from(accounts).where(accounts.c.role == "owner", active)
            if row.role == "owner" and connection.execute(owners).scalar_one() == 1:
                raise HoldfastError("The last owner cannot be disabled; make another owner first.")
            connection.execute(update(accounts).where(accounts.c.id == row.id).values(disabled_at=self._clock()))
            connection.execute(delete(sessions).where(sessions.c.account_id == row.id))
            _void_invitations(connection, row.name)
            _void_resets(connection, row.name)
            free_leases(connection, row.name)
            drop_unanswerable(connection)

    def enable(self, name: str) -> None:
        """Let somebody in again who was shut out, with the password that they had; their skips count again."""
        with self._database.write() as connection:
            row = self._known(connection, name)
            if row.disabled_at is None:
                raise HoldfastError(f"The account {row.name} is not disabled.")
            connection.execute(update(accounts).where(accounts.c.id == row.id).values(disabled_at=None))

    def forgotten(self, name: str, made_by: str) -> str:
        """The secret of a link with which one person sets a new password; an earlier one then leads nowhere."""
        with self._database.write() as connection:
            row = self._known(connection, name)
            if row.disabled_at is not None:
                raise HoldfastError(f"The account {row.name} is disabled; enable it first.")
            _void_resets(connection, row.name)
            return self._make_link(connection, row.role, made_by, row.name)

    def set_password(self, token: str, password: str) -> Account:
        """Set the password of the account that a link is for; the link is used up, and its sessions end."""
        hashed = self._hashed(password)
        with self._database.write() as connection:
            link = connection.execute(self._open_invitation(token)).first()
            row = None if link is None or link.account is None else self._known(connection, link.account)
            if link is None or row is None or row.disabled_at is not None:
                raise HoldfastError("This link has been used or is too old; ask for another one.")
            used = update(invitations).where(invitations.c.token == link.token)
            connection.execute(used.values(used_at=self._clock(), used_by=row.name))
            connection.execute(update(accounts).where(accounts.c.id == row.id).values(password=hashed))
            connection.execute(delete(sessions).where(sessions.c.account_id == row.id))
            return _account(row)

    @staticmethod
    def _known(connection: Connection, name: str) -> Any:
        row = connection.execute(select(accounts).where(accounts.c.folded == folded(name))).first()
        if row is None:
            raise HoldfastError(f"There is no account {name[:60]!r}.")
        return row

    def check_password(self, name: str, password: str) -> Account | None:
        """The account, if the name, in any case, and the password are right and it is not disabled."""
        query = select(accounts).where(accounts.c.folded == folded(name), accounts.c.disabled_at.is_(None))
        with self._database.read() as connection:
            row = connection.execute(query).first() if _NAME.fullmatch(folded(name)) else None
        try:
            # Outside of any transaction: it takes its time on purpose.
            self._hasher.verify(self._nobody if row is None else row.password, password[:LONGEST_PASSWORD])
        except (VerificationError, InvalidHashError):
            return None
        return None if row is None else _account(row)

    def open_session(self, account: Account) -> tuple[str, Session]:
        """A token for the account's browser, and the session behind it."""
        token, csrf, now = secrets.token_urlsafe(32), secrets.token_urlsafe(24), self._clock()
        row = {"token": _digest(token), "account_id": account.id, "csrf": csrf, "created_at": now}
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires_at < now))
            connection.execute(insert(sessions), {**row, "expires_at": now + SESSION_SECONDS})
        return token, Session(account, csrf)

    def session(self, token: str) -> Session | None:
        """The session of a token; None for one that is unknown, ended, too old, or of a disabled account."""
        query = (
            select(accounts, sessions.c.csrf)
            .join(sessions, sessions.c.account_id == accounts.c.id)
            .where(sessions.c.token == _digest(token), sessions.c.expires_at >= self._clock())
            .where(accounts.c.disabled_at.is_(None))
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else Session(_account(row), row.csrf)

    def close_session(self, token: str) -> None:
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.token == _digest(token)))

    def invite(self, role: Role, made_by: str) -> str:
        """The secret of a link with which one person makes an account of that role."""
        with self._database.write() as connection:
            return self._make_link(connection, role, made_by)

    def _make_link(self, connection: Connection, role: str, made_by: str, account: str | None = None) -> str:
        token, now = secrets.token_urlsafe(24), self._clock()
        row = {"token": _digest(token), "role": role, "account": account, "made_by": made_by, "created_at": now}
        connection.execute(insert(invitations), {**row, "expires_at": now + INVITATION_SECONDS})
        return token

    def invitation(self, token: str) -> Invitation | None:
        """The invitation of a link, if nobody has used it and it is not too old."""
        with self._database.read() as connection:
            row = connection.execute(self._open_invitation(token)).first()
        return None if row is None else Invitation(row.role, row.made_by, row.expires_at, row.account)

    def accept(self, token: str, name: str, password: str) -> Account:
        """Make the account that an invitation offers; the link is then used up."""
        hashed = self._checked(name, password)
        with self._database.write() as connection:
            row = connection.execute(self._open_invitation(token)).first()
            if row is None or row.account is not None:
                raise HoldfastError("This invitation has been used or is too old; ask for another one.")
            used = update(invitations).where(invitations.c.token == row.token)
            connection.execute(used.values(used_at=self._clock(), used_by=name))
            return self._insert(connection, name, hashed, row.role)

    def _open_invitation(self, token: str) -> Select[Any]:
        query = select(invitations).where(invitations.c.token == _digest(token), invitations.c.used_at.is_(None))
        return query.where(invitations.c.expires_at >= self._clock())

    def _checked(self, name: str, password: str) -> str:
        """The hash of a password, if name and password will do."""
        if not _NAME.fullmatch(name):
            raise HoldfastError("A name has 1 to 60 letters, digits, dots, dashes, underscores or @, no spaces.")
        return self._hashed(password)

    def _hashed(self, password: str) -> str:
        if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise HoldfastError(f"A password needs at least {SHORTEST_PASSWORD} characters; a few words will do.")
        try:
            return self._hasher.hash(password)
        except UnicodeEncodeError:
            raise HoldfastError("The password is not valid Unicode; choose another.") from None

    def _insert(self, connection: Connection, name: str, hashed: str, role: Role) -> Account:
        same = select(accounts.c.name).where(accounts.c.folded == folded(name))
        if (taken := connection.execute(same).scalar()) is not None:
            differs = "" if taken == name else f" by {taken}, and names that differ in case only are one"
            raise HoldfastError(f"The name {name} is taken{differs}; choose another.")
        if role == "owner" and connection.execute(_owners()).first() is None:
            # Every start without an account has printed a link; one owner is enough to make further ones.
            _void_invitations(connection, SERVER)
        row = {"name": name, "folded": folded(name), "role": role, "password": hashed, "created_at": self._clock()}
        number = connection.execute(insert(accounts).values(row).returning(accounts.c.id)).scalar_one()
        return Account(int(number), name, role)


def folded(name: str) -> str:
    """A name as it is compared: who writes it in another case, or in another form of the same letters, is the same."""
    return unicodedata.normalize("NFKC", name).casefold()


def _owners() -> Select[Any]:
    return select(accounts.c.id).where(accounts.c.role == "owner", accounts.c.disabled_at.is_(None))


def _void_invitations(connection: Connection, made_by: str) -> None:
    """Links that nobody has used yet lead nowhere from now on."""
    connection.execute(delete(invitations).where(invitations.c.made_by == made_by, invitations.c.used_at.is_(None)))


def _void_resets(connection: Connection, account: str) -> None:
    """Links to a new password of this account lead nowhere from now on."""
    connection.execute(delete(invitations).where(invitations.c.account == account, invitations.c.used_at.is_(None)))


def _account(row: Any) -> Account:
    return Account(row.id, row.name, row.role, row.disabled_at is not None)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
