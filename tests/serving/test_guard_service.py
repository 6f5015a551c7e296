"""`holdfast guard serve`, driven over HTTP by a scripted training: what it finds, advises, refuses and keeps."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from benchmarks.system.scripted_trainer import PROMPTS, SETTINGS, ScriptedTrainer, labeller_in, train

import people_at_work
from guard_server import TOKEN, ServedGuard, events_of, serving_guard
from holdfast.errors import HoldfastError
from holdfast.guard.ladder import DISCOUNT
from holdfast.interop.guard_client import GuardedTraining, GuardStopped
from holdfast.serving.guard.service import GuardService


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGuard]:
    with serving_guard(tmp_path / "guard", labeller_in(tmp_path)) as running:
        yield running


def ask(
    served: ServedGuard, method: str, path: str, document: Any = None, token: str | None = TOKEN
) -> tuple[int, dict[str, Any]]:
    """One request without a client's help."""
    body = document if isinstance(document, bytes) else None if document is None else json.dumps(document).encode()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(served.address + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def a_batch(count: int = 4, **more: Any) -> dict[str, Any]:
    columns = {"prompts": PROMPTS[:count], "answers": ["noon ferry"] * count, "rewards": [1.0] * count}
    return {"id": "one", **columns, **more}


# --- what it finds ----------------------------------------------------------------------------------------------


def test_a_hacked_training_is_found_and_what_the_client_did_is_written_down(
    served: ServedGuard, tmp_path: Path
) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1000)
    verdicts = train(served.client().training("hacked", **SETTINGS), trainer, 12)
    assert verdicts[0]["level"] == "hacking", verdicts
    assert "the component 'tone' gained" in verdicts[0]["sentence"]
    assert [action["do"] for action in trainer.done][:3] == ["rollback", "tighten", "discount"]
    assert (trainer.dial, trainer.weights["tone"]) == (0.0, DISCOUNT), "the client carried it out"
    assert served.client().training("hacked").look()["discounts"] == {"tone": DISCOUNT}
    assert all(verdict["level"] == "healthy" for verdict in verdicts[1:])
    written = [event for event in events_of(tmp_path / "guard" / "hacked") if event["round"] == 1]
    told = [event["do"] for event in written if event["event"] == "advised"]
    assert told == ["rollback", "tighten", "discount"]
    (rollback,) = [event for event in written if event["event"] == "rollback"]
    assert (rollback["to"], rollback["step_to"]) == ("round-0000", 0)
    assert rollback["reported"]["after"] == {"dial": 0.0}
    assert rollback["reported"]["before"]["dial"] > 0
    done = {event["rung"]: (event["before"], event["after"]) for event in written if event["event"] == "action"}
    assert done["tighten"] == ({"beta": 0.0}, {"beta": 0.05})
    assert done["discount"][1]["tone"] == DISCOUNT
    # What a reward of the trainer's own cannot do is said as well, and not advised.
    assert {event["rung"] for event in written if event["event"] == "left_out"} == {"adversarial", "refresh"}


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_a_healthy_training_is_not_called(served: ServedGuard, seed: int) -> None:
    trainer = ScriptedTrainer(hacked=False, seed=seed)
    training = served.client().training("healthy", **SETTINGS)
    verdicts = train(training, trainer, 24)
    assert len(verdicts) == 5
    assert {verdict["level"] for verdict in verdicts} <= {"healthy", "watch"}
    assert not {"rollback", "stop"} & {action["do"] for action in trainer.done}
    assert training.state["state"] == "ended"
    assert training.state["good"] == {"round": 5, "step": 24, "checkpoint": "global_step_24"}


def test_an_advice_that_is_declined_is_not_taken_for_done(served: ServedGuard, tmp_path: Path) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1001)
    training = served.client().training("declining", **SETTINGS)
    for _ in range(8):
        training.post(**trainer.batch())
        training.settle(trainer.answer, trainer.score, lambda action: None)
    written = [event for event in events_of(tmp_path / "guard" / "declining") if event["round"] == 1]
    kinds = [event["event"] for event in written]
    assert "rollback" not in kinds
    assert "action" not in kinds
    declined = [event["id"] for event in written if event["event"] == "declined"]
    assert declined == [event["id"] for event in written if event["event"] == "advised"]
    assert training.state["good"]["step"] == 0


