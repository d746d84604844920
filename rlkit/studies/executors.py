"""Where the notebooks of a study are executed: processes of this machine, or another machine's (Ray, Slurm)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlkit.results.progress import last_lines
from rlkit.results.provenance import hardware, usable_cores


@dataclass(frozen=True)
class Work:
    """A notebook to execute with parameters into `target`; its log is beside it while it runs or has failed."""

    source: str
    target: Path
    parameters: Mapping[str, Any]
    gpu_memory: float = 0.0
    """Bytes of GPU memory that it needs, for an executor that packs."""

    @property
    def log(self) -> Path:
        return self.target.with_suffix(".log")

    @property
    def command(self) -> list[str]:
        """What executes it, anywhere where this folder and this Python are."""
        parameters = json.dumps(dict(self.parameters))
        return [sys.executable, "-m", "rlkit.studies.notebook", self.source, str(self.target), parameters]

    def limits(self, threads: int) -> dict[str, str]:
        """The environment that holds it to a number of CPU threads."""
        return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


class Job(Protocol):
    """A notebook that was started somewhere."""

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        ...

    def problem(self) -> str | None:
        """The last lines of one that failed; None for one that succeeded, whose log is dropped."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it ended with its machine or worker and not by itself: it is worth another try."""
        ...

    def interrupt(self) -> None:
        """Ask the run to end at its next step border."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Executor(Protocol):
    """Starts notebooks. `workers` is how many at a time, `threads` the CPU threads of each."""

    workers: int
    threads: int

    def start(self, work: Work) -> Job | None:
        """Start it; None where there is no room for it until another has ended."""
        ...


class LocalExecutor:
    """Processes of this machine: one a core or GPU."""

    def __init__(self, workers: int, runs: int) -> None:
        self.gpus = visible_gpus()
        self.workers = max(1, min(workers or len(self.gpus) or usable_cores(), runs))
        self.threads = max(1, usable_cores() // self.workers)
        self._slots: dict[int, LocalJob] = {}

    def start(self, work: Work) -> Job:
        free = [k for k in range(self.workers) if k not in self._slots or self._slots[k].done()]
        slot = free[0] if free else 0
        device = {"CUDA_VISIBLE_DEVICES": self.gpus[slot % len(self.gpus)]} if self.gpus else {}
        self._slots[slot] = LocalJob(work, {**work.limits(self.threads), **device})
        return self._slots[slot]


class LocalJob:
    """A notebook in a process of its own."""

    lost = False

    def __init__(self, work: Work, environment: Mapping[str, str]) -> None:
        self.work = work
        work.target.parent.mkdir(parents=True, exist_ok=True)
        with open(work.log, "wb") as log:
            self._process = subprocess.Popen(
                work.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others in order
            )

    def done(self) -> bool:
        return self._process.poll() is not None

    def problem(self) -> str | None:
        status = self._process.wait()
        if status == 0:
            self.work.log.unlink(missing_ok=True)
            return None
        return last_lines(self.work.log) or f"the process ended with status {status}"

    def interrupt(self) -> None:
        """A worker without a kernel yet has nothing to save."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            kernels = psutil.Process(self._process.pid).children()
            for process in kernels or [self._process]:
                process.send_signal(signal.SIGINT if kernels else signal.SIGTERM)

    def kill(self) -> None:
        import psutil

        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._process.pid)
            for process in [*worker.children(recursive=True), worker]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(i) for i in range(len(hardware()["gpus"]))]
