"""vLLM's CPU build packs linear weights once and drops the originals, so that none can be loaded again."""

import pytest
import torch


def keep_weights() -> pytest.MonkeyPatch:
    """Let it keep them, as it does on a GPU; `undo()` of what is returned ends that."""
    from vllm.model_executor.layers import linear, utils

    def plain(layer, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    patch = pytest.MonkeyPatch()
    for module in (utils, linear):
        patch.setattr(module, "dispatch_cpu_unquantized_gemm", plain, raising=False)
    return patch
