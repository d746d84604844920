"""Advantages by turn: what an episode earns is credited to the turns that earned it.

A turn is a run of sampled tokens between observations, and all its tokens share one advantage. The estimators have the
signature of verl's registry; `algorithm.gamma` and `algorithm.lam` count turns here, not tokens. Shapes: B sequences, T
response tokens, K turns of the longest episode.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

TIE = 1e-9  # smaller differences between returns are rounding


@dataclass(frozen=True)
class Turns:
    """The turns of a batch, read from its mask."""

    mask: Tensor  # (B, T) 1 where the policy sampled the token
    starts: Tensor  # (B, T) 1 on the first token of every turn
    index: Tensor  # (B, T) number of the turn of each token, from 0
    live: Tensor  # (B, K) 1 where the episode has a turn of that number

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

    def by_token(self, values: Tensor) -> Tensor:
        """(B, K) to (B, T): the value of its turn on every sampled token."""
        return values.gather(1, self.index).to(self.mask.dtype) * self.mask


def turn_gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al., arXiv 1506.02438) with turns as time steps: advantages,
    whitened over tokens as verl's `gae` does, and the critic's targets, both (B, T).

    δ_k = r_k + γ·V_{k+1} − V_k and A_k = δ_k + γ·λ·A_{k+1}, where V_k is the value before the turn's first token; the
    target of every token of turn k is A_k + V_k. Where all turns have one token, this is verl's `gae`.
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
    targets = turns.by_token(advantages + value)
    return masked_whiten(turns.by_token(advantages), response_mask), targets


def gigpo(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, config: Any, *, situations: Tensor, **_: Any
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """GiGPO (Feng et al., arXiv 2505.10978): advantages and discounted returns from each turn on, both (B, T). The
    return of the whole episode beside those of the same problem's, plus the return from a turn on beside those of the
    group's turns in the same situation (0 for one that nobody else saw).

    Args:
        index: (B,) group of each episode: those with the same problem.
        config: `gamma`, and `norm_adv_by_std_in_grpo` to divide by the standard deviation (n − 1) of the returns
            compared.
        situations: (B, K) equal for turns of one group that follow the same observation.
    """
    turns = Turns.of(response_mask)
    rewards = turns.total(token_level_rewards.double())  # (B, K)
    returns, by_std = discounted(rewards, config.gamma), config.norm_adv_by_std_in_grpo
    whole = rewards.sum(-1, keepdim=True)
    group = torch.from_numpy(np.unique(index, return_inverse=True)[1]).to(whole.device)[:, None]
    advantages = compared(whole, group, torch.ones_like(whole), by_std)
    advantages = advantages + compared(returns, situations, turns.live, by_std)
    return turns.by_token(advantages), turns.by_token(returns)


def discounted(rewards: Tensor, gamma: float) -> Tensor:
    """(B, K) rewards of turns as discounted returns from each turn on."""
    returns = rewards.clone()
    for k in reversed(range(rewards.shape[1] - 1)):
        returns[:, k] += gamma * returns[:, k + 1]
    return returns


def compared(values: Tensor, places: Tensor, live: Tensor, by_std: bool) -> Tensor:
    """`values` (B, K) less the mean of those with the same number in `places` (B, K), where `live`; with
    `by_std` over their standard deviation (n − 1). What stands alone is 0."""
    number = torch.unique(places, return_inverse=True)[1].flatten()  # (B·K,)
    live, flat = live.flatten().double(), values.flatten().double()
    zeros = flat.new_zeros(int(number.max()) + 1)
    count = zeros.index_add(0, number, live)
    mean = zeros.index_add(0, number, flat * live) / count.clamp(min=1)
    centred = (flat - mean[number]) * live
    centred = torch.where(centred.abs() > TIE, centred, 0.0)
    if by_std:
        deviation = (zeros.index_add(0, number, centred.square()) / (count - 1).clamp(min=1)).sqrt()
        centred = centred / (deviation[number] + 1e-6)
    return centred.view_as(values)


def situations(response_ids: Tensor, response_mask: Tensor, attention: Tensor, index: np.ndarray) -> Tensor:
    """(B, K) a number for every turn, equal where turns of one group follow the same observed tokens or the problem."""
    known: dict[tuple[int, bytes], int] = {}
    turns = Turns.of(response_mask)
    result = np.zeros(turns.live.shape, np.int64)
    ids, starts = response_ids.cpu().numpy(), turns.starts.cpu().numpy() > 0
    observed = ((attention > 0) & (response_mask == 0)).cpu().numpy()
    for i, group in enumerate(index):
        begins = np.flatnonzero(starts[i])
        for k, (last, first) in enumerate(zip([0, *begins], begins, strict=False)):
            seen = ids[i, last:first][observed[i, last:first]]
            result[i, k] = known.setdefault((int(group), seen.tobytes()), len(known))
    return torch.from_numpy(result).to(response_ids.device)


ESTIMATORS = {"turn_gae": turn_gae, "gigpo": gigpo}
