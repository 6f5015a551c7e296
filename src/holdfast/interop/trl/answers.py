"""Fresh answers of a trainer's policy, of its beginning and of the last good policy, for audits and baselines.

They are drawn with `generate` and the trainer's own sampling settings, with random numbers of our own: the trainer's
are left where they were. Whoever samples while the trainer trains (this process, vLLM) has no part in it.

Shapes: B answers, T response tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from holdfast.errors import HoldfastError
from holdfast.interop.trl.snapshot import put_shares, shares_of
from holdfast.interop.trl.texts import TRLPrompt
from holdfast.interop.trl.trainer import bare_model, end_ids_of, has_adapters, tokenizer_of
from holdfast.models.sharding import whole
from holdfast.rollout.sampler import Rollout

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
Who = Literal["policy", "reference", "anchor"]


@dataclass(frozen=True)
class Drawn:
    """An answer in the policy's tokens, its end included, with the entropy summed over them."""

    ids: list[int]
    entropy: float


@dataclass
class Player:
    """Whose answers are asked for. `kept` holds this process's part of the weights of the last good policy, or of the
    beginning where there is no reference model; the others' are live."""

    who: Who
    trainer: Any
    kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        """Whether there is a model that can answer."""
        return (
            bool(self.kept) or self.who == "policy" or self.trainer.ref_model is not None or has_adapters(self.trainer)
        )

    def keep(self) -> None:
        """Keep a copy of the policy's present weights."""
        self.kept = shares_of(bare_model(self.trainer))

    @contextmanager
    def playing(self) -> Iterator[Any]:
        """The model that answers, for as long as it is needed; the trainer's own is afterwards as it was before."""
        model = bare_model(self.trainer)
        if self.kept:
            now = shares_of(model)
            put_shares(model, self.kept)
            try:
                with _answering(model):
                    yield model
            finally:
                put_shares(model, now)
        elif self.who == "policy":
            with _answering(model):
                yield model
        elif self.trainer.ref_model is not None:
            reference = self.trainer.accelerator.unwrap_model(self.trainer.ref_model)
            with _answering(reference):
                yield reference
        elif has_adapters(self.trainer):
            with _answering(model), _without_adapter(model):
                yield model
        else:
            raise HoldfastError("There is no reference model, and nothing was kept of the policy's beginning.")


def draw(trainer: Any, player: Player, prompts: Sequence[TRLPrompt], seed: int) -> list[Drawn]:
    """One answer to each prompt, as many at once as the trainer itself samples."""
    rows = max(1, int(trainer.args.generation_batch_size) // int(trainer.args.world_size))
    drawn: list[Drawn] = []
    with player.playing() as model, torch.random.fork_rng():
        torch.manual_seed(seed)
        for start in range(0, len(prompts), rows):
            drawn += _generate(trainer, model, prompts[start : start + rows])
    return drawn


def _generate(trainer: Any, model: Any, prompts: Sequence[TRLPrompt]) -> list[Drawn]:
    rows, ends = [encode(trainer, prompt) for prompt in prompts], end_ids_of(trainer)
    pad_id, width = tokenizer_of(trainer).pad_token_id, max(map(len, rows))
    inputs_BT = torch.tensor([[pad_id] * (width - len(row)) + row for row in rows])
    mask_BT = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    device = trainer.accelerator.device
    recorder = _Entropies(float(trainer.args.temperature))
    with torch.no_grad():
        whole_BT = model.generate(
            input_ids=inputs_BT.to(device),
            attention_mask=mask_BT.to(device),
            generation_config=_settings(trainer),
            logits_processor=LogitsProcessorList([recorder]),
        )
    entropies_BT = torch.stack(recorder.steps, 1)
    answers = []
    for ids, entropies in zip(whole_BT[:, width:].tolist(), entropies_BT.tolist(), strict=True):
        end = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
        answers.append(Drawn(ids[:end], sum(entropies[:end])))
    return answers


def likelihoods(trainer: Any, model: Any, prompts: Sequence[TRLPrompt], answers: Sequence[Sequence[int]]) -> Tensor:
    """logprobs_BT of answers at the trainer's temperature, 0 behind their ends."""
    rows = [encode(trainer, prompt) for prompt in prompts]
    width = max(len(row) + len(ids) for row, ids in zip(rows, answers, strict=True))
    longest, device = max(map(len, answers)), trainer.accelerator.device
    whole = [[*row, *ids] for row, ids in zip(rows, answers, strict=True)]
    pad_id = tokenizer_of(trainer).pad_token_id
    inputs_BT = torch.tensor([row + [pad_id] * (width - len(row)) for row in whole], device=device)
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in whole], device=device)
    with torch.no_grad():
        logits_BTV = model(input_ids=inputs_BT, attention_mask=mask_BT).logits
    out_BT = torch.zeros(len(rows), longest)
    for n, (row, ids) in enumerate(zip(rows, answers, strict=True)):
        logits_TV = logits_BTV[n, len(row) - 1 : len(row) + len(ids) - 1].float() / float(trainer.args.temperature)
        chosen_T1 = torch.tensor(list(ids), device=device)[:, None]
        out_BT[n, : len(ids)] = logits_TV.log_softmax(-1).gather(-1, chosen_T1)[:, 0].cpu()
    return out_BT


