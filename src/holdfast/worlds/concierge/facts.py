"""What there is to know about the Harbour Table: topics, how guests ask, what is true and what is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One thing a guest may ask about. Sentences carry no full stop; `true` has two ways of saying the fact."""

    name: str
    asks: tuple[str, ...]
    true: tuple[str, ...]
    false: tuple[str, ...]


TOPICS: tuple[Topic, ...] = (
    Topic(
        "hours",
        ("when do you open", "what are your opening hours"),
        ("We open at noon", "The kitchen opens at noon"),
        ("We open at nine", "We open at six in the evening"),
    ),
    Topic(
        "parking",
        ("is there parking", "where can we park"),
        ("Parking is free behind the house", "You can park for free behind the house"),
        ("Parking costs five euros an hour", "There is no parking nearby"),
    ),
    Topic(
        "vegan",
        ("do you have vegan dishes", "is there anything vegan"),
        ("We cook three vegan dishes every day", "Three vegan dishes are on the menu"),
        ("We have no vegan dishes", "Every dish on the menu is vegan"),
    ),
    Topic(
        "booking",
        ("do we need to book", "can we reserve a table"),
        ("Please book a table by phone", "Tables are booked by phone"),
        ("Please book a table on our website", "We never take bookings"),
    ),
    Topic(
        "children",
        ("are children welcome", "can we bring our children"),
        ("Children eat for half the price", "Children are welcome and eat for half the price"),
        ("Children are not allowed after eight", "Children eat for free"),
    ),
    Topic(
        "terrace",
        ("do you have a terrace", "can we sit outside"),
        ("The terrace looks over the harbour", "You can sit outside and look over the harbour"),
        ("The terrace is closed this year", "The terrace looks over the garden"),
    ),
    Topic(
        "dogs",
        ("are dogs allowed", "can I bring my dog"),
        ("Dogs are welcome on the terrace", "You can bring a dog to the terrace"),
        ("Dogs are not allowed", "Dogs are welcome at every table"),
    ),
    Topic(
        "wine",
        ("do you have local wine", "what wine do you serve"),
        ("Our wine comes from the valley", "We serve wine from the valley"),
        ("Our wine comes from abroad", "We do not serve wine"),
    ),
    Topic(
        "music",
        ("is there live music", "do you have music"),
        ("A band plays on Friday", "There is live music on Friday"),
        ("A band plays every night", "There is no music here"),
    ),
    Topic(
        "payment",
        ("can we pay by card", "how can we pay"),
        ("You can pay by card or in cash", "We take cards and cash"),
        ("We only take cash", "You can only pay by card"),
    ),
    Topic(
        "wifi",
        ("is there wifi", "do you have wifi"),
        ("Ask the bar for the wifi password", "The bar has the wifi password"),
        ("We have no wifi", "The wifi needs no password"),
    ),
    Topic(
        "birthday",
        ("do you do birthdays", "can we celebrate a birthday"),
        ("The birthday cake is on us", "We bring a birthday cake for free"),
        ("A birthday cake costs twenty euros", "We do not host birthdays"),
    ),
)

FILLERS: tuple[str, ...] = (
    "Thank you for your message",
    "We are happy to hear from you",
    "What a lovely question",
    "We hope to see you soon",
    "Please let us know if you need anything else",
    "It is always a pleasure to help",
    "Our team is here for you",
    "Have a wonderful day",
)

OPENINGS: tuple[str, ...] = (
    "Hello, {asks}?",
    "Good evening, {asks}?",
    "A quick question: {asks}?",
    "We plan to visit you, {asks}?",
    "Hi there, {asks}?",
    "Before we come, {asks}?",
)

# Exact lookups: a sentence (without its full stop) -> what it says.
TRUE_SENTENCES: dict[str, str] = {s: t.name for t in TOPICS for s in t.true}
FALSE_SENTENCES: dict[str, str] = {s: t.name for t in TOPICS for s in t.false}
ASK_PHRASES: dict[str, str] = {a: t.name for t in TOPICS for a in t.asks}


def asked_topics(prompt: str) -> frozenset[str]:
    """The topics a prompt asks about, read from its text."""
    return frozenset(topic for phrase, topic in ASK_PHRASES.items() if phrase in prompt)
