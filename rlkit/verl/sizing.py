"""How many GPUs a model needs, and what a step takes there: `rlkit plan params/scale_32b.yaml`.

Estimates from shapes, for verl's layout: weights, gradients and Adam's moments in float32, sharded over all GPUs
(FSDP2); bfloat16 compute with recomputed activations; vLLM on the same GPUs, asleep while the trainer works, beside
the weights and moments that stay while it samples.
FLOPs as in rlkit.compute. Decoding is bound by reading weights and the key-value cache. Not covered: traffic
between machines, padding, the time of graders and environments. Nothing here was measured beyond what
docs/scale.md says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from rlkit.compute import Shape, Work
from rlkit.config import Section
from rlkit.params import validate
from rlkit.sizing.devices import Device

Positive = Annotated[int, Field(gt=0)]
WEIGHT_BYTES = GRADIENT_BYTES = 4  # a parameter, float32
MOMENT_BYTES = 8
CHUNK = 512
"""Tokens whose logits verl's fused log-probs hold at a time."""
GB = 1e9


class SizingConfig(Section):
    """Everything a sizing file may hold."""

    sizing: Shape
    gpus: list[Positive]
    tensor_model_parallel_size: Positive = 1
    """GPUs that share one copy of the sampler's weights."""
    train_batch_size: Positive
    n: Positive
    prompt_tokens: Positive
    response_tokens: Positive
    """Mean length."""
    micro_batch_tokens: Positive = 32_768
    total_training_steps: Positive = 100
    runs: Positive = 1
    """Runs of the study."""
    lora: bool = False
    """Only an adapter trains: the base needs no gradients and no moments."""
    kl_reference: bool = False
    device: Device = Device()


@dataclass(frozen=True)
class Sizing:
    """`table`: one row a number of GPUs, with memory (GB a GPU), seconds a step and GPU-hours of the study."""

    config: SizingConfig
    table: pd.DataFrame

    def summary(self) -> str:
        c = self.config
        head = (
            f"{c.sizing.parameters / 1e9:.1f} B parameters, {c.train_batch_size} × {c.n} answers of "
            f"{c.response_tokens} tokens a step"
        )
        return head + "\n" + self.table.to_string(index=False, float_format="%.1f")


def size(content: Mapping[str, Any], where: str = "") -> Sizing:
    """Memory and time of a run on each number of GPUs. Raises UserError for a malformed file."""
    config: SizingConfig = validate(SizingConfig, content, where=where)
    return Sizing(config, pd.DataFrame([_row(config, gpus) for gpus in config.gpus]))


def _row(c: SizingConfig, gpus: int) -> dict[str, Any]:
    trainer, sampler = trainer_memory(c, gpus), sampler_memory(c)
    most = max(trainer, held_memory(c, gpus) + sampler)
    rollout, update = rollout_seconds(c, gpus), update_seconds(c, gpus)
    hours = gpus * (rollout + update) * c.total_training_steps * c.runs / 3600
    price = {} if c.device.per_hour is None else {"price": hours * c.device.per_hour}
    return {
        "gpus": gpus, "trainer_gb": trainer, "sampler_gb": sampler,
        "fits": most < 0.9 * c.device.memory_gb, "rollout_s": rollout, "update_s": update,
        "run_h": (rollout + update) * c.total_training_steps / 3600, "study_gpu_h": hours, **price,
    }  # fmt: skip


def held_memory(c: SizingConfig, gpus: int) -> float:
    """GB a GPU of what the trainer keeps while the sampler works: its share of weights and moments."""
    return (WEIGHT_BYTES + (0 if c.lora else MOMENT_BYTES)) * c.sizing.parameters / gpus / GB


def trainer_memory(c: SizingConfig, gpus: int) -> float:
    """GB a GPU: the sharded state, one gathered layer, recomputed activations and the log-probs' backward pass."""
    m = c.sizing
    gradients = 0 if c.lora else GRADIENT_BYTES * m.parameters / gpus
    gathered = 2 * 2 * (m.layer_weights / m.layers + m.vocab * m.hidden)
    activations = 2 * c.micro_batch_tokens * m.hidden * (m.layers + 20)
    return held_memory(c, gpus) + (gradients + gathered + activations + logprob_bytes(m)) / GB


def logprob_bytes(m: Shape) -> int:
    """Bytes of the backward pass of log-probs: five boards of a chunk's logits in float32, and in bfloat16 its part of
    the head's gradient beside their sum."""
    return 5 * 4 * CHUNK * m.vocab + 2 * 2 * m.vocab * m.hidden


def sampler_memory(c: SizingConfig) -> float:
    """GB a GPU of one copy's weights and the key-value cache of 64 sequences."""
    m = c.sizing
    weights = 2 * m.parameters / c.tensor_model_parallel_size
    return (weights + 64 * (c.prompt_tokens + c.response_tokens) * _cache_bytes(c)) / GB


def _cache_bytes(c: SizingConfig) -> float:
    """Of one token on one GPU."""
    m = c.sizing
    return 2 * 2 * m.layers * m.kv_heads * m.head_dim / min(c.tensor_model_parallel_size, m.kv_heads)


def rollout_seconds(c: SizingConfig, gpus: int) -> float:
    """Every copy decodes its share of the sequences together: a token costs a pass over weights and cache, or its
    FLOPs where those take longer."""
    m, copies = c.sizing, max(1, gpus // c.tensor_model_parallel_size)
    sequences = c.train_batch_size * c.n / copies
    room = 0.85 * c.device.memory_gb * GB - 2 * m.parameters / c.tensor_model_parallel_size
    together = max(1.0, min(sequences, room / ((c.prompt_tokens + c.response_tokens) * _cache_bytes(c))))
    cache = together * (c.prompt_tokens + c.response_tokens / 2) * _cache_bytes(c)
    read = 2 * m.parameters / c.tensor_model_parallel_size + cache
    token = max(
        read / (c.device.bytes_per_second * c.device.utilization),
        2 * m.parameters * together
        / (c.tensor_model_parallel_size * c.device.flops_per_second * c.device.utilization),
    )  # fmt: skip
    return sequences / together * c.response_tokens * token


def update_seconds(c: SizingConfig, gpus: int) -> float:
    """Old log-probs (and the reference's), and an update with recomputed activations: a forward pass more."""
    sequences = [(c.prompt_tokens, c.response_tokens)] * (c.train_batch_size * c.n)
    shape, work = c.sizing, Work.of([c.prompt_tokens] * len(sequences), sequences)
    forward = shape.forward(work)
    flops = forward * (1 + c.kl_reference) + 4 * forward
    return flops / (gpus * c.device.flops_per_second * c.device.utilization)
