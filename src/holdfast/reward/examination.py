"""Asking members about labels they have not learnt from, before a refresh and after it.

held out   no member learns from them, ever                        -> anyone may be asked
trained    the member whose fold it is never learns from it        -> that one is asked, before and after
new        the version in use has learnt from none of them         -> anyone may be asked before the refresh
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.preferences.pair import Pair
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.evidence import Stance
from holdfast.reward.replay import fold_of
from holdfast.reward.training import unseen_by


@dataclass(frozen=True)
class Enquiry:
    """A labelled comparison, the member that is asked about it, and whether the candidate may be asked as well."""

    pair: Pair
    member: int
    fresh: bool
    unseen: bool


def about_held_out(pairs: Sequence[Pair], members: int, fresh: bool) -> list[Enquiry]:
    """Questions about labels that nobody learns from."""
    return [Enquiry(p, fold_of(p.key) % members, fresh, True) for p in pairs]


def about_trained(pairs: Sequence[Pair], members: int, fresh: bool) -> list[Enquiry]:
    """Questions about labels that members learn from; of those that are not new only to one who never does."""
    enquiries = []
    for pair in pairs:
        member = unseen_by(pair.key, members)
        if member is not None:
            enquiries.append(Enquiry(pair, member, fresh, True))
        elif fresh:
            enquiries.append(Enquiry(pair, fold_of(pair.key) % members, True, False))
    return enquiries


def log_odds(ensemble: Ensemble, questions: Sequence[Enquiry]) -> list[float]:
    """Each asked member's log-odds that people prefer the first side."""
    if not questions:
        return []
    return ensemble.opinion_margins([q.pair for q in questions], [q.member for q in questions]).tolist()


def opinions(questions: Sequence[Enquiry], old: Sequence[float], new: Sequence[float]) -> list[Stance]:
    """What both versions said; `new` has the candidate's answers to the questions it could be asked, in order."""
    answers = iter(new)
    return [
        Stance(
            round=q.pair.round,
            share=q.pair.share_a,
            old=before,
            new=next(answers) if q.unseen else None,
            longer=len(q.pair.a) - len(q.pair.b),
            fresh=q.fresh,
        )
        for q, before in zip(questions, old, strict=True)
    ]
