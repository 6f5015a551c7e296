"""What a run has before its first round: models, answers, labels, the reward, and what trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from holdfast.events import event_sentence
from holdfast.models.load import save_model
from holdfast.preferences.collector import Claimant, Collector
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Cursor, Streams, generator
from holdfast.reward.corrective import Corrective
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.given import GivenReward
from holdfast.reward.importance import Importance
from holdfast.reward.refresher import Refresher
from holdfast.reward.source import Reward, RewardSource
from holdfast.reward.standalone import build_ensemble
from holdfast.rollout.sampler import Rollout
from holdfast.rollout.served import ServedSampler
from holdfast.run.answers import Answers, run_answers, sampling_of
from holdfast.run.demand import label_budget
from holdfast.run.directory import RunDirectory
from holdfast.run.given import claimant_of, given_reward
from holdfast.run.inputs import Ingredients
from holdfast.run.journal import Journal
from holdfast.run.models import Models


@dataclass(frozen=True)
class Parts:
    """What a run has before its first round: models, answers, labels, its reward and what trains it.

    `standard` are the reference's answers on which scores are standardised.
    """

    models: Models
    answers: Answers
    collector: Collector
    reward: Reward
    refresher: Refresher | None
    journal: Journal
    streams: Streams
    standard: Rollout

    @property
    def entropy(self) -> float:
        """The entropy of the reference's answers, in nats, by what they were drawn with."""
        return -float((self.standard.logprobs_BT * self.standard.mask_BT).sum(1).mean())


def build_parts(
    ingredients: Ingredients,
    run: RunDirectory,
    models: Models,
    store: PreferenceStore,
    journal: Journal,
    after_people: Callable[[], None],
) -> Parts:
    """Answers, labels and the reward with what trains it, in their starting state."""
    config = ingredients.config
    served = served_sampler(ingredients, run)
    answers = run_answers(ingredients, models.policy, journal.position, served)
    streams, ensemble = Streams(config.run.seed), models.ensemble
    if ensemble is None:
        given, standard = given_reward(ingredients), standard_answers(ingredients, models, answers)
        if config.reward.corrective:
            given.corrective = corrective_of(ingredients, run, models, store, standard)
        collector = collector_of(ingredients, run, claimant_of(given), store, journal, after_people)
        return Parts(models, answers, collector, given, None, journal, streams, standard)
    collector = collector_of(ingredients, run, ensemble, store, journal, after_people)
    ensemble.tell = lambda left_out: journal.event("member_degraded", **asdict(left_out))
    standard = standard_answers(ingredients, models, answers)
    refresher = refresher_of(ingredients, run, models, ensemble, store, journal, standard)
    reward = RewardSource(ensemble, config.reward, partial(answers.sample, models.reference), config.flaw)
    return Parts(models, answers, collector, reward, refresher, journal, streams, standard)


def corrective_of(
    ingredients: Ingredients, run: RunDirectory, models: Models, store: PreferenceStore, standard: Rollout
) -> Corrective:
    """What the guard may add to a reward that is given: one member, on a copy of the reference."""
    config, codec = ingredients.config, ingredients.codec
    fresh = partial(build_ensemble, config, models.reference.lm, codec, members=1)
    answers = standard.prompts, standard.responses
    return Corrective(fresh, store, codec, run.key, config.reward, *answers, config.run.seed)


def collector_of(
    ingredients: Ingredients,
    run: RunDirectory,
    claimant: Claimant,
    store: PreferenceStore,
    journal: Journal,
    after_people: Callable[[], None],
) -> Collector:
    """Who asks people about answers, with who claims what they will say."""
    config, task = ingredients.config, ingredients.task
    preferences = config.preferences
    if ingredients.given:
        preferences = replace(preferences, per_round=0)  # nothing would learn from them
    return Collector(
        run.key, ingredients.codec, task.prompts, store, task.labeller, claimant, preferences, config.run.seed,
        after_people, budget=label_budget(config), event=journal.event,
    )  # fmt: skip


