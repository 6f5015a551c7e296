"""From a config to DPO that is ready to go: labels, reference, pairs with their reference log-probs.

Each part that has been finished is found on disk again, so a run cut short goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

from holdfast.checkpoint.files import JSON
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.models.load import load_causal_lm, save_model
from holdfast.models.policy import Policy
from holdfast.people.team import TeamLabeller
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.pair import Pair, pairs_of
from holdfast.preferences.store import PreferenceStore
from holdfast.probes.probe_set import labelled_pairs
from holdfast.randomness import generator
from holdfast.reward.replay import holdout_place
from holdfast.rollout.likelihood import answer_logprobs
from holdfast.run.answers import run_answers
from holdfast.run.build import RunKind, adopt, go_on_with, start_afresh
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.journal import Position
from holdfast.run.models import policy_on
from holdfast.run.notes import dpo_notes
from holdfast.run.observer import Audience, Observer
from holdfast.run.probes import own_answers, probe_set, prober_of
from holdfast.run.reference import imitator, take_in
from holdfast.stages.measurement import asking
from holdfast.stages.offline_dpo import OfflineDPO
from holdfast.track.progress import Progress
from holdfast.track.sinks import open_sinks
from holdfast.track.tracker import Tracker
from holdfast.train.dpo import AnswerPair
from holdfast.train.sft import imitate
from holdfast.worlds.protocol import Task

# The largest learning rate of dpo.sft_both: a little below SFT's own for the built-in model, which has had that before.
BOTH_LR = 3e-3
STAGE = "dpo"
KEPT = "reference-logprobs"


def check_ingredients(ingredients: Ingredients) -> None:
    """Refuse what DPO cannot work with, before anything is written."""
    config, task, imported = ingredients.config, ingredients.task, len(ingredients.imported)
    refuse_people("`holdfast dpo`", task)
    if task.labeller is None and imported < 2:
        raise HoldfastError(
            f"DPO needs at least 2 labelled comparisons, and there are only {imported}: "
            "set data.preferences (--preferences FILE), or give a labeller with world.labeller."
        )
    fresh = config.dpo.comparisons or config.reward.initial_comparisons
    if imported + (fresh if task.labeller else 0) < 2:
        raise HoldfastError(
            "DPO needs at least 2 labelled comparisons: raise reward.initial_comparisons or dpo.comparisons."
        )


def refuse_people(what: str, task: Task) -> None:
    """People answer a queue, and nothing serves one for what is not `holdfast run`."""
    if isinstance(task.labeller, TeamLabeller):
        raise HoldfastError(
            f"{what} cannot ask {task.labeller.name} yet: have them label in `holdfast run`, "
            "or give labels of theirs with --preferences and leave world.labeller out."
        )


@contextmanager
def assemble_dpo(
    ingredients: Ingredients,
    run: RunDirectory,
    progress: Progress,
    observers: Sequence[Observer] = (),
    stop_requested: Callable[[], bool] = lambda: False,
    agreed: Config | None = None,
) -> Iterator[OfflineDPO]:
    """Prepare what is missing and build the run, restored to its newest checkpoint.

    `agreed` are settings to become the run's own, where they are not.
    """
    config, codec = ingredients.config, ingredients.codec
    resuming = not CheckpointStore(run.checkpoints).is_empty()
    with ExitStack() as open_files:
        store = open_files.enter_context(run.open_store(config))
        sinks = open_sinks(config.track.sinks, run.path, run.name)
        tracker = open_files.enter_context(closing(Tracker(run.path, sinks)))
        audience = open_files.enter_context(closing(Audience(observers)))
        if resuming:
            store.database.check_pages()
        else:
            adopt(run, agreed, progress)
            start_afresh(tracker, audience, keep_probes=False)
        kept = CheckpointStore(run.path / "kept")
        labelled, watermark = labels_of(ingredients, run, store, kept, progress)
        train, held_out = apart(labelled, config.reward.holdout)
        reference_lm = prepare_start(ingredients, run, pairs_of(codec, train), tracker, progress)
        checkpoints = CheckpointStore(run.checkpoints, config.checkpoint.keep, run.seal())
        reference = Policy(reference_lm, fast=config.policy.fast)
        pairs, measured = with_reference(ingredients, reference, (train, held_out), kept, watermark)
        policy = policy_on(config, reference_lm)
        probes = probe_set(config, run, codec, policy.context, labelled_pairs(train))
        dpo = OfflineDPO(
            config=config,
            answers=run_answers(ingredients, policy, Position()),
            reference=reference,
            pairs=pairs,
            held_out=measured,
            heldout_prompts=ingredients.task.heldout_prompts,
            tracker=tracker,
            checkpoints=checkpoints,
            progress=progress,
            prober=prober_of(config, run, codec, tracker, STAGE, probes),
            answering=own_answers(ingredients, STAGE),
            audience=audience,
            stop_requested=stop_requested,
        )
        if resuming:
            loaded = checkpoints.load_newest()
            dpo.restore(loaded.snapshot)
            for sentence in loaded.skipped:
                dpo.event("checkpoint_skipped", reason=sentence)
            dpo.event("resumed", checkpoint=loaded.name)
            if go_on_with(run, agreed, checkpoints, loaded, progress, dpo.event):
                dpo.commit_now()
        yield dpo


def labels_of(
    ingredients: Ingredients, run: RunDirectory, store: PreferenceStore, kept: CheckpointStore, progress: Progress
) -> tuple[list[LabelledComparison], int]:
    """The clear-cut labels that the run learns from: always the same ones, whatever comes into the store later."""
    config = ingredients.config
    if KEPT in kept.names():
        document: Any = kept.load(KEPT).documents["pairs"]
        watermark, count = int(document["watermark"]), int(document["newest"])
        return newest(clear_cut(store.labelled(watermark=watermark)), count, store, watermark), watermark
    if ingredients.imported:
        store.add_comparisons([item.comparison for item in ingredients.imported])
        store.add_labels([label for item in ingredients.imported for label in item.labels])
    # Labels of the probes alone are not enough to learn from.
    has_labels = any(item.comparison.purpose != "probe" for item in store.each_labelled())
    wanted = config.dpo.comparisons or (0 if has_labels else config.reward.initial_comparisons)
    if wanted and ingredients.task.labeller is not None:
        progress.begin("first comparisons", 1)
        _collect(ingredients, run, store, wanted)
        progress.advance()
    watermark = store.watermark()
    labelled = newest(clear_cut(store.labelled(watermark=watermark)), config.dpo.newest, store, watermark)
    if len([item for item in labelled if holdout_place(item.comparison.id) >= config.reward.holdout]) < 2:
        raise HoldfastError("DPO needs at least 2 comparisons with a clear label to train on; label more.")
    return labelled, watermark


def _collect(ingredients: Ingredients, run: RunDirectory, store: PreferenceStore, wanted: int) -> None:
    """Have pairs of the starting policy's own answers labelled."""
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    policy = Policy(ingredients.lm, fast=config.policy.fast)
    answers = run_answers(ingredients, policy, Position())
    asking(config, task, codec, store, run.key).collect_initial(wanted, policy, answers.sample)


