"""Studies: the runs of a plan, trained through a notebook and analysed by another."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlkit.studies import terminal
from rlkit.studies.plan import make_plan
from rlkit.studies.schedule import Scheduler, make_executor

if TYPE_CHECKING:
    import pandas as pd


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
        path: the study file.
        overrides: dotted keys of that file, e.g. `{"run.trainer.total_training_steps": 5}`.
        workers: runs at a time; 0 is one a GPU, or one a CPU core; auto is as many on each GPU as its memory holds.
        dry_run: only show the runs with their estimated cost.
        analyse: execute the analysis notebook when all runs have ended; False where that is who calls.
        root: the folder that results are written to.
        executor: where runs are executed: local, ray or slurm; a run lost with its machine is tried again.
        options: of the executor (rlkit.studies.schedule.make_executor).

    Raises:
        UserError: bad input, before anything is started.
        KeyboardInterrupt: Ctrl-C; running runs have ended at a checkpoint.
    """
    plan = make_plan(path, overrides, root)
    chosen = make_executor(executor, workers, len(plan.runs), options)
    plan = replace(plan, threads=chosen.threads)
    scheduler = Scheduler(plan, chosen)
    terminal.show_plan(plan, scheduler.workers, here=executor == "local")
    if dry_run:
        return StudyResult(plan.folder, [run.id for run in plan.runs])
    plan.record()
    failed = scheduler.train()
    if analyse and not failed:
        failed = scheduler.analyse()
    terminal.show_end(plan, failed)
    if analyse and not failed:
        terminal.show_reading(plan.folder)
    return StudyResult(plan.folder, [run.id for run in plan.runs], failed)
