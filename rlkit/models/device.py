"""The device that a run trains on, and the share of its memory that the run may take."""

import os

import torch

from rlkit.config import RunConfig
from rlkit.errors import UserError

SHARE = "RLKIT_GPU_MEMORY"
"""Environment variable: bytes of the GPU's memory that a run of a packed study was granted."""


def device_of(config: RunConfig) -> str:
    """The device of `trainer.device`. Raises UserError when a GPU is asked for and there is none."""
    wanted, found = config.trainer.device, torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise UserError(
            "trainer.device is 'cuda', but torch sees no GPU here: use auto or cpu, or check nvidia-smi."
        )
    return "cuda" if found and wanted != "cpu" else "cpu"


def granted() -> int | None:
    """Bytes of GPU memory that this process was granted; None where it has the card for itself."""
    value = os.environ.get(SHARE, "")
    return int(value) if value.isdigit() else None


def keep_to_share(asleep: int = 0) -> None:
    """Let torch allocate no more of the GPU than this process was granted, and the `asleep` bytes that torch counts as
    allocated and that are not on the card, of an engine that sleeps."""
    share = granted()
    if share is not None and torch.cuda.is_available():
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (share + asleep) / total))
