"""What the store keeps and gives back, on SQLite and PostgreSQL alike."""

import random
from dataclasses import replace

import pytest
from sqlalchemy import Engine, create_engine, event, text

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.preferences import label_seal, records
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.label_seal import LabelSeal
from holdfast.preferences.store import PreferenceStore, StoreCounts

A, B, TIE = Choice.A, Choice.B, Choice.TIE


def response(words: str, number: int = 0) -> Response:
    return Response(words, Provenance("policy-1", number, 7), token_ids=(1, 2, 3), finished=False)


def comparison(key: str, number: int = 0, a: str = "yes", b: str = "no") -> Comparison:
    return Comparison(key, f"question {key}", response(a, number), response(b, number), number)


@pytest.fixture
def store(url):
    with PreferenceStore.open(url) as opened:
        yield opened


def test_comparisons_come_back_equal_after_reopening(url):
    talk = (Message("system", "be brief"), Message("user", "hello"))
    given = [
        comparison("1"),
        Comparison("2", talk, Response("hi", Provenance("v", 3, 2**64 - 1)), response("ho"), 3),
        Comparison("3", "", Response("", Provenance("v", 0, -1), token_ids=()), response(""), 0),
    ]
    with PreferenceStore.open(url) as store:
        assert store.add_comparisons(given) == 3
    with PreferenceStore.open(url) as store:
        assert store.unlabelled() == given


def test_adding_a_comparison_twice_stores_it_once(store):
    assert store.add_comparisons([comparison("1"), comparison("1"), comparison("2")]) == 2
    assert store.add_comparisons([comparison("2"), comparison("3")]) == 1
    assert store.counts().comparisons == 3


@pytest.mark.parametrize(
    "changed",
    [
        comparison("1", number=1),
        comparison("1", a="other"),
        comparison("1").swap(),
        Comparison("1", "other", response("yes"), response("no"), 0),
        Comparison("1", (Message("user", "question 1"),), response("yes"), response("no"), 0),
    ],
)
def test_the_same_id_with_other_content_is_refused_and_nothing_is_added(store, changed):
    store.add_comparisons([comparison("1")])
    for batch in ([comparison("2"), changed], [comparison("3"), comparison("1"), changed]):
        with pytest.raises(HoldfastError, match="Comparison 1 is already there"):
            store.add_comparisons(batch)
    assert store.unlabelled() == [comparison("1")]


def test_a_response_in_many_comparisons_is_stored_once(url):
    with PreferenceStore.open(url) as store:
        store.add_comparisons([comparison(str(i), a="same", b=f"other {i % 2}") for i in range(6)])
        store.add_comparisons([comparison("more", a="same", b="other 0")])
    with create_engine(url).connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM responses")).scalar() == 3


def test_the_same_answer_is_stored_once(store):
    store.add_comparisons([comparison("1")])
    assert store.add_labels([Label("1", "anna", A), Label("1", "anna", A)]) == 1
    assert store.add_labels([Label("1", "anna", A)]) == 0
    assert store.add_labels([Label("1", "ben", A)]) == 1
    assert store.counts().labels == 2


def test_the_newest_answer_of_each_labeller_counts_and_older_ones_stay(store):
    store.add_comparisons([comparison("1")])
    for choice, new in [(A, 1), (B, 1), (B, 0), (A, 1)]:
        assert store.add_labels([Label("1", "anna", choice)]) == new
        (item,) = store.labelled()
        assert item.labels == (Label("1", "anna", choice),)
    assert store.counts().labels == 3


def test_a_list_with_a_change_of_mind_sent_again_adds_nothing(store):
    store.add_comparisons([comparison("1")])
    batch = [Label("1", "anna", A), Label("1", "anna", B), Label("1", "ben", TIE)]
    assert store.add_labels(batch) == 3
    assert store.add_labels(batch) == 0
    assert store.add_labels([*batch, Label("1", "anna", A)]) == 1
    (item,) = store.labelled()
    assert item.labels == (Label("1", "anna", A), Label("1", "ben", TIE))