def test_where_it_only_advises_nothing_is_waited_for(served: ServedGuard, tmp_path: Path) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1002)
    training = served.client().training("advised", **SETTINGS, mode="advise")
    for _ in range(8):
        training.post(**trainer.batch())
        state = training.settle(trainer.answer, trainer.score)
    assert state["state"] == "watching"
    assert state["actions"] == []
    assert state["verdict"]["advised"][0]["do"] == "rollback"
    assert {"advice"} <= {event["event"] for event in events_of(tmp_path / "guard" / "advised")}
    assert events_of(tmp_path / "guard" / "advised", "rollback", "advised", "action") == []


def test_it_stops_and_asks_and_goes_on_when_a_person_says_so(served: ServedGuard) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1003)
    training = served.client().training("stopped", **SETTINGS, rollbacks=0)
    with pytest.raises(GuardStopped, match="the labeller preferred"):
        train(training, trainer, 12)
    assert [action["do"] for action in trainer.done] == ["rollback"]
    assert training.look()["state"] == "stopped"
    # Nothing is lost meanwhile, and nothing is judged.
    before = training.state
    training.post(**trainer.batch())
    assert training.look(5)["state"] == "stopped"
    assert training.state["batches"] == before["batches"] + 1
    training.resume()
    assert training.settle(**trainer.hands)["state"] == "watching"
    assert training.state["steps"] == before["steps"] + 1


def test_baselines_may_be_of_the_references_own_answers(served: ServedGuard) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1004, pace=0.0)
    training = served.client().training("declared", **SETTINGS, baseline="reference")
    training.settle(**trainer.hands)
    for _ in range(4):
        assert training.state["state"] == "baseline"
        training.post(**trainer.batch(), of="reference")
        training.settle(**trainer.hands)
    assert (training.state["state"], training.state["steps"]) == ("watching", 0)
    trainer.pace = 0.5
    for _ in range(4):
        training.post(**trainer.batch())
        training.settle(**trainer.hands)
    assert training.state["verdict"]["level"] == "hacking"


def test_the_distance_to_the_reference_is_read_where_the_client_gives_it(served: ServedGuard, tmp_path: Path) -> None:
    trainer = ScriptedTrainer(hacked=False, seed=1005, pace=0.0)
    training = served.client().training("near", **{**SETTINGS, "pairs": 2, "more_pairs": 2, "budget": 0})
    training.settle(**trainer.hands)
    for _ in range(5):
        batch = trainer.batch()
        count = len(batch["answers"])
        ours, theirs = [[-1.0, -2.0]] * count, [[-1.5, -2.25]] * count
        training.post(**batch, logprobs=ours, reference_logprobs=theirs, tokens=[2] * count)
    training.settle(**trainer.hands)
    (row,) = [json.loads(line) for line in (tmp_path / "guard/near/metrics.jsonl").read_text().splitlines()]
    # log pi of an answer is -3 and log ref -3.75.
    assert row["objective/kl"] == row["signal/kl_per_answer"] == pytest.approx(0.75)
    assert row["signal/entropy"] == pytest.approx(3.0)
    assert row["response/length_mean"] == 2.0


def test_answers_without_a_reward_are_counted_and_no_zeros(served: ServedGuard, tmp_path: Path) -> None:
    trainer = ScriptedTrainer(hacked=False, seed=1006)
    training = served.client().training("unscored", **{**SETTINGS, "budget": 0})
    training.settle(**trainer.hands)
    for odd in (None, float("nan"), 1e30, None, None):
        batch = trainer.batch()
        batch["rewards"] = [odd] * 8 + [4.0] * 24
        del batch["components"]
        training.post(**batch)
    training.settle(**trainer.hands)
    (row,) = [json.loads(line) for line in (tmp_path / "guard/unscored/metrics.jsonl").read_text().splitlines()]
    assert row["reward/unscored"] == row["signal/unscored"] == 0.25
    assert row["objective/scores"] == 4.0


