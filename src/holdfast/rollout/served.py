"""A sampler whose answers a vLLM server draws, with the policy's present weights.

    policy -> weights in a directory -> server reloads -> answers -> checked -> log-probs and values by our own model

Log-probs are always our own: the server's come from other kernels, often of another precision, and PPO's ratio would
start off 1. How far the server's are from them is a metric, and where they are too far the answers are refused,
because then other weights or another vocabulary have answered.

Shapes: B rows, T response tokens padded on the right.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.config.schema import VLLMConfig
from holdfast.errors import HoldfastError
from holdfast.grammar.form import structured_outputs
from holdfast.grammar.grammars import Grammars, each_grammar
from holdfast.grammar.walk import OffGrammar
from holdfast.models.batches import MicroBatch, micro_batches
from holdfast.models.policy import Policy
from holdfast.models.token_sets import KeptSets
from holdfast.parallel.cores import CORES
from holdfast.rollout.choice import Sampling, truncate_distribution
from holdfast.rollout.drawn import in_order
from holdfast.rollout.likelihood import own_pass
from holdfast.rollout.sampler import Rollout
from holdfast.rollout.support import Support, support_of_answers
from holdfast.rollout.vllm_api import Completion, VLLMServer

# Seeds that every server takes.
SEEDS = 2**31
# The server's log-probs may differ from ours by this much, mean over tokens; beyond it the answers are refused.
TOLERANCE = 0.1


class ServedSampler:
    """Answers of the policy, drawn by a server; `save` writes a model and its weights, whole or not at all.

    `there` is the server's path to the directory `weights`, where it is another one.
    """

    def __init__(
        self,
        config: VLLMConfig,
        sampling: Sampling,
        eos_id: int,
        pad_id: int,
        max_tokens: int,
        weights: Path,
        save: Callable[[Path, Any, dict[str, Tensor]], None],
        there: str = "",
        grammars: Grammars | None = None,
    ) -> None:
        self._config, self._sampling = config, sampling
        self._eos_id, self._pad_id, self._max_tokens = eos_id, pad_id, max_tokens
        self._weights, self._save, self._there = weights, save, there
        self._server = VLLMServer(config)
        self._grammars = grammars
        self._model = ""
        self._loaded = ""
        self._says_version = False

    @torch.no_grad()
    def sample(self, policy: Policy, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        """One answer to each prompt, each with a seed of its own; nothing that other weights have answered."""
        if not self._model:
            self._model = self._server.check(max(len(p) for p in prompts) + self._sampling.max_new_tokens)
        version = weights_version(policy)
        if self._loaded != version or (self._says_version and self._server.version() != version):
            self._publish(policy, version)
        seeds = torch.randint(SEEDS, (len(prompts),), generator=rng).tolist()
        answers = self._ask(prompts, seeds)
        if self._says_version and (in_use := self._server.version()) != version:
            raise HoldfastError(
                f"{self._server.name} answered with the weights {in_use!r} and not with the policy's: another run uses "
                "it, or it was restarted; leave it to one run, and go on with `holdfast resume`."
            )
        beyond = max(max(answer.tokens) for answer in answers)
        if beyond >= policy.vocabulary:
            raise HoldfastError(
                f"{self._server.name} answered with the token {beyond}, but the policy has {policy.vocabulary}: it "
                "serves another vocabulary."
            )
        return self._rollout(policy, prompts, answers)

    def _ask(self, prompts: list[list[int]], seeds: list[int]) -> list[Completion]:
        """All answers, several at once; the first failure ends the rest."""
        pool = ThreadPoolExecutor(self._config.parallel)
        ask = partial(self._server.complete, self._model, sampling=self._sampling, eos_id=self._eos_id)
        try:
            asked = [
                pool.submit(ask, prompt, seed=seed, structured=structured(self._grammars, prompt))
                for prompt, seed in zip(prompts, seeds, strict=True)
            ]
            return [future.result() for future in asked]
        finally:
            pool.shutdown(cancel_futures=True)

    def _publish(self, policy: Policy, version: str) -> None:
        """Write the weights where the server sees them, and have it use them."""
        # A directory of its own for each version: servers have been seen to keep what they read from a path before.
        directory = self._weights / version
        if not directory.is_dir():
            self._save(directory, policy.lm, untied_state(policy.lm))
        there = f"{self._there.rstrip('/')}/{version}" if self._there else str(directory.absolute())
        self._says_version = self._server.load(there, version)
        self._loaded = version
        for older in self._weights.glob(f"{PREFIX}*"):
            if older != directory:
                shutil.rmtree(older, ignore_errors=True)

    def _rollout(self, policy: Policy, prompts: list[list[int]], answers: list[Completion]) -> Rollout:
        """The answers with our own log-probs and values, if the server's log-probs say that the policy gave them."""
        responses, sampling = [answer.tokens for answer in answers], self._sampling
        theirs_BT = torch.zeros(len(answers), max(len(r) for r in responses))
        for b, answer in enumerate(answers):
            theirs_BT[b, : len(answer.logprobs)] = torch.tensor(answer.logprobs)
        under = self._walked(prompts, responses)
        support = under if not sampling.truncates else self._truncated(policy, prompts, responses, under)
        limits = self._pad_id, self._max_tokens
        mask_BT = torch.arange(theirs_BT.shape[1])[None] < torch.tensor([len(r) for r in responses])[:, None]
        mask_BT = mask_BT if under is None else under.free_BT
        logprobs_BT, values_BT = own_pass(policy, prompts, responses, *limits, sampling.temperature, support)
        # The server's are at temperature 1 and of all that the grammar allows, whatever it samples from.
        plain_BT = logprobs_BT
        if sampling.temperature != 1.0 or sampling.truncates:
            plain_BT = own_pass(policy, prompts, responses, *limits, 1.0, under)[0]
        gap = float((plain_BT - theirs_BT)[mask_BT].abs().mean()) if mask_BT.any() else 0.0
        if not gap <= TOLERANCE:
            raise HoldfastError(
                f"{self._server.name} finds its answers less or more likely than the policy does, by {gap:.3g} nats a "
                f"token where {TOLERANCE:g} is the most that rounding explains: it uses other weights, or was started "
                "with a --logprobs-mode other than raw_logprobs."
            )
        return Rollout(
            prompts=[list(p) for p in prompts],
            responses=responses,
            logprobs_BT=logprobs_BT,
            values_BT=values_BT,
            mask_BT=mask_BT,
            finished=[answer.finished for answer in answers],
            server_gap=gap,
            support=support,
        )

    def _walked(self, prompts: list[list[int]], responses: list[list[int]]) -> Support | None:
        """What could have been drawn under the answers' grammars, which have to allow them."""
        if self._grammars is None:
            return None
        try:
            return support_of_answers(each_grammar(self._grammars, prompts) or [], responses, strays=False)
        except OffGrammar as error:
            raise HoldfastError(
                f"{self._server.name} gave an answer that rollout.grammar does not allow: {error} Start it with "
                '--structured-outputs-config \'{"backend": "guidance", "disable_any_whitespace": true}\', so that it '
                "reads grammars as this program does."
            ) from error

    def _truncated(
        self, policy: Policy, prompts: list[list[int]], responses: list[list[int]], under: Support | None
    ) -> Support:
        """The same with what top-k and top-p kept, as our own pass finds it; what was drawn was kept in any case."""
        pieces = CORES.free if policy.fast is not None else 0
        rows, most = range(len(prompts)), max(map(len, responses))
        batches = micro_batches(prompts, responses, rows, self._pad_id, self._max_tokens, policy.device, pieces, under)
        parts: list[tuple[Tensor, Tensor, KeptSets]] = []
        for batch in batches:
            kept = [kept_NV.cpu() for kept_NV in kept_along(policy, batch, self._sampling)]
            parts.append((*batch.place_N, KeptSets.joined([KeptSets.of(part) for part in kept])))
        kept_sets = in_order(parts, most)
        if under is not None:
            return replace(under, kept=kept_sets)
        mask_BT = torch.arange(most)[None] < torch.tensor([len(r) for r in responses])[:, None]
        return Support(mask_BT, responses, kept=kept_sets)


