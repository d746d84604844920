"""Studies on other machines: every run is a task of Ray or a job of Slurm. The project's folder and the outputs folder
have to be the same on all of them: a run that is lost with its machine goes on elsewhere from its last checkpoint."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.params import validate
from rlkit.results.progress import last_lines
from rlkit.studies.executors import Job, thread_limits
from rlkit.verl.ray_cluster import connect

MANY = 64  # runs that Slurm queues at a time unless --workers says otherwise
LOST = ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "BOOT_FAIL", "REVOKED", "OUT_OF_MEMORY")


class RayOptions(Section):
    """Options of `--executor ray`."""

    address: str = "auto"
    """`auto` (the cluster of this machine, or of RAY_ADDRESS), host:port, or ray://host:10001."""
    num_cpus: float = Field(1.0, gt=0)
    """CPUs of one run."""
    num_gpus: float = Field(0.0, ge=0)
    """GPUs of one run; a fraction lets small runs share one."""


class RayExecutor:
    """Ray tasks on an existing cluster.

    Raises:
        UserError: no cluster answers at the address, or an unknown option.
    """

    def __init__(self, workers: int, runs: int, options: Mapping[str, Any]) -> None:
        chosen: RayOptions = validate(RayOptions, options, where="--executor ray")
        ray, share = connect(chosen.address), {"CPU": chosen.num_cpus, "GPU": chosen.num_gpus}
        room = ray.cluster_resources()
        fit = min(room.get(kind, 0) / need for kind, need in share.items() if need)
        if fit < 1:
            raise UserError(
                f"A run asks for {chosen.num_cpus:g} CPUs and {chosen.num_gpus:g} GPUs, but the cluster has "
                f"{room.get('CPU', 0):g} and {room.get('GPU', 0):g}: lower num_cpus or num_gpus."
            )
        self.workers = max(1, min(workers or int(fit), runs))
        self.threads = max(1, int(chosen.num_cpus))
        self._task = ray.remote(_execute).options(
            num_cpus=chosen.num_cpus, num_gpus=chosen.num_gpus, max_retries=0
        )

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> Job:
        return RayJob(self._task.remote(command, log, os.getcwd(), thread_limits(self.threads)))


class RayJob(Job):
    """A command as a Ray task; lost once its worker or machine has died."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference
        self._problem: str | None = None
        self._ended = False

    def done(self) -> bool:
        import ray
        from ray.exceptions import RayError, RayTaskError, TaskCancelledError

        if self._ended or not ray.wait([self._reference], timeout=0)[0]:
            return self._ended
        self._ended = True
        try:
            self._problem = ray.get(self._reference)
        except TaskCancelledError:
            self._problem = "the run was interrupted"
        except RayTaskError as error:
            self._problem = str(error).strip().splitlines()[-1]
        except RayError as error:  # the worker or its node died
            self.lost, self._problem = True, f"lost with its worker: {str(error).strip().splitlines()[0]}"
        return True

    def problem(self) -> str | None:
        return self._problem

    def interrupt(self, force: bool = False) -> None:
        import ray
        from ray.exceptions import RayError

        with suppress(RayError):
            ray.cancel(self._reference, force=force)  # KeyboardInterrupt in the task, which passes it on

    def kill(self) -> None:
        self.interrupt(force=True)


def _execute(command: Sequence[str], log: Path, folder: str, environment: Mapping[str, str]) -> str | None:
    """On a worker: run a command in `folder`; its last lines when it failed."""
    os.chdir(folder)
    job = Job(command, log, environment)
    try:
        while not job.done():
            time.sleep(0.2)
    except KeyboardInterrupt:
        job.interrupt()
        with suppress(KeyboardInterrupt):
            while not job.done():
                time.sleep(0.2)
        job.kill()
        raise
    return job.problem()


class SlurmExecutor:
    """Slurm jobs: each is a process here, `sbatch --wait`, that ends with the job.

    Args:
        options: long options of sbatch, e.g. {"partition": "gpu", "gpus": 1, "time": "24:00:00", "exclusive": True}.

    Raises:
        UserError: there is no sbatch, or the number of cores is none.
    """

    def __init__(self, workers: int, runs: int, options: Mapping[str, Any]) -> None:
        if shutil.which("sbatch") is None:
            raise UserError(
                "--executor slurm: there is no sbatch here: call it on a machine that submits to Slurm."
            )
        chosen = {"cpus-per-task": 1, **{key.replace("_", "-"): value for key, value in options.items()}}
        if not isinstance(cores := chosen["cpus-per-task"], int) or isinstance(cores, bool):
            raise UserError(f"--option cpus_per_task is {cores!r}: give a whole number of cores.")
        self.workers, self.threads = max(1, min(workers or MANY, runs)), cores
        limits = ",".join(f"{key}={value}" for key, value in thread_limits(self.threads).items())
        self._submit = ["sbatch", "--wait", "--parsable", f"--export=ALL,{limits}"]
        self._submit += [f"--{key}" if value is True else f"--{key}={value}" for key, value in chosen.items()]

    def start(self, command: Sequence[str], log: Path, need: float = 0.0) -> Job:
        return SlurmJob([*self._submit, f"--output={log}", f"--wrap={shlex.join(command)}"], log)


class SlurmJob(Job):
    """A submitted command; lost once its node failed, it was preempted or its time was over."""

    def __init__(self, submit: Sequence[str], output: Path) -> None:
        super().__init__(submit, output.with_suffix(".sbatch"), {})
        self._output = output

    def problem(self) -> str | None:
        if (refused := super().problem()) is None:
            self._output.unlink(missing_ok=True)
            return None
        state = self._ask("squeue", "--noheader", "--states=all", "--format=%T", "--jobs")
        self.lost = state.startswith(LOST)
        return f"lost ({state})" if self.lost else last_lines(self._output) or refused

    def interrupt(self) -> None:
        """End it: it continues from its last checkpoint when it is started again."""
        self._ask("scancel")

    kill = interrupt

    def _ask(self, *command: str) -> str:
        """What a command of Slurm prints of this job; nothing of one that was not submitted."""
        number = self.log.read_text().partition(";")[0].strip()
        return subprocess.run([*command, number], capture_output=True, text=True).stdout.strip()
