"""The one place where rlkit meets verl's maths.

Every advantage estimator and policy loss is the function that verl 0.9.1 registers under that name, so a
run here and a run on verl's own trainer compute the same numbers, and an algorithm added with verl's
decorators (`verl.trainer.ppo.core_algos.register_adv_est`, `register_policy_loss`) works in both.

The adapter guards four borders (each has a test):
- token-mean losses are divided by the tokens of the whole mini-batch, not of the micro-batch;
- losses that choose tokens or normalise within a micro-batch (geo_mean, kl_cov, clip_cov) refuse to be split;
- masks are float, groups are numpy, and advantages are zeroed where the mask is;
- a sequence that is masked everywhere counts in no denominator.

Importing verl takes seconds and loads ray, so it happens inside functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlkit.errors import UserError, did_you_mean
from rlkit.training.turns import ESTIMATORS, situations

if TYPE_CHECKING:
    from rlkit.config import Actor, Algorithm, RolloutCorrection, RunConfig
    from rlkit.types import Batch

UNSPLITTABLE = {"geo_mean", "kl_cov", "clip_cov"}
NEEDS_OTHER_INPUTS = {
    "gdpo": "one reward a dimension, which the router does not return",
    "bypass_mode": "verl's rollout-correction section; use algorithm.rollout_correction instead",
}
OTHER_NAMES = {
    "ppo": " PPO is 'gae' with a critic.",
    "dr_grpo": " Dr. GRPO is 'grpo' with algorithm.norm_adv_by_std_in_grpo false and actor.loss_agg_mode "
    "seq-mean-token-sum-norm.",
    "dapo": " DAPO's wider upper clip and token-level loss are 'grpo' with actor.clip_ratio_high and "
    "actor.loss_agg_mode token-mean.",
}
DEFAULTS = ("grpo", "vanilla")  # verl has these, and nothing of them is refused
ZERO_ADVANTAGE_IS_ZERO_GRADIENT = {"vanilla", "gspo", "cispo", "gpg", "sapo", "dppo_tv", "dppo_kl"}
"""Losses whose denominators are the mini-batch's own, so that sequences of zero advantage need not be computed."""


@lru_cache(1)
def core() -> Any:
    """verl's core_algos module (imports ray and transformers on the way: seconds), our estimators registered."""
    from verl.trainer.ppo import core_algos

    for name, estimator in ESTIMATORS.items():
        core_algos.register_adv_est(name)(estimator)
    return core_algos


def check(config: RunConfig) -> None:
    """Refuse what cannot be computed: unknown names, and losses split into micro-batches that must not be.

    Raises UserError naming the field, the value and the fix.
    """
    if (config.algorithm.adv_estimator, config.actor.policy_loss.loss_mode) == DEFAULTS:
        return
    estimators = {str(getattr(k, "value", k)) for k in core().ADV_ESTIMATOR_REGISTRY}
    losses = set(core().POLICY_LOSS_REGISTRY)
    for field, name, known in (
        ("algorithm.adv_estimator", config.algorithm.adv_estimator, estimators),
        ("actor.policy_loss.loss_mode", config.actor.policy_loss.loss_mode, losses),
    ):
        if name not in known:
            near = OTHER_NAMES.get(name.lower()) or did_you_mean(name, known)
            raise UserError(f"{field} is {name!r}.{near} verl registers {', '.join(sorted(known))}.")
        if name in NEEDS_OTHER_INPUTS:
            raise UserError(f"{field} is {name!r}, which needs {NEEDS_OTHER_INPUTS[name]}.")
    mode, actor = config.actor.policy_loss.loss_mode, config.actor
    mini = (actor.ppo_mini_batch_size or config.data.train_batch_size) * config.rollout.n
    if mode in UNSPLITTABLE and 0 < actor.ppo_micro_batch_size < mini:
        raise UserError(
            f"actor.ppo_micro_batch_size is {actor.ppo_micro_batch_size}, but {mode} chooses tokens within a "
            f"micro-batch, so splitting changes the gradient: leave it 0 or use {mini}."
        )
    if mode == "dro" and actor.policy_loss.dro_beta is None:
        raise UserError(
            "actor.policy_loss.loss_mode is 'dro': set actor.policy_loss.dro_beta (for example 0.1)."
        )


