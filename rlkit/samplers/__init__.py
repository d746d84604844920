"""Samplers: where responses come from, and which one a run takes. All speak `rlkit.types.Sampler`."""

import importlib.util
from typing import TYPE_CHECKING

from rlkit.compute import Shape
from rlkit.samplers.choice import chosen, together

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler


def make_sampler(policy: "Policy", config: "RunConfig") -> tuple["Sampler", str]:
    """The sampler that `rollout.name` asks for, holding the policy's weights, and why it is that one."""
    import torch

    r, d, on_gpu = config.rollout, config.data, policy.device.type == "cuda"
    memory = torch.cuda.get_device_properties(policy.device).total_memory if on_gpu else None
    shape, installed = Shape.of(policy.model), importlib.util.find_spec("vllm") is not None
    name, why = chosen(config, shape, memory, installed)
    if name == "vllm":
        from rlkit.samplers.vllm import VllmSampler

        moments = 0 if config.actor.optimizer_offload else 8 * (shape.adapter_weights or shape.parameters)
        sampler = VllmSampler(
            policy, max_num_seqs=together(config), max_model_len=d.max_prompt_length + d.max_response_length,
            gpu_memory_utilization=r.gpu_memory_utilization, later=moments,
        )  # fmt: skip
        return sampler, f"vllm: {why}"
    from rlkit.models.kernels import kernels_for
    from rlkit.samplers.torch import TorchSampler

    kernels = kernels_for(config, on_gpu, shape.parameters)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id, r.max_num_seqs, kernels)
    return sampler, f"torch: {why}"
