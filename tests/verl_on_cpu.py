"""A platform for verl that is the CPU: its trainer runs without a GPU, for one integration test.

verl loads this module in every process (VERL_USE_EXTERNAL_MODULES). Ray is told of a GPU that does not exist,
so nothing here is fit for real training.
"""

import sys
from contextlib import contextmanager
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


class _Device(ModuleType):
    """`torch.cuda` where there is none: counts are 0, everything else does nothing."""

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def get_device_name(self, *_: Any) -> str:
        return "cpu"

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return 1 << 33, 1 << 34

    def get_device_properties(self, *_: Any) -> SimpleNamespace:
        return SimpleNamespace(name="cpu", total_memory=1 << 34)

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


_DEVICE = _Device("cpu_device")


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    """Names and no-ops."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return _DEVICE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"  # verl hands it to `.to(…)`

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str):
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


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
