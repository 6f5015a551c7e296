"""Putting a run together: from a config to a loop that is ready to go.

    Ingredients (nothing written)  ->  run directory  ->  reference  ->  version 1 of the ensemble  ->  OnlineLoop

All checks of the user's input happen in `gather`, before the first byte is written. Each stage that has been
finished is found on disk again, so a run cut short in preparation goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.checkpoint.transaction import Part
from holdfast.config import Config
from holdfast.control.ledger import KLLedger
from holdfast.control.plateau import Plateau
from holdfast.control.policy_mean import PolicyMean
from holdfast.control.schedule import Annealing, LearningRate
from holdfast.control.step_size import StepSize
from holdfast.control.triggers import RefreshTriggers
from holdfast.guard.ladder import Rung
from holdfast.guard.review import Review
from holdfast.models.policy import Policy
from holdfast.parallel.processes import PROCESSES
from holdfast.people.label_weights import LabellerWeights
from holdfast.people.requests import RequestStore
from holdfast.people.team import TeamLabeller
from holdfast.preferences.store import PreferenceStore
from holdfast.probes.prober import Prober
from holdfast.randomness import Cursor
from holdfast.reward.given import GivenReward
from holdfast.run.control import budget_of, budget_words, controller_of
from holdfast.run.demand import RoundsDone
from holdfast.run.directory import RunDirectory
from holdfast.run.host import WITHOUT_ENSEMBLE, LoopHost, Orders
from holdfast.run.inputs import Ingredients, check_server
from holdfast.run.journal import Journal, Position
from holdfast.run.learner import Learner
from holdfast.run.loop import OnlineLoop
from holdfast.run.models import build_models
from holdfast.run.notes import notes
from holdfast.run.observer import Audience, Observer
from holdfast.run.owner import Owner
from holdfast.run.parts import Parts, build_parts, first_ensemble, standardise
from holdfast.run.probes import data_prober, own_answers
from holdfast.run.reference import prepare_reference
from holdfast.run.rollback import RunState
from holdfast.run.seal import SETTINGS, change_words, changed_settings
from holdfast.run.showcase import Showcase
from holdfast.track.progress import Progress
from holdfast.track.sinks import open_sinks
from holdfast.track.tracker import METRICS_FILE, PROBES_FILE, SAMPLES_FILE, Tracker

# Sections of stages that are no part of a run: those of a pipeline alone.
OTHER_STAGES = frozenset({"bestofn", "pipeline"})


@contextmanager
def assemble(
    ingredients: Ingredients,
    run: RunDirectory,
    progress: Progress,
    observers: Sequence[Observer] = (),
    stop_requested: Callable[[], bool] = lambda: False,
    ensemble_from: Path | None = None,
    agreed: Config | None = None,
    answers: bool = True,
) -> Iterator[OnlineLoop]:
    """Prepare what is missing (reference, first ensemble) and build the loop, resumed from the newest checkpoint.

    `agreed` are settings to become the run's own, where they are not. Whoever resumes a run that had stopped to ask has
    answered, unless nobody does (`answers`).
    """
    config, task = ingredients.config, ingredients.task
    resuming = not CheckpointStore(run.checkpoints).is_empty()
    with ExitStack() as open_files:
        if ingredients.source is not None:
            open_files.enter_context(closing(ingredients.source))
        store = open_files.enter_context(run.open_store(config))
        sinks = open_sinks(config.track.sinks, run.path, run.name)
        tracker = open_files.enter_context(closing(Tracker(run.path, sinks)))
        audience = open_files.enter_context(closing(Audience(observers)))
        if resuming:
            store.database.check_pages()
        else:
            adopt(run, agreed, progress)
            start_afresh(tracker, audience, keep_probes=run.reference.is_dir())
        reference_lm = prepare_reference(ingredients, run, tracker, progress)
        checkpoints = CheckpointStore(run.checkpoints, config.checkpoint.keep, run.seal())
        with PROCESSES.joint("build", weights=reference_lm.state_dict()):
            models = build_models(ingredients, reference_lm)
        journal = Journal(Position(), tracker, progress)
        look = connect_people(task.labeller, store, run, config, journal, stop_requested)
        parts = build_parts(ingredients, run, models, store, journal, look)
        look()
        if not resuming and parts.refresher is not None:
            first_ensemble(ingredients, parts, parts.refresher, ensemble_from)
        elif not resuming and isinstance(parts.reward, GivenReward):
            standardise(parts, parts.reward)
        if not resuming:
            progress.say(f"note: {budget_words(config, parts.entropy, parts.reward.labels)}")
        stage = "ppo" if config.run.optimiser == "ppo" else "online dpo"
        prober = data_prober(ingredients, run, tracker, stage, models.policy.context, store)
        loop = build_loop(ingredients, run, parts, checkpoints, audience, prober, stop_requested)
        if resuming:
            loaded = checkpoints.load_newest(loop.state.check)
            loop.resume(loaded, answers)
            for sentence in loaded.skipped:
                journal.event("checkpoint_skipped", reason=sentence)
            journal.event("resumed", checkpoint=loaded.name)
            if isinstance(parts.reward, GivenReward) and parts.reward.changed:
                journal.event("reward_changed", files=parts.reward.changed)
                parts.collector.changes += 1  # a round that is done again asks about other answers
                loop.replan()
            if ingredients.grammars is not None and ingredients.grammars.changed:
                journal.event("grammar_changed", files=ingredients.grammars.changed)
                parts.collector.returns += 1  # all of them are others, those before the first step too
                loop.replan()
            ended, unused = journal.position.of_plan > config.run.rounds, OTHER_STAGES
            if config.run.optimiser == "ppo":
                unused |= {"dpo"}
            if go_on_with(run, agreed, checkpoints, loaded, progress, journal.event, unused, ended):
                loop.replan()
        yield loop


def adopt(run: RunDirectory, agreed: Config | None, progress: Progress) -> None:
    """Make settings the run's own, and say which of its files were lost and are written again."""
    for name in [] if agreed is None else run.adopt(agreed):
        progress.say(f"note: {name} was missing, and has been written again as the run has it")


