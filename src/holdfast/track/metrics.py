"""Every metric there is: its name, formula, unit and which way is better. A name that is not here is refused.

Names that TRL uses have TRL's meaning unless the formula says otherwise. In the formulas pi is the policy
that sampled the step's answers, ref the reference, rho = pi_new / pi the ratio during the step's updates;
sums over tokens are over response tokens.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import HoldfastError

Better = Literal["up", "down", "neither"]

_SD = "sd of reference scores"


@dataclass(frozen=True)
class Metric:
    """One number that a run may log."""

    name: str
    formula: str
    unit: str
    better: Better


_METRICS = (
    # The objective
    Metric("objective/kl", "mean over the step's answers of sum over tokens of (log pi - log ref)", "nats per answer",
           "neither"),
    Metric("objective/kl_step",
           "mean over 16 of the step's answers of sum over tokens of (rho - 1 - log rho), rho after "
           "the last update: the k3 estimate of KL(pi || pi_new)", "nats per answer", "neither"),
    Metric("objective/kl_round", "sum of objective/kl_step over the steps since the round began", "nats per answer",
           "neither"),
    Metric("objective/kl_cumulative", "sum of objective/kl_step over all steps of the run, undone ones included",
           "nats per answer", "neither"),
    Metric("objective/scores",
           "mean over the step's answers of the members' standardised scores, aggregated; before shaping and "
           "penalties. Of a reward that is given: mean over the scored answers of what it gave, in its own unit",
           _SD, "up"),
    Metric("objective/rlhf_reward",
           "mean over the step's answers of (score after shaping and penalties - beta * KL), with KL as in "
           "objective/non_score_reward", _SD, "up"),
    Metric("objective/non_score_reward",
           "mean over the step's answers of -beta * sum over tokens of the KL estimate in use; not above 0 when "
           "that KL is positive, and 0 when KL is in the loss", _SD, "neither"),
    Metric("objective/entropy", "mean over the step's answers of sum over tokens of -log pi(sampled token)",
           "nats per answer", "neither"),
    # The policy's update
    Metric("policy/approxkl_avg",
           "mean over the tokens of all the step's updates of (rho - 1 - log rho); TRL has (log rho)^2 / 2 here",
           "nats per token", "neither"),
    Metric("policy/clipfrac_avg",
           "share of the tokens of all the step's updates at which clipping lowered the objective", "share", "down"),
    Metric("loss/policy_avg",
           "mean over the step's updates of -(1 / tokens) sum over tokens of min(rho A, clip(rho, 1 - c, 1 + c) A)",
           "whitened advantage", "neither"),
    Metric("loss/value_avg", "mean over the step's updates of value_coef * (1 / tokens) sum over tokens of "
           "max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2", "squared reward", "down"),
    Metric("loss/kl_avg",
           "mean over the step's updates of beta * (1 / tokens) sum over tokens of the KL estimate to ref; "
           "only when KL is in the loss", "reward per token", "neither"),
    # Learning from pairs
    Metric("loss/dpo", "mean over pairs of the loss that dpo.loss names, its cross-entropy term included", "nats",
           "down"),
    Metric("rewards/accuracies",
           "share of pairs with (log pi - log ref)(chosen) above (log pi - log ref)(rejected); a tie is half", "share",
           "up"),
    Metric("rewards/chosen", "mean over pairs of beta * (log pi - log ref)(chosen)", "reward", "up"),
    Metric("rewards/rejected", "mean over pairs of beta * (log pi - log ref)(rejected)", "reward", "down"),
    Metric("rewards/margins", "rewards/chosen - rewards/rejected", "reward", "up"),
    Metric("logps/chosen", "mean over pairs of sum over tokens of log pi(chosen)", "nats per answer", "neither"),
    Metric("logps/rejected", "mean over pairs of sum over tokens of log pi(rejected)", "nats per answer", "neither"),
    Metric("rewards/heldout_accuracies", "rewards/accuracies on labelled pairs that never train, after each pass",
           "share", "up"),
    Metric("val/ratio", "mean over the tokens of all the step's updates of rho", "ratio", "neither"),
    Metric("val/explained_variance",
           "1 - Var(R - V) / Var(R) over the step's tokens, before the updates; 0 when Var(R) is 0", "share", "up"),
    Metric("optim/grad_norm", "mean over the step's updates of the L2 norm of the gradient, before clipping",
           "gradient", "neither"),
    # What the controllers have set
    Metric("control/beta", "coefficient of KL in force during the step", f"{_SD} per nat", "neither"),
    Metric("control/kl_target", "KL to the reference that the controller aims at: the budget in force",
           "nats per answer", "neither"),
    Metric("control/lr", "learning rate of the policy's optimiser during the step", "learning rate", "neither"),
    Metric("control/kl_aim",
           "what objective/kl_step is to be: the KL budget / 16, times the square of what schedules and the controller "
           "leave of the learning rate; where ppo.lr is chosen", "nats per answer", "neither"),
    Metric("control/tries", "updates tried for the step, each but the last taken back for the KL that it moved",
           "updates", "down"),
    Metric("control/epochs_done", "passes made over the step's answers", "passes", "neither"),
    # The ensemble
    Metric("ensemble/spread",
           "mean over the step's answers of the population sd over members of the standardised score", _SD, "down"),
    Metric("ensemble/degraded",
           "reward members that are left out, since they fail or give every answer the same score; only where there "
           "are any", "members", "down"),
    Metric("ensemble/version", "version of the ensemble that scored the step", "version", "neither"),
    Metric("ensemble/labels", "labels in the store when the version in use was trained, held-out ones included",
           "labels", "up"),
    Metric("reward/unscored", "share of the step's answers that the reward could not score; they have no part in what "
           "is learnt", "share", "down"),
    # The answers
    Metric("response/length_mean", "mean over the step's answers of their tokens", "tokens", "neither"),
    Metric("response/length_max", "most tokens in any of the step's answers", "tokens", "neither"),
    Metric("response/unfinished", "share of the step's answers without an end token", "share", "down"),
    Metric("response/distinct2",
           "different pairs of neighbouring tokens / all such pairs, over the step's answers together", "share",
           "neither"),
    Metric("rollout/server_gap",
           "mean over the step's tokens of |log pi by the vLLM server - log pi by our own model|, both at temperature "
           "1; only with vllm.url", "nats per token", "down"),
    Metric("steps/skipped", "steps dropped so far because a value was not finite", "steps", "down"),
)  # fmt: skip

# A component of a reward that has several, or a criterion of a rubric, by its own name.
COMPONENTS = "reward/component/"

# The guard's signals, each of which is a file of its own, are written under this name and described in docs/guard.md.
SIGNALS = "signal/"

REGISTRY: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def metric(name: str) -> Metric:
    """Look a metric up; a name that is not in the registry is refused."""
    if name in REGISTRY:
        return REGISTRY[name]
    if name.startswith(SIGNALS):
        return Metric(name, "what the guard's signal of that name read in the step", "the signal's own", "neither")
    if name.startswith(COMPONENTS):
        return Metric(name, "mean over the step's scored answers of that component of the reward", "reward", "neither")
    near = difflib.get_close_matches(name, REGISTRY, n=1)
    hint = f"did you mean {near[0]}?" if near else "add it to holdfast/track/metrics.py."
    raise HoldfastError(f"There is no metric {name!r} in the registry; {hint}")


def metrics_markdown() -> str:
    """The reference page of all metrics, docs/reference/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Every number that a run writes to `metrics.jsonl`, generated from `holdfast.track.metrics`.",
        "",
        "In the formulas `pi` is the policy that sampled the step's answers, `ref` the reference, and",
        "`rho = pi_new / pi` the ratio during the step's updates. Sums over tokens are over response tokens.",
        "A value that is not finite is written as `null`. The guard's signals are written as `signal/NAME`;",
        "docs/guard.md says what each of them reads. Components of a reward are written as `reward/component/NAME`.",
        "",
        "| name | formula | unit | better |",
        "|---|---|---|---|",
    ]
    for entry in REGISTRY.values():
        # Unescaped, the bars of KL(p || q) and the stars of a product would be taken for Markdown.
        formula = entry.formula.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
        lines.append(f"| `{entry.name}` | {formula} | {entry.unit} | {entry.better} |")
    return "\n".join(lines) + "\n"
