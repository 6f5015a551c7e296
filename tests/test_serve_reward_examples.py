"""The examples for other trainers: the scripts are sound, hand over what they should, and the service answers it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import small_run
from holdfast.interop import verl
from reward_server import TOKEN, serving_rewards

EXAMPLES = Path(__file__).parents[1] / "examples" / "serve-reward"
SOURCE = Path(__file__).parents[1] / "src"
PROMPT = "A quick question: do we need to book and are dogs allowed?"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    run = small_run.run(tmp_path_factory.mktemp("examples"), run__rounds="1", guard__mode="off")
    with serving_rewards(run) as running:
        yield running


def environment(served, **more):
    own = {"HOLDFAST_REWARD_URL": served.address, "HOLDFAST_REWARD_TOKEN": TOKEN, "PYTHONPATH": str(SOURCE)}
    return {**os.environ, **own, **more}


def arguments_of(script, served, tmp_path, after=""):
    """What a script hands to its trainer: a program that prints its arguments stands in for Python."""
    echo = tmp_path / "echo"
    echo.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    echo.chmod(0o755)
    command = f". {EXAMPLES / script} {after}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(served, PYTHON=str(echo)), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def value_of(option, arguments):
    return arguments[arguments.index(option) + 1]


def test_openrlhf_is_given_an_address_that_answers(served, tmp_path):
    arguments = arguments_of("openrlhf.sh", served, tmp_path)
    assert arguments[:2] == ["-m", "openrlhf.cli.train_ppo_ray"]
    url = value_of("--reward.remote_url", arguments)
    asked = {"query": [f"{PROMPT}We are there."], "prompts": [PROMPT], "labels": [None]}
    status, answer, _ = served.post(url.removeprefix(served.address), asked, None)
    assert status == 200
    assert len(answer["rewards"]) == 1


def test_slime_is_given_an_address_that_answers(served, tmp_path):
    arguments = arguments_of("slime.sh", served, tmp_path, after="&& printf '%s\\n' \"${ROLLOUT_ARGS[@]}\"")
    assert value_of("--rm-type", arguments) == "remote_rm"
    url = value_of("--rm-url", arguments)
    asked = {"prompt": PROMPT, "response": "We are there.", "label": None}
    status, answer, _ = served.post(url.removeprefix(served.address), asked, None)
    assert status == 200
    assert isinstance(answer, float)


def test_oat_is_given_an_address_that_answers(served, tmp_path):
    import httpx
    import msgpack

    arguments = arguments_of("oat.sh", served, tmp_path)
    assert value_of("--oracle", arguments) == "remote"
    asked = {"batch_prompt": [PROMPT], "batch_response": ["We are there."], "batch_candidates": []}
    # As OAT does: httpx puts the path behind that of the base address.
    with httpx.Client(base_url=value_of("--remote-rm-url", arguments), trust_env=False) as client:
        answer = client.post("/get_feedback", content=msgpack.packb(asked), timeout=30)
    assert answer.status_code == 200
    assert len(msgpack.unpackb(answer.content)["batch_score"]) == 1


def test_verl_is_given_a_function_and_data_that_carry_the_prompt(served, tmp_path, monkeypatch):
    arguments = arguments_of("verl.sh", served, tmp_path)
    assert "custom_reward_function.path=pkg://holdfast.interop.verl" in arguments
    name = next(a for a in arguments if a.startswith("custom_reward_function.name=")).partition("=")[2]
    assert hasattr(verl, name)
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": PROMPT}) + "\n" for _ in range(30)))
    command = [sys.executable, str(EXAMPLES / "verl_data.py"), str(file), str(tmp_path / "data")]
    subprocess.run(command, check=True, capture_output=True)
    row = pq.read_table(tmp_path / "data" / "train.parquet").to_pylist()[0]
    monkeypatch.setenv("HOLDFAST_REWARD_URL", served.address)
    monkeypatch.setenv("HOLDFAST_REWARD_TOKEN", TOKEN)
    told = verl.compute_score(
        data_source=row["data_source"],
        solution_str="We are there.",
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info=row["extra_info"],
    )
    status, answer, _ = served.post("/slime", {"prompt": PROMPT, "response": "We are there."})
    assert status == 200
    assert told["score"] == pytest.approx(answer, abs=1e-5)


def test_any_program_can_ask(served):
    command = [sys.executable, str(EXAMPLES / "ask.py")]
    done = subprocess.run(command, env=environment(served), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert "nothing unusual" in lines[2]


@pytest.mark.parametrize("script", sorted(p.name for p in EXAMPLES.glob("*.sh")))
def test_a_script_says_what_it_needs(script):
    subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")}
    done = subprocess.run(["bash", str(EXAMPLES / script)], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the address of holdfast serve-reward" in done.stderr
