"""Bytes of the local trainer's update, by part, from shapes.

What the backward pass keeps is counted tensor by tensor from rlkit.models.decoder; tests compare the sum with the
tensors that are alive, to 15 %. Two attentions are told apart: the grouped one (CPU, float32), which keeps weights
quadratic in the response, and the variable-length kernel (CUDA, 16 bits, passes that are not captured). Not covered:
adapters with dropout or other than plain LoRA, graders, what the allocator loses to fragmentation.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from rlkit.config import RunConfig
from rlkit.sizing.shapes import PRODUCTS, ModelShape, adapted

CHUNK = 2**26  # logits held at once, as in rlkit.models.logprobs
FLOAT = 4


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts and of responses."""

    prompt: int
    response: int

    @classmethod
    def limits(cls, config: RunConfig) -> "Lengths":
        """The longest that the config allows."""
        return cls(config.data.max_prompt_length, config.data.max_response_length)


@dataclass(frozen=True)
class Pass:
    """One forward pass of the update: `prompts` shared by `sequences`, at most `group` of them each, and how many
    such passes there are."""

    prompts: int
    sequences: int
    group: int
    lengths: Lengths
    count: int

    @classmethod
    def of(cls, config: RunConfig, lengths: Lengths, s: "Setting") -> "Pass":
        """The largest micro-batch of an optimizer step, cut as rlkit.training.forward does."""
        prompts = config.actor.ppo_mini_batch_size or config.data.train_batch_size
        total, n = prompts * config.rollout.n, config.rollout.n
        fits = config.actor.tokens_a_pass // (lengths.prompt + lengths.response)
        size = min(total, config.actor.ppo_micro_batch_size or max(1, fits))
        return cls(min(prompts, ceil(size / n)), size, min(size, n), lengths, ceil(total / size))

    @property
    def inputs(self) -> int:
        """Response tokens that are inputs."""
        return self.sequences * (self.lengths.response - 1)

    @property
    def tokens(self) -> int:
        """N: tokens that go through the layers."""
        return self.prompts * self.lengths.prompt + self.inputs

    @property
    def targets(self) -> int:
        """Tokens whose log-probs are computed."""
        return self.sequences * self.lengths.response

    @property
    def keys(self) -> int:
        """Keys that the responses see, counted a response."""
        return self.sequences * (self.lengths.prompt + self.lengths.response - 1)


@dataclass(frozen=True)
class Setting:
    """A model as it is trained: its shape, what is adapted, the precision and where."""

    shape: ModelShape
    rank: int
    targets: tuple[str, ...]
    checkpointing: bool
    item: int  # bytes of a number of the forward pass
    on_gpu: bool
    ragged: bool  # attention is the variable-length kernel
    kernels: Literal["eager", "compiled"]  # between the products

    @classmethod
    def of(cls, config: RunConfig, shape: ModelShape, on_gpu: bool) -> "Setting":
        m, half = config.model, config.model.dtype != "float32"
        targets = adapted(m.target_modules) if m.lora_rank else ()
        item = 2 if half else FLOAT
        ragged = on_gpu and half and not config.captures(on_gpu, shape.parameters)
        kernels = "compiled" if config.compiles(on_gpu, shape.parameters) else "eager"
        return cls(
            shape, m.lora_rank, targets, m.enable_gradient_checkpointing, item, on_gpu, ragged, kernels
        )

    @property
    def whole(self) -> bool:
        """All weights train."""
        return not self.rank

    @property
    def adapter(self) -> int:
        """Weights of the adapter."""
        return self.shape.adapter_weights(self.rank, self.targets)

    @property
    def trained(self) -> int:
        """Weights that train."""
        return self.shape.parameters if self.whole else self.adapter


def weights(s: Setting) -> int:
    """Bytes of the trainer's weights: float32 where they train, else in the model's precision; and the adapter."""
    return s.shape.parameters * (FLOAT if s.whole else s.item) + FLOAT * s.adapter


def fused(s: Setting) -> int:
    """Bytes of the copies of weights that a forward pass with gradients makes: layers side by side that share an
    input, all of them where master weights are cast."""
    casts = s.whole and s.item != FLOAT
    names = [name for product in PRODUCTS for name in product if casts or len(product) > 1]
    layers = sum(i * o for i, o in map(s.shape.linear, names))
    head = s.shape.vocab * s.shape.hidden if casts else 0
    return s.item * (s.shape.layers * layers + head)


