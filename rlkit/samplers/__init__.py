"""Samplers: where responses come from. All speak `rlkit.types.Sampler`."""

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler

VLLM_FROM = 400_000_000
"""Parameters from which `auto` takes vLLM. At 300M the captured torch decoder was 2.6 times as fast (512 sequences of
128 tokens, bfloat16, H100: 95,000 against 37,000 tokens/s); larger models were not compared."""


def choose(name: str, parameters: int, on_gpu: bool, installed: bool) -> tuple[str, str]:
    """(torch or vllm, why) for a model of `parameters` weights when `rollout.name` is `name`."""
    if name != "auto":
        return name, f"rollout.name is {name}"
    if not on_gpu:
        return "torch", "there is no GPU"
    if parameters < VLLM_FROM:
        return "torch", f"{parameters:,} parameters decode faster in CUDA graphs than under vLLM's scheduler"
    if not installed:
        return "torch", "vLLM is not installed; pip install 'rlkit[gpu]' makes a model of this size faster"
    return "vllm", f"{parameters:,} parameters decode faster in vLLM"


def chosen(policy: "Policy", config: "RunConfig") -> tuple[str, str]:
    """`choose` for a policy here."""
    parameters = sum(p.numel() for n, p in policy.model.named_parameters() if "lora_" not in n)
    installed = importlib.util.find_spec("vllm") is not None
    return choose(config.rollout.name, parameters, policy.device.type == "cuda", installed)


def make_sampler(policy: "Policy", config: "RunConfig") -> tuple["Sampler", str]:
    """The sampler that `rollout.name` asks for, holding the policy's weights, and why it is that one."""
    r, d, e = config.rollout, config.data, config.evaluation
    name, why = chosen(policy, config)
    if name == "vllm":
        from rlkit.samplers.vllm import VllmSampler
        from rlkit.sizing.memory import Setting
        from rlkit.sizing.run import trainer_held
        from rlkit.sizing.shapes import from_config

        setting = Setting.of(config, from_config(policy.base.config.to_dict()), on_gpu=True)
        together = max(d.train_batch_size * r.n, e.size * e.n)
        sampler = VllmSampler(
            policy,
            max_num_seqs=min(r.max_num_seqs, together),
            max_model_len=d.max_prompt_length + d.max_response_length,
            gpu_memory_utilization=r.gpu_memory_utilization,
            trainer=sum(trainer_held(config, setting).values()),
        )
        return sampler, f"vllm: {why}"
    from rlkit.samplers.torch import TorchSampler

    return TorchSampler(policy.model, policy.stop_ids, policy.pad_id, r.max_num_seqs), f"torch: {why}"
