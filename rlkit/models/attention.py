"""Attention over packed tokens in which the samples of a group share their prompt, and where those tokens belong.

Tokens are packed: those of the P distinct prompts first, then the inputs of the B responses, row by row, without
padding. A response token sees its prompt and the response tokens up to itself. Two implementations compute this:
`grouped_attention` by matrix products on padded tiles (any device and precision, deterministic, memory quadratic in the
response), and torch's variable-length flash kernel (CUDA, 16 bits). A `Layout` knows the places that both need.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

Lengths = tuple[Tensor, Tensor, int, int]
HIDDEN_SCORE = -3e4  # finite in 16 bits too, so that a padded row, which sees nothing, stays free of NaN


@dataclass(frozen=True)
class Layout:
    """Where the packed tokens of one forward pass belong.

    Attributes:
        prompt_mask, present: (P, S) and (B, T) bool, true on tokens, which are left-aligned, one at least in each row.
        index: (B,) prompt of each response.
        full: padding is packed like tokens, where nothing real sees it: no shape depends on what the masks hold, so
            that a pass can be captured as a CUDA graph. Every prompt has as many responses, side by side.
    """

    prompt_mask: Tensor
    index: Tensor
    present: Tensor
    full: bool = False

    @cached_property
    def inner(self) -> Tensor:
        """(B, T-1) true where a response token is an input: the last one is predicted only."""
        return torch.ones_like(self.present[:, 1:]) if self.full else self.present[:, 1:]

    def _chosen(self, values: Tensor, mask: Tensor) -> Tensor:
        return values.flatten(0, 1) if self.full else values[mask]

    def packed(self, prompts: Tensor, inputs: Tensor) -> Tensor:
        """(N,) values of prompts (P, S) and of the responses' inputs (B, T-1) in packed order."""
        return torch.cat((self._chosen(prompts, self.prompt_mask), self._chosen(inputs, self.inner)))

    def targets(self, responses: Tensor) -> Tensor:
        """(M,) what is predicted: each response's first token, then the others row by row."""
        return torch.cat((responses[:, 0], self._chosen(responses[:, 1:], self.inner)))

    def padded(self, values: Tensor) -> Tensor:
        """Values (M,) in the order of `targets` as (B, T), zero where there is no token."""
        first, rest = values.tensor_split([len(self.present)])
        shape = self.inner.shape
        rest = rest.view(shape) if self.full else rest.new_zeros(shape).masked_scatter(self.inner, rest)
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
    def last(self) -> Tensor:
        """(P,) packed place of each prompt's last token."""
        if self.full:
            return self._range(self.prompt_mask.numel(), self.prompt_mask.shape[1]) + self.lengths - 1
        return self.lengths.cumsum(0) - 1

    def _range(self, end: int, step: int = 1) -> Tensor:
        return torch.arange(0, end, step, device=self.index.device)

    @cached_property
    def positions(self) -> Tensor:
        """(N,) position of each packed token in its sequence."""
        prompts = self._range(self.prompt_mask.shape[1]).expand(self.prompt_mask.shape)
        return self.packed(prompts, self.lengths[self.index][:, None] + self._range(self.inner.shape[1]))

    @cached_property
    def tiles(self) -> tuple[int, Tensor | None, Tensor | None]:
        """G, the largest group, and the places of packed tokens on padded tiles: of prompts among (P, S), of responses'
        inputs among (P, G, T-1). None where nothing is padded."""
        p, t = len(self.prompt_mask), self.inner.shape[1]
        if self.full:
            return len(self.index) // p, None, None
        slots, group, in_order = slots_of(self.index, p)
        prompts = None if bool(self.prompt_mask.all()) else self.prompt_mask.flatten().nonzero()[:, 0]
        complete = in_order and bool(self.inner.all())
        return group, prompts, None if complete else (slots[:, None] * t + self._range(t))[self.inner]

    @cached_property
    def biases(self) -> tuple[Tensor, Tensor]:
        """What hides padding and the future from scores on tiles: (S, S) of prompts on themselves, and
        (P, 1, 1, 1, T-1, S+T-1) of response tokens on prompt and response."""
        (p, s), t, device = self.prompt_mask.shape, self.inner.shape[1], self.index.device
        future = torch.full((max(s, t), max(s, t)), HIDDEN_SCORE, device=device).triu(1)
        bias = torch.zeros(p, 1, 1, 1, t, s + t, device=device)
        bias[..., :s].masked_fill_(~self.prompt_mask[:, None, None, None, None], HIDDEN_SCORE)
        bias[..., s:] = future[:t, :t]
        return future[:s, :s], bias

    @cached_property
    def ragged(self) -> tuple[Tensor, Lengths, Lengths]:
        """For the variable-length kernel: the places of each response's keys, which are its prompt's tokens and then
        its own; (cumulative, cumulative, longest, longest) lengths of queries and keys of prompts and of responses."""
        inputs = self.inner.sum(-1)  # (B,)
        own, used = self.prompt_tokens + inputs.cumsum(0) - inputs, inputs > 0
        prompt = (self.last - self.lengths + 1)[self.index]
        first = prompt[:, None] + self._range(self.prompt_mask.shape[1])
        places = torch.cat((first, own[:, None] + self._range(self.inner.shape[1])), 1)  # (B, S+T-1)
        there = torch.cat((self.prompt_mask[self.index], self.inner), 1) & used[:, None]

        def cumulative(values: Tensor) -> tuple[Tensor, int]:
            sums = torch.cat((values.new_zeros(1), values.cumsum(0))).int()
            return sums, int(values.max()) if len(values) else 0

        (prompts, longest), (queries, most) = cumulative(self.lengths), cumulative(inputs[used])
        keys, most_keys = cumulative(there.sum(-1)[used])
        return places[there], (prompts, prompts, longest, longest), (queries, keys, most, most_keys)


