"""The reference page of the settings is the generated one, and says of each setting what it is."""

import re
import tomllib
from pathlib import Path

from holdfast.config import Config, config_toml, load_config
from holdfast.config.reference import config_markdown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"

ROWS = {
    row.split("`")[1]: [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
    for row in config_markdown().splitlines()
    if row.startswith("| `")
}


def test_the_reference_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == config_markdown(), (
        "docs/reference/config.md is out of date: run `python -m holdfast.config.reference > docs/reference/config.md`."
    )


def test_every_setting_has_one_row_of_four_cells() -> None:
    tables = tomllib.loads(config_toml(Config()))
    assert list(ROWS) == [f"{section}.{name}" for section, values in tables.items() for name in values]
    assert {len(cells) for cells in ROWS.values()} == {4}
    assert all(all(cells) for cells in ROWS.values())


def test_defaults_can_be_copied_into_a_file(tmp_path: Path) -> None:
    """Each default, as the page prints it, reads back to the default."""
    lines: dict[str, list[str]] = {}
    for name, (_, default, _, _) in ROWS.items():
        section, setting = name.split(".")
        lines.setdefault(section, [f"[{section}]"]).append(f"{setting} = {default.strip('`')}")
    (tmp_path / "copied.toml").write_text("\n".join(line for part in lines.values() for line in part))
    assert load_config(tmp_path / "copied.toml") == Config()


def test_limits_and_choices_are_in_words() -> None:
    assert ROWS["kl.controller"][2] == "`fixed`, `adaptive`, `budget`"
    assert ROWS["rollout.top_p"][2] == "number, above 0, at most 1"
    assert ROWS["ppo.clip"][2] == "number, above 0"
    assert ROWS["run.rounds"][2] == "whole number, at least 1"
    assert ROWS["policy.fast"][2] == "true or false"
    assert ROWS["track.sinks"][2] == "list of texts"
    assert ROWS["refresh.freeze"][2] == "list of [first, last] pairs"
    assert ROWS["world.options"][2] == "table"
