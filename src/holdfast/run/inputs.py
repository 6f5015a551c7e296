"""What a run needs, loaded and checked against each other before the first byte is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.config import Config
from holdfast.data.fit import Room
from holdfast.data.formats import read_preferences
from holdfast.data.left_out import RowsLeftOut
from holdfast.errors import HoldfastError
from holdfast.grammar.form import structured_outputs
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec
from holdfast.models.lora import adapted, lora_of
from holdfast.models.policy import Policy
from holdfast.models.prompt import plain_text
from holdfast.models.tiny import TinyShape, piece_tokenizer, tiny_llama, word_tokenizer
from holdfast.parallel.cores import CORES, available, keep_freed_memory
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.database import check_url
from holdfast.randomness import derive_seed
from holdfast.reward.classifier import Classifier
from holdfast.reward.scores import AdjustableSource
from holdfast.reward.sources.opening import open_source
from holdfast.rollout.served import structured
from holdfast.rollout.vllm_api import VLLMServer
from holdfast.run.origin import load_policy
from holdfast.run.rates import ChosenRates, with_rates
from holdfast.track.sinks import check_sinks
from holdfast.worlds.flaws import Flaw
from holdfast.worlds.limits import within_limits
from holdfast.worlds.protocol import Task
from holdfast.worlds.registry import load_flaw

# Below this many parameters an operation is too short to be split over the cores; whole pieces of work are, instead.
SMALL_MODEL = 50_000_000


@dataclass(frozen=True)
class Ingredients:
    """Everything a run needs, in memory and checked against each other."""

    config: Config
    task: Task
    lm: Any
    codec: Codec
    imported: Sequence[LabelledComparison]
    threads: int = 1
    flaw: Flaw | None = None
    fresh: bool = False  # the built-in model before it has learnt anything
    chosen: ChosenRates = field(default_factory=ChosenRates)  # the config has them
    source: AdjustableSource | None = None  # what scores, where that is no ensemble; process 0 has it
    classifier: Classifier | None = None  # the published model that is the ensemble's one member
    grammars: Grammars | None = None  # what answers may be

    @property
    def given(self) -> bool:
        """Whether the reward is given, and no ensemble."""
        return self.config.reward.given


def gather(
    config: Config,
    task: Task,
    policy_directory: Path | None = None,
    ensemble_given: bool = False,
    threads: int = 0,
    labels_stored: bool = False,
    rates: Mapping[str, float] | None = None,
) -> Ingredients:
    """Load model and data and refuse what cannot work; writes nothing.

    With `labels_stored` the given preferences are in the run's store already, and are not read again. `rates` are those
    that were chosen for the run when it was made.
    """
    set_up_torch(config)
    directory = policy_directory or (Path(config.policy.path) if config.policy.path else task.policy_directory)
    if directory is None:
        lm, codec = build_tiny(config, task)
    else:
        lm, codec = load_policy(directory, config.policy.dtype)
    config, chosen = with_rates(config, lm, codec, rates)
    source = config.data.preferences if not labels_stored else ""
    left_out = RowsLeftOut(config.data.skip_bad)
    read = read_preferences(source, left_out) if source else []
    task = replace(task, notes=(*task.notes, *left_out.notes), left_out=(*task.left_out, *left_out.lines))
    task, imported = within_limits(config, task, read, codec)
    threads = choose_threads(config, lm, threads)
    if not (config.reward.given or config.reward.refresh):
        check_labels(config, task, len(imported), ensemble_given)
    check_corrective(config, task)
    check_sinks(config.track.sinks)
    if config.preferences.url:
        check_url(config.preferences.url)
    check_fit(config, task, imported, Room(codec, Policy(lm, fast=False).context, config.rollout.max_new_tokens))
    grammars = grammars_of(config, task, codec)
    planted = config.flaw.name and config.flaw.where == "reward"
    flaw = load_flaw(config.flaw.name, config.run.seed, task.demonstrations) if planted else None
    lm = lm.to(config.run.device)
    if config.policy.lora_rank:
        # Once for nothing, so that layers which cannot have adapters are found before anything is written.
        adapted(lm, lora_of(config.policy), seed=0)
        lm.requires_grad_(directory is None)
    work = config.run.device, config.policy.micro_batch_tokens
    given = open_source(config.reward, config.judge, *work) if config.reward.given and PROCESSES.main else None
    member = Classifier.open(config.reward.source) if config.reward.refresh else None
    return Ingredients(
        config, task, lm, codec, imported, threads, flaw, directory is None, chosen, given, member, grammars
    )


def grammars_of(config: Config, task: Task, codec: Codec) -> Grammars | None:
    """What answers may be, by the settings or else by the world; None for anything."""
    written, room = config.rollout.grammar or task.grammar, config.rollout.max_new_tokens
    prompts = (*task.prompts, *task.heldout_prompts)
    # A server knows nothing of the room that an ending takes.
    grammars = Grammars.of(written, codec, room, prompts, task.columns, in_time=not config.vllm.url)
    for form in grammars.forms if grammars is not None and config.vllm.url else ():
        structured_outputs(form)  # or a sentence says that a server cannot be asked for it
    if grammars is not None and not config.rollout.renormalise and PROCESSES.world > 1:
        raise HoldfastError("rollout.renormalise = false is for the lab, and works in one process.")
    return grammars


def check_server(ingredients: Ingredients) -> None:
    """Where a server is to sample: it has to be there, serve one model, have room, and take weights."""
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    if config.vllm.url:
        prompts = [codec.encode_prompt(p) for p in (*task.prompts, *task.heldout_prompts)]
        for prompt in prompts:
            structured(ingredients.grammars, prompt)  # which refuses what no server has
        longest = max(map(len, prompts))
        VLLMServer(config.vllm).check(longest + config.rollout.max_new_tokens)


def set_up_torch(config: Config) -> None:
    """Device, determinism and memory."""
    try:
        # There and back: a device may exist and still hold no numbers.
        torch.zeros(1, device=config.run.device).cpu()
    except (RuntimeError, AssertionError) as error:
        raise HoldfastError(f"run.device is {config.run.device!r}, which torch cannot use here; try cpu.") from error
    keep_freed_memory()
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Nothing here reads memory it has not written, so filling fresh tensors first would only cost time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def choose_threads(config: Config, lm: Any, threads: int = 0) -> int:
    """Use `threads` cores, the configured number, or all there are; returns how many.

    A small model has each core work on rows or members of its own, a large one splits every operation. Both the number
    and the way decide how sums are rounded, so a run that is resumed takes the number it began with.
    """
    threads = threads or config.run.threads or available()
    small = sum(p.numel() for p in lm.parameters()) < SMALL_MODEL
    side_by_side = small and torch.device(config.run.device).type == "cpu"
    torch.set_num_threads(1 if side_by_side else threads)
    CORES.set_workers(threads if side_by_side else 1)
    return threads


def build_tiny(config: Config, task: Task) -> tuple[Any, Codec]:
    """The built-in policy over the words of the task's own texts."""
    texts = [plain_text(p) for p in (*task.prompts, *task.heldout_prompts)]
    texts += [text for d in task.demonstrations for text in (plain_text(d.prompt), d.response)]
    if not task.demonstrations:
        raise HoldfastError(
            f"The world {task.name} has no demonstrations to teach a fresh model with; "
            "give a trained one with --policy DIR."
        )
    if config.sft.epochs == 0:
        raise HoldfastError(
            "sft.epochs is 0, but the built-in policy knows nothing yet; train it or give --policy DIR."
        )
    p = config.policy
    tokenizer = piece_tokenizer(texts, task.pieces) if task.pieces else word_tokenizer(texts)
    shape = TinyShape(p.hidden, p.layers, p.heads, p.feed_forward, p.context)
    lm = tiny_llama(len(tokenizer), shape, derive_seed(config.run.seed, "policy"))
    return lm, Codec(tokenizer)


