"""The queue of questions that people answer: who gets which, for how long, and what they said.

    put -> next (a lease) -> submit -> label -> reveal   a comparison has a slot for each opinion that is wanted
                    \\-> skip, undo, note, flag

Everything that changes something is one transaction, alone in writing: a slot is never leased twice, and a label is
stored with the submission that brought it, or neither is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, and_, exists, func, insert, or_, select, update

from holdfast.config.schema import PeopleConfig
from holdfast.errors import HoldfastError
from holdfast.people.batches import LATE, URGENT, USUAL, LabelBatch, read_batches, unfinished
from holdfast.people.leases import FREE, able_people, standing_skips
from holdfast.people.reasons import check_reasons
from holdfast.preferences import records
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import checks, queue, remarks, submissions
from holdfast.preferences.records import RowDecoder, select_in
from holdfast.preferences.schema import comparisons
from holdfast.preferences.store import insert_labels, withdraw_label
from holdfast.randomness import place_of

Said = Literal["left", "right", "tie", "both_bad", "skip"]
# A pair is kept for one person so long, which is enough to read two long answers, then another may get it.
LEASE_MINUTES = 10.0
# So many people have to skip a comparison before it is left out: one may just not know the subject.
SKIPS = 2
# One pair in so many that a person sees is a check item, as long as there are any: few enough to cost little.
CHECK_EVERY = 20
LONGEST_NOTE = 2000
LONGEST_KEY = 64


class Conflict(HoldfastError):
    """What was asked cannot be done, because somebody else was first or it was done already."""


@dataclass(frozen=True)
class Lease:
    """A comparison that one person is to answer until `expires_at`; `swapped` puts its second side on the left."""

    token: str
    comparison: Comparison
    swapped: bool
    expires_at: float
    flagged: bool = False
    note: str = ""

    @property
    def shown(self) -> Comparison:
        """As the person sees it: the first side is the one on the left."""
        return self.comparison.swap() if self.swapped else self.comparison


@dataclass(frozen=True)
class Submitted:
    """What was stored of an answer; `again` if it was there already."""

    id: str
    comparison_id: str
    answer: str
    swapped: bool
    again: bool = False


@dataclass(frozen=True)
class Revealed:
    """What stood behind a pair: the ensemble's probability of the left side, and who wrote left and right."""

    claim_left: float | None
    versions: tuple[str, str]


