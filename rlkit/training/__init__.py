"""Training: the RL loop, supervised training, checkpoints."""

from typing import Any

__all__ = ["train"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name != "train":
        raise AttributeError(f"module 'rlkit.training' has no attribute {name!r}")
    from rlkit.training.loop import train  # loads torch

    return train
