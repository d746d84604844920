"""Samplers: where responses come from. All speak `rlkit.types.Sampler`."""

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.sizing.memory import Setting
    from rlkit.types import Sampler

VLLM_FROM = 4_000_000_000
"""Parameters from which `auto` takes vLLM. The captured torch decoder made 107,000 tokens/s at 0.5B, 67,000 at 1.5B and
27,000 at 7B, vLLM 0.24 32,000, 21,000 to 33,000 and 25,000 (512 sequences of 512 tokens, bfloat16, H200)."""
HELD = 0.35
"""Share of a GPU's memory that the torch sampler may hold for `auto`: vLLM sleeps during the update, this does not."""


def choose(name: str, parameters: int, on_gpu: bool, installed: bool, held: float = 0.0) -> tuple[str, str]:
    """(torch or vllm, why) for a model of `parameters` weights when `rollout.name` is `name`; the torch sampler's
    weights and cache would hold the share `held` of the GPU's memory."""
    if name != "auto":
        return name, f"rollout.name is {name}"
    if not on_gpu:
        return "torch", "there is no GPU"
    if parameters < VLLM_FROM and held <= HELD:
        return "torch", f"{parameters:,} parameters decode faster in CUDA graphs than under vLLM's scheduler"
    why = (
        f"{parameters:,} parameters decode as fast in vLLM, which sleeps during the update"
        if parameters >= VLLM_FROM
        else f"the torch sampler would hold {held:.0%} of the GPU's memory during the update, and vLLM sleeps"
    )
    if not installed:
        return "torch", f"vLLM is not installed, and pip install 'rlkit[gpu]' would save memory: {why}"
    return "vllm", why


def chosen(policy: "Policy", config: "RunConfig") -> tuple[str, str]:
    """`choose` for a policy here."""
    parameters = sum(p.numel() for n, p in policy.model.named_parameters() if "lora_" not in n)
    installed = importlib.util.find_spec("vllm") is not None
    on_gpu = policy.device.type == "cuda"
    held = _share_held(policy, config) if on_gpu else 0.0
    return choose(config.rollout.name, parameters, on_gpu, installed, held)


def _share_held(policy: "Policy", config: "RunConfig") -> float:
    """Share of the policy's GPU that the torch sampler would hold."""
    from rlkit.sizing.devices import card
    from rlkit.sizing.memory import Lengths
    from rlkit.sizing.run import torch_held

    held = sum(torch_held(config, _setting(policy, config), Lengths.limits(config)).values())
    return held / (card(policy.device).memory_gb * 1e9)


def _setting(policy: "Policy", config: "RunConfig") -> "Setting":
    from rlkit.sizing.memory import Setting
    from rlkit.sizing.shapes import from_config

    return Setting.of(config, from_config(policy.base.config.to_dict()), on_gpu=True)


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
