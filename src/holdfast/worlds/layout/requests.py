"""What people ask for: some things on a page, and perhaps how two of them stand to each other."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from holdfast.errors import HoldfastError

PAGES = ("poster", "flyer", "page", "card", "notice", "leaflet")
# How many of a kind may be asked for at once.
MOST_OF: dict[str, int] = {"title": 1, "picture": 2, "text": 2, "price": 1, "footer": 1, "logo": 1, "button": 1}
FEWEST, MOST = 2, 5
RELATED = 0.6
# How one stands to the other, and its contrary.
RELATIONS = ("above", "below", "left of", "right of")
CONTRARY = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}
REQUEST = re.compile(r"a \w+ with (?P<things>[^;]+)(?:; the (?P<one>\w+) (?P<how>[a-z ]+) the (?P<other>\w+))?")


@dataclass(frozen=True)
class Request:
    """Kinds with how many of each, and at most one relation: all of the one kind, how, all of the other."""

    asked: tuple[tuple[str, int], ...]
    relation: tuple[str, str, str] | None = None

    @property
    def counts(self) -> Counter[str]:
        return Counter(dict(self.asked))


def draw(rng: random.Random) -> tuple[str, Request]:
    """A request in words, and what it says."""
    things = [kind for kind, most in MOST_OF.items() for _ in range(most)]
    counts = Counter(rng.sample(things, rng.randint(FEWEST, MOST)))
    asked = list(counts.items())
    rng.shuffle(asked)
    relation = None
    if len(asked) > 1 and rng.random() < RELATED:
        one, other = sorted(rng.sample(list(counts), 2), key=_usual_place)
        # What is high on a page is asked to be above, or left of, what is low.
        how = rng.choice(("above", "left of"))
        relation = (one, how, other) if rng.random() < 0.5 else (other, CONTRARY[how], one)
    request = Request(tuple(asked), relation)
    return in_words(request, rng.choice(PAGES)), request


def _usual_place(kind: str) -> int:
    return ("logo", "title", "picture", "text", "price", "button", "footer").index(kind)


def in_words(request: Request, page: str) -> str:
    """As somebody would write it: "a poster with a title and two pictures; the title above the pictures"."""
    things = [f"two {kind}s" if count == 2 else f"a {kind}" for kind, count in request.asked]
    text = f"a {page} with {', '.join(things[:-1])} and {things[-1]}" if things[1:] else f"a {page} with {things[0]}"
    if request.relation is None:
        return text
    one, how, other = request.relation
    many = request.counts
    return f"{text}; the {one}{'s' * (many[one] == 2)} {how} the {other}{'s' * (many[other] == 2)}"


def read_request(prompt: str) -> Request:
    """What a prompt of this world asks for."""
    found = REQUEST.fullmatch(prompt)
    if found is None:
        raise HoldfastError(
            f"{prompt!r:.60} is not a request for a layout, such as 'a poster with a title and a text'."
        )
    asked = []
    for thing in re.split(r", | and ", found["things"]):
        number, _, kind = thing.partition(" ")
        asked.append((kind.removesuffix("s"), 2) if number == "two" else (kind, 1))
    if found["how"] is None:
        return Request(tuple(asked))
    relation = (found["one"].removesuffix("s"), found["how"], found["other"].removesuffix("s"))
    if not {kind for kind, _ in asked} <= MOST_OF.keys() or relation[1] not in RELATIONS:
        raise HoldfastError(f"{prompt!r:.60} asks for what the layout world does not know.")
    return Request(tuple(asked), relation)
