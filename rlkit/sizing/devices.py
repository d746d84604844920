"""What a device can do, from its data sheet: memory, peak speed, bandwidth. Peaks are dense, without sparsity."""

import os
import re
import subprocess
import sys
from functools import cache
from typing import NamedTuple

from rlkit.errors import UserError, did_you_mean
from rlkit.results.machine import hardware, output_of, thread_limits, usable_cores

MIB = 2**20


class Device(NamedTuple):
    """One GPU, or a machine's CPU; the defaults are an H100's (SXM)."""

    memory_gb: float = 80.0
    flops_per_second: float = 989e12  # bfloat16 on tensor cores
    float32_per_second: float = 67e12  # float32 on plain cores, as torch computes it by default
    bytes_per_second: float = 3.35e12
    gpu: bool = True


DEVICES = {
    name: Device(mebibytes * MIB / 1e9, bfloat16 * 1e12, float32 * 1e12, bandwidth * 1e9)
    for name, mebibytes, bfloat16, float32, bandwidth in (  # MiB as nvidia-smi shows it, TFLOP/s, GB/s
        ("h100", 81_559, 989, 67, 3_350),  # NVIDIA H100 data sheet, SXM
        ("h200", 143_771, 989, 67, 4_800),  # NVIDIA H200 data sheet, SXM
        ("b200", 183_359, 2_250, 75, 7_700),  # NVIDIA Blackwell data sheet, HGX B200
        ("a100-40gb", 40_960, 312, 19.5, 1_555),  # NVIDIA A100 data sheet, SXM 40GB
        ("a100", 81_920, 312, 19.5, 2_039),  # the same, SXM 80GB
        ("l40s", 46_068, 362, 91.6, 864),  # NVIDIA L40S data sheet
        ("l4", 23_034, 121, 30.3, 300),  # NVIDIA L4 data sheet
        ("rtx-4090", 24_564, 165, 82.6, 1_008),  # NVIDIA Ada architecture white paper
    )
}  # fmt: skip


def device_named(name: str, threads: int = 0) -> Device:
    """A device of the table, this machine's `cpu` with so many threads (0: all), or `here`: its first GPU, or else its
    CPU. Raises UserError: no such device, or a GPU that the table does not have."""
    if name in DEVICES:
        return DEVICES[name]
    if name not in ("cpu", "here"):
        known = ("cpu", *DEVICES)
        raise UserError(f"--device is {name!r}.{did_you_mean(name, known)} Use one of {', '.join(known)}.")
    machine = hardware()
    if name == "cpu" or not machine["gpus"]:
        speed = cpu_speed(threads or usable_cores())
        return Device(machine["memory"] / 1e9, speed, speed, bytes_per_second=2e10, gpu=False)
    gpu, _, memory = machine["gpus"][0].partition(",")
    for key, device in DEVICES.items():
        if all(re.search(rf"{part}\b", gpu, re.I) for part in key.split("-")):
            mebibytes = re.search(r"\d+", memory)
            return device._replace(memory_gb=int(mebibytes[0]) * MIB / 1e9) if mebibytes else device
    raise UserError(f"The speed of {gpu!r} is not known here: name a like device, one of {', '.join(DEVICES)}.")


@cache
def cpu_speed(threads: int) -> float:
    """FLOPs per second of a 512 × 512 float32 product on `threads` threads, measured by numpy in a process of its own:
    torch, which is as fast, takes seconds to import."""
    product = "import numpy, timeit; a = numpy.random.rand(512, 512).astype('float32')"
    code = f"{product}; print(min(timeit.repeat(lambda: a @ a, number=1, repeat=20)))"
    environment = os.environ | thread_limits(threads)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    return 2 * 512**3 / float(done.stdout)


class Gpu(NamedTuple):
    """A GPU as nvidia-smi shows it; memory in MiB, 0 of one that shares the machine's."""

    name: str
    total: int
    used: int
    driver: str


def gpus() -> list[Gpu]:
    """The GPUs of this machine; none without nvidia-smi or where it fails."""
    fields = "name,memory.total,memory.used,driver_version"
    found = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits") or ""
    rows = [[cell.strip().replace("[N/A]", "0") for cell in line.split(",")] for line in found.splitlines()]
    return [Gpu(name, int(total), int(used), driver) for name, total, used, driver in rows]
