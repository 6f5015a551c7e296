"""A mask: answers are cumulative distributions, [0.00,0.25,0.25,0.90,1.00], whose values do not fall and end at 1.

    holdfast run --set rollout.grammar=examples/structured/cumulative.py:Cumulative ...

A grammar can say that there are five numbers, not that none is lower than the one before it. A mask says what may come
next, state by state: here the state is how many values there are, and the last of them in hundredths.
"""

from __future__ import annotations

VALUES = 5

State = tuple[int, int]
END: State = (VALUES + 1, 100)


class Cumulative:
    def start(self, prompt: str) -> State:
        """Before the first value. A mask may look at the prompt, and give each its own rules."""
        return 0, 0

    def allowed(self, state: State) -> list[str]:
        """The texts that may come next, in any tokens; an empty one where the answer may end."""
        said, last = state
        if state == END:
            return [""]
        if said == VALUES:
            return ["]"]
        values = range(last, 101) if said < VALUES - 1 else [100]
        return [f"{',' if said else '['}{value / 100:.2f}" for value in values]

    def next(self, state: State, text: str) -> State:
        """The state after one of these texts. What is allowed depends on the state alone, so it is asked for once."""
        said, _ = state
        return END if text == "]" else (said + 1, round(100 * float(text[1:])))
