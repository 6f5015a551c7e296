"""A whole config: all sections, and the rules between settings of different sections."""

from __future__ import annotations

from dataclasses import field

from holdfast.config import schema
from holdfast.config.reward_source import kind_of, parts_of
from holdfast.config.section import Section, section, settings_of
from holdfast.errors import HoldfastError


@section
class Config(Section):
    """A whole run."""

    run: schema.RunConfig = field(default_factory=schema.RunConfig)
    world: schema.WorldConfig = field(default_factory=schema.WorldConfig)
    data: schema.DataConfig = field(default_factory=schema.DataConfig)
    policy: schema.PolicyConfig = field(default_factory=schema.PolicyConfig)
    sft: schema.SFTConfig = field(default_factory=schema.SFTConfig)
    rollout: schema.RolloutConfig = field(default_factory=schema.RolloutConfig)
    vllm: schema.VLLMConfig = field(default_factory=schema.VLLMConfig)
    reward: schema.RewardConfig = field(default_factory=schema.RewardConfig)
    refresh: schema.RefreshConfig = field(default_factory=schema.RefreshConfig)
    gate: schema.GateConfig = field(default_factory=schema.GateConfig)
    guard: schema.GuardConfig = field(default_factory=schema.GuardConfig)
    audit: schema.AuditConfig = field(default_factory=schema.AuditConfig)
    flaw: schema.FlawConfig = field(default_factory=schema.FlawConfig)
    preferences: schema.PreferencesConfig = field(default_factory=schema.PreferencesConfig)
    labels: schema.LabelsConfig = field(default_factory=schema.LabelsConfig)
    people: schema.PeopleConfig = field(default_factory=schema.PeopleConfig)
    judge: schema.JudgeConfig = field(default_factory=schema.JudgeConfig)
    ppo: schema.PPOConfig = field(default_factory=schema.PPOConfig)
    dpo: schema.DPOConfig = field(default_factory=schema.DPOConfig)
    bestofn: schema.BestOfNConfig = field(default_factory=schema.BestOfNConfig)
    pipeline: schema.PipelineConfig = field(default_factory=schema.PipelineConfig)
    probes: schema.ProbesConfig = field(default_factory=schema.ProbesConfig)
    kl: schema.KLConfig = field(default_factory=schema.KLConfig)
    checkpoint: schema.CheckpointConfig = field(default_factory=schema.CheckpointConfig)
    processes: schema.ProcessesConfig = field(default_factory=schema.ProcessesConfig)
    track: schema.TrackConfig = field(default_factory=schema.TrackConfig)

    def __post_init__(self) -> None:
        for rules in (_policy, _learning, _reward, _source, _given, _kl, _surroundings):
            rules(self)


# Tags that a labelling page has room for.
MOST_REASONS = 12
LONGEST_REASON = 40


def _is_tag(text: str) -> bool:
    return 0 < len(text.strip()) == len(text) <= LONGEST_REASON and text.isprintable()


def _policy(c: Config) -> None:
    if c.policy.hidden % c.policy.heads:
        raise HoldfastError(
            f"policy.hidden is {c.policy.hidden}, which does not divide by policy.heads = {c.policy.heads}."
        )
    if c.policy.hidden // c.policy.heads % 2:
        raise HoldfastError(
            f"policy.hidden / policy.heads is {c.policy.hidden // c.policy.heads}; "
            "rotary positions need an even number."
        )
    if c.policy.dtype == "bfloat16" and not c.policy.lora_rank:
        raise HoldfastError(
            "policy.dtype = bfloat16 rounds small updates of the weights away: set policy.lora_rank, whose adapters "
            "are kept in float32, or take float32."
        )
    if c.policy.lora_rank and c.processes.strategy == "fsdp2":
        raise HoldfastError(
            "policy.lora_rank has one copy of the weights for all models, which processes.strategy = fsdp2 cannot deal "
            "out: set it to data."
        )
    if c.policy.lora_rank and c.vllm.url:
        raise HoldfastError("A vLLM server is not given adapters yet: leave vllm.url out or set policy.lora_rank to 0.")
    if c.policy.lora_targets and not c.policy.lora_rank:
        raise HoldfastError("policy.lora_targets is only read with policy.lora_rank above 0; set that or leave it out.")


