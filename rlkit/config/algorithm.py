"""How rewards become advantages: `algorithm.*`, and what each estimator needs."""

from typing import Any, Literal, NamedTuple

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
