"""Studies: the runs of a plan, trained through a notebook, largest first, and analysed by another."""

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock, Timeout

from rlkit.results.progress import run_state
from rlkit.studies import report
from rlkit.studies.executors import Executor, Job, LocalExecutor, make_executor
from rlkit.studies.notebook import parameters_of
from rlkit.studies.plan import Plan, PlannedRun, make_plan

if TYPE_CHECKING:
    import pandas as pd

HEARD = 1.0  # seconds after which a run that is to end has begun its last step
LOSSES = 3  # times that a run may be lost with its machine without getting a step further
LETS_GO = 60.0  # seconds that a lost run's process may take to let go of its folder


@dataclass(frozen=True)
class StudyResult:
    """How a study ended. `failed` maps a run's id (or "analysis") to its last lines."""

    folder: Path
    runs: list[str]
    failed: dict[str, str] = field(default_factory=dict)

    def tables(self) -> "tuple[pd.DataFrame, pd.DataFrame]":
        """What `rlkit.read` and `rlkit.read_evals` give of the runs that the study's file asks for.

        Raises:
            StudyFailed: a run failed; the message holds what it said.
        """
        from rlkit.results.read import read, read_evals

        for run, lines in self.failed.items():
            raise StudyFailed(
                f"{len(self.failed)} of {len(self.runs)} runs failed. {run}: {lines.splitlines()[-1]}"
            )
        return read(self.folder).dropna(subset="cell"), read_evals(self.folder).dropna(subset="cell")


class StudyFailed(RuntimeError):
    """Runs of a study failed; the message holds what the first of them said."""


def study(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    workers: int | Literal["auto"] = 0,
    dry_run: bool = False,
    analyse: bool = True,
    root: str | Path = "outputs",
    executor: str = "local",
    options: Mapping[str, Any] | None = None,
) -> StudyResult:
    """Train every run of a study that is not finished, then analyse all of them.

    Each run is the study's notebook in a process of its own, executed by papermill into
    outputs/<study>/notebooks/. A failed run does not stop the others and is tried again, from its last
    checkpoint, by the next call.

    Args:
        overrides: dotted keys of the study file, e.g. `{"run.trainer.total_training_steps": 5}`.
        workers: runs at a time; 0 is one a GPU, or one a CPU core; auto is as many on each GPU as its memory holds.
        dry_run: only show the runs with their estimated cost.
        analyse: execute the analysis notebook when all runs have ended; False where that is who calls.
        executor: where runs are executed: local, ray or slurm; a run lost with its machine is tried again.
        options: of the executor (rlkit.studies.executors.make_executor).

    Raises:
        UserError: bad input, before anything is started.
        KeyboardInterrupt: Ctrl-C; running runs have ended at a checkpoint.
    """
    plan = make_plan(path, overrides, root)
    chosen = make_executor(executor, workers, len(plan.runs), options)
    plan = replace(plan, threads=chosen.threads)
    report.show_plan(plan, chosen.workers)
    runs = [run.id for run in plan.runs]
    if dry_run:
        return StudyResult(plan.folder, runs)
    plan.record()
    failed = train_all(plan, chosen)
    if analyse and not failed:
        failed = analyse_all(plan)
    report.show_end(plan, failed, reading=analyse)
    return StudyResult(plan.folder, runs, failed)


def train_all(plan: Plan, executor: Executor) -> dict[str, str]:
    """Execute the training notebook of every unfinished run; returns the last lines of those that failed.

    Raises:
        KeyboardInterrupt: after running runs have ended (at a checkpoint, or at once if repeated).
    """
    waiting, running = list(plan.to_do), dict[PlannedRun, Job]()
    failed, losses = dict[str, str](), dict[str, list[int | None]]()
    with report.Board(plan) as board, _terminate_as_interrupt():
        try:
            room = True
            while waiting or running:
                if room:
                    _fill(plan, executor, waiting, running, board)
                time.sleep(0.2)
                room = False  # nothing changes until a run has ended
                for run in [run for run, job in running.items() if job.done()]:
                    room = True
                    job = running.pop(run)
                    problem = job.problem()
                    if problem is None and not plan.is_finished(run):
                        problem = "the run was stopped before its last step"
                    if problem is not None and job.lost:
                        steps = losses.setdefault(run.id, [])
                        steps.append(run_state(plan.run_folder(run)).step)
                        if steps.count(steps[-1]) <= LOSSES:
                            board.ended(run, problem, again=True)
                            _wait_for_folder(plan.run_folder(run))
                            waiting.append(run)
                            continue
                    if problem is not None:
                        failed[run.id] = problem
                    board.ended(run, problem)
                board.refresh()
        except KeyboardInterrupt:
            end(plan, running, board)
            raise
    return failed


