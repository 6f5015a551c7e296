"""Ask the reward service about two answers to one prompt, and what its watch says of the stream so far.

HOLDFAST_REWARD_URL=http://127.0.0.1:8713 HOLDFAST_REWARD_TOKEN=$(cat token) python ask.py
"""

from __future__ import annotations

import json
import os
import urllib.request

from holdfast.interop.reward_client import RewardClient

PROMPT = "A quick question: do we need to book and are dogs allowed?"
ANSWERS = ["You need not book, and dogs are welcome.", "the the the the harbour harbour harbour"]


def main() -> None:
    told = RewardClient.of().score([PROMPT] * len(ANSWERS), ANSWERS)
    for text, answer in zip(ANSWERS, told["answers"], strict=True):
        print(f"{answer['score']:+.2f} (members differ by {answer['spread']:.2f})  {text}")
    request = urllib.request.Request(
        os.environ["HOLDFAST_REWARD_URL"] + "/watch",
        headers={"Authorization": f"Bearer {os.environ['HOLDFAST_REWARD_TOKEN']}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        watch = json.load(answer)
    print(f"version {told['version']}; watched {watch['answers']} answers; {watch['sentence'] or 'nothing unusual'}")


if __name__ == "__main__":
    main()
