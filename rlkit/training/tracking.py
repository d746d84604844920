"""Weights & Biases beside the run store. Of steps that a resumed run computes again, W&B drops those that it has."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.machine import git_state, versions


class Tracker:
    """The W&B run of a run, where `trainer.logger` names wandb, under its id; offline without a key or a network."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._run: Any = None
        if "wandb" not in config.trainer.logger:
            return
        if find_spec("wandb") is None:
            raise UserError("trainer.logger names wandb, which is not installed: pip install 'rlkit[wandb]'.")
        import wandb
        from wandb.errors import AuthenticationError, CommError

        options: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", "rlkit"), "id": config.id, "name": config.id, "resume": "allow",
            "group": config.study, "dir": str(folder),
            "tags": [config.study, Path(config.model.path).name[:64], config.algorithm.adv_estimator],
            "config": {**config.model_dump(mode="json"), "git": git_state(), "versions": versions()},
            "settings": wandb.Settings(init_timeout=30, silent=True),
        }  # fmt: skip
        signed_in = bool(os.environ.get("WANDB_API_KEY")) or wandb.api.api_key is not None
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if signed_in else "offline")
        try:
            self._run = wandb.init(mode=mode, **options)
        except (CommError, AuthenticationError):
            wandb.teardown()  # which still holds the run's id
            self._run = wandb.init(mode="offline", **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
