"""RunConfig: everything that decides what a run computes, under verl's names wherever verl has one.

A config is frozen and strict. It is read from YAML plus dotted overrides (`actor.optim.lr=1e-4`), and the
hash of its content is the run's id: same content, same run.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rlkit.domains import sources as source_registry
from rlkit.errors import UserError, did_you_mean
from rlkit.params import override, read_yaml, validate
from rlkit.registry import load_plugins
from rlkit.seeds import content_hash

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
if TYPE_CHECKING:
    Source = Any  # a component; which one, the registry decides at run time
else:
    Source = source_registry.field()


class Section(BaseModel):
    """A frozen part of the config; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )
    older: ClassVar[Mapping[str, Any]] = {}
    """Keys that configs of older runs have, with values that hashes still hold."""

    @model_validator(mode="before")
    @classmethod
    def _without_older(cls, value: Any) -> Any:
        return {k: v for k, v in value.items() if k not in cls.older} if isinstance(value, Mapping) else value


def _refuse(*rows: tuple[Any, str]) -> None:
    """Raise the sentence of the first row that is wrong."""
    for wrong, sentence in rows:
        if wrong:
            raise ValueError(sentence)


LINEAR: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""A layer's linear modules, which may get an adapter."""
WHOLE_ONLY = ("lm_head", "embed_tokens")


class WarmStart(Section):
    """Supervised steps before reinforcement learning, on problems with worked answers."""

    older = {"target": 0.25, "tolerance": 0.02}  # of a kind that there is no more
    kind: Literal["fixed", "sft", "none"] = "fixed"
    """fixed: a ladder model's stand-in for pretraining, nothing for other models. sft: any model, all weights or an
    adapter as `model` says, on the rows that data.sft_ratio sets aside or on `sources`."""
    sources: tuple[Source, ...] | None = None
    """Worked problems, e.g. {kind: file, path: worked.parquet}: extra_info.solution, or else the ground truth, is the
    answer. Unset is data.train."""
    steps: Positive = 400
    """Optimizer steps."""
    batch_size: Positive = 256
    """Worked problems a step."""
    lr: NonNegative = 2e-3
    """Peak learning rate, cosine to zero."""
    seed: int = 0
    """Seed of initial weights and problems, which the seeds of a study then share; `run` is the run's own seed, so
    that what seeds show includes the luck of the start."""


