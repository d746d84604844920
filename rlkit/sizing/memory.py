"""Bytes that a run holds on a GPU, while it samples and while it learns, by part.

What the local trainer's backward pass keeps is counted tensor by tensor from rlkit.models.decoder; tests compare the
sum with the tensors that are alive, to 15 %. Two attentions are told apart: the grouped one (CPU, float32), which keeps
weights quadratic in the response, and the variable-length kernel (CUDA, 16 bits, passes that are not captured). On verl
everything that trains is in float32 and sharded over all GPUs (FSDP2). Not covered: adapters with dropout or other than
plain LoRA, graders, what the allocator loses to fragmentation.
"""

from copy import copy
from dataclasses import replace
from math import ceil, gcd

from rlkit.compute import adapted
from rlkit.config import LINEAR, RunConfig
from rlkit.config.rollout import VERLS_SHARE
from rlkit.models.shapes import CHUNK, captures, compiles, row_bucket, shape_of, width_bucket
from rlkit.samplers.choice import chosen, together
from rlkit.samplers.vllm_memory import FREE, SLEEPS_ABOVE, beside_cache
from rlkit.sizing.devices import Device

# Linear layers that share an input, and are one matrix product in rlkit.models.decoder.
PRODUCTS = (LINEAR[:3], LINEAR[3:4], LINEAR[4:6], LINEAR[6:])
FLOAT = 4
CONTEXT = 0.6e9  # the CUDA context and the libraries' workspaces, which torch does not count
USABLE = 0.95  # share of a device that can be filled before fragmentation ends the run
FUSED_ROWS = 512  # tokens whose logits verl's fused log-probs hold at a time
RECOMPUTED = 20  # times its width that a layer of verl's, computed again, keeps of a token

Parts = dict[str, dict[str, int]]
"""Bytes by part: `held` all the time, and besides it in the `rollout` and in the `update`."""


