"""A decoder-only forward pass in which the samples of a group share their prompt.

Runs the modules of a Hugging Face Qwen2, Qwen3 or Llama model (or of a peft model around one) over (P, S) distinct
prompts and (B, T) responses; only real tokens go through the layers. Numbers are those of the model's own forward
(tests compare the two to 1e-5). The trainer runs it on the modules themselves, the torch sampler on fused copies.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlkit.compute import Shape
from rlkit.errors import UserError
from rlkit.models.attention import Layout, attention, scatter
from rlkit.models.kernels import EAGER, Kernels, Norm, interleaved
from rlkit.models.shapes import LAUNCH_BOUND

FAMILIES = ("qwen2", "qwen3", "llama")


def require_supported(config: Any, path: str) -> None:
    """Raise UserError where `Decoder` does not compute what the model at `path`, of this config, computes."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or [])
    if config.model_type not in FAMILIES or sliding or config.hidden_act != "silu":
        raise UserError(
            f"model.path {path!r} holds a {config.model_type!r} model, which the local trainer does not run. "
            f"It runs {', '.join(FAMILIES)} without sliding windows."
        )


class Product:
    """The outputs of linear layers on one input, side by side: (N, in) → (N, sum of outputs).

    Frozen ones are detached copies with adapters merged in float32. Otherwise weights are concatenated inside autograd
    and cast to `dtype`, and plain LoRA adapters are one more pair of products for all the layers; other adapters, and
    dropout, run as peft wrote them. `head_dims` are sizes of heads whose outputs are `interleaved`, or 0.
    """

    def __init__(self, modules: Sequence[Any], dtype: torch.dtype, frozen: bool, head_dims: Sequence[int] = ()) -> None:
        self.dtype, self.frozen, self.head_dims = dtype, frozen, head_dims or [0] * len(modules)
        self.adapters = [] if frozen else [adapter_of(m) for m in modules]
        self.modules = modules if "own forward" in self.adapters else None
        if self.modules:
            return
        plain = [getattr(m, "base_layer", m) for m in modules]
        adapted = frozen and any(m is not p for m, p in zip(modules, plain, strict=True))
        weights = [merged_weight(m) for m in modules] if adapted else [m.weight for m in plain]
        biases = [m.bias for m in plain if m.bias is not None]
        self.sizes = [len(w) for w in weights]
        shared = not (frozen or any(self.head_dims) or any(w.requires_grad for w in weights))
        self.weight = (one_storage(weights) if shared else self._side_by_side(weights)).to(dtype)
        self.bias = self._side_by_side(biases).to(dtype) if biases else None

    def _side_by_side(self, parts: Sequence[Tensor], dim: int = 0) -> Tensor:
        """One tensor of what belongs to each layer, along the outputs."""
        arranged = [interleaved(p, h, dim) for p, h in zip(parts, self.head_dims, strict=True)]
        return torch.cat(arranged, dim) if self.frozen or len(arranged) > 1 else arranged[0]

    def __call__(self, x: Tensor) -> Tensor:
        if self.modules:
            return self._side_by_side([m(x) for m in self.modules], -1)
        if not any(self.adapters):
            return F.linear(x, self.weight, self.bias)
        downs, ups = [], []
        for adapter, size, head_dim in zip(self.adapters, self.sizes, self.head_dims, strict=True):
            down, up, scaling = adapter or (self.weight[:0], self.weight.new_zeros(size, 0), 1.0)
            downs.append(down)  # (r, in) each; their scaled (out, r) on a block diagonal
            ups.append(interleaved(up, head_dim) * scaling)
        down, up = torch.cat(downs).to(self.dtype), torch.block_diag(*ups).to(self.dtype)
        return AdaptedLinear.apply(x, self.weight, self.bias, down, up)

    def added(self, total: Tensor, x: Tensor) -> Tensor:
        """total (N, outputs) + the product of x (N, in), in place where there is no gradient."""
        kept = torch.is_grad_enabled() or not self.frozen or self.bias is not None
        if kept or total.dtype != self.dtype:
            return total + self(x)
        return torch.addmm(total, x, self.weight.t(), out=total)  # FLOP counters know no addmm_


def one_storage(weights: Sequence[Tensor]) -> Tensor:
    """Frozen weights (out, in) as one tensor along the outputs, of which they become views: there is no copy."""
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
    there are more outputs than inputs, x · downᵀ stands beside x in one product with (weight up)."""

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
    """(A (r, in), B (out, r), scaling) of a layer's plain adapter, None, or "own forward" (dropout, DoRA)."""
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


