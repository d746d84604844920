"""The processes of a verl run: their files, their environment, and the Ray cluster that they are on."""

import logging
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.registry import PLUGINS

LOCAL_CPUS = 32
"""What Ray is told on one machine: its CPUs are a count of places, and verl waits for ever where they are few."""


@dataclass(frozen=True)
class Files:
    """What a verl run reads and writes, all in `folder` (`<run>/verl`, absolute, as Ray's workers need it) but the
    model (a Hugging Face folder or hub id); `attempt` is the folder of this attempt's log, metrics and answers."""

    folder: Path
    model: str
    attempt: Path

    @classmethod
    def of(cls, run: Path, model: str, attempt: int = 1) -> "Files":
        """The files of one attempt of the run in folder `run`."""
        folder = run.absolute() / "verl"
        return cls(folder, model, folder / f"attempt-{attempt}")

    @property
    def answers(self) -> Path:
        """Folder of the answers log."""
        return self.attempt / "answers"

    @property
    def checkpoints(self) -> Path:
        """verl's own, sharded ones."""
        return self.folder / "checkpoints"

    @property
    def loops(self) -> Path:
        """The agent loop's options."""
        return self.folder / "agent_loops.yaml"


def on_cluster(config: RunConfig) -> bool:
    """Whether Ray is running already. Otherwise verl starts one of its own, whatever else runs on the machine."""
    return config.trainer.nnodes > 1 or bool(os.environ.get("RAY_ADDRESS"))


def environment(config: RunConfig, files: Files) -> dict[str, str]:
    """Environment variables of verl's processes, on all machines."""
    source, mine = str(Path(__file__).resolve().parents[2]), os.environ
    found = {
        "VERL_FILE_LOGGER_PATH": str(files.attempt / "metrics.jsonl"),
        "PYTHONPATH": os.pathsep.join(filter(None, [source, mine.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",  # the log is followed
        "RAY_USAGE_STATS_ENABLED": mine.get("RAY_USAGE_STATS_ENABLED", "0"),
        "VLLM_NO_USAGE_STATS": mine.get("VLLM_NO_USAGE_STATS", "1"),
    }
    if Path(files.model).is_dir():  # a hub that cannot be reached is not waited for
        found["HF_HUB_OFFLINE"] = "1"
    modules = [mine.get("VERL_USE_EXTERNAL_MODULES")]
    if config.algorithm.adv_estimator == "gae":
        modules.append("rlkit.verl.value_head")
    if config.plugins:
        found[PLUGINS] = os.pathsep.join(str(Path(file).expanduser().resolve()) for file in config.plugins)
        modules.append("rlkit.verl.plugins")
    if any(modules):
        found["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, modules))
    if config.trainer.num_threads:
        found["OMP_NUM_THREADS"] = str(config.trainer.num_threads)
    return found


def connect(address: str) -> Any:
    """Ray, connected to a cluster. Raises UserError when none answers."""
    use_token()
    import ray

    if not ray.is_initialized():
        try:
            knock(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason, fix = str(error).strip().splitlines()[0], "--option address=ray://HOST:10001"
            sentence = f"({reason}): start one (ray start --head), or give {fix}."
            raise UserError(f"No Ray cluster answers at {address!r} {sentence}") from None
    return ray


def use_token() -> None:
    """Show the token of this machine to a cluster that is joined, unless RAY_AUTH_MODE says otherwise.

    Ray 2.60 leaves a token behind with the first cluster of its own. From then on `ray start` asks for it, but
    joining a cluster does not show it. A cluster without tokens ignores it.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_MODE" in os.environ or not (os.environ.get("RAY_AUTH_TOKEN") or path.exists()):
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if "ray" in sys.modules:  # which has read its settings already
        from ray._raylet import Config  # pyright: ignore[reportAttributeAccessIssue]  # compiled

        Config.initialize("")


def knock(address: str) -> None:
    """Raise OSError at once where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()