class Model(Section):
    """The policy."""

    path: str = Field(
        default="ladder-100k", examples=["ladder-30k", "ladder-100k", "ladder-300k", "Qwen/Qwen2.5-0.5B"]
    )
    """A ladder size (ladder-10k … ladder-300m), smollm2-135m-instruct, a folder, or a Hugging Face hub id."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of passes; weights that train stay in float32. float16 rounds finer than bfloat16, so that sampler
    and trainer agree better (arXiv 2510.26788); its gradients are scaled, and a step in which they overflow is
    skipped."""
    enable_gradient_checkpointing: bool = False
    """Keep only each layer's input for the backward pass: less memory, a third more compute."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the LoRA adapter; 0 trains all weights."""
    lora_alpha: Positive = 16
    """Scale of the adapter: its output is multiplied by lora_alpha / lora_rank."""
    lora_dropout: Share = 0.0
    """Dropout before the adapter."""
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Linear layers that get an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj."""
    warm_start: WarmStart = WarmStart()

    @field_validator("target_modules")
    @classmethod
    def _adapted(cls, targets: tuple[str, ...] | str) -> tuple[str, ...] | str:
        known = f"name some of {', '.join(LINEAR)}, or all-linear"
        _refuse((not targets, f"it is empty, so that nothing would train: {known}"))
        for name in () if isinstance(targets, str) else targets:
            whole = name.rpartition(".")[2] in WHOLE_ONLY
            why = "embeddings and the output head train with all weights only" if whole else "unknown"
            _refuse((name.rpartition(".")[2] not in LINEAR, f"{name!r} gets no adapter ({why}): {known}"))
        return targets


class Stage(Section):
    """Mixture weights from one step on."""

    start: Positive
    """First step of the stage; the first stage starts at 1."""
    weights: tuple[NonNegative, ...]
    """One weight a source of `data.train`, in its order."""


class Data(Section):
    """Where tasks come from, and in which order they are trained on."""

    train: tuple[Source, ...] = Field(default=({"kind": "arithmetic"},), validate_default=True)
    """Sources of training tasks, each with a `kind`, a `weight` and its own options."""
    train_batch_size: Positive = 64
    """Prompts a step (P)."""
    max_prompt_length: Positive = 256
    """Longest prompt in tokens; a longer one, of training or held-out tasks, is an error before the first step."""
    filter_overlong_prompts: bool = False
    """Leave out training and held-out tasks with longer prompts, and say how many, instead."""
    apply_chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables of the chat template, e.g. {enable_thinking: false}; a saved model keeps them in its template."""
    max_response_length: Positive = 16
    """Most tokens sampled for one response; for an environment, for the whole episode."""
    train_max_samples: Annotated[int, Field(ge=-1)] = -1
    """Unique training tasks (data volume D); -1 is as many as the steps ask for. A smaller D is part of a larger
    one."""
    max_epochs: Annotated[int, Field(ge=0)] = 0
    """Most passes over the unique tasks; a run that needs more is refused, or stopped where it draws further tasks for
    some that it leaves out. 0 is no limit."""
    order: Literal["mixed", "curriculum", "sequential", "stages"] = "mixed"
    """mixed: sources by weight in every batch. curriculum: the same, each source from easy to hard. sequential:
    source after source. stages: weights by step."""
    difficulty_field: str = "difficulty"
    """Field of extra_info that a curriculum sorts by, ascending; a leading "-" sorts descending
    (`-qwen2.5_7b_pass_rate`: solved most often first)."""
    stages: tuple[Stage, ...] = ()
    """The weights of `order: stages`."""
    sft_ratio: Share = 0.0
    """Share of the task pool set aside for supervised training; the RL stream never shows it."""
    drop_solved_above: Annotated[float, Field(gt=0, le=1)] | None = None
    """Pass rate over the run so far from which on a problem is no longer drawn (no-positive-resampling, ScaleRL,
    arXiv 2510.13786), e.g. 0.9. Unset draws every problem again in each pass over the data."""

    @field_validator("apply_chat_template_kwargs")
    @classmethod
    def _variables(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            wrong = not name.isidentifier()
            _refuse((wrong, f"{name!r} is no name of a template's variable, such as enable_thinking"))
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Data":
        starts = [s.start for s in self.stages]
        counted = [s.count is not None for s in self.train if s.weight]
        _refuse(
            (not self.train, "train is empty: name at least one source"),
            (not sum(s.weight for s in self.train),
             "the weights of train sum to 0: give at least one source a weight above 0"),
            (any(counted) and not all(counted),
             "some sources of train have a count and others none: give all of them one, or none"),
            (any(counted) and self.train_max_samples > 0,
             f"train_max_samples is {self.train_max_samples}, but the sources have counts: set it to -1"),
            ((self.order == "stages") != bool(self.stages),
             f"order is {self.order} with {len(self.stages)} stages: order stages goes with stages"),
            (starts and (starts[0] != 1 or sorted(set(starts)) != starts),
             f"stages start at {starts}: the first starts at 1, the others after the one before"),
            *((len(stage.weights) != len(self.train) or not sum(stage.weights),
               f"the stage from step {stage.start} has weights {list(stage.weights)}: give {len(self.train)} weights, "
               "one a source, that do not sum to 0") for stage in self.stages),
        )  # fmt: skip
        return self


class KLControl(Section):
    """Coefficient of the KL penalty in the reward."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """adaptive: move kl_coef so that the measured KL approaches target_kl (Ziegler et al. 2019)."""
    kl_coef: NonNegative = 0.001
    """The coefficient, or its first value."""
    horizon: Positive = 10_000
    """Samples over which the adaptive coefficient reacts."""
    target_kl: NonNegative = 0.1
    """KL in nats a token that the adaptive coefficient aims at."""


KLPenalty = Literal[
    "kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k1+", "k2+", "k3+", "kl+", "mse+", "low_var_kl+"
]


class FilterGroups(Section):
    """Dynamic sampling (DAPO, arXiv 2503.14476): groups whose samples are all alike have nothing to compare, and are
    replaced by groups of further tasks."""

    enable: bool = False
    """Sample batch after batch until `data.train_batch_size` groups differ within themselves; these train."""
    metric: Literal["acc", "score", "seq_reward"] = "acc"
    """What must differ: whether answers are right, or their reward (score and seq_reward are the same)."""
    max_num_gen_batches: Annotated[int, Field(ge=0)] = 0
    """Most batches for one step; a step that needs more ends the run. 0 is no limit."""


class RolloutCorrection(Section):
    """Truncated importance sampling for the difference between the sampler's and the trainer's log-probs of the same
    policy (Yao et al. 2025). A number alone is a cap per token."""

    rollout_is: Literal["token", "sequence"] | None = None
    """The ratio of each token, or of the whole sequence; none is no correction."""
    rollout_is_threshold: Annotated[float, Field(gt=0)] = 2.0
    """Cap of the ratio."""


class Needs(NamedTuple):
    """What an advantage estimator needs beside token rewards, and which keys it reads."""

    groups: bool = False  # several samples per prompt
    critic: bool = False  # values of a critic
    greedy: bool = False  # the reward of a greedy response per prompt
    sum_pi_squared: bool = False  # old log-probs, and squared probabilities summed over the vocabulary
    gamma: bool = False  # it discounts, by algorithm.gamma
    std: bool = False  # it divides by the group's deviation where algorithm.norm_adv_by_std_in_grpo says so


ESTIMATORS = {
    **dict.fromkeys(("gae", "turn_gae"), Needs(critic=True, gamma=True)),
    "reinforce_plus_plus": Needs(gamma=True),
    "remax": Needs(greedy=True),
    "optimal_token_baseline": Needs(sum_pi_squared=True),
    "tir_optimal_token_baseline": Needs(sum_pi_squared=True),
    **dict.fromkeys(("grpo", "grpo_vectorized", "grpo_passk"), Needs(groups=True, std=True)),
    **dict.fromkeys(
        ("rloo", "rloo_vectorized", "opo", "gdpo", "reinforce_plus_plus_baseline"), Needs(groups=True)
    ),
}  # fmt: skip
"""What estimators need; those that are not here need nothing."""


class Algorithm(Section):
    """How rewards become advantages."""

    adv_estimator: str = Field(
        default="grpo",
        examples=[
            "gae",
            "grpo",
            "reinforce_plus_plus",
            "reinforce_plus_plus_baseline",
            "rloo",
            "remax",
            "opo",
        ],
    )
    """Any of verl's estimators: gae, grpo, reinforce_plus_plus, reinforce_plus_plus_baseline, rloo, remax, opo …; for
    environments also turn_gae (GAE over turns). verl's group estimators see the whole return only."""
    gamma: Share = 1.0
    """Discount a token; a turn for turn_gae."""
    lam: Share = 1.0
    """GAE's lambda, a token or a turn as gamma."""
    truncated: Literal["end", "mask"] = "end"
    """What a cut answer or episode is worth. end: what it has earned. mask: its group is compared with it, but it is
    not trained on (overlong filtering, DAPO)."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide grpo's advantages by the group's standard deviation; off is Dr. GRPO (arXiv 2503.20783)."""
    norm_adv_by_std_in_batch: bool = False
    """Divide by the whole batch's standard deviation, in place of each group's (ScaleRL, arXiv 2510.13786)."""
    filter_groups: FilterGroups = FilterGroups()
    use_kl_in_reward: bool = False
    """Subtract the KL penalty from the token rewards."""
    kl_penalty: KLPenalty = "kl"
    """Estimator of the KL in the reward (k1, k2, k3 as in verl)."""
    kl_ctrl: KLControl = KLControl()
    rollout_correction: RolloutCorrection = RolloutCorrection()

    @field_validator("rollout_correction", mode="before")
    @classmethod
    def _cap(cls, value: Any) -> Any:
        """A number is a cap per token, 0 none."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"rollout_is": "token", "rollout_is_threshold": value} if value else {}
        return value

    @property
    def needs(self) -> Needs:
        """What `adv_estimator` needs."""
        return ESTIMATORS.get(self.adv_estimator, Needs())


class Optimizer(Section):
    """AdamW with warm-up; names are verl's."""

    lr: NonNegative = 1e-4
    """Learning rate at `lr_reference_params` non-embedding parameters."""
    lr_reference_params: Annotated[float, Field(gt=0)] = 1e5
    """N0 of the learning-rate rule lr·(N/N0)^lr_exponent."""
    lr_exponent: float = 0.0
    """Exponent of the learning-rate rule; 0 is the same rate for every size."""
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up."""
    lr_scheduler_type: Literal["constant", "cosine"] = "constant"
    """After the warm-up; cosine ends at min_lr_ratio."""
    min_lr_ratio: Share = 0.0
    """Last learning rate over the peak."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """Adam's decay rates."""
    clip_grad: NonNegative = 1.0
    """Largest gradient norm; 0 leaves gradients as they are."""


class PolicyLoss(Section):
    """The policy-gradient loss."""

    loss_mode: str = Field(
        default="vanilla",
        examples=[
            "vanilla",
            "gspo",
            "cispo",
            "gpg",
            "sapo",
            "clip_cov",
            "kl_cov",
            "geo_mean",
            "dppo_tv",
            "dppo_kl",
        ],
    )
    """Any loss that verl registers: vanilla, gspo, cispo, gpg, sapo, clip_cov, kl_cov, geo_mean, dppo_tv, dppo_kl
    …"""
    clip_cov_ratio: NonNegative = 0.0002
    """clip_cov: share of tokens whose gradient is stopped."""
    clip_cov_lb: float = 1.0
    """clip_cov: lower bound of the covariance."""
    clip_cov_ub: float = 5.0
    """clip_cov: upper bound of the covariance."""
    kl_cov_ratio: NonNegative = 0.0002
    """kl_cov: share of tokens that get the KL penalty."""
    ppo_kl_coef: NonNegative = 0.1
    """kl_cov: coefficient of that penalty."""
    dro_beta: NonNegative | None = None
    """dro: coefficient of the quadratic penalty; dro requires it."""


LossAgg = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean",
    "prompt-mean-token-mean",
]  # fmt: skip


