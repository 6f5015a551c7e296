"""Which grammar a prompt has, and what is refused before anything is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tokenizers_of_kinds import byte_level, characters, everything_said, word_pieces

import small_run
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.grammar.form import form_of, structured_outputs
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec

ROOM = 40


def refusal(written: str, codec: Codec | None = None, **columns: object) -> str:
    codec = codec or characters()
    with pytest.raises(HoldfastError) as caught:
        Grammars.of(written, codec, ROOM, ["q"], {"q": columns})
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def test_as_a_vllm_server_takes_it(tmp_path: Path) -> None:
    (tmp_path / "g.lark").write_text('start: "a"')
    (tmp_path / "mine.py").write_text("class Mine: pass")
    asked = [
        structured_outputs(form)
        for written in ("choices:x|y", {"type": "integer"}, "regex:a+", f"{tmp_path}/g.lark")
        if (form := form_of(written))
    ]
    assert asked == [
        {"choice": ["x", "y"]},
        {"json": {"type": "integer", "x-guidance": {"whitespace_flexible": False}}, "disable_any_whitespace": True},
        {"regex": "a+"},
        {"grammar": 'start: "a"'},
    ]
    mask = form_of(f"{tmp_path}/mine.py:Mine")
    assert mask is not None
    with pytest.raises(HoldfastError, match="that a vLLM server cannot run"):
        structured_outputs(mask)


def test_nothing_asked_for_is_no_grammar() -> None:
    assert Grammars.of("", characters(), ROOM) is None
    assert Grammars.of("none", characters(), ROOM) is None


def test_each_prompt_by_its_row() -> None:
    codec = characters()
    rows: dict[str, object] = {
        "a": "choices:yes|no", "b": {"enum": [1, 2]}, "c": '{"const":"x"}', "d": ["up", "down"], "e": "regex:[01]{2}",
        "f": "none", "g": "choices:yes|no",
    }  # fmt: skip
    columns = {prompt: {"how": written, "other": 1} for prompt, written in rows.items()}
    grammars = Grammars.of("column:how", codec, ROOM, rows, columns)
    assert grammars is not None
    by_prompt = {prompt: grammars.of_prompt(codec.encode_prompt(prompt)) for prompt in rows}
    assert by_prompt.pop("f") is None
    said = {p: everything_said(grammar, codec) for p, grammar in by_prompt.items() if grammar is not None}
    assert said == {
        "a": {"yes", "no"}, "b": {"1", "2"}, "c": {'"x"'}, "d": {"up", "down"}, "e": {"00", "01", "10", "11"},
        "g": {"yes", "no"},
    }  # fmt: skip
    assert by_prompt["a"] is by_prompt["g"]
    assert grammars.allows("a", "no")
    assert not grammars.allows("a", "1")
    assert grammars.allows("f", "anything")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("yes|no", "write FILE.json"),
        ("missing.json", "missing.json, which cannot be read"),
        ("missing.lark", "missing.lark, which cannot be read"),
        ("missing.py:Class", "does not exist"),
        ("choices:", "at least one choice"),
        ("choices:yes||no", "each has to be a text"),
        ("regex:a(b", "pattern of rollout.grammar cannot be used: unclosed group"),
        ("regex:(?=a)b", "look-around"),
        ('{"type":"array","uniqueItems":true}', r'Unimplemented keys: \["uniqueItems"\]'),
        ('{"type":"integer","minimum":5,"maximum":3}', r"minimum \(5\) is greater than maximum \(3\)"),
        ('{"type":"strin"}', "Invalid type: strin"),
        ('{"type":', "is no JSON"),
        ('{"const":9223372036854775808}', "more than 64 bits"),
        ('{"items":{"type":"number","minimum":-0.5,"exclusiveMaximum":0}}', "let the bound itself pass"),
        ('{"type":"number","exclusiveMinimum":2,"maximum":2.5}', "let the bound itself pass"),
        ('{"enum":[1,NaN]}', "NaN is no number of JSON"),
        ("choices:a|bé", "after 'b' it has no token"),
        ("regex:(yesé|no)( [0-9]+)?", "after 'yes' it has no token"),
        ("column:how", "The column how of the prompt 'q' is empty"),
        ("regex:é{2}", "cannot be met"),
        ("regex:[a-z]{60}", r"rollout.max_new_tokens = 40: the shortest answer found has 61 tokens"),
        ('{"type":"array","items":{"type":"integer"},"minItems":30}', "has 62 tokens"),
        ('{"$ref":"#/$defs/t","$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"},"minItems":1}}}', "ever ends"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(written: str, sentence: str) -> None:
    assert re.search(sentence, refusal(written))


def test_a_row_is_named_that_cannot_be_used() -> None:
    said = refusal("column:how", how={"type": "strin"})
    assert said == "The JSON schema of the column how of the prompt 'q' cannot be used: Invalid type: strin."


def test_a_lark_grammar_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "wrong.lark"
    file.write_text("start: foo")
    assert 'unknown name: "foo"' in refusal(str(file))


def test_special_tokens_are_never_allowed_by_a_lark_grammar(tmp_path: Path) -> None:
    file = tmp_path / "special.lark"
    file.write_text("start: <[1]>")
    assert "cannot be" in refusal(str(file))


def test_a_tokenizer_that_cannot_spell() -> None:
    assert "one after the other" in refusal("choices:a|b", word_pieces())


def test_without_the_engine_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'holdfast-rl[structured]'" in refusal("choices:a|b")


def test_the_files_are_known_by_their_contents(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"enum": [1, 2]}))
    before = Grammars.of(str(file), byte_level(), ROOM)
    file.write_text(json.dumps({"enum": [1, 2, 3]}))
    after = Grammars.of(str(file), byte_level(), ROOM)
    assert before is not None
    assert after is not None
    before.restore(before.state())
    assert before.changed == []  # as it was read, whatever has become of the file
    after.restore(before.state())
    assert after.changed == ["answers.json"]


def test_a_run_under_a_grammar_that_cannot_be_met_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--runs", str(tmp_path), "--name", "small", *small_run.settings(rollout__grammar="choices:@~@")]
    assert main(words) == 2
    assert "cannot be met" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