@torch.no_grad()
def kept_along(policy: Policy, batch: MicroBatch, sampling: Sampling) -> Iterator[Tensor]:
    """kept_NV of a batch's tokens, some of them at a time."""
    for start, scores_NV in policy.scores(batch):
        places = slice(start, start + len(scores_NV))
        if batch.sets is not None:
            batch.sets.restrict(scores_NV, False, places)
        left_NV = truncate_distribution(scores_NV.float() / sampling.temperature, sampling.top_p, sampling.top_k)
        kept_NV = left_NV > float("-inf")
        yield kept_NV.scatter_(1, batch.target_N[places, None], True)


def structured(grammars: Grammars | None, prompt: list[int]) -> dict[str, Any]:
    """A prompt's grammar as a vLLM server is asked for it."""
    form = None if grammars is None else grammars.form_of_prompt(prompt)
    return {} if form is None else {"structured_outputs": structured_outputs(form)}


PREFIX = "weights-"


def untied_state(lm: Any) -> dict[str, Tensor]:
    """All weights, a tied one under each of its names: a server keeps its old head where only embeddings are sent."""
    state: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in lm.state_dict().items():
        state[name] = tensor.clone() if tensor.data_ptr() in places else tensor
        places.add(tensor.data_ptr())
    return state


def weights_version(policy: Policy) -> str:
    """A name for the model's present weights, by what they are: equal weights have equal names, in every run."""
    digest = hashlib.blake2b(digest_size=12)
    for name, tensor in policy.lm.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"{PREFIX}{digest.hexdigest()}"
