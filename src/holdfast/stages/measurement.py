"""What a stage has done to the policy: KL to SFT, length, which is preferred, and the truth where somebody knows it.

Means over held-out prompts with 95% intervals; the labeller compares the policy with SFT on fresh prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from holdfast.config import Config
from holdfast.grammar.grammars import Grammars, each_grammar
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.preferences.budget import LabelBudget
from holdfast.preferences.collector import Collector
from holdfast.preferences.comparison import Comparison, Provenance
from holdfast.preferences.labeller import called
from holdfast.preferences.records import FirstAnswer
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import generator
from holdfast.reward.ensemble import Ensemble
from holdfast.rollout.likelihood import answer_logprobs
from holdfast.rollout.sampler import sample
from holdfast.run.answers import sampling_of
from holdfast.run.observer import Answer
from holdfast.statistics import Estimate, wilson
from holdfast.worlds.protocol import Task

# How true each answer is, by somebody who knows; the pipeline itself does not.
Truth = Callable[[Sequence[Prompt], Sequence[Answer]], list[float]]


def mean_of(values: Sequence[float]) -> Estimate:
    """A mean over prompts with its 95% interval."""
    half = 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    mean = fmean(values)
    return Estimate(mean, mean - half, mean + half, len(values))


def measure_policy(
    config: Config,
    codec: Codec,
    policy: Policy,
    sft: Policy,
    prompts: Sequence[Prompt],
    truth: Truth | None,
    grammars: Grammars | None = None,
) -> dict[str, Any]:
    """KL to SFT, length and, where it is known, the truth, of answers to the same prompts by the same draws."""
    ids = [codec.encode_prompt(prompt) for prompt in prompts]
    rng = generator(config.run.seed, "stage measure")
    ends, under = (codec.eos_id, codec.pad_id), each_grammar(grammars, ids)
    rollout = sample(policy, ids, sampling_of(config), *ends, rng, under)
    limits = codec.pad_id, config.policy.micro_batch_tokens, config.rollout.temperature
    ours_B = (rollout.logprobs_BT * rollout.mask_BT).sum(1)
    kl_B = ours_B - answer_logprobs(sft, rollout.prompts, rollout.responses, *limits, under)
    answers = [Answer(codec.decode(r), done) for r, done in zip(rollout.responses, rollout.finished, strict=True)]
    known = None if truth is None else truth(prompts, answers)
    return {
        "kl": asdict(mean_of(kl_B.tolist())),
        "length": asdict(mean_of([float(n) for n in rollout.lengths])),
        "unfinished": 1.0 - sum(rollout.finished) / len(rollout.finished),
        "gold": None if known is None else asdict(mean_of(known)),
    }


def asking(config: Config, task: Task, codec: Codec, store: PreferenceStore, key: str) -> Collector:
    """Who asks comparisons where there is no ensemble that claims anything of them, within the budget of labels."""
    nobody = Ensemble([], codec.pad_id, config.policy.micro_batch_tokens)
    return Collector(
        key, codec, task.prompts, store, task.labeller, nobody, config.preferences, config.run.seed,
        budget=LabelBudget(config.labels.budget),
    )  # fmt: skip


def compare_with_sft(
    config: Config,
    task: Task,
    codec: Codec,
    store: PreferenceStore,
    key: str,
    label: str,
    policy: Policy,
    sft: Policy,
    grammars: Grammars | None = None,
) -> dict[str, Any] | None:
    """How often the policy's answer is preferred to SFT's, and by whom; None where nobody answers."""
    count = config.pipeline.audit_pairs
    if task.labeller is None or count == 0:
        return None
    rng = generator(config.run.seed, "stage audit", label)
    rows = torch.randint(len(task.prompts), (count,), generator=rng).tolist()
    prompts = [codec.encode_prompt(task.prompts[i]) for i in rows]
    sampling, under = sampling_of(config), each_grammar(grammars, prompts)
    ours, theirs = (sample(p, prompts, sampling, codec.eos_id, codec.pad_id, rng, under) for p in (policy, sft))
    swapped = torch.randint(2, (count,), generator=rng).tolist()
    collector = asking(config, task, codec, store, key)
    asked = []
    for n, row in enumerate(rows):
        one = collector.response(ours, n, Provenance(label, 0, n))
        other = collector.response(theirs, n, Provenance("sft", 0, n))
        number = f"{key}/measure-{label}-{n:05d}"
        comparison = Comparison(number, task.prompts[row], one, other, 0, "measure", key)
        asked.append(comparison.swap() if swapped[n] else comparison)
    collector.ask(asked, f"the stage {label} beside SFT")
    by_id = dict(zip([c.id for c in asked], swapped, strict=True))
    answered = store.labelled_among([c.id for c in asked])
    won = [1.0 - item.share_a if by_id[item.comparison.id] else item.share_a for item in answered]
    if not won:
        return None
    share = wilson(sum(won), len(won))
    rate = Estimate(share.value, share.low, share.high, len(won))
    return {**asdict(rate), "answered_by": called(task.labeller)}


@dataclass(frozen=True)
class Spent:
    """Labels of a stage: to train on, and to measure (audits, what was asked again); tokens of the compared answers."""

    labels: int = 0
    audit_labels: int = 0
    tokens: int = 0


def labels_between(store: PreferenceStore, after: int, up_to: int) -> Spent:
    """What people have answered between two watermarks; what measured a stage is not its own spending."""
    spent: list[FirstAnswer] = []
    while page := store.first_answers(after, up_to):
        spent += [row for row in page if row.purpose != "measure"]
        after = page[-1].seq
    audits = sum(row.purpose in ("audit", "repeat") for row in spent)
    items = store.labelled_among([row.comparison_id for row in spent], up_to)
    sides = [side for item in items for side in (item.comparison.a, item.comparison.b)]
    return Spent(len(spent) - audits, audits, sum(len(side.token_ids or ()) for side in sides))
