"""From settings to a reward source."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.reward_source import kind_of, parts_of
from holdfast.config.schema import JudgeConfig, PolicyConfig, RewardConfig
from holdfast.remote.endpoint import check_address
from holdfast.reward.scores import AdjustableSource
from holdfast.reward.sources.adjusted import AdjustedSource
from holdfast.reward.sources.cache import CachedSource
from holdfast.reward.sources.function import FunctionSource
from holdfast.reward.sources.judge import JudgePairs, JudgeRubric, JudgeScore
from holdfast.reward.sources.model import ModelSource
from holdfast.reward.sources.parts import opened_parts
from holdfast.reward.sources.plain import PlainSource
from holdfast.reward.sources.rubric import read_rubric
from holdfast.reward.sources.service import ServiceSource
from holdfast.reward.sources.structure import StructureSource
from holdfast.reward.sources.workers import Allowance

MOST_TOKENS = PolicyConfig().micro_batch_tokens


def open_source(
    reward: RewardConfig, judge: JudgeConfig, device: str = "cpu", max_tokens: int = MOST_TOKENS
) -> AdjustableSource | None:
    """The source that the settings name; None where that is the ensemble.

    A model of this process works on `device`, on so many tokens in a pass. What cannot be used, such as a file that is
    not there, is said here, before anything is written.
    """

    def one(spec: str, setting: str) -> CachedSource:
        return CachedSource(_opened(spec, setting, reward, judge, device, max_tokens))

    if parts := parts_of(reward.parts):
        return opened_parts(parts, one)
    return AdjustedSource(one(reward.source, "reward.source")) if reward.source else None


def _opened(
    spec: str, setting: str, reward: RewardConfig, judge: JudgeConfig, device: str, max_tokens: int
) -> PlainSource:
    allowance = Allowance(reward.timeout_seconds, reward.parallel)
    kind = kind_of(spec, setting)
    if kind in ("judge", "rubric"):
        check_address(judge.url, "judge.url")
    match kind:
        case "function":
            return FunctionSource(spec, allowance, setting)
        case "judge":
            return JudgeScore(judge) if judge.mode == "score" else JudgePairs(judge)
        case "rubric":
            path = Path(spec)
            return JudgeRubric(read_rubric(path), judge, path.name)
        case "service":
            return ServiceSource(spec, allowance, setting)
        case "structure":
            return StructureSource(spec, setting)
        case "model":
            return ModelSource(spec, device, max_tokens, setting)
