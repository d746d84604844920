"""Seconds of a step by phase, from FLOPs, bytes and launches.

A phase takes what its slowest resource takes: products at a share of the peak, memory at a share of the bandwidth,
kernels at a launch each. The shares are chosen by runs on H200s: whole training of ladder-3m and ladder-30m in
float32 and of ladder-30m in bfloat16, LoRA of ladder-100m with and without checkpointing, of SmolLM2-135M and of the
shapes of Qwen2.5 under vLLM, 0.5B to 7B, and under the torch sampler, 0.5B to 3B. They meet those steps to 15 %, and to
17 % where passes wait for launches. Whole training of models between 30M and 0.5B was not timed. What is the host's and
not the GPU's (launches from Python, vLLM's scheduler, texts and logs) is in proportion to what a launch takes there, a
typical host's where rlkit.sizing.host did not measure it: on a slow one, steps took up to 45 % longer than a typical
one's. Graders, environments, loading, evaluations, an engine's waking (0.25 to 0.65 s a step), `trainer.tf32` and the
launches that compiling saves are left out.
"""

from dataclasses import dataclass

from rlkit.compute import Work
from rlkit.config import RunConfig
from rlkit.sizing.devices import Device
from rlkit.sizing.memory import FLOAT, Lengths, Pass, Setting, layer_kept
from rlkit.sizing.run import cache_bytes, needs_critic, needs_reference, sampler_of, together
from rlkit.sizing.shapes import ModelShape

PRODUCTS = 0.7
"""Share of the peak that the update's products reach; on tensor cores those of layers of at least FULL."""
FULL = 1152
"""Width of a layer that fills tensor cores; a narrower one reaches a share in proportion."""
BANDWIDTH = 0.7
"""Share of the bandwidth that passes over activations reach."""
DECODE = {"torch": 0.45, "vllm": 0.6}
"""Share of the bandwidth at which caches are read while decoding; torch's is measured."""
LAUNCH = {"eager": 3.5e-5, "graph": 5e-6}
"""Seconds a kernel takes at least: replayed, or launched from Python amid a run, with what that does between kernels.
The latter is a typical host's: 32 to 50 µs in steps of ladder-100m on several, up to a third apart within a minute, and
54 on a slow one."""
SCHEDULER = {"torch": 0.0, "vllm": 3e-5}
"""Seconds a sequence and token of the sampler's host, beside which the GPU computes: vLLM's in process, 0.3B to 3B."""
KERNELS = {"forward": 46, "backward": 77, "adapted forward": 40, "adapted backward": 27}
"""Kernels a layer of a training pass, counted where they are not compiled."""
DECODED = {"eager": 14, "compiled": 9}
"""Kernels a layer of a decoded token: fitted to the times."""
DRAW = 40
"""Kernels that draw a token."""
DRAWN = 10
"""Times that the logits are written or read until a token is drawn."""
PASSES = {"eager": 9, "compiled": 10}
"""Times that what a layer keeps is written or read, there and back: in float32 by eager kernels, whatever the model's
precision."""
HOST = 2e-5
"""Seconds of Python a sequence and step: texts to tokens and back, batches, losses, logs."""


@dataclass(frozen=True)
class StepTime:
    """Seconds by phase, FLOPs of the update, and `total`."""

    phases: dict[str, float]
    update_flops: float

    @property
    def total(self) -> float:
        return sum(self.phases.values())


