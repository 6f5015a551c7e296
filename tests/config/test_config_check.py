"""Limits of each setting, settings against each other, and the documentation that every setting carries."""

import dataclasses
import math
from typing import Any

import pytest

from holdfast.config import Config, load_config
from holdfast.config.check import check
from holdfast.errors import HoldfastError

SETTINGS = [
    (section.name, item)
    for section in dataclasses.fields(Config)
    for item in dataclasses.fields(getattr(Config(), section.name))
]


def _with(section: str, key: str, value: Any) -> Config:
    config = Config()
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **{key: value})})


def _complaint(section: str, key: str, border: float) -> str:
    """What is said about the border of a setting, which is allowed but may not fit another setting."""
    try:
        check(_with(section, key, type(getattr(getattr(Config(), section), key))(border)))
    except HoldfastError as error:
        return str(error)
    return ""


def test_the_defaults_pass() -> None:
    check(Config())


@pytest.mark.parametrize(("section", "item"), SETTINGS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_every_setting_says_what_it_means(section: str, item: dataclasses.Field[Any]) -> None:
    doc = item.metadata["doc"]
    assert doc.strip() == doc
    assert len(doc) >= 5
    assert "\n" not in doc
    # A number without any limit is a number nobody thought about; a bias may have either sign.
    if isinstance(item.default, (int, float)) and not isinstance(item.default, bool):
        limits = [item.metadata[k] for k in ("low", "above", "high")]
        assert any(x is not None for x in limits) or (section, item.name) == ("world", "length_bias")


@pytest.mark.parametrize(("section", "item"), SETTINGS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_limits_hold_on_both_sides_of_the_border(section: str, item: dataclasses.Field[Any]) -> None:
    kind = type(item.default)
    for name, outward in (("low", -1), ("above", -1), ("high", 1)):
        border = item.metadata[name]
        if border is None:
            continue
        beyond = kind(border) + outward if kind is int else math.nextafter(border, outward * math.inf)
        if name == "above":
            beyond = kind(border)
        with pytest.raises(HoldfastError, match=f"^{section}.{item.name} is "):
            check(_with(section, item.name, beyond))
        if name != "above":
            assert f"{section}.{item.name} is {kind(border)}, but it" not in _complaint(section, item.name, border)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["policy.hidden=100", "policy.heads=8"], "does not divide by policy.heads = 8"),
        (["policy.hidden=24", "policy.heads=8"], "even number"),
        (["vllm.url=http://127.0.0.1:8000", "processes.strategy=fsdp2"], "has a share of them"),
        (["policy.dtype=bfloat16"], "set policy.lora_rank"),
        (["policy.lora_rank=8", "processes.strategy=fsdp2"], "cannot deal out"),
        (["policy.lora_rank=8", "vllm.url=http://127.0.0.1:8000"], "not given adapters yet"),
        (["policy.lora_targets=['q_proj']"], "only read with policy.lora_rank above 0"),
        (["ppo.advantage=rloo", "ppo.samples_per_prompt=1"], "ppo.samples_per_prompt to 2"),
        (["ppo.advantage=grpo", "ppo.samples_per_prompt=1"], "ppo.samples_per_prompt to 2"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "kl.estimator=k3"], "kl.estimator is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.epoch_kl_stop=0.1"], "ppo.epoch_kl_stop is not read"),
        (["ppo.batch=3", "ppo.samples_per_prompt=2", "ppo.minibatches=7"], "more than the 6 answers"),
        (["kl.controller=adaptive", "kl.beta=0"], "start above 0"),
        (["kl.controller=budget", "kl.beta=0"], "start above 0"),
        (["kl.controller=budget", "kl.budget_start=5", "kl.budget_ceiling=4"], "budget_ceiling is below"),
        (["kl.placement=loss", "kl.estimator=k1"], "no gradient on average"),
        (["preferences.selection=disagreement", "preferences.per_round=9", "reward.members=1"], "one member"),
        (["gate.failed=join", "reward.members=1"], "none to join"),
        (["vllm.url=127.0.0.1:8000"], "write it like http://127.0.0.1:8000"),
        (["vllm.weights_there=elsewhere/weights"], "another path to vllm.weights, which is not set"),
        (["refresh.freeze=[[3, 2]]"], "refresh.freeze has a span"),
        (["refresh.freeze=[[0, 2]]"], "refresh.freeze has a span"),
        (['track.sinks=["tensorbord"]'], "track.sinks names 'tensorbord'"),
        (['track.sinks=["wandb", "wandb"]'], "names a sink twice"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_each_other(overrides: list[str], sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_config(overrides=overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["ppo.batch=3", "ppo.samples_per_prompt=2", "ppo.minibatches=6"],
        ["ppo.advantage=rloo", "ppo.samples_per_prompt=2"],
        ["kl.controller=fixed", "kl.beta=0"],
        ["kl.controller=fixed", "kl.budget_start=5", "kl.budget_ceiling=4"],
        ["kl.placement=loss", "kl.estimator=k3"],
        ["preferences.selection=disagreement", "preferences.per_round=0", "reward.members=1"],
        ["refresh.freeze=[[1, 1], [4, 9]]"],
        ['track.sinks=["tensorboard", "wandb", "trackio"]'],
    ],
)
def test_settings_that_do_fit(overrides: list[str]) -> None:
    load_config(overrides=overrides)


def test_k1_as_a_loss_has_no_gradient_on_average() -> None:
    """The reason for refusing it: sum_v pi(v) grad(log pi(v) - log ref(v)) = grad sum_v pi(v) = 0."""
    import torch

    logits = torch.tensor([1.0, -0.5, 0.3], requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 1.0, 0.0]), -1)
    logprobs = torch.log_softmax(logits, -1)
    (mean_k1_gradient,) = torch.autograd.grad(
        (logprobs.exp().detach() * (logprobs - reference)).sum(), logits, retain_graph=True
    )
    torch.testing.assert_close(mean_k1_gradient, torch.zeros(3), atol=1e-6, rtol=0)
    (mean_k2_gradient,) = torch.autograd.grad(
        (logprobs.exp().detach() * (logprobs - reference).square() / 2).sum(), logits
    )
    assert float(mean_k2_gradient.abs().max()) > 0.1
