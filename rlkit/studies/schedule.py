"""Running a study's notebooks, largest runs first, as many at a time as its executor has room for."""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from rlkit.errors import UserError, did_you_mean
from rlkit.results.progress import run_state
from rlkit.results.store import read_json
from rlkit.seeds import content_hash
from rlkit.studies.executors import Executor, Job, LocalExecutor, Work, visible_gpus
from rlkit.studies.notebook import parameters_of
from rlkit.studies.packed_executor import PackedExecutor
from rlkit.studies.plan import Plan, PlannedRun
from rlkit.studies.report import console
from rlkit.studies.terminal import Board

_HEARD = 1.0  # seconds after which a run that is to end has begun its last step
_LOSSES = 3  # times that a run may be lost with its machine without getting a step further


def make_executor(
    name: str, workers: int | Literal["auto"], runs: int, options: Mapping[str, Any] | None = None
) -> Executor:
    """The executor of a name: local, ray or slurm.

    Args:
        workers: runs at a time; 0 is what there is room for, one a core or GPU; auto is as many on each GPU of this
            machine as its memory holds.
        runs: how many there are to execute at most.
        options: of ray: address, num_cpus, num_gpus; of slurm: submitit's parameters (slurm_partition,
            timeout_min, gpus_per_node …) and cluster.

    Raises:
        UserError: an unknown name or option, or no cluster.
    """
    options = dict(options or {})
    if name == "local":
        if options:
            raise UserError(
                f"--option {next(iter(options))} is for ray and slurm: the local executor has none."
            )
        if workers == "auto" and visible_gpus():
            return PackedExecutor(runs)
        return LocalExecutor(0 if workers == "auto" else workers, runs)
    if workers == "auto":
        raise UserError(f"--workers auto is for the local executor: give {name} a number, or 0.")
    if name == "ray":
        from rlkit.studies.ray_executor import RayExecutor

        return RayExecutor(workers, runs, options)
    if name == "slurm":
        from rlkit.studies.slurm_executor import SlurmExecutor

        return SlurmExecutor(workers, runs, options)
    raise UserError(
        f"--executor is {name!r}.{did_you_mean(name, ('local', 'ray', 'slurm'))} Use local, ray or slurm."
    )


