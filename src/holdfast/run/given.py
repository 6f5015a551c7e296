"""A run whose reward is given: the source with the prompts' rows, and who makes its claims."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from holdfast.config.reward_source import kind_of, parts_of
from holdfast.config.schema import RewardConfig
from holdfast.guard.claimant import PairScores, ScalarClaimant
from holdfast.preferences.pair import Pair
from holdfast.reward.given import GivenReward, PromptRow
from holdfast.run.inputs import Ingredients

REWARD = "the reward"


def given_reward(ingredients: Ingredients, group: int = 0) -> GivenReward:
    """The reward in its starting state. Prompts that are the same to the policy are one row, the first.

    So many neighbours answer one prompt, or as many as the settings say.
    """
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    assert ingredients.source is not None, "process 0 has opened it"
    rows: dict[tuple[int, ...], PromptRow] = {}
    for prompt in (*task.prompts, *task.heldout_prompts):
        rows.setdefault(tuple(codec.encode_prompt(prompt)), PromptRow(prompt, task.columns.get(prompt, {})))
    return GivenReward(
        ingredients.source, config.reward, rows, codec.decode, codec.eos_id, group or config.ppo.samples_per_prompt,
        files=files_of(config.reward),
    )  # fmt: skip


def files_of(reward: RewardConfig) -> dict[str, str]:
    """The files of functions, rubrics and schemas, with digests of their contents; a model's are too large to read."""
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in source_files(reward) if path.is_file()}


def source_files(reward: RewardConfig) -> list[Path]:
    """Where its functions, rubrics and schemas are."""
    specs = [part.source for part in parts_of(reward.parts)] or [reward.source]
    kinds = {spec: kind_of(spec) for spec in specs}
    functions = {Path(spec.rpartition(":")[0]) for spec, kind in kinds.items() if kind == "function"}
    schemas = {Path(spec.partition(":")[2]) for spec, kind in kinds.items() if kind == "structure"}
    rubrics = {Path(spec) for spec, kind in kinds.items() if kind == "rubric"}
    return sorted(functions | rubrics | {path for path in schemas if path.suffix == ".json"})


def claimant_of(reward: GivenReward) -> ScalarClaimant:
    """Who claims what people prefer by a reward that is one number: nothing, before audits have taught it."""

    def score(pairs: Sequence[Pair]) -> PairScores:
        return PairScores(*reward.margins(pairs))

    claimant = ScalarClaimant(score, REWARD, reward.source.part)
    # Labels of audits are what such a reward is trusted by, as an ensemble is by those that it has learnt from.
    reward.labels_so_far = lambda: len(claimant.scale.pairs)
    return claimant
