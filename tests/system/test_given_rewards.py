"""Whole runs whose reward is given: guarded, without an ensemble, and resumed as if they had never been killed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from processes import Point, SlowSteps, command, resume, run_until, several
from safetensors.torch import load_file
from starlette.testclient import TestClient

import given_rewards
import model_directories
import nostalgic
import small_run
import terse
import web_site
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.guard.ladder import DISCOUNT
from holdfast.models.batches import take_rows
from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer
from holdfast.people.accounts import AccountStore
from holdfast.preferences.pair import Pair
from holdfast.reward.classifier import Classifier, classifier_ensemble
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.scores import Asked
from holdfast.reward.sources.model import ModelSource
from holdfast.run.directory import RunDirectory
from holdfast.web.app import create_app
from holdfast.web.site import open_site
from judge_stand_in import answering, parts_of
from small_run import differences, events_of, result_of, rows_of

PARTS = (
    f'{{polite = {{source = "{given_rewards.POLITE}", weight = 2.0}}, '
    f'words = {{source = "{given_rewards.COUNTS}", normalise = "batch"}}}}'
)
GATED = (
    f'{{polite = {{source = "{given_rewards.POLITE}", gate = true}}, words = {{source = "{given_rewards.COUNTS}"}}}}'
)
# Who is asked over HTTP is asked for less.
LIGHT = {"ppo__batch": "4", "audit__pairs": "4", "audit__more_pairs": "4", "reward__standardise_samples": "8"}
JUDGE = {"judge__url": "URL/v1", "judge__model": "m", **LIGHT}
IN_PAIRS = {"ppo__samples_per_prompt": "2", "ppo__batch": "4", "ppo__advantage": "rloo"}
RUBRIC = """
[[criteria]]
name = "long"
text = "It is long."
weight = 2.0

