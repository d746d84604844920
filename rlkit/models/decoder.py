"""A decoder-only forward pass in which the samples of a group share their prompt.

Runs the modules of a Hugging Face Qwen2, Qwen3 or Llama model (or of a peft model around one) over (P, S) distinct
prompts and (B, T) responses; only real tokens go through the layers. Numbers are those of the model's own forward
(tests compare the two to 1e-5). The trainer runs it on the modules themselves, the torch sampler on fused copies.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlkit.errors import UserError
from rlkit.models.attention import Layout, attention, scatter
from rlkit.models.kernels import EAGER, Kernels, Norm, interleaved
from rlkit.models.logprobs import logits_of
from rlkit.models.products import Product, base_of, merged_weight

FAMILIES = ("qwen2", "qwen3", "llama")


def require_supported(config: Any, field: str) -> None:
    """Raise UserError, beginning with `field`, where `Decoder` does not compute what this model computes."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or [])
    if config.model_type not in FAMILIES or sliding or config.hidden_act != "silu":
        raise UserError(
            f"{field} holds a {config.model_type!r} model, which the local trainer does not run. "
            f"It runs {', '.join(FAMILIES)} without sliding windows."
        )


class Prefix(NamedTuple):
    """The computed prompts: last hidden state (P, d) and each layer's keys and values (P, K, S, D)."""

    last: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor  # (P, S) bool
    lengths: Tensor  # (P,)

    @classmethod
    def joined(cls, parts: "Sequence[Prefix]") -> "Prefix":
        """Prompts that were computed apart, padded to the same S."""
        if len(parts) == 1:
            return parts[0]
        last, keys, values, mask, lengths = zip(*parts, strict=True)
        keys, values = ([torch.cat(x) for x in zip(*layers, strict=True)] for layers in (keys, values))
        return cls(torch.cat(last), keys, values, torch.cat(mask), torch.cat(lengths))


class Block:
    """A Hugging Face decoder layer as functions of activations, which computes in `dtype`; linear layers that share an
    input are one product."""

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
        norms = [n[0] for n in (self.input_norm, self.q_norm, self.k_norm, self.post_norm) if n is not None]
        products = [t for p in (self.qkv, self.output, self.gate_up, self.down) for t in p.tensors()]
        return norms + products


def norm_of(module: Any, frozen: bool, head_dim: int = 0) -> Norm:
    """A norm's weight, `interleaved` where it is that of heads, and epsilon; a copy where it is frozen."""
    weight = interleaved(module.weight, head_dim) if head_dim else module.weight
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

    def __init__(
        self, model: Any, frozen: bool = False, checkpointing: bool = False, kernels: Kernels = EAGER
    ) -> None:
        self.base = base = base_of(model)
        config = base.config
        require_supported(config, "model.path")
        self.core, self.frozen, self.checkpointing, self.kernels = base.model, frozen, checkpointing, kernels
        self.dtype = getattr(base, "compute_dtype", None) or self.core.embed_tokens.weight.dtype
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.layers = config.num_hidden_layers
        self._copies: tuple[list[Block], Tensor, Norm] | None = None
        if frozen:
            self._copies = self.weights()
            tied = base.lm_head.weight is self.core.embed_tokens.weight
            self._head = self._copies[1] if tied else merged_weight(base.lm_head).to(self.dtype)

    def weights(self) -> tuple[list[Block], Tensor, Norm]:
        """Blocks, embedding table and last norm; fused anew where gradients must reach the modules."""
        if self._copies is not None:
            return self._copies
        embedding, frozen = self.core.embed_tokens.weight, self.frozen
        if frozen:
            embedding = embedding.detach().to(self.dtype, copy=True)
        blocks = [Block(layer, self.dtype, frozen) for layer in self.core.layers]
        return blocks, embedding, norm_of(self.core.norm, frozen)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.core.embed_tokens.weight.device

    @property
    def head_weight(self) -> Tensor:
        """(V, d) weight of the output layer."""
        return self._head if self.frozen else self.base.lm_head.weight

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (N, V), in float32 where the model computes in less."""
        return logits_of(hidden, self.head_weight)

    @torch.no_grad()
    def refresh(self, model: Any) -> None:
        """Take over a model's weights in place, layer by layer, without a second copy of the model."""
        base = base_of(model)
        tied = self._head is self.weights()[1]
        theirs = [base.model.embed_tokens.weight, base.model.norm.weight]
        theirs += [] if tied else [merged_weight(base.lm_head)]
        layers = (Block(layer, self.dtype, frozen=True).tensors() for layer in base.model.layers)
        for old, new in zip(self.tensors(), chain(theirs, chain.from_iterable(layers)), strict=True):
            old.copy_(new)

    def tensors(self) -> list[Tensor]:
        """A frozen decoder's own copies."""
        blocks, embedding, norm = self.weights()
        own_head = [] if self._head is embedding else [self._head]
        return [embedding, norm[0], *own_head, *(t for block in blocks for t in block.tensors())]

    def prefill(self, ids: Tensor, mask: Tensor, kind: Callable[..., Layout] = Layout) -> Prefix:
        """Compute prompts `ids` (P, S), padded on the right where `mask` (P, S) is 0; `kind` says whether padding is
        computed too."""
        mask, (p, s) = mask.bool(), mask.shape
        layout = kind(mask, torch.arange(p, device=ids.device), mask[:, :1])  # no inputs of responses
        keys, values = [], []

        def attend(_, qkv):
            padded = scatter(qkv[:, self.heads :], layout.tiles.prompts, p * s).view(p, s, -1, self.head_dim)
            k, v = padded.transpose(1, 2).split(self.kv_heads, 1)  # (P, K, S, D)
            keys.append(k)
            values.append(v)
            return attention(qkv, layout, self.heads)

        hidden = self.run(layout.packed(ids, ids[:, :0]), self.turns(layout.positions), attend)  # (N, d)
        return Prefix(hidden[layout.last], keys, values, mask, layout.lengths)

    def states(self, ids: Tensor, responses: Tensor, layout: Layout) -> Tensor:
        """The states (N, d) from which the N tokens of responses (B, T) to prompts `ids` (P, S) are predicted, in the
        order of `layout.targets`."""
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