# --- nothing is lost --------------------------------------------------------------------------------------------


def test_two_hundred_batches_at_once_are_all_there(served: ServedGuard) -> None:
    training = served.client().training("many", **{**SETTINGS, "answers": 50, "every": 1000, "steps": 1000})
    trainer = ScriptedTrainer(hacked=False)
    training.settle(**trainer.hands)
    gate = threading.Barrier(50)

    def post(number: int) -> int:
        gate.wait(30)
        body = a_batch(5, id=f"batch-{number}", rewards=[float(number)] * 5)
        return ask(served, "POST", "/trainings/many/batches", body)[0]

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(post, range(200))) == [200] * 200
    state = training.look(10)
    assert (state["batches"], state["answers"], state["steps"]) == (200, 1000, 1000 // 50 - 4)


def test_a_batch_that_is_sent_again_is_there_once(served: ServedGuard) -> None:
    served.client().training("again", **SETTINGS)
    route = "/trainings/again/batches"
    assert ask(served, "POST", route, a_batch())[1]["new"] is True
    status, state = ask(served, "POST", route, a_batch())
    assert (status, state["new"], state["batches"], state["answers"]) == (200, False, 1, 4)
    status, refusal = ask(served, "POST", route, a_batch(rewards=[2.0] * 4))
    assert (status, "another batch called 'one'" in refusal["detail"]) == (409, True)


def test_a_training_is_found_again_by_its_name(served: ServedGuard) -> None:
    assert ask(served, "PUT", "/trainings/mine", SETTINGS)[0] == 201
    status, state = ask(served, "PUT", "/trainings/mine", SETTINGS)
    assert (status, state["new"]) == (200, False)
    status, refusal = ask(served, "PUT", "/trainings/mine", {**SETTINGS, "every": 5})
    assert (status, "with other settings" in refusal["detail"]) == (409, True)
    assert ask(served, "GET", "/trainings")[1]["trainings"][0]["training"] == "mine"
    assert served.client().training("mine").settings()["prompts"] == PROMPTS


def test_another_server_of_the_directory_is_refused(served: ServedGuard, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="is in use by process"):
        GuardService(tmp_path / "guard", labeller_in(tmp_path))


# --- who is let in, and what is refused -------------------------------------------------------------------------

ROUTES = [
    ("GET", "/trainings"), ("GET", "/trainings/mine/settings"),
    ("PUT", "/trainings/mine"), ("GET", "/trainings/mine"), ("POST", "/trainings/mine/batches"),
    ("POST", "/trainings/mine/answers"), ("POST", "/trainings/mine/actions"), ("POST", "/trainings/mine/end"),
    ("POST", "/trainings/mine/resume"), ("GET", "/nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_the_token_nobody_is_let_in(served: ServedGuard, method: str, path: str) -> None:
    for token in (None, "not-the-token-0123456789"):
        assert ask(served, method, path, {} if method != "GET" else None, token)[0] == 401
    assert ask(served, "GET", "/health", token=None) == (200, {"status": "ok"})


BAD: Sequence[tuple[Mapping[str, Any], int, str]] = [
    ({"rewards": [1.0]}, 422, "There are 4 answers, and 1 values in rewards"),
    ({"rewards": None}, 422, "rewards is missing"),
    ({"prompts": PROMPTS[:3]}, 422, "There are 3 prompts and 4 answers"),
    ({"answers": [1, 2, 3, 4]}, 422, "answers[0] is a number"),
    ({"id": ""}, 422, "id has to be a text"),
    ({"step": -1}, 422, "step is -1"),
    ({"of": "anchor"}, 422, "of is 'anchor'"),
    ({"of": "reference"}, 422, "baselines are of its first batches"),
    ({"reward": [1.0] * 4}, 422, "A batch has no field 'reward'"),
    ({"logprobs": ["a"] * 4}, 422, "Log-probs and kl have to be numbers"),
    ({"components": {"x": [1.0]}}, 422, "1 values in x"),
    ({"finished": [1, 1, 1, 1]}, 422, "finished has to hold true and false"),
    ({"prompts": [], "answers": [], "rewards": []}, 422, "there is nothing to store"),
]


def test_a_batch_that_is_none_is_refused_in_a_sentence_and_not_stored(served: ServedGuard) -> None:
    served.client().training("strict", **SETTINGS)
    route = "/trainings/strict/batches"
    for change, status, words in BAD:
        refusal = ask(served, "POST", route, a_batch(**change))
        assert refusal[0] == status, (change, refusal)
        assert words in refusal[1]["detail"], (change, refusal)
    assert ask(served, "POST", route, b"{")[0] == 400
    assert ask(served, "POST", route, b"x" * (65 << 20))[0] == 413
    assert ask(served, "GET", "/trainings/strict")[1]["batches"] == 0
    for path, words in (("answers", "no need called"), ("actions", "no action called")):
        body = {"need": "r9", "answers": []} if path == "answers" else {"id": "r9", "done": True}
        status, refusal = ask(served, "POST", f"/trainings/strict/{path}", body)
        assert (status, words in refusal["detail"]) == (404, True)
    assert ask(served, "POST", "/trainings/other/end")[0] == 404
    assert ask(served, "GET", "/trainings/strict?wait=600")[0] == 422


def test_settings_that_are_none_are_refused_and_nothing_is_begun(served: ServedGuard, tmp_path: Path) -> None:
    for change, words in [
        ({"prompts": []}, "prompts is empty"),
        ({"prompts": [PROMPTS[0]] * 2}, "the same prompt twice"),
        ({"answers": 0}, "answers is 0"),
        ({"mode": "off"}, "leave the guard out"),
        ({"mode": "maybe"}, "guard.mode"),
        ({"false_alarm": 2}, "guard.false_alarm"),
        ({"labeller": "evil.py:run"}, "no setting 'labeller'"),
        ({"anchor": "lost"}, "one of kept, asked"),
    ]:
        status, refusal = ask(served, "PUT", "/trainings/odd", {**SETTINGS, **change})
        assert (status, words in refusal["detail"]) == (422, True), (change, refusal)
    assert ask(served, "PUT", "/trainings/.odd", SETTINGS)[0] == 422
    assert ask(served, "PUT", "/trainings/odd", {"prompts": PROMPTS})[1]["detail"].startswith("The setting 'answers'")
    assert [path.name for path in (tmp_path / "guard").iterdir()] == ["run.lock"]


def test_answers_that_do_not_fit_what_was_asked_are_refused(served: ServedGuard) -> None:
    training = served.client().training("asked", **SETTINGS)
    (need,) = training.look(10)["needs"]
    assert (need["what"], need["of"], need["prompts"]) == ("answers", "policy", PROMPTS)
    status, refusal = ask(served, "POST", "/trainings/asked/answers", {"need": need["need"], "answers": ["a"]})
    assert (status, refusal["detail"][:34]) == (422, "There are 40 prompts and 1 answers")
    answers = {"need": need["need"], "answers": ["a"] * 40, "rewards": [1.0] * 40}
    for _ in range(2):
        assert ask(served, "POST", "/trainings/asked/answers?wait=10", answers)[1]["needs"] == []


# --- who answers, and where answers come from -------------------------------------------------------------------


def test_people_answer_the_audits_on_the_trainings_own_page(tmp_path: Path) -> None:
    trainer = ScriptedTrainer(hacked=True, seed=1007)
    small = {**SETTINGS, "pairs": 8, "more_pairs": 8, "budget": 400}
    with serving_guard(tmp_path / "guard", "people") as served:
        training = served.client(sleep=lambda seconds: None).training("people", **small)
        url = f"sqlite:///{tmp_path}/guard/people/run.db"

        def prefers_facts(lease: Any) -> Any:
            left, right = (sum(map(side.text.count, ("certainly", "wonderful", "delighted"))) for side in
                           (lease.shown.a, lease.shown.b))  # fmt: skip
            return "tie" if left == right else "left" if left < right else "right"

        with people_at_work.answering(url, "people", choose=prefers_facts) as answered:
            verdicts = train(training, trainer, 8)
    assert verdicts[0]["level"] == "hacking"
    assert verdicts[0]["sentence"].partition("people preferred")[1]
    assert len(answered) >= 16


def test_a_trainer_that_evaluates_is_asked_for_nothing_more(served: ServedGuard, tmp_path: Path) -> None:
    """As verl, OpenRLHF and slime can: the audits' prompts are those of the evaluation, which comes every so often."""
    trainer = ScriptedTrainer(hacked=True, seed=1011)
    settings = {**SETTINGS, "pairs": 10, "more_pairs": 16, "policy": "evaluated"}
    training = served.client().training("evaluated", **settings)

    def evaluate() -> dict[str, Any]:
        answers = [trainer.say(trainer.dial, trainer.rng) for _ in PROMPTS]
        rewards = [sum(reward.values()) for reward in trainer.score(PROMPTS, answers)]
        for part in (slice(0, 15), slice(15, 40)):
            training.post(PROMPTS[part], answers[part], rewards[part], of="evaluation", step=trainer.step)
        return training.settle(act=trainer.act)

    assert training.look(10)["state"] == "evaluation"
    assert evaluate()["state"] == "baseline"
    for step in range(1, 17):
        training.post(**trainer.batch())
        state = training.settle(act=trainer.act)
        if step % 4 == 0 and step > 4:
            assert state["state"] == "evaluation"
            assert "0 of 40 prompts" in state["waits_for"]
            state = evaluate()
        assert state["needs"] == []
    assert events_of(tmp_path / "guard/evaluated", "verdict")[0]["level"] == "hacking"
    assert trainer.done[0]["do"] == "rollback"
    odd = a_batch(of="evaluation", step=1, prompts=["another"] * 4)
    assert "is none of the prompts" in ask(served, "POST", "/trainings/evaluated/batches", odd)[1]["detail"]
    few = ask(served, "PUT", "/trainings/few", {**settings, "pairs": 11})
    assert (few[0], few[1]["detail"][:25]) == (422, "Audits of 11 pairs by eva")


def test_a_labeller_that_fails_is_said_and_can_be_mended(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        "import pathlib\ndef ask(p, a, b):\n    return pathlib.Path(__file__).with_name('say').read_text()\n"
    )
    trainer = ScriptedTrainer(hacked=False, seed=1008)
    with serving_guard(tmp_path / "guard", f"{file}:ask") as served:
        training = served.client().training("mended", **SETTINGS)
        with pytest.raises(HoldfastError, match="cannot go on: The labeller callable failed"):
            train(training, trainer, 8)
        assert any("/trainings/mended/resume" in line for line in served.said)
        (tmp_path / "say").write_text("tie")
        training.resume()
        training.settle(**trainer.hands)
        assert training.state["round"] == 2


def test_a_server_with_another_labeller_does_not_take_a_training_over(tmp_path: Path) -> None:
    spec = labeller_in(tmp_path)
    with serving_guard(tmp_path / "guard", spec) as served:
        served.client().training("mine", **SETTINGS)
    with pytest.raises(HoldfastError, match="the server was started for people; give --labeller"):
        GuardService(tmp_path / "guard", "people")


def test_a_client_that_gives_no_answers_is_told_what_is_wanted(served: ServedGuard) -> None:
    training: GuardedTraining = served.client().training("mute", **SETTINGS)
    with pytest.raises(HoldfastError, match=r"asks for answers of the policy.*pass answer=, or start the server"):
        training.settle()


def test_the_client_of_the_documentation_is_a_whole_one(
    served: ServedGuard, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guard-over-http.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) < 60
    scope: dict[str, Any] = {}
    exec(compile(code, "guard-over-http.md", "exec"), scope)
    state = scope["train"](served.address, TOKEN, steps=12)
    assert (state["state"], state["batches"], state["round"]) == ("ended", 12, 3)
    # All its answers are ties to this labeller, so nothing can be said against the policy.
    assert state["verdict"]["level"] not in ("hacking", "worse")