def test_a_label_for_an_unknown_comparison_is_refused_with_its_whole_batch(store):
    store.add_comparisons([comparison("1")])
    with pytest.raises(HoldfastError, match="'2', which is not in the store"):
        store.add_labels([Label("1", "anna", A), Label("2", "anna", A)])
    assert store.watermark() == 0
    assert store.labelled() == []


def test_labelled_does_not_depend_on_the_order_of_insertion(url, tmp_path):
    items = [comparison(key) for key in ("a", "B", "b-1", "b1", "é", "Z", "10", "9")]
    labels = [Label(item.id, name, A) for item in items for name in ("zoe", "Anna", "ben")]
    seen = []
    for seed, place in enumerate([url, f"sqlite:///{tmp_path / 'second.db'}"]):
        random.Random(seed).shuffle(items)
        random.Random(seed).shuffle(labels)
        with PreferenceStore.open(place) as store:
            store.add_comparisons(items)
            store.add_labels(labels)
            seen.append(store.labelled())
    assert seen[0] == seen[1]
    assert [item.comparison.id for item in seen[0]] == sorted(item.id for item in items)
    assert [label.labeller for label in seen[0][0].labels] == ["Anna", "ben", "zoe"]


def test_a_watermark_names_the_same_labels_for_ever(store):
    store.add_comparisons([comparison("1"), comparison("2", number=1)])
    assert store.watermark() == 0
    store.add_labels([Label("1", "anna", A)])
    mark = store.watermark()
    before = store.labelled()
    store.add_labels([Label("1", "anna", B), Label("1", "ben", B), Label("2", "anna", A)])
    assert store.watermark() > mark
    assert store.labelled(watermark=mark) == before
    assert store.labelled(watermark=0) == []
    assert [item.share_a for item in store.labelled()] == [0.0, 1.0]


def test_a_seal_is_of_the_labels_whatever_steps_it_took_them_in(store, monkeypatch):
    grown, sums = LabelSeal(), []
    store.add_comparisons([comparison(str(n)) for n in range(5)])
    for n in range(5):
        store.add_labels([Label(str(n), "anna", A), Label(str(n), "ben", B)])
        store.seal(grown)
        assert grown.watermark == store.watermark()
        sums.append((grown.watermark, grown.sha256))
    assert len({sha256 for _, sha256 in sums}) == 5
    for page in (1, 3, 10_000):
        monkeypatch.setattr(label_seal, "PAGE", page)
        for mark, sha256 in sums:
            seal = LabelSeal()
            store.seal(seal, mark)
            assert (seal.watermark, seal.sha256) == (mark, sha256)


def test_rounds_can_be_left_out(store):
    store.add_comparisons([comparison(str(number), number) for number in range(4)])
    store.add_labels([Label(str(number), "anna", A) for number in (0, 2, 3)])
    assert [item.comparison.id for item in store.labelled(up_to_round=2)] == ["0", "2"]
    assert store.labelled(up_to_round=-1) == []


def test_the_order_is_that_of_ids_also_where_rounds_run_the_other_way(store):
    store.add_comparisons([comparison(f"{99 - number}", number) for number in range(20)])
    expected = [str(key) for key in range(85, 100)]
    assert [item.id for item in store.unlabelled()][5:] == expected
    store.add_labels([Label(key, "anna", A) for key in reversed(expected)])
    assert [item.comparison.id for item in store.labelled(up_to_round=14)] == expected


def test_unlabelled_is_what_nobody_has_answered(store):
    store.add_comparisons([comparison(key) for key in "abcd"])
    store.add_labels([Label("a", "anna", A), Label("b", "ben", B)])
    assert [item.id for item in store.unlabelled()] == ["c", "d"]


def test_counts_of_what_there_is(store):
    assert store.counts() == StoreCounts(0, 0)
    store.add_comparisons([comparison("1"), comparison("2"), comparison("3", number=5)])
    store.add_labels([Label("1", "anna", A), Label("1", "anna", B), Label("3", "ben", A)])
    assert store.counts() == StoreCounts(3, 3)


def test_empty_batches_do_nothing(store):
    assert store.add_comparisons([]) == 0
    assert store.add_labels([]) == 0