class LabelQueue:
    """The questions of one run."""

    def __init__(
        self, database: Database, run: str, config: PeopleConfig, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self.run = run
        self._config = config
        self._clock = clock

    # ---- the run's side

    def put(self, batch: str, items: Sequence[Comparison], claims: Sequence[float | None], reason: str = "") -> float:
        """Ask about stored comparisons; those that are there already stay as they are. Returns when it began."""
        now = self._clock()
        with self._database.write() as connection:
            first = select(queue.c.comparison_id, queue.c.asked_at).where(queue.c.slot == 0)
            ids = [item.id for item in items]
            there: dict[str, float] = dict(iter(select_in(connection, first, queue.c.comparison_id, ids)))
            last = connection.execute(select(func.max(queue.c.place))).scalar() or 0
            rows = []
            for n, (item, claim) in enumerate(zip(items, claims, strict=True), start=1):
                if item.id in there:
                    continue
                rank = URGENT if item.purpose == "audit" else USUAL
                opinions = opinions_on(item.id, self._config.overlap)
                row = {
                    "comparison_id": item.id, "run": self.run, "batch": batch, "purpose": item.purpose,
                    "rank": rank, "place": last + n, "claim": claim, "asked_at": now, "state": "open",
                    "reason": reason,
                }  # fmt: skip
                rows += [{**row, "slot": slot} for slot in range(opinions)]
            if rows:
                connection.execute(insert(queue), rows)
        return min([*there.values(), now])

    def batch(self, name: str) -> LabelBatch | None:
        """How far a batch is."""
        with self._database.read() as connection:
            return next(iter(read_batches(connection, self.run, queue.c.batch == name)), None)

    def waiting(self) -> list[LabelBatch]:
        """The batches that the run waits for, the most urgent first."""
        with self._database.read() as connection:
            return read_batches(connection, self.run, unfinished(self.run))

    def close(self, batch: str) -> None:
        """The run goes on: what is still open of a batch is no longer urgent, but an answer is welcome."""
        late = update(queue).where(queue.c.run == self.run, queue.c.batch == batch, queue.c.state != "done")
        with self._database.write() as connection:
            connection.execute(late.values(rank=LATE))

    def put_checks(self, items: Sequence[tuple[Comparison, Choice]]) -> None:
        """Comparisons whose answer is known, to see who gives it; they are mixed in and never train."""
        known = [{"comparison_id": item.id, "run": self.run, "expected": choice.value} for item, choice in items]
        with self._database.write() as connection:
            there = connection.execute(select(checks.c.comparison_id).where(checks.c.run == self.run)).scalars()
            old = set(there)
            if new := [row for row in known if row["comparison_id"] not in old]:
                connection.execute(insert(checks), new)

    # ---- people's side

    def next(self, labeller: str) -> Lease | None:
        """The pair that a person is to answer now: what they hold already, or the most urgent one that is free."""
        now = self._clock()
        with self._database.write() as connection:
            held = self._held(connection, labeller, now)
            row = held or self._check_due(connection, labeller) or self._free(connection, labeller, now)
            if row is None:
                return None
            lease, until = secrets.token_urlsafe(24), now + 60.0 * LEASE_MINUTES
            swapped = bool(secrets.randbelow(2)) if row.swapped is None or row.holder != labeller else row.swapped
            if held is not None:
                lease = held.lease
            taken = {
                "state": "leased", "holder": labeller, "lease": lease, "swapped": swapped,
                "leased_at": now if held is None else held.leased_at, "expires_at": until,
            }  # fmt: skip
            connection.execute(update(queue).where(*_key(row.comparison_id, row.slot)).values(taken))
            return self._lease(connection, row, lease, swapped, until, labeller)

    def submit(
        self,
        submission_id: str,
        labeller: str,
        lease: str,
        said: Said,
        seconds: float | None = None,
        reasons: Sequence[str] = (),
    ) -> Submitted:
        """Store an answer with its reasons, or that somebody skips; once this returns it survives a crash.

        The same submission again gives the same result and stores nothing.
        """
        _check_key(submission_id)
        given = check_reasons(reasons, self._config.reasons) if said != "skip" else []
        now = self._clock()
        with self._database.write() as connection:
            if known := connection.execute(select(submissions).where(submissions.c.id == submission_id)).first():
                same = known.labeller, known.lease, known.answer, known.reasons
                if same != (labeller, lease, _side(said, known.swapped), given):
                    raise Conflict("Another answer has this id already; send it with an id of its own.")
                return _submitted(known, again=True)
            row = connection.execute(
                select(queue).where(queue.c.lease == lease, queue.c.holder == labeller, queue.c.run == self.run)
            ).first()
            if row is None:
                raise Conflict("This pair is no longer yours: the time for it ran out and somebody else has it.")
            if row.state != "leased":
                raise Conflict("This pair has been answered already; undo first to change the answer.")
            answer = _side(said, row.swapped)
            if answer != "skip" and row.purpose != "check":
                choice = Choice.TIE if answer == "both_bad" else Choice(answer)
                insert_labels(connection, [Label(row.comparison_id, labeller, choice)])
            entry = {
                "id": submission_id, "run": self.run, "labeller": labeller, "comparison_id": row.comparison_id,
                "slot": row.slot, "purpose": row.purpose, "lease": lease, "answer": answer, "swapped": row.swapped,
                "reasons": given, "seconds": seconds, "created_at": now,
            }  # fmt: skip
            connection.execute(insert(submissions), entry)
            self._settle(connection, row, answer)
            stored = connection.execute(select(submissions).where(submissions.c.id == submission_id)).one()
            return _submitted(stored)

    def reveal(self, submission_id: str, labeller: str) -> Revealed:
        """What the ensemble thought of a pair, and who wrote it; the answer stands from then on.

        Otherwise somebody could look, take the answer back and give one that is no longer blind.
        """
        asked = (submissions.c.id == submission_id, submissions.c.labeller == labeller, submissions.c.run == self.run)
        with self._database.write() as connection:
            row = connection.execute(select(submissions).where(*asked)).first()
            if row is None or row.answer == "skip" or row.undone_at is not None:
                raise Conflict("Only what stood behind an answer of yours can be shown, not behind a skip.")
            # An answered slot keeps its lease for as long as the answer may be taken back.
            connection.execute(update(queue).where(*_key(row.comparison_id, row.slot)).values(lease=None))
            return self._revealed(connection, row)

    def undo(self, labeller: str) -> Lease | None:
        """Take back a person's last answer or skip and lease its pair to them again; None if there is nothing.

        A skipped pair that somebody else has taken up is passed over. An answer that was looked behind stands.
        """
        now = self._clock()
        with self._database.write() as connection:
            last = self._last(connection, labeller)
            if last is None:
                return None
            slot = connection.execute(select(queue).where(*_key(last.comparison_id, last.slot))).one()
            if last.answer != "skip" and slot.lease is None:
                raise Conflict("You have seen what stood behind your last answer, so it can no longer be taken back.")
            connection.execute(update(submissions).where(submissions.c.seq == last.seq).values(undone_at=now))
            if last.answer != "skip" and last.purpose != "check":
                withdraw_label(connection, last.comparison_id, labeller)
            lease, until = secrets.token_urlsafe(24), now + 60.0 * LEASE_MINUTES
            again = {
                "state": "leased", "holder": labeller, "lease": lease, "swapped": last.swapped, "leased_at": now,
                "expires_at": until,
            }  # fmt: skip
            connection.execute(update(queue).where(*_key(last.comparison_id, last.slot)).values(again))
            return self._lease(connection, slot, lease, last.swapped, until, labeller)

    def remark(
        self, remark_id: str, labeller: str, lease: str, kind: Literal["note", "flag", "unflag"], text: str = ""
    ) -> None:
        """Keep a note or a flag on the pair that a person holds; the same remark again does nothing."""
        _check_key(remark_id)
        held = select(queue.c.comparison_id).where(
            queue.c.lease == lease, queue.c.holder == labeller, queue.c.run == self.run
        )
        with self._database.write() as connection:
            if connection.execute(select(remarks.c.seq).where(remarks.c.id == remark_id)).first():
                return
            comparison_id = connection.execute(held).scalar()
            if comparison_id is None:
                raise Conflict("This pair is no longer yours: the time for it ran out and somebody else has it.")
            row = {
                "id": remark_id, "comparison_id": comparison_id, "labeller": labeller, "kind": kind,
                "text": text[:LONGEST_NOTE], "created_at": self._clock(),
            }  # fmt: skip
            connection.execute(insert(remarks), row)

    def done_by(self, labeller: str) -> int:
        """How many pairs a person has answered in this run."""
        query = select(func.count()).where(
            submissions.c.labeller == labeller, submissions.c.run == self.run,
            submissions.c.undone_at.is_(None), submissions.c.answer != "skip",
        )  # fmt: skip
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    # ---- parts

    def _last(self, connection: Connection, labeller: str) -> Any:
        """A person's last answer or skip that is theirs to take back."""
        mine = (submissions.c.labeller == labeller, submissions.c.run == self.run, submissions.c.undone_at.is_(None))
        slot = and_(queue.c.comparison_id == submissions.c.comparison_id, queue.c.slot == submissions.c.slot)
        elsewhere = exists().where(slot, queue.c.holder != labeller, queue.c.state.in_(("leased", "done")))
        query = select(submissions).where(*mine, ~elsewhere).order_by(submissions.c.seq.desc()).limit(1)
        return connection.execute(query).first()

    def _held(self, connection: Connection, labeller: str, now: float) -> Any:
        """What a person holds, the newest first: an undone pair comes before the one it interrupted."""
        mine = select(queue).where(queue.c.holder == labeller, queue.c.run == self.run, queue.c.state == "leased")
        return connection.execute(mine.where(queue.c.expires_at >= now).order_by(queue.c.leased_at.desc())).first()

    def _free(self, connection: Connection, labeller: str, now: float) -> Any:
        seen = exists().where(
            submissions.c.comparison_id == queue.c.comparison_id,
            submissions.c.labeller == labeller,
            submissions.c.undone_at.is_(None),
        )
        other = queue.alias("other")
        holds = exists().where(
            other.c.comparison_id == queue.c.comparison_id, other.c.holder == labeller, other.c.slot != queue.c.slot,
            other.c.state.in_(("leased", "done")),
        )  # fmt: skip
        free = or_(
            queue.c.state == "open",
            and_(queue.c.state == "leased", or_(queue.c.expires_at < now, queue.c.holder == labeller)),
        )
        wanted = and_(queue.c.run == self.run, queue.c.state.in_(("open", "leased")), free, ~seen, ~holds)
        return connection.execute(
            select(queue).where(wanted).order_by(queue.c.rank, queue.c.place, queue.c.slot).limit(1)
        ).first()

    def _check_due(self, connection: Connection, labeller: str) -> Any:
        """A check item, every so many answers, that this person has not had."""
        mine = and_(submissions.c.labeller == labeller, submissions.c.run == self.run)
        every = CHECK_EVERY
        last = connection.execute(
            select(submissions.c.purpose).where(mine).order_by(submissions.c.seq.desc()).limit(every - 1)
        ).scalars()
        recent = list(last)
        if len(recent) < every - 1 or "check" in recent:
            return None
        had = exists().where(submissions.c.comparison_id == checks.c.comparison_id, submissions.c.labeller == labeller)
        unused = connection.execute(select(checks.c.comparison_id).where(checks.c.run == self.run, ~had)).scalars()
        # The order is the labeller's own, and always the same.
        ids = sorted(unused, key=lambda key: place_of(f"{labeller} {key}"))
        if not ids:
            return None
        slot = connection.execute(select(func.max(queue.c.slot)).where(queue.c.comparison_id == ids[0])).scalar()
        row = {
            "comparison_id": ids[0], "slot": 0 if slot is None else slot + 1, "run": self.run, "batch": "checks",
            "purpose": "check", "reason": "", "rank": 99, "place": 0, "asked_at": self._clock(), "state": "leased",
            "holder": labeller, "lease": secrets.token_urlsafe(24), "leased_at": self._clock(),
        }  # fmt: skip
        connection.execute(insert(queue), row)
        return connection.execute(select(queue).where(*_key(row["comparison_id"], row["slot"]))).one()

    def _settle(self, connection: Connection, row: Any, answer: str) -> None:
        """What an answer makes of its slot: done; or free for somebody else, or left out where enough have skipped."""
        slot = update(queue).where(*_key(row.comparison_id, row.slot))
        if answer != "skip" or row.purpose == "check":
            connection.execute(slot.values(state="done"))
            return
        connection.execute(slot.values(FREE))
        enough = min(SKIPS, able_people(connection))
        if connection.execute(select(standing_skips(row.comparison_id))).scalar_one() >= enough:
            left = update(queue).where(queue.c.comparison_id == row.comparison_id, queue.c.state == "open")
            connection.execute(left.values(state="dropped"))

    def _lease(self, connection: Connection, row: Any, lease: str, swapped: bool, until: float, labeller: str) -> Lease:
        query = records.comparison_query().where(comparisons.c.id == row.comparison_id)
        comparison = RowDecoder().comparison(connection.execute(query).one())
        rows = connection.execute(
            select(remarks.c.kind, remarks.c.text)
            .where(remarks.c.comparison_id == row.comparison_id, remarks.c.labeller == labeller)
            .order_by(remarks.c.seq)
        ).all()
        flags = [kind for kind, _ in rows if kind != "note"]
        notes = [text for kind, text in rows if kind == "note"]
        flagged = bool(flags) and flags[-1] == "flag"
        return Lease(lease, comparison, swapped, until, flagged, notes[-1] if notes else "")

    def _revealed(self, connection: Connection, row: Any) -> Revealed:
        claim = connection.execute(select(queue.c.claim).where(*_key(row.comparison_id, row.slot))).scalar_one()
        query = records.comparison_query().where(comparisons.c.id == row.comparison_id)
        item = RowDecoder().comparison(connection.execute(query).one())
        sides = (item.b, item.a) if row.swapped else (item.a, item.b)
        versions = (sides[0].provenance.policy_version, sides[1].provenance.policy_version)
        return Revealed(None if claim is None else 1.0 - claim if row.swapped else claim, versions)


def opinions_on(comparison_id: str, overlap: float) -> int:
    """How many people are to answer a comparison: two for the share that tells how far they agree."""
    return 2 if place_of(f"overlap {comparison_id}") < overlap else 1


def _submitted(row: Any, again: bool = False) -> Submitted:
    return Submitted(row.id, row.comparison_id, row.answer, row.swapped, again)


def _key(comparison_id: str, slot: int) -> tuple[Any, Any]:
    return queue.c.comparison_id == comparison_id, queue.c.slot == slot


def _side(said: Said, swapped: bool) -> str:
    """What was said of left and right, as said of the first side and the second."""
    if said in ("left", "right"):
        return "a" if (said == "left") != swapped else "b"
    return said


def _check_key(key: str) -> None:
    if not 8 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise HoldfastError(f"The id of a submission has 8 to {LONGEST_KEY} plain characters.")