def _fill(
    plan: Plan,
    executor: Executor,
    waiting: list[PlannedRun],
    running: dict[PlannedRun, Job],
    board: report.Board,
) -> None:
    """Start waiting runs that there is room for, and take them off the list."""
    for run in in_turn(plan, waiting, running):
        if len(running) >= executor.workers:
            return
        command, need = _command(plan, run, executor.threads), 0.0
        if isinstance(executor, LocalExecutor) and executor.shares:
            like = [plan.run_folder(other) for other in plan.runs if other.name == run.name]
            need = executor.gpu_memory(run.config, like)
        job = executor.start(command, plan.notebook(run).with_suffix(".log"), need)
        if job is not None:
            running[run] = job
            waiting.remove(run)
            board.started(run)


def in_turn(plan: Plan, waiting: Sequence[PlannedRun], running: Mapping[PlannedRun, Job]) -> list[PlannedRun]:
    """Those first that would not wait for another's warm start; runs of one model share it."""
    warming = [run.config.model for run in running if run_state(plan.run_folder(run)).step is None]
    turn: list[PlannedRun] = []
    later: list[PlannedRun] = []
    for run in waiting:
        (later if run.config.model in warming else turn).append(run)
        warming.append(run.config.model)
    return turn + later


def _command(plan: Plan, run: PlannedRun, threads: int) -> list[str]:
    """What trains a run, anywhere where this folder and this Python are."""
    overrides = {"trainer.num_threads": threads, **run.overrides}
    parameters = {"config": str(plan.params), "overrides": overrides, "root": str(plan.root)}
    # here the run is the worker's: it ends with the study
    if "detached" in parameters_of(plan.config.notebook):
        parameters["detached"] = False
    return _execution(plan.config.notebook, plan.notebook(run), parameters)


def _execution(source: str, target: Path, parameters: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", "rlkit.studies.notebook", source, str(target), json.dumps(dict(parameters))]


def _wait_for_folder(folder: Path) -> None:
    """A run that was lost may still be ending on the same file system: wait until its folder is free."""
    if (lock := folder / ".lock").exists():
        with suppress(Timeout), FileLock(lock, timeout=LETS_GO):
            pass


def end(plan: Plan, running: Mapping[PlannedRun, Job], board: report.Board) -> None:
    """End runs at their next checkpoint; at once on a second Ctrl-C."""
    board.say(
        f"Ending {len(running)} runs at their next checkpoint; Ctrl-C again ends them at once. "
        "The same command goes on from there."
    )
    try:
        for job in running.values():
            job.interrupt()
        seen: dict[PlannedRun, int] = {}
        while not all(job.done() for job in running.values()):
            time.sleep(HEARD)
            for run, job in running.items():  # one that goes on stepping was importing, and never heard
                step = run_state(plan.run_folder(run)).step or 0
                if step > seen.setdefault(run, step) + 1:
                    job.interrupt()
                    del seen[run]
    except KeyboardInterrupt:
        for job in running.values():
            job.kill()


def analyse_all(plan: Plan) -> dict[str, str]:
    """Execute the analysis notebook here; returns its last lines where it failed."""
    source = plan.config.analysis.notebook
    target = plan.folder / "notebooks" / Path(source).name
    report.console.print(f"Analysing all runs: {source}")
    job = Job(_execution(source, target, plan.analysis), target.with_suffix(".log"), {})
    with _terminate_as_interrupt():
        try:
            while not job.done():
                time.sleep(0.2)
        except KeyboardInterrupt:
            job.kill()
            raise
    problem = job.problem()
    return {} if problem is None else {"analysis": problem}


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
