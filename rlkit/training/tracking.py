"""Trackers beside the run store: Weights & Biases and TensorBoard. The run store stays the truth.

A resumed run computes the steps after its checkpoint again, with the same bits: W&B drops those that it has,
TensorBoard replaces them, so that none is lost or doubled.
"""

import os
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.results.provenance import git_state, versions
from rlkit.results.read import run_folders
from rlkit.results.store import config_yaml, read_jsonl

_REACH = 2.0  # seconds to wait for W&B's server before going offline
_SAMPLE = ("data_source", "prompt", "response", "ground_truth", "value", "correct", "finish_reason", "tokens")


class Trackers:
    """The trackers that `trainer.logger` names. W&B never asks for anything: without a key or a network it runs
    offline, in the run's folder, and `rlkit sync` uploads later."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._wandb = _wandb(config, folder, mode()) if "wandb" in config.trainer.logger else None
        self._tensorboard: Any = None  # opened with the first step, which tells a resumed run from a new one

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step's metrics."""
        if self._wandb is not None:
            self._wandb.log(dict(metrics), step=step)
        if "tensorboard" in self._config.trainer.logger:
            if self._tensorboard is None:
                from torch.utils.tensorboard import SummaryWriter

                # What an earlier attempt wrote from this step on is not shown.
                self._tensorboard = SummaryWriter(str(self._folder / "tensorboard"), purge_step=step)
                self._tensorboard.add_text("config", f"```yaml\n{config_yaml(self._config)}```", step)
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)

    def log_samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send one step's samples to W&B, as a table."""
        if self._wandb is not None:
            self._wandb.log({"samples": _table(rows)}, step=step)

    def close(self) -> None:
        """Flush."""
        if self._wandb is not None:
            self._wandb.finish()
        if self._tensorboard is not None:
            self._tensorboard.close()


def sync(path: str | Path) -> dict[str, int]:
    """Upload the runs under `path`, tracked or not, to W&B from the run store: the steps that it does not have yet.
    Returns how many those are of each run.

    Raises:
        UserError: there is no run, no W&B key, or its server does not answer.
    """
    folders = run_folders(path)
    if not signed_in():
        raise UserError("There is no W&B key: run `wandb login`, or set WANDB_API_KEY.")
    if not reachable():
        raise UserError(f"{_server()} does not answer: check the network, and call rlkit sync again.")
    return {folder.name: _upload(folder) for folder in folders}


def _upload(folder: Path) -> int:
    run = _wandb(load(folder / "config.yaml"), folder, "online")
    rows = {row["step"]: row for row in read_jsonl(folder / "metrics.jsonl")}
    samples = defaultdict[int, list[dict[str, Any]]](list)
    for row in read_jsonl(folder / "samples.jsonl"):
        samples[row["step"]].append(row)
    new = sorted(step for step in rows if step >= run.step)  # where W&B's history of a resumed run ends
    for step in new:
        numbers = {k: v for k, v in rows[step].items() if k not in ("step", "time") and v is not None}
        run.log(numbers | ({"samples": _table(samples[step])} if step in samples else {}), step=step)
    run.finish()
    return len(new)


def _wandb(config: RunConfig, folder: Path, mode: str) -> Any:
    """The W&B run of a run: its id is the run's, its group and tags say where it belongs."""
    import wandb
    from wandb.errors import AuthenticationError, CommError

    options: dict[str, Any] = {
        "project": os.environ.get("WANDB_PROJECT", "rlkit"), "id": config.id, "name": config.id, "resume": "allow",
        "group": config.study, "dir": str(folder),
        "tags": [config.study, Path(config.model.path).name[:64], config.algorithm.adv_estimator],
        "config": {**config.model_dump(mode="json"), "git": git_state(), "versions": versions()},
        "settings": wandb.Settings(init_timeout=30, silent=True),
    }  # fmt: skip
    try:
        return wandb.init(mode=mode, **options)  # pyright: ignore[reportArgumentType]  # one of wandb's modes
    except (CommError, AuthenticationError):
        return wandb.init(mode="offline", **options)


def mode() -> str:
    """WANDB_MODE where it is set; online with a key and a network; else offline."""
    return os.environ.get("WANDB_MODE") or ("online" if signed_in() and reachable() else "offline")


def signed_in() -> bool:
    """Whether W&B has a key."""
    import wandb

    return bool(os.environ.get("WANDB_API_KEY")) or wandb.api.api_key is not None


def _server() -> str:
    return os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")


def reachable() -> bool:
    """Whether W&B's server answers at all, with whatever status."""
    try:
        urllib.request.urlopen(urllib.request.Request(_server(), method="HEAD"), timeout=_REACH)
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A table of texts."""
    import wandb

    return wandb.Table(columns=list(_SAMPLE), data=[[str(row.get(name)) for name in _SAMPLE] for row in rows])
