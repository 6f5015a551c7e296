"""A made-up guarded run: a hack in round 4 is found by people and undone, a refresh is refused, the run ends well.

python tests/report/fake_guard.py DIRECTORY [--stopped | --advise]
"""

import json
import math
import random
import sys
from pathlib import Path

from fake_run import write_fake_run, write_lines

ROUNDS, PER_ROUND = 8, 10
HACKED = 4  # the round that is undone
GOOD = 3  # the round that it goes back to

SIGNALS = {
    # name: (reference, how far it moves in a good run, how far in the hacked round, noise)
    "length": (14.0, 5.0, 24.0, 0.6),
    "repeated_trigrams": (0.02, 0.01, 0.31, 0.006),
    "similarity": (0.11, 0.03, 0.22, 0.01),
    "compression": (1.4, 0.1, 0.9, 0.03),
    "ensemble_spread": (0.22, 0.05, 0.35, 0.02),
    "ensemble_spread_growth": (0.0, 0.02, 0.3, 0.06),
    "entropy": (2.6, -0.6, -1.2, 0.05),
    "self_perplexity": (6.2, -1.8, -3.2, 0.2),
    "rare_tokens": (0.03, 0.0, 0.01, 0.004),
    "unlabelled_tokens": (0.004, 0.0, 0.01, 0.001),
    "prompt_copying": (0.21, 0.02, -0.05, 0.02),
    "unfinished": (0.02, -0.01, 0.08, 0.01),
    "kl_per_answer": (0.1, 4.5, 6.0, 0.15),
    "kl_per_token": (0.01, 0.2, 0.2, 0.01),
    "kl_step": (0.09, 0.0, 0.15, 0.03),
    "kl_acceleration": (0.0, 0.0, 0.1, 0.04),
    "ppo_ratio": (1.0, 0.0, 0.01, 0.004),
    "clip_fraction": (0.12, 0.0, 0.05, 0.03),
    "feature_distance": (1.0, 0.2, 1.1, 0.05),
    "feature_shift": (0.01, 0.01, 0.12, 0.004),
}


def wilson(wins: float, pairs: int) -> dict[str, float]:
    z, share = 1.96, wins / pairs
    centre = (share + z * z / (2 * pairs)) / (1 + z * z / pairs)
    half = z / (1 + z * z / pairs) * math.sqrt(share * (1 - share) / pairs + z * z / (4 * pairs * pairs))
    return {"value": share, "low": centre - half, "high": centre + half}


def audit_fields(reference, anchor, left, rng=None) -> dict[str, object]:
    """An audit as the loop writes it; `reference` and `anchor` are (wins, pairs, claimed) or None."""
    rng = rng or random.Random(1)
    fields: dict[str, object] = {"labels_left": left, "accuracy": 0.71, "ece": 0.08, "brier": 0.19}
    fields["labels"] = sum(side[1] for side in (reference, anchor) if side)
    for name, side in (("reference", reference), ("anchor", anchor)):
        fields[f"{name}_pairs"] = side[1] if side else 0
        fields[f"{name}_wins"] = side[0] if side else 0.0
        fields[f"{name}_rate"] = wilson(side[0], side[1]) if side else None
        fields[f"claimed_{name}"] = side[2] if side else None
    fields["reliability"] = [
        {
            "low": low / 10,
            "high": (low + 1) / 10,
            "count": 3 + low // 2,
            "claimed": low / 10 + 0.05,
            "observed": min(1.0, max(0.0, 0.25 + 0.05 * low + rng.gauss(0, 0.06))),
        }
        for low in range(1, 10)
    ]
    return fields


def event(step: int, round: int, kind: str, **fields: object) -> dict[str, object]:
    return {"step": step, "round": round, "event": kind, "time": "2026-11-16T01:30:49.307+00:00", **fields}


