"""Reasons: kept with an answer, counted by whose answer was preferred, and gone with an answer that is taken back."""

import pytest

import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.errors import HoldfastError
from holdfast.people.queue import Conflict, LabelQueue
from holdfast.people.reasons import ReasonCount, preferred, read_reasons
from holdfast.preferences.store import PreferenceStore

TAGS = ("correct", "clear", "kind")


@pytest.fixture
def queue(url):
    with PreferenceStore.open(url) as store:
        queue = LabelQueue(store.database, "run", PeopleConfig(overlap=0.0, reasons=TAGS))
        web_site.put(store, queue, web_site.pairs(4))  # of round-0001 beside the reference
        queue.store = store
        yield queue


def answer(queue, version, *reasons):
    """Prefer the side of a version, with these reasons."""
    lease = queue.next("anna")
    said = "left" if lease.shown.a.provenance.policy_version == version else "right"
    queue.submit(f"key-{lease.comparison.id}", "anna", lease.token, said, reasons=reasons)


def test_reasons_are_counted_by_whose_answer_was_preferred(queue):
    answer(queue, "reference", "correct", "clear")
    answer(queue, "reference", "clear")
    answer(queue, "round-0001", "kind", "clear", "clear")
    lease = queue.next("anna")
    queue.submit("key-tie-1", "anna", lease.token, "tie", reasons=["kind"])
    assert read_reasons(queue.store.database, "run") == (
        ReasonCount("clear", later=1, earlier=2, neither=0),
        ReasonCount("correct", later=0, earlier=1, neither=0),
        ReasonCount("kind", later=1, earlier=0, neither=1),
    )
    assert read_reasons(queue.store.database, "another") == ()
    queue.undo("anna")
    assert read_reasons(queue.store.database, "run")[-1] == ReasonCount("kind", later=1, earlier=0, neither=0)


def test_a_skip_has_no_reason_and_one_that_is_not_offered_is_refused(queue):
    lease = queue.next("anna")
    with pytest.raises(HoldfastError, match=r"There is no reason '<b>' in people\.reasons"):
        queue.submit("key-odd-1", "anna", lease.token, "left", reasons=["<b>"])
    queue.submit("key-skip-1", "anna", lease.token, "skip", reasons=["correct"])
    assert read_reasons(queue.store.database, "run") == ()


def test_the_same_submission_again_has_the_same_reasons(queue):
    lease = queue.next("anna")
    sent = ("key-same-1", "anna", lease.token, "left")
    assert not queue.submit(*sent, reasons=["clear"]).again
    assert queue.submit(*sent, reasons=["clear"]).again
    with pytest.raises(Conflict, match="Another answer has this id"):
        queue.submit(*sent, reasons=["kind"])


@pytest.mark.parametrize(
    ("said", "a", "b", "whose"),
    [
        ("a", "round-0002", "reference", "later"),
        ("b", "round-0002", "reference", "earlier"),
        ("a", "round-0002", "round-0010", "earlier"),
        ("tie", "round-0002", "reference", "neither"),
        ("both_bad", "round-0002", "reference", "neither"),
        ("a", "reference", "reference", "neither"),
        ("a", "given", "reference", "neither"),
    ],
)
def test_whose_answer(said, a, b, whose):
    assert preferred(said, a, b) == whose