[[criteria]]
name = "polite"
text = "It is polite."
"""
# Each kind of source that a run may be given, by the settings that name it; URL is where a service answers, DIR where
# files are.
SOURCES: dict[str, dict[str, str]] = {
    "function": {"reward__source": given_rewards.COUNTS},
    "asynchronous function": {"reward__source": given_rewards.FINISHED},
    "model directory": {"reward__source": "model:DIR/classifier"},
    "judge, a score": {"reward__source": "judge", **JUDGE},
    "judge, a rubric": {"reward__source": "DIR/rubric.toml", **JUDGE},
    "judge, in pairs": {"reward__source": "judge", "judge__mode": "pairwise", **JUDGE, **IN_PAIRS},
    "service of ours": {"reward__source": "URL/score", **LIGHT},
    "OpenRLHF's service": {"reward__source": "URL/get_reward", **LIGHT},
    "slime's service": {"reward__source": "URL/slime", **LIGHT},
    "sum of several": {"reward__parts": PARTS},
    "behind a gate": {"reward__parts": GATED},
    "online DPO": {
        "reward__source": given_rewards.COUNTS,
        "run__optimiser": "dpo",
        **IN_PAIRS,
        "ppo__advantage": "gae",
    },
    "groups": {"reward__source": given_rewards.COUNTS, **IN_PAIRS, "ppo__advantage": "grpo"},
}
each_source = pytest.mark.parametrize("named", SOURCES.values(), ids=SOURCES.keys())


def worth(answer: str) -> float:
    """What the judge and the services make of an answer."""
    return float(len(set(answer.split())))


def reply(path: str, body: Any) -> Any:
    """Every service of these tests, by its path."""
    match path:
        case "/score":
            return {"version": 1, "answers": [{"score": worth(text)} for text in body["responses"]]}
        case "/get_reward":
            starts = zip(body["query"], body["prompts"], strict=True)
            return {"rewards": [worth(query.removeprefix(prompt)) for query, prompt in starts]}
        case "/slime":
            return worth(body["response"])
    return {"choices": [{"message": {"content": says(body["messages"][0]["content"])}}]}


def says(question: str) -> str:
    parts = parts_of(question)
    if "answer" not in parts:
        a, b = (worth(parts[f"answer {side}"]) for side in "AB")
        return f"Verdict: {'tie' if a == b else 'A' if a > b else 'B'}"
    value = worth(parts["answer"])
    if "1: yes" in question:
        return f"1: {'yes' if value > 8 else 'no'}\n2: {'yes' if 'please' in parts['answer'] else 'no'}"
    return f"Score: {min(10.0, value)}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering(reply) as there:
        yield there.url


def placed(named: dict[str, str], url: str, directory: Path) -> dict[str, str]:
    """Settings with the place of the services and of the files."""
    (directory / "rubric.toml").write_text(RUBRIC)
    if "classifier" in named.get("reward__source", ""):
        model_directories.classifier(directory / "classifier")
    return {name: value.replace("URL", url).replace("DIR", str(directory)) for name, value in named.items()}


ALWAYS_BAD = {"run__rounds": "3", "world__labeller": nostalgic.SPEC, "audit__pairs": "12", "audit__more_pairs": "12"}
# In these runs the labeller likes round 1 and no later policy, so they are taken back.


@each_source
def test_a_guarded_run_ends_the_same_when_it_was_killed(named: dict[str, str], url: str, tmp_path: Path) -> None:
    settings = placed(named, url, tmp_path)
    whole = small_run.run(tmp_path / "whole", **settings)
    run = run_until(tmp_path, Point("holdfast.run.learner:Learner.see", call=5), SlowSteps(), **settings)
    resume(run)
    assert differences(result_of(run), result_of(whole)) == []
    assert [event["level"] for event in events_of(whole, "verdict")], "it was audited"
    assert not (whole / "rewards").exists()
    assert not events_of(whole, "ensemble_trained")
    assert not events_of(whole, "refresh")
    for row in rows_of(whole / "metrics.jsonl"):
        assert not [name for name in row if name.startswith("ensemble/")]
        assert row["reward/unscored"] == 0.0


def test_metrics_are_in_the_reward_s_own_unit(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="1", **SOURCES["function"])
    first = rows_of(run / "metrics.jsonl")[0]
    parts = first["reward/component/words"], first["reward/component/different"]
    assert first["objective/scores"] == pytest.approx(sum(parts), abs=1e-5)
    (standard,) = events_of(run, "standardised")
    assert standard["mean"] == pytest.approx(sum(standard["components"].values()), abs=1e-5)
    # The policy is the reference in the first step, so what it learns from is near 0 before the penalty.
    penalty = first["response/unfinished"]
    standardised = (first["objective/scores"] - standard["mean"]) / standard["sd"]
    assert first["objective/rlhf_reward"] == pytest.approx(standardised - penalty, abs=1e-5)


def test_a_reward_that_pays_the_same_for_everything_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text("def flat(answer):\n    return 2.0\n")
    small_run.run(tmp_path, run__rounds="1", reward__source=f"{tmp_path / 'own.py'}:flat")
    said = " ".join(capsys.readouterr().err.split())
    assert "The reward own.py:flat on 16 of 16 answers of the reference: mean 2.00 for each, so that" in said
    assert "a policy learns nothing as long as that is so" in said


def test_a_reward_reads_the_columns_of_the_prompt_s_row(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    small = small_run.run(tmp_path / "small", run__rounds="1", **SOURCES["function"])
    texts = sorted({row["prompt"] for row in rows_of(small / "samples.jsonl")})
    words = "the to a is it you we are and can"
    prompts.write_text("".join(json.dumps({"prompt": text, "wanted": words}) + "\n" for text in texts))
    told = {
        "world__name": "files", "world__options": "{}", "data__prompts": str(prompts), "data__heldout_share": "0.0",
        "policy__path": str(small / "reference"), "sft__epochs": "0", "run__rounds": "1", "guard__mode": "off",
        "world__labeller": "", "reward__source": given_rewards.EXPECTED,
    }  # fmt: skip
    run = small_run.run(tmp_path / "told", **told)
    assert fmean(row["objective/scores"] for row in rows_of(run / "metrics.jsonl")) > 0.1
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    ended = command(small_run.run_arguments(tmp_path / "untold", **told), tmp_path / "out.txt")
    assert ended.code == 2
    assert "needs a column 'wanted'" in ended.printed


def test_answers_without_a_score_are_left_out_and_told(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="2", reward__unscored_limit="0.9", reward__source=given_rewards.SOMETIMES)
    shares = [row["reward/unscored"] for row in rows_of(run / "metrics.jsonl")]
    assert any(0.0 < share < 0.9 for share in shares)
    told = events_of(run, "unscored")
    assert told
    assert "cannot read this one" in told[0]["reasons"][0]
    assert len({event["round"] for event in told}) == len(told), "once a round"
    assert [row for row in rows_of(run / "metrics.jsonl") if row["objective/scores"] is None] == []


def test_a_step_with_too_few_scores_is_skipped_and_many_end_the_run(tmp_path: Path) -> None:
    arguments = small_run.run_arguments(
        tmp_path, run__steps_per_round="6", reward__unscored_limit="0.0", reward__source=given_rewards.SOMETIMES
    )
    ended = command(arguments, tmp_path / "out.txt")
    assert ended.code == 2, ended
    (last,) = ended.printed.strip().splitlines()[-1:]
    assert "5 steps in a row were dropped" in last
    assert "reward.unscored_limit" in last
    assert "cannot read this one" in last
    skipped = events_of(tmp_path / small_run.NAME, "step_skipped")
    assert "could not be scored" in skipped[0]["reason"]


def test_a_reward_that_scores_nothing_ends_the_run_before_its_first_step(tmp_path: Path) -> None:
    ended = command(small_run.run_arguments(tmp_path, reward__source=given_rewards.NEVER), tmp_path / "out.txt")
    assert ended.code == 2
    assert "scored 0 answers of 16 of the reference's" in ended.printed
    assert "gave None" in ended.printed


def test_beta_is_switched_on_where_it_was_0(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, kl__controller="fixed", kl__beta="0.0", **ALWAYS_BAD, **SOURCES["function"])
    tightened = [event for event in events_of(run, "action") if event["rung"] == "tighten"]
    assert tightened[0]["before"]["beta"] == 0.0
    assert tightened[0]["after"]["beta"] == pytest.approx(0.05 * 1.5)
    assert "beta was 0" in tightened[0]["words"]


def test_what_people_do_not_grant_counts_for_less_and_stays_so(tmp_path: Path) -> None:
    settings = ALWAYS_BAD | SOURCES["function"] | {"run__rounds": "4", "audit__pairs": "24"}
    run = small_run.run(tmp_path / "whole", **settings)
    discounts = [event for event in events_of(run, "action") if event["rung"] == "discount"]
    assert discounts
    assert (discounts[0]["before"], discounts[0]["after"]) == ({"share": 1.0}, {"share": DISCOUNT})
    named = next(
        event["evidence"]["component"] for event in events_of(run, "verdict") if "component" in event["evidence"]
    )
    assert f"the component '{named}'" in discounts[0]["words"]
    newest = CheckpointStore(run / "checkpoints")
    document = newest.load(newest.names()[-1]).documents["parts"]["reward"]  # type: ignore[index,call-overload]
    assert DISCOUNT in json.loads(json.dumps(document))["source"]["factors"].values()
    # A rollback takes the policy back and not what is known of the reward; a killed run has both again.
    killed = run_until(tmp_path, Point("holdfast.run.loop:OnlineLoop.commit", about="round-0003"), **settings)
    resume(killed)
    assert differences(result_of(killed, "round-0004"), result_of(run, "round-0004")) == []


def test_what_people_said_joins_a_hacked_reward_and_a_killed_run_has_it_again(tmp_path: Path) -> None:
    settings = SOURCES["function"] | {
        "world__labeller": terse.SPEC, "audit__pairs": "24", "ppo__lr": "0.02", "reward__corrective": "true",
    }  # fmt: skip
    whole = small_run.run(tmp_path / "whole", **settings)
    verdict = next(event for event in events_of(whole, "verdict") if event["level"] == "hacking")
    (joined,) = [event for event in events_of(whole, "action") if event["rung"] == "refresh"]
    assert joined["round"] == verdict["round"] == 2
    labels = joined["after"]["corrective"]
    assert re.match(rf"a reward model of {labels} audit labels joins the reward \(right on \d+%", joined["words"])
    assert joined["before"] == {"corrective": 0}
    after = [row for row in rows_of(whole / "metrics.jsonl") if "reward/component/audit labels" in row]
    assert [row["round"] for row in after] == [3, 3], "the policy learns from it as soon as it is there"
    assert not (whole / "rewards").exists()
    # It is nowhere on disk: who goes on trains it again, and everything that follows is the same.
    killed = run_until(tmp_path, Point("holdfast.run.learner:Learner.see", call=6), SlowSteps(), **settings)
    resume(killed)
    assert differences(result_of(killed), result_of(whole)) == []


def test_what_is_learnt_from_audit_labels_needs_somebody_who_gives_them(tmp_path: Path, unbroken: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(rows_of(unbroken / "samples.jsonl")[0]["prompt"] + "\n")
    files = {
        "data__heldout_share": "0.0",
        "world__name": "files",
        "world__options": "{}",
        "data__prompts": str(prompts),
        "world__labeller": "",
    }
    model = {"policy__path": str(unbroken / "reference"), "sft__epochs": "0"}
    ended = command(
        small_run.run_arguments(tmp_path, **files, **model, **SOURCES["function"], reward__corrective="true"),
        tmp_path / "out.txt",
    )
    assert ended.code == 2
    assert "nobody to answer them: name somebody with world.labeller" in ended.printed
    assert not (tmp_path / small_run.NAME).exists()


UNREAD: dict[str, Callable[[], dict[str, str]]] = {
    "reward.members": lambda: {"reward__members": "2"},
    "refresh.every_rounds": lambda: {"refresh__every_rounds": "2"},
    "gate.use": lambda: {"gate__use": "false"},
    "preferences.per_round": lambda: {"preferences__per_round": "7"},
    "flaw.where": lambda: {"flaw__name": "verbosity"},
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_a_given_reward_does_not_read_is_refused(name: str, tmp_path: Path) -> None:
    arguments = small_run.run_arguments(tmp_path, **SOURCES["function"], **UNREAD[name]())
    ended = command(arguments, tmp_path / "out.txt")
    assert ended.code == 2
    assert name in ended.printed
    assert not (tmp_path / small_run.NAME).exists()


def test_ppo_takes_a_source(tmp_path: Path, unbroken: Path) -> None:
    words = ["ppo", "--runs", str(tmp_path), "--name", small_run.NAME, "--policy", str(unbroken / "reference")]
    settings = small_run.settings(reward__source=given_rewards.COUNTS, sft__epochs="0", run__rounds="1")
    own = [w for w in settings if not w.startswith("reward.source")]
    pairs = [pair for pair in zip(settings[::2], settings[1::2], strict=True) if pair[1] in own]
    assert main([*words, "--reward", given_rewards.COUNTS, *(w for pair in pairs for w in pair)]) == 0
    assert "reward/component/words" in rows_of(tmp_path / small_run.NAME / "metrics.jsonl")[0]


def test_best_of_n_takes_a_source(unbroken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bestofn", "--policy", str(unbroken / "reference"), "--n", "6", "--limit", "3", "--json"]
    assert main([*words, "--reward", given_rewards.COUNTS]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 3
    for row in rows:
        (parts,) = given_rewards.counts([row["response"]])
        assert row["score"] == pytest.approx(sum(parts.values()), abs=1e-5)
        assert row["score"] >= row["mean_score"]
    assert main([*words, "--reward", given_rewards.NEVER]) == 2
    assert "could be scored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ppo", "--policy", "model"], "There is no reward: give --reward"),
        (["bestofn", "--policy", "model"], "There is no reward: give --reward"),
        (["ppo", "--reward", "gone.py:score", "--policy", "model"], "gone.py"),
        (["reward", "new", "--policy", "model", "--set", "reward.source=judge.py:x"], "trains an ensemble"),
        (["pipeline", "--stages", "sft,reward,ppo", "--set", "reward.source=judge.py:x"], "about an ensemble"),
    ],
)
def test_verbs_say_what_is_wrong(
    words: list[str], sentence: str, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [str(unbroken / "reference") if word == "model" else word for word in words]
    assert main(given) == 2
    assert sentence in capsys.readouterr().err


def test_a_published_model_learns_from_new_labels_behind_the_gate(tmp_path: Path) -> None:
    model_directories.classifier(tmp_path / "classifier")
    settings = {
        "reward__source": f"model:{tmp_path / 'classifier'}", "reward__refresh": "true", "refresh__lr": "0.001",
        "preferences__per_round": "8", "gate__use": "false",
    }  # fmt: skip
    whole = small_run.run(tmp_path / "whole", **settings)
    versions = [row["ensemble/version"] for row in rows_of(whole / "metrics.jsonl")]
    assert versions == [1, 1, 2, 2, 3, 3], "each round's labels make a version"
    assert not events_of(whole, "ensemble_trained")
    store = VersionStore(whole / "rewards")
    first, last = (load_file(whole / "rewards" / f"v00{n}" / "member-0.safetensors") for n in (1, 3))
    published = load_file(tmp_path / "classifier" / "model.safetensors")
    assert torch.equal(first["head.weight"], published["score.weight"])
    assert torch.equal(first["trunk.layers.0.mlp.up_proj.weight"], published["model.layers.0.mlp.up_proj.weight"])
    assert not torch.equal(last["head.weight"], first["head.weight"])
    assert store.document(1)["labels"] == 0
    killed = run_until(tmp_path, Point("holdfast.reward.training:_fit_member", call=2), SlowSteps(), **settings)
    resume(killed)
    assert differences(result_of(killed), result_of(whole)) == []


def test_as_a_member_a_published_model_says_what_it_says_by_itself(tmp_path: Path) -> None:
    spec = f"model:{model_directories.classifier(tmp_path / 'classifier')}"
    codec = Codec(word_tokenizer(["Is it open ?", "Yes it is . No"]))
    prompts, answers = ["Is it open ?"] * 2, ["Yes it is .", "No"]
    ensemble = classifier_ensemble(load_config(None, []), Classifier.open(spec), codec)
    tokens = [codec.encode_prompt(p) for p in prompts], [codec.encode_response(a) for a in answers]
    own = ModelSource(spec, "cpu", 512).score(Asked(prompts, answers)).total_B
    torch.testing.assert_close(ensemble.raw_scores(*tokens)[0], own, atol=1e-5, rtol=1e-5)
    pair = ensemble.own_pair(Pair(tokens[0][0], tokens[1][0], tokens[1][1], 1.0, 0))
    member = ensemble.members[0]
    rows = take_rows([pair.prompt] * 2, [pair.a, pair.b], [0, 1], ensemble.pad_id, torch.device("cpu"))
    torch.testing.assert_close(member(rows), own, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_fine_tuned_as_a_member_is_refused(tmp_path: Path) -> None:
    model_directories.classifier(tmp_path / "classifier", num_labels=3)
    settings = {"reward__source": f"model:{tmp_path / 'classifier'}", "reward__refresh": "true"}
    ended = command(small_run.run_arguments(tmp_path, **settings), tmp_path / "out.txt")
    assert ended.code == 2
    assert "one label" in ended.printed
    assert not (tmp_path / small_run.NAME).exists()
    told = command(small_run.run_arguments(tmp_path, **settings, reward__members="2"), tmp_path / "out.txt")
    assert "reward.members is not read here" in told.printed


TELLING = """
import os
from pathlib import Path