class Actor(Section):
    """The policy's update."""

    ppo_mini_batch_size: Annotated[int, Field(ge=0)] = 0
    """Prompts per optimizer step, of the critic too; 0 is the whole batch (on-policy)."""
    ppo_micro_batch_size: Annotated[int, Field(ge=0)] = 0
    """Sequences a forward pass; 0 is as many as `micro_batch_tokens` allows. Never changes the gradient."""
    micro_batch_tokens: Positive | None = None
    """Tokens per forward pass when ppo_micro_batch_size is 0. Unset is 8,192 on a CPU, 32,768 on a GPU, halved while
    its memory does not hold a pass, and verl's own 16,384 in a verl run. Never changes the gradient."""
    ppo_epochs: Positive = 1
    """Passes over each batch."""
    clip_ratio: NonNegative = 0.2
    """PPO's clip range."""
    clip_ratio_low: NonNegative | None = None
    """Lower clip range; default clip_ratio."""
    clip_ratio_high: NonNegative | None = None
    """Upper clip range (clip-higher, DAPO, arXiv 2503.14476); default clip_ratio."""
    clip_ratio_c: Annotated[float, Field(gt=1)] = 3.0
    """Dual-clip bound for negative advantages (arXiv 1912.09729)."""
    loss_agg_mode: LossAgg = "token-mean"
    """How token losses become one number: verl's modes, and prompt-mean-token-mean, the mean over prompts of the mean
    over all tokens of a prompt's samples (ScaleRL, arXiv 2510.13786; vanilla, cispo and gpg)."""
    loss_scale_factor: Positive | None = None
    """Constant denominator of seq-mean-token-sum-norm; default max_response_length."""
    use_kl_loss: bool = False
    """Add the KL to the reference policy to the loss."""
    kl_loss_coef: NonNegative = 0.001
    """Its coefficient."""
    kl_loss_type: KLPenalty = "low_var_kl"
    """Its estimator. k1 has no gradient in expectation; a trailing + takes k2's gradient (unbiased)."""
    entropy_coeff: NonNegative = 0.0
    """Coefficient of the entropy bonus."""
    use_torch_compile: bool | None = None
    """Compile what stands between the matrix products of the update's and the torch sampler's passes, which takes
    some ten seconds. Unset is true on a GPU for models of at least 400M parameters. False in a verl run."""
    optimizer_offload: bool = False
    """Keep the optimizer's moments in the host's memory except during its step: all weights of a 7B model then train
    on one H200. Changes no number."""
    policy_loss: PolicyLoss = PolicyLoss()
    optim: Optimizer = Optimizer()

    def mini_batches(self, prompts: int) -> int:
        """Optimizer steps per epoch over a batch of `prompts`."""
        return prompts // self.ppo_mini_batch_size if self.ppo_mini_batch_size else 1

    def pass_tokens(self, on_gpu: bool) -> int:
        """`micro_batch_tokens`, or what it begins with where it is unset."""
        return self.micro_batch_tokens or (32_768 if on_gpu else 8_192)


