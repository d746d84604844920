"""A platform for verl that is the CPU: its trainer runs without a GPU, for one integration test.

verl loads this module in every process (VERL_USE_EXTERNAL_MODULES). Ray is told of a GPU that does not exist,
so nothing here is fit for real training.
"""

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry

ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # the key under which verl looks up its FSDP engine
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
OVERRIDES = {
    "+ray_kwargs.ray_init.num_gpus": 1,
    "actor_rollout_ref.rollout.free_cache_engine": False,
    "+actor_rollout_ref.rollout.enable_sleep_mode": False,
    "actor_rollout_ref.rollout.enforce_eager": True,
    "trainer.device": "cpu",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
}


def returns(value: Any) -> Any:
    """A function, or a method, that does nothing else."""
    return lambda *_, **__: value


def set_seed(platform: Any, seed: int) -> None:
    torch.manual_seed(seed)


DEVICE = {
    "current_device": "cpu", "device_count": 1, "get_device_name": "cpu", "mem_get_info": (1 << 33, 1 << 34),
    "get_device_properties": SimpleNamespace(name="cpu", total_memory=1 << 34),
}  # fmt: skip
PLATFORM = {
    "is_available": True, "current_device": "cpu", "device_count": 1, "set_device": None, "synchronize": None,
    "set_allocator_settings": None, "empty_cache": None, "get_device_capability": (None, None),
    "communication_backend_name": "gloo", "visible_devices_envvar": "CUDA_VISIBLE_DEVICES",
    "nvtx_range": nullcontext(), "profiler_start": None, "profiler_stop": None, "ray_resource_name": "GPU",
    "ray_noset_envvars": ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"], "is_ipc_supported": False, "cudart": None,
}  # fmt: skip


class Device(ModuleType):
    """`torch.cuda` where there is none: what DEVICE says, random states of the CPU, and 0 for all else."""

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return returns(DEVICE.get(name, 0))


methods = {"__module__": __name__} | {name: returns(value) for name, value in PLATFORM.items()}
names = {"device_name": "cpu", "vendor_name": "cpu", "device_module": Device("cpu_device")}
properties = {name: property(returns(value)) for name, value in names.items()}
seeds = {"manual_seed": set_seed, "manual_seed_all": set_seed}
CPU = PlatformRegistry.register(platform="cpu")(type("CPU", (PlatformBase,), methods | properties | seeds))
_init_process_group = torch.distributed.init_process_group


def _gloo(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    """verl asks for one backend a device, `cpu:gloo,cpu:gloo` here, which torch takes for a duplicate."""
    return _init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)


torch.distributed.init_process_group = _gloo


def _keep_weights() -> None:
    """vLLM packs weights for the CPU once they are loaded and drops the originals, which verl loads into anew
    after every step."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


if "vllm" in sys.modules:  # a worker of vLLM, which loads verl as its extension
    _keep_weights()
