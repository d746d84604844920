"""`decode_attention` as one Triton kernel: each row reads its prompt's cache and its own, as far as they are written.

By batched products of torch the scores and their softmax go through memory several times, a prompt is copied for each
of its samples, and every row reads as many places as the longest. The algorithm is that of flash attention (Dao et al.,
arXiv 2205.14135) with the running maximum and sum kept per query head. Importing this module needs Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # places of the cache that are read at a time
ALONE = 16  # those of one query, by one warp: for ladder-3m's 512 rows 6 µs on an H200, as the others 32


def attend(
    qkv: Tensor, prompts: Tensor, own: Tensor, owner: Tensor, prompt: Tensor, lengths: Tensor, step: Tensor
) -> Tensor:
    """See `rlkit.samplers.cache.decode_attention`, whose arguments these are."""
    kv, d = prompts.shape[2], qkv.shape[-1]
    heads = qkv.shape[1] - 2 * kv
    out = torch.empty_like(qkv[:, :heads])
    exact = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    alone = heads == kv  # one query a key head: padded to a matrix unit's 16, most of its work would be for nothing
    _attend[(len(qkv), kv)](  # pyright: ignore[reportIndexIssue]  # triton's decorator has no types
        qkv, out, prompts[0], prompts[1], own[0], own[1], owner, prompt, lengths, step, d**-0.5,
        prompts.shape[3], own.shape[3], KV=kv, G=heads // kv,
        GROUP=1 if alone else max(16, triton.next_power_of_2(heads // kv)), D=d,
        WIDTH=max(16, triton.next_power_of_2(d)), BLOCK=ALONE if alone else BLOCK, EXACT=exact,
        num_warps=1 if alone else 4,
    )  # fmt: skip
    return out


@triton.jit
def _attend(
    qkv, out, prompt_keys, prompt_values, own_keys, own_values, owner, prompt, lengths, step, scale,
    prompt_places, own_places, KV: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One row's G query heads on one key head; they and the channels are padded to sizes of matrix units."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence = tl.load(owner + row)
    of = tl.load(prompt + sequence)
    length, t = tl.load(lengths + of), tl.load(step)
    g, d = tl.arange(0, GROUP), tl.arange(0, WIDTH)
    real = (g < G)[:, None] & (d < D)[None, :]
    at = (head * G + g)[:, None] * D + d[None, :]
    first = qkv + row * (G + 2) * KV * D
    q = tl.load(first + at, mask=real, other=0.0)  # (GROUP, WIDTH)
    key = tl.load(first + ((G * KV + head) * D + d), mask=d < D, other=0.0)
    value = tl.load(first + (((G + 1) * KV + head) * D + d), mask=d < D, other=0.0)
    here = (sequence * KV + head) * own_places * D
    tl.store(own_keys + here + t * D + d, key, mask=d < D)
    tl.store(own_values + here + t * D + d, value, mask=d < D)
    # The new token first: it is not read back from where it was just written.
    top = tl.sum(q.to(tl.float32) * key.to(tl.float32)[None, :], 1) * scale  # (GROUP,)
    total = tl.full((GROUP,), 1.0, tl.float32)
    mixed = tl.zeros((GROUP, WIDTH), tl.float32) + value.to(tl.float32)[None, :]
    there = (of * KV + head) * prompt_places * D
    top, total, mixed = _over(
        q, prompt_keys + there, prompt_values + there, length, scale, top, total, mixed, GROUP, D, WIDTH, BLOCK, EXACT
    )  # fmt: skip
    top, total, mixed = _over(
        q, own_keys + here, own_values + here, t, scale, top, total, mixed, GROUP, D, WIDTH, BLOCK, EXACT
    )
    tl.store(out + row * G * KV * D + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=real)


@triton.jit
def _over(
    q, keys, values, end, scale, top, total, mixed, GROUP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The running maximum (GROUP,), sum (GROUP,) and mixture of values (GROUP, WIDTH), after `end` more places."""
    d = tl.arange(0, WIDTH)
    for start in range(0, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        where, real = at[:, None] * D + d[None, :], (at < end)[:, None] & (d < D)[None, :]
        key = tl.load(keys + where, mask=real, other=0.0)  # (BLOCK, WIDTH)
        if GROUP == 1:
            scores = tl.sum(q.to(tl.float32) * key.to(tl.float32), 1)[None, :] * scale
        else:
            scores = tl.dot(q, tl.trans(key), input_precision=EXACT) * scale
        scores = tl.where((at < end)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights, before = tl.exp(scores - higher[:, None]), tl.exp(top - higher)
        total = total * before + tl.sum(weights, 1)
        value = tl.load(values + where, mask=real, other=0.0)
        if GROUP == 1:
            new = tl.sum(tl.trans(weights) * value.to(tl.float32), 0)[None, :]
        else:
            new = tl.dot(weights.to(value.dtype), value, input_precision=EXACT)
        mixed = mixed * before[:, None] + new
        top = higher
    return top, total, mixed
