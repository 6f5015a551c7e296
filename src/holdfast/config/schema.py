"""Every setting of a run, with its meaning, its default and its limits. `holdfast init` writes this as TOML."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.config.section import Section, Span, section, setting


@section
class RunConfig(Section):
    """The run itself."""

    seed: int = setting(0, "every random draw of the run follows from this number", ge=0)
    rounds: int = setting(8, "rounds of collect, label, refresh, optimise", ge=1)
    steps_per_round: int = setting(6, "PPO steps in a round", ge=1)
    average: int = setting(4, "last policies whose mean the run ends with; at most half its rounds", ge=1)
    stop_at_kl: float = setting(0.0, "KL to the reference at which the run ends, wherever it is; 0 never", ge=0)
    optimiser: Literal["ppo", "dpo"] = setting(
        "ppo", "what moves the policy: PPO, or DPO on fresh pairs of its own answers that the ensemble judges"
    )
    device: str = setting("cpu", "cpu, cuda, or any other torch device")
    threads: int = setting(0, "CPU cores to use; 0 takes all there are", ge=0, free=True)


@section
class WorldConfig(Section):
    """The task: prompts, demonstrations and whoever answers comparisons."""

    name: str = setting(
        "concierge",
        "concierge, everyday, stories, boat_race, layout or forecast (built in), files (your own data), or "
        "path/to/file.py:Class",
    )
    options: dict[str, Any] = setting({}, "keyword arguments for the world's class")
    labeller: str = setting(
        "", "who answers instead of the world's own labeller: people, judge, people+judge, or path/to/file.py:Class"
    )
    label_noise: float = setting(0.1, "share of answers that a simulated labeller gets wrong by chance", ge=0, le=1)
    drawing: Literal["", "none", "boxes", "curve"] = setting(
        "", "how answers are drawn beside their text: boxes (a layout) or curve; empty: as the world says", free=True
    )


@section
class DataConfig(Section):
    """Your own data: a file of any format that docs/data.md has, a directory that datasets saved, hub:owner/name."""

    prompts: str = setting("", "prompts to train on, one `prompt` each")
    heldout_prompts: str = setting("", "prompts for samples and measurement; empty holds out a share of the prompts")
    heldout_share: float = setting(0.1, "share of the prompts held out, by their hash", ge=0, le=0.5)
    demonstrations: str = setting("", "`prompt` and `completion` pairs for supervised fine-tuning")
    preferences: str = setting("", "`prompt`, `chosen`, `rejected` rows that join the label store at the start")
    skip_bad: float = setting(
        0.0, "share of a file's rows that may be left out because they cannot be used; 0 refuses them", ge=0, le=0.5
    )
    length_unit: Literal["characters", "tokens"] = setting("characters", "what the two limits below count")
    prompt_length: tuple[int, int] = setting(
        (0, 0), "prompts that are shorter or longer are left out, with their answers; 0 for no limit"
    )
    answer_length: tuple[int, int] = setting(
        (0, 0), "demonstrations and pairs with a shorter or longer answer are left out; 0 for no limit"
    )


@section
class PolicyConfig(Section):
    """The model that is trained."""

    path: str = setting(
        "", "a Hugging Face causal-LM directory, a run, or smollm2; empty takes the world's own or builds a small Llama"
    )
    hidden: int = setting(96, "built-in Llama: hidden size", ge=8)
    layers: int = setting(2, "built-in Llama: layers", ge=1, le=1000)
    heads: int = setting(4, "built-in Llama: attention heads", ge=1)
    feed_forward: int = setting(256, "built-in Llama: feed-forward size", ge=8)
    context: int = setting(160, "built-in Llama: longest sequence", ge=16)
    critic: Literal["head", "model"] = setting("head", "value head on the policy's trunk, or a model of its own")
    micro_batch_tokens: int = setting(
        8192, "tokens per forward and backward pass; gradients of a minibatch add up over as many passes", ge=64
    )
    fast: bool = setting(True, "run Llama-like models by the packed path; false takes transformers' own for all")
    dtype: Literal["float32", "bfloat16"] = setting(
        "float32", "what the weights are kept in; bfloat16 halves them, and needs lora_rank"
    )
    gradient_checkpointing: bool = setting(
        False, "compute each layer again in the backward pass instead of keeping its insides: less memory, more time"
    )
    lora_rank: int = setting(
        0,
        "rank of LoRA adapters, on one frozen copy of the weights for policy, reference and members; 0 trains all",
        ge=0,
    )
    lora_alpha: float = setting(16.0, "LoRA: what the adapters add is multiplied by lora_alpha / lora_rank", gt=0)
    lora_targets: tuple[str, ...] = setting(
        (), "LoRA: layers with adapters, by the end of their names; empty takes every linear layer"
    )


@section
class SFTConfig(Section):
    """Supervised fine-tuning on demonstrations; the result is the reference."""

    epochs: int = setting(2, "passes over the demonstrations; 0 takes the policy as it is", ge=0)
    lr: float = setting(
        0.0, "peak learning rate, after linear warm-up, then linear decay; 0 chooses one that suits the model", ge=0
    )
    warmup_steps: int = setting(30, "updates until the peak", ge=0)
    batch: int = setting(16, "demonstrations per update", ge=1)


@section
class RolloutConfig(Section):
    """How answers are sampled."""

    max_new_tokens: int = setting(64, "longest answer, in tokens", ge=1)
    temperature: float = setting(1.0, "sampling temperature", gt=0)
    top_p: float = setting(1.0, "keep the smallest set of tokens with this much probability", gt=0, le=1)
    top_k: int = setting(0, "keep the k likeliest tokens; 0 keeps all", ge=0)
    max_batch: int = setting(256, "rows decoded at once", ge=1)
    grammar: str = setting(
        "",
        "what answers may be: FILE.json (a JSON schema), FILE.lark, regex:PATTERN, choices:A|B|C, "
        "path/to/file.py:Class, column:NAME (each prompt's row says), or none; empty: as the world says",
    )
    renormalise: bool = setting(
        True,
        "under a grammar take log-probs over the tokens that it allows; false takes them over the whole vocabulary, "
        "which biases ratios and KL (for the lab)",
    )


@section
class VLLMConfig(Section):
    """Rollouts by a vLLM server, which is given the policy's weights after every step."""

    url: str = setting(
        "", "address of the server, such as http://127.0.0.1:8000; empty samples in the run's process", free=True
    )
    weights: str = setting(
        "",
        "directory for weights on their way, or HERE:THERE where the server has another path to it; empty takes one in "
        "the run directory",
        free=True,
    )
    parallel: int = setting(32, "answers asked for at once", ge=1, free=True)
    timeout_seconds: float = setting(120.0, "longest wait for one answer, further tries included", gt=0, free=True)