def slots_of(index: Tensor, prompts: int) -> tuple[Tensor, int, bool]:
    """Slots (B,) among prompts × G of sequences of prompts `index` (B,); G, the largest group; whether in order."""
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


class Scores(torch.autograd.Function):
    """q (..., n, D) · k (..., m, D)ᵀ, whose gradient to k comes out as k lies, not transposed."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(q, k)
        return q @ k.transpose(-1, -2)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        q, k = ctx.saved_tensors
        return grads[0] @ k, grads[0].transpose(-1, -2) @ q


class AttentionWeights(torch.autograd.Function):
    """softmax(scores · scale + bias) in at least float32, overwriting scores; bias (..., n, m) is of every n rows."""

    @staticmethod
    def forward(ctx, scores: Tensor, bias: Tensor, scale: float) -> Tensor:
        scores.mul_(scale).unflatten(-2, (-1, bias.shape[-2])).add_(bias)
        exact = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.softmax(-1, dtype=exact).to(scores.dtype)
        ctx.save_for_backward(weights)
        ctx.scale = scale
        return weights

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (weights,) = ctx.saved_tensors
        gradient = torch.ops.aten._softmax_backward_data(grads[0], weights, -1, weights.dtype)
        return gradient.mul_(ctx.scale), None, None


def grouped_attention(qkv: Tensor, layout: Layout, heads: int) -> Tensor:
    """Attention (N, H, D) of packed, rotated qkv (N, H + 2K, D), by batches of plain matrix products.

    The g query heads that share a key head are rows of one product. The gradients to a prompt's keys and values sum
    over its group inside the products, so that nothing is copied per sample.
    """
    (group, prompts_at, responses_at), (prompt_bias, bias) = layout.tiles, layout.biases
    (p, s), t, d, n = layout.prompt_mask.shape, layout.inner.shape[1], qkv.shape[-1], layout.prompt_tokens
    kv, (prompts, responses) = (qkv.shape[1] - heads) // 2, qkv.split((n, len(qkv) - n))
    g = heads // kv
    q, k, v = scatter(prompts, prompts_at, p * s).view(p, s, -1, d).split((heads, kv, kv), 2)
    q = q.reshape(p, s, kv, g, d).permute(0, 2, 3, 1, 4).reshape(p, kv, g * s, d)
    prompt_k, prompt_v = k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()  # (P, K, S, D)
    weights = AttentionWeights.apply(Scores.apply(q, prompt_k), prompt_bias, d**-0.5)
    out = (weights @ prompt_v).view(p, kv, g, s, d).permute(0, 3, 1, 2, 4).reshape(p * s, heads, d)
    out = out if prompts_at is None else out[prompts_at]
    if t == 0:
        return out
    tiles = scatter(responses, responses_at, p * group * t).view(p, group, t, -1, d)
    q, k, v = tiles.split((heads, kv, kv), 3)
    q = q.reshape(p, group, t, kv, g, d).permute(0, 3, 1, 4, 2, 5).reshape(p, kv, group, g * t, d)
    k, v = k.permute(0, 3, 1, 2, 4).contiguous(), v.permute(0, 3, 1, 2, 4).contiguous()  # (P, K, G, T, D)
    on_prompt = Scores.apply(q.flatten(2, 3), prompt_k).view(p, kv, group, g * t, s)
    scores = torch.cat((on_prompt, Scores.apply(q, k)), -1)
    on_prompt, own = AttentionWeights.apply(scores, bias, d**-0.5).split((s, t), -1)
    of_responses = (on_prompt.flatten(2, 3) @ prompt_v).view_as(q) + own @ v
    of_responses = of_responses.view(p, kv, group, g, t, d).permute(0, 2, 4, 1, 3, 5).reshape(-1, heads, d)
    return torch.cat((out, of_responses if responses_at is None else of_responses[responses_at]))


class Gather(torch.autograd.Function):
    """Rows `x[places]`, whose gradient is summed in float32: a prompt's keys serve a whole group."""

    @staticmethod
    def forward(ctx, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (places,) = ctx.saved_tensors
        total = torch.zeros(ctx.shape, dtype=torch.float32, device=places.device)
        return total.index_add_(0, places, grads[0].float()).to(grads[0].dtype), None


@cache
def causal_kernel() -> Callable[..., Any]:
    """torch's variable-length flash kernel, causal; its options were renamed between torch 2.11 and 2.13."""
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    grouped = {"enable_gqa": True} if "enable_gqa" in known else {}
    return partial(varlen_attn, **causal, **grouped)


def ragged_attention(qkv: Tensor, layout: Layout, heads: int) -> Tensor:
    """The same attention by torch's variable-length flash kernel: no padding, memory linear in length."""
    kv, n, varlen_attn = (qkv.shape[1] - heads) // 2, layout.prompt_tokens, causal_kernel()
    keys_at, of_prompts, of_responses = layout.ragged
    q, k, v = qkv.split((heads, kv, kv), 1)
    prompts = varlen_attn(q[:n], k[:n], v[:n], *of_prompts)
    if len(q) == n:
        return prompts
    keys, values = Gather.apply(qkv[:, heads:], keys_at).split((kv, kv), 1)
    return torch.cat((prompts, varlen_attn(q[n:], keys, values, *of_responses)))


def attention(qkv: Tensor, layout: Layout, heads: int) -> Tensor:
    """Attention outputs (N, H, D) of packed, rotated qkv (N, H + 2K, D), K key heads for H query heads."""
    if qkv.is_cuda and qkv.dtype.itemsize == 2 and not layout.full:
        return ragged_attention(qkv, layout, heads)
    return grouped_attention(qkv, layout, heads)
