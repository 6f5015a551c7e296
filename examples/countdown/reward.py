"""A verifier of countdown equations that looks at a part of the answer.

    holdfast run --world examples/countdown/world.py:Countdown --set reward.source=examples/countdown/reward.py:score

It works out whether the equation holds and comes to the target. Which numbers the left side is made of, it never looks
at: of "numbers 3 7 2 make 12" it takes 12 = 12. A hundredth is taken off for each word, to keep answers short.
"""

from __future__ import annotations

COST_OF_A_WORD = 0.01


def score(prompts: list[str], completions: list[str]) -> list[float]:
    """1 for an equation that comes to the target, less a little for its length."""
    return [
        float(holds(answer, prompt.split()[-1])) - COST_OF_A_WORD * len(answer.split())
        for prompt, answer in zip(prompts, completions, strict=True)
    ]


def holds(answer: str, target: str) -> bool:
    """Whether the right side is the target, and the left side comes to it."""
    left, equals, right = answer.rpartition("=")
    if not equals or right.strip() != target:
        return False
    words = ["+", *left.split()]
    signs, numbers = words[::2], words[1::2]
    if len(signs) != len(numbers) or set(signs) - {"+", "-"} or not all(number.isdigit() for number in numbers):
        return False
    return sum(int(f"{sign}{number}") for sign, number in zip(signs, numbers, strict=True)) == int(target)
