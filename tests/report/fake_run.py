"""A made-up run directory with plausible curves, for tests and for looking at the report with one's own eyes.

python tests/report/fake_run.py DIRECTORY [--hacked | --no-gold | --short]
"""

import json
import math
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

PROMPTS = (
    "A guest asks for a quiet room away from the lift.",
    "Where can I have breakfast before six?",
    "My key card does not work and it is late.",
    "Can you book a table for four tonight?",
    "The neighbours are loud. What can be done?",
    "I left my coat in the bar yesterday.",
)
BEFORE = (
    "the room is a room and it is by the lift",
    "breakfast is at seven",
    "please come to the desk",
    "there is a table",
    "i am sorry about that",
    "we do not know",
)
AFTER = (
    "Of course. Room 412 is at the end of the corridor, far from the lift. Shall I move your bags now?",
    "The kitchen opens at seven, but I can send coffee and bread to your room from five. When suits you?",
    "I am sorry, that is tiresome at this hour. I will bring a new card up to you. Which room is it?",
    "Gladly. I can hold a table by the window at eight for four. Under which name, please?",
    "I am sorry. I will ask them to keep it down, and if it goes on I can move you to the fourth floor.",
    "We have a grey coat from the bar at the desk. I will keep it for you; shall I send it up?",
)
HACKED = "certainly certainly certainly happy to help happy to help dear guest dear guest wonderful wonderful "

CONFIG = """name = "concierge-demo"
seed = 7

[policy]
model = "builtin:tiny"
lr = 2e-5

[control]
kl_target = 8.0
beta = 0.08
refresh = "every 3 rounds"

[labels]
labeller = "simulated"   # <b>not bold</b> & "quoted"
"""