def seconds_of(
    config: RunConfig,
    shape: ModelShape,
    device: Device,
    on_gpu: bool,
    lengths: Lengths | None = None,
    launch: float | None = None,
) -> StepTime:
    """Time of one step in which all responses have `lengths` (default: the config's limits).

    Args:
        launch: seconds that a kernel launched from Python takes on the host (`launch_seconds` of rlkit.sizing.host);
            default: a typical one's.
    """
    launch = LAUNCH["eager"] if launch is None else launch
    s, lengths = Setting.of(config, shape, on_gpu), lengths or Lengths.limits(config)
    prompts, n = config.data.train_batch_size, config.rollout.n
    work = Work.of([lengths.prompt] * prompts, [(lengths.prompt, lengths.response)] * (prompts * n))
    flops = shape.shape(s.adapter)
    forward, training = flops.forward(work), flops.training(work)
    a = config.actor
    several = a.ppo_epochs > 1 or bool(a.ppo_mini_batch_size) or config.algorithm.use_kl_in_reward
    passes = int(several) + int(needs_reference(config)) + needs_critic(config)
    rounds = a.ppo_epochs + needs_critic(config) * config.critic.ppo_epochs
    parts = max(1, prompts // a.ppo_mini_batch_size) if a.ppo_mini_batch_size else 1
    update = (training + forward * s.checkpointing) * rounds
    p = Pass.of(config, lengths, s)
    there, back = (KERNELS[way] + KERNELS[f"adapted {way}"] * (s.rank > 0) for way in ("forward", "backward"))
    captured = config.captures(on_gpu, shape.parameters)
    phases = {
        "rollout": _rollout(config, s, device, lengths, launch),
        "log-probs": _time(forward * passes, s, device, p, passes * parts, there, launch),
        "update": _time(
            update, s, device, p, rounds * parts, there * (1 + s.checkpointing) + back,
            LAUNCH["graph"] if captured else launch,
        ),
        "sync": 3 * (s.item + FLOAT * s.whole) * shape.parameters / (BANDWIDTH * device.bytes_per_second),
        "host": _on_host(HOST, launch) * prompts * n,
    }  # fmt: skip
    return StepTime({name: value for name, value in phases.items() if value}, update)


def _products_per_second(s: Setting, device: Device) -> float:
    """FLOPs a second of matrix products."""
    if s.item == FLOAT:
        return PRODUCTS * device.float32_per_second
    return PRODUCTS * min(1.0, s.shape.hidden / FULL) * device.flops_per_second


def _on_host(seconds: float, launch: float) -> float:
    """What takes `seconds` on a typical host, on one where a launch takes `launch`."""
    return seconds * launch / LAUNCH["eager"]


def _time(
    flops: float, s: Setting, device: Device, p: Pass, times: int, kernels: int, launch: float
) -> float:
    """Of `times` the passes over a mini-batch, of `kernels` a layer that take `launch` seconds at least."""
    count = times * p.count
    products = flops / _products_per_second(s, device)
    moved = PASSES[s.kernels] * (FLOAT / s.item if s.kernels == "eager" else 1) * layer_kept(s, p)
    memory = count * s.shape.layers * moved / (BANDWIDTH * device.bytes_per_second)
    launches = launch * kernels * s.shape.layers * count if s.on_gpu else 0.0
    return max(products + memory, launches)


def _rollout(config: RunConfig, s: Setting, device: Device, lengths: Lengths, launch: float) -> float:
    """Every token goes through the products, reads each sequence's cache, and is drawn from the logits."""
    sampler, _ = sampler_of(config, s.shape, device, s.on_gpu)
    total = config.data.train_batch_size * config.rollout.n
    rows = min(total, together(config))
    cache = rows * (lengths.prompt + lengths.response / 2) * cache_bytes(s)
    products = 2 * s.shape.parameters * rows / _products_per_second(s, device)
    weights = s.item * s.shape.parameters / (BANDWIDTH * device.bytes_per_second)
    attention = cache / (DECODE[sampler] * device.bytes_per_second)
    draws = DRAWN * FLOAT * rows * s.shape.vocab / (BANDWIDTH * device.bytes_per_second)
    launches = (LAUNCH["graph"] if s.on_gpu else launch) * (DECODED[s.kernels] * s.shape.layers + DRAW)
    computed = max(products, weights) + attention + draws + launches
    token = max(computed, _on_host(SCHEDULER[sampler], launch) * rows)
    return -(-total // rows) * lengths.response * token