def check_labels(config: Config, task: Task, imported: int, ensemble_given: bool) -> None:
    available = imported + (config.reward.initial_comparisons if task.labeller else 0)
    if not ensemble_given and available < 2:
        raise HoldfastError(
            f"A reward model needs at least 2 labelled comparisons, and there are only {available}: "
            "raise reward.initial_comparisons, set data.preferences, or give a labeller with world.labeller."
        )


def check_corrective(config: Config, task: Task) -> None:
    """What is learnt from audit labels needs somebody who gives them."""
    if config.reward.corrective and task.labeller is None:
        raise HoldfastError(
            "reward.corrective learns from the answers of audits, and there is nobody to answer them: name somebody "
            "with world.labeller, or leave it out."
        )
    if config.reward.corrective and PROCESSES.world > 1:
        raise HoldfastError(
            f"reward.corrective is trained in one process, and there are {PROCESSES.world}: start one, or leave it out."
        )


def check_fit(config: Config, task: Task, imported: Sequence[LabelledComparison], room: Room) -> None:
    """Everything that the policy is to answer, imitate or be compared on has to be something that it can take."""
    for prompt in (*task.prompts, *task.heldout_prompts):
        room.check_prompt(prompt)
    for shown in task.demonstrations if config.sft.epochs else ():
        room.check_answer("demonstration", shown.prompt, shown.response)
    for item in imported:
        for response in (item.comparison.a, item.comparison.b):
            room.check_answer("labelled answer", item.comparison.prompt, response.text)
