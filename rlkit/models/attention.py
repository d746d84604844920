"""Attention over packed tokens in which the samples of a group share their prompt.

Tokens stand packed: those of the P distinct prompts first, then the inputs of the B responses, row by row,
without padding. A response token sees its prompt and the response tokens up to itself. Two implementations
compute this: `GroupedAttention` by matrix products on small padded tiles (any device and precision,
deterministic, memory quadratic in the response), and torch's variable-length flash kernel (CUDA, 16 bits).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from rlkit.models.layout import FullLayout, Layout, spread


@dataclass
class Tile:
    """Queries, keys and values of the prompts (P, K, ...) and of the responses (P, K, G, ...), K key heads.

    `g` query heads share a key head; their rows stand above each other, so that every product is one batch of
    plain matrix products.
    """

    prompt_q: Tensor  # (P, K, g·S, D)
    prompt_k: Tensor  # (P, K, S, D)
    prompt_v: Tensor
    q: Tensor  # (P, K, G, g·T, D)
    k: Tensor  # (P, K, G, T, D)
    v: Tensor


class GroupedAttention(torch.autograd.Function):
    """Attention (N, H, D) of packed qkv (N, H + 2K, D), already rotated; scores are softmaxed in float32.

    The gradient to a prompt's keys and values sums over its group inside the matrix products, so that
    nothing is copied a sample or added by index.
    """

    @staticmethod
    def forward(ctx, qkv: Tensor, layout: Layout, heads: int) -> Tensor:
        tile = to_tile(qkv, layout, heads)
        weights = softmax(prompt_scores(tile, layout))
        prompt_out = weights @ tile.prompt_v
        own = softmax(response_scores(tile, layout)) if layout.inner.shape[1] else None
        out = None if own is None else weighted(own, tile)
        ctx.save_for_backward(weights, own, *vars(tile).values())
        ctx.layout, ctx.heads = layout, heads
        return from_tile(prompt_out, out, layout, heads)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        weights, own, *saved = ctx.saved_tensors
        layout, heads, tile = ctx.layout, ctx.heads, Tile(*saved)
        scale = tile.q.shape[-1] ** -0.5
        grad_prompt, grad = output_tile(grads[0], layout, heads, tile.k.shape[1])
        dv = weights.transpose(-1, -2) @ grad_prompt
        ds = softmax_gradient(grad_prompt @ tile.prompt_v.transpose(-1, -2), weights, scale)
        dq, dk = ds @ tile.prompt_k, ds.transpose(-1, -2) @ tile.prompt_q
        result = Tile(dq, dk, dv, tile.q, tile.k, tile.v)
        if own is not None and grad is not None:
            _response_gradient(result, tile, own, grad, scale)
        return gradient_rows(result, layout, heads), None, None


def _response_gradient(result: Tile, tile: Tile, own: Tensor, grad: Tensor, scale: float) -> None:
    """Fill in the gradients of response queries, keys and values, and add to those of the prompts."""
    s = tile.prompt_k.shape[2]
    flat = grad.flatten(2, 3)  # (P, K, G·g·T, D)
    dw = torch.cat(
        (
            (flat @ tile.prompt_v.transpose(-1, -2)).view(*own.shape[:-1], s),
            grad @ tile.v.transpose(-1, -2),
        ),
        -1,
    )
    ds = softmax_gradient(dw, own, scale)
    to_prompt, to_own = ds[..., :s].flatten(2, 3), ds[..., s:]
    result.prompt_v = result.prompt_v + own[..., :s].flatten(2, 3).transpose(-1, -2) @ flat
    result.prompt_k = result.prompt_k + to_prompt.transpose(-1, -2) @ tile.q.flatten(2, 3)
    result.q = (to_prompt @ tile.prompt_k).view_as(tile.q) + to_own @ tile.k
    result.k = to_own.transpose(-1, -2) @ tile.q
    result.v = own[..., s:].transpose(-1, -2) @ grad


def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


def softmax_gradient(grad: Tensor, weights: Tensor, scale: float) -> Tensor:
    """Gradient of the scaled scores from that of their softmax."""
    return torch.ops.aten._softmax_backward_data(grad, weights, -1, weights.dtype).mul_(scale)


def prompt_scores(tile: Tile, layout: Layout) -> Tensor:
    """(P, K, g·S, S) masked, scaled scores inside the prompts."""
    p, k, rows, d = tile.prompt_q.shape
    s = tile.prompt_k.shape[2]
    scores = (tile.prompt_q @ tile.prompt_k.transpose(-1, -2)).mul_(d**-0.5)
    return scores.view(p, k, -1, s, s).add_(layout.tiles.prompt_bias).view(p, k, rows, s)


def response_scores(tile: Tile, layout: Layout) -> Tensor:
    """(P, K, G, g·T, S+T) masked, scaled scores of responses on their prompts and on themselves."""
    p, k, group, rows, d = tile.q.shape
    s, t = tile.prompt_k.shape[2], tile.k.shape[3]
    on_prompt = (tile.q.flatten(2, 3) @ tile.prompt_k.transpose(-1, -2)).view(p, k, group, rows, s)
    scores = torch.cat((on_prompt, tile.q @ tile.k.transpose(-1, -2)), -1).mul_(d**-0.5)
    scores.view(p, k, -1, t, s + t).add_(layout.tiles.bias)
    return scores


def weighted(weights: Tensor, tile: Tile) -> Tensor:
    """(P, K, G, g·T, D) outputs."""
    s = tile.prompt_k.shape[2]
    on_prompt = weights[..., :s].flatten(2, 3) @ tile.prompt_v
    return on_prompt.view_as(tile.q) + weights[..., s:] @ tile.v


def to_tile(qkv: Tensor, layout: Layout, heads: int) -> Tile:
    """Packed qkv (N, H + 2K, D) as a Tile."""
    kv, d, n = (qkv.shape[1] - heads) // 2, qkv.shape[-1], layout.prompt_tokens
    g, (p, s), t, group = heads // kv, layout.prompt_mask.shape, layout.inner.shape[1], layout.tiles.group
    prompts = spread(qkv[:n], layout.tiles.prompts, p * s).view(p, s, heads + 2 * kv, d)
    responses = spread(qkv[n:], layout.tiles.responses, p * group * t).view(p, group, t, heads + 2 * kv, d)
    pq, pk, pv = prompts.split((heads, kv, kv), 2)
    q, k, v = responses.split((heads, kv, kv), 3)
    return Tile(
        pq.reshape(p, s, kv, g, d).permute(0, 2, 3, 1, 4).reshape(p, kv, g * s, d),
        pk.transpose(1, 2).contiguous(),
        pv.transpose(1, 2).contiguous(),
        q.reshape(p, group, t, kv, g, d).permute(0, 3, 1, 4, 2, 5).reshape(p, kv, group, g * t, d),
        k.permute(0, 3, 1, 2, 4).contiguous(),
        v.permute(0, 3, 1, 2, 4).contiguous(),
    )


def output_tile(x: Tensor, layout: Layout, heads: int, kv: int) -> tuple[Tensor, Tensor | None]:
    """Packed (N, H, D) as the outputs of prompts (P, K, g·S, D) and of responses (P, K, G, g·T, D)."""
    d, n = x.shape[-1], layout.prompt_tokens
    g, (p, s), t, group = heads // kv, layout.prompt_mask.shape, layout.inner.shape[1], layout.tiles.group
    prompts = spread(x[:n], layout.tiles.prompts, p * s).view(p, s, kv, g, d)
    of_prompts = prompts.permute(0, 2, 3, 1, 4).reshape(p, kv, g * s, d)
    if t == 0:
        return of_prompts, None
    responses = spread(x[n:], layout.tiles.responses, p * group * t).view(p, group, t, kv, g, d)
    return of_prompts, responses.permute(0, 3, 1, 4, 2, 5).reshape(p, kv, group, g * t, d)


def from_tile(prompts: Tensor, responses: Tensor | None, layout: Layout, heads: int) -> Tensor:
    """The inverse of `output_tile`: packed (N, H, D)."""
    (p, kv, _, d), s, t = prompts.shape, layout.prompt_mask.shape[1], layout.inner.shape[1]
    g = heads // kv
    rows = prompts.view(p, kv, g, s, d).permute(0, 3, 1, 2, 4).reshape(p * s, heads, d)
    packed = [rows if layout.tiles.prompts is None else rows.index_select(0, layout.tiles.prompts)]
    if responses is not None:
        group = responses.shape[2]
        rows = (
            responses.view(p, kv, group, g, t, d).permute(0, 2, 4, 1, 3, 5).reshape(p * group * t, heads, d)
        )
        packed.append(
            rows if layout.tiles.responses is None else rows.index_select(0, layout.tiles.responses)
        )
    return torch.cat(packed)


def gradient_rows(tile: Tile, layout: Layout, heads: int) -> Tensor:
    """Gradients of a Tile's queries, keys and values as packed (N, H + 2K, D)."""
    kv = tile.prompt_k.shape[1]
    q = from_tile(tile.prompt_q, tile.q, layout, heads)
    k = from_tile(tile.prompt_k, tile.k, layout, kv)
    v = from_tile(tile.prompt_v, tile.v, layout, kv)
    return torch.cat((q, k, v), 1)


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
    if qkv.is_cuda and qkv.dtype.itemsize == 2 and not isinstance(layout, FullLayout):
        return ragged_attention(qkv, layout, heads)
    return GroupedAttention.apply(qkv, layout, heads)


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, end: int, bias: Tensor) -> Tensor:
    """One query a sequence: q (A, H, D) on the first `end` places of a cache (A, K, W, D).

    `bias` (A, 1, 1, end) is added to the scores and hides places. Two batched products: torch's fused attention has
    blocks of many queries, and takes longer for one (twice the time of a token of ladder-3m on an H200).
    """
    (a, h, d), kv = q.shape, keys.shape[1]
    q, k = q.reshape(a * kv, h // kv, d), keys.flatten(0, 1)[:, :end].transpose(1, 2)
    # Scores of 10 rounded to bfloat16 would move log-probs by hundredths: their sums are kept.
    exact: Any = {"out_dtype": torch.float32} if q.is_cuda and q.dtype.itemsize == 2 else {}
    scores = torch.bmm(q, k, **exact).view(a, kv, h // kv, end)
    scores = torch.add(bias, scores, alpha=d**-0.5)
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(values.dtype).view(a * kv, h // kv, end)
    return torch.bmm(weights, values.flatten(0, 1)[:, :end]).view(a, h, d)