def clear_cut(labelled: Sequence[LabelledComparison]) -> list[LabelledComparison]:
    """Those that people have decided, with two different answers; what was asked again counts once.

    What measured an earlier stage of a pipeline goes on measuring, and trains nothing.
    """
    return [
        item
        for item in labelled
        if item.share_a != 0.5
        and item.comparison.purpose not in ("repeat", "measure")
        and (item.comparison.a.text, item.comparison.a.token_ids)
        != (item.comparison.b.text, item.comparison.b.token_ids)
    ]


def newest(
    labelled: list[LabelledComparison], count: int, store: PreferenceStore, watermark: int
) -> list[LabelledComparison]:
    """The `count` that were answered last, in their order; all of them for 0."""
    if not count or count >= len(labelled):
        return labelled
    place: dict[str, int] = {}
    after = 0
    while page := store.first_answers(after, watermark):
        place |= {row.comparison_id: row.seq for row in page if row.opens}
        after = page[-1].seq
    last = sorted(labelled, key=lambda item: place[item.comparison.id])[-count:]
    kept = {item.comparison.id for item in last}
    return [item for item in labelled if item.comparison.id in kept]


def apart(
    labelled: Sequence[LabelledComparison], share: float
) -> tuple[list[LabelledComparison], list[LabelledComparison]]:
    """Labels to learn from, and held-out ones; the id decides alone, as for the reward ensemble."""
    parts: tuple[list[LabelledComparison], list[LabelledComparison]] = ([], [])
    for item in labelled:
        parts[holdout_place(item.comparison.id) < share].append(item)
    return parts


