"""How rewards become updates: `algorithm.*`, with what each estimator needs, `actor.*` and `critic.*`."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from rlkit.params import Section, Share


class KLControl(Section):
    """Coefficient of the KL penalty in the reward."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """adaptive: move kl_coef so that the measured KL approaches target_kl (Ziegler et al. 2019)."""
    kl_coef: NonNegativeFloat = 0.001
    """The coefficient, or its first value."""
    horizon: PositiveInt = 10_000
    """Samples over which the adaptive coefficient reacts."""
    target_kl: NonNegativeFloat = 0.1
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
    max_num_gen_batches: NonNegativeInt = 0
    """Most batches for one step; a step that needs more ends the run. 0 is no limit."""


class RolloutCorrection(Section):
    """Truncated importance sampling for the difference between the sampler's and the trainer's log-probs of the same
    policy (Yao et al. 2025). A number alone is a cap per token."""

    rollout_is: Literal["token", "sequence"] | None = None
    """The ratio of each token, or of the whole sequence; none is no correction."""
    rollout_is_threshold: PositiveFloat = 2.0
    """Cap of the ratio."""


class Needs(NamedTuple):
    """What an advantage estimator needs beside token rewards, and which keys it reads."""

    groups: bool = False  # several samples per prompt
    critic: bool = False  # values of a critic
    greedy: bool = False  # the reward of a greedy response per prompt
    sum_pi_squared: bool = False  # old log-probs, and squared probabilities summed over the vocabulary
    gamma: bool = False  # it discounts, by algorithm.gamma
    std: bool = False  # it divides by the group's deviation where algorithm.norm_adv_by_std_in_grpo says so
    tokens: int = 1  # it trains on so many at least: those that divide by the deviation over tokens on two


ESTIMATORS = {
    **dict.fromkeys(("gae", "turn_gae"), Needs(critic=True, gamma=True, tokens=2)),
    "reinforce_plus_plus": Needs(gamma=True, tokens=2),
    "reinforce_plus_plus_baseline": Needs(groups=True, tokens=2),
    "remax": Needs(greedy=True),
    "optimal_token_baseline": Needs(sum_pi_squared=True),
    "tir_optimal_token_baseline": Needs(sum_pi_squared=True),
    **dict.fromkeys(("grpo", "grpo_vectorized", "grpo_passk"), Needs(groups=True, std=True)),
    **dict.fromkeys(("rloo", "rloo_vectorized", "opo", "gdpo"), Needs(groups=True)),
    "gpg": Needs(),
}  # fmt: skip
"""What verl's estimators need; those of plugins are not here and need nothing."""


class Algorithm(Section):
    """How rewards become advantages."""

    adv_estimator: str = Field(
        default="grpo",
        examples=[
            "gae", "grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "rloo", "remax", "opo",
        ],
    )  # fmt: skip
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

    lr: NonNegativeFloat = 1e-4
    """Learning rate at `lr_reference_params` non-embedding parameters."""
    lr_reference_params: PositiveFloat = 1e5
    """N0 of the learning-rate rule lr·(N/N0)^lr_exponent."""
    lr_exponent: float = 0.0
    """Exponent of the learning-rate rule; 0 is the same rate for every size."""
    lr_warmup_steps: NonNegativeInt = 0
    """Steps of linear warm-up."""
    lr_scheduler_type: Literal["constant", "cosine"] = "constant"
    """After the warm-up; cosine ends at min_lr_ratio."""
    min_lr_ratio: Share = 0.0
    """Last learning rate over the peak."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """Adam's decay rates."""
    clip_grad: NonNegativeFloat = 1.0
    """Largest gradient norm; 0 leaves gradients as they are."""


