"""What somebody leaves behind who is shut out: pairs that they hold, and pairs that only they could have answered."""

from __future__ import annotations

from sqlalchemy import Connection, ScalarSelect, func, select, update

from holdfast.preferences.people_schema import accounts, queue, submissions

FREE = {"state": "open", "holder": None, "lease": None, "swapped": None, "expires_at": None}


def able_people(connection: Connection) -> int:
    """How many accounts may label; at least one, since a queue also works without accounts."""
    able = select(func.count()).where(accounts.c.role.in_(("owner", "labeller")), accounts.c.disabled_at.is_(None))
    return max(1, int(connection.execute(able).scalar_one()))


def standing_skips(comparison_id: object) -> ScalarSelect[int]:
    """How many people have skipped a comparison; who has been shut out no longer has a say."""
    gone = select(accounts.c.name).where(accounts.c.disabled_at.is_not(None))
    return (
        select(func.count(func.distinct(submissions.c.labeller)))
        .where(submissions.c.comparison_id == comparison_id, submissions.c.answer == "skip")
        .where(submissions.c.undone_at.is_(None), submissions.c.labeller.not_in(gone))
        .scalar_subquery()
    )


def free_leases(connection: Connection, name: str) -> None:
    """Hand what a person holds to others; a check item was for them alone."""
    held = update(queue).where(queue.c.holder == name, queue.c.state == "leased")
    connection.execute(held.where(queue.c.purpose == "check").values(state="dropped"))
    connection.execute(held.where(queue.c.purpose != "check").values(FREE))


def drop_unanswerable(connection: Connection) -> None:
    """Leave out what everybody who is left has skipped, so that no run waits for it."""
    everybody = standing_skips(queue.c.comparison_id) >= able_people(connection)
    hopeless = update(queue).where(queue.c.state == "open", everybody)
    connection.execute(hopeless.values(state="dropped"))
