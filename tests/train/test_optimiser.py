"""A restored optimiser goes on exactly as the one that was saved would have."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import HoldfastError
from holdfast.train.optimiser import optimiser_snapshot, restore_optimiser

MakeOptimiser = Callable[[torch.nn.Module], torch.optim.Optimizer]


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    weight, bias = model.parameters()
    groups = [
        {"params": [weight], "lr": 0.1 + 0.2, "weight_decay": 1 / 3},
        {"params": [bias], "lr": 1e-3, "betas": (0.9, 0.95)},
    ]
    return torch.optim.AdamW(groups, lr=1.0)


def amsgrad(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)


def momentum(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=generator)).square().mean().backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.97


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


@pytest.mark.parametrize("make", [adamw, amsgrad, momentum])
def test_training_goes_on_bit_for_bit_after_a_trip_to_the_disk(tmp_path: Path, make: MakeOptimiser) -> None:
    model = model_of(0)
    optimizer = make(model)
    train(model, optimizer, seed=1, steps=5)
    tensors, document = optimiser_snapshot(optimizer)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    store = CheckpointStore(tmp_path)
    store.save("a", Snapshot({"model": weights, "optimiser": tensors}, {"optimiser": document}))
    train(model, optimizer, seed=2, steps=5)

    loaded = store.load("a")
    resumed = model_of(99)
    other = make(resumed)
    train(resumed, other, seed=5, steps=1)
    resumed.load_state_dict(loaded.tensors["model"])
    restore_optimiser(other, loaded.tensors["optimiser"], loaded.documents["optimiser"])  # type: ignore[arg-type]
    train(resumed, other, seed=2, steps=5)

    for name, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    expected, got = optimiser_snapshot(optimizer), optimiser_snapshot(other)
    assert expected[1] == got[1]
    assert expected[0].keys() == got[0].keys()
    for name in expected[0]:
        assert expected[0][name].dtype == got[0][name].dtype
        assert torch.equal(expected[0][name], got[0][name]), name


def test_state_that_did_not_exist_at_the_snapshot_is_gone_after_it() -> None:
    model = model_of(0)
    optimizer = adamw(model)
    tensors, document = optimiser_snapshot(optimizer)
    train(model, optimizer, seed=1, steps=2)
    assert optimizer.state
    restore_optimiser(optimizer, tensors, document)  # type: ignore[arg-type]
    assert not optimizer.state
    assert [group["lr"] for group in optimizer.param_groups] == [0.1 + 0.2, 1e-3]
    assert optimizer.param_groups[1]["betas"] == (0.9, 0.95)


def test_one_snapshot_can_be_restored_twice() -> None:
    model = model_of(0)
    optimizer = adamw(model)
    train(model, optimizer, seed=1, steps=2)
    tensors, document = optimiser_snapshot(optimizer)
    kept = {name: value.clone() for name, value in tensors.items()}
    for seed in (2, 3):
        restore_optimiser(optimizer, tensors, document)  # type: ignore[arg-type]
        train(model, optimizer, seed=seed, steps=2)
    for name in kept:
        assert torch.equal(kept[name], tensors[name]), name


def test_state_wider_than_its_parameter_keeps_its_type() -> None:
    model = model_of(0).bfloat16()
    optimizer = amsgrad(model)
    for parameter in model.parameters():
        optimizer.state[parameter]["master"] = torch.full_like(parameter, 1 / 3, dtype=torch.float32)
    tensors, document = optimiser_snapshot(optimizer)
    restore_optimiser(optimizer, tensors, document)  # type: ignore[arg-type]
    for parameter in model.parameters():
        assert optimizer.state[parameter]["master"].dtype == torch.float32
        assert (optimizer.state[parameter]["master"] == torch.tensor(1 / 3)).all()


def test_a_learning_rate_that_is_a_tensor() -> None:
    model = model_of(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.25), foreach=False)
    tensors, document = optimiser_snapshot(optimizer)
    optimizer.param_groups[0]["lr"].fill_(9.0)
    restore_optimiser(optimizer, tensors, document)  # type: ignore[arg-type]
    assert optimizer.param_groups[0]["lr"].item() == 0.25


def test_another_optimiser_or_another_model_is_refused_and_left_alone() -> None:
    tensors, document = optimiser_snapshot(adamw(model_of(0)))
    stranger = torch.nn.Linear(4, 2)
    for optimizer in (momentum(model_of(0)), adamw(stranger), amsgrad(model_of(0))):
        settings = [dict(group) for group in optimizer.param_groups]
        with pytest.raises(HoldfastError, match="does not fit"):
            restore_optimiser(optimizer, tensors, document)  # type: ignore[arg-type]
        assert [dict(group) for group in optimizer.param_groups] == settings
