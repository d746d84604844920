"""Advantages by turn: what an episode earns is credited to the turns that earned it.

A turn is a run of sampled tokens between observations, and all its tokens share one advantage. Both estimators
have the signature of verl's registry, where `rlkit.training.algorithms.core` puts them; `algorithm.gamma` and
`algorithm.lam` count turns here, not tokens. Outcome only, the third way, is any of verl's group estimators
(`grpo`), which compare the returns of whole episodes.

- `turn_gae`: generalised advantage estimation (Schulman et al., arXiv 1506.02438) with turns as time steps; the
  critic's value of a turn is its value before the turn's first token.
- `turn_returns`: the discounted return from a turn on, less the mean of those of the same problem's episodes
  that reach a turn of that number (the per-turn form of GRPO's group baseline). A turn that one episode alone
  reaches has nothing to be compared with and advantage 0.

Shapes: B sequences, T response tokens, K turns of the longest episode.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

TIE = 1e-9  # smaller differences between returns are rounding


@dataclass(frozen=True)
class Turns:
    """The turns of a batch, read from its mask.

    Attributes:
        mask: (B, T) 1 where the policy sampled the token.
        starts: (B, T) 1 on the first token of every turn.
        index: (B, T) number of the turn of each token, counted from 0.
        live: (B, K) 1 where the episode has a turn of that number.
    """

    mask: Tensor
    starts: Tensor
    index: Tensor
    live: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> "Turns":
        before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
        starts = ((mask > 0) & (before == 0)).to(mask.dtype)
        index = (starts.cumsum(-1).long() - 1).clamp(min=0)
        counts = starts.sum(-1, keepdim=True)  # (B, 1)
        numbers = torch.arange(max(1, int(counts.max())), device=mask.device)
        return cls(mask, starts, index, (numbers < counts).to(mask.dtype))

    def total(self, values: Tensor) -> Tensor:
        """(B, T) to (B, K): the sum over the sampled tokens of each turn."""
        return torch.zeros_like(self.live, dtype=values.dtype).scatter_add(1, self.index, values * self.mask)

    def spread(self, values: Tensor) -> Tensor:
        """(B, K) to (B, T): the value of its turn on every sampled token."""
        return values.gather(1, self.index).to(self.mask.dtype) * self.mask


def turn_gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Advantages, whitened over tokens as verl's `gae` does, and the critic's targets, both (B, T).

    δ_k = r_k + γ·V_{k+1} − V_k and A_k = δ_k + γ·λ·A_{k+1}; the target of every token of turn k is A_k + V_k.
    Where all turns have one token, this is verl's `gae`.
    """
    from verl.utils.torch_functional import masked_whiten

    turns = Turns.of(response_mask)
    rewards, value = turns.total(token_level_rewards), turns.total(values * turns.starts)  # (B, K)
    advantages = torch.zeros_like(rewards)
    following = next_value = torch.zeros_like(rewards[:, 0])
    for k in reversed(range(rewards.shape[1])):
        delta = rewards[:, k] + gamma * next_value - value[:, k]
        following, next_value = delta + gamma * lam * following, value[:, k]
        advantages[:, k] = following
    targets = turns.spread(advantages + value)
    return masked_whiten(turns.spread(advantages), response_mask), targets


def turn_returns(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, config: Any, **_: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and discounted returns from each turn on, both (B, T).

    Args:
        index: (B,) group of each episode: those with the same problem.
        config: `gamma`, and `norm_adv_by_std_in_grpo` to divide by the standard deviation (n − 1) of the
            returns compared.
    """
    turns = Turns.of(response_mask)
    rewards, live = turns.total(token_level_rewards.double()), turns.live.double()  # (B, K)
    returns = rewards.clone()
    for k in reversed(range(rewards.shape[1] - 1)):
        returns[:, k] += config.gamma * returns[:, k + 1]
    group = np.unique(index, return_inverse=True)[1]
    member = torch.nn.functional.one_hot(torch.from_numpy(group).to(live.device)).double()  # (B, groups)
    count = member.T @ live  # (groups, K)
    mean = (member.T @ (returns * live)) / count.clamp(min=1)
    advantages = (returns - member @ mean) * live
    advantages = torch.where(advantages.abs() > TIE, advantages, 0.0)
    if config.norm_adv_by_std_in_grpo:
        variance = (member.T @ advantages.square()) / (count - 1).clamp(min=1)
        advantages = advantages / (member @ variance.sqrt() + 1e-6)
    return turns.spread(advantages), turns.spread(returns)


ESTIMATORS = {"turn_gae": turn_gae, "turn_returns": turn_returns}
