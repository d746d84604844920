"""Evaluation: held-out pass rates with intervals, one row a sample kept."""

import importlib
from typing import Any

_PUBLIC = {
    "evaluate": "rlkit.evaluation.heldout",
    "pass_at_k": "rlkit.evaluation.passk",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.evaluation' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
