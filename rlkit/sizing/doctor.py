"""What this machine has, and what follows for a run: the table of `rlkit doctor`."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.results.provenance import hardware, usable_cores
from rlkit.samplers import VLLM_FROM
from rlkit.sizing.devices import GIB, Gpu, gpus

if TYPE_CHECKING:
    from rich.table import Table

GPU_EXTRA = "pip install -e '.[gpu]'"
LOW_DISK = 5 * GIB


@dataclass(frozen=True)
class Finding:
    """One thing that a run may need: what was found, what follows, and the command that mends what is missing."""

    what: str
    found: str
    follows: str
    mend: str = ""


def mps_runs() -> bool:
    """Whether the user's environment has NVIDIA's MPS on."""
    pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return os.path.exists(os.path.join(pipe, "control"))


def findings() -> list[Finding]:
    """All that `rlkit doctor` shows, in its order."""
    found = gpus()
    return [_processor(), _memory(), _disk(), _gpu(found), _torch(found), _sampler(found), _verl(found), _sandbox(),
            _browser()]  # fmt: skip


def machine_table() -> "Table":
    """What this machine has, what follows, and how to mend what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("what", "found", "what follows", "to mend", box=SIMPLE_HEAD, pad_edge=False)
    for row in findings():
        table.add_row(row.what, row.found, row.follows, row.mend, style="yellow" if row.mend else "")
    return table


def version(package: str) -> str | None:
    """The installed version, or None; nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> Finding:
    cores = usable_cores()
    return Finding(
        "processor",
        f"{hardware()['cpu']}, {cores} cores",
        f"a study trains {cores} runs at a time without a GPU",
    )


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    return Finding("memory", f"{memory.total / GIB:.0f} GiB, {memory.available / GIB:.0f} free", "")


def _disk() -> Finding:
    usage = shutil.disk_usage(Path.cwd())
    little = usage.free < LOW_DISK
    follows = "little room for checkpoints and models" if little else "room for checkpoints and models"
    return Finding(
        "disk", f"{usage.free / GIB:.0f} GiB free here", follows, "free some, or use --root" if little else ""
    )


def _gpu(found: list[Gpu]) -> Finding:
    if not found:
        return Finding("GPU", "none", "runs train on the CPU: ladder models, and SmolLM2-135M with LoRA")
    names = ", ".join(f"{gpu.name} ({gpu.total / 1024:.0f} GiB, {gpu.used / 1024:.1f} used)" for gpu in found)
    busy = [gpu for gpu in found if gpu.used > gpu.total / 20]
    shared = "MPS is on" if mps_runs() else "in time slices: MPS is off"
    follows = (
        f"--workers auto packs a study's runs on {len(found)} GPU{'s' if len(found) > 1 else ''}, {shared}"
    )
    mend = "nvidia-smi shows which process holds the memory" if busy else ""
    return Finding("GPU", f"{names}; driver {found[0].driver}", follows, mend)


def _torch(found: list[Gpu]) -> Finding:
    there = version("torch") or "none"
    if not found:
        return Finding("torch", there, "trains on the CPU")
    if "+cpu" in there:
        return Finding("torch", there, "the CPU's build: the GPU is not used", GPU_EXTRA)
    problem = cuda_problem()
    if problem:
        return Finding(
            "torch", there, f"does not see the GPU: {problem}", "update the driver, or install torch for it"
        )
    return Finding("torch", there, "trains on the GPU (trainer.device: auto)")


def cuda_problem() -> str:
    """Why torch cannot use the GPU, asked in a process of its own; empty where it can."""
    import subprocess
    import sys

    ask = "import torch; torch.zeros(1).cuda()"
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"status {done.returncode}")


def _sampler(found: list[Gpu]) -> Finding:
    vllm = version("vllm")
    if not found:
        return Finding(
            "sampler", f"torch; vLLM {vllm or 'is not installed'}", "rollout.name: auto is torch on a CPU"
        )
    size = f"{VLLM_FROM // 10**9}B"
    if vllm:
        follows = f"rollout.name: auto is vllm from {size} parameters, or for long responses"
        return Finding("sampler", f"torch, vLLM {vllm}", follows)
    follows = f"more memory from {size} parameters, and for long responses"
    return Finding("sampler", "torch; vLLM is not installed", follows, GPU_EXTRA)


def _verl(found: list[Gpu]) -> Finding:
    there, ray = version("verl"), version("ray")
    if there is None:
        return Finding("verl", "none", "nothing trains: rlkit's losses and estimators are verl's", "make")
    if not found:
        return Finding("verl", there, "losses and estimators; trainer.backend: verl needs a GPU")
    missing = [name for name, v in (("ray", ray), ("vllm", version("vllm"))) if v is None]
    if missing:
        return Finding("verl", there, f"trainer.backend: verl needs {' and '.join(missing)}", GPU_EXTRA)
    return Finding("verl", there, "trainer.backend: verl works, for models past one GPU")


def _sandbox() -> Finding:
    from rlkit.errors import UserError
    from rlkit.rewards.sandbox.levels import bubblewrap_problem, choose

    try:
        name = choose().name
    except UserError:
        name = "none"
    if name == "bubblewrap":
        return Finding("sandbox", name, "programs of the policy run without network, on a read-only system")
    follows = "weaker: see below" if name == "rlimits" else "code tasks cannot be graded"
    missing = "not installed" in (bubblewrap_problem() or "")
    return Finding("sandbox", name, follows, "apt-get install bubblewrap" if missing else "see below")


def _browser() -> Finding:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        return Finding("browser", "no chromium", "make test-browser does not run", "apt-get install chromium")
    played = importlib.util.find_spec("playwright") is not None
    return Finding("browser", found, "make test-browser runs" if played else "make test-browser needs playwright",
                   "" if played else "pip install -e '.[test]'")  # fmt: skip
