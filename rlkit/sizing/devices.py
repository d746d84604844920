"""What a device can do, from its data sheet (peaks are dense, without sparsity), and what this machine has."""

import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from rlkit.config import Section
from rlkit.errors import UserError, did_you_mean
from rlkit.results.provenance import hardware, output_of, usable_cores
from rlkit.samplers.choice import VLLM_FROM

if TYPE_CHECKING:
    from rich.table import Table

GIB = 2**30
MIB = 2**20
GPU_EXTRA = "pip install -e '.[gpu]'"
LOW_DISK = 5 * GIB


class Device(Section):
    """One GPU; the defaults are an H100's (SXM)."""

    memory_gb: float = 80.0
    flops_per_second: float = 989e12
    """bfloat16 on tensor cores."""
    float32_per_second: float = 67e12
    """float32 on plain cores, as torch computes it by default."""
    bytes_per_second: float = 3.35e12
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.35
    """Share of both peaks that is reached."""
    per_hour: float | None = None
    """Price of one GPU-hour."""
    gpu: bool = True
    """Off for a machine's CPU."""

    @property
    def gpu_bytes(self) -> float | None:
        """Bytes of the GPU's memory; None on a CPU."""
        return self.memory_gb * 1e9 if self.gpu else None


def _gpu(mebibytes: int, bfloat16: float, float32: float, bandwidth: float) -> Device:
    return Device(
        memory_gb=mebibytes * MIB / 1e9, flops_per_second=bfloat16 * 1e12, float32_per_second=float32 * 1e12,
        bytes_per_second=bandwidth * 1e9,
    )  # fmt: skip


DEVICES = {  # memory in MiB as nvidia-smi shows it, bfloat16 and float32 TFLOP/s, GB/s
    "h100": _gpu(81_559, 989, 67, 3_350),  # NVIDIA H100 data sheet, SXM
    "h200": _gpu(143_771, 989, 67, 4_800),  # NVIDIA H200 data sheet, SXM
    "b200": _gpu(183_359, 2_250, 75, 7_700),  # NVIDIA Blackwell data sheet, HGX B200
    "a100-40gb": _gpu(40_960, 312, 19.5, 1_555),  # NVIDIA A100 data sheet, SXM 40GB
    "a100": _gpu(81_920, 312, 19.5, 2_039),  # the same, SXM 80GB
    "l40s": _gpu(46_068, 362, 91.6, 864),  # NVIDIA L40S data sheet
    "l4": _gpu(23_034, 121, 30.3, 300),  # NVIDIA L4 data sheet
    "rtx-4090": _gpu(24_564, 165, 82.6, 1_008),  # NVIDIA Ada architecture white paper
}


def device_named(name: str, threads: int = 0) -> Device:
    """A device of the table, this machine's `cpu`, or `here`: its first GPU, or else its CPU.

    Args:
        threads: of a CPU that are used; 0 is all.

    Raises:
        UserError: no such device, or a GPU of this machine that the table does not have.
    """
    if name == "here":
        gpus = hardware()["gpus"]
        return from_smi(gpus[0]) if gpus else device_named("cpu", threads)
    if name == "cpu":
        speed = cpu_speed(threads or usable_cores())
        return Device(
            memory_gb=hardware()["memory"] / 1e9, flops_per_second=speed, float32_per_second=speed,
            bytes_per_second=2e10, gpu=False,
        )  # fmt: skip
    if name not in DEVICES:
        known = ("cpu", *DEVICES)
        raise UserError(f"--device is {name!r}.{did_you_mean(name, known)} Use one of {', '.join(known)}.")
    return DEVICES[name]


@cache
def cpu_speed(threads: int) -> float:
    """FLOPs per second of a 512 × 512 float32 product on `threads` threads, measured in a tenth of a second."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, best = torch.randn(512, 512), float("inf")
    for _ in range(20):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    torch.set_num_threads(before)
    return 2 * 512**3 / best


def from_smi(line: str) -> Device:
    """The device of a line `name, memory.total` of nvidia-smi, with the memory that it says.

    Raises:
        UserError: the table does not have it.
    """
    name, _, memory = line.partition(",")
    parts = {key: [rf"{part}\b" for part in key.split("-")] for key in DEVICES}
    known = next((key for key in DEVICES if all(re.search(p, name, re.I) for p in parts[key])), None)
    if known is None:
        raise UserError(
            f"The speed of {name!r} is not known here: name a like device, one of {', '.join(DEVICES)}."
        )
    mebibytes = re.search(r"\d+", memory)
    total = int(mebibytes[0]) * MIB / 1e9 if mebibytes else DEVICES[known].memory_gb
    return DEVICES[known].model_copy(update={"memory_gb": total})


class Gpu(NamedTuple):
    """A GPU as nvidia-smi shows it; memory in MiB."""

    name: str
    total: int
    used: int
    driver: str


def gpus() -> list[Gpu]:
    """The GPUs of this machine; none without nvidia-smi or where it fails."""
    fields = "name,memory.total,memory.used,driver_version"
    found = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits") or ""
    rows = [[cell.strip() for cell in line.split(",")] for line in found.splitlines()]
    return [Gpu(name, int(total), int(used), driver) for name, total, used, driver in rows]


class Finding(NamedTuple):
    """One thing that a run may need: what was found, what follows, and the command that mends what is missing."""

    what: str
    found: str
    follows: str
    mend: str = ""


def machine_table() -> "Table":
    """What this machine has, what follows, and how to mend what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("what", "found", "what follows", "to mend", box=SIMPLE_HEAD, pad_edge=False)
    for row in findings():
        table.add_row(*row, style="yellow" if row.mend else "")
    return table