def score(completion):
    with Path(__file__).with_suffix(".log").open("a") as log:
        log.write(f"{os.getppid()}\\n")
    return 0.1 * len(completion.split())
"""


def test_of_several_processes_the_first_alone_asks_the_source(tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    settings = {"reward__source": f"{tmp_path / 'telling.py'}:score", "run__rounds": "1", "audit__more_pairs": "6"}
    ended = several(small_run.run_arguments(tmp_path / "runs", **settings), tmp_path / "out.txt")
    assert [one.code for one in ended] == [0, 0], ended[0]
    askers = set((tmp_path / "telling.log").read_text().split())
    assert len(askers) == 1
    rows = rows_of(tmp_path / "runs" / small_run.NAME / "metrics.jsonl")
    assert [row["reward/unscored"] for row in rows] == [0.0, 0.0]


def visible_words(page: str) -> str:
    """What a reader sees of a page, without the settings that it quotes."""
    bare = re.sub(r"<(script|style|pre)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", " ", bare)


def test_report_card_and_doctor_know_what_the_reward_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, run__rounds="2", reward__unscored_limit="0.9", reward__source=given_rewards.SOMETIMES)
    words = visible_words((run / "report.html").read_text())
    assert "Reward: what given_rewards.py:sometimes says" in words
    assert "Answers without a score" in words
    assert "ensemble" not in words.replace("ensemble, if any,", "").replace("ensemble_spread", "")
    assert "not scored" in capsys.readouterr().out
    assert main(["doctor", str(run)]) == 0
    assert "reward given_rewards.py" in capsys.readouterr().out
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "against a reward that was given" in card
    assert "reward ensemble" not in card
    assert "what given_rewards.py:sometimes says" in card


def test_components_have_a_chart_of_their_own(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="1", **SOURCES["function"])
    words = visible_words((run / "report.html").read_text())
    assert "Components of the reward" in words
    assert "different" in words


def test_the_dashboard_of_a_run_whose_reward_is_given(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="1", **SOURCES["function"])
    site = open_site(RunDirectory.open(run))
    site.accounts = AccountStore(site.store.database, hasher=web_site.QUICK)
    token, _ = site.accounts.open_session(site.accounts.create("owner", web_site.PASSWORD, "owner"))
    app = create_app(site)
    with TestClient(app, base_url=web_site.BASE) as client:
        client.cookies.set(web_site.COOKIE, token)
        page = client.get("/").text + client.get("/live").text
    assert "Reward: what given_rewards.py:counts says" in page
    assert "Reward version" not in page


def test_a_reward_whose_file_was_changed_is_told_when_the_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(Path(given_rewards.__file__).read_text())
    run = run_until(
        tmp_path, Point("holdfast.run.loop:OnlineLoop.commit", about="round-0002"), reward__source=f"{file}:counts"
    )
    file.write_text(file.read_text().replace("0.1 *", "0.3 *"))
    kept, _ = file.read_text(), file.unlink()
    assert main(["doctor", str(run)]) != 0
    file.write_text(kept)
    resume(run)
    (told,) = events_of(run, "reward_changed")
    assert told["files"] == [str(file)]
