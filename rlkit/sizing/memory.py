"""Bytes that a run holds on a GPU, while it samples and while it learns, by part.

What the local trainer's backward pass keeps is counted tensor by tensor from rlkit.models.decoder; tests compare the
sum with the tensors that are alive, to 15 %. Two attentions are told apart: the grouped one (CPU, float32), which keeps
weights quadratic in the response, and the variable-length kernel (CUDA, 16 bits, passes that are not captured). On verl
everything that trains is in float32 and sharded over all GPUs (FSDP2). Not covered: adapters with dropout or other than
plain LoRA, graders, what the allocator loses to fragmentation.
"""

from dataclasses import dataclass, replace
from math import ceil

from rlkit.compute import Shape, adapted
from rlkit.config import LINEAR, RunConfig
from rlkit.models.shapes import CHUNK, captures, compiles, row_bucket, width_bucket
from rlkit.samplers.choice import FREE, SLEEPS_ABOVE, beside_cache, chosen, together
from rlkit.sizing.devices import Device

PRODUCTS = (LINEAR[:3], LINEAR[3:4], LINEAR[4:6], LINEAR[6:])
"""Linear layers that share an input, and are one matrix product in rlkit.models.decoder."""
FLOAT = 4
CONTEXT = 0.6e9
"""The CUDA context and the libraries' workspaces, which torch does not count."""
USABLE = 0.95
"""Share of a device that can be filled before fragmentation ends the run."""
FUSED_ROWS = 512
"""Tokens whose logits verl's fused log-probs hold at a time."""
RECOMPUTED = 20  # times its width that a layer of verl's, computed again, keeps of a token


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts and of responses, and of the longest response of a batch (default: as all)."""

    prompt: int
    response: int
    longest: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest", max(self.longest, self.response))

    @classmethod
    def limits(cls, config: RunConfig) -> "Lengths":
        """The longest that the config allows."""
        return cls(config.data.max_prompt_length, config.data.max_response_length)


@dataclass(frozen=True)
class Setting:
    """A model as it is trained: its shape, what is adapted, the precision and where."""

    shape: Shape
    rank: int
    targets: tuple[str, ...]
    checkpointing: bool
    item: int  # bytes of a number of the forward pass
    on_gpu: bool
    ragged: bool  # attention is the variable-length kernel
    compiled: bool  # the kernels between the products
    offloads: bool  # the moments are in the host's memory between optimizer steps
    reference: bool  # log-probs of a reference policy are computed
    verl: bool
    gpus: int  # that share what trains
    tensor: int  # that share one copy of the sampler's weights

    @classmethod
    def of(cls, config: RunConfig, shape: Shape, on_gpu: bool) -> "Setting":
        m, t, a = config.model, config.trainer, config.actor
        item, targets = FLOAT if m.dtype == "float32" else 2, adapted(m.target_modules) if m.lora_rank else ()
        return cls(
            shape=replace(shape, adapter_weights=shape.lora(m.lora_rank, targets)), rank=m.lora_rank, targets=targets,
            checkpointing=m.enable_gradient_checkpointing, item=item, on_gpu=on_gpu,
            ragged=on_gpu and item < FLOAT and not captures(config, on_gpu, shape.parameters),
            compiled=compiles(config, on_gpu, shape.parameters), offloads=a.optimizer_offload and on_gpu,
            reference=a.use_kl_loss or config.algorithm.use_kl_in_reward, verl=t.backend == "verl",
            gpus=t.nnodes * t.n_gpus_per_node, tensor=config.rollout.tensor_model_parallel_size,
        )  # fmt: skip

    def critic(self, config: RunConfig) -> "Setting":
        """The critic as it is trained: an adapter over the policy's base, or whole, as always on verl."""
        rank = 0 if self.verl else config.critic.model.lora_rank
        rank = self.rank if rank is None else rank
        targets = self.targets if rank else ()
        shape = replace(self.shape, adapter_weights=self.shape.lora(rank, targets))
        return replace(self, shape=shape, rank=rank, targets=targets)

    @property
    def whole(self) -> bool:
        """All weights train."""
        return not self.rank

    @property
    def trained(self) -> int:
        """Weights that train."""
        return self.shape.adapter_weights or self.shape.parameters

    @property
    def cache(self) -> int:
        """Bytes of keys and values per token."""
        return self.shape.cache_width * self.item

    def keeps_input(self, product: tuple[str, ...]) -> bool:
        """Whether a product's input is kept: a gradient to its weights or to an adapter needs it."""
        return self.whole or any(name in self.targets for name in product)