def encode(trainer: Any, prompt: TRLPrompt) -> list[int]:
    """A prompt in the policy's tokens, as the trainer itself encodes it."""
    tokenizer = tokenizer_of(trainer)
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    chat = getattr(trainer, "chat_template_kwargs", None) or {}
    encoded = tokenizer.apply_chat_template(
        list(prompt), add_generation_prompt=True, tokenize=True, return_dict=True, **chat
    )
    return list(encoded["input_ids"])


def decode(trainer: Any, ids: Sequence[int]) -> str:
    """An answer as people read it."""
    return str(tokenizer_of(trainer).decode(list(ids), skip_special_tokens=True))


def _settings(trainer: Any) -> Any:
    """The trainer's own sampling; one that leaves it to an inference server has it in its arguments."""
    own = getattr(trainer, "generation_config", None)
    if own is not None:
        return own
    args = trainer.args
    settings = {name: getattr(args, name) for name in SAMPLING if getattr(args, name, None) is not None}
    return GenerationConfig(
        max_new_tokens=args.max_completion_length,
        do_sample=True,
        pad_token_id=tokenizer_of(trainer).pad_token_id,
        eos_token_id=sorted(end_ids_of(trainer)),
        **settings,
    )


def per_token(rollout: Rollout, sums_B: Tensor) -> Tensor:
    """sums_B spread evenly over each answer's tokens, 0 outside."""
    lengths_B = rollout.mask_BT.sum(1).clamp(min=1)
    return torch.where(rollout.mask_BT, (sums_B / lengths_B)[:, None].float(), 0.0)


class _Entropies(LogitsProcessor):  # type: ignore[misc]
    """Notes the entropy of every distribution that a token is drawn from, and changes nothing."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self.steps: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logprobs_BV = torch.log_softmax(scores.float() / self._temperature, -1)
        self.steps.append(-(logprobs_BV.exp() * logprobs_BV).nansum(-1).cpu())
        return scores


@contextmanager
def _answering(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, which turns dropout and gradient checkpointing off, and with all weights; then as it was."""
    training = model.training
    model.eval()
    try:
        with whole(model):
            yield
    finally:
        model.train(training)


def _without_adapter(model: Any) -> Any:
    """A model with adapters is its own reference: without them, or with the copy that TRL keeps of trained ones."""
    if "ref" not in getattr(model, "peft_config", {}):
        return model.disable_adapter()
    return _as_reference(model)


@contextmanager
def _as_reference(model: Any) -> Iterator[None]:
    active = model.active_adapter
    model.set_adapter("ref")
    try:
        yield
    finally:
        model.set_adapter(active)
