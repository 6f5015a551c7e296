"""Rollouts by a server: the policy's own answers and log-probs, weights that follow it, and refusals in a sentence."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.config.schema import VLLMConfig
from holdfast.errors import HoldfastError
from holdfast.grammar.form import Form, form_of
from holdfast.models.policy import Policy
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from holdfast.rollout.served import ServedSampler, weights_version
from holdfast.rollout.vllm_api import VLLMServer
from holdfast.train.ppo import response_values, rollout_batches
from masked_language import Rules, may_follow
from tiny_models import EOS, PAD, VOCABULARY, gpt2, llama
from vllm_stand_in import NAME, StandIn, draw_one, serving

PROMPTS = [[3, 4, 5], [6, 7], [8, 9, 10, 11], [3, 4, 5]]
SAMPLING = Sampling(max_new_tokens=6)


def make(lm: Any = None, value_head: bool = False, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    return Policy(lm or llama(), value_head=value_head)


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn(make(seed=1))


@pytest.fixture
def url(stand_in: StandIn) -> Iterator[str]:
    with serving(stand_in) as address:
        yield address


def save(directory: Path, lm: Any, state: dict[str, torch.Tensor]) -> None:
    lm.save_pretrained(directory, state_dict=state)


def sampler(url: str, weights: Path, sampling: Sampling = SAMPLING, **settings: Any) -> ServedSampler:
    config = VLLMConfig(url=url, **{"timeout_seconds": 20.0, **settings})
    return ServedSampler(config, sampling, EOS, PAD, 64, weights, save)


def rng(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("build", [llama, gpt2])
def test_the_answers_are_the_policys_own(url: str, stand_in: StandIn, tmp_path: Path, build: Any) -> None:
    torch.manual_seed(2)
    policy = make(build())
    rollout = sampler(url, tmp_path).sample(policy, PROMPTS, rng())
    # As this policy draws them here with the same seeds, and not as the one that the server began with.
    seeds = torch.randint(2**31, (4,), generator=rng()).tolist()
    here = [draw_one(policy, p, SAMPLING, EOS, s) for p, s in zip(PROMPTS, seeds, strict=True)]
    assert list(zip(rollout.responses, rollout.finished, strict=True)) == here
    assert rollout.prompts == PROMPTS
    assert rollout.responses[0] != rollout.responses[3]  # the same prompt, a seed of its own
    assert rollout.mask_BT.sum(1).tolist() == rollout.lengths
    assert rollout.server_gap is not None
    assert rollout.server_gap < 1e-5


def test_log_probs_and_values_are_our_own(url: str, tmp_path: Path) -> None:
    policy = make(value_head=True)
    assert policy.value_head is not None
    torch.nn.init.normal_(policy.value_head.linear.weight)
    sampling = replace(SAMPLING, temperature=0.7, top_k=5)
    rollout = sampler(url, tmp_path, sampling).sample(policy, PROMPTS, rng())
    for row, (prompt, response) in enumerate(zip(rollout.prompts, rollout.responses, strict=True)):
        ids = torch.tensor([[*prompt, *response]])
        out = policy.lm(input_ids=ids, output_hidden_states=True)
        places = torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1)
        logits = out.logits[0, places] / 0.7
        logits[logits < logits.topk(5).values[:, -1:]] = -torch.inf
        wanted = logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]
        assert torch.allclose(rollout.logprobs_BT[row, : len(response)], wanted, atol=1e-5)
        values = policy.value_head(out.hidden_states[-1][0, places])
        assert rollout.values_BT is not None
        assert torch.allclose(rollout.values_BT[row, : len(response)], values, atol=1e-5)
    # The server's log-probs are compared at temperature 1, which is what it gives.
    assert rollout.server_gap is not None
    assert rollout.server_gap < 1e-5


def test_weights_follow_the_policy_and_are_sent_once(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    policy, served = make(), sampler(url, tmp_path)
    served.sample(policy, PROMPTS, rng())
    served.sample(policy, PROMPTS, rng())
    assert len(stand_in.loaded) == 1
    with torch.no_grad():
        policy.lm.get_output_embeddings().weight[3, 0] += 1e-4
    served.sample(policy, PROMPTS, rng())
    assert len(stand_in.loaded) == len(set(stand_in.loaded)) == 2
    assert stand_in.version == weights_version(policy)
    # Only those in use stay on the disk.
    assert [p.name for p in tmp_path.iterdir()] == [weights_version(policy)]


def test_a_tied_head_follows_the_embeddings(tmp_path: Path) -> None:
    """A server holds a head of its own, and takes into it only what is called one."""
    assert gpt2().config.tie_word_embeddings
    policy = make(gpt2())
    with serving(StandIn(make(gpt2(), seed=1))) as url:
        served = sampler(url, tmp_path)
        for _ in range(2):
            rollout = served.sample(policy, PROMPTS, rng())
            assert rollout.server_gap is not None
            assert rollout.server_gap < 1e-5
            with torch.no_grad():
                policy.lm.get_input_embeddings().weight.mul_(1.01)


def test_a_server_that_was_restarted_gets_its_weights_again(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    policy, served = make(), sampler(url, tmp_path)
    served.sample(policy, PROMPTS, rng())
    stand_in.policy, stand_in.version = make(seed=9), "default"
    rollout = served.sample(policy, PROMPTS, rng())
    assert len(stand_in.loaded) == 2
    assert rollout.server_gap is not None
    assert rollout.server_gap < 1e-5


def test_the_directory_may_have_another_path_there(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    served = ServedSampler(VLLMConfig(url=url), SAMPLING, EOS, PAD, 64, tmp_path / "real", save, f"{tmp_path}/link/")
    policy = make()
    served.sample(policy, PROMPTS, rng())
    assert stand_in.loaded == [f"{tmp_path}/link/{weights_version(policy)}"]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"deaf": True, "versions": False}, r"finds its answers less or more likely .* it uses other weights"),
        ({"deaf": True}, r"finds its answers less or more likely than the policy does, by .* where 0.1"),
        ({"usurped": True}, r"answered with the weights 'another-run' and not with the policy's: another run uses it"),
        ({"logprobs": False}, r"gives no log-probs; start it with --max-logprobs of 1 or more\."),
        ({"token_ids": False}, r"gives no token ids; it needs vLLM 0\.16 or newer\."),
        ({"cut_prompts": True}, r"read other prompt tokens than it was sent"),
        ({"stop_early": True}, r"ended an answer before its end token \(by 'length'\)"),
        ({"other_token": VOCABULARY}, rf"answered with the token {VOCABULARY}, but the policy has {VOCABULARY}"),
        ({"other_token": 10**400}, r"did not answer as"),
        ({"dev_mode": False}, r"takes no weights while it runs: start it with VLLM_SERVER_DEV_MODE=1"),
        (
            {"room": 9},
            r"takes 9 tokens at most, and the longest prompt with a full answer has 10: .* --max-model-len 10",
        ),
        ({"key": "secret"}, r"wants a key, or another one: set HOLDFAST_VLLM_KEY in the environment\."),
        ({"slow": 1.5}, r"did not answer within 0\.5 seconds; raise vllm.timeout_seconds or lower vllm.parallel"),
        ({"busy": 1000}, r"answered 503: busy; raise vllm.timeout_seconds"),
    ],
)
def test_what_cannot_be_trusted_is_refused(
    url: str, stand_in: StandIn, tmp_path: Path, fault: dict[str, Any], sentence: str
) -> None:
    for name, value in fault.items():
        setattr(stand_in, name, value)
    timeout = 0.5 if "slow" in fault else 20.0
    with pytest.raises(HoldfastError, match=sentence) as caught:
        sampler(url, tmp_path, timeout_seconds=timeout).sample(make(), PROMPTS, rng())
    assert str(caught.value).startswith(f"The vLLM server {url} ")


def test_weights_that_do_not_fit_are_refused(url: str, tmp_path: Path) -> None:
    served = ServedSampler(
        VLLMConfig(url=url), SAMPLING, EOS, PAD, 64, tmp_path, lambda directory, lm, state: directory.mkdir()
    )
    with pytest.raises(HoldfastError, match=r"could not load the weights in .*\(it answered 500: .* the same shape\.$"):
        served.sample(make(), PROMPTS, rng())


def test_a_server_that_says_no_versions_is_held_to_its_log_probs(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.versions = False
    served = sampler(url, tmp_path)
    served.sample(make(), PROMPTS, rng())
    assert "/weight_info" not in stand_in.calls
    stand_in.policy = make(seed=9)  # restarted, unnoticed
    with pytest.raises(HoldfastError, match="it uses other weights"):
        served.sample(make(), PROMPTS, rng())


def test_the_key_is_sent(url: str, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.key = "secret"
    monkeypatch.setenv("HOLDFAST_VLLM_KEY", "secret")
    assert len(sampler(url, tmp_path).sample(make(), PROMPTS, rng()).responses) == len(PROMPTS)


def test_the_model_is_the_server_s_own(url: str) -> None:
    assert VLLMServer(VLLMConfig(url=f"{url}/v1/")).check(10) == NAME


def test_what_passes_is_waited_for(url: str, stand_in: StandIn) -> None:
    stand_in.busy = 2
    waits: list[float] = []
    server = VLLMServer(VLLMConfig(url=url), sleep=waits.append)
    assert server.check(10) == NAME
    assert len(waits) == 2
    assert 0 <= waits[0] <= 1
    assert 0 <= waits[1] <= 2


def test_a_server_that_is_away_is_told_of() -> None:
    waits: list[float] = []
    server = VLLMServer(VLLMConfig(url="http://127.0.0.1:1"), sleep=waits.append)
    with pytest.raises(HoldfastError, match=r"^The vLLM server http://127.0.0.1:1 cannot be reached .* start it, and"):
        server.check(10)
    assert len(waits) == 3


def test_answers_are_asked_for_side_by_side(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    policy, served = make(), sampler(url, tmp_path, parallel=4)
    served.sample(policy, PROMPTS, rng())
    stand_in.slow = 0.2
    start = time.monotonic()
    served.sample(policy, PROMPTS, rng())
    assert time.monotonic() - start < 0.6


def test_versions_follow_from_the_weights_alone() -> None:
    one, same, other = make(), make(), make(seed=3)
    assert weights_version(one) == weights_version(same) != weights_version(other)
    names = {weights_version(p) for p in itertools.chain([one, same], [other])}
    assert len(names) == 2


COMPACT = {"x-guidance": {"whitespace_flexible": False}}


class Asked:
    """One grammar for every prompt, as the small language's rules, and as it is written in a setting."""

    def __init__(self, written: str) -> None:
        self.form = form_of(written)

    def of_prompt(self, ids: Sequence[int]) -> Rules:
        return Rules()

    def form_of_prompt(self, ids: Sequence[int]) -> Form | None:
        return self.form


