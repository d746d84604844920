"""What is computed between a model's matrix products: norm, rotary embedding, SwiGLU, softmax over the vocabulary.

`EAGER` runs them operation by operation, with gradients written by hand where that saves passes over the activations.
`compiled()` makes one kernel of each and one of its gradient: worth the seconds of compiling where passes are large.
"""

import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_paths
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import compiles

Norm = tuple[Tensor, float]  # weight and epsilon
TINY = 1e-30  # instead of a zero that is divided by


class Kernels(NamedTuple):
    """One implementation of each."""

    norm: Callable[[Norm, Tensor, torch.dtype], Tensor]
    """(norm, x (..., d), dtype of the result): RMSNorm with statistics in at least float32."""
    rotary: Callable[[Tensor, Tensor, int], Tensor]
    """(qkv (N, H, D), complex turns (N, D/2), heads): rotary embedding of the first heads, channels `interleaved`."""
    swiglu: Callable[[Tensor], Tensor]
    """silu(gate) · up of side-by-side products (N, 2I) → (N, I)."""
    softmax: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    """(float32 logits (N, V), which it may overwrite, targets (N,)): log-probs (N,), entropies (N,), p (N, V)."""
    others: Callable[[Tensor, Tensor, torch.dtype], tuple[Tensor, Tensor, Tensor, Tensor]]
    """(logits, targets, dtype): log-probs and entropies likewise, the probabilities (N, V) in `dtype` given that it is
    another token than the target, and the probability (N,) of that."""
    added: Callable[[Norm, Tensor, Tensor, torch.dtype], tuple[Tensor, Tensor]] | None = None
    """(norm, x, y (N, d), dtype): x + y and its RMSNorm, where one kernel computes both."""


class RMSNorm(torch.autograd.Function):
    """x (..., d) over its root mean square, times w (d,); its gradient takes three passes, torch's eight on a CPU."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        inverse = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(epsilon).rsqrt_()[..., None]
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, weight)
        return normed * weight

    @staticmethod
    def backward(ctx, *grads: Tensor):
        normed, inverse, weight = ctx.saved_tensors
        product = grads[0] * normed
        to_weight = product.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        mean = (product @ weight).div_(-len(weight))[..., None]
        return (grads[0] * weight).addcmul_(normed, mean).mul_(inverse), to_weight, None


def rms_norm(norm: Norm, x: Tensor, to: torch.dtype) -> Tensor:
    dtype = torch.promote_types(x.dtype, torch.float32)
    x, weight, epsilon = x.to(dtype), norm[0].to(dtype), norm[1]
    if x.is_cuda:
        return F.rms_norm(x, (x.shape[-1],), weight, epsilon).to(to)
    return RMSNorm.apply(x, weight, epsilon).to(to)


def interleaved(x: Tensor, head_dim: int, dim: int = 0) -> Tensor:
    """Channels of heads along `dim`, i and i + D/2 of each side by side, as `rotate` takes them; with 0, x."""
    if not head_dim:
        return x
    pairs = x.unflatten(dim, (x.shape[dim] // head_dim, 2, head_dim // 2))
    first = dim % x.ndim
    return pairs.transpose(first + 1, first + 2).flatten(first, first + 2)


def rotate(x: Tensor, turn: Tensor, heads: int) -> Tensor:
    """Rotary embedding, in place, of the first `heads` of x (n, *, D), channels interleaved, by `turn` (n, D/2)."""
    pairs, turn = x[:, :heads].unflatten(-1, (-1, 2)), turn[:, None]
    if x.dtype == turn.real.dtype:
        torch.view_as_complex(pairs).mul_(turn)
    else:  # 16 bits have no complex numbers
        pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.to(turn.real.dtype)) * turn))
    return x


class Rotary(torch.autograd.Function):
    """`rotate` of a copy; its gradient is the rotation back."""

    @staticmethod
    def forward(ctx, x: Tensor, turn: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(turn)
        ctx.heads = heads
        return rotate(x.clone(), turn, heads)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (turn,) = ctx.saved_tensors
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        return rotate(grad, turn.conj().resolve_conj(), ctx.heads), None, None


def rotary(qkv: Tensor, turn: Tensor, heads: int) -> Tensor:
    """`rotate` with its gradient; in place where nothing asks for one."""
    return (Rotary.apply if torch.is_grad_enabled() else rotate)(qkv, turn, heads)


class SwiGLU(torch.autograd.Function):
    """silu(gate) · up of side-by-side products (N, 2I) → (N, I); keeps its input only, and writes one gradient."""

    @staticmethod
    def forward(ctx, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        result = torch.empty_like(gate_up)
        to_gate, to_up = result.chunk(2, -1)
        torch.mul(grads[0], F.silu(gate), out=to_up)
        torch.ops.aten.silu_backward.grad_input(grads[0] * up, gate, grad_input=to_gate)
        return result


def softmax(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `Kernels`; the same text is compiled."""
    logprobs = logits.log_softmax(-1)
    selected, p = logprobs.gather(-1, targets[:, None])[:, 0], logprobs.exp()
    return selected, -logprobs.mul_(p).sum(-1), p


