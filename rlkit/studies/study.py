"""Studies: the runs of a plan, trained through a notebook, largest first, and analysed by another."""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from rlkit.results.run_state import run_state
from rlkit.studies import status
from rlkit.studies.dry_run import show_plan
from rlkit.studies.executors import Executor, Job, LocalExecutor, make_executor
from rlkit.studies.notebook import parameters_of
from rlkit.studies.plan import Plan, PlannedRun, make_plan
from rlkit.training.interrupt import Interrupt

HEARD = 1.0  # seconds after which a run that is to end has begun its last step
LOSSES = 3  # times that a run may be lost with its machine without getting a step further
LETS_GO = 60.0  # seconds that a lost run's process may take to let go of its folder


@dataclass(frozen=True)
class StudyResult:
    """How a study ended. `failed` maps a run's id (or "analysis") to its last lines."""

    folder: Path
    runs: list[str]
    failed: dict[str, str] = field(default_factory=dict)


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

    Each run is the study's notebook in a process of its own, executed by papermill into outputs/<study>/notebooks/. A
    failed run does not stop the others and is tried again, from its last checkpoint, by the next call.

    Args:
        overrides: dotted keys of the study file, e.g. `{"run.trainer.total_training_steps": 5}`.
        workers: runs at a time; 0 is one a GPU, or one a CPU core; auto is as many on each GPU as its memory holds.
        dry_run: only show the runs with their estimated cost.
        analyse: execute the analysis notebook when all runs have ended; False where that is who calls, which gets a
            StudyFailed where runs have failed.
        executor: where runs are executed: local or slurm; a run lost with its machine is tried again.
        options: of slurm (rlkit.studies.executors.make_executor).

    Raises a UserError before anything is started, KeyboardInterrupt when running runs have ended at a checkpoint."""
    plan = make_plan(path, overrides, root, say=partial(print, file=sys.stderr, flush=True))
    chosen = make_executor(executor, workers, len(plan.runs), options)
    plan = plan.with_threads(chosen.threads)
    show_plan(plan, chosen.workers)
    runs, failed = [run.id for run in plan.runs], dict[str, str]()
    if not dry_run:
        plan.record()
        with Interrupt():  # of a batch system, too
            failed = train_all(plan, chosen)
            if analyse and not failed:
                failed = analyse_all(plan)
        status.show_end(plan, failed, reading=analyse)
    if failed and not analyse:
        (run, lines), *_ = failed.items()
        raise StudyFailed(f"{len(failed)} of {len(runs)} runs failed. {run}: {lines.splitlines()[-1]}")
    return StudyResult(plan.folder, runs, failed)


def train_all(plan: Plan, executor: Executor) -> dict[str, str]:
    """Train every unfinished run; the last lines of those that failed. KeyboardInterrupt comes when runs have ended."""
    waiting, running = list(plan.to_do), dict[PlannedRun, Job]()
    failed, losses = dict[str, str](), Counter[tuple[str, int | None]]()
    with status.Board(plan) as board:
        try:
            while waiting or running:
                for run in list(waiting):
                    if len(running) < executor.workers and (job := _start(plan, executor, run)):
                        running[run] = job
                        waiting.remove(run)
                        board.started(run)
                while not (ended := [run for run, job in running.items() if job.done()]):
                    time.sleep(0.5)
                    board.refresh()
                for run in ended:
                    job = running.pop(run)
                    problem = job.problem()
                    if problem is None and not run.finished:
                        problem = "the run was stopped before its last step"
                    losses[place := (run.id, run_state(run.folder).step)] += job.lost
                    again = job.lost and losses[place] <= LOSSES
                    board.ended(run, problem, again)
                    if again and (lock := run.folder / ".lock").exists():
                        with suppress(Timeout), FileLock(lock, timeout=LETS_GO):
                            pass  # it may still be ending on the same file system
                    if again:
                        waiting.append(run)
                    elif problem is not None:
                        failed[run.id] = problem
        except KeyboardInterrupt:
            end(running)
            raise KeyboardInterrupt from None
    return failed


def _start(plan: Plan, executor: Executor, run: PlannedRun) -> Job | None:
    """Start what trains a run, anywhere where this folder and this Python are; None where there is no room for it."""
    source, need = plan.config.notebook, 0.0
    parameters = {"config": str(plan.params), "overrides": run.overrides, "root": str(plan.root)}
    # here the run is the worker's: it ends with the study
    detached = {"detached": False} if "detached" in parameters_of(source) else {}
    if isinstance(executor, LocalExecutor) and executor.shares:
        need = executor.gpu_memory(run.config, [r.folder for r in plan.runs if r.name == run.name])
    command = _execution(source, run.notebook, parameters | detached)
    return executor.start(command, run.notebook.with_suffix(".log"), need)


def _execution(source: str, target: Path, parameters: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", "rlkit.studies.notebook", source, str(target), json.dumps(parameters)]


def end(running: Mapping[PlannedRun, Job]) -> None:
    """End runs at their next checkpoint; at once on a second Ctrl-C."""
    words = f"Ending {status.counted(len(running), 'run')} at the next checkpoint; Ctrl-C again ends them at once."
    status.say(f"{words} The same command goes on from there.")
    try:
        for job in running.values():
            job.interrupt()
        seen: dict[PlannedRun, int] = {}
        while not all(job.done() for job in running.values()):
            time.sleep(HEARD)
            for run, job in running.items():  # one that goes on stepping was importing, and never heard
                step = run_state(run.folder).step or 0
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
    status.say(f"Analysing all runs: {source}")
    job = Job(_execution(source, target, plan.analysis), target.with_suffix(".log"), {})
    try:
        return {"analysis": problem} if (problem := job.problem()) is not None else {}
    except KeyboardInterrupt:
        job.kill()
        raise KeyboardInterrupt from None
