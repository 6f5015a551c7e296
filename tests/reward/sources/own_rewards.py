"""Reward functions of users, well-behaved and not; tests name them as own_rewards.py:NAME. Nothing of ours is used."""

import asyncio
import os
import signal
import sys
import time

import sibling  # a file beside this one, as users have them

MADE = []


def length(completion):
    return len(completion)


def batched(completions, **columns):
    return [float(len(text)) for text in completions]


def with_columns(prompts, completions, target, bonus=None):
    return [
        float(p + c == t) + (b or 0)
        for p, c, t, b in zip(prompts, completions, target, bonus or [0] * len(prompts), strict=True)
    ]


def one_with_columns(prompt, answer, target):
    return float(answer == target)


def one_with_all(solution_str, **columns):
    return float(len(columns))


def conversation(prompt, completion):
    return prompt[-1]["content"] == completion[0]["content"]


def beside(completion):
    return sibling.DOUBLE * len(completion)


class Counting:
    def __init__(self):
        self.length = len

    def __call__(self, completion):
        return self.length(completion)


class Asynchronous:
    async def __call__(self, completion):
        await asyncio.sleep(0.05)
        return len(completion)


async def overlapping(completion):
    await asyncio.sleep(0.05)
    return len(completion)


async def overlapping_batch(completions):
    await asyncio.sleep(0.05)
    return [len(text) for text in completions]


async def hangs_asleep(completion):
    await asyncio.sleep(60 if completion == "bad" else 0.01)
    return 1.0


async def hangs_awake(completion):
    await asyncio.sleep(0.02)
    if completion == "bad":
        time.sleep(60)
    return 1.0


async def exits_among_others(completion):
    await asyncio.sleep(0.02)
    if completion == "bad":
        os._exit(7)
    return 1.0


def runs_a_loop(completion):
    return asyncio.run(overlapping(completion))


def late_coroutine(completion):
    return overlapping(completion)


def sleeps(completion):
    time.sleep(0.05)
    return len(completion)


def components(completion):
    return {"long": len(completion), "polite": float("please" in completion)}


def lists_by_component(completions):
    return {"score": [1.0 for _ in completions], "long": [len(text) for text in completions]}


def alarmed(completion):
    """As math checkers do it; alarms work in a main thread alone."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(5)
    signal.alarm(0)
    return 1.0


def order_of_a_set(completion):
    return float(list({"a", "b", "c", "d", "e", "f"}).index("a"))


def process(completion):
    return os.getpid()


def hostile(completion):
    """What the answer asks for."""
    match completion.split():
        case ["raise", *words]:
            raise ValueError(" ".join(words))
        case ["hang"]:
            time.sleep(60)
        case ["exit"]:
            os._exit(3)
        case ["leave"]:
            sys.exit(3)
        case ["segfault"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        case ["None"]:
            return None
        case ["NaN"]:
            return float("nan")
        case ["1e30"]:
            return 1e30
        case ["text"]:
            return "0.5"
        case ["list"]:
            return [0.5]
        case ["memory"]:
            return float(len([bytearray(16 << 20) for _ in range(1 << 20)]))
        case ["shout"]:
            print("{}\n" * 100_000)
            os.write(1, b'{"id": 0, "outcomes": [[9.0, {}]]}\n')
            sys.stderr.write("x" * 10_000)
    return 0.5


def hostile_batch(completions):
    match completions[0].split():
        case ["short"]:
            return [1.0]
        case ["number"]:
            return 1.0
        case ["text"]:
            return "1" * len(completions)
        case ["uneven"]:
            return {"right": [1.0, 0.0], "short": [1.0]}
        case ["single"]:
            return {"right": 1.0}
        case ["hang"]:
            time.sleep(60)
        case ["some"]:
            return [1.0, None, float("nan"), "x"]
        case ["generator"]:
            return (1.0 for _ in completions)
        case ["array"]:
            import numpy

            return numpy.ones(len(completions))
    return [0.5] * len(completions)


failures = []


def fails_twice(completion):
    failures.append(completion)
    if len(failures) < 3:
        raise ConnectionError("the line is busy")
    return 1.0


def nothing_known(text):
    return 1.0


def only_by_place(completion, /):
    return 1.0


not_a_function = 3
