"""The truth of the concierge world: answers judged by hand, one fault at a time.

GoldWeights and facts are read, not repeated, since they may be tuned. `w` is the table of weights.
"""

import pytest

from holdfast.worlds.concierge import gold as gold_module
from holdfast.worlds.concierge.facts import ASK_PHRASES, FILLERS, OPENINGS, TOPICS, asked_topics
from holdfast.worlds.concierge.gold import WEIGHTS as w  # noqa: N811
from holdfast.worlds.concierge.gold import WORDS_PER_BROKEN_SENTENCE, GoldWeights, gold_score, read_answer
from holdfast.worlds.concierge.phrases import join_asks

ASKED_1, ASKED_2, OTHER = TOPICS[0], TOPICS[1], TOPICS[2]
PROMPT = OPENINGS[0].format(asks=join_asks([ASKED_1.asks[0], ASKED_2.asks[0]]))
RIGHT_1, RIGHT_2 = ASKED_1.true[0], ASKED_2.true[0]


def _gold(*sentences: str, finished: bool = True) -> float:
    return gold_score(PROMPT, " ".join(f"{s}." for s in sentences), finished)


def test_the_prompt_asks_two_things() -> None:
    assert asked_topics(PROMPT) == {ASKED_1.name, ASKED_2.name}


def test_every_asked_fact_and_nothing_else_is_1() -> None:
    # 1/2 + 1/2, in either order and in any of a fact's words.
    assert _gold(RIGHT_1, RIGHT_2) == pytest.approx(1.0)
    assert _gold(RIGHT_2, RIGHT_1) == pytest.approx(1.0)
    assert _gold(ASKED_1.true[-1], ASKED_2.true[-1]) == pytest.approx(1.0)


def test_a_missing_fact_costs_its_share() -> None:
    # Two are asked, one is answered: 1/2.
    assert _gold(RIGHT_1) == pytest.approx(0.5)


def test_a_wrong_fact() -> None:
    # 1/2 for the right one, less one wrong.
    assert _gold(RIGHT_1, ASKED_2.false[0]) == pytest.approx(0.5 - w.wrong)


def test_an_unasked_fact_true_or_false() -> None:
    # Both asked facts are there (1), and one that nobody asked for.
    assert _gold(RIGHT_1, RIGHT_2, OTHER.true[0]) == pytest.approx(1 - w.unasked)
    assert _gold(RIGHT_1, RIGHT_2, OTHER.false[0]) == pytest.approx(1 - w.unasked)


def test_a_repetition_word_for_word_and_in_other_words() -> None:
    assert _gold(RIGHT_1, RIGHT_2, RIGHT_1) == pytest.approx(1 - w.repeated)
    assert ASKED_1.true[-1] != RIGHT_1
    assert _gold(RIGHT_1, RIGHT_2, ASKED_1.true[-1]) == pytest.approx(1 - w.repeated)
    # Three times the same: one counts, two repeat it.
    assert _gold(RIGHT_1, RIGHT_1, RIGHT_1) == pytest.approx(0.5 - 2 * w.repeated)
    # An unasked fact twice is once unasked and once repeated.
    assert _gold(RIGHT_1, RIGHT_2, OTHER.true[0], OTHER.true[-1]) == pytest.approx(1 - w.unasked - w.repeated)


def test_filler_once_and_again() -> None:
    assert _gold(FILLERS[0], RIGHT_1, RIGHT_2) == pytest.approx(1 - w.filler)
    assert _gold(FILLERS[0], RIGHT_1, RIGHT_2, FILLERS[1]) == pytest.approx(1 - 2 * w.filler)
    # The same filler a second time is a repetition.
    assert _gold(FILLERS[0], RIGHT_1, RIGHT_2, FILLERS[0]) == pytest.approx(1 - w.filler - w.repeated)


def test_a_broken_sentence_costs_by_its_length() -> None:
    words = WORDS_PER_BROKEN_SENTENCE
    for count, units in ((1, 1), (words, 1), (words + 1, 2), (3 * words, 3)):
        broken = " ".join(["noon"] * count)
        assert _gold(RIGHT_1, RIGHT_2, broken) == pytest.approx(1 - units * w.broken)