@section
class RewardConfig(Section):
    """What scores answers: the reward ensemble and how its scores become one reward, or a reward of yours."""

    source: str = setting(
        "",
        "what scores answers instead of the ensemble: path/to/file.py:name, model:DIR, judge, a rubric's file (.toml "
        "or .json), valid:SCHEMA.json, coverage:SCHEMA.json, or a reward service's http address; empty: the ensemble",
    )
    parts: dict[str, Any] = setting(
        {},
        "several sources in one reward, each by a name: {source, weight, gate, normalise}; docs/rewards.md has them",
    )
    refresh: bool = setting(False, "fine-tune a model:DIR on new labels, behind the gate")
    corrective: bool = setting(
        False,
        "with a source that stands still: after hacking, the guard adds a reward model of the audit labels to it, if "
        "that is right about what it has not learnt from",
    )
    timeout_seconds: float = setting(
        30.0,
        "longest wait for one answer's score, or for one call of a function that takes whole batches",
        gt=0,
        free=True,
    )
    parallel: int = setting(16, "answers that are scored at once, and processes of a function", ge=1, free=True)
    unscored_limit: float = setting(
        0.25, "share of a batch without a score above which the step is skipped", ge=0, le=1
    )
    members: int = setting(3, "reward models in the ensemble", ge=1)
    pooling: Literal["last", "mean"] = setting(
        "mean", "what a member's head reads: the state of the answer's last token, or the mean over its tokens"
    )
    aggregation: Literal["mean", "median", "worst", "uncertainty", "agreement", "averaged"] = setting(
        "uncertainty",
        "mean, median, worst case, mean minus lambda times variance, only what all agree on, or one member whose "
        "weights are the mean of all",
    )
    initial_comparisons: int = setting(2000, "comparisons of the reference's answers to label at the start", ge=0)
    holdout: float = setting(0.1, "share of comparisons that never train, for measuring", ge=0, le=0.5)
    epochs: int = setting(2, "passes over the labels for version 1", ge=1)
    lr: float = setting(0.0, "peak learning rate for version 1; 0 chooses one that suits the model", ge=0)
    warmup_steps: int = setting(10, "updates until the peak", ge=0)
    batch: int = setting(16, "comparisons per update", ge=1)
    label_smoothing: float = setting(0.1, "share of labels assumed wrong by the loss", ge=0, le=0.49)
    standardise_samples: int = setting(128, "reference answers on which members are standardised", ge=8)
    shaping: Literal["none", "sigmoid"] = setting(
        "none", "sigmoid: the reward is sigmoid(score - score of a reference answer to the prompt), bounded"
    )
    unfinished_penalty: float = setting(1.0, "taken off an answer that does not end", ge=0)

    @property
    def given(self) -> bool:
        """Whether answers are scored by a source that stands still, and there is no ensemble."""
        return bool(self.source or self.parts) and not self.refresh

    @property
    def trains_from_policy(self) -> bool:
        """Whether a reward model is trained from the policy's beginning: the ensemble's members, or a corrective."""
        return self.corrective or not (self.given or self.refresh)