class Scheduler:
    """Executes the notebooks of one plan.

    Args:
        executor: where training notebooks are executed; the analysis is executed here.
    """

    def __init__(self, plan: Plan, executor: Executor | None = None) -> None:
        self.plan = plan
        self.executor = executor or LocalExecutor(0, len(plan.runs))
        self.running: dict[PlannedRun, Job] = {}
        self._room = True
        self._losses: dict[str, list[int | None]] = {}

    @property
    def workers(self) -> int:
        """Runs at a time."""
        return self.executor.workers

    def train(self) -> dict[str, str]:
        """Execute the training notebook for every unfinished run; returns the failures' last lines.

        Raises:
            KeyboardInterrupt: after running runs have ended (at a checkpoint, or at once if repeated).
        """
        waiting = list(self.plan.to_do)
        failed: dict[str, str] = {}
        with Board(self.plan) as board, _terminate_as_interrupt():
            try:
                while waiting or self.running:
                    self._fill(waiting, board)
                    time.sleep(0.2)
                    lost, problems = self._collect(board)
                    waiting += lost
                    failed |= problems
                    board.refresh()
            except KeyboardInterrupt:
                self.end(board)
                raise
        return failed

    def _fill(self, waiting: list[PlannedRun], board: Board) -> None:
        """Start waiting runs while there is room, and take them off the list."""
        while waiting and self._room and len(self.running) < self.workers:
            run = self._start(waiting, board)
            if run is None:
                self._room = False  # nothing changes until a run has ended
            else:
                waiting.remove(run)

    def _collect(self, board: Board) -> tuple[list[PlannedRun], dict[str, str]]:
        """Take the runs that have ended off the list; returns those that were lost with their machine and are
        tried again, and the last lines of those that failed."""
        lost, failed = [], {}
        for run, job in list(self.running.items()):
            if not job.done():
                continue
            del self.running[run]
            self._room = True
            problem = job.problem()
            if problem is None and not self.plan.is_finished(run):
                problem = "the run was stopped before its last step"
            if problem is not None and job.lost and self._try_again(run):
                board.lost(run, problem)
                lost.append(run)
                continue
            if problem is not None:
                failed[run.id] = problem
            board.ended(run, problem)
        return lost, failed

    def _try_again(self, run: PlannedRun) -> bool:
        """Whether a lost run gets another try: not where it was lost again and again at the same step."""
        steps = self._losses.setdefault(run.id, [])
        steps.append(run_state(self.plan.run_folder(run)).step)
        return steps.count(steps[-1]) <= _LOSSES

    def analyse(self) -> dict[str, str]:
        """Execute the analysis notebook, unless nothing has changed since it last ran."""
        config = self.plan.config
        target = self.plan.folder / "notebooks" / Path(config.analysis.notebook).name
        parameters = self.plan.analysis
        stamp = self.plan.folder / "analysis" / "inputs.json"
        inputs = {"inputs": self._fingerprint(parameters)}
        if target.exists() and read_json(stamp) == inputs:
            return {}
        console.print(f"Analysing all runs: {config.analysis.notebook}")
        job = LocalExecutor(1, 1).start(Work(config.analysis.notebook, target, parameters))
        with _terminate_as_interrupt():
            try:
                while not job.done():
                    time.sleep(0.2)
            except KeyboardInterrupt:
                job.kill()
                raise
        problem = job.problem()
        if problem is None:
            from rlkit.files import write_text

            write_text(stamp, json.dumps(inputs) + "\n")
        return {} if problem is None else {"analysis": problem}

    def _fingerprint(self, parameters: Mapping[str, Any]) -> str:
        """Changes when a run, the notebook or its parameters do."""
        runs = [read_json(self.plan.run_folder(run) / "run.json").get("updated") for run in self.plan.runs]
        source = Path(self.plan.config.analysis.notebook).read_text(encoding="utf-8")
        return content_hash(
            [[run.id, run.held_out] for run in self.plan.runs] + [runs, source, dict(parameters)]
        )

    def order(self, waiting: list[PlannedRun]) -> list[PlannedRun]:
        """Those first that would not wait for another's warm start; runs of one model share it."""
        warming = [
            run.config.model for run in self.running if run_state(self.plan.run_folder(run)).step is None
        ]
        return sorted(waiting, key=lambda run: run.config.model in warming)

    def _start(self, waiting: list[PlannedRun], board: Board) -> PlannedRun | None:
        """Start the first waiting run that there is room for, and return it."""
        for run in self.order(waiting):
            job = self.executor.start(self._work(run))
            if job is not None:
                self.running[run] = job
                board.started(run)
                return run
        return None

    def _work(self, run: PlannedRun) -> Work:
        overrides = {"trainer.num_threads": self.executor.threads, **run.overrides}
        parameters: dict[str, Any] = {
            "config": str(self.plan.params),
            "overrides": overrides,
            "root": str(self.plan.root),
        }
        source = self.plan.config.notebook
        if "detached" in parameters_of(source):  # here the run is the worker's own: it ends with the study
            parameters["detached"] = False
        need = 0.0
        if isinstance(self.executor, PackedExecutor):
            like = [self.plan.run_folder(r) for r in self.plan.runs if r.name == run.name]
            need = self.executor.gpu_memory(run.config, like)
        return Work(source, self.plan.notebook(run), parameters, need)

    def end(self, board: Board) -> None:
        board.say(
            f"Ending {len(self.running)} runs at their next checkpoint; Ctrl-C again ends them at once. "
            "The same command goes on from there."
        )
        try:
            for job in self.running.values():
                job.interrupt()
            seen: dict[PlannedRun, int] = {}
            while not all(job.done() for job in self.running.values()):
                time.sleep(_HEARD)
                for (
                    run,
                    job,
                ) in self.running.items():  # one that goes on stepping was importing, and never heard
                    step = run_state(self.plan.run_folder(run)).step or 0
                    if step > seen.setdefault(run, step) + 1:
                        job.interrupt()
                        del seen[run]
        except KeyboardInterrupt:
            for job in self.running.values():
                job.kill()


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, as sent by batch systems, ends a study as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are the caller's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
