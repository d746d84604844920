"""How advantages become updates: `actor.*`, `critic.*`, and the optimizer's keys of both."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlkit.config.algorithm import KLPenalty
from rlkit.params import Section, Share


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
    loss_agg_mode: Literal[
        "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean",
        "prompt-mean-token-mean",
    ] = "token-mean"  # fmt: skip
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