class CriticModel(Section):
    """The critic's weights."""

    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of the critic's own adapter over the base that a LoRA policy has frozen; unset is model.lora_rank. 0
    trains a whole copy of the first weights, as is always done for a policy that trains whole."""


class Critic(Section):
    """The value function of `adv_estimator: gae`."""

    model: CriticModel = CriticModel()
    optim: Optimizer = Optimizer(lr=1e-3)
    cliprange_value: NonNegative = 0.5
    """Clip range of the value update."""
    ppo_epochs: Positive = 1
    """Passes over each batch."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps in which only the critic is trained."""


class Interruption(Section):
    """Forced end of long answers (ScaleRL, arXiv 2510.13786), in training and evaluation: one that has not ended
    `reserve` tokens before data.max_response_length is continued by `phrase`, which the loss leaves out and graders
    read, and the policy answers in what is left. Episodes of environments are not interrupted."""

    enable: bool = False
    """Whether long answers are interrupted."""
    reserve: Positive = 512
    """Last tokens of data.max_response_length, for the phrase and the answer after it."""
    phrase: str = "\n\nThe time is up, so I give my final answer now.\n</think>\n\n"
    """What is forced, encoded by the model's tokenizer, the end of its reasoning included."""


class RolloutConfig(Section):
    """How responses are sampled."""

    older = {"top_p": 1.0, "top_k": 0}  # verl's, which training leaves open
    name: Literal["torch", "vllm", "auto"] = "auto"
    """torch decodes with a static key-value cache, on a GPU in CUDA graphs; vllm runs vLLM in this process; auto is
    the one that is faster for the model's size."""
    n: Positive = 8
    """Samples a prompt (G)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature; the trainer's log-probs are taken at the same one."""
    max_turn_length: Annotated[int, Field(ge=0)] = 0
    """Most tokens of one turn in an environment; 0 is what is left of the episode."""
    interruption: Interruption = Interruption()
    max_num_seqs: Positive = 4096
    """Most sequences decoded together."""
    gpu_memory_utilization: Share = 0.0
    """Share of the GPU's memory for vLLM; 0 computes it from what is free and what the sequences need, and is 0.5 in
    a verl run."""
    tensor_model_parallel_size: Positive = 1
    """GPUs that share one copy of the sampler's weights, in a verl run."""
    max_logprob_gap: Annotated[float, Field(gt=0)] | None = None
    """Largest mean |log-prob difference| a token between sampler and trainer, in nats. Unset is 0.02, and 0.05 in
    bfloat16, whose rounding alone moves log-probs by 0.02 to 0.03."""
    sync_check_freq: Annotated[int, Field(ge=0)] = 0
    """Above 0, a step whose difference is larger than max_logprob_gap ends the run; 0 warns."""

    @model_validator(mode="before")
    @classmethod
    def _whole_distribution(cls, value: Any) -> Any:
        for key, only in cls.older.items() if isinstance(value, Mapping) else ():
            why = "but the trained distribution is the full one: leave it out (evaluation.top_p is free)"
            _refuse((value.get(key, only) != only, f"{key} is {value.get(key)}, {why}"))
        return value