class PolicyLoss(Section):
    """The policy-gradient loss."""

    loss_mode: str = Field(
        default="vanilla",
        examples=[
            "vanilla", "gspo", "cispo", "gpg", "sapo", "clip_cov", "kl_cov", "geo_mean", "dppo_tv", "dppo_kl",
        ],
    )  # fmt: skip
    """Any loss that verl registers: vanilla, gspo, cispo, gpg, sapo, clip_cov, kl_cov, geo_mean, dppo_tv, dppo_kl
    …"""
    clip_cov_ratio: NonNegativeFloat = 0.0002
    """clip_cov: share of tokens whose gradient is stopped."""
    clip_cov_lb: float = 1.0
    """clip_cov: lower bound of the covariance."""
    clip_cov_ub: float = 5.0
    """clip_cov: upper bound of the covariance."""
    kl_cov_ratio: NonNegativeFloat = 0.0002
    """kl_cov: share of tokens that get the KL penalty."""
    ppo_kl_coef: NonNegativeFloat = 0.1
    """kl_cov: coefficient of that penalty."""
    dro_beta: NonNegativeFloat | None = None
    """dro: coefficient of the quadratic penalty; dro requires it."""


LossAgg = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean",
    "prompt-mean-token-mean",
]  # fmt: skip


class Actor(Section):
    """The policy's update."""

    ppo_mini_batch_size: NonNegativeInt = 0
    """Prompts per optimizer step, of the critic too; 0 is the whole batch (on-policy)."""
    ppo_micro_batch_size: NonNegativeInt = 0
    """Sequences a forward pass; 0 is as many as `micro_batch_tokens` allows. Never changes the gradient."""
    micro_batch_tokens: PositiveInt | None = None
    """Tokens per forward pass when ppo_micro_batch_size is 0. Unset is 8,192 on a CPU, 32,768 on a GPU, halved while
    its memory does not hold a pass, and verl's own 16,384 in a verl run. Never changes the gradient."""
    ppo_epochs: PositiveInt = 1
    """Passes over each batch."""
    clip_ratio: NonNegativeFloat = 0.2
    """PPO's clip range."""
    clip_ratio_low: NonNegativeFloat | None = None
    """Lower clip range; default clip_ratio."""
    clip_ratio_high: NonNegativeFloat | None = None
    """Upper clip range (clip-higher, DAPO, arXiv 2503.14476); default clip_ratio."""
    clip_ratio_c: Annotated[float, Field(gt=1)] = 3.0
    """Dual-clip bound for negative advantages (arXiv 1912.09729)."""
    loss_agg_mode: LossAgg = "token-mean"
    """How token losses become one number: verl's modes, and prompt-mean-token-mean, the mean over prompts of the mean
    over all tokens of a prompt's samples (ScaleRL, arXiv 2510.13786; vanilla, cispo and gpg)."""
    loss_scale_factor: PositiveInt | None = None
    """Constant denominator of seq-mean-token-sum-norm; default max_response_length."""
    use_kl_loss: bool = False
    """Add the KL to the reference policy to the loss."""
    kl_loss_coef: NonNegativeFloat = 0.001
    """Its coefficient."""
    kl_loss_type: KLPenalty = "low_var_kl"
    """Its estimator. k1 has no gradient in expectation; a trailing + takes k2's gradient (unbiased)."""
    entropy_coeff: NonNegativeFloat = 0.0
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

    lora_rank: NonNegativeInt | None = None
    """Rank of the critic's own adapter over the base that a LoRA policy has frozen; unset is model.lora_rank. 0
    trains a whole copy of the first weights, as is always done for a policy that trains whole."""


class Critic(Section):
    """The value function of `adv_estimator: gae`."""

    model: CriticModel = CriticModel()
    optim: Optimizer = Optimizer(lr=1e-3)
    cliprange_value: NonNegativeFloat = 0.5
    """Clip range of the value update."""
    ppo_epochs: PositiveInt = 1
    """Passes over each batch."""
    warmup_steps: NonNegativeInt = 0
    """Steps in which only the critic is trained."""