def others(logits: Tensor, targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `Kernels`. The probability of the others is their sum: 1 − p of a likely token would be rounding."""
    selected, entropy, p = softmax(logits, targets)
    p = p.scatter_(-1, targets[:, None], 0.0)
    rest = p.sum(-1)
    return selected, entropy, p.div_(rest.clamp_min(TINY)[:, None]).to(dtype), rest


EAGER = Kernels(rms_norm, rotary, SwiGLU.apply, softmax, others)


def _norm(weight: Tensor, epsilon: float, x: Tensor, to: torch.dtype) -> Tensor:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    inverse = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return (x * inverse * weight.to(x.dtype)).to(to)


def _added(weight: Tensor, epsilon: float, x: Tensor, y: Tensor, to: torch.dtype) -> tuple[Tensor, Tensor]:
    return x + y, _norm(weight, epsilon, x + y, to)


def _rotary(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """Every channel by itself: with pairs stacked and heads joined a compiled kernel takes ten times as long."""
    x, odd = qkv.to(cos.dtype), torch.arange(qkv.shape[-1], device=qkv.device) % 2
    cos, sin = (y.repeat_interleave(2, -1)[:, None] for y in (cos, sin))
    other = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)  # of its pair
    turned = torch.arange(qkv.shape[1], device=qkv.device)[:, None] < heads
    return torch.where(turned, (x * cos + other * (sin * (2 * odd - 1))).to(qkv.dtype), qkv)


def _swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


@cache
def compiled() -> Kernels:
    """The same by torch.compile, at the first pass. Raises UserError where there is nothing to compile with."""
    if (missing := missing_compiler()) is not None:
        raise UserError(f"actor.use_torch_compile is true, which needs {missing}, or use false.")
    # Policies, critics and their passes with and without gradients each have a variant, and torch stops at eight.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    norm, added = _compiled(_norm, rows=(2,)), _compiled(_added, rows=(2, 3))
    turn = _compiled(_rotary, rows=(0, 1, 2))  # torch.compile knows no complex numbers
    return Kernels(
        norm=lambda weights, x, to: norm(*weights, x, to),
        rotary=lambda qkv, by, heads: turn(qkv, by.real, by.imag, heads),
        swiglu=_compiled(_swiglu, rows=(0,)),
        softmax=_compiled(softmax, rows=(0, 1)),
        others=_compiled(others, rows=(0, 1)),
        added=lambda weights, x, y, to: added(*weights, x, y, to),
    )


def _compiled(function: Callable[..., Any], rows: tuple[int, ...]) -> Callable[..., Any]:
    """Compiled for any number of rows of the arguments at `rows`, and constant widths: three times as fast on a GPU."""
    inner = torch.compile(function, dynamic=False, options={"emulate_precision_casts": True})

    def kernel(*arguments: Any) -> Any:
        for place in rows:
            torch._dynamo.maybe_mark_dynamic(arguments[place], 0)
        return inner(*arguments)

    return kernel


def kernels_for(config: RunConfig, on_gpu: bool, parameters: int) -> Kernels:
    """A run's, over a model of `parameters` weights. Raises UserError where `actor.use_torch_compile` asks in vain."""
    possible = config.actor.use_torch_compile is not None or missing_compiler() is None
    return compiled() if compiles(config, on_gpu, parameters) and possible else EAGER


def missing_compiler() -> str | None:
    """What torch.compile lacks here, and where it is had; None if it lacks nothing."""
    if not torch.cuda.is_available():
        there = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
        return None if there else "a C++ compiler"
    headers = Path(get_paths()["include"], "Python.h")
    lacks = {  # what Triton builds its launcher with, and the cards that it knows
        "Triton: pip install triton": find_spec("triton") is None,
        "a C compiler": not any(map(shutil.which, (os.environ.get("CC", "gcc"), "gcc", "clang"))),
        "Python's headers: apt-get install python3-dev": not headers.exists(),
        "a GPU of compute capability 7.0 or above": torch.cuda.get_device_capability() < (7, 0),
    }
    return next((what for what, missing in lacks.items() if missing), None)
