"""Counts the bytes of tensors that are alive, on any device (also `meta`, where nothing is allocated)."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """`now` and `peak`: bytes of the storages that were given to `hold` or made inside, and are still alive."""

    def __init__(self, *held: torch.Tensor) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, int] = {}
        for tensor in held:
            self._add(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        return result

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        self._seen[key] = size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self._seen.pop(key)
