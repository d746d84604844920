"""Where the packed tokens of one forward pass belong: prompts shared by groups, responses without padding.

Tokens are packed: those of the P distinct prompts first, then the inputs of the B responses, row by row. The
attention kernels take them otherwise, on padded tiles or with cumulative lengths; a Layout knows both.
`FullLayout` packs padding like tokens, for passes that are captured once and replayed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

HIDDEN_SCORE = -3e4  # finite in 16 bits too, so that a padded row, which sees nothing, stays free of NaN


@dataclass(frozen=True)
class Layout:
    """Where the packed tokens of one forward pass belong.

    Attributes:
        prompt_mask: (P, S) bool, true on prompt tokens, which are left-aligned.
        index: (B,) prompt of each response.
        present: (B, T) bool, true on response tokens, left-aligned; every response has at least one.
    """

    prompt_mask: Tensor
    index: Tensor
    present: Tensor

    @cached_property
    def inner(self) -> Tensor:
        """(B, T-1) true where a response token is an input: the last one is predicted only."""
        return self.present[:, 1:]

    def chosen(self, values: Tensor, mask: Tensor) -> Tensor:
        """Those of padded `values` that are packed, row by row."""
        return values[mask]

    def pack(self, prompts: Tensor, responses: Tensor) -> Tensor:
        """(N,) the inputs of a pass in packed order, from prompts (P, S) and responses (B, T)."""
        return torch.cat((self.chosen(prompts, self.prompt_mask), self.chosen(responses[:, :-1], self.inner)))

    def targets(self, responses: Tensor) -> Tensor:
        """(M,) what is predicted: each response's first token, then the others row by row."""
        return torch.cat((responses[:, 0], self.chosen(responses[:, 1:], self.inner)))

    def padded(self, values: Tensor) -> Tensor:
        """Values (M,) in the order of `targets` as (B, T), zero where there is no token."""
        first, rest = values.tensor_split([len(self.present)])
        rest = rest.new_zeros(self.inner.shape).masked_scatter(self.inner, rest)
        return torch.cat((first[:, None], rest), 1)

    @cached_property
    def lengths(self) -> Tensor:
        """(P,) prompt lengths."""
        return self.prompt_mask.sum(-1)

    @cached_property
    def prompt_tokens(self) -> int:
        """Packed prompt tokens."""
        return int(self.lengths.sum())

    @cached_property
    def last(self) -> Tensor:
        """(P,) packed place of each prompt's last token."""
        return self.lengths.cumsum(0) - 1

    @cached_property
    def positions(self) -> Tensor:
        """(N,) position of each packed token in its sequence."""
        prompts, device = self.prompt_mask, self.index.device
        of_prompts = torch.arange(prompts.shape[1], device=device).expand(prompts.shape)
        of_responses = self.lengths[self.index][:, None] + torch.arange(self.inner.shape[1], device=device)
        return torch.cat((self.chosen(of_prompts, prompts), self.chosen(of_responses, self.inner)))

    @cached_property
    def tiles(self) -> "Tiles":
        """Places of packed tokens on padded tiles."""
        p, t = len(self.prompt_mask), self.inner.shape[1]
        slots, group, in_order = slots_of(self.index, p)
        places = slots[:, None] * t + torch.arange(t, device=self.index.device)  # (B, T-1)
        full = in_order and bool(self.inner.all())
        prompts = None if bool(self.prompt_mask.all()) else self.prompt_mask.flatten().nonzero()[:, 0]
        return Tiles(group, prompts, None if full else places[self.inner], *biases(self.prompt_mask, t))

    @cached_property
    def ragged(self) -> "Ragged":
        """Cumulative lengths and key places for the variable-length kernel."""
        inputs, lengths = self.inner.sum(-1), self.lengths  # (B,), (P,)
        used = (inputs > 0).nonzero()[:, 0]
        queries, seen = inputs[used], lengths[self.index[used]]
        keys = seen + queries
        # Places of a response's keys: its prompt's tokens, then its own.
        ends, own_starts = keys.cumsum(0), self.prompt_tokens + (inputs.cumsum(0) - inputs)[used]
        prompt_starts = (self.last + 1 - lengths)[self.index[used]]
        row = torch.repeat_interleave(torch.arange(len(used), device=ends.device), keys)
        place = torch.arange(int(keys.sum()), device=ends.device) - (ends - keys)[row]
        inside = place < seen[row]
        keys_at = torch.where(inside, prompt_starts[row] + place, own_starts[row] + place - seen[row])

        def cumulative(values: Tensor) -> tuple[Tensor, int]:
            sums = torch.cat((ends.new_zeros(1), values.cumsum(0))).int()
            return sums, int(values.max()) if len(values) else 0

        return Ragged(keys_at, cumulative(lengths), cumulative(queries), cumulative(keys))


