"""Advantages by turn: what an episode earns is credited to the turns that earned it.

A turn is a run of sampled tokens between observations, and all its tokens share one advantage. The estimators have the
signature of verl's registry; `algorithm.gamma` and `algorithm.lam` count turns here, not tokens. Shapes: B sequences, T
response tokens, K turns of the longest episode.
"""

from typing import Any

import torch
from torch import Tensor


def turn_gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al., arXiv 1506.02438) with turns as time steps: advantages,
    whitened over tokens as verl's `gae` does, and the critic's targets, both (B, T).

    δ_k = r_k + γ·V_{k+1} − V_k and A_k = δ_k + γ·λ·A_{k+1}, where V_k is the value before the turn's first token; the
    target of every token of turn k is A_k + V_k. Where all turns have one token, this is verl's `gae`.
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


ESTIMATORS = {"turn_gae": turn_gae}