@section
class RefreshConfig(Section):
    """When and how the ensemble is fine-tuned on new labels."""

    every_rounds: int = setting(1, "refresh every N rounds; 0 never for this reason", ge=0)
    kl_since: float = setting(0.0, "refresh after this much KL since the last one; 0 never for this reason", ge=0)
    on_plateau: bool = setting(False, "refresh when the reward has stopped rising")
    on_miscalibration: bool = setting(True, "refresh when an audit finds the ensemble's claims wrong")
    freeze: tuple[Span, ...] = setting((), "spans of rounds [from, to] in which nothing is refreshed")
    comparisons: int = setting(500, "what it trains on: all new comparisons, and older ones up to this many", ge=0)
    lr: float = setting(0.0, "peak learning rate of a refresh; 0 chooses one that suits the model", ge=0)
    warmup_steps: int = setting(5, "updates until the peak", ge=0)
    old_per_new: float = setting(0.5, "older ones for each new one at the least, over all policy generations", ge=0)
    weights: Literal["equal", "importance"] = setting(
        "equal", "importance: no new labels; old ones count by how likely the policy finds their answers"
    )


@section
class GateConfig(Section):
    """The test that a refreshed ensemble has to pass before it is used."""

    use: bool = setting(True, "test every refresh; false takes each one as it comes")
    repeats: int = setting(
        60, "easy comparisons a round that are asked again, to see whether people answer as they did", ge=0
    )


@section
class GuardConfig(Section):
    """Watching whether the reward still means anything, and what is done where it does not."""

    mode: Literal["act", "advise", "off"] = setting("act", "act on verdicts, only say what it would do, or do not look")
    false_alarm: float = setting(
        0.05,
        "probability that a run is ever called hacking or worse in which people like the policy and the claims hold",
        gt=0,
        le=0.5,
    )
    baseline_batches: int = setting(8, "batches of reference answers that the signals' baselines begin with", ge=4)
    beta_factor: float = setting(1.5, "a rung of the ladder multiplies beta by this", ge=1)
    rollbacks: int = setting(3, "rollbacks in a run; the next one stops the run and asks", ge=0)


@section
class AuditConfig(Section):
    """Fresh comparisons that people answer to measure the reward, before they may train it."""

    pairs: int = setting(
        24,
        "comparisons a round against the reference, as many against the last good policy, and as many pointed ones",
        ge=0,
    )
    more_pairs: int = setting(
        72,
        "comparisons of each of the latter two kinds in a suspicious round and in the last one; all further questions "
        "are multiples of it",
        ge=0,
    )
    budget: int = setting(2400, "audit labels in the whole run", ge=0)


@section
class FlawConfig(Section):
    """A flaw put into the reward or the labels on purpose, to see what becomes of it. For the lab."""

    name: str = setting(
        "", "a built-in flaw such as verbosity or denial, all of which docs/lab.md has, or path/to/file.py:Class"
    )
    where: Literal["reward", "labels"] = setting("reward", "planted in every reward member, or a taste of the labeller")
    weight: float = setting(0.5, "how much it counts: log-odds of a reward member, or gold units of the labeller", ge=0)
    onset: int = setting(3, "the first round in which a flaw of the reward counts", ge=1)


@section
class PreferencesConfig(Section):
    """Comparisons and labels."""

    url: str = setting("", "database URL; empty keeps run.db in the run directory", free=True)
    per_round: int = setting(100, "comparisons to label in a round", ge=0)
    selection: Literal["random", "disagreement"] = setting("random", "which candidate pairs are labelled")


