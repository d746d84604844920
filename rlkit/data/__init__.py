"""Rows, mixtures and curricula: from sources of tasks to checked, ordered training data."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlkit.data.stream import TaskStream, held_out

_PUBLIC = {"TaskStream": "stream", "held_out": "stream"}
__all__ = ["TaskStream", "held_out"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlkit.data.{_PUBLIC[name]}"), name)
