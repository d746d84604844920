"""Studies through Slurm: every run is a job, submitted by submitit.

As on Ray, the project's folder and outputs have to be on a file system that all nodes share.
"""

import os
from collections.abc import Mapping
from typing import Any

from rlkit.errors import UserError
from rlkit.studies.executors import Job, Work
from rlkit.studies.ray_executor import execute

LOST = ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "BOOT_FAIL", "REVOKED", "OUT_OF_MEMORY", "INTERRUPTED")
MANY = 64  # runs that are queued at a time unless --workers says otherwise; Slurm decides how many run


class SlurmExecutor:
    """Slurm jobs.

    Args:
        options: `cluster` (slurm; local and debug try it without Slurm) and parameters of submitit, for example
            slurm_partition, timeout_min, cpus_per_task, gpus_per_node, mem_gb, slurm_additional_parameters.

    Raises:
        UserError: submitit is not installed, sbatch is not there, or submitit does not know an option.
    """

    def __init__(self, workers: int, runs: int, options: Mapping[str, Any]) -> None:
        try:
            import submitit
        except ImportError:
            raise UserError("--executor slurm needs submitit: pip install 'rlkit[slurm]'.") from None
        parameters = {"timeout_min": 24 * 60, "cpus_per_task": 1, **options}
        cluster = parameters.pop("cluster", "slurm")
        self.workers, self.threads = max(1, min(workers or MANY, runs)), int(parameters["cpus_per_task"])
        try:
            self._executor = submitit.AutoExecutor(folder="outputs/.slurm/%j", cluster=cluster)
            self._executor.update_parameters(**parameters)
        except (RuntimeError, ValueError, NameError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"--executor slurm: {reason}") from None

    def start(self, work: Work) -> Job:
        work.target.parent.mkdir(parents=True, exist_ok=True)
        return SlurmJob(self._executor.submit(execute, work, os.getcwd(), work.limits(self.threads)))


class SlurmJob:
    """A submitted run; `lost` once Slurm says that its node failed, it was preempted or its time was over."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._result: tuple[str | None, bool] | None = None

    def done(self) -> bool:
        return bool(self._job.done())

    @property
    def lost(self) -> bool:
        return self._outcome()[1]

    def problem(self) -> str | None:
        return self._outcome()[0]

    def _outcome(self) -> tuple[str | None, bool]:
        if self._result is None:
            try:
                self._result = self._job.result(), False
            except Exception as error:  # of submitit, or of the job, as text
                state = str(self._job.state)
                first = str(error).strip().splitlines() or [type(error).__name__]
                lost = state.startswith(LOST)
                self._result = f"{f'lost ({state}): ' if lost else ''}{first[-1]}", lost
        return self._result

    def interrupt(self) -> None:
        """Slurm has no way to ask kindly that passes through submitit: the run ends, and continues from its last
        checkpoint when it is started again."""
        self.kill()

    def kill(self) -> None:
        self._job.cancel(check=False)
