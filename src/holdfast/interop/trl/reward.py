"""A Holdfast ensemble as a reward function of TRL's.

prompts, completions (plain or conversational) -> the ensemble's own codec -> members -> aggregate, penalties -> rewards

Shapes: K member, B answers, T response tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from holdfast.config import Config, load_config
from holdfast.errors import HoldfastError
from holdfast.interop.trl.texts import TRLPrompt, prompt_of, rollout_of, texts_of
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.source import RewardSource, Scored
from holdfast.reward.standalone import load_ensemble
from holdfast.rollout.sampler import Rollout
from holdfast.run.directory import RunDirectory


class EnsembleReward:
    """Scores completions with an ensemble; give it to a trainer as one of its `reward_funcs`.

    `end_ids` are the tokens that end a completion in the trainer's tokenizer, by which an answer that was cut off is
    known. `HoldfastCallback.attach` sets them; without them every completion counts as finished. `run` is the run
    directory that the ensemble came from, where there is one.
    """

    def __init__(
        self, ensemble: Ensemble, codec: Codec, config: Config | None = None, run: RunDirectory | None = None
    ) -> None:
        self.ensemble, self.codec, self.run = ensemble, codec, run
        self.config = load_config() if config is None else config
        if self.config.reward.shaping != "none":
            raise HoldfastError(
                "reward.shaping = sigmoid needs an answer of the reference to every prompt, which a reward function "
                "of TRL's does not have; set it to none."
            )
        self._rewarding = RewardSource(ensemble, self.config.reward, _no_reference_answers)
        self.end_ids: frozenset[int] = frozenset()
        self.newest: tuple[Rollout, Scored] | None = None  # for whoever guards the run
        self.__name__ = "holdfast_ensemble"  # what the trainer calls its metrics

    def __call__(
        self,
        prompts: Sequence[TRLPrompt],
        completions: Sequence[TRLPrompt],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: object,
    ) -> list[float]:
        """One reward for each completion; whatever else the trainer passes is not looked at."""
        ended = [True] * len(completions) if completion_ids is None else [self.ends(ids) for ids in completion_ids]
        rollout = self.read(prompts, completions, ended)
        scored = self.score(rollout)
        self.newest = rollout, scored
        if log_metric is not None:
            log_metric("holdfast/spread", scored.metrics()["ensemble/spread"])
        return [float(x) for x in scored.rewards_B]

    def ends(self, completion_ids: Sequence[int]) -> bool:
        """Whether a completion came to its end."""
        return not self.end_ids or (len(completion_ids) > 0 and completion_ids[-1] in self.end_ids)

    def read(self, prompts: Sequence[TRLPrompt], completions: Sequence[TRLPrompt], finished: Sequence[bool]) -> Rollout:
        """Texts in the ensemble's own tokens. How likely they were is not known here."""
        texts = texts_of(completions)
        whole = [self.codec.encode_response(text) for text in texts]
        responses = [ids if end else ids[:-1] for ids, end in zip(whole, finished, strict=True)]
        tokens = [self.codec.encode_prompt(prompt_of(prompt)) for prompt in prompts]
        return rollout_of(tokens, responses, finished, texts)

    def score(self, rollout: Rollout) -> Scored:
        """What the ensemble says; a score that is not a number is an error, never a silent reward."""
        scored = self._rewarding.reward(rollout, torch.Generator())
        if not bool(torch.isfinite(scored.members_KB).all()):
            raise HoldfastError(
                f"A member of the ensemble (version {self.ensemble.version}) gives scores that are not numbers; "
                "use another version."
            )
        return scored


def ensemble_reward(
    directory: str | Path,
    policy: str | Path | None = None,
    version: int | None = None,
    device: str | None = None,
) -> EnsembleReward:
    """The reward function of a run directory, or of what `holdfast reward` wrote with the `policy` it was trained on.

    The newest version that was ever in use, or the one that is named; on the device of the run's settings, or on this.
    """
    path = Path(directory)
    if (path / "manifest.json").is_file() and (path / "rewards").is_dir():
        run = RunDirectory.open(path)
        config, model, rewards = run.config(), run.reference, run.rewards
    elif policy is not None:
        run, config, model, rewards = None, load_config(), Path(policy), path
    else:
        raise HoldfastError(
            f"{path} is no run directory with an ensemble; for one that `holdfast reward` wrote, "
            "give the policy that it was trained on as well."
        )
    if device is not None:
        config = replace(config, run=replace(config.run, device=device))
    lm, codec = load_causal_lm(model)
    ensemble = load_ensemble(rewards, lm, codec, config, version)
    return EnsembleReward(ensemble, codec, config, run)


def _no_reference_answers(prompts: list[list[int]], rng: torch.Generator) -> Rollout:
    raise AssertionError("shaping that needs them has been refused")