def under(url: str, weights: Path, written: str, sampling: Sampling = SAMPLING) -> ServedSampler:
    config = VLLMConfig(url=url, timeout_seconds=20.0)
    grammars: Any = Asked(written)
    return ServedSampler(config, sampling, EOS, PAD, 64, weights, save, grammars=grammars)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("regex:a|b", {"regex": "a|b"}),
        ("choices:yes|no", {"choice": ["yes", "no"]}),
        ('{"type": "array"}', {"json": {"type": "array", **COMPACT}, "disable_any_whitespace": True}),
    ],
)
def test_a_server_is_asked_for_what_the_grammar_says(
    url: str, stand_in: StandIn, tmp_path: Path, written: str, asked: dict[str, Any]
) -> None:
    stand_in.grammar = Rules()
    policy = make()
    sampling = replace(SAMPLING, temperature=0.7, top_k=4)
    rollout = under(url, tmp_path, written, sampling).sample(policy, PROMPTS, rng())
    assert stand_in.structured == asked
    assert rollout.server_gap is not None
    assert rollout.server_gap < 1e-5
    here = sample(policy, PROMPTS, sampling, EOS, PAD, rng(), [Rules()] * 4)
    assert here.support is not None
    assert rollout.support is not None
    for row, response in enumerate(rollout.responses):
        assert all(token in may_follow(response[:t]) for t, token in enumerate(response))
        free = [t for t in range(len(response)) if len(may_follow(response[:t])) > 1]
        assert rollout.mask_BT[row].nonzero()[:, 0].tolist() == free
    batches = rollout_batches(policy, rollout, None, PAD, 64)
    update_BT = response_values(policy, rollout, batches, 0.7)
    assert torch.allclose(update_BT, rollout.logprobs_BT, atol=1e-6)


def test_an_answer_outside_the_grammar_is_refused(url: str, stand_in: StandIn, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"an answer that rollout.grammar does not allow.*disable_any_whitespace"):
        under(url, tmp_path, "regex:a").sample(make(), PROMPTS, rng())


def test_a_mask_of_ones_own_is_refused(url: str, tmp_path: Path) -> None:
    mask = tmp_path / "mask.py"
    mask.write_text("class Mask: ...")
    with pytest.raises(HoldfastError, match="that a vLLM server cannot run"):
        under(url, tmp_path, f"{mask}:Mask").sample(make(), PROMPTS, rng())