SENTENCES = {
    HACKED: "people preferred the last good policy in 41 of 56 fresh pairs while the ensemble claimed 78% for the "
    "policy; answers are 2.1x longer than the reference's",
    6: "people preferred the policy to the last good policy in 13 of 24 fresh pairs and the ensemble claimed 61% for "
    "the policy; 9.1% of 3-grams repeat within an answer against 2.0% for the reference",
}
LEVELS = {HACKED: "hacking", 6: "watch"}
AUDITS = {
    1: ((15.5, 24, 0.62), None),
    2: ((17, 24, 0.70), (14, 24, 0.58)),
    3: ((18, 24, 0.77), (13.5, 24, 0.57)),
    HACKED: ((13, 24, 0.91), (15, 56, 0.78)),
    5: ((17.5, 24, 0.74), (13, 24, 0.55)),
    6: ((18, 24, 0.79), (13, 24, 0.61)),
    7: ((19, 24, 0.80), (14, 24, 0.57)),
    8: ((19.5, 24, 0.82), (13, 24, 0.56)),
}


def guard_events(advise: bool = False, stopped: bool = False) -> list[dict[str, object]]:
    """The guard's events of the run, in the order in which a loop writes them."""
    rng = random.Random(5)
    rows: list[dict[str, object]] = []
    left, version, last = 1200, 1, HACKED if stopped else ROUNDS
    for number in range(1, last + 1):
        end = number * PER_ROUND
        rows += _refresh(number, version) if number > 1 else []
        version += number > 1 and number != 6
        reference, anchor = AUDITS[number]
        left -= reference[1] + (anchor[1] if anchor else 0)
        rows.append(event(end, number, "audit", **audit_fields(reference, anchor, left, rng)))
        level = LEVELS.get(number, "healthy")
        why = SENTENCES.get(number, _calm(reference, anchor))
        evidence = {"evidence": {HACKED: 31.0, 6: 0.4}.get(number, 0.3 + 0.1 * number), "evidence_needed": 20.0}
        rows.append(event(end, number, "verdict", level=level, sentence=why, evidence=evidence))
        rows += _answers(number, end, level, why, advise)
        if stopped and number == HACKED:
            limit = "3 rollbacks have not cured it"
            rows.append(event(end, number, "stopped", reason=f"{limit}: {why}"))
    return rows


def _calm(reference, anchor) -> str:
    (wins, pairs, claimed), other = (anchor, "last good policy") if anchor else (reference, "reference")
    return (
        f"people preferred the policy to the {other} in {wins:g} of {pairs} fresh pairs and the ensemble claimed "
        f"{claimed:.0%} for the policy; no signal is unusual"
    )


def _refresh(number: int, version: int) -> list[dict[str, object]]:
    refused = number == 6
    reason = (
        "the guard asked for it: " + SENTENCES[HACKED] if number == HACKED + 1 else "1 round since the last refresh"
    )
    gate = (
        "shown worse on the labels of round 2 (58.1% right against 66.0%, p = 0.004)"
        if refused
        else "not worse on 412 labels of earlier rounds, 69.8% right on the newest against 66.4%"
    )
    fields = {"version": version + 1, "labels": 1000 + 150 * number, "train_accuracy": 0.79, "holdout_accuracy": 0.7}
    step = (number - 1) * PER_ROUND
    return [event(step, number, "refresh", reason=reason, accepted=not refused, gate_reason=gate, checks=[], **fields)]


