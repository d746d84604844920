"""Samplers: where responses come from. All speak `rlkit.types.Sampler`."""

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler


def chosen(policy: "Policy", config: "RunConfig") -> tuple[str, str]:
    """(torch or vllm, why) for a policy here."""
    from rlkit.sizing.devices import Device, card
    from rlkit.sizing.run import sampler_of
    from rlkit.sizing.shapes import from_config

    on_gpu, shape = policy.device.type == "cuda", from_config(policy.base.config.to_dict())
    installed = importlib.util.find_spec("vllm") is not None
    return sampler_of(config, shape, card(policy.device) if on_gpu else Device(), on_gpu, installed)


def make_sampler(policy: "Policy", config: "RunConfig") -> tuple["Sampler", str]:
    """The sampler that `rollout.name` asks for, holding the policy's weights, and why it is that one."""
    r, d = config.rollout, config.data
    name, why = chosen(policy, config)
    if name == "vllm":
        from rlkit.samplers.vllm import VllmSampler
        from rlkit.sizing.memory import Setting
        from rlkit.sizing.run import together, trainer_held
        from rlkit.sizing.shapes import from_config

        setting = Setting.of(config, from_config(policy.base.config.to_dict()), on_gpu=True)
        sampler = VllmSampler(
            policy,
            max_num_seqs=together(config),
            max_model_len=d.max_prompt_length + d.max_response_length,
            gpu_memory_utilization=r.gpu_memory_utilization,
            trainer=sum(trainer_held(config, setting).values()),
        )
        return sampler, f"vllm: {why}"
    from rlkit.models.kernels import kernels_for
    from rlkit.samplers.torch import TorchSampler

    parameters = sum(p.numel() for p in policy.model.parameters())
    kernels = kernels_for(config, policy.device.type == "cuda", parameters)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id, r.max_num_seqs, kernels)
    return sampler, f"torch: {why}"
