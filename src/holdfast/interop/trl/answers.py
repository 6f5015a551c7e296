"""Fresh answers of a trainer's policy, of its reference and of the last good policy, for audits and baselines.

They are drawn with `generate` and the trainer's own sampling settings, with random numbers of our own: the trainer's
are left where they were.

Shapes: B answers, T response tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from holdfast.interop.trl.reward import EnsembleReward
from holdfast.interop.trl.snapshot import bare_model, copied, put_weights, trained_weights
from holdfast.interop.trl.texts import TRLPrompt
from holdfast.rollout.sampler import Rollout

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass
class Player:
    """Whose answers are asked for. `kept` holds the weights of the last good policy; the others' are live."""

    who: Literal["policy", "reference", "anchor"]
    trainer: Any
    kept: dict[str, Tensor] = field(default_factory=dict)

    def state_dict(self) -> Mapping[str, Tensor]:
        return self.kept if self.who == "anchor" else trained_weights(bare_model(self.trainer))

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Keep a copy of these weights."""
        self.kept = copied(state_dict)

    @contextmanager
    def playing(self) -> Iterator[Any]:
        """The model that answers, for as long as it is needed; the trainer's own is afterwards as it was before."""
        model = bare_model(self.trainer)
        if self.who == "policy":
            with _answering(model):
                yield model
        elif self.who == "anchor":
            now = copied(trained_weights(model))
            put_weights(model, self.kept)
            try:
                with _answering(model):
                    yield model
            finally:
                put_weights(model, now)
        elif self.trainer.ref_model is not None:
            reference = self.trainer.accelerator.unwrap_model(self.trainer.ref_model)
            with _answering(reference):
                yield reference
        else:
            with _answering(model), _without_adapter(model):
                yield model


@dataclass
class TrainerAnswers:
    """Draws answers to prompts, which are known by their tokens in the ensemble's codec."""

    trainer: Any
    reward: EnsembleReward
    prompts: Mapping[tuple[int, ...], TRLPrompt]

    def sample(self, player: Player, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        """One answer to each prompt; log-probs stand for the entropy of the distribution a token was drawn from.

        The mean of -log pi over sampled tokens is that entropy's, so the guard's signals may read either.
        """
        asked = [self.prompts[tuple(ids)] for ids in prompts]
        seed = int(torch.randint(2**62, (1,), generator=rng))
        prompt_ids: list[list[int]] = []
        finished: list[bool] = []
        entropies: list[float] = []
        rows = int(self.trainer.args.generation_batch_size)  # as many at once as the trainer itself samples
        with player.playing() as model, torch.random.fork_rng():
            torch.manual_seed(seed)
            for start in range(0, len(asked), rows):
                drawn = self._generate(model, asked[start : start + rows])
                for ids, entropy in drawn:
                    prompt_ids.append(ids)
                    finished.append(self.reward.ends(ids))
                    entropies.append(entropy)
        texts = [self._decode(ids) for ids in prompt_ids]
        rollout = self.reward.read(asked, texts, finished)
        return Rollout(
            rollout.prompts, rollout.responses, -per_token(rollout, torch.tensor(entropies)), None, rollout.mask_BT,
            finished, texts=texts,
        )  # fmt: skip

    def _generate(self, model: Any, prompts: Sequence[TRLPrompt]) -> list[tuple[list[int], float]]:
        """Tokens of each answer, its end included, and the entropy summed over them."""
        rows = [self._encode(prompt) for prompt in prompts]
        pad_id, width = self._tokenizer.pad_token_id, max(map(len, rows))
        inputs_BT = torch.tensor([[pad_id] * (width - len(row)) + row for row in rows])
        mask_BT = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        device = next(model.parameters()).device
        recorder = _Entropies(float(self.trainer.args.temperature))
        with torch.no_grad():
            whole_BT = model.generate(
                input_ids=inputs_BT.to(device),
                attention_mask=mask_BT.to(device),
                generation_config=self._settings(),
                logits_processor=LogitsProcessorList([recorder]),
            )
        entropies_BT = torch.stack(recorder.steps, 1)
        answers = []
        for drawn, entropies in zip(whole_BT[:, width:].tolist(), entropies_BT.tolist(), strict=True):
            end = next((i + 1 for i, token in enumerate(drawn) if token in self.reward.end_ids), len(drawn))
            answers.append((drawn[:end], sum(entropies[:end])))
        return answers

    @property
    def _tokenizer(self) -> Any:
        """The text side of the trainer's processing class."""
        processing = self.trainer.processing_class
        return getattr(processing, "tokenizer", processing)

    def _encode(self, prompt: TRLPrompt) -> list[int]:
        """A prompt in the policy's tokens, as the trainer itself encodes it."""
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        chat = getattr(self.trainer, "chat_template_kwargs", None) or {}
        encoded = self._tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, tokenize=True, return_dict=True, **chat
        )
        return list(encoded["input_ids"])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _settings(self) -> Any:
        """The trainer's own sampling; one that leaves it to an inference server has it in its arguments."""
        own = getattr(self.trainer, "generation_config", None)
        if own is not None:
            return own
        args = self.trainer.args
        settings = {name: getattr(args, name) for name in SAMPLING if getattr(args, name, None) is not None}
        return GenerationConfig(
            max_new_tokens=args.max_completion_length,
            do_sample=True,
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=sorted(self.reward.end_ids),
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
    """In evaluation mode, which turns dropout and gradient checkpointing off; then as it was."""
    training = model.training
    model.eval()
    try:
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
