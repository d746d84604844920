"""Attention over packed tokens in which the samples of a group share their prompt.

Tokens are packed: those of the P distinct prompts first, then the inputs of the B responses, row by row, without
padding. A response token sees its prompt and the response tokens up to itself. Two implementations compute this:
`grouped_attention` by matrix products on padded tiles (any device and precision, deterministic, memory quadratic in the
response), and torch's variable-length flash kernel (CUDA, 16 bits).
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from rlkit.models.layout import Layout, scatter


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
    """softmax(scores · scale + bias) over the last dimension, in at least float32 and kept as `scores`, which are
    overwritten. `bias` (..., n, m) is added to every n rows of the scores."""

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
    tiles, kv, d = layout.tiles, (qkv.shape[1] - heads) // 2, qkv.shape[-1]
    g, (p, s), t, group = heads // kv, layout.prompt_mask.shape, layout.inner.shape[1], tiles.group
    prompts, responses = qkv.split((layout.prompt_tokens, len(qkv) - layout.prompt_tokens))
    q, k, v = scatter(prompts, tiles.prompts, p * s).view(p, s, -1, d).split((heads, kv, kv), 2)
    q = q.reshape(p, s, kv, g, d).permute(0, 2, 3, 1, 4).reshape(p, kv, g * s, d)
    prompt_k, prompt_v = k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()  # (P, K, S, D)
    weights = AttentionWeights.apply(Scores.apply(q, prompt_k), tiles.prompt_bias, d**-0.5)
    out = (weights @ prompt_v).view(p, kv, g, s, d).permute(0, 3, 1, 2, 4).reshape(p * s, heads, d)
    out = out if tiles.prompts is None else out[tiles.prompts]
    if t == 0:
        return out
    q, k, v = (
        scatter(responses, tiles.responses, p * group * t).view(p, group, t, -1, d).split((heads, kv, kv), 3)
    )
    q = q.reshape(p, group, t, kv, g, d).permute(0, 3, 1, 4, 2, 5).reshape(p, kv, group, g * t, d)
    k, v = k.permute(0, 3, 1, 2, 4).contiguous(), v.permute(0, 3, 1, 2, 4).contiguous()  # (P, K, G, T, D)
    on_prompt = Scores.apply(q.flatten(2, 3), prompt_k).view(p, kv, group, g * t, s)
    scores = torch.cat((on_prompt, Scores.apply(q, k)), -1)
    on_prompt, own = AttentionWeights.apply(scores, tiles.bias, d**-0.5).split((s, t), -1)
    of_responses = (on_prompt.flatten(2, 3) @ prompt_v).view_as(q) + own @ v
    of_responses = of_responses.view(p, kv, group, g, t, d).permute(0, 2, 4, 1, 3, 5).reshape(-1, heads, d)
    return torch.cat((out, of_responses if tiles.responses is None else of_responses[tiles.responses]))


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
    kv, n, ragged = (qkv.shape[1] - heads) // 2, layout.prompt_tokens, layout.ragged
    varlen_attn = causal_kernel()
    q, k, v = qkv.split((heads, kv, kv), 1)
    starts, longest = ragged.prompts
    prompts = varlen_attn(q[:n], k[:n], v[:n], starts, starts, longest, longest)
    if ragged.queries[1] == 0:
        return prompts
    keys, values = Gather.apply(qkv[:, heads:], ragged.keys_at).split((kv, kv), 1)
    responses = varlen_attn(
        q[n:], keys, values, ragged.queries[0], ragged.keys[0], ragged.queries[1], ragged.keys[1]
    )
    return torch.cat((prompts, responses))


def attention(qkv: Tensor, layout: Layout, heads: int) -> Tensor:
    """Attention outputs (N, H, D) of packed, rotated qkv (N, H + 2K, D), K key heads for H query heads."""
    if qkv.is_cuda and qkv.dtype.itemsize == 2 and not layout.full:
        return ragged_attention(qkv, layout, heads)
    return grouped_attention(qkv, layout, heads)