def _learning(c: Config) -> None:
    if c.ppo.advantage != "gae" and c.ppo.samples_per_prompt < 2:
        raise HoldfastError(
            f"ppo.advantage = {c.ppo.advantage} compares answers to one prompt: "
            "set ppo.samples_per_prompt to 2 or more."
        )
    if c.run.optimiser == "dpo" and c.ppo.samples_per_prompt < 2:
        raise HoldfastError(
            "run.optimiser = dpo pairs the best and the worst answer to a prompt: "
            "set ppo.samples_per_prompt to 2 or more."
        )
    if c.run.optimiser == "dpo":
        # DPO's loss holds the policy near the reference by itself: beta is in it, for whole answers.
        unread = {
            "kl.placement": c.kl.placement != schema.KLConfig().placement,
            "kl.estimator": c.kl.estimator != schema.KLConfig().estimator,
            "ppo.epoch_kl_stop": c.ppo.epoch_kl_stop != schema.PPOConfig().epoch_kl_stop,
            "ppo.gradient_penalty": c.ppo.gradient_penalty != schema.PPOConfig().gradient_penalty,
            "ppo.loss": c.ppo.loss != schema.PPOConfig().loss,
            "ppo.clip_high": c.ppo.clip_high != schema.PPOConfig().clip_high,
            "ppo.advantage_offset": c.ppo.advantage_offset != schema.PPOConfig().advantage_offset,
        }
        for name in (name for name, changed in unread.items() if changed):
            raise HoldfastError(f"{name} is not read with run.optimiser = dpo; leave it out.")
    if 0 < c.ppo.clip_high < c.ppo.clip:
        raise HoldfastError(
            f"ppo.clip_high is {c.ppo.clip_high}, below ppo.clip = {c.ppo.clip}: the upper bound of the ratio is the "
            "wider one; set it higher, or to 0 for the same."
        )
    if c.ppo.minibatches > c.ppo.batch * c.ppo.samples_per_prompt:
        raise HoldfastError(
            f"ppo.minibatches is {c.ppo.minibatches}, "
            f"more than the {c.ppo.batch * c.ppo.samples_per_prompt} answers of a step."
        )


def _reward(c: Config) -> None:
    if c.reward.aggregation == "averaged" and c.processes.strategy == "fsdp2":
        raise HoldfastError(
            "reward.aggregation = averaged takes the mean of whole weights, which processes.strategy = fsdp2 deals "
            "out: set it to data, or take another aggregation."
        )
    if c.refresh.weights == "importance" and c.processes.strategy == "fsdp2":
        raise HoldfastError(
            "refresh.weights = importance asks the whole policy how likely it finds answers, which processes.strategy "
            "= fsdp2 deals out: set it to data, or refresh.weights to equal."
        )
    if c.refresh.weights == "importance" and (c.preferences.per_round or c.guard.mode != "off"):
        raise HoldfastError(
            "refresh.weights = importance weighs labels on the reference's answers, and the run would ask about later "
            "policies' answers too: set preferences.per_round to 0 and guard.mode to off, or refresh.weights to equal."
        )


def _source(c: Config) -> None:
    parts = parts_of(c.reward.parts)
    if c.reward.source and parts:
        raise HoldfastError("reward.source and reward.parts are both set; name all sources in reward.parts.")
    specs = {f"reward.parts.{part.name}.source": part.source for part in parts}
    specs |= {"reward.source": c.reward.source} if c.reward.source else {}
    kinds = {setting: kind_of(spec, setting) for setting, spec in specs.items()}
    if c.reward.refresh and kinds.get("reward.source") != "model":
        raise HoldfastError(
            "reward.refresh is for reward.source = model:DIR, which learns from new labels; leave it out, since "
            + ("the ensemble is refreshed in any case." if not kinds else "nothing else can.")
        )
    for setting, kind in kinds.items():
        if kind in ("judge", "rubric"):
            _judge(c, f"{setting} = {specs[setting]}")
    if "judge" not in kinds.values():
        for name, changed in (("mode", c.judge.mode != "score"), ("opponents", c.judge.opponents != 0)):
            if changed:
                raise HoldfastError(f"judge.{name} is only read with reward.source = judge; set that or leave it out.")
    elif c.judge.opponents and c.judge.mode != "pairwise":
        raise HoldfastError("judge.opponents is only read with judge.mode = pairwise; set that or leave it out.")


def _judge(c: Config, who: str) -> None:
    """A judge has an address and a name."""
    if not c.judge.url.startswith(("http://", "https://")):
        raise HoldfastError(f"{who} needs judge.url, such as http://127.0.0.1:8000/v1.")
    if not c.judge.model:
        raise HoldfastError(f"{who} needs judge.model, the model's name there.")


# What is about the ensemble alone, by section; of a section without names all of it.
ENSEMBLE_ALONE: dict[str, tuple[str, ...]] = {
    "reward": (
        "members", "pooling", "aggregation", "initial_comparisons", "holdout", "epochs", "lr", "warmup_steps", "batch",
        "label_smoothing", "shaping",
    ),
    "refresh": (),
    "gate": (),
    "preferences": ("per_round", "selection"),
}  # fmt: skip
# What is about a reward that is given alone.
GIVEN_ALONE = ("timeout_seconds", "parallel", "unscored_limit", "corrective")
# What is about a corrective as well, where there is one.
CORRECTIVE = ("pooling", "epochs", "lr", "warmup_steps", "batch", "label_smoothing")
# What is about members that are made from the policy: a model that is refreshed comes as it is.
MADE_ALONE = ("members", "pooling", "aggregation", "initial_comparisons", "epochs", "lr", "warmup_steps")