class FullLayout(Layout):
    """A Layout that packs padding like tokens: no shape depends on what the masks hold, so that a pass can be captured
    as a CUDA graph. Padding stands behind all that is real, where nothing real sees it.

    Every prompt has the same number of responses, side by side.
    """

    @cached_property
    def inner(self) -> Tensor:
        return torch.ones_like(self.present[:, 1:])

    def chosen(self, values: Tensor, mask: Tensor) -> Tensor:
        return values.flatten(0, 1)

    def padded(self, values: Tensor) -> Tensor:
        first, rest = values.tensor_split([len(self.present)])
        return torch.cat((first[:, None], rest.view(self.inner.shape)), 1)

    @cached_property
    def prompt_tokens(self) -> int:
        return self.prompt_mask.numel()

    @cached_property
    def last(self) -> Tensor:
        p, s = self.prompt_mask.shape
        return torch.arange(0, p * s, s, device=self.lengths.device) + self.lengths - 1

    @cached_property
    def tiles(self) -> "Tiles":
        group = len(self.index) // len(self.prompt_mask)
        return Tiles(group, None, None, *biases(self.prompt_mask, self.inner.shape[1]))


class Tiles(NamedTuple):
    """Padded views of packed tokens: prompts (P, S) and responses (P, G, T-1); None where nothing is padded."""

    group: int
    prompts: Tensor | None
    responses: Tensor | None
    bias: Tensor  # (P, 1, 1, 1, T-1, S+T-1)
    prompt_bias: Tensor  # (S, S)


class Ragged(NamedTuple):
    """What torch's variable-length kernel takes: places of keys, and (cumulative, longest) lengths."""

    keys_at: Tensor
    prompts: tuple[Tensor, int]
    queries: tuple[Tensor, int]
    keys: tuple[Tensor, int]


def biases(prompt_mask: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """What is added to the scores of t response tokens on prompt and response (P, 1, 1, 1, t, S+t), and to those of
    prompt tokens on the prompt (S, S), to hide padding and the future."""
    (p, s), device = prompt_mask.shape, prompt_mask.device
    own = torch.ones(t, t, dtype=torch.bool, device=device).tril()
    bias = torch.zeros(p, 1, 1, 1, t, s + t, device=device)
    bias[..., :s].masked_fill_(~prompt_mask[:, None, None, None, None], HIDDEN_SCORE)
    bias[..., s:].masked_fill_(~own, HIDDEN_SCORE)
    causal = torch.ones(s, s, dtype=torch.bool, device=device).tril()
    return bias, torch.zeros(s, s, device=device).masked_fill_(~causal, HIDDEN_SCORE)


def slots_of(index: Tensor, prompts: int) -> tuple[Tensor, int, bool]:
    """Each sequence's place (B,) among prompts × G slots, its prompt being `index` (B,); G, the largest group; and
    whether the sequences fill the slots in order."""
    counts = torch.bincount(index, minlength=prompts)
    order = index.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - starts[index[order]]
    group = int(counts.max())
    slots = index * group + rank
    return slots, group, len(slots) == prompts * group and bool((slots.diff() == 1).all())


def scatter(x: Tensor, places: Tensor | None, size: int) -> Tensor:
    """Packed rows (n, ...) at `places` among `size` rows, zero elsewhere; None where they fill them all in order."""
    if places is None:
        return x
    rows = x.new_zeros(size, *x.shape[1:])
    rows[places] = x
    return rows


def pad_right(sequences: Sequence[np.ndarray], fill: int) -> tuple[Tensor, Tensor]:
    """(n, S) ids and (n, S) mask (1 on real tokens) of 1-d arrays of unequal length."""
    lengths = np.array([len(s) for s in sequences])
    ids = np.full((len(sequences), int(lengths.max())), fill, dtype=np.int64)
    mask = np.arange(ids.shape[1])[None] < lengths[:, None]
    ids[mask] = np.concatenate(sequences)
    return torch.from_numpy(ids), torch.from_numpy(mask)