def prepare_start(
    ingredients: Ingredients, run: RunDirectory, pairs: Sequence[Pair], tracker: Tracker, progress: Progress
) -> Any:
    """The policy that DPO starts from and holds on to, fine-tuned on both answers of every pair if so configured."""
    config, codec, lm = ingredients.config, ingredients.codec, ingredients.lm
    if run.reference.is_dir():
        run.keep_reference_sealed()
        return load_causal_lm(run.reference, config.policy.dtype)[0].to(config.run.device)
    if config.dpo.sft_both:
        policy = imitator(ingredients)
        loss = imitate(
            policy,
            [pair.prompt for pair in pairs for _ in range(2)],
            [answer for pair in pairs for answer in (pair.a, pair.b)],
            replace(config.sft, epochs=config.dpo.sft_both, lr=min(BOTH_LR, config.sft.lr)),
            codec.pad_id,
            config.policy.micro_batch_tokens,
            generator(config.run.seed, "sft both"),
            progress,
        )
        take_in(ingredients, policy)
        tracker.event(0, 0, "sft_finished", loss=loss, demonstrations=2 * len(pairs))
    save_model(run.reference, lm, codec)
    run.seal_reference()
    return lm


def with_reference(
    ingredients: Ingredients,
    reference: Policy,
    parts: tuple[Sequence[LabelledComparison], Sequence[LabelledComparison]],
    kept: CheckpointStore,
    watermark: int,
) -> tuple[list[AnswerPair], list[AnswerPair]]:
    """The pairs with their log-probs under the reference, which are computed once and kept."""
    config = ingredients.config
    train, held_out = (sided(ingredients, part) for part in parts)
    everything = [*train, *held_out]
    content = [[p.prompt, p.chosen, p.rejected, p.share] for p in everything]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    if KEPT in kept.names():
        snapshot = kept.load(KEPT)
        document: Any = snapshot.documents["pairs"]
        if document["digest"] != digest:
            raise HoldfastError(
                "The label store no longer holds the comparisons that this run began with; "
                "bring back the database that belongs to it."
            )
        chosen, rejected = snapshot.tensors["logprobs"]["chosen"], snapshot.tensors["logprobs"]["rejected"]
    else:
        prompts = [p.prompt for p in everything]
        limits = ingredients.codec.pad_id, config.policy.micro_batch_tokens
        under = [p.grammar for p in everything]
        chosen = answer_logprobs(reference, prompts, [p.chosen for p in everything], *limits, grammars=under)
        rejected = answer_logprobs(reference, prompts, [p.rejected for p in everything], *limits, grammars=under)
        pairs: dict[str, JSON] = {
            "watermark": watermark, "newest": config.dpo.newest, "digest": digest, "pairs": len(everything),
        }  # fmt: skip
        kept.save(KEPT, Snapshot({"logprobs": {"chosen": chosen, "rejected": rejected}}, {"pairs": pairs}))
    done = [
        replace(pair, reference_chosen=c, reference_rejected=r)
        for pair, c, r in zip(everything, chosen.tolist(), rejected.tolist(), strict=True)
    ]
    return done[: len(train)], done[len(train) :]


def sided(ingredients: Ingredients, labelled: Sequence[LabelledComparison]) -> list[AnswerPair]:
    """Comparisons as tokens, the preferred side as chosen, with the grammar that log-probs are taken under."""
    pairs = []
    grammars = ingredients.grammars if ingredients.config.rollout.renormalise else None
    for pair in pairs_of(ingredients.codec, labelled):
        first = pair.share_a > 0.5
        chosen, rejected = (pair.a, pair.b) if first else (pair.b, pair.a)
        grammar = None if grammars is None else grammars.of_prompt(pair.prompt)
        share = max(pair.share_a, 1.0 - pair.share_a)
        pairs.append(AnswerPair(pair.prompt, chosen, rejected, 0.0, 0.0, share, grammar))
    return pairs


DPO = RunKind("dpo", assemble_dpo, check_ingredients, dpo_notes, needs_ensemble=False)