def _given(c: Config) -> None:
    """A reward is given or is an ensemble, and what is set for the other one is not read."""
    if (c.reward.given or c.reward.refresh) and c.flaw.name and c.flaw.where == "reward":
        raise HoldfastError(
            "flaw.where = reward is planted in the ensemble's members, and reward.source takes their place: put the "
            "flaw into the source itself, or set flaw.where to labels."
        )
    usual = Config() if c.reward.given else None
    if usual is None:
        standard = schema.RewardConfig()
        for name in (*GIVEN_ALONE, *(MADE_ALONE if c.reward.refresh else ())):
            if getattr(c.reward, name) != getattr(standard, name):
                only = "a reward that is trained from the policy" if name in MADE_ALONE else "one that stands still"
                raise HoldfastError(f"reward.{name} is not read here: it is about {only}; leave it out.")
        return
    if c.reward.corrective and c.guard.mode != "act":
        raise HoldfastError(
            "reward.corrective is something that the guard does about hacking: set guard.mode to act, or leave it out."
        )
    for section_name, names in ENSEMBLE_ALONE.items():
        own, standard_section = getattr(c, section_name), getattr(usual, section_name)
        for name in names or settings_of(type(own)):
            if section_name == "reward" and c.reward.corrective and name in CORRECTIVE:
                continue
            value = getattr(own, name)
            if value != getattr(standard_section, name) and not (name == "per_round" and value == 0):
                raise HoldfastError(
                    f"{section_name}.{name} is about the ensemble, which a run with reward.source or reward.parts does "
                    "not have; leave it out."
                )


def _kl(c: Config) -> None:
    if c.kl.controller != "fixed" and c.kl.beta <= 0:
        raise HoldfastError(f"kl.beta is 0 and kl.controller = {c.kl.controller} multiplies it: start above 0.")
    if c.kl.controller == "budget" and c.kl.budget_ceiling < c.kl.budget_start:
        raise HoldfastError("kl.budget_ceiling is below kl.budget_start: raise the one or lower the other.")
    if -1 < c.kl.hard_limit < 0:
        raise HoldfastError(
            f"kl.hard_limit is {c.kl.hard_limit:g}: give nats per answer above 0, 0 for none, or -1 for twice the "
            "present target."
        )
    if c.kl.placement == "loss" and c.kl.estimator == "k1":
        # E[grad log pi] = 0: as a loss, k1 holds nothing back.
        raise HoldfastError(
            "kl.placement = loss with kl.estimator = k1 has no gradient on average; set kl.estimator to k2 or k3."
        )


def _surroundings(c: Config) -> None:
    for name, (least, most) in (("prompt_length", c.data.prompt_length), ("answer_length", c.data.answer_length)):
        if min(least, most) < 0 or 0 < most < least:
            raise HoldfastError(
                f"data.{name} is [{least}, {most}]; write [least, most] with the least first, and 0 for no limit."
            )
    if c.vllm.url and c.processes.strategy == "fsdp2":
        raise HoldfastError(
            "A vLLM server is given the policy's whole weights by one process, which with processes.strategy = fsdp2 "
            "has a share of them: set it to data, or leave vllm.url out."
        )
    if c.checkpoint.keep == 1:
        raise HoldfastError(
            "checkpoint.keep is 1, but it has to be at least 2, or 0 for as many as there is room for: a damaged "
            "checkpoint leaves the one before it to go on from."
        )
    one = c.reward.members < 2 or c.reward.aggregation == "averaged" or c.reward.refresh
    if c.preferences.selection == "disagreement" and c.preferences.per_round and one:
        raise HoldfastError(
            "preferences.selection = disagreement needs reward.members of 2 or more, not averaged into one; one member "
            "never disagrees."
        )
    if c.world.labeller in ("judge", "people+judge"):
        _judge(c, f"world.labeller = {c.world.labeller}")
    if c.vllm.url and not c.vllm.url.startswith(("http://", "https://")):
        raise HoldfastError(f"vllm.url is {c.vllm.url!r}; write it like http://127.0.0.1:8000.")
    if any(first < 1 or last < first for first, last in c.refresh.freeze):
        raise HoldfastError(
            "refresh.freeze has a span that ends before it begins; write spans as [first, last] rounds."
        )
    tags = c.people.reasons
    if len(tags) > MOST_REASONS or len(set(tags)) < len(tags) or not all(_is_tag(tag) for tag in tags):
        raise HoldfastError(
            f"people.reasons has to be a list of up to {MOST_REASONS} different tags of 1 to {LONGEST_REASON} visible "
            "characters."
        )
    for sink in c.track.sinks:
        if sink not in ("tensorboard", "wandb", "trackio"):
            raise HoldfastError(f"track.sinks names {sink!r}; the sinks are tensorboard, wandb and trackio.")
    if len(set(c.track.sinks)) != len(c.track.sinks):
        raise HoldfastError("track.sinks names a sink twice; name each once.")