class Prefix(NamedTuple):
    """Computed prompts: last hidden states (P, d), each layer's keys and values (2, P, K, S, D), and lengths (P,)."""

    last: Tensor
    layers: list[Tensor]
    lengths: Tensor


class Block:
    """A Hugging Face decoder layer as functions of activations; linear layers that share an input are one product."""

    def __init__(self, layer: Any, dtype: torch.dtype, frozen: bool) -> None:
        attn, mlp, size = layer.self_attn, layer.mlp, layer.self_attn.head_dim
        norms = (getattr(attn, name, None) for name in ("q_norm", "k_norm"))  # Qwen3's
        self.q_norm, self.k_norm = (n and norm_of(n, frozen, size) for n in norms)
        self.input_norm = norm_of(layer.input_layernorm, frozen)
        self.qkv = Product([attn.q_proj, attn.k_proj, attn.v_proj], dtype, frozen, (size, size, 0))
        self.output = Product([attn.o_proj], dtype, frozen)
        self.post_norm = norm_of(layer.post_attention_layernorm, frozen)
        self.gate_up = Product([mlp.gate_proj, mlp.up_proj], dtype, frozen)
        self.down = Product([mlp.down_proj], dtype, frozen)

    def tensors(self) -> list[Tensor]:
        """All weights, in a fixed order."""
        parts = [part for part in vars(self).values() if part is not None]
        tensors = ((p.weight, p.bias) if isinstance(p, Product) else p[:1] for p in parts)
        return [t for t in chain.from_iterable(tensors) if t is not None]


def norm_of(module: Any, frozen: bool, head_dim: int = 0) -> Norm:
    """A norm's weight, `interleaved` where it is that of heads, and epsilon; a copy where it is frozen."""
    weight = interleaved(module.weight, head_dim)
    if frozen:
        weight = weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
    return weight, module.variance_epsilon


Attend = Callable[[int, Tensor], Tensor]
"""attend(layer, qkv) for rotated qkv (N, H + 2K, D), H query and K key heads: the output (N, H, D)."""


