"""Attention of one new token a row, on the keys and values of its prompt, which its group shares, and on its own."""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.kernels import missing_compiler


def fastest_attention(device: torch.device) -> Callable[..., Tensor]:
    """`decode_attention`, or the kernel that computes the same where there is a GPU and what compiles for it."""
    if device.type != "cuda":
        return decode_attention
    if (missing := missing_compiler()) is not None:
        warnings.warn(
            f"The torch sampler decodes slower and takes more memory here, which lacks {missing}.",
            stacklevel=2,
        )
        return decode_attention
    from rlkit.samplers.decode_kernel import attend

    return attend


def decode_attention(
    qkv: Tensor, prompts: Tensor, own: Tensor, owner: Tensor, prompt: Tensor, lengths: Tensor, step: Tensor
) -> Tensor:
    """Outputs (R, H, D) of rotated qkv (R, H + 2K, D), whose keys and values are written to the cache first.

    No step of it waits for the device, and its shapes are those of the caches: it can be captured in a CUDA graph.
    `decode_kernel.attend` computes the same, and reads only what is there.

    Args:
        prompts: keys and values (2, P, K, S, D) of the prompts.
        own: those (2, B, K, T, D) of the sequences' drawn tokens.
        owner: (R,) the sequence that each row computes.
        prompt: (B,) the prompt of each sequence.
        lengths: (P,) tokens of each prompt.
        step: (1,) how many tokens of each sequence are in the cache.
    """
    kv, s, t = prompts.shape[2], prompts.shape[3], own.shape[3]
    heads, at, of = qkv.shape[1] - 2 * kv, step.expand(len(qkv)), prompt[owner]
    own[:, owner, :, at] = qkv[:, heads:].unflatten(1, (2, kv))
    keys, values = torch.cat((prompts[:, of], own[:, owner]), 3)  # (R, K, S + T, D) each
    places = torch.arange(max(s, t), device=qkv.device)
    seen = torch.cat((places[:s] < lengths[of, None], places[:t] <= at[:, None]), 1)  # (R, S + T)
    # query heads that share a key head are queries of one attention
    q = qkv[:, :heads].unflatten(1, (kv, -1))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None, None]).flatten(1, 2)
