"""Every setting of a run, with its meaning, its default and its limits. `holdfast init` writes this as TOML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.config.policy import PolicyConfig
from holdfast.config.processes import ProcessesConfig
from holdfast.config.setting import setting
from holdfast.config.vllm import VLLMConfig


@dataclass(frozen=True)
class RunConfig:
    """The run itself."""

    seed: int = setting(0, "every random draw of the run follows from this number", low=0)
    rounds: int = setting(8, "rounds of collect, label, refresh, optimise", low=1)
    steps_per_round: int = setting(6, "PPO steps in a round", low=1)
    average: int = setting(4, "the run ends with the mean of so many last policies, at most of half its rounds", low=1)
    optimiser: Literal["ppo", "dpo"] = setting(
        "ppo", "what moves the policy: PPO, or DPO on fresh pairs of its own answers that the ensemble judges"
    )
    device: str = setting("cpu", "cpu, cuda, or any other torch device")
    threads: int = setting(0, "CPU cores to use; 0 takes all there are", low=0)


@dataclass(frozen=True)
class WorldConfig:
    """The task: prompts, demonstrations and whoever answers comparisons."""

    name: str = setting(
        "concierge", "concierge or everyday (built in), files (your own data), or path/to/file.py:Class"
    )
    options: dict[str, Any] = setting({}, "keyword arguments for the world's class")
    labeller: str = setting(
        "", "who answers instead of the world's own labeller: people, judge, people+judge, or path/to/file.py:Class"
    )
    label_noise: float = setting(
        0.1, "share of answers that a simulated labeller gets wrong by chance", low=0.0, high=1.0
    )
    label_temperature: float = setting(0.1, "how much close calls blur for a simulated labeller", low=0.0)
    length_bias: float = setting(0.0, "how much a simulated labeller likes each word, in gold units")


@dataclass(frozen=True)
class DataConfig:
    """Your own data: .jsonl, .parquet, a directory that datasets saved or hub:owner/name; prompts also .txt."""

    prompts: str = setting("", "prompts to train on, one `prompt` each")
    heldout_prompts: str = setting("", "prompts for samples and measurement; empty holds out a share of the prompts")
    heldout_share: float = setting(0.1, "share of the prompts held out, by their hash", low=0.0, high=0.5)
    demonstrations: str = setting("", "`prompt` and `completion` pairs for supervised fine-tuning")
    preferences: str = setting("", "`prompt`, `chosen`, `rejected` rows that join the label store at the start")
    length_unit: Literal["characters", "tokens"] = setting("characters", "what the four limits below count")
    min_prompt: int = setting(0, "shorter prompts are left out, with their answers", low=0)
    max_prompt: int = setting(0, "longer prompts are left out, with their answers; 0 for no limit", low=0)
    min_answer: int = setting(0, "demonstrations and pairs with a shorter answer are left out", low=0)
    max_answer: int = setting(0, "demonstrations and pairs with a longer answer are left out; 0 for no limit", low=0)


@dataclass(frozen=True)
class SFTConfig:
    """Supervised fine-tuning on demonstrations; the result is the reference."""

    epochs: int = setting(2, "passes over the demonstrations; 0 takes the policy as it is", low=0)
    lr: float = setting(4e-3, "peak learning rate; linear warm-up, then linear decay", above=0.0)
    warmup_steps: int = setting(30, "updates until the peak", low=0)
    batch: int = setting(16, "demonstrations per update", low=1)
    max_grad_norm: float = setting(1.0, "gradient norm is clipped to this", above=0.0)


@dataclass(frozen=True)
class RolloutConfig:
    """How answers are sampled."""

    max_new_tokens: int = setting(64, "longest answer, in tokens", low=1)
    temperature: float = setting(1.0, "sampling temperature", above=0.0)
    top_p: float = setting(1.0, "keep the smallest set of tokens with this much probability", above=0.0, high=1.0)
    top_k: int = setting(0, "keep the k likeliest tokens; 0 keeps all", low=0)
    max_batch: int = setting(256, "rows decoded at once", low=1)


@dataclass(frozen=True)
class RewardConfig:
    """The reward ensemble and how its scores become one reward."""

    members: int = setting(3, "reward models in the ensemble", low=1)
    pooling: Literal["last", "mean"] = setting(
        "mean", "what a member's head reads: the state of the answer's last token, or the mean over its tokens"
    )
    aggregation: Literal["mean", "median", "worst", "uncertainty", "agreement"] = setting(
        "uncertainty", "mean, median, worst case, mean minus lambda times variance, or only what all agree on"
    )
    uncertainty_lambda: float = setting(0.1, "lambda of aggregation = uncertainty", low=0.0)
    initial_comparisons: int = setting(2000, "comparisons of the reference's answers to label at the start", low=0)
    holdout: float = setting(0.1, "share of comparisons that never train, for measuring", low=0.0, high=0.5)
    epochs: int = setting(2, "passes over the labels for version 1", low=1)
    lr: float = setting(1e-3, "peak learning rate for version 1", above=0.0)
    warmup_steps: int = setting(10, "updates until the peak", low=0)
    batch: int = setting(16, "comparisons per update", low=1)
    bootstrap: Literal["none", "subsample", "replace"] = setting(
        "subsample", "labels a member sees: all, its own four fifths, or a sample with replacement"
    )
    halves: bool = setting(
        False, "train one more model on half of the labels, which the members then do not see, to compare them with"
    )
    margin: float = setting(0.0, "Bradley-Terry margin", low=0.0)
    label_smoothing: float = setting(0.1, "share of labels assumed wrong by the loss", low=0.0, high=0.49)
    centring: float = setting(0.01, "weight of the squared sum of a pair's scores", low=0.0)
    max_grad_norm: float = setting(1.0, "gradient norm is clipped to this", above=0.0)
    standardise_samples: int = setting(128, "reference answers on which members are standardised", low=8)
    shaping: Literal["none", "sigmoid"] = setting(
        "none", "sigmoid: the reward is sigmoid(score - score of a reference answer to the prompt), bounded"
    )
    length_penalty: float = setting(0.0, "taken off for each response token", low=0.0)
    unfinished_penalty: float = setting(1.0, "taken off an answer that does not end", low=0.0)


@dataclass(frozen=True)
class RefreshConfig:
    """When and how the ensemble is fine-tuned on new labels."""

    every_rounds: int = setting(1, "refresh every N rounds; 0 never for this reason", low=0)
    kl_since: float = setting(0.0, "refresh after this much KL since the last one; 0 never for this reason", low=0.0)
    on_plateau: bool = setting(False, "refresh when the reward has stopped rising")
    on_miscalibration: bool = setting(True, "refresh when an audit finds the ensemble's claims wrong")
    freeze: tuple[tuple[int, int], ...] = setting((), "spans of rounds [from, to] in which nothing is refreshed")
    comparisons: int = setting(500, "what it trains on: all new comparisons, and older ones up to this many", low=0)
    epochs: int = setting(1, "passes over them", low=1)
    lr: float = setting(5e-4, "peak learning rate of a refresh", above=0.0)
    warmup_steps: int = setting(5, "updates until the peak", low=0)
    old_per_new: float = setting(0.5, "older ones for each new one at the least, over all policy generations", low=0.0)


@dataclass(frozen=True)
class GateConfig:
    """The test that a refreshed ensemble has to pass before it is used."""

    use: bool = setting(True, "test every refresh; false takes each one as it comes")
    tolerance: float = setting(
        0.05, "accuracy that may be lost on held-out labels of an earlier policy generation", low=0.0, high=0.5
    )
    level: float = setting(0.1, "error level of the gate's tests", above=0.0, high=0.5)
    repeats: int = setting(
        60, "easy comparisons a round that are asked again, to see whether people answer as they did", low=0
    )
    failed: Literal["keep", "join"] = setting(
        "keep",
        "where a version fails: the old one stays, or one of its members that passes replaces its predecessor",
    )


@dataclass(frozen=True)
class GuardConfig:
    """Watching whether the reward still means anything, and what is done where it does not."""

    mode: Literal["act", "advise", "off"] = setting("act", "act on verdicts, only say what it would do, or do not look")
    suspicion: float = setting(
        0.01, "combined p-value of the signals below which a round is suspicious and buys more audit labels",
        above=0.0, high=1.0,
    )  # fmt: skip
    false_alarm: float = setting(
        0.05,
        "probability that a run is ever called hacking in which people like the policy and the claims hold",
        above=0.0,
        high=0.5,
    )
    baseline_batches: int = setting(8, "batches of reference answers that the signals' baselines begin with", low=4)
    window: int = setting(40, "steps of healthy rounds that a baseline remembers", low=4)
    beta_factor: float = setting(1.5, "a rung of the ladder multiplies beta by this", low=1.0)
    budget_factor: float = setting(0.7, "a rung of the ladder multiplies the KL target by this", above=0.0, high=1.0)
    more_labels: float = setting(2.0, "a rung of the ladder multiplies a round's comparisons by this", low=1.0)
    rollbacks: int = setting(3, "rollbacks in a run; the next one stops the run and asks", low=0)


@dataclass(frozen=True)
class AuditConfig:
    """Fresh comparisons that people answer to measure the reward, before they may train it."""

    pairs: int = setting(
        24,
        "comparisons a round against the reference, as many against the last good policy, and as many pointed ones",
        low=0,
    )
    suspicious_pairs: int = setting(
        72,
        "comparisons of each of the latter two kinds in a suspicious round, and in the last one; twice as many where "
        "the reward has judged an earlier round already; this number again where the answers leave it open; twice "
        "those of the last round again before a run ends with an earlier policy",
        low=0,
    )
    pointed: Literal["claims", "moved"] = setting(
        "claims",
        "which pairs against the last good policy are pointed: where the ensemble is surest of the policy, or where "
        "the policy has moved furthest",
    )
    budget: int = setting(2400, "audit labels in the whole run", low=0)


@dataclass(frozen=True)
class FlawConfig:
    """A flaw put into the reward or the labels on purpose, to see what becomes of it. For the lab."""

    name: str = setting(
        "", "verbosity, rare_tokens, repetition, prompt_echo, early_stopping, keywords, or path/to/file.py:Class"
    )
    where: Literal["reward", "labels"] = setting("reward", "planted in every reward member, or a taste of the labeller")
    weight: float = setting(
        0.5, "how much it counts: log-odds of a reward member, or gold units of the labeller", low=0.0
    )
    onset: int = setting(3, "the first round in which a flaw of the reward counts", low=1)


@dataclass(frozen=True)
class PreferencesConfig:
    """Comparisons and labels."""

    url: str = setting("", "database URL; empty keeps run.db in the run directory")
    per_round: int = setting(100, "comparisons to label in a round", low=0)
    selection: Literal["random", "disagreement"] = setting("random", "which candidate pairs are labelled")
    candidates: int = setting(2, "candidate pairs sampled for each one labelled, for selection = disagreement", low=1)


@dataclass(frozen=True)
class PeopleConfig:
    """People who answer on the labelling page, for world.labeller = people; the run waits for them."""

    overlap: float = setting(
        0.1, "share of comparisons that two people answer, to see how far they agree", low=0.0, high=1.0
    )
    lease_minutes: float = setting(10.0, "a pair is kept for one person so long, then another may get it", above=0.0)
    skips: int = setting(2, "people who have to skip a comparison before it is left out", low=1)
    timeout_minutes: float = setting(0.0, "longest wait for a batch of answers; 0 waits as long as it takes", low=0.0)
    minimum: float = setting(
        0.8, "share of a batch that has to be answered to go on after the time-out; below it the run stops",
        low=0.0, high=1.0,
    )  # fmt: skip
    poll_seconds: float = setting(1.0, "how often a waiting run looks for answers", above=0.0)
    checks: str = setting("", "`prompt`, `chosen`, `rejected` rows with known answers, to see who gives them")
    check_share: float = setting(0.05, "share of the pairs a person sees that are check items", low=0.0, high=0.5)


@dataclass(frozen=True)
class JudgeConfig:
    """A model that judges over an OpenAI-compatible endpoint, for world.labeller = judge or people+judge."""

    url: str = setting("", "base URL of the endpoint, such as http://127.0.0.1:8000/v1")
    model: str = setting("", "name of the model there")
    key_variable: str = setting("", "environment variable that holds the key, where the endpoint wants one")
    instructions: str = setting("", "what makes an answer better, in your words; empty: helpful, correct, concise")
    share: float = setting(
        0.5, "people+judge: share of the training comparisons that the judge answers in people's stead",
        low=0.0, high=1.0,
    )  # fmt: skip
    second: float = setting(
        0.1, "people+judge: share of people's comparisons that the judge answers too, to be measured and not used",
        low=0.0, high=1.0,
    )  # fmt: skip
    both_orders: bool = setting(True, "ask with the sides exchanged as well; where the two answers differ it is a tie")
    parallel: int = setting(4, "questions under way at once", low=1)
    timeout_seconds: float = setting(60.0, "longest wait for one answer", above=0.0)
    retries: int = setting(3, "further tries of a question that failed", low=0)


@dataclass(frozen=True)
class QualityConfig:
    """What becomes of the labels of people who are found unreliable. Labels are never deleted."""

    unreliable: Literal["keep", "weigh", "leave_out"] = setting(
        "keep", "labels of an unreliable labeller count as any other, by quality.weight, or not at all"
    )
    weight: float = setting(0.3, "what they count for unreliable = weigh", above=0.0, high=1.0)
    fewest: int = setting(30, "labels of a person before anything is said about them", low=5)
    level: float = setting(
        0.01, "probability that any one honest labeller is found unreliable by chance", above=0.0, high=0.5
    )


@dataclass(frozen=True)
class PPOConfig:
    """Optimising the policy against the ensemble."""

    batch: int = setting(64, "prompts in a step", low=1)
    samples_per_prompt: int = setting(1, "answers to each prompt; at least 2 for rloo and grpo", low=1)
    advantage: Literal["gae", "rloo", "grpo"] = setting("gae", "how credit is assigned")
    epochs: int = setting(3, "passes over a step's answers", low=1)
    minibatches: int = setting(2, "updates in a pass", low=1)
    lr: float = setting(4e-4, "learning rate after warm-up", above=0.0)
    critic_lr_factor: float = setting(20.0, "how many times the policy's learning rate the critic's is", above=0.0)
    lr_warmup_steps: int = setting(5, "steps until the full learning rate", low=0)
    lr_decay: float = setting(0.7, "factor each time the policy has settled", above=0.0, high=1.0)
    lr_floor: float = setting(0.1, "the learning rate never falls below this share", low=0.0, high=1.0)
    lr_final: float = setting(
        0.2,
        "share of the learning rate left at the run's last step, linearly from 1; 1 for no decay",
        above=0.0,
        high=1.0,
    )
    plateau_window: int = setting(8, "steps in a window of the plateau test", low=2)
    plateau_tolerance: float = setting(1.0, "standard errors the reward has to rise by, window on window", low=0.0)
    clip: float = setting(0.2, "ratio clipping", above=0.0)
    value_clip: float = setting(0.2, "value clipping", above=0.0)
    value_coef: float = setting(0.1, "weight of the value loss", low=0.0)
    gamma: float = setting(1.0, "discount", above=0.0, high=1.0)
    lam: float = setting(0.95, "lambda of GAE", low=0.0, high=1.0)
    whiten: bool = setting(True, "whiten the advantages of GAE; rloo and grpo have a scale of their own")
    epoch_kl_stop: float = setting(
        0.0, "end a step's passes when KL per token to its start exceeds this; 0 never", low=0.0
    )
    max_grad_norm: float = setting(1.0, "gradient norm is clipped to this", above=0.0)
    max_skipped: int = setting(
        5, "non-finite steps in a row that take the run back to its last good policy, or end it", low=1
    )


@dataclass(frozen=True)
class DPOConfig:
    """Learning from pairs: `holdfast dpo`; its loss is also that of run.optimiser = "dpo"."""

    loss: Literal["sigmoid", "ipo", "simpo"] = setting("sigmoid", "DPO, IPO, or SimPO, which needs no reference")
    beta: float = setting(
        0.1, "strength of the pull to the reference; online it is the KL controller's beta instead", above=0.0
    )
    label_smoothing: float = setting(0.0, "share of labels assumed wrong: conservative DPO", low=0.0, high=0.49)
    gamma: float = setting(1.0, "margin of loss = simpo", low=0.0)
    nll_weight: float = setting(0.0, "weight of the chosen answer's cross-entropy, per token", low=0.0)
    epochs: int = setting(3, "passes over the labelled pairs", low=1)
    batch: int = setting(16, "pairs per update", low=1)
    lr: float = setting(2e-4, "peak learning rate; linear warm-up, then linear decay", above=0.0)
    warmup_steps: int = setting(10, "updates until the peak", low=0)
    max_grad_norm: float = setting(1.0, "gradient norm is clipped to this", above=0.0)
    comparisons: int = setting(
        0,
        "comparisons of the starting policy's own answers to have labelled first; 0 takes the labels there are, and "
        "reward.initial_comparisons where there are none",
        low=0,
    )
    newest: int = setting(0, "labels to take, held-out ones among them, the newest that there are; 0 takes all", low=0)
    sft_lr: float = setting(3e-3, "peak learning rate of sft_both", above=0.0)
    sft_both: int = setting(
        0, "first fine-tune for this many passes on both answers of every pair, chosen and rejected, against squeezing",
        low=0,
    )  # fmt: skip


@dataclass(frozen=True)
class BestOfNConfig:
    """Best-of-n and its distillation; reward.aggregation says how opinions become one score."""

    n: int = setting(16, "answers to each prompt, of which the best is taken", low=1)
    prompts: int = setting(1000, "prompts whose best answers are distilled", low=2)
    epochs: int = setting(2, "passes over the best answers in distillation", low=1)
    lr: float = setting(1e-3, "peak learning rate of distillation", above=0.0)


@dataclass(frozen=True)
class PipelineConfig:
    """`holdfast pipeline`: stages one after the other."""

    stages: tuple[str, ...] = setting(
        ("sft", "reward", "ppo", "dpo"),
        "sft, reward, ppo, dpo and distil in any order, each from the policy before it; dpo@sft starts from an earlier "
        "stage, dpo@ppo:round-0002 from its checkpoint, dpo@DIR or dpo@RUN@round-0003 from elsewhere",
    )
    newest_after_ppo: int = setting(
        800, "dpo.newest of a DPO stage that goes on from PPO's policy, where dpo.newest is 0: older labels are about "
        "answers that PPO has left behind; 0 takes all", low=0,
    )  # fmt: skip
    audit_pairs: int = setting(60, "comparisons with SFT that people answer after each stage; 0 for none", low=0)
    prompts: int = setting(200, "held-out prompts on which each stage is measured", low=2)


@dataclass(frozen=True)
class ProbesConfig:
    """Learning dynamics: how likely the model finds a fixed set of answers, measured as it learns."""

    every: int = setting(25, "updates (SFT, DPO) or steps (PPO) between two probes; 0 for none", low=0)
    prompts: int = setting(48, "prompts in the probe set", low=2)


@dataclass(frozen=True)
class KLConfig:
    """How far the policy may go from the reference."""

    controller: Literal["fixed", "adaptive", "budget"] = setting("budget", "how beta is set")
    beta: float = setting(0.05, "KL coefficient, or where it starts", low=0.0)
    target: float = setting(6.0, "adaptive: KL to the reference to hold, in nats per answer", above=0.0)
    horizon: float = setting(192.0, "adaptive and budget: answers over which beta reacts", above=0.0)
    budget_start: float = setting(2.0, "budget: KL allowed with no labels", above=0.0)
    budget_per_1000_labels: float = setting(1.0, "budget: KL added by each thousand labels", low=0.0)
    budget_ceiling: float = setting(12.0, "budget: never more than this", above=0.0)
    hard_limit: float = setting(0.0, "KL to the reference that ends a round early; 0 for none", low=0.0)
    step_answers: int = setting(
        16, "answers of a step on which the KL of its update is measured, for the ledger; 0 for all", low=0
    )
    placement: Literal["reward", "loss"] = setting("reward", "KL is taken off the reward or added to the loss")
    estimator: Literal["k1", "k2", "k3"] = setting("k1", "estimator of the KL that is penalised")


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept to resume from."""

    every_steps: int = setting(0, "also save every n steps within a round; 0 saves after each round only", low=0)
    keep: int = setting(2, "complete checkpoints kept", low=2)


@dataclass(frozen=True)
class TrackConfig:
    """What is written while the run goes on."""

    sinks: tuple[str, ...] = setting((), "more places for metrics: tensorboard, wandb, trackio")
    project: str = setting("holdfast", "project name for wandb and trackio")
    samples: int = setting(12, "held-out prompts answered after every round for the report", low=0)


@dataclass(frozen=True)
class Config:
    """A whole run."""

    run: RunConfig = field(default_factory=RunConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    data: DataConfig = field(default_factory=DataConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sft: SFTConfig = field(default_factory=SFTConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    refresh: RefreshConfig = field(default_factory=RefreshConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    flaw: FlawConfig = field(default_factory=FlawConfig)
    preferences: PreferencesConfig = field(default_factory=PreferencesConfig)
    people: PeopleConfig = field(default_factory=PeopleConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    dpo: DPOConfig = field(default_factory=DPOConfig)
    bestofn: BestOfNConfig = field(default_factory=BestOfNConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    probes: ProbesConfig = field(default_factory=ProbesConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    processes: ProcessesConfig = field(default_factory=ProcessesConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