class Decoder:
    """The forward pass over one model's modules, in `model.compute_dtype` where `load_policy` set one (bfloat16 over
    float32 master weights), otherwise in the weights' own precision.

    Args:
        model: a supported causal model, or a peft model around one.
        frozen: hold detached, fused copies of the weights as they are now instead of reading them at every call.
        checkpointing: keep only the input of each layer for the backward pass and compute the rest again.
    """

    def __init__(self, model: Any, frozen: bool = False, checkpointing: bool = False, kernels: Kernels = EAGER) -> None:
        self.base = base = base_of(model)
        shape = Shape.of(base)
        self.core, self.frozen, self.checkpointing, self.kernels = base.model, frozen, checkpointing, kernels
        embedding = self.core.embed_tokens.weight
        self.dtype, self.device = getattr(base, "compute_dtype", None) or embedding.dtype, embedding.device
        self.layers, self.heads, self.kv_heads = shape.layers, shape.heads, shape.kv_heads
        self.head_dim = shape.head_dim
        self.head_weight = base.lm_head.weight  # (V, d) of the output layer
        self._copies: tuple[list[Block], Tensor, Norm] | None = None
        if frozen:
            with torch.no_grad():
                self._copies = self.weights()
            tied = self.head_weight is embedding
            self.head_weight = self._copies[1] if tied else merged_weight(base.lm_head).to(self.dtype)
        # A small model's pass takes as long as its launches, of which packing is a sixth; in 16 bits the attention of
        # packed tokens takes less memory.
        small = shape.parameters <= LAUNCH_BOUND and self.dtype.itemsize > 2
        self.pads_prompts = small and self.device.type == "cuda"

    def weights(self) -> tuple[list[Block], Tensor, Norm]:
        """Blocks, embedding table and last norm; fused anew where gradients must reach the modules."""
        if self._copies is not None:
            return self._copies
        embedding, frozen = self.core.embed_tokens.weight, self.frozen
        if frozen:
            embedding = embedding.detach().to(self.dtype, copy=True)
        blocks = [Block(layer, self.dtype, frozen) for layer in self.core.layers]
        return blocks, embedding, norm_of(self.core.norm, frozen)

    @torch.no_grad()
    def refresh(self, model: Any) -> None:
        """Take over a model's weights in place, layer by layer, without a second copy of the model."""
        base = base_of(model)
        theirs = [base.model.embed_tokens.weight, base.model.norm.weight]
        theirs += [] if self.head_weight is self.weights()[1] else [merged_weight(base.lm_head)]
        layers = (Block(layer, self.dtype, frozen=True).tensors() for layer in base.model.layers)
        for old, new in zip(self.tensors(), chain(theirs, chain.from_iterable(layers)), strict=True):
            old.copy_(new)

    def tensors(self) -> list[Tensor]:
        """A frozen decoder's own copies."""
        blocks, embedding, norm = self.weights()
        own_head = [] if self.head_weight is embedding else [self.head_weight]
        return [embedding, norm[0], *own_head, *(t for block in blocks for t in block.tensors())]

    def prefill(self, ids: Tensor, mask: Tensor) -> Prefix:
        """Compute prompts `ids` (P, S), padded on the right where `mask` (P, S) is false."""
        (p, s), layers = mask.shape, []
        nobody = mask[:, :1]  # no inputs of responses
        layout = Layout(mask, torch.arange(p, device=ids.device), nobody, full=self.pads_prompts)

        def attend(_, qkv):
            padded = scatter(qkv[:, self.heads :], layout.tiles[1], p * s).view(p, s, 2, -1, self.head_dim)
            layers.append(padded.permute(2, 0, 3, 1, 4))
            return attention(qkv, layout, self.heads)

        hidden = self.run(layout.packed(ids, ids[:, :0]), self.turns(layout.positions), attend)  # (N, d)
        return Prefix(hidden[layout.last], layers, layout.lengths)

    def states(self, ids: Tensor, responses: Tensor, layout: Layout) -> Tensor:
        """States (N, d) that predict the N tokens of responses (B, T) to prompts `ids` (P, S), as `layout.targets`."""
        inputs, turns = layout.packed(ids, responses[:, :-1]), self.turns(layout.positions)
        hidden = self.run(inputs, turns, lambda _, qkv: attention(qkv, layout, self.heads))
        return torch.cat((hidden[layout.last].index_select(0, layout.index), hidden[layout.prompt_tokens :]))

    def turns(self, positions: Tensor) -> Tensor:
        """What rotary embedding turns queries and keys at `positions` (N,) by: complex (N, D/2), of modulus 1."""
        like = torch.empty(0, dtype=torch.promote_types(self.dtype, torch.float32), device=positions.device)
        cos, sin = (y[0, :, : self.head_dim // 2] for y in self.core.rotary_emb(like, positions[None]))
        return torch.complex(cos, sin)

    def run(self, ids: Tensor, turns: Tensor, attend: Attend) -> Tensor:
        """The normed states (N, d) of packed tokens `ids` (N,) at the positions of `turns` (N, D/2)."""
        blocks, embedding, last_norm = self.weights()
        # The residual stream is at least float32: rounded to bfloat16 at each of its many additions, it would move
        # log-probs by hundredths between two ways of computing the same thing.
        x = F.embedding(ids, embedding).to(torch.promote_types(self.dtype, torch.float32))  # (N, d)
        again = self.checkpointing and torch.is_grad_enabled()
        layer: Any = partial(checkpoint, self._layer, use_reentrant=False) if again else self._layer
        for i, block in enumerate(blocks):
            x = layer(i, block, x, turns, attend)
        return self.kernels.norm(last_norm, x, self.dtype)

    def _layer(self, i: int, block: Block, x: Tensor, turns: Tensor, attend: Attend) -> Tensor:
        norm, rotary, swiglu = self.kernels.norm, self.kernels.rotary, self.kernels.swiglu
        qkv = block.qkv(norm(block.input_norm, x, self.dtype)).view(len(x), -1, self.head_dim)
        if block.q_norm is not None and block.k_norm is not None:  # Qwen3
            q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
            qkv = torch.cat((norm(block.q_norm, q, q.dtype), norm(block.k_norm, k, k.dtype), v), 1)
        qkv = rotary(qkv, turns, self.heads + self.kv_heads)
        inner = attend(i, qkv).flatten(1)
        if self.kernels.added is None:
            x = block.output.added(x, inner)
            inner = norm(block.post_norm, x, self.dtype)
        else:
            x, inner = self.kernels.added(block.post_norm, x, block.output(inner), self.dtype)
        return block.down.added(x, swiglu(block.gate_up(inner)))
