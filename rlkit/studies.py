"""Studies: a grid of runs, trained through a notebook and analysed by another.

study: quickstart
run:                       # what all runs share: a RunConfig
  data: {train_batch_size: 64}
variants:                  # keys that differ together, by name
  short: {data.max_response_length: 8}
  long: {data.max_response_length: 16, trainer.total_training_steps: 50}
grid:                      # every combination, of every variant, is a cell
  model.path: [ladder-30k, ladder-100k, ladder-1m]
seeds: [0, 1]              # runs a cell
holdout:                   # cells that no fit may see; frozen before the first run
  model.path: [ladder-1m]
analysis:                  # parameters of the analysis notebook
  law: saturating_power
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from rlkit.config import RunConfig, Section, load
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.notebook import check_parameters, parameters_of
from rlkit.params import override, read_yaml, validate
from rlkit.store import read_json

if TYPE_CHECKING:
    import pandas as pd


class Analysis(Section):
    """The notebook that runs when all runs have ended; other keys are its parameters."""

    model_config = ConfigDict(extra="allow")

    notebook: str = "notebooks/analysis.ipynb"
    """Path from the project's folder."""


class StudyConfig(Section):
    """Everything a study file may hold."""

    study: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    """Folder under outputs/; default: the file's name."""
    notebook: str = "notebooks/train.ipynb"
    """The notebook that trains one run, executed once a run."""
    run: dict[str, Any]
    """The RunConfig that all runs share."""
    variants: dict[str, dict[str, Any]] = Field({})
    """Names to dotted keys of RunConfig that differ together: algorithms, mixtures, budgets."""
    grid: dict[str, list[Any]] = Field({})
    """Dotted keys of RunConfig to the values they take; every combination, of every variant, is a cell."""
    seeds: list[int] = Field([0], min_length=1)
    """Seeds of the runs of each cell."""
    holdout: dict[str, list[Any]] = Field({})
    """A cell that has one of these values under each of these keys (of the grid, `seed` or `variant`) is held
    out of every fit."""
    analysis: Analysis = Analysis()

    @field_validator("grid", "holdout")
    @classmethod
    def _values(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in value.items():
            if not values:
                raise ValueError(f"{key} has no values: list at least one or leave the key out")
            if len(values) != len({json.dumps(v, sort_keys=True) for v in values}):
                raise ValueError(f"{key} lists a value twice: {values}")
        return value


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


def load_one(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The RunConfig of one run: of a run's file, or of the cell of a study's file that overrides choose.

    Raises:
        UserError: as `rlkit.load`; a study's file with a key of the grid that is not chosen, since such a run
            would stand in the study's folder and be none of its runs.
    """
    config, content = load(path, overrides), read_yaml(path)
    grid = (content.get("grid") or {}) if "run" in content else {}
    if missing := [key for key in grid if key not in (overrides or {})]:
        cell = {key: grid[key][0] for key in missing}
        words = " ".join(f"{key}={value}" for key, value in cell.items())
        raise UserError(
            f"{path} is a study over {', '.join(grid)}: rlkit study {path} trains all its runs; for one, choose its "
            f"cell, e.g. rlkit run {path} {words}, in Python by the overrides {cell}."
        )
    return config


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
    config = _study_config(path, overrides or {})
    shared = {key[4:]: value for key, value in (overrides or {}).items() if key.startswith("run.")}
    runs = []
    variants = config.variants or {"": {}}
    for name, cell, seed in itertools.product(variants, _cells(config.grid), config.seeds):
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
    return StudyResult(plan.folder, [run.id for run in plan.runs], failed)


def _study_config(path: Path, overrides: Mapping[str, Any]) -> StudyConfig:
    content = {"study": path.stem, **read_yaml(path)}
    if "run" not in content and (
        sections := [k for k in content if k in RunConfig.model_fields and k != "study"]
    ):
        raise UserError(
            f"{path} holds the keys of a run ({', '.join(sections)}): use rlkit run {path}, or put them under 'run:'."
        )
    dotted = {}
    for key, value in overrides.items():
        section, _, rest = key.partition(".")
        if section in ("grid", "holdout") and rest:  # their own keys are dotted
            content[section] = {**(content.get(section) or {}), rest: value}
        elif section == "variants" and rest:
            name, _, changed = rest.partition(".")
            variants = content.get(section) or {}
            content[section] = {
                **variants,
                name: {**variants.get(name, {}), changed: value} if changed else value,
            }
        else:
            dotted[key] = value
    config: StudyConfig = validate(StudyConfig, override(content, dotted), where=str(path))
    if "seed" in config.grid or "study" in config.grid:
        raise UserError(f"{path}: grid cannot hold 'seed' or 'study': list seeds under 'seeds'.")
    for name, changes in config.variants.items():
        if both := [key for key in changes if key in (*config.grid, "seed", "study")]:
            raise UserError(
                f"{path}: variants.{name} sets {both}, which the grid or the seeds set too: drop one."
            )
    own = {"seed": config.seeds, "variant": list(config.variants)}
    for key, values in config.holdout.items():
        known = own.get(key, config.grid.get(key, []))
        if missing := [value for value in values if value not in known]:
            raise UserError(f"{path}: holdout.{key} has {missing}, which the grid does not: it has {known}.")
    return config


def _cells(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values; one empty cell for an empty grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
