"""Models: loading (Hugging Face, peft), the ladder of small models, the shared-prompt forward pass."""

import importlib
from typing import Any

_PUBLIC = {
    "load_policy": "rlkit.models.loading",
    "load_model": "rlkit.models.loading",
    "build_ladder_model": "rlkit.models.ladder",
    "byte_tokenizer": "rlkit.models.tokenizer",
    "LADDER": "rlkit.models.ladder",
    "Decoder": "rlkit.models.decoder",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
