"""Linear layers as matrix products: fused where they share an input, with LoRA adapters beside or merged."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlkit.models.kernels import interleaved

RANKS = 8  # the rank of fused adapters is filled up with zeros to a multiple: tensor cores ask for it


class Product:
    """The outputs of linear layers on one input, side by side: (N, in) → (N, sum of outputs).

    Frozen ones are detached copies with adapters merged in float32. Otherwise weights are concatenated inside autograd
    and cast to `dtype`, and plain LoRA adapters are one more pair of products for all the layers; other adapters, and
    dropout, run as peft wrote them. `head_dims` are sizes of heads whose outputs are `interleaved`, or 0.
    """

    def __init__(
        self, modules: Sequence[Any], dtype: torch.dtype, frozen: bool, head_dims: Sequence[int] = ()
    ) -> None:
        self.head_dims, self.dtype = head_dims or [0] * len(modules), dtype
        self.adapters = [] if frozen else [adapter_of(m) for m in modules]
        self.modules = modules if "own forward" in self.adapters else None
        if self.modules:
            return
        plain = [getattr(m, "base_layer", m) for m in modules]
        weights = [merged_weight(m) for m in modules] if frozen else [m.weight for m in plain]
        self.sizes = [len(w) for w in weights]
        shared = not frozen and not any(self.head_dims) and not any(w.requires_grad for w in weights)
        self.weight = (one_storage(weights) if shared else self._side_by_side(weights)).to(dtype)
        self.bias = None
        if plain[0].bias is not None:
            self.bias = self._side_by_side([m.bias for m in plain]).to(dtype)
        if frozen:
            self.weight = self.weight.detach()
            self.bias = None if self.bias is None else self.bias.detach().clone()

    def _side_by_side(self, parts: Sequence[Tensor], dim: int = 0) -> Tensor:
        """One tensor of what belongs to each layer, along the outputs."""
        arranged = [interleaved(p, h, dim) if h else p for p, h in zip(parts, self.head_dims, strict=True)]
        return torch.cat(arranged, dim) if len(arranged) > 1 else arranged[0]

    def tensors(self) -> list[Tensor]:
        """The fused weight and bias."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def __call__(self, x: Tensor) -> Tensor:
        if self.modules:
            return self._side_by_side([m(x) for m in self.modules], -1)
        if any(a is not None for a in self.adapters):
            return AdaptedLinear.apply(x, self.weight, self.bias, *self._fused_adapters())
        return F.linear(x, self.weight, self.bias)

    def added(self, total: Tensor, x: Tensor) -> Tensor:
        """total (N, outputs) + the product of x (N, in), in place where there is no gradient."""
        if torch.is_grad_enabled() or self.adapters or self.bias is not None or total.dtype != self.dtype:
            return total + self(x)
        return torch.addmm(total, x, self.weight.t(), out=total)  # FLOP counters know no addmm_

    def _fused_adapters(self) -> tuple[Tensor, Tensor]:
        """A (sum of ranks, in) of all adapters, and their scaled B on a block diagonal (outputs, sum of ranks)."""
        downs, ups = [], []
        for adapter, size, head_dim in zip(self.adapters, self.sizes, self.head_dims, strict=True):
            if adapter is None:
                ups.append(self.weight.new_zeros(size, 0))
                continue
            down, up, scaling = adapter
            downs.append(down)
            ups.append((interleaved(up, head_dim) if head_dim else up) * scaling)
        down, up = torch.cat(downs).to(self.dtype), torch.block_diag(*ups).to(self.dtype)
        filler = -len(down) % RANKS if down.is_cuda else 0
        return F.pad(down, (0, 0, 0, filler)), F.pad(up, (0, filler))


def one_storage(weights: Sequence[Tensor]) -> Tensor:
    """Frozen weights (out, in) as one tensor along the outputs. They become views of it, so that a second copy is
    neither held nor made again at the next pass."""
    first, sizes = weights[0].detach(), [len(w) for w in weights]
    one = len({w.untyped_storage().data_ptr() for w in weights}) == 1
    if one and all(b.data_ptr() == a.data_ptr() + a.nbytes for a, b in pairwise(weights)):
        return first.as_strided((sum(sizes), first.shape[1]), first.stride())
    fused = torch.cat([w.detach() for w in weights])
    for weight, part in zip(weights, fused.split(sizes), strict=True):
        weight.data = part
    return fused


class AdaptedLinear(torch.autograd.Function):
    """x (N, in) · (weight + up · down)ᵀ + bias, for a frozen weight (out, in), down (r, in) and up (out, r). Where
    there are more outputs than inputs, x · downᵀ stands beside x in one product with (weight up): nothing wide is read
    twice.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor) -> Tensor:
        inner = F.linear(x, down)  # (N, r)
        ctx.save_for_backward(x, inner, weight, down, up)
        if len(weight) > x.shape[1]:
            return F.linear(torch.cat((x, inner), 1), torch.cat((weight, up), 1), bias)
        return F.linear(x, weight, bias).addmm_(inner, up.t())

    @staticmethod
    def backward(ctx, *grads: Tensor):
        x, inner, weight, down, up = ctx.saved_tensors
        (grad,) = grads
        if not ctx.needs_input_grad[0]:  # the first layer's
            return None, None, None, (grad @ up).t() @ x, grad.t() @ inner
        if len(weight) > x.shape[1]:
            to_x, to_inner = (grad @ torch.cat((weight, up), 1)).split((x.shape[1], len(down)), 1)
        else:
            to_x, to_inner = grad @ weight, grad @ up
        return to_x.addmm_(to_inner, down), None, None, to_inner.t() @ x, grad.t() @ inner


def adapter_of(module: Any) -> Any:
    """(A (r, in), B (out, r), scaling) of a layer's plain adapter; None where none is active; "own forward" where only
    the layer itself can compute it (dropout, DoRA)."""
    if not hasattr(module, "base_layer"):
        return None if type(module) is nn.Linear else "own forward"
    if module.disable_adapters or not module.active_adapters:
        return None
    name, *others = module.active_adapters
    plain = isinstance(module.lora_dropout[name], nn.Identity) and name not in module.lora_variant
    if others or not plain or module.lora_bias.get(name):
        return "own forward"
    return module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name]


def base_of(model: Any) -> Any:
    """The causal model, without the peft model around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def merged_weight(module: Any) -> Tensor:
    """A copy of a linear layer's weight with its LoRA adapters added in float32."""
    if not hasattr(module, "base_layer"):
        return module.weight.clone()
    weight = module.base_layer.weight.float()
    for adapter in module.active_adapters:
        weight = weight + module.get_delta_weight(adapter).float()
    return weight.to(module.base_layer.weight.dtype)
