"""Limits of each setting, settings against each other, and the documentation that every setting carries."""

import dataclasses
import math
from typing import Any

import pytest

from holdfast.config import Config, load_config
from holdfast.config.schema import KLConfig, RunConfig
from holdfast.config.section import settings_of
from holdfast.errors import HoldfastError

SETTINGS = {
    f"{section}.{name}": item
    for section, part in settings_of(Config).items()
    for name, item in settings_of(part.annotation).items()  # type: ignore[arg-type]
}
LIMITS = {
    (setting, name): getattr(limit, name)
    for setting, item in SETTINGS.items()
    for limit in item.metadata
    for name in ("ge", "gt", "le")
    if hasattr(limit, name)
}


def _complaint(setting: str, value: float) -> str:
    """What is said about a value of a setting, or nothing."""
    try:
        load_config(None, {setting: value})
    except HoldfastError as error:
        return str(error)
    return ""


def test_the_defaults_are_within_their_own_limits() -> None:
    """Pydantic takes defaults as they are, so they are given here as a user would."""
    defaults = {setting: item.default for setting, item in SETTINGS.items()}
    assert load_config(None, defaults) == Config()


def test_every_setting_says_what_it_means() -> None:
    docs = {setting: item.description or "" for setting, item in SETTINGS.items()}
    assert [s for s, doc in docs.items() if doc.strip() != doc or len(doc) < 5 or "\n" in doc] == []
    # A number without any limit is a number nobody thought about.
    unlimited = [
        s
        for s, item in SETTINGS.items()
        if item.annotation in (int, float) and not {(s, n) for n in ("ge", "gt", "le")} & LIMITS.keys()
    ]
    assert unlimited == []


def test_limits_hold_on_both_sides_of_the_border() -> None:
    assert len(LIMITS) > 60
    wrong = []
    for (setting, name), limit in LIMITS.items():
        kind: Any = SETTINGS[setting].annotation
        outward = 1 if name == "le" else -1
        beyond = limit + outward if kind is int else math.nextafter(limit, outward * math.inf)
        refused = kind(limit) if name == "gt" else beyond
        if not _complaint(setting, refused).startswith(f"{setting} is {refused!r}, but it "):
            wrong.append(f"{setting} takes {refused}")
        # The border is allowed, but may not fit another setting.
        if name != "gt" and f"{setting} is {kind(limit)!r}, but it" in _complaint(setting, kind(limit)):
            wrong.append(f"{setting} refuses {limit}")
    assert wrong == []


def test_a_config_built_in_python_is_checked_with_the_same_sentences() -> None:
    with pytest.raises(HoldfastError, match=r"^run\.seed is -1, but it has to be at least 0\.$"):
        Config(run=RunConfig(seed=-1))
    with pytest.raises(HoldfastError, match=r"^kl\.beta is -0\.5, but it has to be at least 0\.$"):
        dataclasses.replace(KLConfig(), beta=-0.5)
    with pytest.raises(HoldfastError, match=r"^There is no setting run\.sede; did you mean seed\?$"):
        RunConfig(sede=1)  # type: ignore[call-arg]
    with pytest.raises(HoldfastError, match=r"^There is no section \[rum\] in the config; did you mean run\?$"):
        Config(rum=RunConfig())  # type: ignore[call-arg]
    with pytest.raises(HoldfastError, match=r"^kl is a section of the config"):
        Config(kl=0.1)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="start above 0"):
        Config(kl=KLConfig(controller="adaptive", beta=0.0))


def test_a_config_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().run.seed = 5  # type: ignore[misc]


