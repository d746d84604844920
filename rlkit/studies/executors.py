"""Where the commands of a study run: processes of this machine here, Ray and Slurm in `rlkit.studies.cluster`."""

import math
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from rlkit.config import RunConfig
from rlkit.errors import UserError, did_you_mean
from rlkit.results.progress import last_lines
from rlkit.results.provenance import hardware, usable_cores
from rlkit.results.store import read_json
from rlkit.sizing.devices import MIB, Device, Gpu, gpus
from rlkit.sizing.memory import CONTEXT, USABLE, Plan, memory, total

GPU_SHARE = "RLKIT_GPU_MEMORY"  # bytes of a shared card; read by rlkit.models.device
MARGIN = 1.15  # times what is predicted or was measured, that a run is granted of a shared card


def make_executor(
    name: str, workers: int | Literal["auto"], runs: int, options: Mapping[str, Any] | None = None
) -> "Executor":
    """The executor of a name: local, ray or slurm.

    Args:
        workers: runs at a time, of at most `runs`; 0 is what there is room for, one a core or GPU; auto is as many on
            each GPU of this machine as its memory holds.
        options: of ray: address, num_cpus, num_gpus; of slurm: long options of sbatch (partition, time, gpus …).

    Raises:
        UserError: an unknown name or option, or no cluster.
    """
    if name not in (known := ("local", "ray", "slurm")):
        raise UserError(f"--executor is {name!r}.{did_you_mean(name, known)} Use local, ray or slurm.")
    if name == "local":
        if options:
            raise UserError(
                f"--option {next(iter(options))} is for ray and slurm: the local executor has none."
            )
        return LocalExecutor(workers, runs)
    if workers == "auto":
        raise UserError(f"--workers auto is for the local executor: give {name} a number, or 0.")
    from rlkit.studies.cluster import RayExecutor, SlurmExecutor

    return (RayExecutor if name == "ray" else SlurmExecutor)(workers, runs, dict(options or {}))


class Executor(Protocol):
    """Starts commands, `workers` at a time, with `threads` CPU threads each."""

    workers: int
    threads: int

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> "Job | None":
        """Start a command that writes to `log` and, where cards are shared, needs so many bytes of a GPU's memory; None
        where there is no room until another has ended."""
        ...


class Job:
    """A command in a process of its own. `lost`: it ended with its machine and is worth another try."""

    lost = False

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others in order
            )

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._process.poll() is not None

    def problem(self) -> str | None:
        """The last lines of one that failed; None for one that succeeded, whose log is dropped."""
        status = self._process.wait()
        if status == 0:
            self.log.unlink(missing_ok=True)
            return None
        return last_lines(self.log) or f"the process ended with status {status}"

    def interrupt(self) -> None:
        """Ask the run to end at its next step border; a worker without a kernel yet has nothing to save."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            kernels = psutil.Process(self._process.pid).children()
            for process in kernels or [self._process]:
                process.send_signal(signal.SIGINT if kernels else signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._process.pid)
            for process in [*worker.children(recursive=True), worker]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@dataclass
class Card:
    """A GPU: its name for CUDA_VISIBLE_DEVICES, the bytes that runs can fill, and what each job on it was granted."""

    name: str
    room: float = 0.0
    granted: dict[Job, float] = field(default_factory=dict)

    @property
    def running(self) -> dict[Job, float]:
        return {job: need for job, need in self.granted.items() if not job.done()}

    @property
    def free(self) -> float:
        """Bytes that no running job was granted."""
        return self.room - sum(self.running.values())


class LocalExecutor:
    """Processes of this machine: one a core or GPU, or, with `workers` auto, as many on each GPU as memory holds.

    On a shared card a run is told its share, and torch refuses it more: an update that is too large then goes on in
    halves instead of ending a neighbour.

    Args:
        cards: the GPUs; default: those that this process may use.
    """

    def __init__(
        self, workers: int | Literal["auto"], runs: int, cards: Sequence[Card] | None = None
    ) -> None:
        names = [card.name for card in cards] if cards else visible_gpus()
        self.shares = workers == "auto" and bool(names)
        self.cards = list(cards or (usable_cards(names, gpus()) if self.shares else map(Card, names)))
        room = len(names) if names and not self.shares else usable_cores()
        self.workers = max(1, min((0 if workers == "auto" else workers) or room, runs))
        self.threads = max(1, usable_cores() // self.workers)

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> Job | None:
        """Start it on the card with the most room. On shared cards, one that no empty card would hold is given a card
        of its own: it may need less than was predicted."""
        environment = thread_limits(self.threads)
        if not self.cards:
            return Job(command, log, environment)
        card, granted = max(self.cards, key=lambda c: (c.free, -len(c.running))), 0.0
        if self.shares:
            granted = need * MARGIN + CONTEXT
            if granted > card.free:
                if card.running:
                    return None
                granted = card.room
            environment[GPU_SHARE] = str(int(granted - CONTEXT))
        job = Job(command, log, environment | {"CUDA_VISIBLE_DEVICES": card.name})
        card.granted = card.running | {job: granted}
        return job

    def gpu_memory(self, config: RunConfig, like: Iterable[Path]) -> float:
        """Bytes that a run needs: the most that finished runs of its cell (`like`, their folders) were measured to
        need, or what is predicted; infinity where neither is known."""
        infos = [read_json(folder / "run.json") for folder in like]
        measured = [info["summary"].get("gpu_memory") for info in infos if info.get("status") == "finished"]
        if known := [size for size in measured if size]:
            return max(known)
        largest = Device(memory_gb=max(card.room for card in self.cards) / 1e9)
        try:
            return total(memory(Plan(config, largest)))
        except UserError:
            return math.inf


def thread_limits(threads: int) -> dict[str, str]:
    """The environment that holds a command to a number of CPU threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    return [str(i) for i in range(len(hardware()["gpus"]))]


def usable_cards(names: Sequence[str], found: Sequence[Gpu]) -> list[Card]:
    """The cards that `names` (of CUDA_VISIBLE_DEVICES) choose among those found, with what is free on them.

    Raises:
        UserError: a name is no index, so that its memory is not known.
    """
    for name in names:
        if not name.isdigit() or int(name) >= len(found):
            raise UserError(
                f"CUDA_VISIBLE_DEVICES names {name!r}: --workers auto needs indices of nvidia-smi; name a number of "
                "workers instead."
            )
    chosen = [(name, found[int(name)]) for name in names]
    return [Card(name, USABLE * (gpu.total - gpu.used) * MIB) for name, gpu in chosen]