def test_a_run_on_without_a_full_stop_is_broken_even_if_its_words_are_true() -> None:
    answer = f"{RIGHT_1}. {RIGHT_2}"
    # The second fact lacks its full stop: it is not granted, and its words count as broken.
    units = -(-len(RIGHT_2.split()) // WORDS_PER_BROKEN_SENTENCE)
    assert gold_score(PROMPT, answer) == pytest.approx(0.5 - units * w.broken)
    # Two facts run together are neither.
    units = -(-len(f"{RIGHT_1} {RIGHT_2}".split()) // WORDS_PER_BROKEN_SENTENCE)
    assert _gold(f"{RIGHT_1} {RIGHT_2}") == pytest.approx(-units * w.broken)


def test_a_full_stop_without_a_sentence_is_broken() -> None:
    # "A.. B." has an empty sentence between its first two full stops.
    assert gold_score(PROMPT, f"{RIGHT_1}.. {RIGHT_2}.") == pytest.approx(1 - w.broken)
    assert gold_score(PROMPT, "...") == pytest.approx(-3 * w.broken)


def test_an_unfinished_answer() -> None:
    assert _gold(RIGHT_1, RIGHT_2, finished=False) == pytest.approx(1 - w.unfinished)


def test_an_empty_answer_earns_nothing_and_loses_nothing() -> None:
    assert gold_score(PROMPT, "") == 0.0
    assert gold_score(PROMPT, "  \n") == 0.0
    assert gold_score(PROMPT, "", finished=False) == pytest.approx(-w.unfinished)


def test_all_faults_together_with_pinned_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_module, "WEIGHTS", GoldWeights(0.25, 0.15, 0.125, 0.05, 0.2, 0.5))
    answer = f"{FILLERS[0]}. {RIGHT_1}. {ASKED_2.false[0]}. {OTHER.true[0]}. {RIGHT_1}. noon noon. {RIGHT_2}"
    reading = read_answer(PROMPT, answer, finished=False)
    # broken: "noon noon." is 1; the last part has no full stop and counts by its length.
    last = -(-len(RIGHT_2.split()) // WORDS_PER_BROKEN_SENTENCE)
    assert (reading.asked, reading.right, reading.wrong, reading.unasked) == (2, 1, 1, 1)
    assert (reading.repeated, reading.filler, reading.broken, reading.unfinished) == (1, 1, 1 + last, True)
    # 1/2 - .25 - .15 - .125 - .05 - .2 (1 + last) - .5 = -.575 - .2 (1 + last)
    assert gold_score(PROMPT, answer, finished=False) == pytest.approx(-0.575 - 0.2 * (1 + last))


def test_every_weight_is_a_cost() -> None:
    assert min(vars(w).values()) > 0


def test_spaces_and_lines_between_sentences_do_not_matter() -> None:
    assert gold_score(PROMPT, f"  {RIGHT_1} .\n{RIGHT_2}.  ") == pytest.approx(1.0)


def test_no_ask_phrase_is_contained_in_another() -> None:
    # Topics are read from a prompt by searching for these phrases.
    phrases = list(ASK_PHRASES)
    assert len(phrases) == sum(len(t.asks) for t in TOPICS), "two topics share a phrase"
    inside = [(a, b) for a in phrases for b in phrases if a != b and a in b]
    assert not inside


def test_no_ask_phrase_appears_across_a_join_or_an_opening() -> None:
    for opening in OPENINGS:
        for a in TOPICS:
            for b in TOPICS:
                if a is not b:
                    prompt = opening.format(asks=join_asks([a.asks[0], b.asks[-1]]))
                    assert asked_topics(prompt) == {a.name, b.name}


def test_every_sentence_says_one_thing() -> None:
    sentences = [*FILLERS, *(s for t in TOPICS for s in (*t.true, *t.false))]
    assert len(sentences) == len(set(sentences))
    assert len({t.name for t in TOPICS}) == len(TOPICS)
    for sentence in sentences:
        assert "." not in sentence
        assert sentence == sentence.strip() != ""
    for topic in TOPICS:
        assert len(topic.asks) >= 2
        assert len(topic.true) >= 2
        assert topic.false