IMPORTANCE = ["refresh.weights=importance", "preferences.per_round=0", "guard.mode=off"]


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
        (["ppo.advantage=dr_grpo", "ppo.samples_per_prompt=1"], "ppo.samples_per_prompt to 2"),
        (["ppo.clip=0.3", "ppo.clip_high=0.28"], "below ppo.clip = 0.3"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.loss=answer"], "ppo.loss is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.clip_high=0.3"], "ppo.clip_high is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "kl.estimator=k3"], "kl.estimator is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.epoch_kl_stop=0.1"], "ppo.epoch_kl_stop is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.gradient_penalty=1"], "gradient_penalty is not read"),
        (["run.optimiser=dpo", "ppo.samples_per_prompt=2", "ppo.advantage_offset=1"], "advantage_offset is not read"),
        (["ppo.batch=3", "ppo.samples_per_prompt=2", "ppo.minibatches=7"], "more than the 6 answers"),
        (["kl.controller=adaptive", "kl.beta=0"], "start above 0"),
        (["kl.controller=budget", "kl.beta=0"], "start above 0"),
        (["kl.controller=budget", "kl.budget_start=5", "kl.budget_ceiling=4"], "budget_ceiling is below"),
        (["kl.placement=loss", "kl.estimator=k1"], "no gradient on average"),
        (["preferences.selection=disagreement", "preferences.per_round=9", "reward.members=1"], "one member"),
        (["preferences.selection=disagreement", "reward.aggregation=averaged"], "not averaged into one"),
        (["reward.aggregation=averaged", "processes.strategy=fsdp2"], "deals out: set it to data, or take another"),
        ([*IMPORTANCE, "processes.strategy=fsdp2"], "deals out: set it to data, or refresh.weights"),
        ([*IMPORTANCE, "preferences.per_round=9"], "set preferences.per_round to 0 and guard.mode to off"),
        ([*IMPORTANCE, "guard.mode=advise"], "set preferences.per_round to 0 and guard.mode to off"),
        (["vllm.url=127.0.0.1:8000"], "write it like http://127.0.0.1:8000"),
        (["reward.corrective=true"], "reward.corrective is not read here"),
        (["reward.source=model:d", "reward.refresh=true", "reward.corrective=true"], "corrective is not read here"),
        (["reward.source=a.py:f", "reward.corrective=true", "guard.mode=advise"], "set guard.mode to act"),
        (["reward.source=a.py:f", "reward.corrective=true", "reward.members=2"], "members is about the ensemble"),
        (["data.prompt_length=[-1, 2]"], r"data.prompt_length is \[-1, 2\]; write"),
        (["refresh.freeze=[[3, 2]]"], "refresh.freeze has a span"),
        (["refresh.freeze=[[0, 2]]"], "refresh.freeze has a span"),
        (['track.sinks=["tensorbord"]'], "track.sinks names 'tensorbord'"),
        (['track.sinks=["wandb", "wandb"]'], "names a sink twice"),
        (['people.reasons=["clear", "clear"]'], "people.reasons has to be a list of up to 12 different tags"),
        (['people.reasons=[" clear"]'], "different tags of 1 to 40 visible characters"),
        (['people.reasons=["' + 41 * "x" + '"]'], "1 to 40 visible"),
        ([f"people.reasons={list(map(str, range(13)))}"], "up to 12"),
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
        ["ppo.advantage=dr_grpo", "ppo.samples_per_prompt=2", "ppo.loss=length", "ppo.clip_high=0.2"],
        ["kl.controller=fixed", "kl.beta=0"],
        ["kl.controller=fixed", "kl.budget_start=5", "kl.budget_ceiling=4"],
        ["kl.placement=loss", "kl.estimator=k3"],
        ["preferences.selection=disagreement", "preferences.per_round=0", "reward.members=1"],
        IMPORTANCE,
        ["reward.aggregation=averaged", "reward.members=1"],
        ["refresh.freeze=[[1, 1], [4, 9]]"],
        ['track.sinks=["tensorboard", "wandb", "trackio"]'],
    ],
)
def test_settings_that_do_fit(overrides: list[str]) -> None:
    assert load_config(overrides=overrides) != Config()


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
