"""Studies over a Ray cluster: every run is a task with its share of CPUs and GPUs.

The project's folder and the outputs folder have to be the same on all machines (a shared or synced file
system): a run that is lost with its machine continues elsewhere from its last checkpoint there.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.params import validate
from rlkit.studies.executors import Job, LocalJob, Work
from rlkit.verl.ray_cluster import connect

LOCK_PATIENCE = 60.0  # seconds that a lost run's process may take to let go of its folder


class RayOptions(Section):
    """Options of `--executor ray`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        self.options: RayOptions = validate(RayOptions, options, where="--executor ray")
        ray = connect(self.options.address)
        room = ray.cluster_resources()
        fits = [room.get("CPU", 0) / self.options.num_cpus]
        if self.options.num_gpus:
            fits.append(room.get("GPU", 0) / self.options.num_gpus)
        if min(fits) < 1:
            raise UserError(
                f"A run asks for {self.options.num_cpus:g} CPUs and {self.options.num_gpus:g} GPUs, but the cluster "
                f"has {room.get('CPU', 0):g} and {room.get('GPU', 0):g}: lower num_cpus or num_gpus."
            )
        self.workers = max(1, min(workers or int(min(fits)), runs))
        self.threads = max(1, int(self.options.num_cpus))
        self._task = ray.remote(execute).options(
            num_cpus=self.options.num_cpus, num_gpus=self.options.num_gpus, max_retries=0
        )

    def start(self, work: Work) -> Job:
        return RayJob(work, self._task.remote(work, os.getcwd(), work.limits(self.threads)))


class RayJob:
    """A run as a Ray task; `lost` once its worker or machine has died."""

    def __init__(self, work: Work, reference: Any) -> None:
        self.work, self._reference = work, reference
        self._problem: str | None = None
        self._ended = self.lost = False

    def done(self) -> bool:
        import ray

        if not self._ended:
            ready, _ = ray.wait([self._reference], timeout=0)
            if ready:
                self._ended = True
                self._take()
        return self._ended

    def _take(self) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError, TaskCancelledError

        try:
            self._problem = ray.get(self._reference)
        except TaskCancelledError:
            self._problem = "the run was interrupted"
        except RayTaskError as error:
            self._problem = str(error).strip().splitlines()[-1]
        except RayError as error:  # the worker or its node died
            self.lost, self._problem = True, f"lost with its worker: {str(error).strip().splitlines()[0]}"

    def problem(self) -> str | None:
        return self._problem

    def interrupt(self) -> None:
        import ray
        from ray.exceptions import RayError

        with suppress(RayError):
            ray.cancel(self._reference)  # KeyboardInterrupt in the task, which passes it on

    def kill(self) -> None:
        import ray
        from ray.exceptions import RayError

        with suppress(RayError):
            ray.cancel(self._reference, force=True)


def execute(work: Work, folder: str, environment: Mapping[str, str]) -> str | None:
    """On a worker: execute a notebook in `folder`; its last lines when it failed."""
    os.chdir(folder)
    wait_for_folder(work)
    job = LocalJob(work, environment)
    try:
        while not job.done():
            time.sleep(0.2)
    except KeyboardInterrupt:
        job.interrupt()
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            while not job.done():
                time.sleep(0.2)
        job.kill()
        raise
    return job.problem()


def wait_for_folder(work: Work) -> None:
    """A run that was lost may still be ending on the same file system: wait until its folder is free."""
    folder = Path(str(work.parameters.get("root", "outputs"))) / work.target.parent.parent.name / "runs"
    lock = folder / work.target.stem / ".lock"
    if lock.exists():
        with suppress(Timeout), FileLock(lock, timeout=LOCK_PATIENCE):
            pass