@section
class LabelsConfig(Section):
    """What everything that a run asks may come to."""

    budget: int = setting(
        0,
        "answers asked for in the whole run, whatever for; a second opinion is one more; 0 for no cap",
        ge=0,
    )


@section
class PeopleConfig(Section):
    """People who answer on the labelling page, for world.labeller = people; the run waits for them."""

    overlap: float = setting(0.1, "share of comparisons that two people answer, to see how far they agree", ge=0, le=1)
    timeout_minutes: float = setting(
        0.0, "longest wait for a batch of answers; 0 waits as long as it takes", ge=0, free=True
    )
    unreliable: Literal["keep", "weigh", "leave_out"] = setting(
        "keep", "labels of a person who is found unreliable count as any other, for less, or not at all"
    )
    checks: str = setting("", "`prompt`, `chosen`, `rejected` rows with known answers, to see who gives them")
    instructions: str = setting(
        "",
        "a file with what people should look at, shown before their first pair: text, or .toml with examples",
        free=True,
    )
    reasons: tuple[str, ...] = setting((), "tags that people may give as reasons, such as correct, clear", free=True)


@section
class JudgeConfig(Section):
    """A model that judges over an OpenAI-compatible endpoint: as a labeller (world.labeller), or as the reward."""

    url: str = setting("", "base URL of the endpoint, such as http://127.0.0.1:8000/v1", free=True)
    model: str = setting("", "name of the model there")
    instructions: str = setting("", "what makes an answer better, in your words; empty: helpful, correct, concise")
    share: float = setting(
        0.5, "people+judge: share of the training comparisons that the judge answers instead of people", ge=0, le=1
    )
    mode: Literal["score", "pairwise"] = setting(
        "score", "as reward.source: a score for each answer, or the share of the others in its group that it beats"
    )
    opponents: int = setting(0, "pairwise: how many others of its group an answer meets; 0 for all of them", ge=0)
    both_orders: bool = setting(True, "ask with the sides exchanged as well; where the two answers differ it is a tie")
    parallel: int = setting(4, "questions under way at once", ge=1, free=True)
    timeout_seconds: float = setting(60.0, "longest wait for one answer, further tries included", gt=0, free=True)


@section
class PPOConfig(Section):
    """Optimising the policy against the ensemble."""

    batch: int = setting(64, "prompts in a step", ge=1)
    samples_per_prompt: int = setting(1, "answers to each prompt; at least 2 for all advantages but gae", ge=1)
    advantage: Literal["gae", "rloo", "grpo", "dr_grpo"] = setting("gae", "how credit is assigned")
    loss: Literal["token", "answer", "length"] = setting(
        "token", "what the policy's loss is a mean of: tokens, answers' means, or sums over the greatest length"
    )
    epochs: int = setting(3, "passes over a step's answers", ge=1)
    minibatches: int = setting(2, "updates in a pass", ge=1)
    lr: float = setting(
        0.0, "learning rate after warm-up; 0 sizes steps by the KL that they move, so that they suit the model", ge=0
    )
    critic_lr_factor: float = setting(20.0, "how many times the policy's learning rate the critic's is", gt=0)
    lr_warmup_steps: int = setting(5, "steps until the full learning rate, where ppo.lr is set", ge=0)
    lr_final: float = setting(
        0.2, "share of the learning rate left at the run's last step, linearly from 1; 1 for no decay", gt=0, le=1
    )
    clip: float = setting(0.2, "ratio clipping", gt=0)
    clip_high: float = setting(0.0, "ratio clipping upwards, above ppo.clip; 0 for the same as downwards", ge=0)
    epoch_kl_stop: float = setting(
        0.0, "end a step's passes when KL per token to its start exceeds this; 0 never", ge=0
    )
    gradient_penalty: float = setting(
        0.0, "half of this times the squared norm of the policy's gradient is added to the loss; 0 for none", ge=0
    )
    advantage_offset: float = setting(0.0, "constant added to every token's advantage", ge=0)


