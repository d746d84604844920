"""The one place where rlkit meets verl's maths: every advantage estimator and policy loss is the function that verl
0.9.1 registers under that name, or that a plugin registers with verl's decorators; `turn_gae` is added here.

Denominators are counted over the whole mini-batch, in which a sequence that is masked everywhere counts for nothing.
Importing verl takes seconds and loads ray, so it happens inside functions.
"""

import inspect
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlkit.config import Actor, RolloutCorrection, RunConfig
from rlkit.types import Batch

ZERO_ADVANTAGE_IS_ZERO_GRADIENT = {"vanilla", "gspo", "cispo", "gpg", "sapo", "dppo_tv", "dppo_kl"}
"""Losses whose denominators are the mini-batch's own, so that sequences of zero advantage need not be computed."""


@lru_cache(1)
def core() -> Any:
    """verl's core_algos module (imports ray and transformers on the way: seconds), turn_gae registered."""
    from verl.trainer.ppo import core_algos

    core_algos.register_adv_est("turn_gae")(turn_gae)
    return core_algos


def advantages(batch: Batch, config: RunConfig) -> tuple[Tensor, Tensor]:
    """Advantages and returns (B, T) of `batch.rewards`, by `algorithm.adv_estimator`; zero where the policy sampled
    nothing. verl's functions go through groups and tokens one by one, hence on the CPU."""
    from verl.trainer.config import AlgoConfig

    a, mask = config.algorithm, batch.mask.float()
    by_std = a.norm_adv_by_std_in_grpo and not a.norm_adv_by_std_in_batch
    estimator = grpo if a.adv_estimator == "grpo" else core().get_adv_estimator_fn(a.adv_estimator)
    named = inspect.signature(estimator).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in named.values())
    shared = {"gamma": a.gamma, "lam": a.lam, "norm_adv_by_std_in_grpo": by_std}
    inputs = shared | {
        "token_level_rewards": batch.rewards,
        "response_mask": mask,
        # Values behind the mask are never used: GAE would bootstrap from them at the last token.
        "values": None if batch.values is None else batch.values * mask,
        "index": batch.prompt_index.cpu().numpy(),
        "config": AlgoConfig(adv_estimator=a.adv_estimator, **shared),
        "reward_baselines": batch.baselines,
        "sum_pi_squared": batch.sum_pi_squared,
        "old_log_probs": batch.old_logprobs,
    }
    given = {k: v for k, v in inputs.items() if v is not None and (takes_all or k in named)}
    on_cpu: dict[str, Any] = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in given.items()}
    result, returns = (each.to(mask.device) * mask for each in estimator(**on_cpu))
    if a.norm_adv_by_std_in_batch:
        each = (result * mask).sum(-1) / mask.sum(-1).clamp(min=1)  # (B,), alike on all tokens of a sequence
        result = result / (each[mask.any(-1)].std() + 1e-6)
    return result, returns


def grpo(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, norm_adv_by_std_in_grpo: bool
) -> tuple[Tensor, Tensor]:
    """verl's `grpo` to the last bit, groups of one size together: its loop over 512 sequences takes 13 ms, a quarter of
    a small model's step on a GPU."""
    scores, (_, group, sizes) = token_level_rewards.sum(-1), np.unique(index, False, True, True)
    order, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    for size in np.unique(sizes):
        rows = torch.from_numpy(order[starts[sizes == size][:, None] + np.arange(size)])  # (groups, size)
        each = scores[rows]
        mean, std = (each.mean(-1, True), each.std(-1, keepdim=True)) if size > 1 else (0.0, 1.0)
        scores[rows] = (each - mean) / (std + 1e-6) if norm_adv_by_std_in_grpo else each - mean
    result = scores[:, None] * response_mask
    return result, result


