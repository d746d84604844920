"""Rows, mixtures and curricula: from sources of tasks to checked, ordered training data.

The names are imported when first used, since pyarrow and the scorers are heavy.
"""

import importlib
from typing import Any

_PUBLIC = {
    **dict.fromkeys(("TaskStream", "held_out", "suites"), "rlkit.data.stream"),
    **dict.fromkeys(("export", "reference_response"), "rlkit.data.exporting"),
    "lint": "rlkit.data.check",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.data' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
