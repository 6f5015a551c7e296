"""Do two checkouts give the same bits? For a change of the source that must change no behaviour.

python benchmarks/same_bits.py BEFORE AFTER [--only CASE ...] [--seed N] [--keep DIR] [--trl-python PATH]

Every case is run once in each checkout with the interpreter that runs this. Compared are the rows of metrics, samples,
gold and probes, the order of events, every label, and every tensor of every checkpoint and reward version, bit by bit.
How JSON documents are laid out and what else events say is told of and decides nothing. Exit code 0 if all is equal,
1 if not, 2 for input that cannot be used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Settings that AFTER calls otherwise; None for one that is gone there.
RENAMED: dict[str, str | None] = {"audit.suspicious_pairs": "audit.more_pairs"}
# Parts of places that have another name since, in either checkout. A place reads
# /checkpoints/round-0001/policy.safetensors:lm.lm_head.weight.
MOVED: dict[str, str] = {
    "/streams.safetensors:collect": "/collector.safetensors:rng",
    "/average.safetensors:": "/mean.safetensors:",
}

# How the places of tensors end that AFTER may save where BEFORE has none. Nothing is compared there, so whoever adds
# one has to know that it holds nothing that a run has come to.
ADDED: tuple[str, ...] = ("/collector.safetensors:rng",)

SMALL = {
    "run.threads": "1", "run.rounds": "4", "run.steps_per_round": "2", "policy.hidden": "32", "policy.layers": "2",
    "policy.heads": "4", "policy.feed_forward": "64", "sft.epochs": "1", "sft.batch": "16", "reward.members": "3",
    "world.options": "{prompts = 64, demonstrations = 64, heldout = 8}", "reward.initial_comparisons": "32",
    "preferences.per_round": "8", "ppo.batch": "16", "audit.pairs": "6", "audit.suspicious_pairs": "12",
    "rollout.max_new_tokens": "24", "guard.baseline_batches": "8",
}  # fmt: skip
DPO = SMALL | {"run.optimiser": "dpo", "ppo.samples_per_prompt": "2"}
# Everything that holds weights of its own, and what is decided from sums over a batch.
SHARED = SMALL | {"policy.critic": "model", "ppo.epoch_kl_stop": "0.02", "probes.every": "4"}
ARMS = ("bare", "guarded", "guarded again", "tuned")  # of `lab run efficacy`, in the order in which they are run

# One thread for each library, no network, and no import of files that happen to lie in the working directory.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}

# What is not compared: clocks, lengths of files, digests of files that are compared themselves, that a run was resumed.
CLOCK = {"time", "started", "seconds", "cpu_seconds", "prepared_seconds", "peak_memory", "offsets", "step_time",
         "train_runtime", "train_samples_per_second", "train_steps_per_second"}  # fmt: skip
LEFT_OUT = {"timings.jsonl", "manifest.json", "pinned.json", "reference.json"}
RESUMED = "resumed"
# Files of transformers' trainer that are compared as bytes, by their stem.
WHOLE = {"optimizer", "rng_state"}
MISSING = "(missing)"
COUNTED = {"metrics.jsonl": "metric rows", "events.jsonl": "events", ".db": "labels", ".jsonl": "other rows"}
LABELS = """SELECT c.prompt, a.text, b.text, l.choice, l.labeller, c.round FROM labels l
    JOIN comparisons c ON c.id = l.comparison_id JOIN responses a ON a.id = c.a JOIN responses b ON b.id = c.b
    ORDER BY l.rowid"""

SMALL_RUN = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import small_run
small_run.run(pathlib.Path("runs"), run__seed=sys.argv[2])
"""
# The process kills itself where a checkpoint is written and about to get its name.
KILLED_RUN = """
import os, runpy, signal, sys
def watch(event, details):
    if event == "os.rename" and str(details[1]).endswith("round-0003"):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""
# The tests' stand-in for TRL's trainers, with a labeller who goes against what the ensemble has learned.
STAND_IN = """
import json, sqlite3, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1] + "/interop", sys.argv[1]]
from group_trainer import trainer_of
from holdfast.interop.trl import HoldfastCallback, ensemble_reward
run, seed = Path("runs/run"), int(sys.argv[2])
asked = sqlite3.connect(run / "run.db").execute("SELECT prompt FROM comparisons ORDER BY rowid").fetchall()
prompts = [[{"role": "user", "content": text}] for text in dict.fromkeys(json.loads(text) for (text,) in asked)]
reward = ensemble_reward(run)
trainer = trainer_of(run / "reference", reward, Path("out"), prompts, steps=12, seed=seed)
HoldfastCallback(lambda prompt, a, b: "a" if len(a) > len(b) else "b", every=2, seed=seed).attach(trainer)
trainer.train()
"""
TRL_JOB = {
    "run": "runs/run", "output": "out", "algorithm": "grpo", "guarded": True, "steps": 24, "every": 8, "onset": 8,
    "flaw": "verbosity", "weight": 2.0, "answers": 64, "group": 8, "new_tokens": 48, "beta": 0.05, "lr": 1e-3,
    "reward": "ensemble", "loss": None,
    "beta_factor": 3.0, "pairs": 16, "suspicious_pairs": 48, "more_pairs": 48, "cut": 0, "resume": "",
}  # fmt: skip

TRL_DRIVERS = ("benchmarks/trl/drivers/guard.py", "src/holdfast/bench/drivers/trl_guard.py")


class SaidError(Exception):
    """A sentence: what cannot be used, or why a run came to no end that could be compared."""


@dataclass(frozen=True)
class Checkout:
    """One of the two, and the directory that a case is run in."""

    side: str
    root: Path
    place: Path
    seed: int
    trl_python: str = ""

    def start(self, *words: str, code: int = 0, python: str = sys.executable) -> str:
        """The interpreter with these words, on the source of this checkout; returns what it printed."""
        path = os.pathsep.join([str(self.root / "src"), str(self.root)])
        variables = os.environ | ENVIRONMENT | {"PYTHONPATH": path}
        done = subprocess.run(
            [python, *words], cwd=self.place, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode != code:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["it said nothing"]
            raise SaidError(f"{self.side} ended with code {done.returncode} instead of {code}: {said[-1].strip()}")
        return done.stdout

    def settings(self, changes: Mapping[str, str]) -> list[str]:
        """Settings as `--set` options, by the names that they have in this checkout."""
        renamed = RENAMED if self.side == "after" else {}
        names = {name: renamed.get(name, name) for name in changes}
        return [word for old, new in names.items() if new for word in ("--set", f"{new}={changes[old]}")]

    def words(self, name: str, changes: Mapping[str, str]) -> list[str]:
        return ["run", "--runs", "runs", "--name", name, *self.settings({"run.seed": str(self.seed), **changes})]

    def run(self, name: str, changes: Mapping[str, str], launcher: Sequence[str] = ()) -> Path:
        """`holdfast run` in a process, or in several by a launcher; returns the run's directory."""
        self.start(*launcher, "-m", "holdfast", *self.words(name, changes))
        return self.place / "runs" / name


