"""`holdfast data check` from end to end, and runs on data that is broken, filtered or split."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import small_run
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.data.fingerprint import prompt_fingerprint
from holdfast.data.splits import is_heldout
from holdfast.errors import HoldfastError
from holdfast.run.inputs import Ingredients, gather
from holdfast.worlds.registry import load_task, load_world
from model_directories import llama
from small_run import settings, tree_of


def write(path: Path, rows: list[object]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


GOOD = [{"prompt": f"question {n}"} for n in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose chat template wants roles to alternate, as many do."""
    directory = llama(tmp_path_factory.mktemp("model") / "model")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    tokenizer.save_pretrained(directory)
    return directory


def test_clean_data_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.jsonl", GOOD)
    assert main(["data", "check", str(path)]) == 0
    told = capsys.readouterr().out
    assert told.endswith("\n0 errors, 0 warnings: nothing is wrong.\n")
    held = sum(is_heldout(row["prompt"], 0.1) for row in GOOD)
    assert re.search(rf"p\.jsonl +prompts +40 +40 +0 +0 +{40 - held} +{held}\n", told)
    assert re.search(r"p\.jsonl +prompt +10 +11 +11 +11 +11\n", told)


def test_warnings_are_1_and_errors_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.jsonl", [*GOOD, GOOD[3], GOOD[3]])
    assert main(["data", "check", str(path), "--limit", "1"]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"{path}:41: warning: the same prompt is at {path}:4; it counts once [duplicate]\n")
    assert "... and 1 more [duplicate]" in told
    assert "2 warnings: a run takes this data." in told
    write(path, [*GOOD, '{"prompt": '])
    assert main(["data", "check", str(path)]) == 2
    assert f"{path}:41: error: is not JSON" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "c.jsonl", [{"prompt": "a", "chosen": "bb", "rejected": "c"}, {"prompt": "a"}])
    assert main(["data", "check", "--json", str(path), "--answer-length", "0", "1"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["errors"], told["warnings"]) == (1, 1)
    assert [(p["line"], p["kind"]) for p in told["problems"]] == [(1, "too_long"), (2, "missing_column")]
    (source,) = told["sources"]
    assert (source["kind"], source["rows"], source["usable"], source["beyond_limits"]) == ("preferences", 2, 1, 1)
    assert source["lengths"]["chosen"]["max"] == 2


def test_text_from_a_file_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.jsonl", [{"prom\u001b[31mpt": "a"}])
    assert main(["data", "check", str(path)]) == 2
    assert "\u001b" not in capsys.readouterr().out


def test_lengths_in_tokens(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.jsonl", [*GOOD, {"prompt": "word " * 50}])
    assert main(["data", "check", str(path), "--tokenizer", str(model), "--prompt-length", "0", "60", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["length_unit"] == "tokens"
    assert [(p["line"], p["kind"]) for p in told["problems"]] == [(41, "too_long")]


def test_a_conversation_that_the_template_refuses(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = {"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    path = write(tmp_path / "p.jsonl", [twice, *GOOD])
    assert main(["data", "check", str(path)]) == 1  # a warning: some templates take it
    assert main(["data", "check", str(path), "--tokenizer", str(model)]) == 2
    told = capsys.readouterr().out
    assert f"{path}:1: error: The tokenizer's chat template refuses" in told
    assert "roles must alternate [template_refuses]" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tokenizer", "gone"], "no directory gone"),
        (["--prompt-length", "0", "-1"], "below 0"),
        (["--heldout-share", "0.9"], "from 0 to 0.5"),
    ],
)
def test_options_that_make_no_sense(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", str(write(tmp_path / "p.jsonl", GOOD)), *arguments]) == 2
    assert sentence in capsys.readouterr().err


LONG = "word " * 250  # with the template more than the model's 192 tokens
TWICE = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
BROKEN: list[object] = ["{", '{"prompt": ""}', '{"question": "x"}', '{"prompt": 7}', '{"prompt": "\\ud83d"}']
ASKED = [{"prompt": text} for text in ("question 1", "question 2", "a", "question 3 which is a little longer")]
ROWS: dict[str, tuple[list[object], list[object]]] = {
    "prompts": ([*ASKED, *({"prompt": f"q{n}"} for n in range(8))], [*BROKEN, {"prompt": LONG}, {"prompt": TWICE}]),
    "demonstrations": (
        [{"prompt": f"q{n}", "completion": "ok"} for n in range(6)] + [{"prompt": LONG[:40], "completion": "fine"}],
        [
            *BROKEN,
            *({"prompt": f"q{n}", "completion": LONG} for n in range(6)),
            {"prompt": TWICE, "completion": "ok"},
            {"prompt": "q1", "completion": ""},
        ],
    ),
    "preferences": (
        [{"prompt": f"q{n}", "chosen": "good", "rejected": "bad"} for n in range(6)],
        [
            *BROKEN,
            *({"prompt": f"q{n}", "chosen": LONG, "rejected": "bad"} for n in range(6)),
            {"prompt": TWICE, "chosen": "good", "rejected": "bad"},
            {"prompt": "q1", "chosen": "x", "rejected": "x"},
            {"prompt": "q1", "chosen": "x", "rejected": "y", "labeller": ""},
            {"prompt": "q1", "chosen": "x", "rejected": "y", "labeller": ["\ud83d"]},
            {"prompt": "q1", "chosen": "x", "rejected": "y", "round": 2**40},
        ],
    ),
}
JUDGED: list[object] = [
    {"prompt": prompt, "completion": text, "label": good}
    for prompt in ("q1", "q2")
    for text in ("x", "y")
    for good in (True, False)
]


def rows_of(kind: str) -> st.SearchStrategy[list[object]]:
    """Some good rows, so that the kind shows, and none to two bad ones among them."""
    good, bad = ROWS[kind]
    mixed = st.tuples(
        st.lists(st.sampled_from(good), min_size=1, max_size=14), st.lists(st.sampled_from(bad), max_size=3)
    )
    lists = mixed.map(lambda both: [both[0][0], *both[1], *both[0][1:]])
    return lists | st.lists(st.sampled_from(JUDGED), min_size=1, max_size=4) if kind == "preferences" else lists


def only_the_smallest_is_long_enough() -> list[object]:
    """Ten prompts of which the hash holds out none at a tenth, so a run holds out the smallest: the only long one."""
    short = [text for n in range(10, 100) if not is_heldout(text := str(n), 0.1)][:9]
    smaller = (f"long {n}" for n in range(10_000))
    least = min(prompt_fingerprint(text) for text in short)
    long = next(text for text in smaller if 2**64 / 10 < prompt_fingerprint(text) < least)
    return [{"prompt": text} for text in (*short, long)]


ANY: dict[str, Any] = {
    "heldout": None, "share": "0.1", "limits": ("[0, 0]", "[0, 0]"), "unit": "characters", "skip": "0.0", "epochs": "1",
}  # fmt: skip
# An answer that is too long for the model, to a prompt that is held out and so trains nothing.
HELD = {
    "prompts": ROWS["prompts"][0],
    "demonstrations": [ROWS["demonstrations"][0][0], {"prompt": "q7", "completion": LONG}],
}


@hypothesis.example(files=HELD, **ANY | {"heldout": [{"prompt": "q7"}]})
@hypothesis.example(files={"prompts": only_the_smallest_is_long_enough()}, **ANY | {"limits": ("[3, 0]", "[0, 0]")})
@given(
    files=st.fixed_dictionaries({"prompts": rows_of("prompts")}, optional={k: rows_of(k) for k in list(ROWS)[1:]}),
    heldout=st.none() | rows_of("prompts"),
    share=st.sampled_from(["0.0", "0.1", "0.5"]),
    limits=st.tuples(st.sampled_from(["[0, 0]", "[0, 9]", "[3, 0]"]), st.sampled_from(["[0, 0]", "[0, 3]", "[9, 0]"])),
    unit=st.sampled_from(["characters", "tokens"]),
    skip=st.sampled_from(["0.0", "0.2", "0.5"]),
    epochs=st.sampled_from(["0", "1"]),
)
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_the_check_refuses_exactly_what_a_run_refuses(
    model: Path, files: dict[str, list[object]], heldout: list[object] | None, share: str, limits: tuple[str, str],
    unit: str, skip: str, epochs: str,
) -> None:  # fmt: skip
    given = {
        "policy.path": str(model), "data.heldout_share": share, "data.prompt_length": limits[0],
        "data.answer_length": limits[1], "data.length_unit": unit, "data.skip_bad": skip, "sft.epochs": epochs,
        "rollout.max_new_tokens": "12", "run.threads": "1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        paths = {kind: str(write(Path(made) / f"{kind}.jsonl", rows)) for kind, rows in files.items()}
        words = ["data", "check", *paths.values(), "--json"]
        own = {"world.name": "files", **{f"data.{kind}": path for kind, path in paths.items()}}
        if heldout is not None:
            own["data.heldout_prompts"] = str(write(Path(made) / "heldout.jsonl", heldout))
            words += ["--heldout", own["data.heldout_prompts"]]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = main([*words, *(word for name, value in given.items() for word in ("--set", f"{name}={value}"))])
        refusal = ""
        try:
            config = load_config(None, [f"{name}={value}" for name, value in (given | own).items()])
            gather(config, load_task(config, load_world(config)), ensemble_given=True)
        except HoldfastError as error:
            refusal = str(error)
    assert (code == 2) == bool(refusal), (printed.getvalue(), refusal)


@pytest.mark.parametrize(
    ("row", "kind"),
    [({"prompt": LONG}, "beyond_context"), ({"prompt": TWICE}, "template_refuses")],
    ids=["too long", "template"],
)
def test_with_the_policy_the_line_is_named_that_a_run_would_refuse(
    row: object, kind: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "p.jsonl", [*GOOD, row])
    assert main(["data", "check", str(path), "--policy", str(model), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [(p["line"], p["kind"]) for p in told["problems"] if p["severity"] == "error"] == [(41, kind)]


def test_a_run_reads_other_formats_and_writes_down_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompts and labels straight from hh-rlhf, demonstrations converted from Alpaca: a run from end to end."""
    talks = [
        {side: f"\n\nHuman: {text}\n\nAssistant: {answer} answer" for side, answer in
         (("chosen", "good"), ("rejected", "bad"))} for text in TEXTS
    ]  # fmt: skip
    hh = write(tmp_path / "hh.jsonl", [*talks, {"chosen": "no dialogue", "rejected": "none"}])
    alpaca = [{"instruction": text, "input": "", "output": f"answer to {text}"} for text in TEXTS]
    (tmp_path / "alpaca.json").write_text(json.dumps(alpaca))
    demonstrations = tmp_path / "demonstrations.jsonl"
    assert main(["data", "convert", str(tmp_path / "alpaca.json"), str(demonstrations)]) == 0
    assert main(["data", "check", str(demonstrations)]) == 0
    files = {"data__prompts": hh, "data__demonstrations": demonstrations, "data__preferences": hh}
    given = {"world__name": "files", "world__options": "{}", **{k: str(v) for k, v in files.items()}}
    words = settings(**given, run__rounds="1", audit__pairs="0", data__skip_bad="0.05")
    assert main(["run", "--runs", str(tmp_path / "runs"), "--name", small_run.NAME, *words]) == 0
    told = capsys.readouterr().err
    assert f"note: {hh} is read as hh-rlhf (40 of the first 41 rows)." in told
    assert f"note: 1 of 41 rows of {hh} cannot be used and is left out; `holdfast data check {hh}` names them." in told
    lines = (tmp_path / "runs" / small_run.NAME / "left-out.jsonl").read_text().splitlines()
    assert [(json.loads(line)["line"], json.loads(line)["kind"]) for line in lines] == [(41, "not_a_dialogue")] * 2
    imported = tmp_path / "labels.jsonl"
    assert main(["data", "convert", str(hh), str(imported), "--skip-bad", "0.05"]) == 0
    config = load_config(None, [word for word in words if word != "--set"])
    converted = load_config(None, [*(w for w in words if w != "--set"), f"data.preferences={imported}"])
    one, two = (gather(c, load_task(c, load_world(c))) for c in (config, converted))
    assert one.imported == two.imported


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_on_broken_data_stops_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write(tmp_path / "p.jsonl", [*GOOD, '{"prompt": ""}', "{", '{"prompt": 3}'])
    before = tree_of(tmp_path)
    words = settings(world__name="files", data__prompts=str(prompts))
    assert main(["run", "--runs", str(tmp_path / "runs"), *words]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"holdfast: {prompts}, line 41: 'prompt' is empty; write one or remove the row; 2 more problems after it: "
        f"`holdfast data check {prompts}` lists all.\n"
    )
    assert tree_of(tmp_path) == before


TEXTS = [f"question {n}{' and more' if n % 2 else ''}" for n in range(40)]


def own_data(tmp_path: Path, **more: str) -> list[str]:
    """Settings of a run on files in which every prompt has a demonstration and a pair."""
    prompts = write(tmp_path / "p.jsonl", [{"prompt": text} for text in TEXTS])
    demonstrations = write(tmp_path / "d.jsonl", [{"prompt": t, "completion": f"answer to {t}"} for t in TEXTS])
    pairs = [{"prompt": t, "chosen": f"good answer to {t}", "rejected": "bad"} for t in TEXTS]
    labels = write(tmp_path / "c.jsonl", list(pairs))
    files = {"data__prompts": prompts, "data__demonstrations": demonstrations, "data__preferences": labels}
    given = {"world__name": "files", "world__options": "{}", **{k: str(v) for k, v in files.items()}, **more}
    return [word for word in settings(**given) if word != "--set"]


def test_heldout_prompts_train_nothing(tmp_path: Path) -> None:
    config = load_config(None, own_data(tmp_path, data__heldout_share="0.3"))
    found = gather(config, load_task(config, load_world(config)))
    held = set(found.task.heldout_prompts)
    assert held == {text for text in TEXTS if is_heldout(text, 0.3)}
    assert held
    left = set(TEXTS) - held
    assert set(found.task.prompts) == left
    assert {d.prompt for d in found.task.demonstrations} == left
    assert {item.comparison.prompt for item in found.imported} == left
    assert found.task.notes == (
        f"{len(held)} of 40 demonstrations answer held-out prompts and are left out.",
        f"{len(held)} of 40 imported comparisons are about held-out prompts and are left out.",
    )


def gathered(tmp_path: Path, **more: str) -> Ingredients:
    config = load_config(None, own_data(tmp_path, data__heldout_share="0.0", **more))
    return gather(config, load_task(config, load_world(config)))


@pytest.mark.parametrize("unit", ["characters", "tokens"])
def test_limits_leave_out_what_is_beyond_them(tmp_path: Path, unit: str) -> None:
    codec = gathered(tmp_path).codec
    length = len if unit == "characters" else lambda text: len(codec.encode_prompt(text))
    limit = length("question 0")
    expected = [text for text in TEXTS if length(text) <= limit]
    assert 5 <= len(expected) <= 20
    found = gathered(tmp_path, data__length_unit=unit, data__prompt_length=f"[0, {limit}]")
    assert found.task.prompts == expected
    assert [d.prompt for d in found.task.demonstrations] == expected
    assert [item.comparison.prompt for item in found.imported] == expected
    assert f"{40 - len(expected)} of 40 prompts are beyond the limits of data and are left out." in found.task.notes


def test_limits_of_answers(tmp_path: Path) -> None:
    found = gathered(tmp_path, data__answer_length="[3, 25]")
    # "good answer to question 8" has 25 characters; a second figure, or "and more", is too much for the pair.
    assert [item.comparison.prompt for item in found.imported] == [f"question {n}" for n in (0, 2, 4, 6, 8)]
    # "answer to question 38" has 21, and "and more" makes it 30.
    assert [d.prompt for d in found.task.demonstrations] == TEXTS[::2]
    assert found.task.prompts == TEXTS


def test_limits_that_leave_nothing(tmp_path: Path) -> None:
    config = load_config(None, own_data(tmp_path, data__prompt_length="[100, 0]"))
    with pytest.raises(HoldfastError, match=r"None of the \d+ prompts is within the limits, in characters"):
        gather(config, load_task(config, load_world(config)))


def test_limits_without_data_of_one_s_own(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="are for your own data"):
        load_world(load_config(None, ["data.prompt_length=[0, 10]"]))
    with pytest.raises(HoldfastError, match=r"data\.answer_length is \[5, 3\]; write"):
        load_config(None, ["data.answer_length=[5, 3]"])


def test_a_run_on_one_s_own_data_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [w for word in own_data(tmp_path, run__rounds="1", audit__pairs="0") for w in ("--set", word)]
    assert main(["run", "--runs", str(tmp_path / "runs"), "--name", small_run.NAME, *words]) == 0
    assert re.search(
        r"note: \d of 40 demonstrations answer held-out prompts and are left out\.", capsys.readouterr().err
    )


def test_sft_imitates_only_what_is_within_the_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = own_data(tmp_path, data__answer_length="[0, 25]", data__heldout_share="0.0", sft__batch="8")
    words = [w for word in given for w in ("--set", word)]
    assert main(["sft", str(tmp_path / "out"), *words]) == 0
    told = capsys.readouterr().err
    assert "note: 20 of 40 demonstrations are beyond the limits of data and are left out." in told
    # 20 demonstrations in batches of 8 are 3 updates; all 40 would have been 5.
    assert re.search(r"\b3/3\b|\(3 steps\)", told)
