"""Which refreshes of a run count, and which were refused."""

from holdfast.report.data import EventRow, RunData


def refresh_events(run: RunData) -> list[EventRow]:
    """The refreshes that the gate let through, one per ensemble version: a resumed run may have written one twice.

    After a rollback versions may be numbered again, and then each counts.
    """
    by_version: dict[tuple[int, int], EventRow] = {}
    rollbacks = 0
    for event in run.events:
        rollbacks += event.kind == "rollback"
        if event.kind == "refresh" and not event.refused:
            key = event.fields["version"], rollbacks
            by_version.pop(key, None)
            by_version[key] = event
    return list(by_version.values())


def refused_events(run: RunData) -> list[EventRow]:
    """The refreshes that the gate refused."""
    return [event for event in run.events if event.refused]
