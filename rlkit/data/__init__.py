"""Rows, mixtures and curricula: from sources of tasks to checked, ordered training data.

The names are imported when first used, so that `import rlkit.data` stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlkit.data.exporting import convert, export, from_verl
    from rlkit.data.guru import import_guru
    from rlkit.data.linter import lint
    from rlkit.data.reference import reference_response
    from rlkit.data.stream import TaskStream, held_out

_PUBLIC = {
    "TaskStream": "stream",
    "held_out": "stream",
    "import_guru": "guru",
    "lint": "linter",
    "export": "exporting",
    "convert": "exporting",
    "from_verl": "exporting",
    "reference_response": "reference",
}
__all__ = [
    "TaskStream",
    "convert",
    "export",
    "from_verl",
    "held_out",
    "import_guru",
    "lint",
    "reference_response",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlkit.data.{_PUBLIC[name]}"), name)
