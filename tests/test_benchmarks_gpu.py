"""Every case of tests/benchmarks/gpu.py runs, at sizes that a CPU does in a second; vLLM and TRL by `--dry` alone."""

import argparse
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import gpu  # pyright: ignore[reportMissingImports]
import gpu_systems  # pyright: ignore[reportMissingImports]

KINDS = ("step-3m", "step-smollm2", "step-7b", "decode-3m", "decode-1.5b", "gap-smollm2")
OTHER_SIZES = pytest.mark.slow(reason="the code of the other cases, at another size or precision")
HERE = [
    pytest.param(name, system, marks=() if name in KINDS and system != "rlkit-torch" else OTHER_SIZES)
    for name, case in gpu.CASES.items()
    for system in case["systems"]
    if system in ("rlkit", "rlkit-torch", "torch")
]


@pytest.mark.parametrize(("name", "system"), HERE)
def test_the_case_runs(name, system, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_systems, "device", lambda: "cpu")
    monkeypatch.setattr(gpu_systems.tempfile, "gettempdir", lambda: str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gpu.measure(name, system, dry=True)
    assert found["seconds"] > 0 and found["tokens_per_second"] > 0
    if name.startswith("step"):
        assert {"gen", "reward", "update_actor", "update_weights", "step"} <= set(found["phases"])


LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[sys.argv.index("--out") + 1], "w").write('{"child": %d}' % child.pid)
os._exit(0)
"""


def test_what_a_system_leaves_running_is_ended(monkeypatch, tmp_path):
    """As vLLM's engine in a process of its own is: it would hold the card against the next system."""
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES_A_CHILD)
    monkeypatch.setattr(gpu, "HERE", script)
    options = argparse.Namespace(out=tmp_path / "gpu.json", timeout=60, dry=False)
    child = gpu.in_a_process("decode-1.5b", "offline", options)["child"]
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(child).wait(10) is None  # no longer there, and no child of ours


@pytest.mark.slow(reason="starts two processes that import torch")
def test_packed_runs_are_timed_together(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_systems, "device", lambda: "cpu")
    found = gpu.measure("pack-3m", "2", dry=True)
    assert found["steps_per_second"] >= 2 / found["seconds"] * 0.999  # of both: two runs' rates, added
