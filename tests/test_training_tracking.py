"""Trackers: every step once, also over a crash and a resume; offline without a key or network, and no prompt."""

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_folder import config, write_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlkit.errors import UserError
from rlkit.training import tracking
from rlkit.training.tracking import Trackers, sync

SAMPLE = {
    "data_source": "math__sums",
    "prompt": "1+1=",
    "response": "2",
    "value": 1.0,
    "correct": True,
    "tokens": 1,
}


def offline_history(folder: Path) -> dict[str, list[int]]:
    """Steps of each W&B file in a run's folder, in the order logged."""
    from wandb.proto import wandb_internal_pb2 as messages

    found = {}
    for path in sorted(folder.glob("wandb/*/*.wandb")):
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
import sys, time, pathlib
sys.path.insert(0, sys.argv[2])
import test_training_tracking as t
began = time.monotonic()
run = t.config(trainer={"logger": ["wandb"], "total_training_steps": 20})
trackers = t.Trackers(run, pathlib.Path(sys.argv[1]))
print("SECONDS", time.monotonic() - began)
for step in range(3):
    trackers.log(step, {"critic/score/mean": step / 10})
    trackers.log_samples(step, [t.SAMPLE])
trackers.close()
"""


def run_without(folder: Path, **env: str) -> float:
    """Track three steps in a process without a key or a terminal; seconds until the tracker was ready."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    kept |= {"HOME": str(folder), "WANDB_CONFIG_DIR": str(folder), "NETRC": str(folder / "none"), **env}
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", TRACK, str(folder), here], env=kept, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(1)" not in done.stdout and "Enter your choice" not in done.stdout + done.stderr
    return float(done.stdout.split("SECONDS")[1].split()[0])


@pytest.mark.parametrize(
    "env",
    [{}, {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}],
    ids=["no key", "no network"],
)
def test_without_a_key_or_a_network_it_is_offline_and_asks_nothing(tmp_path, env):
    run_without(tmp_path, **env)
    (name,) = offline_history(tmp_path)
    assert name == f"run-{config(trainer={'total_training_steps': 20}).id}"
    assert offline_history(tmp_path)[name] == [0, 1, 2]
    assert list(tmp_path.glob("wandb/offline-run-*/files/media/table/samples_*.table.json"))


def test_a_server_that_never_answers_costs_seconds(monkeypatch):
    silent = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    began = time.monotonic()
    assert tracking.mode() == "offline"
    assert time.monotonic() - began < 5
    silent.close()


def test_tensorboard_shows_every_step_once_after_a_resume(tmp_path):
    run = config(trainer={"logger": ["tensorboard"], "total_training_steps": 20})
    first = Trackers(run, tmp_path)
    for step in range(13):  # crashes at 12; the checkpoint is of step 10
        first.log(step, {"critic/score/mean": step / 10})
    first.close()
    time.sleep(1.1)  # files of one second sort by nothing
    second = Trackers(run, tmp_path)
    for step in range(11, 21):
        second.log(step, {"critic/score/mean": step / 10})
    second.close()
    seen = EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert [event.step for event in seen.Scalars("critic/score/mean")] == list(range(21))
    assert "adv_estimator: grpo" in seen.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()


class Server:
    """What a W&B run is to `sync`: a history that refuses steps below its own."""

    def __init__(self) -> None:
        self.history: dict[int, dict] = {}
        self.begun: list[dict] = []

    def init(self, **options):
        self.begun.append(options)
        return self

    @property
    def step(self) -> int:
        return max(self.history, default=-1) + 1

    def log(self, row: dict, step: int) -> None:
        assert step >= self.step
        self.history[step] = row

    def finish(self) -> None:
        pass


def test_sync_uploads_what_is_missing_once(tmp_path, monkeypatch):
    server = Server()
    monkeypatch.setattr("wandb.init", server.init)
    monkeypatch.setattr(tracking, "signed_in", lambda: True)
    monkeypatch.setattr(tracking, "reachable", lambda: True)
    folder = write_run(tmp_path, config(), 10_000)
    server.history[0] = {}  # was uploaded before
    assert sync(tmp_path / "sizes") == {folder.name: 2}
    assert sorted(server.history) == [0, 10, 20]
    assert server.history[20]["critic/score/mean"] == server.history[20]["eval/pass@1"] > 0
    assert sync(folder) == {folder.name: 0}
    begun = server.begun[0]
    assert begun["id"] == folder.name and begun["resume"] == "allow" and begun["group"] == "sizes"
    assert begun["tags"] == ["sizes", "ladder-10k", "grpo"]
    assert begun["config"]["model"]["path"] == "ladder-10k" and "git" in begun["config"]


def test_sync_without_a_key_says_what_to_do(tmp_path, monkeypatch):
    write_run(tmp_path, config(), 10_000)
    monkeypatch.setattr(tracking, "signed_in", lambda: False)
    with pytest.raises(UserError, match="wandb login"):
        sync(tmp_path / "sizes")
