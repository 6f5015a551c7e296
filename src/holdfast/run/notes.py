"""What a person should know before the work begins: settings that do not suit the model, and what is left out."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.config.schema import AuditConfig
from holdfast.guard.plan import KINDS, AuditPlan
from holdfast.parallel.processes import PROCESSES
from holdfast.run.demand import NOTHING, RoundsDone, label_demand
from holdfast.run.inputs import Ingredients
from holdfast.text import counted

# The share of an answer's room that the shortest one may need before it is said.
TIGHT = 0.5


def dpo_notes(ingredients: Ingredients, ensemble_given: bool, done: RoundsDone = NOTHING) -> list[str]:
    """What a person should know before DPO begins."""
    return ingredients.chosen.words(["dpo.lr"])


def notes(ingredients: Ingredients, ensemble_given: bool, done: RoundsDone = NOTHING) -> list[str]:
    """What a person should know before the work begins, how many comparisons will be asked for among it."""
    config = ingredients.config
    notes = []
    if PROCESSES.sharded:
        notes.append("processes.strategy = fsdp2 takes the plain path of the models, as with policy.fast = false.")
    imitates = bool(config.sft.epochs and ingredients.task.demonstrations) and not done.prepared
    trained = [] if config.reward.given else ["refresh.lr"]
    trained = ["reward.lr", *trained] if config.reward.trains_from_policy else trained
    notes += ingredients.chosen.words([*(["sft.lr"] if imitates else []), *trained, "ppo.lr"])
    notes += _grammar_notes(ingredients)
    guard, audit, rounds = config.guard, config.audit, config.run.rounds
    if ingredients.task.labeller is None:
        if not config.reward.given:
            notes.append(
                "There is no labeller, so no new labels come in and the ensemble stands still; world.labeller names "
                "one."
            )
        if guard.mode != "off":
            notes.append(
                "Without a labeller nobody answers audits: the guard has its signals only, and cannot convict."
            )
    elif guard.mode == "advise":
        notes.append("The guard only advises: it says what it would do, and does nothing (guard.mode).")
    elif guard.mode == "off":
        notes.append("The guard is off (guard.mode): nobody checks whether the reward still means anything.")
    if guard.mode != "off" and ingredients.task.labeller is not None and (lasts := rounds_audited(audit)) < rounds:
        notes.append(
            f"The budget of {audit.budget:,} audit labels lasts for about {lasts:,} of {counted(rounds, 'round')}; "
            "raise audit.budget or lower audit.pairs."
        )
    demand = label_demand(config, ensemble_given, done) if ingredients.task.labeller is not None else None
    if demand is not None and not done.prepared:
        notes += _short_budget(config, ensemble_given)
    if demand is not None:
        notes.append(demand.words())
    return notes


def _grammar_notes(ingredients: Ingredients) -> list[str]:
    """Where a grammar leaves answers little room, and which demonstrations it does not allow."""
    grammars, room = ingredients.grammars, ingredients.config.rollout.max_new_tokens
    if grammars is None:
        return []
    notes = []
    if grammars.needs > TIGHT * room:
        notes.append(
            f"The shortest answer that rollout.grammar allows takes {grammars.needs} of the {room} tokens that "
            "rollout.max_new_tokens gives: many answers will be steered to their end; raise it if they should not be."
        )
    if grammars.unsure:
        notes.append(
            "No answer that ends was found under rollout.grammar, nor that there is none: answers may be cut; see "
            "whether it can be written more simply."
        )
    shown = ingredients.task.demonstrations
    strange = sum(not grammars.allows(d.prompt, d.response) for d in shown) if ingredients.config.sft.epochs else 0
    if strange:
        notes.append(
            f"{strange:,} of {counted(len(shown), 'demonstration')} {'is' if strange == 1 else 'are'} not what "
            "rollout.grammar allows; sampled answers always are."
        )
    return notes


def _short_budget(config: Config, ensemble_given: bool) -> list[str]:
    """That the budget of labels does not last for the first comparisons and an audit, where it does not."""
    ready = ensemble_given or config.reward.given or config.reward.refresh
    first = 0 if ready else config.reward.initial_comparisons
    audit = AuditPlan(config.audit).fewest(last=False) if config.guard.mode != "off" else 0
    if not config.labels.budget or config.labels.budget >= first + audit:
        return []
    return [
        f"labels.budget = {config.labels.budget} is below what the first comparisons and one audit ask for ({first:,} "
        f"and {audit:,}), so they are cut short; raise it, or lower reward.initial_comparisons or audit.pairs."
    ]


def rounds_audited(audit: AuditConfig) -> int:
    """For how many rounds the budget of audit labels lasts if none of them is suspicious."""
    # Until there is a last good policy only the reference is asked about, so it lasts a little longer than this.
    return audit.budget // (KINDS * audit.pairs) if audit.pairs else audit.budget
