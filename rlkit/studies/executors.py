"""Where the commands of a study run: processes of this machine or jobs of Slurm. On a cluster the project's and the
outputs folder are the same on all machines: a lost run goes on elsewhere from its checkpoint."""

import math
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import psutil

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.files import read_json
from rlkit.results.machine import hardware, output_of, thread_limits, usable_cores
from rlkit.results.run_state import last_lines
from rlkit.sizing.devices import MIB, Device, Gpu, gpus
from rlkit.sizing.memory import CONTEXT, USABLE, Plan, memory, total

GPU_SHARE = "RLKIT_GPU_MEMORY"  # bytes of a shared card; read by rlkit.models.loading
MARGIN = 1.15  # times what is predicted or was measured, that a run is granted of a shared card
MANY = 64  # runs that Slurm queues at a time unless --workers says otherwise
LOST = ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "BOOT_FAIL", "REVOKED", "OUT_OF_MEMORY")


class Job:
    """A command in a process of its own. `lost`: it ended with its machine and is worth another try."""

    lost = False

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        # A new session: Ctrl-C reaches this process alone, which ends the others.
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **environment}, start_new_session=True,
            )  # fmt: skip

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
        with suppress(psutil.NoSuchProcess):
            kernels = psutil.Process(self._process.pid).children()
            for process in kernels or [self._process]:
                process.send_signal(signal.SIGINT if kernels else signal.SIGTERM)

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._process.pid)
            for process in [*worker.children(recursive=True), worker]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def make_executor(
    name: str, workers: int | Literal["auto"], runs: int, options: Mapping[str, Any] | None = None
) -> "Executor":
    """The executor of a name: local or slurm. A UserError for an unknown name or option, and without a cluster.

    `workers` is of runs at a time, at most `runs`; 0 is what there is room for, one a core or GPU; auto is as many on
    each GPU of this machine as its memory holds. `options` of slurm are long ones of sbatch, e.g. {"partition": "gpu",
    "exclusive": True}."""
    if name == "slurm":
        if workers == "auto":
            raise UserError("--workers auto is for the local executor: give slurm a number, or 0.")
        return SlurmExecutor(workers, runs, options or {})
    if name != "local":
        raise UserError(f"--executor is {name!r}: use local or slurm.")
    for option in options or ():
        raise UserError(f"--option {option} is for slurm: the local executor has none.")
    return LocalExecutor(workers, runs)


@dataclass
class Card:
    """A GPU: its name for CUDA_VISIBLE_DEVICES, the bytes that runs can fill, and what each job on it was granted."""

    name: str
    room: float = 0.0
    granted: dict[Job, float] = field(default_factory=dict)

    def free(self) -> float:
        """Bytes that no running job was granted; jobs that have ended are forgotten."""
        self.granted = {job: need for job, need in self.granted.items() if not job.done()}
        return self.room - sum(self.granted.values())