def findings() -> list[Finding]:
    """All that `rlkit doctor` shows, in its order."""
    import psutil

    found, cores, memory = gpus(), usable_cores(), psutil.virtual_memory()
    free, size = shutil.disk_usage(Path.cwd()).free, f"{VLLM_FROM // 10**9}B"
    torch, vllm, verl = map(version, ("torch", "vllm", "verl"))
    rows = [
        Finding("processor", f"{hardware()['cpu']}, {cores} cores",
                f"a study trains {cores} runs at a time without a GPU"),
        Finding("memory", f"{memory.total / GIB:.0f} GiB, {memory.available / GIB:.0f} free", ""),
        Finding("disk", f"{free / GIB:.0f} GiB free here",
                f"{'little ' if free < LOW_DISK else ''}room for checkpoints and models",
                "free some, or use --root" if free < LOW_DISK else ""),
    ]  # fmt: skip
    if not found:
        rows += [
            Finding("GPU", "none", "runs train on the CPU: ladder models, and SmolLM2-135M with LoRA"),
            Finding("torch", torch or "none", "trains on the CPU"),
            Finding("sampler", f"torch; vLLM {vllm or 'is not installed'}",
                    "rollout.name: auto is torch on a CPU"),
        ]  # fmt: skip
    else:
        rows += [_cards(found), _torch(torch or "none")]
        rows.append(
            Finding("sampler", f"torch, vLLM {vllm}",
                    f"rollout.name: auto is vllm from {size} parameters, or for long responses")
            if vllm else
            Finding("sampler", "torch; vLLM is not installed",
                    f"more memory from {size} parameters, and for long responses", GPU_EXTRA)
        )  # fmt: skip
    missing = " and ".join(name for name, there in (("ray", version("ray")), ("vllm", vllm)) if not there)
    if not verl:
        rows.append(
            Finding("verl", "none", "nothing trains: rlkit's losses and estimators are verl's", "make")
        )
    elif not found:
        rows.append(Finding("verl", verl, "losses and estimators; trainer.backend: verl needs a GPU"))
    elif missing:
        rows.append(Finding("verl", verl, f"trainer.backend: verl needs {missing}", GPU_EXTRA))
    else:
        rows.append(Finding("verl", verl, "trainer.backend: verl works, for models past one GPU"))
    return rows


def version(package: str) -> str | None:
    """The installed version, or None; nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def mps_runs() -> bool:
    """Whether the user's environment has NVIDIA's MPS on."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def _cards(found: list[Gpu]) -> Finding:
    names = ", ".join(f"{gpu.name} ({gpu.total / 1024:.0f} GiB, {gpu.used / 1024:.1f} used)" for gpu in found)
    shared = "MPS is on" if mps_runs() else "in time slices: MPS is off"
    cards = f"{len(found)} GPU{'s' if len(found) > 1 else ''}"
    busy = any(gpu.used > gpu.total / 20 for gpu in found)
    mend = "nvidia-smi shows which process holds the memory" if busy else ""
    follows = f"--workers auto packs a study's runs on {cards}, {shared}"
    return Finding("GPU", f"{names}; driver {found[0].driver}", follows, mend)


def _torch(there: str) -> Finding:
    if "+cpu" in there:
        return Finding("torch", there, "the CPU's build: the GPU is not used", GPU_EXTRA)
    if problem := cuda_problem():
        mend = "update the driver, or install torch for it"
        return Finding("torch", there, f"does not see the GPU: {problem}", mend)
    return Finding("torch", there, "trains on the GPU (trainer.device: auto)")


def cuda_problem() -> str:
    """Why torch cannot use the GPU, asked in a process of its own; empty where it can."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stderr.strip() or f"status {done.returncode}"
    return said.splitlines()[-1] if done.returncode else ""