class Plan:
    """A run on a device: its model as it trains, the lengths of its sequences, and its update's largest forward pass,
    which is cut as rlkit.training.learner does; or of verl's dynamic batches, where each sequence has its own prompt.
    `lengths`: tokens of prompts, of responses, and of a batch's longest response; default: the config's limits. Raises
    UserError: the shape of the model is not known."""

    def __init__(self, config: RunConfig, device: Device, lengths: tuple[int, ...] = ()) -> None:
        self.config = c = sized(config, device)
        self.device, self.verl, m, gpu = device, c.trainer.backend == "verl", c.model, device.gpu
        self.gpus = c.trainer.nnodes * c.trainer.n_gpus_per_node
        self.rank, self.targets = m.lora_rank, adapted(m.target_modules) if m.lora_rank else ()
        plain = shape_of(m.path)
        self.shape = replace(plain, adapter_weights=plain.lora(self.rank, self.targets))
        self.item = FLOAT if m.dtype == "float32" else 2  # bytes of a number of the forward pass
        self.cache = self.shape.cache_width * self.item  # bytes of keys and values per token
        captured = captures(c, gpu, plain.parameters)
        self.captured = captured and not self.verl
        self.compiled = compiles(c, gpu, plain.parameters) and not self.verl
        self.ragged = gpu and self.item < FLOAT and not captured  # attention is the variable-length kernel
        self.checkpointing, self.offloads = m.enable_gradient_checkpointing, c.actor.optimizer_offload and gpu
        self.reference = c.actor.use_kl_loss or c.algorithm.use_kl_in_reward
        self.sampler = "vllm" if self.verl else chosen(c, plain, device.memory_gb * 1e9 if gpu else None)[0]
        limits = c.data.max_prompt_length, c.data.max_response_length
        self.prompt, self.response, *longest = lengths or limits
        self.longest = max([self.response, *longest])
        n = 1 if self.verl else c.rollout.n
        prompts = max(1, c.mini_batch_size * c.rollout.n // n // self.gpus)
        self.pass_tokens = c.actor.micro_batch_tokens or (16_384 if self.verl else c.actor.pass_tokens(gpu))
        fits = max(1, self.pass_tokens // (self.prompt + self.response))
        self.sequences = min(prompts * n, c.actor.ppo_micro_batch_size or fits)  # of a pass
        if self.verl:  # makes its passes equally large
            self.sequences = ceil(prompts / ceil(prompts / self.sequences))
        self.group = min(self.sequences, n)  # those that share a prompt
        begun = 1 + ceil((self.sequences - gcd(self.sequences, n)) / n)  # of a pass that begins amid a group
        self.prompts, self.passes = min(prompts, begun), ceil(prompts * n / self.sequences)
        # verl pads every row to the limits; here one prompt serves a group.
        self.width = sum(limits) if self.verl else self.prompt + self.response
        shared = (self.sequences - self.prompts) * self.prompt
        self.tokens = self.sequences * (self.width - 1) - shared  # through the layers

    @property
    def trained(self) -> int:
        """Weights that train."""
        return self.shape.adapter_weights or self.shape.parameters

    def critic(self) -> "Plan":
        """The critic as it is trained: an adapter over the policy's base, or whole, as always on verl."""
        critic, rank = copy(self), 0 if self.verl else self.config.critic.model.lora_rank
        critic.rank = self.rank if rank is None else rank
        critic.targets = self.targets if critic.rank else ()
        critic.shape = replace(self.shape, adapter_weights=self.shape.lora(critic.rank, critic.targets))
        return critic


def sized(config: RunConfig, device: Device) -> RunConfig:
    """The config with the `actor.micro_batch_tokens` that the trainer takes on a GPU: halved until it fits."""
    actor, tokens = config.actor, config.actor.pass_tokens(device.gpu)
    told = actor.micro_batch_tokens or actor.ppo_micro_batch_size or config.trainer.backend == "verl"
    while device.gpu and not told:
        config = config.model_copy(update={"actor": actor.model_copy(update={"micro_batch_tokens": tokens})})
        plan = Plan(config, device)
        told = tokens <= plan.prompt + plan.response or total(memory(plan), "update") <= room(device)
        tokens //= 2
    return config


def room(device: Device) -> float:
    """Bytes that a run can fill: less what the CUDA context takes and fragmentation loses."""
    return USABLE * (device.memory_gb * 1e9 - CONTEXT * device.gpu)


def total(parts: Parts, phase: str = "") -> int:
    """Bytes at a time in the rollout or the update; the most of both without a phase."""
    phases = [phase] if phase else ["rollout", "update"]
    return sum(parts["held"].values()) + max(sum(parts[name].values()) for name in phases)


def memory(plan: Plan) -> Parts:
    """Memory of a run on each of its GPUs."""
    held, update = trainer_held(plan), _update(plan)
    kept, rollout = _vllm(plan, sum(held.values())) if plan.sampler == "vllm" else _torch(plan)
    if plan.captured:  # what a captured pass needs is kept
        held["captured passes"] = sum(pass_parts(plan).values())
        update = {"gradients": FLOAT * plan.trained}
    return {"held": held | kept, "rollout": rollout, "update": update}


def trainer_held(plan: Plan) -> dict[str, int]:
    """What the trainer holds from its first optimizer step on, by part: weights in float32 where they train, else in
    the model's precision; beside a model that trains whole, its frozen reference."""
    shape, precise = plan.shape, FLOAT if plan.verl else plan.item
    held = {"weights": shape.parameters * (precise if plan.rank else FLOAT) + FLOAT * shape.adapter_weights}
    if not plan.offloads:
        held["optimizer"] = 2 * FLOAT * plan.trained
    if plan.reference and not plan.rank:
        held["reference"] = precise * shape.parameters
    if plan.config.algorithm.needs.critic:
        held["critic"] = 3 * FLOAT * (plan.critic().trained + shape.hidden + 1)
    return {name: size // plan.gpus for name, size in held.items()}


def _update(plan: Plan) -> dict[str, int]:
    """The fullest moment of the policy's or the critic's update. Gradients stand beside a pass where a pass came
    before it; otherwise they are whole when the activations are gone, and the embedding's is there twice."""
    moments = list[dict[str, int]]()
    for trained in (plan, plan.critic()) if plan.config.algorithm.needs.critic else (plan,):
        gradients = FLOAT * trained.trained // plan.gpus
        embedding = 0 if trained.rank else FLOAT * plan.shape.vocab * plan.shape.hidden
        moments += [
            {"gradients": gradients if plan.passes > 1 or plan.verl else 0, **pass_parts(trained)},
            {"gradients": gradients, "embedding's gradient": embedding},
            {"gradients": gradients, "optimizer": 2 * FLOAT * plan.trained * plan.offloads // plan.gpus},
        ]
    return max(moments, key=lambda parts: sum(parts.values()))


def pass_parts(plan: Plan) -> dict[str, int]:
    """Bytes at the fullest moment of a forward and backward pass, by part: copies of weights (on verl, of two layers
    and the head, gathered), activations, and the logits or, where it is more, what a layer's backward pass needs."""
    m, n, item = plan.shape, plan.tokens, plan.item
    stream, kept, head = FLOAT * n * m.hidden, layer_kept(plan), logits(plan)
    if plan.verl:
        layers = item * n * m.hidden * (m.layers + RECOMPUTED) if plan.checkpointing else m.layers * kept
        gathered = 2 * item * (m.layer_weights // m.layers + m.vocab * m.hidden)
        return {"gathered weights": gathered, "activations": layers, "logits": head}
    scores = 0 if plan.ragged else 4 * attention_weights(plan)
    layer = max(3 * n * m.intermediate * item, scores) + 2 * stream
    if plan.checkpointing:  # one layer at a time is computed again, when the logits are gone
        layer += kept
    activations = m.layers * (stream if plan.checkpointing else kept) + stream + item * n * m.hidden
    largest = {"logits": head} if head > layer else {"one layer's backward": layer}
    return {"fused weights": fused(plan), "activations": activations, **largest}


def fused(plan: Plan) -> int:
    """Bytes of the copies of weights that a forward pass with gradients makes: of layers that share an input, and of
    all where master weights are cast; of frozen ones those of queries, keys and values alone, and their adapters."""
    shape, casts = plan.shape, not plan.rank and plan.item != FLOAT
    copied = PRODUCTS[:1] if plan.rank else PRODUCTS if casts else [p for p in PRODUCTS if len(p) > 1]
    numbers = sum(i * o for product in copied for i, o in map(shape.linear, product))
    for product in PRODUCTS:
        ranks = plan.rank * sum(name in plan.targets for name in product)
        numbers += ranks * (shape.linear(product[0])[0] + sum(shape.linear(name)[1] for name in product))
    return plan.item * (shape.layers * numbers + casts * shape.vocab * shape.hidden)


def attention_weights(plan: Plan) -> int:
    """Bytes of the attention weights of one layer in the grouped attention, where groups are padded to the largest."""
    prompt, inputs = plan.prompt, plan.response - 1
    pairs = prompt**2 + plan.group * inputs * (prompt + inputs)
    return plan.item * plan.shape.heads * plan.prompts * pairs


def layer_kept(plan: Plan) -> int:
    """Bytes that one layer keeps for the backward pass: the residual stream in float32 at both norms, inputs of
    products that train, normed heads, attention, the MLP's gates and what adapters compute."""
    m, n, item, width = plan.shape, plan.tokens, plan.item, plan.shape.q + 2 * plan.shape.kv
    kept = 2 * FLOAT * n * (m.hidden + 1) + FLOAT * n * (m.q + m.kv) * m.qk_norm
    if plan.ragged:
        keys = plan.sequences * (plan.width - 1)  # gathered for each response
        kept += (n * (width + m.q) + keys * 2 * m.kv) * item + FLOAT * m.heads * n
    else:
        rows = plan.prompts * (plan.prompt + plan.group * (plan.response - 1))
        kept += rows * width * item + attention_weights(plan)
    trains = [p for p in PRODUCTS if not plan.rank or any(name in plan.targets for name in p)]
    inputs = sum(m.linear(product[0])[0] for product in trains)
    return kept + n * (inputs + 2 * m.intermediate + plan.rank * len(plan.targets)) * item


def logits(plan: Plan) -> int:
    """Bytes that the log-probs keep and need for a moment (rlkit.models.logprobs, or verl's fused ones)."""
    v, d, item, targets = plan.shape.vocab, plan.shape.hidden, plan.item, plan.sequences * plan.response
    rows, head, whole = max(1, CHUNK // v), v * d, not plan.rank
    if plan.verl:  # five boards of a chunk's logits, and its part of the head's gradient beside their sum
        return 5 * FLOAT * FUSED_ROWS * v + 2 * item * head
    moment = item * head * whole  # the head's gradient, before it is summed
    moment += FLOAT * head * (whole + (item != FLOAT and not plan.device.gpu))  # its sum; its cast
    if targets <= rows:
        return targets * d * item + 3 * FLOAT * targets * v + moment
    return targets * d * item + 2 * FLOAT * targets * d + (2 * FLOAT + item) * rows * v + moment


def _vllm(plan: Plan, held: int) -> tuple[dict[str, int], dict[str, int]]:
    """The engine's memory, all the time and in the rollout: what it wants, as far as there is room, at least what it
    starts with. A large one sleeps during the update; on verl every one, which takes a share."""
    rows, card = together(plan.config), plan.device.memory_gb * 1e9
    tensor = plan.config.rollout.tensor_model_parallel_size
    beside = beside_cache(plan.item * plan.shape.parameters // tensor, rows, plan.shape.vocab)
    sequence = (plan.prompt + plan.response) * plan.cache
    share = plan.config.rollout.gpu_memory_utilization or VERLS_SHARE * plan.verl
    least, wanted = beside + sequence // tensor, beside + rows * sequence
    if plan.verl:
        return {}, {"vLLM": int(max(least, share * card))}
    engine = int(share * card if share else max(least, min(wanted, FREE * (card - CONTEXT - held))))
    return ({}, {"vLLM": engine}) if engine > SLEEPS_ABOVE else ({"vLLM": engine}, {})


def _torch(plan: Plan) -> tuple[dict[str, int], dict[str, int]]:
    """The torch sampler's memory, all the time and in the rollout. A cache that CUDA graphs are bound to stays."""
    rows, held = together(plan.config), {"sampler's weights": plan.item * plan.shape.parameters}
    logits = 3 * FLOAT * rows * plan.shape.vocab  # and their softmax and its running sum
    prompts = ceil(rows / plan.config.rollout.n)
    computed = prompts * plan.prompt * plan.cache
    if plan.device.gpu:
        places = row_bucket(prompts) * width_bucket(plan.prompt) + row_bucket(rows) * plan.response
        return held | {"key-value cache": places * plan.cache}, {"prompts": computed, "logits": logits}
    own = rows * (plan.prompt + plan.response) * plan.cache
    return held, {"key-value cache": own + computed, "logits": logits}
