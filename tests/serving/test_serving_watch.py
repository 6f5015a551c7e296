"""The watch on the stream: quiet while nothing changes, one sentence when it does, and not fooled by a new version."""

import random
import time

import pytest
import torch

from holdfast.guard.signals import SIGNALS
from holdfast.serving.encoder import AnswerToScore
from holdfast.serving.versions import open_run
from holdfast.serving.watch import STREAM, StreamRows, StreamWatch, WatchSettings
from reward_server import OWNER, serving_rewards, texts_of

SETTINGS = WatchSettings(window=32, baseline=8, recent=4, level=0.001)


@pytest.fixture(scope="module")
def source(rewarded_run):
    return open_run(rewarded_run)


@pytest.fixture(scope="module")
def scorer(source):
    return source.load(3)


@pytest.fixture(scope="module")
def words(rewarded_run):
    return sorted({word for _, text in texts_of(rewarded_run, 200) for word in text.split()})


def stream(scorer, watch, words, windows, rng, least=4, most=14, again=0):
    """Answers of random words, `again` times said, scored and shown to the watch in passes of any size."""
    left = windows * SETTINGS.window
    while left:
        count = min(left, rng.randint(1, 50))
        left -= count
        texts = [" ".join(rng.choices(words, k=rng.randint(least, most))) for _ in range(count)]
        asked = [[AnswerToScore(f"do we need {rng.choice(words)} ?", " ".join([text] * (1 + again)))] for text in texts]
        done = scorer.answer(asked)
        watch.see(scorer, done.prompts, done.responses, done.judgement)


def test_a_stream_that_stays_as_it_began_is_not_remarked_upon(scorer, words):
    said = []
    watch = StreamWatch(SETTINGS, said.append)
    stream(scorer, watch, words, 60, random.Random(1))
    report = watch.report()
    assert said == []
    assert report["windows"] == 60
    assert report["answers"] == 60 * SETTINGS.window
    assert report["suspicious"] is False
    assert report["baseline"] == {"windows": 8, "of": 8}


def test_a_stream_that_changes_is_told_once_with_what_changed(scorer, words):
    said, rng = [], random.Random(2)
    watch = StreamWatch(SETTINGS, said.append)
    stream(scorer, watch, words, 16, rng)
    assert said == []
    stream(scorer, watch, words, 8, rng, again=2)
    assert len(said) == 1
    assert "looks unlike its start" in said[0]
    assert "repeat" in said[0] or "longer than at the start" in said[0]
    report = watch.report()
    assert report["suspicious"] is True
    assert report["signals"]["repeated_trigrams"]["now"] > 0.2 > report["signals"]["repeated_trigrams"]["start"]
    assert report["signals"]["length"]["now"] > 2 * report["signals"]["length"]["start"]
    stream(scorer, watch, words, 8, rng)
    assert len(said) == 2
    assert "looks like its start again" in said[1]


def test_nothing_is_said_before_there_is_a_baseline(scorer, words):
    said = []
    watch = StreamWatch(SETTINGS, said.append)
    stream(scorer, watch, words, 7, random.Random(3))
    assert watch.report()["p"] is None
    assert watch.report()["baseline"] == {"windows": 7, "of": 8}


@pytest.mark.parametrize("prepared", [True, False])
def test_a_new_version_reads_the_baseline_again(source, words, prepared):
    """The versions differ so much that readings of the one are unusual by the other's baseline."""
    said, rng = [], random.Random(4)
    watch = StreamWatch(SETTINGS, said.append)
    old, new = source.load(3), source.load(1)
    # As a refresh that has made one member much surer than the other.
    new.ensemble.sds = (new.ensemble.sds[0] / 6, *new.ensemble.sds[1:])
    stream(old, watch, words, 6, rng)
    if prepared:
        watch.prepare(new)  # while the baseline is not complete: what joins it later is read when the version is used
    stream(old, watch, words, 10, rng)
    before = watch._start.baselines["ensemble_spread"].of_reference()
    stream(new, watch, words, 16, rng)
    after = watch._start.baselines["ensemble_spread"].of_reference()
    assert after[0] > 2 * before[0]
    assert len(watch._start.baselines["ensemble_spread"]) == 8
    assert said == []
    assert watch.report()["version"] == 1
    # And what changes in the texts themselves is still measured from where the stream began.
    stream(new, watch, words, 8, rng, again=2)
    assert len(said) == 1


def test_windows_hold_the_answers_in_their_order(scorer):
    asked = [[AnswerToScore("a", " ".join(["noon"] * n))] for n in range(1, 8)]
    done = scorer.answer(asked)
    rows = StreamRows(done.prompts, done.responses, [done.judgement])
    first, rest = rows.take(3)
    assert [len(r) for r in first.responses] == [2, 3, 4]
    assert [len(r) for r in rest.responses] == [5, 6, 7, 8]
    assert torch.equal(first.view().scores_KB, done.judgement.scores_KB[:, :3])
    assert torch.equal(rest.view().features_BD, done.judgement.features_BD[3:])


def test_the_signals_of_a_stream_need_no_policy(scorer, words):
    """Each can be read from answers alone; those left out are read from log-probs, updates or end tokens."""
    done = scorer.answer([[AnswerToScore(words[-i], " ".join(words[i : i + 9]))] for i in range(40)])
    view = StreamRows(done.prompts, done.responses, [done.judgement]).view()
    readable = {name for name in STREAM if SIGNALS[name].read and SIGNALS[name].read(view, scorer.known) is not None}
    # Growth is derived from other readings.
    assert readable == set(STREAM) - {"ensemble_spread_growth"}


def test_the_watch_of_a_service_is_told_over_http(rewarded_run, words):
    rng = random.Random(5)
    settings = WatchSettings(window=8, baseline=4, recent=2, level=0.001)
    with serving_rewards(rewarded_run, watch=settings) as served:

        def send(windows, again):
            for _ in range(windows):
                texts = [" ".join(rng.choices(words, k=rng.randint(4, 8))) for _ in range(8)]
                document = {"prompts": ["do we need it?"] * 8, "responses": [" ".join([t] * again) for t in texts]}
                assert served.post("/score", document)[0] == 200

        send(6, 1)
        assert served.get("/watch")[1]["suspicious"] is False
        send(4, 5)
        # The pass's answers are told first, then the watch looks.
        for _ in range(100):
            if (report := served.get("/watch")[1])["answers"] == 80:
                break
            time.sleep(0.1)
        assert report["suspicious"] is True
        assert "start" in report["sentence"]
        assert any("looks unlike its start" in sentence for sentence in served.said)
        assert b"holdfast_reward_suspicious 1" in served.get("/metrics")[1]
        assert served.post("/watch/restart", {}, OWNER)[1]["answers"] == 0
        assert served.get("/watch")[1]["suspicious"] is False
