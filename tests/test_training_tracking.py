"""W&B: offline without a key or network, and no prompt."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rlkit.config import RunConfig


def offline_history(folder: Path) -> dict[str, list[int]]:
    """Steps of each W&B file in a run's folder, in the order logged."""
    from wandb.proto import wandb_internal_pb2 as messages

    found = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        steps = []
        for data in log_records(path.read_bytes()):
            record = messages.Record()  # type: ignore[attr-defined]
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                steps.append(record.history.step.num)
        found[path.stem] = steps
    return found


def log_records(content: bytes):
    """Records of a file in LevelDB's log format, which W&B writes: blocks of 32 KiB, each fragment with a
    checksum (4 bytes), a length (2) and a type (1: whole 1, first 2, middle 3, last 4)."""
    place, parts = 7, []
    while place < len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


TRACK = """
import sys, pathlib
from rlkit.config import RunConfig
from rlkit.training.tracking import Tracker
trackers = Tracker(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}), pathlib.Path(sys.argv[1]))
for step in range(3):
    trackers.log(step, {"critic/score/mean": step / 10})
trackers.close()
"""
NO_NETWORK = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}


@pytest.mark.parametrize("env", [
    pytest.param({}, id="no key"),
    pytest.param(NO_NETWORK, id="no network", marks=pytest.mark.slow(reason="W&B tries for half a minute")),
])  # fmt: skip
def test_without_a_key_or_a_network_it_is_offline_and_asks_nothing(tmp_path, env):
    """In a process without a key or a terminal."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    kept |= {"HOME": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path), "NETRC": str(tmp_path / "none"), **env}
    done = subprocess.run(
        [sys.executable, "-c", TRACK, str(tmp_path)], env=kept, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(1)" not in done.stdout and "Enter your choice" not in done.stdout + done.stderr
    assert offline_history(tmp_path) == {f"run-{RunConfig.model_validate({}).id}": [0, 1, 2]}


def test_a_run_that_names_wandb_without_it_says_what_to_install(tmp_path, monkeypatch):
    from rlkit.errors import UserError
    from rlkit.training.tracking import Tracker

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'rlkit\[wandb\]'"):
        Tracker(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}), tmp_path)