def standard_answers(ingredients: Ingredients, models: Models, answers: Answers) -> Rollout:
    """Answers of the reference, on which scores are standardised; always the same ones."""
    config, prompts, codec = ingredients.config, ingredients.task.prompts, ingredients.codec
    # A source that is given may compare the answers to one prompt, so they come in groups as in a step.
    group = config.ppo.samples_per_prompt if ingredients.given else 1
    rows = Cursor(len(prompts), config.run.seed, "standardise").take(-(-config.reward.standardise_samples // group))
    asked = [codec.encode_prompt(prompts[i]) for i in rows for _ in range(group)]
    return answers.sample(models.reference, asked, generator(config.run.seed, "standardise"))


def refresher_of(
    ingredients: Ingredients,
    run: RunDirectory,
    models: Models,
    ensemble: Ensemble,
    store: PreferenceStore,
    journal: Journal,
    standard: Rollout,
) -> Refresher:
    """What trains versions of the ensemble from the run's labels."""
    config, codec = ingredients.config, ingredients.codec
    refresher = Refresher(
        ensemble, VersionStore(run.rewards), store, codec, config.reward, config.refresh,
        standard.prompts, standard.responses, journal.progress, config.gate, run.key,
    )  # fmt: skip
    if config.refresh.weights == "importance":
        limits = codec.pad_id, config.policy.micro_batch_tokens, config.rollout.temperature
        refresher.importance = Importance(models.policy, models.reference, *limits, ingredients.grammars)
    return refresher


def standardise(parts: Parts, given: GivenReward) -> None:
    """Zero and unit of a reward that is given, from the reference's answers; once in a run."""
    parts.journal.progress.begin("standardising the reward", 1)
    standard = given.standardise(parts.standard)
    parts.journal.progress.advance()
    fields = {
        "reward": given.source.name, "mean": standard.mean, "sd": standard.sd, "scored": standard.scored,
        "answers": standard.asked, "flat": standard.flat, "components": dict(standard.components),
    }  # fmt: skip
    parts.journal.tracker.event(0, 0, "standardised", **fields)
    parts.journal.progress.say(f"note: {event_sentence('standardised', fields)}")


def first_ensemble(ingredients: Ingredients, parts: Parts, refresher: Refresher, ready: Path | None) -> None:
    """Version 1: given, found finished from an earlier attempt, a published model, or trained on the first labels."""
    collector, journal = parts.collector, parts.journal
    if ready is not None:
        VersionStore(ready).load_in_use_into(refresher.ensemble)
        refresher.versions.save(refresher.ensemble)
        return
    if refresher.versions.numbers():
        refresher.versions.load_in_use_into(refresher.ensemble)
    elif ingredients.classifier is not None:
        add_imported(ingredients, collector.store)  # new to it
        refresher.take_as_first_version()
    else:
        add_imported(ingredients, collector.store)
        journal.progress.begin("first comparisons", 1)
        count = ingredients.config.reward.initial_comparisons
        collector.collect_initial(count, parts.models.reference, parts.answers.sample)
        journal.progress.advance()
        outcome = refresher.first_version(parts.streams)
        journal.tracker.event(
            0, 0, "ensemble_trained", version=outcome.version, labels=outcome.labels, loss=outcome.loss,
            trained_on=outcome.trained_on, train_accuracy=outcome.train_accuracy,
            holdout_accuracy=outcome.holdout_accuracy, held_out=outcome.held_out,
        )  # fmt: skip
    # Some of the first comparisons are asked again: what honest people answer, for the gate to compare with.
    if ingredients.config.preferences.per_round and collector.labeller is not None:
        repeats = refresher.to_repeat(0, parts.streams.seed)
        if repeats:
            why = "of the first comparisons again, to check labels (gate.repeats)"
            again = collector.ask(repeats, "before round 1", why)
            journal.tracker.event(0, 0, "labels_repeated", repeats=again)


def add_imported(ingredients: Ingredients, store: PreferenceStore) -> None:
    """The labels that the user has brought join the run's own."""
    if ingredients.imported:
        store.add_comparisons([item.comparison for item in ingredients.imported])
        store.add_labels([label for item in ingredients.imported for label in item.labels])


def served_sampler(ingredients: Ingredients, run: RunDirectory) -> ServedSampler | None:
    """Who samples from the policy, where a server does."""
    config, codec = ingredients.config, ingredients.codec
    if not config.vllm.url:
        return None
    here, _, there = config.vllm.weights.partition(":")
    weights = Path(here) if here else run.path / "served"
    return ServedSampler(
        config.vllm, sampling_of(config), codec.eos_id, codec.pad_id, config.policy.micro_batch_tokens, weights,
        save=lambda directory, lm, state: save_model(directory, lm, codec, state), there=there,
        grammars=ingredients.grammars,
    )  # fmt: skip
