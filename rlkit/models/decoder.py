"""A decoder-only forward pass in which the samples of a group share their prompt.

Runs the modules of a Hugging Face Qwen2, Qwen3 or Llama model (or of a peft model around one) over
`(P, S)` distinct prompts and `(B, T)` responses: the prompt of a group is computed once and its keys and
values are used by all G samples. For the short problems of a ladder study that halves the tokens. Positions,
masks and numbers are those of the model's own forward (tests compare the two to 1e-5). The trainer and the
torch sampler run this one pass: the trainer on the modules themselves, the sampler on fused copies.

Not covered: sliding windows, mixtures of experts, other architectures; they are refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlkit.errors import UserError

FAMILIES = ("qwen2", "qwen3", "llama")


def supported(config) -> bool:
    """Whether `Decoder` computes what this model computes."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or [])
    return config.model_type in FAMILIES and not sliding and config.hidden_act == "silu"


@dataclass
class Prefix:
    """The computed prompts: last hidden state (P, d) and each layer's keys and values (P, Hkv, S, D)."""

    last: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor  # (P, S) bool
    lengths: Tensor  # (P,)


Linear = Callable[[Tensor], Tensor]


@dataclass
class Block:
    """One layer as functions of activations: norms as (weight, epsilon), products that share an input fused."""

    input_norm: tuple[Tensor, float]
    qkv: Callable[[Tensor], tuple[Tensor, ...]]
    q_norm: tuple[Tensor, float] | None
    k_norm: tuple[Tensor, float] | None
    output: Linear
    post_norm: tuple[Tensor, float]
    gate_up: Callable[[Tensor], tuple[Tensor, ...]]
    down: Linear


def fused(*modules: Any, frozen: bool) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """One matrix product for linear layers on the same input.

    Frozen ones are detached copies with adapters merged in float32 (the base weights are never touched).
    Otherwise plain layers are concatenated inside autograd, and adapters run as they are.
    """
    if not frozen and not all(type(m) is nn.Linear for m in modules):
        return lambda x: tuple(m(x) for m in modules)
    weights = [merged_weight(m) if frozen else m.weight for m in modules]
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]  # (sum of outputs, inputs)
    biases = [getattr(m, "base_layer", m).bias for m in modules]
    bias = torch.cat(biases) if biases[0] is not None else None
    if frozen:
        weight, bias = weight.detach(), None if bias is None else bias.detach().clone()
    sizes = [len(w) for w in weights]
    return lambda x: F.linear(x, weight, bias).split(sizes, -1)


@torch.no_grad()
def merged_weight(module: Any) -> Tensor:
    """A copy of a linear layer's weight with its LoRA adapters added in float32."""
    if not hasattr(module, "base_layer"):
        return module.weight.clone()
    weight = module.base_layer.weight.float()
    for adapter in module.active_adapters:
        weight = weight + module.get_delta_weight(adapter).float()
    return weight.to(module.base_layer.weight.dtype)


def norm_of(module: Any, frozen: bool) -> tuple[Tensor, float]:
    """A norm's weight and epsilon."""
    return (module.weight.detach().clone() if frozen else module.weight), module.variance_epsilon


def block_of(layer: Any, frozen: bool) -> Block:
    """A Hugging Face decoder layer as a Block."""
    attn, mlp = layer.self_attn, layer.mlp
    q_norm, k_norm = getattr(attn, "q_norm", None), getattr(attn, "k_norm", None)  # Qwen3
    output, down = fused(attn.o_proj, frozen=frozen), fused(mlp.down_proj, frozen=frozen)
    return Block(
        input_norm=norm_of(layer.input_layernorm, frozen),
        qkv=fused(attn.q_proj, attn.k_proj, attn.v_proj, frozen=frozen),
        q_norm=None if q_norm is None else norm_of(q_norm, frozen),
        k_norm=None if k_norm is None else norm_of(k_norm, frozen),
        output=lambda x: output(x)[0],
        post_norm=norm_of(layer.post_attention_layernorm, frozen),
        gate_up=fused(mlp.gate_proj, mlp.up_proj, frozen=frozen),
        down=lambda x: down(x)[0],
    )


def rms_norm(norm: tuple[Tensor, float], x: Tensor) -> Tensor:
    """RMSNorm as one fused call; statistics in at least float32 as in the original."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(dtype), (x.shape[-1],), norm[0].to(dtype), norm[1]).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (..., D) by cos and sin that broadcast to it."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""attend(layer, q, k, v) for q (n, H, t, D) and new k, v (n, Hkv, t, D): the attention output (n, H, t, D)."""