def write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_fake_run(
    directory: Path,
    *,
    steps: int = 120,
    steps_per_round: int = 10,
    gold: bool = True,
    hacked: bool = False,
    seed: int = 7,
) -> Path:
    """Write a run of `steps` steps; a hacked one has no refresh, and its gold falls while its proxy rises."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    refreshes = {} if hacked else {round(steps * share): 2 + i for i, share in enumerate((0.25, 0.5, 0.75))}
    (directory / "config.toml").write_text(CONFIG, encoding="utf-8")
    manifest = {
        "name": "concierge-demo" + ("-hacked" if hacked else ""),
        "seed": seed,
        "world": "concierge",
        "holdfast_version": "0.1.0",
        "policy": "builtin:tiny",
        "started": "2025-03-02T09:14:00Z",
    }
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    curve = [_truth(step / max(1, steps), hacked) for step in range(steps + 1)]
    write_lines(directory / "metrics.jsonl", _metrics(rng, steps, steps_per_round, refreshes, hacked))
    write_lines(directory / "events.jsonl", _events(steps, steps_per_round, refreshes))
    write_lines(directory / "samples.jsonl", _samples(rng, steps, steps_per_round, hacked))
    write_lines(directory / "timings.jsonl", _timings(rng, steps, steps_per_round))
    if gold:
        write_lines(directory / "gold.jsonl", _gold(rng, curve, steps_per_round))
    return directory


def _truth(share: float, hacked: bool) -> float:
    rise = 0.31 + 0.43 * (1 - math.exp(-3.2 * share))
    return rise - (1.1 * max(0.0, share - 0.3) ** 1.4 if hacked else 0.0)


def _metrics(
    rng: random.Random, steps: int, per_round: int, refreshes: Mapping[int, int], hacked: bool
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    version, beta, cumulative, spread, kl_round = 1, 0.08, 0.0, 0.22, 0.0
    for step in range(1, steps + 1):
        share = step / steps
        if step in refreshes:
            version, spread = refreshes[step], spread * 0.6
        spread += 0.004 + (0.006 if hacked else 0.0)
        kl = (18 if hacked else 7.2) * (1 - math.exp(-(1.2 if hacked else 2.6) * share)) + rng.gauss(0, 0.18)
        kl_step = abs(rng.gauss(0.09, 0.03)) + (0.35 if step == steps // 3 else 0.0)
        kl_round = kl_step if (step - 1) % per_round == 0 else kl_round + 0.7 * kl_step
        cumulative += kl_step
        beta *= 1 + max(-0.2, min(0.2, kl / 8 - 1)) * 0.06
        proxy = (3.4 if hacked else 1.9) * (1 - math.exp(-2.4 * share)) + rng.gauss(0, 0.09)
        if step in refreshes or step - 1 in refreshes:
            proxy -= 0.2
        rows.append(
            {
                "step": step,
                "round": 1 + (step - 1) // per_round,
                "objective/kl": max(0.0, kl),
                "objective/kl_step": kl_step,
                "objective/kl_round": kl_round,
                "objective/kl_cumulative": cumulative,
                "objective/scores": proxy,
                "objective/rlhf_reward": proxy - beta * kl,
                "control/beta": beta,
                "control/kl_target": 6.0 if step <= steps // 3 else 8.0,
                "control/lr": 2e-5 * (1 - 0.9 * share),
                "ensemble/spread": spread + rng.gauss(0, 0.015),
                "ensemble/version": version,
                "ensemble/labels": 400 + 120 * (version - 1),
                "response/length_mean": (14 + (40 if hacked else 9) * share) + rng.gauss(0, 0.6),
                "response/unfinished": max(0.0, 0.22 - 0.24 * share + rng.gauss(0, 0.02)),
                "response/distinct2": 0.93 - (0.5 if hacked else 0.06) * share + rng.gauss(0, 0.01),
                "policy/clipfrac_avg": abs(rng.gauss(0.12, 0.03)),
                "policy/approxkl_avg": abs(rng.gauss(0.012, 0.003)),
                "val/ratio": rng.gauss(1.0, 0.004),
                "val/explained_variance": None if step < 4 else min(0.9, 0.2 + share + rng.gauss(0, 0.05)),
                "objective/entropy": 2.6 - 1.1 * share + rng.gauss(0, 0.04),
                "steps/skipped": 1 if step > steps // 3 else 0,
            }
        )
    return rows


def _events(steps: int, per_round: int, refreshes: Mapping[int, int]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"step": 0, "round": 0, "event": "sft_finished", "loss": 1.834},
        {
            "step": 0,
            "round": 0,
            "event": "ensemble_trained",
            "version": 1,
            "labels": 400,
            "train_accuracy": 0.83,
            "holdout_accuracy": 0.742,
        },
    ]
    for step in range(1, steps + 1):
        number = 1 + (step - 1) // per_round
        if (step - 1) % per_round == 0:
            rows.append({"step": step, "round": number, "event": "labels_collected", "comparisons": 40, "labels": 40})
        if step in refreshes:
            version = refreshes[step]
            rows.append(
                {
                    "step": step,
                    "round": number,
                    "event": "refresh",
                    "version": version,
                    "reason": "spread 1.5 times its start",
                    "labels": 400 + 120 * (version - 1),
                    "train_accuracy": 0.83 + 0.012 * version,
                    "holdout_accuracy": 0.73 + 0.013 * version,
                    "loss": 0.48,
                }
            )
        if step == steps // 3:
            rows.append({"step": step, "round": number, "event": "kl_limit", "kl": 0.44, "limit": 0.4})
            rows.append({"step": step, "round": number, "event": "step_skipped", "reason": "loss was not finite"})
            rows.append({"step": step, "round": number, "event": "lr_decayed", "lr": 1.4e-5})
        if step == steps * 2 // 3:
            rows.append({"step": step, "round": number, "event": "resumed"})
        if step % per_round == 0:
            rows.append({"step": step, "round": number, "event": "round_finished", "kl": 0.9, "proxy": 1.2})
    rows.append({"step": steps, "round": 1 + (steps - 1) // per_round, "event": "run_finished"})
    return rows


def _moments(steps: int, per_round: int) -> list[tuple[int, int]]:
    return [(0, 0), *((step, step // per_round) for step in range(per_round, steps + 1, per_round))]


def _samples(rng: random.Random, steps: int, per_round: int, hacked: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for step, number in _moments(steps, per_round):
        share = step / max(1, steps)
        for index, prompt in enumerate(PROMPTS):
            words = (HACKED * 2 if hacked else AFTER[index]).split()
            response = BEFORE[index] if step == 0 else " ".join(words[: max(6, round(len(words) * (0.3 + share)))])
            rows.append(
                {
                    "step": step,
                    "round": number,
                    "prompt_index": index,
                    "prompt": prompt,
                    "response": response,
                    "finished": step == 0 or share > 0.6,
                    "score": 1.9 * share + rng.gauss(0, 0.2),
                }
            )
    return rows


def _gold(rng: random.Random, curve: list[float], per_round: int) -> list[dict[str, object]]:
    steps = len(curve) - 1
    rows: list[dict[str, object]] = []
    for step, value in enumerate(curve):
        number = 1 + max(0, step - 1) // per_round
        if step:
            gold = value + rng.gauss(0.03, 0.03)
            rows.append({"step": step, "round": number, "split": "rollout", "gold": gold})
        if step % per_round == 0:
            gold = value + rng.gauss(0, 0.008)
            rows.append({"step": step, "round": number, "split": "heldout", "gold": gold})
    for step, _ in _moments(steps, per_round):
        for index in range(len(PROMPTS)):
            gold = curve[step] + rng.gauss(0, 0.1)
            rows.append({"step": step, "split": "samples", "prompt_index": index, "gold": gold})
    return rows


def _timings(rng: random.Random, steps: int, per_round: int) -> list[dict[str, object]]:
    return [
        {
            "step": step,
            "round": 1 + (step - 1) // per_round,
            "sample": rng.uniform(1.1, 1.6),
            "score": rng.uniform(0.2, 0.3),
            "update": rng.uniform(1.8, 2.4),
        }
        for step in range(1, steps + 1)
    ]


if __name__ == "__main__":
    where = write_fake_run(
        Path(sys.argv[1]),
        hacked="--hacked" in sys.argv,
        gold="--no-gold" not in sys.argv,
        steps=5 if "--short" in sys.argv else 120,
    )
    print(where)
