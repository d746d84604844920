"""Training: the RL loop, supervised and reward-weighted training, checkpoints."""

import importlib
from typing import Any

_PUBLIC = {
    "train": "rlkit.training.loop",
    "Run": "rlkit.results.store",
    "verify_resume": "rlkit.training.verify",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.training' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
