"""Which sampler a run takes, and how many sequences it decodes together."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlkit.compute import Shape
from rlkit.config import RunConfig

if TYPE_CHECKING:
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler

VLLM_FROM = 4_000_000_000
"""Parameters from which `auto` takes vLLM: version 0.1's torch decoder made 129,000 tokens/s at 0.5B and, not compiled,
27,000 at 7B, vLLM 0.24 32,000 and 25,000 (512 sequences of 512 tokens, bfloat16, H200)."""
HELD = 0.35
"""Share of a GPU's memory that the torch sampler may hold for `auto`: vLLM sleeps during the update, this does not."""


def together(config: RunConfig) -> int:
    """Sequences that are decoded at a time, in training or in an evaluation."""
    r, e, steps = config.rollout, config.evaluation, config.async_training.trigger_parameter_sync_step
    return min(max(config.data.train_batch_size * r.n * steps, e.size * e.n), r.max_num_seqs)


def chosen(config: RunConfig, shape: Shape, gpu: float | None, installed: bool = True) -> tuple[str, str]:
    """(torch or vllm, why) for a run on a GPU of `gpu` bytes (None: a CPU), where vLLM is `installed` or not."""
    if config.rollout.name != "auto":
        return config.rollout.name, f"rollout.name is {config.rollout.name}"
    if gpu is None:
        return "torch", "there is no GPU"
    tokens = together(config) * (config.data.max_prompt_length + config.data.max_response_length)
    item, size = 4 if config.model.dtype == "float32" else 2, f"{shape.parameters:,} parameters decode"
    held, small = item * (shape.parameters + tokens * shape.cache_width) / gpu, shape.parameters < VLLM_FROM
    if small and held <= HELD:
        return "torch", f"{size} faster in CUDA graphs than under vLLM's scheduler"
    why = f"{size} as fast in vLLM, which sleeps during the update"
    if small:
        why = f"the torch sampler would hold {held:.0%} of the GPU's memory in the update, and vLLM sleeps"
    if not installed:
        return "torch", f"vLLM is not installed, and pip install 'rlkit[gpu]' would save memory: {why}"
    return "vllm", why


def make_sampler(policy: "Policy", config: RunConfig) -> tuple["Sampler", str]:
    """The sampler that `rollout.name` asks for, holding the policy's weights, and why it is that one."""
    import torch

    r, d, on_gpu, shape = config.rollout, config.data, policy.device.type == "cuda", Shape.of(policy.model)
    memory = torch.cuda.get_device_properties(policy.device).total_memory if on_gpu else None
    name, why = chosen(config, shape, memory, find_spec("vllm") is not None)
    if name == "vllm":
        from rlkit.samplers.vllm import VllmSampler

        moments = 0 if config.actor.optimizer_offload else 8 * (shape.adapter_weights or shape.parameters)
        sampler = VllmSampler(
            policy, max_num_seqs=together(config), max_model_len=d.max_prompt_length + d.max_response_length,
            gpu_memory_utilization=r.gpu_memory_utilization, later=moments,
        )  # fmt: skip
    else:
        from rlkit.models.kernels import kernels_for
        from rlkit.samplers.torch import TorchSampler

        kernels = kernels_for(config, on_gpu, shape.parameters)
        sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id, r.max_num_seqs, kernels)
    return sampler, f"{name}: {why}"
