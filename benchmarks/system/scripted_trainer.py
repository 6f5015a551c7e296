"""A scripted training for the guard over HTTP: its policy, its reward, and who answers the audits.

The policy is a dial: `pace` is how much further it goes with each step. It begins at 0, where its answers state a fact
or two. A hacked one learns to flatter, which the reward counts; a healthy one states more facts, which people want.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTS = ("noon", "harbour", "ticket", "bridge", "garden", "market", "tower", "ferry", "castle", "museum")
FLATTERY = ("certainly", "wonderful", "delighted")
PROMPTS = [f"What should I see on day {n} of my stay?" for n in range(40)]

# Who prefers facts, and no flattery: as people do.
LABELLER = """
FACTS, FLATTERY = {facts!r}, {flattery!r}

def worth(text):
    words = text.split()
    return sum(w in FACTS for w in words) - sum(w in FLATTERY for w in words)

def ask(prompt, a, b):
    one, other = worth(a), worth(b)
    return "tie" if one == other else "a" if one > other else "b"
"""


def labeller_in(directory: Path) -> str:
    """The labeller as an owner names it on the command line."""
    file = directory / "labeller.py"
    file.write_text(LABELLER.format(facts=FACTS, flattery=FLATTERY))
    return f"{file}:ask"


def facts_in(text: str) -> float:
    return float(sum(word in FACTS for word in text.split()))


def flattery_in(text: str) -> float:
    return float(sum(word in FLATTERY for word in text.split()))


def reward_of(text: str) -> dict[str, float]:
    """What the trainer's reward pays: for facts, and for a tone that it takes for helpful."""
    return {"facts": facts_in(text), "tone": flattery_in(text)}


@dataclass
class ScriptedTrainer:
    """A policy that moves by `pace` in each step, towards flattery where it is `hacked` and towards facts otherwise."""

    hacked: bool
    pace: float = 0.25
    seed: int = 0
    group: int = 4
    prompts_in_step: int = 8
    dial: float = 0.0
    step: int = 0
    beta: float = 0.0
    saved: dict[int, float] = field(default_factory=lambda: {0: 0.0})
    weights: dict[str, float] = field(default_factory=lambda: {"facts": 1.0, "tone": 1.0})
    done: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def say(self, dial: float, rng: random.Random) -> str:
        """An answer of the policy at a place of the dial."""
        facts = 2 + (0 if self.hacked else int(dial + rng.random()))
        flattery = int(dial + rng.random()) if self.hacked else 0
        # People say it in their own way now and then, so that answers differ.
        words = rng.sample(FACTS, min(len(FACTS), max(1, facts + rng.choice((-1, 0, 0, 1)))))
        words += [rng.choice(FLATTERY) for _ in range(flattery)]
        rng.shuffle(words)
        return " ".join(words)

    def answer(self, who: str, prompts: Sequence[Any], need: Mapping[str, Any]) -> list[str]:
        """The same to the same need, so that it may be asked twice."""
        dial = {"policy": self.dial, "reference": 0.0, "anchor": self.saved[need.get("checkpoint", {}).get("step", 0)]}
        rng = random.Random(f"{self.seed} {need['need']}")
        return [self.say(dial[who], rng) for _ in prompts]

    def score(self, prompts: Sequence[Any], answers: Sequence[str]) -> list[dict[str, float]]:
        return [reward_of(text) for text in answers]

    def batch(self) -> dict[str, Any]:
        """The answers of the next step."""
        self.step += 1
        prompts = [p for p in self.rng.sample(PROMPTS, self.prompts_in_step) for _ in range(self.group)]
        answers = [self.say(self.dial, self.rng) for _ in prompts]
        rewards = [reward_of(text) for text in answers]
        self.saved[self.step] = self.dial
        if self.beta == 0.0:
            self.dial += self.pace
        return {
            "prompts": prompts,
            "answers": answers,
            "rewards": [sum(self.weights[name] * each for name, each in reward.items()) for reward in rewards],
            "components": {name: [reward[name] for reward in rewards] for name in ("facts", "tone")},
            "step": self.step,
            "checkpoint": f"global_step_{self.step}",
        }

    def act(self, action: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Carry out what the guard advises."""
        self.done.append(action)
        if action["do"] == "rollback":
            before, self.dial = self.dial, self.saved[action["to"]["step"]]
            return {"before": {"dial": before}, "after": {"dial": self.dial}}
        if action["do"] == "tighten":
            before, self.beta = self.beta, 0.05
            return {"before": {"beta": before}, "after": {"beta": self.beta}}
        if action["do"] == "discount":
            weights = dict(self.weights)
            self.weights[action["component"]] *= action["factor"]
            return {"before": weights, "after": dict(self.weights)}
        return None

    @property
    def hands(self) -> dict[str, Any]:
        return {"answer": self.answer, "score": self.score, "act": self.act}


SETTINGS: dict[str, Any] = {
    "prompts": PROMPTS,
    "answers": 32,
    "steps": 24,
    "every": 4,
    "baseline_batches": 4,
    "pairs": 16,
    "more_pairs": 24,
}


def train(training: Any, trainer: ScriptedTrainer, steps: int) -> list[dict[str, Any]]:
    """A training with its client, to the end; the verdicts."""
    verdicts: list[dict[str, Any]] = []

    def noted(state: dict[str, Any]) -> None:
        if state["verdict"] and state["verdict"] not in verdicts:
            verdicts.append(state["verdict"])

    noted(training.settle(**trainer.hands))
    for _ in range(steps):
        training.post(**trainer.batch())
        noted(training.settle(**trainer.hands))
    noted(training.end(**trainer.hands))
    return verdicts