class OverlongBuffer(Section):
    """Soft overlong punishment (DAPO, arXiv 2503.14476): an answer loses reward for the tokens that it goes into the
    last `len` of data.max_response_length, up to `penalty_factor`."""

    enable: bool = False
    """Whether training rewards are lowered; evaluations never are."""
    len: Positive = 4096
    """Tokens of the buffer."""
    penalty_factor: NonNegative = 1.0
    """What an answer that fills the buffer loses."""


class RewardConfig(Section):
    """How answers are graded."""

    scorer: Literal["strict", "verl"] = "strict"
    """strict: rlkit's scorers. verl: the installed `verl.utils.reward_score.default_compute_score`, in the
    sandbox."""
    custom_reward_function: str | None = None
    """`module:function` or `file.py:function` with verl's compute_score signature, instead of the router: a score, or
    a dict with `score` and `acc`, whether the answer is right; without `acc` it is where the score is at least 1."""
    env_vars: tuple[str, ...] = ()
    """Environment variables that custom_reward_function is given. It runs as nobody where you are root, and else as
    you: then it can read the variables of your other processes, this run's included."""
    num_workers: Annotated[int, Field(ge=0)] = 0
    """Grading processes; 0 is one a CPU core, at most 8."""
    timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds an answer may take, and each test of a program."""
    total_timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that all tests of one program may take together."""
    max_error_rate: Share = 0.05
    """The run stops when more of a step cannot be graded."""
    sandbox: Literal["auto", "bubblewrap", "rlimits", "unsafe"] = "auto"
    """Isolation of untrusted programs; auto is the best that works here."""
    partial_credit: bool = False
    """Train on the share of tests, cells or instructions that are right (`parts.share`) instead of on all or
    nothing."""
    format_weight: Share = 0.0
    """Weight of the response's format in what trains: (1 - weight) · verdict + weight · format. Both are in the
    parts; what is reported is the verdict."""
    format: Literal["boxed", "answer", "think"] = "boxed"
    """boxed: a \\boxed{} outside the reasoning. answer: one <answer>…</answer>, at the end. think: one
    <think>…</think>, at the beginning and with text after it."""
    overlong_buffer: OverlongBuffer = OverlongBuffer()
    judge_url: str | None = None
    """OpenAI-compatible endpoint (…/v1) of the model that judges free-text answers; each worker asks one question at
    a time, so raise num_workers with it."""
    judge_model: str = "TIGER-Lab/general-verifier"
    """Model asked for at judge_url."""

    @field_validator("custom_reward_function", mode="before")
    @classmethod
    def _in_one(cls, value: Any) -> Any:
        if isinstance(value, Mapping):  # verl's own form
            raise ValueError(f"write {value.get('path', 'file.py')}:{value.get('name', 'function')} in one")
        if value is not None and not re.fullmatch(r".+:[^:]+", str(value)):
            raise ValueError(f"it is {value!r}: write module:function or file.py:function")
        return value


