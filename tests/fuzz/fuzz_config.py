"""Settings: TOML texts and `--set` words, read, checked, and sometimes begun with."""

from __future__ import annotations

import random
import re
from pathlib import Path
from unittest import mock

from mutations import NESTED, NUMBERS, TEXTS, mutated_bytes
from sentences import refused, told

import small_run
from holdfast.config import load_config
from holdfast.config.files import config_toml
from holdfast.errors import HoldfastError
from holdfast.run.run import Run

LITERALS = (
    "[" * NESTED, "{a=" * 5000, "[1, [2, [3]]]", "{}", "[]", '"', "'''", '"\\u0000"', "0x" + "f" * 400, "1" * 5000,
    "1979-05-27T07:32:00Z", "07:32:00", "inf", "-inf", "nan", "true", "+1e400", "1_000", "", "# nothing", '"\\ud800"',
    "[" + "0," * 10_000 + "]",
)  # fmt: skip


class Begun(Exception):
    """Everything was checked and made; the rest would be training."""


class ConfigTarget:
    """`holdfast init` wrote a file, and somebody edited it."""

    seconds = 20.0

    def __init__(self) -> None:
        self.whole = config_toml(load_config(None))
        self.bare = config_toml(load_config(None), comments=False)
        self.small = config_toml(load_config(None, small_run.settings()[1::2]), comments=False)

    def attempt(self, rng: random.Random, place: Path) -> str:
        begin = rng.random() < 0.15
        text = self.small if begin else rng.choice((self.whole, self.bare))
        file = place / "run.toml"
        file.write_bytes(self._changed(rng, text))
        words = [self._word(rng, text) for _ in range(rng.choice((0, 0, 0, 1)))]
        if begin:
            return self._begun(file, words, place)
        try:
            config = load_config(file, words)
        except HoldfastError as refusal:
            return refused(refusal)
        assert load_config(_written(place, config_toml(config))) == config, "what is written does not read back"
        return "accepted"

    def _begun(self, file: Path, words: list[str], place: Path) -> str:
        """With a real run up to where it would train: the checks that need models and data."""
        options = [option for word in words for option in ("--set", word)]
        with mock.patch.object(Run, "train", side_effect=Begun):
            try:
                told(["run", "--config", str(file), "--runs", str(place / "runs"), "--name", "a", *options])
            except Begun:
                return "begun"
        assert not (place / "runs").exists() or not any((place / "runs").iterdir()), "refused, and yet written"
        return "refused before it began"

    def _changed(self, rng: random.Random, text: str) -> bytes:
        if rng.random() < 0.25:
            return mutated_bytes(rng, text.encode())
        lines = text.splitlines()
        settings = [i for i, line in enumerate(lines) if re.match(r"\w+ = ", line)]
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.choice(settings)
            name, _, value = lines[at].partition(" = ")
            kind = rng.choice(("odd", "odd", "odd", "take", "rename", "repeat", "move"))
            if kind == "odd":
                lines[at] = f"{name} = {_literal(rng)}"
            elif kind == "take":
                lines[at] = f"{name} = {lines[rng.choice(settings)].partition(' = ')[2]}"
            elif kind == "rename":
                lines[at] = f"{rng.choice((name.upper(), name + 's', name[:-1], 'π', name + '.x'))} = {value}"
            elif kind == "repeat":
                lines[at] = f"{lines[at]}\n{lines[at]}"
            else:
                lines[at], lines[0] = lines[0], lines[at]
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def _word(self, rng: random.Random, text: str) -> str:
        tables = re.findall(r"^\[(\w+)\]|^(\w+) = ", text, re.MULTILINE)
        table, name = rng.choice([t for t, _ in tables if t]), rng.choice([n for _, n in tables if n])
        return rng.choice(
            (f"{table}.{name}={_literal(rng)}", f"{table}={_literal(rng)}", f"{table}.{name}", "=", "..=1")
        )


def _literal(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(LITERALS)
    if kind < 0.7:
        return str(rng.choice(NUMBERS))
    return '"' + rng.choice(TEXTS).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _written(place: Path, text: str) -> Path:
    again = place / "again.toml"
    again.write_text(text, encoding="utf-8")
    return again


def open_target(work: Path) -> ConfigTarget:
    return ConfigTarget()