def attention_kept(s: Setting, p: Pass) -> int:
    """Bytes that one layer's attention keeps for the backward pass, its output included."""
    m, n = s.shape, p.tokens
    out = n * m.q * s.item
    if s.ragged:
        rotated, gathered = n * (m.q + 2 * m.kv) * s.item, p.keys * 2 * m.kv * s.item
        return rotated + gathered + out + (out if _keeps_input(s, ("o_proj",)) else 0) + FLOAT * m.heads * n
    rows = p.prompts * (p.lengths.prompt + p.group * (p.lengths.response - 1))
    tiles = rows * (m.q + 2 * m.kv) * s.item
    return tiles + grouped_weights(s, p) + (out if _keeps_input(s, ("o_proj",)) else 0)


def grouped_weights(s: Setting, p: Pass) -> int:
    """Bytes of the attention weights of one layer in the grouped attention."""
    prompt, inputs = p.lengths.prompt, p.lengths.response - 1
    own = (
        p.prompts * p.group * inputs * (prompt + inputs)
    )  # groups stand on a board, each as large as the largest
    return s.item * s.shape.heads * (p.prompts * prompt**2 + own)


def _keeps_input(s: Setting, product: tuple[str, ...]) -> bool:
    """Whether a product's input is kept: a gradient to its weights or to an adapter needs it."""
    return s.whole or any(name in s.targets for name in product)


def layer_kept(s: Setting, p: Pass) -> int:
    """Bytes that one layer keeps for the backward pass: the residual stream in float32 at both norms, the inputs of
    products that train, attention, and the MLP's gates."""
    m, n = s.shape, p.tokens
    residual = 2 * FLOAT * n * (m.hidden + 1)
    inputs = sum(n * s.shape.linear(product[0])[0] * s.item for product in PRODUCTS if product != ("o_proj",)
                 and _keeps_input(s, product))  # fmt: skip
    gates = 2 * n * m.intermediate * s.item
    adapters = n * s.rank * len(s.targets) * s.item
    normed = n * (m.q + m.kv) * FLOAT if m.qk_norm else 0
    return residual + inputs + gates + adapters + normed + attention_kept(s, p)


def logits(s: Setting, p: Pass) -> tuple[int, int]:
    """Bytes that the log-probs keep, and what they need besides for a moment (rlkit.models.logprobs)."""
    v, d = s.shape.vocab, s.shape.hidden
    rows, head = max(1, CHUNK // v), v * d
    moment = s.item * head if s.whole else 0  # the head's gradient, before it is summed
    moment += FLOAT * head * (s.whole + (s.item != FLOAT and not s.on_gpu))  # its sum; its cast
    states = p.targets * d * s.item
    if p.targets <= rows:
        return states + FLOAT * p.targets * v, 2 * FLOAT * p.targets * v + moment
    chunk = rows * v
    return states + FLOAT * p.targets * d, (2 * FLOAT + s.item) * chunk + FLOAT * p.targets * d + moment


def layer_backward(s: Setting, p: Pass) -> int:
    """Bytes that the backward pass of one layer needs beside what was kept: gradients of the MLP's gates, or of the
    grouped attention's weights, and of the residual stream."""
    m, n = s.shape, p.tokens
    mlp = 3 * n * m.intermediate * s.item
    scores = 0 if s.ragged else 4 * grouped_weights(s, p)
    return max(mlp, scores) + 2 * FLOAT * n * m.hidden


def pass_parts(s: Setting, p: Pass) -> dict[str, int]:
    """Bytes at the fullest moment of a forward and backward pass, by part: copies of weights, activations, and the
    logits or, where it is more, what a layer's backward pass needs."""
    stream, last = FLOAT * p.tokens * s.shape.hidden, (FLOAT + s.item) * p.tokens * s.shape.hidden
    stays, moment = logits(s, p)
    head, layer = stays + moment, layer_backward(s, p)
    if s.checkpointing:  # one layer at a time is computed again, when the logits are gone
        layer += layer_kept(s, p)
    activations = s.shape.layers * (stream if s.checkpointing else layer_kept(s, p)) + last
    largest = {"logits": head} if head > layer else {"one layer's backward": layer}
    return {"fused weights": fused(s), "activations": activations, **largest}