Runs = dict[str, Path]
Work = Callable[[Checkout], Runs]


def alone(name: str, changes: Mapping[str, str]) -> Work:
    """One run in one process."""
    return lambda checkout: {name: checkout.run(name, changes)}


def small(checkout: Checkout) -> Runs:
    """The tests' own small run."""
    checkout.start("-c", SMALL_RUN, str(checkout.root / "tests"), str(checkout.seed))
    return {"small": checkout.place / "runs" / "small"}


def rollback(checkout: Checkout) -> Runs:
    """An experiment of the lab on a flaw that the guard rolls back; one worker, so that arms end in their order."""
    words = ["lab", "run", "efficacy", "--only", "repetition", "--seeds", "1", "--first-seed", str(checkout.seed)]
    checkout.start(
        "-m", "holdfast", *words, "--workers", "1", "--runs", "lab", "--out", ".", "--keep-weights",
        *checkout.settings({"run.rounds": "4"}),
    )  # fmt: skip
    ended = sorted(checkout.place.glob("lab/trials/*/seed-*/metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    document = json.loads(next(checkout.place.glob("lab-efficacy*.json")).read_text())
    result = checkout.place / "result" / "result.jsonl"
    result.parent.mkdir()
    result.write_text(json.dumps(document["trials"]) + "\n" + json.dumps(rounded(document["result"])) + "\n")
    return {arm: file.parent for arm, file in zip((*ARMS, "result"), (*ended, result), strict=True)}


def killed(checkout: Checkout) -> Runs:
    """A run that is killed and resumed; it has to end as the unbroken one does."""
    runs = {"unbroken": checkout.run("unbroken", SMALL), "killed": checkout.place / "runs" / "killed"}
    checkout.start("-c", KILLED_RUN, *checkout.words("killed", SMALL), code=-9)
    checkout.start("-m", "holdfast", "resume", "runs/killed")
    if found := differences(facts_of(runs["unbroken"]), facts_of(runs["killed"])):
        raise SaidError(f"{checkout.side} ends otherwise once it was killed and resumed: {found[0]}")
    return runs


def processes(checkout: Checkout) -> Runs:
    """Two processes, with either way of sharing the work."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return {way: checkout.run(way, SHARED | {"processes.strategy": way}, torchrun) for way in ("data", "fsdp2")}


def trl(checkout: Checkout) -> Runs:
    """The guard as a callback of the tests' stand-in for TRL's trainers."""
    run = checkout.run("run", SMALL | {"run.rounds": "1"})
    checkout.start("-c", STAND_IN, str(checkout.root / "tests"), str(checkout.seed))
    return {"run": run, "trainer": checkout.place / "out"}


def real_trl(checkout: Checkout) -> Runs:
    """The guard as a callback of TRL's own GRPO, by the checkout's own driver."""
    run = checkout.run("run", {"run.rounds": "1", "run.threads": "1"})
    driver = next(path for pattern in TRL_DRIVERS for path in checkout.root.glob(pattern))
    checkout.start(str(driver), json.dumps(TRL_JOB | {"seed": checkout.seed}), python=checkout.trl_python)
    return {"run": run, "trainer": checkout.place / "out"}


# What is run, with which seed, and the event without which it shows nothing.
CASES: dict[str, tuple[Work, int, str]] = {
    "small": (small, 3, "audit"), "default": (alone("default", {}), 5, "audit"),
    "rollback": (rollback, 1174, "rollback"), "killed": (killed, 3, "audit"), "dpo": (alone("dpo", DPO), 3, "audit"),
    "processes": (processes, 3, "audit"), "trl": (trl, 3, "audit"), "real-trl": (real_trl, 1000, "audit"),
}  # fmt: skip


@dataclass
class Facts:
    """What a directory holds, by place."""

    rows: dict[str, list[Any]] = field(default_factory=dict)
    events: dict[str, list[Any]] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)

    def order(self) -> dict[str, list[Any]]:
        """Which event came when."""
        return {place: [[e["event"], e["step"], e["round"]] for e in rows] for place, rows in self.events.items()}

    def counts(self) -> Counter[str]:
        counts = Counter({"tensors": len(self.tensors)})
        for place, rows in (self.rows | self.events).items():
            counts[next(kind for end, kind in COUNTED.items() if place.endswith(end))] += len(rows)
        return counts


def called(place: str) -> str:
    """The name that a place has by now."""
    for old, new in MOVED.items():
        place = place.replace(old, new)
    return place


def facts_of(directory: Path) -> Facts:
    """Read everything in a directory that is compared."""
    facts = Facts()
    for path in sorted(directory.rglob("*")):
        place = called("/" + str(path.relative_to(directory)))
        if not path.is_file() or path.name in LEFT_OUT:
            continue
        if path.suffix == ".jsonl":
            rows = [without_clock(json.loads(line)) for line in path.read_text().splitlines()]
            if path.name == "events.jsonl":
                facts.events[place] = [row for row in rows if row["event"] != RESUMED]
            else:
                facts.rows[place] = rows
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                facts.rows[place] = [list(row) for row in database.execute(LABELS)]
        elif path.suffix == ".safetensors":
            facts.tensors |= {called(f"{place}:{name}"): tensor for name, tensor in tensors_of(path)}
        elif path.stem in WHOLE:
            facts.tensors[place] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix == ".json":
            facts.documents.setdefault(str(Path(place).parent), {})[path.name] = without_clock(
                json.loads(path.read_text())
            )
    return facts


def tensors_of(path: Path) -> Iterator[tuple[str, str]]:
    """The name of each tensor of a safetensors file, and its type, shape and digest as one text."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, about in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            low, high = (begin + offset for offset in about["data_offsets"])
            yield name, f"{about['dtype']} {about['shape']} {hashlib.sha256(data[low:high]).hexdigest()}"


def rounded(value: Any) -> Any:
    """Figures to six digits: intervals may be computed otherwise, from trials that are compared bit by bit."""
    if isinstance(value, dict):
        return {name: rounded(of) for name, of in value.items()}
    if isinstance(value, list):
        return [rounded(of) for of in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clock(of) for name, of in value.items() if name not in CLOCK}
    return [without_clock(of) for of in value] if isinstance(value, list) else value


def text_of(value: Any) -> str:
    """A value as a text that is equal for equal bits only, and for two NaN."""
    return json.dumps(value, sort_keys=True)


def differences(before: Facts, after: Facts) -> list[str]:
    """Where two directories differ: what a run did first, and what came of it last."""
    found = []
    for one, other in ((before.rows, after.rows), (before.order(), after.order())):
        found += only_one_has(one, other)
        for place in sorted(one.keys() & other.keys(), key=lambda name: (not name.endswith("/metrics.jsonl"), name)):
            found += first_difference(place, one[place], other[place])
    added = {place for place in after.tensors.keys() - before.tensors.keys() if place.endswith(ADDED)}
    found += only_one_has(before.tensors, {p: of for p, of in after.tensors.items() if p not in added})
    both = sorted(before.tensors.keys() & after.tensors.keys())
    if odd := [place for place in both if before.tensors[place] != after.tensors[place]]:
        found.append(f"{len(odd)} of {len(both)} tensors, {odd[0]} the first of them")
    return found


def only_one_has(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [f"only {'before' if x in before else 'after'} has {x}" for x in sorted(before.keys() ^ after.keys())]


def first_difference(place: str, before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    """The first row in which two lists differ, and in what; nothing for equal ones."""
    for number, (one, other) in enumerate(zip(before, after, strict=False), 1):
        if names := different_names(one, other):
            values = [row.get(names[0], MISSING) if isinstance(row, dict) else row for row in (one, other)]
            return [f"{names[0]} of row {number} of {place}, {short(values[0])} before and {short(values[1])} after"]
    return [] if len(before) == len(after) else [f"{place} has {len(before)} rows before and {len(after)} after"]


def different_names(one: Any, other: Any) -> list[str]:
    """The names under which two rows hold other values; the whole of rows that have no names."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [] if text_of(one) == text_of(other) else ["the whole"]
    return [name for name in {**one, **other} if text_of(one.get(name, MISSING)) != text_of(other.get(name, MISSING))]


def short(value: Any) -> str:
    return text if len(text := text_of(value)) <= 100 else f"{text[:97]}..."


def notes(before: Facts, after: Facts) -> list[str]:
    """Differences that decide nothing: other fields of events, and documents that are laid out otherwise."""
    found = Counter(only_one_has(before.documents, after.documents))
    found.update(x for x in only_one_has(before.tensors, after.tensors) if x.endswith(ADDED))
    for place in before.events.keys() & after.events.keys():
        for one, other in zip(before.events[place], after.events[place], strict=False):
            if one["event"] == other["event"] and (names := different_names(one, other)):
                found[f"event {one['event']} with another {', '.join(names)}"] += 1
    for place in before.documents.keys() & after.documents.keys():
        if names := different_names(before.documents[place], after.documents[place]):
            one, other = Counter(leaves(before.documents[place])), Counter(leaves(after.documents[place]))
            values = f"{(one - other).total()} values only before, {(other - one).total()} only after"
            found[f"{', '.join(names)} in {Path(place).parent} laid out otherwise, {values}"] += 1
    return [f"{count} x {text}" for text, count in sorted(found.items())]


def leaves(value: Any) -> Iterator[str]:
    """The plain values of a document, wherever they stand."""
    if isinstance(value, dict | list):
        for of in value.values() if isinstance(value, dict) else value:
            yield from leaves(of)
    else:
        yield text_of(value)


def compare(name: str, sides: Sequence[Checkout]) -> bool:
    """Run a case in both checkouts and say in a line whether they are equal; notes follow, a line each."""
    work, _, needed = CASES[name]
    began, kinds = time.monotonic(), set[str]()
    found, told, counts = list[str](), list[str](), Counter[str]()
    try:
        before, after = [work(side) for side in sides]
        for run in before:
            one, other = facts_of(before[run]), facts_of(after[run])
            found += [f"{run}: {text}" for text in differences(one, other)]
            told += [f"{run}: {text}" for text in notes(one, other)]
            counts.update(one.counts())
            kinds |= {event["event"] for events in one.events.values() for event in events}
        if missing := [kind for kind in (*COUNTED.values(), "tensors") if not counts[kind]] or {needed} - kinds:
            found.insert(0, f"there was no {next(iter(missing))}, so the case shows nothing")
    except (SaidError, OSError, ValueError, LookupError, StopIteration, sqlite3.Error) as error:
        found = [str(error) if isinstance(error, SaidError) else f"{type(error).__name__}: {error}"]
    compared = ", ".join(f"{counts[kind]} {kind}" for kind in (*COUNTED.values(), "tensors"))
    verdict = f"DIFFERENT  {found[0]}  (and {len(found) - 1} more; " if found else "equal  ("
    print(f"{name:<10} {verdict}{compared}; {time.monotonic() - began:.0f} s)", flush=True)
    for line in told:
        print(f"{'':<10} for information: {line}", flush=True)
    return not found


def check(root: Path) -> None:
    """Refuse what is no checkout, and an interpreter that would import the source of another one."""
    if not (root / "src" / "holdfast").is_dir():
        raise SaidError(f"{root} is no checkout of Holdfast: it has no src/holdfast.")
    found = Checkout(str(root), root, root, 0).start("-c", "import holdfast; print(holdfast.__file__)")
    if not Path(found.strip()).resolve().is_relative_to(root):
        raise SaidError(f"{sys.executable} does not import the holdfast of {root}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--only", nargs="+", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seed", type=int, help="for every case, instead of its own")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs here")
    parser.add_argument("--trl-python", metavar="PATH", help="an interpreter that has TRL, for the case real-trl")
    args = parser.parse_args()
    names = args.only or [name for name in CASES if name != "real-trl" or args.trl_python]
    try:
        if unknown := [name for name in names if name not in CASES]:
            raise SaidError(f"There is no case {unknown[0]}; there are {', '.join(CASES)}.")
        if "real-trl" in names and not shutil.which(args.trl_python or ""):
            raise SaidError("The case real-trl needs --trl-python, an interpreter that has TRL.")
        if args.seed is not None and args.seed < 0:
            raise SaidError(f"--seed is {args.seed}; seeds begin at 0.")
        roots = {"before": args.before.resolve(), "after": args.after.resolve()}
        for root in roots.values():
            check(root)
        results = []
        with tempfile.TemporaryDirectory(prefix="holdfast-same-bits-") as temporary:
            for name in names:
                place = (args.keep or Path(temporary)).resolve() / name
                if place.exists():
                    raise SaidError(f"{place} is there already; remove it or keep the runs elsewhere.")
                seed = CASES[name][1] if args.seed is None else args.seed
                sides = [Checkout(s, r, place / s, seed, args.trl_python or "") for s, r in roots.items()]
                for side in sides:
                    side.place.mkdir(parents=True)
                results.append(compare(name, sides))
    except SaidError as error:
        print(f"same_bits: {error}", file=sys.stderr)
        return 2
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