def advantages(batch: Batch, config: RunConfig) -> tuple[Tensor, Tensor]:
    """Advantages and returns (B, T) of `batch.rewards`, by `algorithm.adv_estimator`.

    Both results are zero where the policy sampled nothing: verl's GAE leaves whitening noise there. verl's own
    functions run on the CPU: they go through groups and tokens one by one, and a GPU would launch a kernel for each.
    """
    a, name = config.algorithm, config.algorithm.adv_estimator
    mask = batch.mask.float()
    arguments: dict[str, Any] = {"token_level_rewards": batch.rewards, "response_mask": mask}
    by_std = a.norm_adv_by_std_in_grpo and not a.norm_adv_by_std_in_batch
    if a.needs.critic:
        assert batch.values is not None
        # Values behind the mask are never used: GAE would bootstrap from them at the last token.
        arguments |= {"values": batch.values * mask, "gamma": a.gamma, "lam": a.lam}
        arguments["token_level_rewards"] = bootstrapped(batch, a.gamma)
    else:
        arguments |= {"index": np.asarray(batch.group), "config": algo_config(a)}  # pyright: ignore[reportArgumentType]  # frozen models hash
        if name == "grpo":
            arguments["norm_adv_by_std_in_grpo"] = by_std
        if name == "gigpo":
            arguments["situations"] = situations(batch.response_ids, mask, batch.attention, batch.group)
        if a.needs.greedy:
            arguments["reward_baselines"] = batch.baselines
        if a.needs.sum_pi_squared:
            arguments |= {
                "sum_pi_squared": batch.sum_pi_squared,
                "old_log_probs": batch.old_logprobs,
                "rollout_is_weights": None,
            }
    if name == "grpo" and (size := _group_size(batch.group)):
        result = returns = _whole_groups(batch.rewards, mask, size, by_std)
    else:
        result, returns = _verls(name, arguments, mask)
    if a.norm_adv_by_std_in_batch:
        each = (result * mask).sum(-1) / mask.sum(-1).clamp(
            min=1
        )  # (B,), the same on all tokens of a sequence
        result = result / (each[mask.any(-1)].std() + 1e-6)
    return result, returns


def _verls(name: str, arguments: dict[str, Any], mask: Tensor) -> tuple[Tensor, Tensor]:
    """verl's own function of that name, on the CPU."""
    on_cpu = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in arguments.items()}
    result, returns = core().get_adv_estimator_fn(name)(**on_cpu)
    return result.to(mask.device) * mask, returns.to(mask.device) * mask


def _group_size(group: np.ndarray) -> int | None:
    """n where the sequences are groups of n ≥ 2 side by side, None otherwise."""
    size = int((group == group[0]).sum())
    if size < 2 or len(group) % size:
        return None
    rows = group.reshape(-1, size)
    return size if (rows == rows[:, :1]).all() and len(np.unique(rows[:, 0])) == len(rows) else None


def _whole_groups(rewards: Tensor, mask: Tensor, size: int, by_std: bool) -> Tensor:
    """verl's grpo advantages (B, T) of whole groups, bit by bit: its loop over groups takes longer than the update of
    a small model."""
    scores = rewards.sum(-1).cpu().view(-1, size)
    advantages = scores - scores.mean(1, keepdim=True)
    if by_std:
        advantages = advantages / (scores.std(1, keepdim=True) + 1e-6)
    return advantages.flatten()[:, None].to(mask.device) * mask


def bootstrapped(batch: Batch, gamma: float) -> Tensor:
    """Token rewards (B, T) with the discounted value of where an episode was cut on its last sampled token.

    A cut episode has a token that was not sampled behind its last sampled one (`collate` with
    cut "bootstrap"), whose value is that of the state after the cut; others keep their rewards.
    """
    assert batch.values is not None
    places = torch.arange(batch.mask.shape[1], device=batch.mask.device)
    last = (batch.mask * places).argmax(-1, keepdim=True)  # (B, 1)
    behind = (last + 1).clamp(max=len(places) - 1)
    cut = batch.attention.gather(1, behind) * (behind > last)
    return batch.rewards.scatter_add(1, last, gamma * batch.values.gather(1, behind) * cut)


@lru_cache(8)
def algo_config(a: Algorithm) -> Any:
    """The algorithm section as verl's AlgoConfig."""
    from verl.trainer.config import AlgoConfig

    return AlgoConfig(
        gamma=a.gamma,
        lam=a.lam,
        adv_estimator=a.adv_estimator,
        norm_adv_by_std_in_grpo=a.norm_adv_by_std_in_grpo and not a.norm_adv_by_std_in_batch,
    )


@lru_cache(8)
def actor_config(actor: Actor, group_size: int) -> Any:
    """The actor section as verl's FSDPActorConfig, which every registered loss reads."""
    from verl.workers.config import FSDPActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=group_size,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=actor.clip_ratio,
        clip_ratio_low=actor.clip_ratio if actor.clip_ratio_low is None else actor.clip_ratio_low,
        clip_ratio_high=actor.clip_ratio if actor.clip_ratio_high is None else actor.clip_ratio_high,
        clip_ratio_c=actor.clip_ratio_c,
        loss_agg_mode=verls_mode(actor),
        policy_loss=PolicyLossConfig(**actor.policy_loss.model_dump()),
    )