def go_on_with(
    run: RunDirectory,
    agreed: Config | None,
    checkpoints: CheckpointStore,
    loaded: Loaded,
    progress: Progress,
    event: Callable[..., None],
    unused: Collection[str] = OTHER_STAGES,
    ended: bool = False,
) -> bool:
    """Take the settings for a run that has been put back as its checkpoint left it, and write down what is new in them.

    Only now: settings that the checkpoint does not fit were refused on the way, and the run still has its own.
    Sections that are `unused` are told in one line; of a run that has `ended`, the rest are for rounds to come.
    """
    adopt(run, agreed, progress)
    checkpoints.owner = run.seal()
    changes = changed_settings(loaded.owner[SETTINGS], checkpoints.owner[SETTINGS])
    idle = [change for change in changes if change.name.partition(".")[0] in unused]
    for change in changes:
        if change not in idle:
            event("setting_changed", **asdict(change), **({"ended": True} if ended else {}))
    if idle:
        event("settings_unused", words=change_words(idle))
    return bool(changes)


def connect_people(
    labeller: object,
    store: PreferenceStore,
    run: RunDirectory,
    config: Config,
    journal: Journal,
    stop_requested: Callable[[], bool],
) -> Callable[[], None]:
    """Where people or a judge answer: give them the store; returns how to look at the quality of what they say."""
    if not isinstance(labeller, TeamLabeller):
        return lambda: None
    weights = LabellerWeights(store, run.key, config.people.unreliable)

    def look() -> None:
        if changed := weights.update():
            journal.event("label_quality", changed=changed, unreliable=config.people.unreliable)

    labeller.connect(store, run.key, journal.progress.hold, stop_requested, journal.event)
    return look


def start_afresh(tracker: Tracker, audience: Audience, keep_probes: bool) -> None:
    """Nothing was committed yet: rows of an earlier, cut attempt at preparation go, its events stay.

    Probes of a fine-tuning that has ended stay too, since it will not be done again.
    """
    tracker.forget(METRICS_FILE, SAMPLES_FILE, *(() if keep_probes else (PROBES_FILE,)))
    audience.restore({})


