"""W&B: offline without a key or network, and no prompt."""

import os
import subprocess
import sys

import pytest

from rlkit.config import RunConfig

TRACK = """
import sys, pathlib
from rlkit.config import RunConfig
from rlkit.training.tracking import Tracker
trackers = Tracker(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}), pathlib.Path(sys.argv[1]))
for step in (12345, 23456, 34567):
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
    (written,) = tmp_path.glob(f"wandb/offline-run-*/run-{RunConfig.model_validate({}).id}.wandb")
    content = written.read_bytes()
    assert content.count(b"critic/score/mean") >= 3
    assert 0 < content.find(b"12345") < content.find(b"23456") < content.find(b"34567")


def test_a_run_that_names_wandb_without_it_says_what_to_install(tmp_path, monkeypatch):
    from rlkit.errors import UserError
    from rlkit.training.tracking import Tracker

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'rlkit\[wandb\]'"):
        Tracker(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}), tmp_path)
