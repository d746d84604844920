"""Studies: a grid of runs, trained through a notebook and analysed by another (rlkit.study_file has the format)."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.notebook import check_parameters, parameters_of
from rlkit.store import read_json
from rlkit.study_file import StudyConfig, read_study

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a study: its configuration, and how it differs from what all runs share."""

    config: RunConfig
    cell: Mapping[str, Any]
    overrides: Mapping[str, Any]
    held_out: bool

    variant: str = ""

    @property
    def id(self) -> str:
        return self.config.id

    @property
    def name(self) -> str:
        """The cell in words: the variant and the grid's values."""
        words = [self.variant] if self.variant else []
        return ", ".join([*words, *map(str, self.cell.values())]) or self.config.study

    @property
    def record(self) -> dict[str, Any]:
        """What study.json says of it."""
        variant = {"variant": self.variant} if self.variant else {}
        return {"cell": self.name, **variant, "held_out": self.held_out, "seed": self.config.seed}

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.config.seed}"


@dataclass(frozen=True)
class Plan:
    """What a study is going to do."""

    config: StudyConfig
    params: Path
    runs: list[PlannedRun]
    root: Path
    overrides: Mapping[str, Any]
    threads: int = 0
    """CPU threads of each run; 0 is all cores. The estimated seconds depend on it."""

    @property
    def folder(self) -> Path:
        return self.root / self.config.study

    @cached_property
    def analysis(self) -> dict[str, Any]:
        """What the analysis notebook is executed with: the study's folder, or what `rlkit.study` was called
        with where the notebook calls it too, and the parameters of the study's file."""
        section = self.config.analysis
        given = {
            "study": str(self.folder),
            "params": str(self.params),
            "overrides": dict(self.overrides),
            "root": str(self.root),
        }
        known = parameters_of(section.notebook)
        chosen = {name: value for name, value in given.items() if name in known}
        return check_parameters(section.notebook, {**chosen, **(section.model_extra or {})})

    def run_folder(self, run: PlannedRun) -> Path:
        return self.folder / "runs" / run.id

    def notebook(self, run: PlannedRun) -> Path:
        """Where the executed copy of the run's notebook is kept."""
        return self.folder / "notebooks" / f"{run.id}.ipynb"

    def is_finished(self, run: PlannedRun) -> bool:
        status = read_json(self.run_folder(run) / "run.json").get("status")
        return status == "finished" and self.notebook(run).exists()

    @cached_property
    def to_do(self) -> list[PlannedRun]:
        """The runs that are not finished, most expensive first: the last to end is then a short one."""
        unfinished = [run for run in self.runs if not self.is_finished(run)]
        return sorted(unfinished, key=lambda run: -self.costs[run.name]["flops"])

    @cached_property
    def costs(self) -> dict[str, dict[str, float]]:
        """The estimated `flops` and `seconds` of a whole run of each cell that has unfinished ones."""
        from rlkit.compute import estimate

        threads = {"trainer.num_threads": self.threads}
        return {
            run.name: estimate(load(self.params, {**threads, **run.overrides}))
            for run in self.runs
            if not self.is_finished(run)
        }

    def record(self) -> None:
        """Write study.json: the held-out cells, frozen by the first call, and the runs.

        Raises:
            UserError: the study has begun with other held-out cells.
        """
        path = self.folder / "study.json"
        frozen = read_json(path).get("holdout", self.config.holdout)
        if frozen != self.config.holdout:
            raise UserError(
                f"holdout is {self.config.holdout}, but the study {self.config.study!r} began with {frozen}: "
                "what is held out cannot change once runs exist; restore it, or give the study another name."
            )
        runs = {run.id: run.record for run in self.runs}
        content = {
            "study": self.config.study,
            "params": str(self.params),
            "holdout": self.config.holdout,
            "variants": self.config.variants,
            "grid": self.config.grid,
            "seeds": self.config.seeds,
            "runs": runs,
        }
        write_text(path, json.dumps(content, indent=1) + "\n")


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
        from rlkit.results import read, read_evals

        for run, lines in self.failed.items():
            raise StudyFailed(
                f"{len(self.failed)} of {len(self.runs)} runs failed. {run}: {lines.splitlines()[-1]}"
            )
        return read(self.folder).dropna(subset="cell"), read_evals(self.folder).dropna(subset="cell")


class StudyFailed(RuntimeError):
    """Runs of a study failed; the message holds what the first of them said."""


def make_plan(
    path: str | Path, overrides: Mapping[str, Any] | None = None, root: str | Path = "outputs"
) -> Plan:
    """The runs of a study file, checked, before anything is started or written.

    Args:
        overrides: dotted keys of the study file, e.g. `{"run.trainer.total_training_steps": 5}`.

    Raises:
        UserError: anything wrong in the file, in any run's configuration or in a notebook's parameters.
    """
    path = Path(path)
    config = read_study(path, overrides or {})
    shared = {key[4:]: value for key, value in (overrides or {}).items() if key.startswith("run.")}
    runs = []
    variants = config.variants or {"": {}}
    for name, cell, seed in itertools.product(variants, config.cells(), config.seeds):
        changes = {"study": config.study, **shared, **variants[name], **cell, "seed": seed}
        place = {**cell, "seed": seed, "variant": name}
        held_out = bool(config.holdout) and all(place[k] in v for k, v in config.holdout.items())
        runs.append(PlannedRun(load(path, changes), cell, changes, held_out, name))
    if len({run.id for run in runs}) < len(runs):
        raise UserError(f"{path}: two runs would be the same: a value of the grid or a seed is listed twice.")
    if all(run.held_out for run in runs) and config.holdout:
        raise UserError(f"{path}: holdout is {config.holdout}, which is every run: leave some for the fit.")
    check_parameters(config.notebook, {"config": "", "overrides": {}, "root": ""})
    plan = Plan(config, path, runs, Path(root), overrides or {})
    _ = plan.analysis  # a wrong parameter is an error before the first run
    return plan


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
        options: of the executor (rlkit.executors.make_executor).

    Raises:
        UserError: bad input, before anything is started.
        KeyboardInterrupt: Ctrl-C; running runs have ended at a checkpoint.
    """
    from rlkit import board
    from rlkit.executors import make_executor
    from rlkit.scheduler import Scheduler

    plan = make_plan(path, overrides, root)
    chosen = make_executor(executor, workers, len(plan.runs), options)
    plan = replace(plan, threads=chosen.threads)
    scheduler = Scheduler(plan, chosen)
    board.show_plan(plan, scheduler.workers, here=executor == "local")
    if dry_run:
        return StudyResult(plan.folder, [run.id for run in plan.runs])
    plan.record()
    failed = scheduler.train()
    gained = scheduler.throughput()
    if gained is not None:
        gained.write(plan.folder)
    if analyse and not failed:
        failed = scheduler.analyse()
    board.show_end(plan, failed, gained)
    if analyse and not failed:
        board.show_reading(plan.folder)
    return StudyResult(plan.folder, [run.id for run in plan.runs], failed)