def build_loop(
    ingredients: Ingredients,
    run: RunDirectory,
    parts: Parts,
    checkpoints: CheckpointStore,
    audience: Audience,
    prober: Prober | None,
    stop_requested: Callable[[], bool],
) -> OnlineLoop:
    """The loop with every collaborator in its starting state."""
    config, prompts, models, journal = ingredients.config, ingredients.task.prompts, parts.models, parts.journal
    prompt_ids = [ingredients.codec.encode_prompt(p) for p in prompts]
    refresher = parts.refresher
    budget = budget_of(config, parts.entropy)
    controller, ledger, orders = controller_of(config, budget), KLLedger(), Orders()
    chosen = "ppo.lr" in ingredients.chosen
    learning_rate = LearningRate(config.ppo.lr, 0 if chosen else config.ppo.lr_warmup_steps)
    step_size = StepSize(learning_rate) if chosen else None
    plateau = Plateau()
    mean = PolicyMean(config.run.rounds, config.run.average)
    cursor = Cursor(len(prompts), config.run.seed, "prompts")
    shown = list(ingredients.task.heldout_prompts[: config.track.samples])
    showcase = Showcase(shown, config.run.seed, parts.answers, parts.reward, journal, audience)
    taken_back: dict[str, Part] = {
        **({} if refresher is None else {"ensemble": refresher}),
        **models.optimiser.parts(),
        "streams": parts.streams,
        "cursor": cursor,
        "controller": controller,
        "learning_rate": learning_rate,
        **({} if step_size is None else {"step_size": step_size}),
        "plateau": plateau,
        "mean": mean,
    }
    going_on: dict[str, Part] = {"position": journal.position, "collector": parts.collector, "orders": orders}
    if isinstance(parts.reward, GivenReward):
        going_on["reward"] = parts.reward
    if ingredients.grammars is not None:
        going_on["grammars"] = ingredients.grammars
    state = RunState(taken_back, going_on, ledger, checkpoints, None if refresher is None else refresher.versions)
    review: Review[Policy] | None = None
    if models.anchor is not None:
        lacks = WITHOUT_ENSEMBLE if refresher is None else frozenset[Rung]()
        if config.reward.corrective:
            lacks -= {"refresh"}
        seed, rounds = config.run.seed, config.run.rounds
        review = Review.planned(config.guard, config.audit, rounds, seed, parts.collector, lacks=lacks)
    learner = Learner(
        config=config,
        prompts=prompts,
        prompt_ids=prompt_ids,
        cursor=cursor,
        streams=parts.streams,
        policy=models.policy,
        reference=models.reference,
        answers=parts.answers,
        optimiser=models.optimiser,
        reward=parts.reward,
        refresher=refresher,
        controller=controller,
        budget=budget,
        ledger=ledger,
        learning_rate=learning_rate,
        annealing=Annealing(config.ppo.lr_final, config.run.rounds * config.run.steps_per_round),
        step_size=step_size,
        plateau=plateau,
        mean=mean,
        review=review,
        journal=journal,
        audience=audience,
        prober=prober,
        answering=own_answers(ingredients, "ppo" if prober is None else prober.stage),
    )
    host = None
    if models.anchor is not None and review is not None:
        host = LoopHost(learner, models.anchor, review, orders, parts.collector, state, checkpoints, showcase)
        state.add("review", review)
    requests = RequestStore(parts.collector.store.database, run.key)
    owner = Owner(requests, learner, parts.collector, state, showcase, host)
    # Files come last: nothing is cut from them before everything else has been put back.
    state.add("owner", owner)
    state.add("audience", audience)
    state.add("files", journal.tracker)
    return OnlineLoop(
        config=config,
        learner=learner,
        collector=parts.collector,
        refresher=refresher,
        triggers=RefreshTriggers(
            config.refresh.every_rounds, config.refresh.kl_since, config.refresh.on_plateau, config.refresh.freeze,
            config.refresh.on_miscalibration,
        ),
        ledger=ledger,
        orders=orders,
        host=host,
        owner=owner,
        state=state,
        checkpoints=checkpoints,
        journal=journal,
        showcase=showcase,
        audience=audience,
        stop_requested=stop_requested,
    )  # fmt: skip


@dataclass(frozen=True)
class RunKind:
    """What kind of work a run directory holds. `name` is what its manifest says; the online loop has no such word.

    `more` says what to do with one that has finished.
    """

    name: str
    assemble: Callable[..., AbstractContextManager[Any]]
    check: Callable[[Ingredients], None] = check_server
    notes: Callable[[Ingredients, bool, RoundsDone], list[str]] = notes  # an ensemble may be given
    needs_ensemble: bool = True
    more: str = "`holdfast export {run} DIRECTORY` takes its policy."


ONLINE: RunKind = RunKind("", assemble, more="`holdfast resume {run} --rounds N` goes on to N rounds in all.")