class LocalExecutor:
    """Processes of this machine: one a core or GPU, or, with `workers` auto, as many on each GPU as memory holds; a run
    is then told its share, and torch refuses it more: an update that is too large goes on in halves instead of ending a
    neighbour. `cards` are the GPUs, by default those that this process may use."""

    def __init__(self, workers: int | Literal["auto"], runs: int, cards: Sequence[Card] = ()) -> None:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(hardware()["gpus"])))))
        names = [name for name in map(str.strip, chosen.split(",")) if name not in ("", "-1")]  # -1 hides all
        self.shares = workers == "auto" and bool(cards or names)
        self.cards = list(cards) or (usable_cards(names, gpus()) if self.shares else list(map(Card, names)))
        room = len(self.cards) if self.cards and not self.shares else usable_cores()
        self.workers = max(1, min((0 if workers == "auto" else workers) or room, runs))
        self.threads = max(1, usable_cores() // self.workers)

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> Job | None:
        """Start a command on the card with the most room; None where cards are shared and none has `need` bytes before
        another job ends. One that no empty card would hold is given one: it may need less than was predicted."""
        environment = thread_limits(self.threads)
        if not self.cards:
            return Job(command, log, environment)
        card = max(self.cards, key=lambda c: (c.free(), -len(c.granted)))
        granted = need * MARGIN + CONTEXT if self.shares else 0.0
        if granted > card.free():
            if card.granted:
                return None
            granted = card.room
        if self.shares:
            environment[GPU_SHARE] = str(int(granted - CONTEXT))
        job = Job(command, log, environment | {"CUDA_VISIBLE_DEVICES": card.name})
        card.granted[job] = granted
        return job

    def gpu_memory(self, config: RunConfig, like: Iterable[Path]) -> float:
        """Bytes that a run needs: the most that finished runs of its cell (`like`, their folders) were measured to
        need, or what is predicted; infinity where neither is known."""
        infos = [read_json(folder / "run.json") for folder in like]
        measured = [info["summary"].get("gpu_memory") for info in infos if info.get("status") == "finished"]
        if known := [size for size in measured if size]:
            return max(known)
        try:
            return total(memory(Plan(config, Device(memory_gb=max(card.room for card in self.cards) / 1e9))))
        except UserError:
            return math.inf


def usable_cards(names: Sequence[str], found: Sequence[Gpu]) -> list[Card]:
    """The cards that `names` (of CUDA_VISIBLE_DEVICES) choose among those found, with what is free on them; a UserError
    where a name is no index, so that its memory is not known."""
    if unknown := [name for name in names if not name.isdigit() or int(name) >= len(found)]:
        told = "--workers auto needs indices of nvidia-smi; name a number of workers instead"
        raise UserError(f"CUDA_VISIBLE_DEVICES names {unknown[0]!r}: {told}.")
    return [Card(name, USABLE * MIB * (found[int(name)].total - found[int(name)].used)) for name in names]


class SlurmExecutor:
    """Slurm jobs: each is a process here, `sbatch --wait`, that ends with the job. A UserError without sbatch."""

    def __init__(self, workers: int, runs: int, options: Mapping[str, Any]) -> None:
        if shutil.which("sbatch") is None:
            raise UserError("--executor slurm: there is no sbatch here: use a machine that submits to Slurm.")
        chosen = {"cpus-per-task": 1, **{key.replace("_", "-"): value for key, value in options.items()}}
        if isinstance(cores := chosen["cpus-per-task"], bool) or not isinstance(cores, int) or cores < 1:
            raise UserError(f"--option cpus_per_task is {cores!r}: give a whole number of cores.")
        self.workers, self.threads = max(1, min(workers or MANY, runs)), cores
        self._name = str(chosen.pop("job-name", "rlkit"))
        limits = ",".join(f"{key}={value}" for key, value in thread_limits(cores).items())
        self._submit = ["sbatch", "--wait", f"--export=ALL,{limits}"]
        self._submit += [f"--{key}" if value is True else f"--{key}={value}" for key, value in chosen.items()]

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> Job:
        return SlurmJob(self._submit, self._name, [f"--output={log}", f"--wrap={shlex.join(command)}"], log)


class SlurmJob(Job):
    """A submitted command; lost once its node failed, it was preempted or its time was over. It is known by a name of
    its own: sbatch, which buffers what it prints, may tell its number only when the job has ended."""

    def __init__(self, submit: Sequence[str], name: str, job: Sequence[str], output: Path) -> None:
        self._name, self._output = f"{name}-{uuid4().hex[:12]}", output
        super().__init__([*submit, f"--job-name={self._name}", *job], output.with_suffix(".sbatch"), {})

    def problem(self) -> str | None:
        if (refused := super().problem()) is None:
            self._output.unlink(missing_ok=True)
            return None
        state = self._ask("squeue", "--noheader", "--states=all", "--format=%T")
        self.lost = state.startswith(LOST)
        return f"lost ({state})" if self.lost else last_lines(self._output) or refused

    def interrupt(self) -> None:
        """End it: it continues from its last checkpoint when it is started again."""
        self._ask("scancel")

    kill = interrupt

    def _ask(self, *command: str) -> str:
        """What a command of Slurm prints of this job; nothing of one that was not submitted."""
        # None on a machine that can submit only; a busy Slurm may take minutes.
        return output_of(*command, f"--name={self._name}", seconds=None) or ""


Executor = LocalExecutor | SlurmExecutor
