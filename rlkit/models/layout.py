"""Where the packed tokens of one forward pass belong: prompts shared by groups, responses without padding.

Tokens are packed: those of the P distinct prompts first, then the inputs of the B responses, row by row. The
attention kernels take them otherwise, on padded tiles or with cumulative lengths; a Layout knows both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

HIDDEN_SCORE = -3e4  # finite in 16 bits too, so that a padded row, which sees nothing, stays free of NaN


class Tiles(NamedTuple):
    """Padded views of packed tokens, and what hides padding and the future from their scores. Places are None where
    nothing is padded."""

    group: int  # G
    prompts: Tensor | None  # places of prompt tokens in (P, S)
    responses: Tensor | None  # places of response tokens in (P, G, T-1)
    bias: Tensor  # (P, 1, 1, 1, T-1, S+T-1) of response tokens on prompt and response
    prompt_bias: Tensor  # (S, S)


class Ragged(NamedTuple):
    """What torch's variable-length kernel takes: places of keys, and (cumulative, longest) lengths."""

    keys_at: Tensor
    prompts: tuple[Tensor, int]
    queries: tuple[Tensor, int]
    keys: tuple[Tensor, int]


@dataclass(frozen=True)
class Layout:
    """Where the packed tokens of one forward pass belong.

    Attributes:
        prompt_mask: (P, S) bool, true on prompt tokens, which are left-aligned.
        index: (B,) prompt of each response.
        present: (B, T) bool, true on response tokens, left-aligned; every response has at least one.
        full: padding is packed like tokens, behind all that is real, where nothing real sees it: no shape depends on
            what the masks hold, so that a pass can be captured as a CUDA graph. Every prompt must have the same number
            of responses, side by side.
    """

    prompt_mask: Tensor
    index: Tensor
    present: Tensor
    full: bool = False

    @cached_property
    def inner(self) -> Tensor:
        """(B, T-1) true where a response token is an input: the last one is predicted only."""
        return torch.ones_like(self.present[:, 1:]) if self.full else self.present[:, 1:]

    def packed(self, prompts: Tensor, inputs: Tensor) -> Tensor:
        """(N,) values of prompts (P, S) and of the responses' inputs (B, T-1) in packed order."""
        return torch.cat((self._chosen(prompts, self.prompt_mask), self._chosen(inputs, self.inner)))

    def _chosen(self, values: Tensor, mask: Tensor) -> Tensor:
        return values.flatten(0, 1) if self.full else values[mask]

    def targets(self, responses: Tensor) -> Tensor:
        """(M,) what is predicted: each response's first token, then the others row by row."""
        return torch.cat((responses[:, 0], self._chosen(responses[:, 1:], self.inner)))

    def padded(self, values: Tensor) -> Tensor:
        """Values (M,) in the order of `targets` as (B, T), zero where there is no token."""
        first, rest = values.tensor_split([len(self.present)])
        if self.full:
            rest = rest.view(self.inner.shape)
        else:
            rest = rest.new_zeros(self.inner.shape).masked_scatter(self.inner, rest)
        return torch.cat((first[:, None], rest), 1)

    @cached_property
    def lengths(self) -> Tensor:
        """(P,) prompt lengths."""
        return self.prompt_mask.sum(-1)

    @cached_property
    def prompt_tokens(self) -> int:
        """Packed prompt tokens."""
        return self.prompt_mask.numel() if self.full else int(self.lengths.sum())

    @cached_property
    def starts(self) -> Tensor:
        """(P,) packed place of each prompt's first token."""
        p, s = self.prompt_mask.shape
        if self.full:
            return torch.arange(0, p * s, s, device=self.index.device)
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def last(self) -> Tensor:
        """(P,) packed place of each prompt's last token."""
        return self.starts + self.lengths - 1

    @cached_property
    def positions(self) -> Tensor:
        """(N,) position of each packed token in its sequence."""
        of_prompts = torch.arange(self.prompt_mask.shape[1], device=self.index.device)
        of_inputs = torch.arange(self.inner.shape[1], device=self.index.device)
        of_inputs = self.lengths[self.index][:, None] + of_inputs
        return self.packed(of_prompts.expand(self.prompt_mask.shape), of_inputs)

    @cached_property
    def tiles(self) -> Tiles:
        """Places of packed tokens on padded tiles."""
        (p, s), t, device = self.prompt_mask.shape, self.inner.shape[1], self.index.device
        group, prompts, responses = len(self.index) // p, None, None
        if not self.full:
            slots, group, in_order = slots_of(self.index, p)
            if not bool(self.prompt_mask.all()):
                prompts = self.prompt_mask.flatten().nonzero()[:, 0]
            if not (in_order and bool(self.inner.all())):
                responses = (slots[:, None] * t + torch.arange(t, device=device))[self.inner]
        bias = torch.zeros(p, 1, 1, 1, t, s + t, device=device)
        bias[..., :s].masked_fill_(~self.prompt_mask[:, None, None, None, None], HIDDEN_SCORE)
        bias[..., s:] = causal_bias(t, device)
        return Tiles(group, prompts, responses, bias, causal_bias(s, device))

    @cached_property
    def ragged(self) -> Ragged:
        """Cumulative lengths and key places for the variable-length kernel."""
        inputs, lengths = self.inner.sum(-1), self.lengths  # (B,), (P,)
        used = (inputs > 0).nonzero()[:, 0]
        queries, seen = inputs[used], lengths[self.index[used]]
        keys = seen + queries
        # Places of a response's keys: its prompt's tokens, then its own.
        ends, own_starts = keys.cumsum(0), self.prompt_tokens + (inputs.cumsum(0) - inputs)[used]
        prompt_starts = self.starts[self.index[used]]
        row = torch.repeat_interleave(torch.arange(len(used), device=ends.device), keys)
        place = torch.arange(int(keys.sum()), device=ends.device) - (ends - keys)[row]
        inside = place < seen[row]
        keys_at = torch.where(inside, prompt_starts[row] + place, own_starts[row] + place - seen[row])

        def cumulative(values: Tensor) -> tuple[Tensor, int]:
            sums = torch.cat((ends.new_zeros(1), values.cumsum(0))).int()
            return sums, int(values.max()) if len(values) else 0

        return Ragged(keys_at, cumulative(lengths), cumulative(queries), cumulative(keys))


FullLayout = partial(Layout, full=True)


def causal_bias(n: int, device: torch.device) -> Tensor:
    """(n, n) what is added to scores to hide the future."""
    return torch.full((n, n), HIDDEN_SCORE, device=device).triu(1)


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