HARD_TEXTS = {
    "nul": "before\0after",
    "lone surrogate": "high \ud83d and low \ude00",
    "bidi": "\u202egnirts\u202c \u2066x\u2069 \u200f",
    "line separators": "a\u2028b\u2029c\x85d\r\ne\x0b",
    "escapes in the text": r"\u0000 \ud83d \\ \n \" %s :name $1",
    "emoji": "\U0001f600 e\u0301 \ufeff \uffff",
    "script": "<script>alert(1)</script>'; DROP TABLE labels; --",
    "a million": "0123456789abcdeé" * 65536,
}


@pytest.mark.parametrize("words", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())
def test_hard_text_comes_back_unchanged(store, words):
    talk = (Message("user", words), Message(words[:50], "x"))
    given = [
        Comparison("1", words, response(words), response("b"), 0),
        Comparison("2", talk, response("a"), response(words), 0),
    ]
    store.add_comparisons(given)
    store.add_labels([Label("1", "anna", A), Label("2", "anna", A)])
    assert [item.comparison for item in store.labelled()] == given
    assert store.add_comparisons(given) == 0


def test_a_character_split_in_two_surrogates_is_refused(store):
    split = "\ud83d" + "\ude00"
    for item in (comparison("1", a=split), Comparison("1", split, response("yes"), response("no"), 0)):
        with pytest.raises(HoldfastError, match=r"^A text holds one character as two separate surrogates"):
            store.add_comparisons([item])
    assert store.counts().comparisons == 0


@pytest.mark.parametrize("name", ["", "a\0b", "\ud83d", "x" * 201])
def test_names_that_cannot_be_keys_are_refused(store, name):
    with pytest.raises(HoldfastError, match="comparison id"):
        store.add_comparisons([comparison(name)])
    store.add_comparisons([comparison("1")])
    with pytest.raises(HoldfastError, match="comparison id"):
        store.add_labels([Label(name, "anna", A)])
    with pytest.raises(HoldfastError, match="labeller"):
        store.add_labels([Label("1", name, A)])
    assert store.counts().labels == 0


def test_a_round_that_fits_no_column_is_refused(store):
    with pytest.raises(HoldfastError, match="rounds must fit 32 bits"):
        store.add_comparisons([comparison("1", number=2**31)])


def test_large_batches_take_few_statements(url):
    """A statement for each row would take minutes at 10^5 labels."""
    size = 3000
    statements: list[str] = []
    with PreferenceStore.open(url) as store:

        @event.listens_for(Engine, "before_cursor_execute")
        def count(conn, cursor, statement, parameters, context, executemany):
            statements.append(statement)

        try:
            store.add_comparisons([comparison(f"{i:05}", a=f"yes {i}") for i in range(size)])
            store.add_labels([Label(f"{i:05}", "anna", A) for i in range(size)])
            writing = len(statements)
            assert len(store.labelled()) == size
        finally:
            event.remove(Engine, "before_cursor_execute", count)
    # Reads of 1000 keys: 3 for comparisons, 4 for responses (3001 of them), 3 for labels; and a few more.
    assert writing <= 20
    # BEGIN (SQLite only), the watermark, comparisons, labels.
    assert len(statements) - writing <= 4


def test_a_page_ends_anywhere_and_nothing_is_lost(store, monkeypatch):
    """Comparisons with 1 to 5 labels each, read in pages of every small size, are what one large page gives."""
    items = [comparison(f"{i:02}", number=i % 4) for i in range(12)]
    store.add_comparisons(items)
    store.add_labels([Label(item.id, f"p{n}", A) for i, item in enumerate(items) if i != 5 for n in range(1 + i % 5)])
    whole = store.labelled()
    assert len(whole) == 11
    early = store.labelled(up_to_round=1)
    for page in range(1, 9):
        monkeypatch.setattr(records.answers_after, "__defaults__", (page,))
        assert store.labelled() == whole
        assert store.labelled(up_to_round=1) == early