class Decoder:
    """The forward pass over one model's modules.

    Args:
        model: a supported causal model, or a peft model around one.
        frozen: hold detached, fused copies of the weights as they are now (a sampler's view) instead of
            reading the modules at every call (the trainer's view, with gradients).
    """

    def __init__(self, model: Any, frozen: bool = False) -> None:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        if not supported(base.config):
            raise UserError(
                f"model.path holds a {base.config.model_type!r} model, which the local trainer does not run. "
                f"It runs {', '.join(FAMILIES)} without sliding windows."
            )
        self.core, self.frozen = base.model, frozen
        config = base.config
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.kv_heads, self.layers = config.num_key_value_heads, config.num_hidden_layers
        self.groups = config.num_attention_heads // config.num_key_value_heads
        if frozen:
            self.embedding = self.core.embed_tokens.weight.detach().clone()
            tied = base.lm_head.weight is self.core.embed_tokens.weight
            head = self.embedding if tied else merged_weight(base.lm_head)
            self.head: Linear = lambda x: F.linear(x, head)
            self._blocks = [block_of(layer, True) for layer in self.core.layers]
            self._norm = norm_of(self.core.norm, True)
        else:
            self.head = base.lm_head

    def weights(self) -> tuple[list[Block], Tensor, tuple[Tensor, float]]:
        """Blocks, embedding table and last norm, fused anew where gradients must reach the modules."""
        if self.frozen:
            return self._blocks, self.embedding, self._norm
        core = self.core
        return (
            [block_of(layer, False) for layer in core.layers],
            core.embed_tokens.weight,
            norm_of(core.norm, False),
        )

    def prefill(self, ids: Tensor, mask: Tensor, weights=None) -> Prefix:
        """Compute prompts `ids` (P, S), padded on the right where `mask` (P, S) is 0."""
        n, s = ids.shape
        mask = mask.bool()
        whole = bool(mask.all())
        causal = torch.ones(s, s, dtype=torch.bool, device=ids.device).tril()
        allowed = None if whole else (causal & mask[:, None, :])[:, None]
        keys, values = [], []

        def attend(_, q, k, v):
            keys.append(k)
            values.append(v)
            return self.attention(q, k, v, allowed, causal=whole)

        positions = torch.arange(s, device=ids.device)[None]  # (1, S): padding on the right shifts nothing
        hidden = self.run(ids, positions, attend, weights)  # (P, S, d)
        lengths = mask.sum(-1)
        last = hidden[torch.arange(n, device=ids.device), lengths - 1]  # (P, d)
        return Prefix(last, keys, values, mask, lengths)

    def extend(self, prefix: Prefix, index: Tensor, ids: Tensor, weights=None) -> Tensor:
        """Hidden states (B, T, d) of tokens `ids` (B, T) that follow the prompts `index` (B,).

        Padding of `ids` on the right changes no other position, since attention is causal.
        """
        b, t = ids.shape
        positions = prefix.lengths[index][:, None] + torch.arange(t, device=ids.device)  # (B, T)
        own = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril().expand(b, t, t)
        seen = prefix.mask[index][:, None, :].expand(b, t, prefix.mask.shape[1])  # (B, T, S)
        allowed = torch.cat((seen, own), -1)[:, None]  # (B, 1, T, S+T)

        def attend(layer, q, k, v):
            k = torch.cat((prefix.keys[layer].index_select(0, index), k), 2)  # (B, Hkv, S+T, D)
            v = torch.cat((prefix.values[layer].index_select(0, index), v), 2)
            return self.attention(q, k, v, allowed)

        return self.run(ids, positions, attend, weights)

    def hidden(self, prompt_ids: Tensor, prompt_mask: Tensor, index: Tensor, response_ids: Tensor) -> Tensor:
        """The states (B, T, d) from which each of the T response tokens is predicted.

        Position 0 is the prompt's last token; the last response token is never an input.
        """
        weights = self.weights()
        prefix = self.prefill(prompt_ids, prompt_mask, weights)
        first = prefix.last.index_select(0, index)[:, None]  # (B, 1, d)
        if response_ids.shape[1] == 1:
            return first
        return torch.cat((first, self.extend(prefix, index, response_ids[:, :-1], weights)), 1)

    def run(self, ids: Tensor, positions: Tensor, attend: Attend, weights=None) -> Tensor:
        """All layers over `ids` (n, t) at `positions` (n or 1, t); returns the normed states (n, t, d)."""
        blocks, embedding, last_norm = weights or self.weights()
        x = F.embedding(ids, embedding)  # (n, t, d)
        cos, sin = self.core.rotary_emb(x, positions)  # (n or 1, t, D)
        cos, sin = cos[:, None], sin[:, None]  # (n or 1, 1, t, D)
        for i, block in enumerate(blocks):
            x = self._layer(i, block, x, cos, sin, attend)
        return rms_norm(last_norm, x)

    def _layer(self, i: int, block: Block, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (y.view(n, t, -1, self.head_dim) for y in block.qkv(rms_norm(block.input_norm, x)))
        if block.q_norm is not None and block.k_norm is not None:  # Qwen3
            q, k = rms_norm(block.q_norm, q), rms_norm(block.k_norm, k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (n, H, t, D)
        y = attend(i, rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + block.output(y.transpose(1, 2).reshape(n, t, -1))
        gate, up = block.gate_up(rms_norm(block.post_norm, x))
        return x + block.down(F.silu(gate) * up)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool = False
    ) -> Tensor:
        """Softmax attention with grouped key heads; `allowed` is True where a query may look."""
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=allowed, is_causal=causal, enable_gqa=self.groups > 1
        )


class SelectedLogProbs(torch.autograd.Function):
    """Log-probabilities (N,) of `targets` (N,) under softmax of `logits` (N, V), and the entropy (N,).

    One softmax serves both, and the backward pass writes p − onehot once, where autograd's chain of
    log_softmax and gather writes three tensors of the size of the logits. The entropy carries no gradient.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor):
        logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        selected = logprobs.gather(-1, targets[:, None])[:, 0]
        p = logprobs.exp()
        entropy = -(logprobs.mul_(p)).sum(-1)
        ctx.save_for_backward(p, targets)
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(entropy)
        return selected, entropy

    @staticmethod
    def backward(ctx, grad: Tensor, _):
        p, targets = ctx.saved_tensors
        out = p * -grad[:, None]
        out[torch.arange(len(out), device=out.device), targets] += grad
        return out.to(ctx.dtype), None