@section
class DPOConfig(Section):
    """Learning from pairs: `holdfast dpo`; its loss is also that of run.optimiser = "dpo"."""

    loss: Literal["sigmoid", "ipo", "simpo"] = setting("sigmoid", "DPO, IPO, or SimPO, which needs no reference")
    beta: float = setting(
        0.1, "strength of the pull to the reference; online it is the KL controller's beta instead", gt=0
    )
    label_smoothing: float = setting(0.0, "share of labels assumed wrong: conservative DPO", ge=0, le=0.49)
    nll_weight: float = setting(0.0, "weight of the chosen answer's cross-entropy, per token", ge=0)
    epochs: int = setting(3, "passes over the labelled pairs", ge=1)
    batch: int = setting(16, "pairs per update", ge=1)
    lr: float = setting(
        0.0, "peak learning rate, after linear warm-up, then linear decay; 0 chooses one that suits the model", ge=0
    )
    comparisons: int = setting(
        0,
        "comparisons of the starting policy's own answers to have labelled first; 0 takes the labels there are, and "
        "reward.initial_comparisons where there are none",
        ge=0,
    )
    newest: int = setting(0, "labels to take, held-out ones among them, the newest that there are; 0 takes all", ge=0)
    sft_both: int = setting(
        0,
        "first fine-tune for this many passes on both answers of every pair, chosen and rejected, against squeezing",
        ge=0,
    )


@section
class BestOfNConfig(Section):
    """Best-of-n and its distillation; reward.aggregation says how opinions become one score."""

    n: int = setting(16, "answers to each prompt, of which the best is taken", ge=1)
    prompts: int = setting(1000, "prompts whose best answers are distilled", ge=2)
    lr: float = setting(0.0, "peak learning rate of distillation; 0 chooses one that suits the model", ge=0)


@section
class PipelineConfig(Section):
    """`holdfast pipeline`: stages one after the other."""

    stages: tuple[str, ...] = setting(
        ("sft", "reward", "ppo", "dpo"),
        "sft, reward, ppo, dpo and distil in any order, each from the policy before it; dpo@sft starts from an earlier "
        "stage, dpo@ppo:round-0002 from its checkpoint, dpo@DIR or dpo@RUN@round-0003 from elsewhere",
    )
    audit_pairs: int = setting(60, "comparisons with SFT that people answer after each stage; 0 for none", ge=0)


@section
class ProbesConfig(Section):
    """Learning dynamics: how likely the model finds a fixed set of answers, measured as it learns."""

    every: int = setting(25, "updates (SFT, DPO) or steps (PPO) between two probes; 0 for none", ge=0)
    prompts: int = setting(48, "prompts in the probe set", ge=2)


@section
class KLConfig(Section):
    """How far the policy may go from the reference."""

    controller: Literal["fixed", "adaptive", "budget"] = setting("budget", "how beta is set")
    beta: float = setting(0.05, "KL coefficient, or where it starts", ge=0)
    target: float = setting(6.0, "adaptive: KL to the reference to hold, in nats per answer", gt=0)
    budget_start: float = setting(2.0, "budget: KL allowed with no labels, in units of kl.unit", gt=0)
    budget_per_1000_labels: float = setting(1.0, "budget: KL added by each thousand labels, in units", ge=0)
    budget_ceiling: float = setting(12.0, "budget: never more than this, in units", gt=0)
    unit: float = setting(
        0.0,
        "what the budget is multiplied by to be nats per answer; 0 measures it, so that a budget means the same for "
        "answers of 20 and of 200 tokens: the square root of their entropy over that of the built-in model's answers",
        ge=0,
    )
    hard_limit: float = setting(
        -1.0,
        "KL to the reference, in nats per answer, that ends a round early; -1 for twice the present target, 0 for none",
        ge=-1,
    )
    placement: Literal["reward", "loss"] = setting("reward", "KL is taken off the reward or added to the loss")
    estimator: Literal["k1", "k2", "k3"] = setting("k1", "estimator of the KL that is penalised")


@section
class CheckpointConfig(Section):
    """What is kept to resume from."""

    keep: int = setting(
        0,
        "rounds whose checkpoints are kept, at least 2; 0 keeps every round while all of them take less than 10 GiB, "
        "and the newest 2 in any case",
        ge=0,
        free=True,
    )


@section
class ProcessesConfig(Section):
    """Several processes on one run, started by torchrun or accelerate launch; with one, nothing of this matters."""

    strategy: Literal["data", "fsdp2"] = setting(
        "data", "each process has whole models and its share of a batch, or its share of the weights as well", free=True
    )
    timeout_minutes: float = setting(
        30.0, "how long one process may keep the others waiting, and a reward member its scores", gt=0, free=True
    )


@section
class TrackConfig(Section):
    """What is written while the run goes on."""

    sinks: tuple[str, ...] = setting((), "more places for metrics: tensorboard, wandb, trackio", free=True)
    samples: int = setting(12, "held-out prompts answered after every round for the report", ge=0)