def test_labels_that_come_in_while_one_reads_are_left_out(store, monkeypatch):
    monkeypatch.setattr(records.answers_after, "__defaults__", (2,))
    store.add_comparisons([comparison(key) for key in "abcdef"])
    store.add_labels([Label(key, "anna", A) for key in "abcde"])
    rows = store.each_labelled()
    seen = [next(rows)]
    store.add_labels([Label("e", "anna", B), Label("f", "anna", A)])
    seen += rows
    assert [item.comparison.id for item in seen] == ["a", "b", "c", "d", "e"]
    assert {label.choice for item in seen for label in item.labels} == {A}


def test_what_is_asked_for_by_id_comes_in_order_of_id(store):
    store.add_comparisons([comparison(key) for key in "abcd"])
    store.add_labels([Label("c", "ben", B), Label("a", "anna", A), Label("a", "anna", B)])
    mark = store.watermark()
    store.add_labels([Label("c", "anna", A), Label("d", "anna", A)])
    found = store.labelled_among(["c", "a", "b", "a", "no such id"])
    assert found == store.labelled()[:2]
    assert store.labelled_among(["d", "c"], watermark=mark) == store.labelled(watermark=mark)[1:]
    assert store.answered(["d", "b", "c", "no such id"]) == {"c", "d"}
    assert store.labelled_among([]) == []
    assert store.answered([]) == set()


def test_what_a_run_asked_in_a_round_is_known_by_its_purpose(store):
    audit = replace(comparison("c", number=2), purpose="audit", run="ours")
    again = replace(comparison("b", number=2), purpose="repeat", run="ours", repeats="c")
    theirs = replace(comparison("a", number=2), purpose="audit", run="theirs")
    store.add_comparisons([audit, again, theirs])
    assert store.unlabelled() == [theirs, again, audit]
    assert store.asked("ours", 2, ["audit", "repeat"], 9) == ["b", "c"]
    assert store.asked("ours", 2, ["audit"], 9) == ["c"]
    assert store.asked("ours", 1, ["audit"], 9) == []
    with pytest.raises(HoldfastError, match="already there with another"):
        store.add_comparisons([replace(audit, purpose="training")])


def test_first_answers_come_in_the_order_in_which_they_were_given(store, monkeypatch):
    store.add_comparisons([comparison("a", number=2), comparison("b", number=3)])
    store.add_labels([Label("b", "anna", A)])
    store.add_labels([Label("a", "ben", A), Label("b", "ben", A), Label("b", "anna", B)])
    everything = store.first_answers(0, store.watermark())
    # Anna's change of mind is not a first answer; Ben's to b is his first, and not the first there was.
    assert [(x.comparison_id, x.round, x.opens) for x in everything] == [
        ("b", 3, True),
        ("a", 2, True),
        ("b", 3, False),
    ]
    monkeypatch.setattr(records, "PAGE", 2)
    first = store.first_answers(0, store.watermark())
    assert first == everything[:2]
    assert store.first_answers(first[-1].seq, store.watermark()) == everything[2:]
    assert store.first_answers(0, everything[0].seq) == everything[:1]
    assert store.first_answers(store.watermark(), store.watermark()) == []


def test_a_round_costs_no_more_in_a_large_store(url):
    """The statements of one round read keys and pages: none goes through all comparisons or all labels."""
    statements: list[str] = []
    with PreferenceStore.open(url) as store:
        store.add_comparisons([comparison("1"), comparison("2", number=1)])
        store.add_labels([Label("1", "anna", A)])

        @event.listens_for(Engine, "before_cursor_execute")
        def keep(conn, cursor, statement, parameters, context, executemany):
            statements.append(statement)

        try:
            store.add_comparisons([comparison("3", number=1)])
            store.answered(["3"])
            store.add_labels([Label("3", "anna", A)])
            store.first_answers(1, store.watermark(1))
            store.labelled_among(["1", "3"])
        finally:
            event.remove(Engine, "before_cursor_execute", keep)
    reads = [statement for statement in statements if "FROM labels" in statement or "FROM comparisons" in statement]
    assert len(reads) == 8
    assert all(" IN (" in read or "LIMIT" in read for read in reads), reads
