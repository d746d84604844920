"""Samplers: where responses come from. All speak `rlkit.types.Sampler`."""

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.sizing.memory import Setting
    from rlkit.types import Sampler


def chosen(policy: "Policy", config: "RunConfig") -> tuple[str, str]:
    """(torch or vllm, why) for a policy here, by `rlkit.sizing.run.choose`."""
    from rlkit.sizing.devices import card
    from rlkit.sizing.memory import Lengths
    from rlkit.sizing.run import choose, torch_held

    setting, on_gpu = _setting(policy, config), policy.device.type == "cuda"
    installed = importlib.util.find_spec("vllm") is not None
    held = sum(torch_held(config, setting, Lengths.limits(config)).values()) if on_gpu else 0
    memory = card(policy.device).memory_gb * 1e9 if on_gpu else 1.0
    return choose(config.rollout.name, setting.shape.parameters, on_gpu, installed, held / memory)


def _setting(policy: "Policy", config: "RunConfig") -> "Setting":
    from rlkit.sizing.memory import Setting
    from rlkit.sizing.shapes import from_config

    return Setting.of(config, from_config(policy.base.config.to_dict()), policy.device.type == "cuda")


def make_sampler(policy: "Policy", config: "RunConfig") -> tuple["Sampler", str]:
    """The sampler that `rollout.name` asks for, holding the policy's weights, and why it is that one."""
    r, d, e = config.rollout, config.data, config.evaluation
    name, why = chosen(policy, config)
    if name == "vllm":
        from rlkit.samplers.vllm import VllmSampler
        from rlkit.sizing.run import trainer_held

        together = max(d.train_batch_size * r.n, e.size * e.n)
        sampler = VllmSampler(
            policy,
            max_num_seqs=min(r.max_num_seqs, together),
            max_model_len=d.max_prompt_length + d.max_response_length,
            gpu_memory_utilization=r.gpu_memory_utilization,
            trainer=sum(trainer_held(config, _setting(policy, config)).values()),
        )
        return sampler, f"vllm: {why}"
    from rlkit.samplers.torch import TorchSampler

    return TorchSampler(policy.model, policy.stop_ids, policy.pad_id, r.max_num_seqs), f"torch: {why}"