@dataclass(frozen=True)
class Scale:
    """Denominators of one optimizer step, counted over its whole mini-batch."""

    tokens: int
    sequences: int
    horizon: int

    @classmethod
    def of(cls, mask: Tensor, actor: Actor, max_response_length: int) -> Scale:
        """Count a mini-batch's mask (B, T); `horizon` is the constant of seq-mean-token-sum-norm."""
        return cls(
            tokens=max(1, int(mask.sum())),
            sequences=max(1, int((mask.sum(-1) > 0).sum())),
            horizon=actor.loss_scale_factor or max_response_length,
        )

    def as_verl(self) -> dict[str, Any]:
        return {
            "dp_size": 1,
            "batch_num_tokens": self.tokens,
            "global_batch_size": self.sequences,
            "loss_scale_factor": self.horizon,
        }


def policy_loss(
    actor: Actor,
    group_size: int,
    scale: Scale,
    *,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    correction: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """This micro-batch's share of the policy loss (a scalar that sums to the mini-batch's) and verl's metrics.

    All tensors are (b, T); `correction` are importance weights between trainer and sampler.
    """
    config = actor_config(actor, group_size)  # pyright: ignore[reportArgumentType]  # frozen models hash
    config.global_batch_info.clear()
    config.global_batch_info.update(scale.as_verl())
    loss_fn = core().get_policy_loss_fn(actor.policy_loss.loss_mode)
    loss, metrics = loss_fn(
        old_log_prob=old_logprobs,
        log_prob=logprobs,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=verls_mode(actor),
        config=config,
        rollout_is_weights=correction,
    )
    return loss, metrics


def aggregate(actor: Actor, scale: Scale, token_losses: Tensor, mask: Tensor) -> Tensor:
    """Token losses (b, T) as a scalar by `actor.loss_agg_mode`, with the mini-batch's denominators."""
    return core().agg_loss(token_losses, mask, verls_mode(actor), **scale.as_verl())


def verls_mode(actor: Actor) -> str:
    """The loss_agg_mode that verl's functions are told. verl has no mean over prompts: token losses are multiplied by
    `prompt_weights`, and summed."""
    return "token-sum" if actor.loss_agg_mode == "prompt-mean-token-mean" else actor.loss_agg_mode


def prompt_weights(mask: Tensor, prompt_index: Tensor) -> Tensor:
    """(b, 1) weight of each token of a sequence in the mean over prompts of the mean over their tokens, from the mask
    (b, T) of a mini-batch and the prompts (b,) of its sequences."""
    prompts, index = torch.unique(prompt_index, return_inverse=True)
    tokens = torch.zeros(len(prompts), device=mask.device, dtype=mask.dtype).index_add_(
        0, index, mask.sum(-1)
    )
    return (1 / (tokens.clamp(min=1) * (tokens > 0).sum().clamp(min=1)))[index][:, None]


def kl(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """verl's KL estimators per token: kl/k1, abs, mse/k2, low_var_kl/k3 (clamped to 10), + for k2's gradient."""
    return core().kl_penalty(logprobs, ref_logprobs, kind)


def value_loss(
    predicted: Tensor, returns: Tensor, values: Tensor, mask: Tensor, clip: float, scale: Scale
) -> tuple[Tensor, float]:
    """PPO's value loss of `predicted` (b, t), clipped around the old `values`, and the share of clipped tokens."""
    loss, clipped = core().compute_value_loss(
        vpreds=predicted,
        returns=returns,
        values=values,
        response_mask=mask,
        cliprange_value=clip,
        loss_agg_mode="token-mean",
        **scale.as_verl(),
    )
    return loss, float(clipped)


def importance_weights(
    old_logprobs: Tensor, sampler_logprobs: Tensor, mask: Tensor, correction: RolloutCorrection
) -> Tensor | None:
    """Truncated importance weights (B, T), min(π_trainer / π_sampler, threshold): of each token, or of the whole
    sequence on all its tokens, as in verl. None where no correction is asked for."""
    if correction.rollout_is is None:
        return None
    ratio = old_logprobs - sampler_logprobs
    if correction.rollout_is == "sequence":
        ratio = (ratio * mask).sum(-1, keepdim=True).expand_as(ratio)
    return ratio.clamp(-20, 20).exp().clamp(max=correction.rollout_is_threshold)


class KLController:
    """The coefficient of the KL penalty in the reward, fixed or adaptive (verl's controllers); has a state."""

    def __init__(self, config: RunConfig) -> None:
        c = config.algorithm.kl_ctrl
        self._controller = (
            core().AdaptiveKLController(c.kl_coef, c.target_kl, c.horizon)
            if c.type == "adaptive"
            else core().FixedKLController(c.kl_coef)
        )

    @property
    def value(self) -> float:
        return float(self._controller.value)

    @value.setter
    def value(self, value: float) -> None:
        self._controller.value = value

    def update(self, kl: float, samples: int) -> None:
        """React to the measured KL (nats per token, averaged over sequences) of `samples` sequences."""
        self._controller.update(current_kl=kl, n_steps=samples)