def _answers(number: int, end: int, level: str, why: str, advise: bool) -> list[dict[str, object]]:
    rungs = {"watch": ["tighten"], "hacking": ["adversarial", "rollback", "tighten", "refresh"]}.get(level, [])
    if advise:
        return [event(end, number, "advice", rung=rung, reason=why) for rung in rungs]
    words = {
        "tighten": "the policy is held closer to the reference",
        "adversarial": "72 hacked answers labelled beside good ones",
        "refresh": "the ensemble is refreshed in the next round",
    }
    changed = {
        "tighten": ({"beta": 0.05, "kl_target": 6.0}, {"beta": 0.075, "kl_target": 4.2}),
        "adversarial": ({"labels": 1720}, {"labels": 1792}),
        "refresh": ({"refresh": ""}, {"refresh": "the guard asked for it"}),
    }
    rows = []
    for rung in rungs:
        if rung == "rollback":
            fields = {"to": f"round-{GOOD:04d}", "step_from": end, "step_to": GOOD * PER_ROUND, "kl_undone": 2.1}
            rows.append(event(end, number, "rollback", reason=why, ensemble_version=3, **fields))
        else:
            before, after = changed[rung]
            state = {"before": before, "after": after, "changed": True}
            rows.append(event(end, number, "action", rung=rung, words=words[rung], reason=why, **state))
    return rows


def write_guarded_run(directory: Path, *, advise: bool = False, stopped: bool = False, gold: bool = True) -> Path:
    """A fake run with a guard's events, readings of its signals, and curves that a rollback takes back."""
    steps = (HACKED if stopped else ROUNDS) * PER_ROUND
    write_fake_run(directory, steps=steps, steps_per_round=PER_ROUND, gold=gold)
    rng = random.Random(11)
    metrics = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    for row in metrics:
        row.update(_readings(rng, row["step"]))
        row["objective/scores"] = 1.9 * (1 - math.exp(-2.4 * _progress(row["step"]))) + rng.gauss(0, 0.07)
        row["objective/scores"] += 1.3 * _hack(row["step"])
        row["objective/kl"] = 0.1 + 4.5 * _progress(row["step"]) + 6 * _hack(row["step"]) + rng.gauss(0, 0.1)
    write_lines(directory / "metrics.jsonl", metrics)
    plain = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    kept = [e for e in plain if e["event"] in ("sft_finished", "ensemble_trained", "labels_collected")]
    ended = [] if stopped else [event(steps, ROUNDS, "run_finished")]
    rows = sorted([*kept, *guard_events(advise, stopped), *ended], key=lambda row: (row["round"], row["step"]))
    write_lines(directory / "events.jsonl", rows)
    if gold:
        write_lines(directory / "gold.jsonl", _gold(rng, steps))
    return directory


def _progress(step: int) -> float:
    """How far the run is on its good way: the hacked round is not on it."""
    kept = min(step, GOOD * PER_ROUND) + max(0, step - HACKED * PER_ROUND)
    return kept / ((ROUNDS - 1) * PER_ROUND)


def _hack(step: int) -> float:
    inside = (HACKED - 1) * PER_ROUND < step <= HACKED * PER_ROUND
    return (step - (HACKED - 1) * PER_ROUND) / PER_ROUND if inside else 0.0


def _readings(rng: random.Random, step: int) -> dict[str, float]:
    return {
        f"signal/{name}": start + good * _progress(step) + bad * _hack(step) + rng.gauss(0, noise)
        for name, (start, good, bad, noise) in SIGNALS.items()
    }


def _gold(rng: random.Random, steps: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for step in range(steps + 1):
        number = 1 + max(0, step - 1) // PER_ROUND
        truth = 0.31 + 0.43 * (1 - math.exp(-2.2 * _progress(step)))
        bad = truth - 0.35 * _hack(step)
        if step:
            rows.append({"step": step, "round": number, "split": "rollout", "gold": bad + rng.gauss(0, 0.02)})
        if step % PER_ROUND == 0:
            rows.append({"step": step, "round": number, "split": "heldout", "gold": bad})
            if step == HACKED * PER_ROUND:  # measured again after the rollback
                rows.append({"step": step, "round": number, "split": "heldout", "gold": truth})
    return rows


if __name__ == "__main__":
    print(write_guarded_run(Path(sys.argv[1]), advise="--advise" in sys.argv, stopped="--stopped" in sys.argv))