@dataclass(frozen=True)
class Pass:
    """One forward pass of the update on a GPU: `prompts` shared by `sequences`, at most `group` of them each, and how
    many such passes there are."""

    prompts: int
    sequences: int
    group: int
    lengths: Lengths
    count: int

    @classmethod
    def of(cls, config: RunConfig, lengths: Lengths, s: Setting) -> "Pass":
        """The largest micro-batch of an optimizer step: cut as rlkit.training.learner does, or of verl's dynamic
        batches, in which every sequence has its own prompt."""
        n = 1 if s.verl else config.rollout.n
        prompts = max(1, config.mini_batch_size * config.rollout.n // n // s.gpus)
        fits = pass_tokens(config, s) // (lengths.prompt + lengths.response)
        size = min(prompts * n, config.actor.ppo_micro_batch_size or max(1, fits))
        return cls(min(prompts, ceil(size / n)), size, min(size, n), lengths, ceil(prompts * n / size))

    @property
    def tokens(self) -> int:
        """N: tokens that go through the layers."""
        return self.prompts * self.lengths.prompt + self.sequences * (self.lengths.response - 1)

    @property
    def targets(self) -> int:
        """Tokens whose log-probs are computed."""
        return self.sequences * self.lengths.response


def pass_tokens(config: RunConfig, s: Setting) -> int:
    """Tokens of a forward pass of the update."""
    return config.actor.micro_batch_tokens or (16_384 if s.verl else config.actor.pass_tokens(s.on_gpu))


def weights(s: Setting) -> int:
    """Bytes of the trainer's weights: float32 where they train, else in the model's precision; and the adapter."""
    return s.shape.parameters * (FLOAT if s.whole or s.verl else s.item) + FLOAT * s.shape.adapter_weights


def fused(s: Setting) -> int:
    """Bytes of the copies of weights that a forward pass with gradients makes: of layers side by side that share an
    input, and of all where master weights are cast. Of frozen ones those of queries, keys and values alone, whose
    channels are interleaved; beside them the adapters of each product are one pair of matrices."""
    casts = s.whole and s.item != FLOAT
    copied = PRODUCTS if casts else [p for p in PRODUCTS if len(p) > 1] if s.whole else PRODUCTS[:1]
    numbers = sum(i * o for product in copied for i, o in map(s.shape.linear, product))
    for product in PRODUCTS:
        ranks = s.rank * sum(name in s.targets for name in product)
        numbers += ranks * (s.shape.linear(product[0])[0] + sum(s.shape.linear(name)[1] for name in product))
    return s.item * (s.shape.layers * numbers + casts * s.shape.vocab * s.shape.hidden)


def attention_weights(s: Setting, p: Pass) -> int:
    """Bytes of the attention weights of one layer in the grouped attention, where groups are padded to the largest."""
    prompt, inputs = p.lengths.prompt, p.lengths.response - 1
    return s.item * s.shape.heads * p.prompts * (prompt**2 + p.group * inputs * (prompt + inputs))


def layer_kept(s: Setting, p: Pass) -> int:
    """Bytes that one layer keeps for the backward pass: the residual stream in float32 at both norms, the inputs of
    products that train, normed heads, attention, the MLP's gates and what adapters compute."""
    m, n, width = s.shape, p.tokens, s.shape.q + 2 * s.shape.kv
    residual = 2 * FLOAT * n * (m.hidden + 1)
    normed = FLOAT * n * (m.q + m.kv) * m.qk_norm
    if s.ragged:
        keys = p.sequences * (p.lengths.prompt + p.lengths.response - 1)  # gathered for each response
        attention = (n * (width + m.q) + keys * 2 * m.kv) * s.item + FLOAT * m.heads * n
    else:
        rows = p.prompts * (p.lengths.prompt + p.group * (p.lengths.response - 1))
        attention = rows * width * s.item + attention_weights(s, p)
    inputs = sum(m.linear(product[0])[0] for product in PRODUCTS if s.keeps_input(product))
    others = inputs + 2 * m.intermediate + s.rank * len(s.targets)
    return residual + normed + attention + n * others * s.item


def logits(s: Setting, p: Pass) -> int:
    """Bytes that the log-probs keep and need for a moment (rlkit.models.logprobs, or verl's fused ones)."""
    v, d = s.shape.vocab, s.shape.hidden
    rows, head = max(1, CHUNK // v), v * d
    if s.verl:  # five boards of a chunk's logits, and its part of the head's gradient beside their sum
        return 5 * FLOAT * FUSED_ROWS * v + 2 * s.item * head
    moment = s.item * head if s.whole else 0  # the head's gradient, before it is summed
    moment += FLOAT * head * (s.whole + (s.item != FLOAT and not s.on_gpu))  # its sum; its cast
    states = p.targets * d * s.item
    if p.targets <= rows:
        return states + 3 * FLOAT * p.targets * v + moment
    return states + 2 * FLOAT * p.targets * d + (2 * FLOAT + s.item) * rows * v + moment


def pass_parts(s: Setting, p: Pass) -> dict[str, int]:
    """Bytes at the fullest moment of a forward and backward pass, by part: copies of weights (on verl, of two layers
    and the head, gathered), activations, and the logits or, where it is more, what a layer's backward pass needs: the
    gradients of the residual stream, and of the MLP's gates or the grouped attention's weights."""
    m, n = s.shape, p.tokens
    stream, kept, head = FLOAT * n * m.hidden, layer_kept(s, p), logits(s, p)
    if s.verl:
        layers = s.item * n * m.hidden * (m.layers + RECOMPUTED) if s.checkpointing else m.layers * kept
        gathered = 2 * s.item * (m.layer_weights // m.layers + m.vocab * m.hidden)
        return {"gathered weights": gathered, "activations": layers, "logits": head}
    scores = 0 if s.ragged else 4 * attention_weights(s, p)
    layer = max(3 * n * m.intermediate * s.item, scores) + 2 * stream
    if s.checkpointing:  # one layer at a time is computed again, when the logits are gone
        layer += kept
    activations = m.layers * (stream if s.checkpointing else kept) + stream + s.item * n * m.hidden
    largest = {"logits": head} if head > layer else {"one layer's backward": layer}
    return {"fused weights": fused(s), "activations": activations, **largest}


@dataclass(frozen=True)
class Memory:
    """Bytes by part: `held` all the time, besides it in the `rollout` and in the `update`."""

    held: dict[str, int]
    rollout: dict[str, int]
    update: dict[str, int]

    @property
    def rollout_bytes(self) -> int:
        return sum(self.held.values()) + sum(self.rollout.values())

    @property
    def update_bytes(self) -> int:
        return sum(self.held.values()) + sum(self.update.values())

    @property
    def peak(self) -> int:
        """The most at a time."""
        return max(self.rollout_bytes, self.update_bytes)


def memory_of(config: RunConfig, shape: Shape, device: Device, lengths: Lengths | None = None) -> Memory:
    """Memory of a run on each of its GPUs, for prompts and responses of `lengths` (default: the config's limits)."""
    s, lengths = Setting.of(config, shape, device.gpu), lengths or Lengths.limits(config)
    held = trainer_held(config, s)
    if s.verl or chosen(config, shape, device.gpu_bytes)[0] == "vllm":
        sampler_held, rollout = _vllm(config, s, device, lengths, sum(held.values()))
    else:
        sampler_held, rollout = _torch(config, s, lengths)
    p = Pass.of(config, lengths, s)
    update = _update(config, s, p)
    if captures(config, device.gpu, shape.parameters) and not s.verl:  # what a captured pass needs is kept
        held["captured passes"] = sum(pass_parts(s, p).values())
        update = {"gradients": FLOAT * s.trained}
    return Memory(held | sampler_held, rollout, update)


def sized(config: RunConfig, shape: Shape, device: Device) -> RunConfig:
    """The config with the `actor.micro_batch_tokens` that its passes will have on a GPU where they are unset: what they
    begin with, halved until it fits as the trainer halves it."""
    actor = config.actor
    if (
        not device.gpu
        or actor.micro_batch_tokens
        or actor.ppo_micro_batch_size
        or config.trainer.backend == "verl"
    ):
        return config
    tokens, limit = actor.pass_tokens(device.gpu), room(device)
    longest = config.data.max_prompt_length + config.data.max_response_length
    while True:
        update = {"micro_batch_tokens": tokens}
        config = config.model_copy(update={"actor": actor.model_copy(update=update)})
        if tokens <= longest or memory_of(config, shape, device).update_bytes <= limit:
            return config
        tokens //= 2


def room(device: Device) -> float:
    """Bytes that a run can fill: less what the CUDA context takes and fragmentation loses."""
    return USABLE * (device.memory_gb * 1e9 - CONTEXT * device.gpu)


def trainer_held(config: RunConfig, s: Setting) -> dict[str, int]:
    """What the trainer holds from its first optimizer step on, by part. The reference is a frozen copy of the model in
    the passes' precision, on verl in float32; an adapter is switched off instead."""
    held = {"weights": weights(s)}
    if not s.offloads:
        held["optimizer"] = 2 * FLOAT * s.trained
    if s.reference and s.whole:
        held["reference"] = (FLOAT if s.verl else s.item) * s.shape.parameters
    if config.algorithm.needs.critic:
        held["critic"] = 3 * FLOAT * (s.critic(config).trained + s.shape.hidden + 1)
    return {name: size // s.gpus for name, size in held.items()}


def _update(config: RunConfig, s: Setting, p: Pass) -> dict[str, int]:
    """The fullest moment of the policy's or the critic's update. Gradients stand beside a pass where a pass came
    before it; otherwise they are whole when the activations are gone, and the embedding's is there twice."""
    fullest: dict[str, int] = {}
    for trained in (s, s.critic(config)) if config.algorithm.needs.critic else (s,):
        gradients = FLOAT * trained.trained // s.gpus
        embedding = FLOAT * s.shape.vocab * s.shape.hidden * trained.whole
        moments = 2 * FLOAT * s.trained * s.offloads // s.gpus
        during = {"gradients": gradients if p.count > 1 or s.verl else 0, **pass_parts(trained, p)}
        after = {"gradients": gradients, "embedding's gradient": embedding}
        stepped = {"gradients": gradients, "optimizer": moments}
        fullest = max(fullest, during, after, stepped, key=lambda parts: sum(parts.values()))
    return fullest


def _vllm(
    config: RunConfig, s: Setting, device: Device, lengths: Lengths, held: int
) -> tuple[dict[str, int], dict[str, int]]:
    """The engine's memory, all the time and in the rollout: what it wants, as far as there is room, and no less than it
    starts with (rlkit.samplers.vllm). A large one sleeps during the update; on verl every one, which takes a share."""
    rows, total = together(config), device.memory_gb * 1e9
    beside = beside_cache(s.item * s.shape.parameters // s.tensor, rows, s.shape.vocab)
    sequence = (lengths.prompt + lengths.response) * s.cache
    share = config.rollout.gpu_memory_utilization or 0.5 * s.verl
    least, wanted = beside + sequence // s.tensor, beside + rows * sequence
    if s.verl:
        return {}, {"vLLM": int(max(least, share * total))}
    engine = int(share * total if share else max(least, min(wanted, FREE * (total - CONTEXT - held))))
    return ({}, {"vLLM": engine}) if engine > SLEEPS_ABOVE else ({"vLLM": engine}, {})


def _torch(config: RunConfig, s: Setting, lengths: Lengths) -> tuple[dict[str, int], dict[str, int]]:
    """The torch sampler's memory, all the time and in the rollout. A cache that CUDA graphs are bound to stays."""
    rows = together(config)
    held = {"sampler's weights": s.item * s.shape.parameters}
    logits = 3 * FLOAT * rows * s.shape.vocab  # and their softmax and its running sum
    prompts = -(-rows // config.rollout.n)
    computed = prompts * lengths.prompt * s.cache
    if s.on_gpu:
        places = row_bucket(prompts) * width_bucket(lengths.prompt) + row_bucket(rows) * lengths.response
        return held | {"key-value cache": places * s.cache}, {"prompts": computed, "logits": logits}
    width = lengths.prompt + lengths.response
    return held, {"key-value cache": rows * width * s.cache + computed, "logits": logits}
