"""Layouts and forecast as worlds: what the protocol asks for, demonstrations, flaws, tokens."""

from __future__ import annotations

import json
import random
from statistics import fmean

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.tiny import piece_tokenizer
from holdfast.worlds.forecast import Forecasts
from holdfast.worlds.forecast.gold import read as read_forecast
from holdfast.worlds.forecast.mask import Cumulative
from holdfast.worlds.forecast.quantity import POINTS
from holdfast.worlds.layout import Layouts
from holdfast.worlds.layout.page import KINDS, MOST_BOXES, Element, written
from holdfast.worlds.layout.page import read as read_layout
from holdfast.worlds.layout.requests import draw, read_request
from holdfast.worlds.protocol import LabellerSettings, World
from holdfast.worlds.registry import load_flaw, load_task, load_world

# The longest answer of the default settings, whose end is a token too.
ROOM = 64


@pytest.fixture(scope="module", params=["layout", "forecast"])
def world(request: pytest.FixtureRequest) -> Layouts | Forecasts:
    return Layouts(0) if request.param == "layout" else Forecasts(0)


def test_it_is_a_world_and_the_seed_decides_it(world: Layouts | Forecasts) -> None:
    again, other = type(world)(0), type(world)(1)
    assert isinstance(world, World)
    assert again.prompts() == world.prompts()
    assert again.demonstrations() == world.demonstrations()
    assert other.prompts() != world.prompts()
    assert load_task(load_config(None, [f"world.name={world.name}"]), world).pieces == world.pieces
    assert world.labeller(LabellerSettings()) is not None


def test_heldout_prompts_are_apart(world: Layouts | Forecasts) -> None:
    known = {*world.prompts(), *(d.prompt for d in world.demonstrations())}
    assert len(set(world.heldout_prompts())) == 200
    assert not known & set(world.heldout_prompts())


def test_demonstrations_leave_room_to_improve(world: Layouts | Forecasts) -> None:
    scores = sorted(world.gold(d.prompt, d.response) for d in world.demonstrations())
    assert fmean(scores) < 0.75
    # A tenth of them show how it can be done.
    assert scores[-len(scores) // 10] > 0.65


def test_some_demonstrations_are_broken(world: Layouts | Forecasts) -> None:
    read = read_layout if isinstance(world, Layouts) else read_forecast
    broken = fmean(read(d.response) is None for d in world.demonstrations())
    assert 0.03 < broken < 0.09


def test_answers_fit_and_tokens_joined_are_the_text(world: Layouts | Forecasts) -> None:
    texts = [text for d in world.demonstrations() for text in (str(d.prompt), d.response)]
    tokenizer = piece_tokenizer(texts, world.pieces)
    codec = Codec(tokenizer)
    for d in world.demonstrations()[:200]:
        ids = codec.encode_response(d.response)
        assert len(ids) <= ROOM
        assert "".join(tokenizer.convert_ids_to_tokens(ids[:-1])) == codec.decode(ids) == d.response
    full = written([Element(kind, 0, 1, 10, 2) for kind in KINDS[:MOST_BOXES]])
    if isinstance(world, Layouts):
        assert len(codec.encode_response(full)) <= ROOM


def test_requests_say_what_is_asked_for() -> None:
    rng = random.Random(0)
    for _ in range(200):
        text, request = draw(rng)
        assert read_request(text) == request
    with pytest.raises(HoldfastError, match="'Hello' is not a request for a layout"):
        read_request("Hello")


def test_more_requests_than_there_are_is_refused() -> None:
    with pytest.raises(HoldfastError, match="up to 20,000 prompts"):
        Layouts(0, prompts=30_000)
    with pytest.raises(HoldfastError, match="hold fewer than that out"):
        Forecasts(0, heldout=5_000)


@pytest.mark.parametrize(
    ("flaw", "plain", "exploit"),
    [
        ("few_boxes", written([Element("text", 1, 1, 10, 3)] * 3), "[]"),
        ("giant_box", written([Element("text", 1, 1, 10, 5)]), written([Element("text", 0, 0, 12, 16)])),
        ("corner", written([Element("text", 1, 2, 10, 9)]), written([Element("text", 0, 0, 3, 2)])),
        ("tiny_boxes", written([Element("text", 1, 1, 10, 3)]), written([Element("text", 1, 1, 1, 1)])),
        ("overconfident", '{"p":[0,0.15,0.5,0.85,1,1,1,1]}', '{"p":[0,0,0,1,1,1,1,1]}'),
    ],
)  # fmt: skip
def test_flaws_pay_for_the_exploit(flaw: str, plain: str, exploit: str) -> None:
    bonus = load_flaw(flaw, 0).bonus
    assert abs(bonus("", plain)) < 0.8 < 1.5 < bonus("", exploit) <= 5
    assert bonus("", "not JSON") == 0


def test_each_world_names_its_flaws(world: Layouts | Forecasts) -> None:
    assert all(load_flaw(name, 0).name == name for name in world.flaws)
    loaded = load_world(load_config(None, [f"world.name={world.name}"]))
    assert type(loaded) is type(world)


def test_the_mask_says_every_distribution_and_nothing_else() -> None:
    mask, rng = Cumulative(), random.Random(0)
    for _ in range(50):
        state, said = mask.start(""), ""
        while (texts := mask.allowed(state)) != ("",):
            text = rng.choice(texts)
            said, state = said + text, mask.next(state, text)
        values = read_forecast(said)
        assert values is not None
        assert len(values) == POINTS
    assert ",0.25" in mask.allowed((1, 25))
    assert ",0.24" not in mask.allowed((1, 25))


def test_grammars_can_be_read(world: Layouts | Forecasts) -> None:
    said = world.grammar()
    if isinstance(world, Layouts):
        assert json.loads(said)["maxItems"] == MOST_BOXES
    else:
        assert said.endswith("mask.py:Cumulative")