class AsyncTraining(Section):
    """Responses that are sampled ahead of learning; names are those of verl's fully asynchronous trainer."""

    trigger_parameter_sync_step: Positive = 1
    """Steps between weights for the sampler. Above 1 the responses of so many steps are sampled at once, which is
    faster on a GPU, and learnt from batch by batch (algorithm.filter_groups uses them up sooner);
    algorithm.rollout_correction makes up for weights that are older than the trainer's."""


class EarlyStop(Section):
    """The end of a run whose evaluations no longer get better. No law and no comparison reads the best evaluation."""

    metric: str | None = None
    """Metric of the evaluations that is to rise, e.g. eval/pass@1 or eval/pass@1/<data_source>; unset never stops."""
    patience: Positive = 3
    """Evaluations in a row without a new best after which the run is finished."""


class Trainer(Section):
    """The loop."""

    total_training_steps: Positive = 100
    """Optimizer rounds: one batch of prompts each."""
    test_freq: Annotated[int, Field(ge=0)] = 20
    """Steps between evaluations; step 0 and the last are always evaluated."""
    save_freq: Annotated[int, Field(ge=0)] = 20
    """Steps between checkpoints; the last step is always saved."""
    max_actor_ckpt_to_keep: Positive = 2
    """Checkpoints kept."""
    early_stop: EarlyStop = EarlyStop()
    keep_best: str | None = None
    """Metric of the evaluations, e.g. eval/pass@1: the checkpoint of its highest value is kept in `best/` beside the
    newest ones."""
    resume_mode: Literal["auto", "disable"] = "auto"
    """auto continues from the newest whole checkpoint; disable refuses a folder that has one."""
    resume_from_path: str | None = None
    """A checkpoint of another run, outputs/<study>/runs/<id>/checkpoints/step_<k>, that this one goes on from, with
    more steps or another value of a key. Steps up to k become this run's."""
    logger: tuple[Literal["console", "wandb"], ...] = ("console",)
    """Where metrics go besides the run store."""
    backend: Literal["local", "verl"] = "local"
    """local trains in this process, on one CPU or GPU. verl trains on verl over Ray, on any number of GPUs."""
    nnodes: Positive = 1
    """Machines of a verl run."""
    n_gpus_per_node: Positive = 1
    """GPUs of each of them."""
    stall_timeout: Annotated[float, Field(gt=0)] = 1800.0
    """Seconds without a sign of progress after which a verl run is ended."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto is the GPU where there is one."""
    tf32: bool = False
    """Float32 products on a GPU's tensor cores, which round their factors to 10 bits: faster and less exact."""
    num_threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads of this run; 0 is all cores."""


class Evaluation(Section):
    """How the policy is measured on held-out tasks."""

    sources: tuple[Source, ...] | None = None
    """Held-out tasks; default: the held-out part of each training source."""
    size: Positive = 200
    """Held-out tasks, spread evenly over the sources."""
    suites: tuple[Source, ...] = ()
    """Benchmarks and files that are evaluated whole, each apart from the held-out tasks and from the others, and kept
    out of training: a benchmark's name, or a source with its options."""
    seed: int = 0
    """Seed of the held-out choice: the same set for every run of a study."""
    n: Positive = 4
    """Samples a task."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature; 0 is greedy (then n must be 1)."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of evaluation samples."""
    pass_at: tuple[Positive, ...] = (1,)
    """The k of pass@k; none above n."""

    @field_validator("suites", mode="before")
    @classmethod
    def _benchmarks(cls, value: Any) -> Any:
        """A name alone is a benchmark's."""
        each = value if isinstance(value, list | tuple) else [value]
        return tuple({"kind": "benchmark", "name": v} if isinstance(v, str) else v for v in each)


