"""Trackers beside the run store: Weights & Biases and TensorBoard. The run store stays the truth."""

import os
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig


class Trackers:
    """The trackers that `trainer.logger` names; `log` takes the same metrics as the run store.

    Without a key W&B runs offline in the run's folder (`wandb sync` uploads later); it never asks. A resumed
    run keeps its W&B id, and metrics have a step axis of their own, so that steps logged again are not
    dropped as out of order.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._wandb: Any = None
        self._tensorboard: Any = None
        if "wandb" in config.trainer.logger:
            self._wandb = _wandb(config, folder)
        if "tensorboard" in config.trainer.logger:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Send one step's metrics."""
        if self._wandb is not None:
            self._wandb.log({"training/global_step": step, **metrics})
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush."""
        if self._wandb is not None:
            self._wandb.finish(quiet=True)
        if self._tensorboard is not None:
            self._tensorboard.close()


def _wandb(config: RunConfig, folder: Path) -> Any:
    import wandb

    signed_in = bool(os.environ.get("WANDB_API_KEY")) or wandb.api.api_key is not None
    mode: Any = os.environ.get("WANDB_MODE") or ("online" if signed_in else "offline")  # wandb checks it
    run = wandb.init(
        project=f"rlkit-{config.study}",
        id=config.id,
        resume="allow",
        group=config.model.path.replace("/", "-"),
        config=config.model_dump(mode="json"),
        dir=str(folder),
        mode=mode,
        settings=wandb.Settings(init_timeout=5, silent=True),
    )
    run.define_metric("*", step_metric="training/global_step")
    return run
