"""What a result was made with: package versions, the code's commit, the machine."""

import functools
import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("rlkit", "torch", "transformers", "verl", "peft", "vllm", "ray", "numpy", "pandas", "scipy")


@functools.cache
def versions() -> dict[str, str]:
    """Python's version and those of the packages that decide numbers; absent ones are left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def git_state() -> dict[str, Any]:
    """`commit` and `dirty` (uncommitted changes) of rlkit's checkout; empty when it is installed without one."""
    root = Path(__file__).parents[2]
    commit = output_of("git", "-C", root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    changes = output_of("git", "-C", root, "status", "--porcelain") if commit else None
    return {"commit": commit, "dirty": bool(changes)} if commit else {}


@functools.cache
def hardware() -> dict[str, Any]:
    """Processor, usable cores, memory (bytes) and GPUs. Asks nvidia-smi, so torch is not imported."""
    gpus = output_of("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader") or ""
    info = Path("/proc/cpuinfo")
    cpu = re.search(r"^model name\s*:\s*(.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    name = cpu[1].strip() if cpu else platform.processor() or platform.machine()
    return {
        "cpu": name, "cores": usable_cores(), "memory": psutil.virtual_memory().total,
        "gpus": gpus.splitlines(), "system": platform.platform(),
    }  # fmt: skip


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def output_of(*command: str | Path, seconds: float | None = 10) -> str | None:
    """What a command prints; None where it does not exist, fails or takes longer than these seconds."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True).stdout.strip()
    return None


def thread_limits(threads: int) -> dict[str, str]:
    """The environment that holds a command to a number of CPU threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