UNHASHED: dict[str, Any] = {
    "study": True, "rollout": {"tensor_model_parallel_size"}, "actor": {"optimizer_offload"},
    "trainer": {"logger", "num_threads", "resume_mode", "max_actor_ckpt_to_keep", "nnodes", "n_gpus_per_node",
                "stall_timeout", "keep_best"},
}  # fmt: skip
"""Keys that decide nothing but, by the number of threads, the last bits."""
NAMED_LATER = (
    "data.filter_overlong_prompts", "data.drop_solved_above", "data.apply_chat_template_kwargs", "rollout.interruption",
    "trainer.early_stop", "trainer.resume_from_path", "evaluation.suites", "algorithm.norm_adv_by_std_in_batch",
    "algorithm.filter_groups", "reward.overlong_buffer", "async_training.trigger_parameter_sync_step",
)  # fmt: skip
"""Keys that are hashed where they are set, so that runs made before there were such keys have the same id."""


class RunConfig(Section):
    """One training run. `id` is the run's folder: a readable name and the hash of the content."""

    study: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Folder under outputs/ that the run belongs to."""
    seed: int = Field(0, ge=0)
    """Seed of data order, sampling and adapter initialisation."""
    model: Model = Model()
    data: Data = Field(default_factory=Data)
    algorithm: Algorithm = Algorithm()
    actor: Actor = Actor()
    critic: Critic = Critic()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    async_training: AsyncTraining = AsyncTraining()
    trainer: Trainer = Trainer()
    evaluation: Evaluation = Evaluation()
    plugins: tuple[str, ...] = ()
    """Python files of your own, from the project's folder, with sources, scorers, environments or algorithms. They
    are imported wherever the run is at work and run as you."""
    verl: dict[str, Any] = Field(default_factory=dict)
    """Overrides that go to verl's own configuration as they are, in a verl run: nested, or with dotted keys."""

    @property
    def id(self) -> str:
        """`<model>-<estimator>-s<seed>-<hash>`; what decides nothing but last bits (loggers, GPUs) is not hashed."""
        content = self.model_dump(mode="json", exclude=UNHASHED)
        content["rollout"] |= self.rollout.older
        content["model"]["warm_start"] |= self.model.warm_start.older
        correction = self.algorithm.rollout_correction
        if correction.rollout_is != "sequence":
            cap = correction.rollout_is_threshold if correction.rollout_is else 0.0
            content["algorithm"]["rollout_correction"] = cap
        for section, key in (path.split(".") for path in NAMED_LATER):
            part = getattr(self, section)
            if getattr(part, key) == type(part).model_fields[key].get_default(call_default_factory=True):
                del content[section][key]
        content = {k: v for k, v in content.items() if v or k not in ("verl", "plugins", "async_training")}
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(self.model.path).name).lower()
        return f"{name}-{self.algorithm.adv_estimator}-s{self.seed}-{content_hash(content, 8)}"

    @property
    def mini_batch_size(self) -> int:
        """Prompts of an optimizer step."""
        return self.actor.ppo_mini_batch_size or self.data.train_batch_size

    @property
    def max_logprob_gap(self) -> float:
        """`rollout.max_logprob_gap`, or what it is where it is unset."""
        return self.rollout.max_logprob_gap or (0.05 if self.model.dtype == "bfloat16" else 0.02)

    @model_validator(mode="before")
    @classmethod
    def _plugins_and_start(cls, content: Any) -> Any:
        """Names that plugins bring are known before the sections that use them are read; a warm start whose seed is
        `run` has the run's."""
        if not isinstance(content, Mapping):
            return content
        files, model = content.get("plugins"), content.get("model")
        if isinstance(files, list | tuple) and all(isinstance(file, str) for file in files):
            load_plugins(files)
        start = model.get("warm_start") if isinstance(model, Mapping) else None
        if isinstance(model, Mapping) and isinstance(start, Mapping) and start.get("seed") == "run":
            return {**content, "model": {**model, "warm_start": {**start, "seed": content.get("seed", 0)}}}
        return content

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        a, r, e, t, actor, buffer = (
            self.algorithm, self.rollout, self.evaluation, self.trainer, self.actor, self.reward.overlong_buffer
        )  # fmt: skip
        size, limit, cut = self.data.train_batch_size, self.data.max_response_length, r.interruption
        mini, loss, local = actor.ppo_mini_batch_size, actor.policy_loss.loss_mode, t.backend == "local"
        _refuse(
            (a.needs.groups and r.n < 2,
             f"rollout.n is {r.n}, but {a.adv_estimator} compares samples of one prompt: use rollout.n >= 2"),
            (a.norm_adv_by_std_in_batch and not a.needs.groups,
             f"algorithm.norm_adv_by_std_in_batch is true, but {a.adv_estimator} compares no groups: set it to false, "
             "or use grpo or rloo"),
            (a.filter_groups.enable and (a.needs.greedy or r.n < 2),
             f"algorithm.filter_groups is enabled, but {a.adv_estimator} with rollout.n {r.n} has no groups of samples "
             "to look at: disable it, or use grpo with rollout.n >= 2"),
            (actor.loss_agg_mode == "prompt-mean-token-mean" and loss not in ("vanilla", "cispo", "gpg"),
             f"actor.loss_agg_mode is 'prompt-mean-token-mean', but {loss} weighs sequences itself: use vanilla, cispo "
             "or gpg"),
            (buffer.enable and buffer.len > limit,
             f"reward.overlong_buffer.len is {buffer.len}, above data.max_response_length {limit}: lower it"),
            (cut.enable and cut.reserve >= limit,
             f"rollout.interruption.reserve is {cut.reserve}, which leaves nothing of data.max_response_length "
             f"{limit}: lower it"),
            (cut.enable and not cut.phrase,
             "rollout.interruption.phrase is empty: give the words that end an answer's reasoning"),
            (mini and size % mini,
             f"data.train_batch_size is {size}, not a multiple of actor.ppo_mini_batch_size {mini}: use one of "
             f"{', '.join(str(k) for k in range(1, size + 1) if size % k == 0)}"),
            (max(e.pass_at) > e.n,
             f"evaluation.pass_at has k = {max(e.pass_at)}, above evaluation.n = {e.n}: raise n or drop that k"),
            (e.temperature == 0 and e.n > 1,
             f"evaluation.temperature is 0 (greedy), so evaluation.n = {e.n} samples would be equal: use n 1"),
            (self.critic.model.lora_rank and not self.model.lora_rank,
             f"critic.model.lora_rank is {self.critic.model.lora_rank}, but the policy trains all weights, so there is "
             "no frozen base to share: set model.lora_rank, or leave the critic's out"),
            *((local and value > 1, f"{key} is {value}, but the local trainer uses one: set trainer.backend to verl")
              for key, value in (
                  ("trainer.nnodes", t.nnodes), ("trainer.n_gpus_per_node", t.n_gpus_per_node),
                  ("rollout.tensor_model_parallel_size", r.tensor_model_parallel_size))),
            (local and self.verl, "verl holds overrides, but trainer.backend is 'local': set it to verl"),
        )  # fmt: skip
        return self