def turn_gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al., arXiv 1506.02438) with turns as time steps, which `gamma` and
    `lam` count: advantages, whitened over tokens as verl's `gae` does, and the critic's targets, both (B, T).

    A turn is a run of sampled tokens between observations. δ_k = r_k + γ·V_{k+1} − V_k and A_k = δ_k + γ·λ·A_{k+1},
    where V_k is the value before the turn's first token; all tokens of turn k have the advantage A_k and the target
    A_k + V_k. Where all turns have one token, this is verl's `gae`.
    """
    from verl.utils.torch_functional import masked_whiten

    mask = response_mask
    before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    starts = ((mask > 0) & (before == 0)).to(mask.dtype)  # (B, T) 1 on the first token of every turn
    turn = (starts.cumsum(-1).long() - 1).clamp(min=0)  # (B, T) number of the turn of each token
    turns = int(turn.max()) + 1

    def total(x: Tensor) -> Tensor:  # (B, T) to (B, K): the sum over the sampled tokens of each turn
        return torch.zeros(len(x), turns, dtype=x.dtype, device=x.device).scatter_add(1, turn, x * mask)

    rewards, value = total(token_level_rewards), total(values * starts)
    advantages = torch.zeros_like(rewards)
    following = next_value = torch.zeros_like(rewards[:, 0])
    for k in reversed(range(rewards.shape[1])):
        delta = rewards[:, k] + gamma * next_value - value[:, k]
        following, next_value = delta + gamma * lam * following, value[:, k]
        advantages[:, k] = following
    by_token, targets = ((x.gather(1, turn).to(mask.dtype) * mask) for x in (advantages, advantages + value))
    return masked_whiten(by_token, mask), targets


@lru_cache(8)
def actor_config(actor: Actor, group_size: int) -> Any:
    """The actor section as verl's FSDPActorConfig, which every registered loss reads."""
    from verl.workers.config import FSDPActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    low, high = (actor.clip_ratio if x is None else x for x in (actor.clip_ratio_low, actor.clip_ratio_high))
    return FSDPActorConfig(
        strategy="fsdp2", rollout_n=group_size, ppo_micro_batch_size_per_gpu=1, clip_ratio=actor.clip_ratio,
        clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=actor.clip_ratio_c, loss_agg_mode=verls_mode(actor),
        policy_loss=PolicyLossConfig(**actor.policy_loss.model_dump()),
    )  # fmt: skip


def denominators(mask: Tensor, actor: Actor, max_response_length: int) -> dict[str, int]:
    """What the losses of one optimizer step are divided by, under verl's names, from its mini-batch's mask (B, T)."""
    return {
        "dp_size": 1,
        "batch_num_tokens": max(1, int(mask.sum())),
        "global_batch_size": max(1, int((mask.sum(-1) > 0).sum())),
        "loss_scale_factor": actor.loss_scale_factor or max_response_length,
    }


def policy_loss(
    actor: Actor, group_size: int, scale: dict[str, int], **tensors: Tensor | None
) -> tuple[Tensor, dict[str, float]]:
    """This micro-batch's share of the policy loss (a scalar; shares add up) and verl's metrics, of (b, T) tensors."""
    config = actor_config(actor, group_size)  # pyright: ignore[reportArgumentType]  # frozen models hash
    config.global_batch_info.clear()
    config.global_batch_info.update(scale)
    loss = core().get_policy_loss_fn(actor.policy_loss.loss_mode)
    return loss(loss_agg_mode=verls_mode(actor), config=config, **tensors)


def aggregate(actor: Actor, scale: dict[str, int], token_losses: Tensor, mask: Tensor) -> Tensor:
    """Token losses (b, T) as a scalar by `actor.loss_agg_mode`, with the mini-batch's denominators."""
    return core().agg_loss(token_losses, mask, verls_mode(actor), **scale)


def verls_mode(actor: Actor) -> str:
    """The loss_agg_mode for verl, which has no mean over prompts: losses are summed, weighted by `prompt_weights`."""
    return "token-sum" if actor.loss_agg_mode == "prompt-mean-token-mean" else actor.loss_agg_mode


def prompt_weights(mask: Tensor, prompt_index: Tensor) -> Tensor:
    """(b, 1) weight of a sequence's tokens in the mean over prompts of the mean over their tokens, by mask (b, T)."""
    prompts, index = torch.unique(prompt_index, return_inverse=True)
    tokens = mask.new_zeros(len(prompts)).index_add_(0, index, mask.sum(-1))
    return (1 / (tokens.clamp(min=1) * (tokens > 0).sum().clamp(min=1)))[index][:, None]


def importance_weights(
    old_logprobs: Tensor, sampler_logprobs: Tensor, mask: Tensor, correction: RolloutCorrection
) -> Tensor | None:
    """Truncated importance weights (B, T), min(π_trainer / π_sampler, threshold), by token or sequence; or None."""
    if correction.rollout_is is None:
        return None
    ratio = old_logprobs - sampler_logprobs
    if correction.rollout_is == "sequence":
        ratio = (ratio * mask).sum(-1, keepdim=True).expand_as(ratio)
    return ratio.clamp(-20, 20).exp().clamp(max=correction.rollout_is_threshold)