def load(path: str | Path, overrides: Mapping[str, Any] | None = None, /, **sections: Any) -> RunConfig:
    """The RunConfig of a YAML file, with overrides.

    `load("params/x.yaml", {"actor.optim.lr": 1e-4}, seed=3)`; keyword arguments set whole top-level
    fields, and a double underscore stands for a dot (`actor__optim__lr=1e-4`). A study's file gives the
    config that its runs share (its `run:` section), with the keys of one of its variants where `variant` names it.

    Raises:
        UserError: a missing or malformed file, unknown keys (with the nearest known ones), impossible values.
    """
    content = read_yaml(path)
    dotted = {**(overrides or {}), **{k.replace("__", "."): v for k, v in sections.items()}}
    if "run" in content and isinstance(content["run"], dict):
        if "variant" in dotted:
            dotted = {**_variant(path, content, str(dotted.pop("variant"))), **dotted}
        content = {"study": content.get("study", Path(path).stem), **content["run"]}
    return validate(RunConfig, override(content, dotted), where=str(path))


def _variant(path: str | Path, study: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a variant of a study's file changes."""
    variants = study.get("variants") or {}
    if name not in variants:
        raise UserError(
            f"{path} has no variant {name!r}.{did_you_mean(name, variants)} It has: {', '.join(variants) or 'none'}."
        )
    return variants[name] or {}
