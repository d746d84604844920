"""What a study is going to do: its runs, in order of cost, and where each stands."""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig, load
from rlkit.domains import Source
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.models.shapes import LADDER, at_hand
from rlkit.results.labels import value_of
from rlkit.results.store import read_json
from rlkit.seeds import content_hash
from rlkit.studies.file import StudyConfig, read_study
from rlkit.studies.inert import no_warm_start
from rlkit.studies.notebook import check_parameters, parameters_of
from rlkit.types import Task


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a study: its configuration, and how it differs from what all runs share."""

    config: RunConfig
    cell: Mapping[str, Any]
    overrides: Mapping[str, Any]
    held_out: bool
    variant: str = ""
    baselines: Mapping[str, Any] = field(default_factory=dict)
    """Of the grid's keys and of `variant`, the value with which others are compared."""

    @property
    def id(self) -> str:
        return self.config.id

    @property
    def name(self) -> str:
        """The cell in words: the variant and the grid's values."""
        words = [self.variant] if self.variant else []
        return ", ".join([*words, *(value_of(key, v) for key, v in self.cell.items())]) or self.config.study

    @property
    def record(self) -> dict[str, Any]:
        """What study.json says of it; `factors` has its value of each key of the grid and the one to compare with."""
        variant = {"variant": self.variant} if self.variant else {}
        factors = {key: [value, self.baselines.get(key)] for key, value in {**variant, **self.cell}.items()}
        facts = {"held_out": self.held_out, "seed": self.config.seed, "factors": factors}
        return {"cell": self.name, **variant, **facts}

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
        section, overrides = self.config.analysis, dict(self.overrides)
        given = {"study": str(self.folder), "params": str(self.params), "root": str(self.root)}
        known = parameters_of(section.notebook)
        chosen = {name: value for name, value in (given | {"overrides": overrides}).items() if name in known}
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
        """The predicted `flops` and `seconds` of a whole run of each cell with unfinished ones, NaN where its model is
        not known."""
        from rlkit.sizing.estimate import estimate

        cells = {run.name: run for run in self.runs if not self.is_finished(run)}
        found = {name: estimate(self._priced(run)) for name, run in cells.items()}
        unknown = {"flops": math.nan, "seconds": math.nan}
        return {k: {"flops": e.flops, "seconds": e.seconds} if e else unknown for k, e in found.items()}

    @cached_property
    def warm_starts(self) -> dict[str, dict[str, float]]:
        """What the warm starts that are to be made are predicted to take, by the first cell of those that share them;
        where each seed has its own, those of all seeds together."""
        runs = [run for run in self.runs if not (no_warm_start(run.config) or self.is_finished(run))]
        if not runs:
            return {}
        from rlkit.sizing.estimate import estimate_warm_start
        from rlkit.training.warm_start import to_make  # loads transformers

        starts = {(run.name, run.config.model.warm_start.seed): run for run in runs}
        first: dict[Path, PlannedRun] = {}
        for run in starts.values():
            if folder := to_make(run.config):
                first.setdefault(folder, run)
        found: dict[str, dict[str, float]] = {}
        for run in first.values():
            if cost := estimate_warm_start(self._priced(run)):
                own = found.setdefault(run.name, {"flops": 0.0, "seconds": 0.0})
                own["flops"], own["seconds"] = own["flops"] + cost[0], own["seconds"] + cost[1]
        return found

    def _priced(self, run: PlannedRun) -> RunConfig:
        """The run's configuration with the threads that it will have."""
        if "trainer.num_threads" in run.overrides:
            return run.config
        trainer = run.config.trainer.model_copy(update={"num_threads": self.threads})
        return run.config.model_copy(update={"trainer": trainer})

    def record(self) -> None:
        """Write study.json: the held-out cells, frozen by the first call, and the runs.

        Raises:
            UserError: the study has begun with other held-out cells.
        """
        path, config = self.folder / "study.json", self.config
        frozen = read_json(path).get("holdout", config.holdout)
        if frozen != config.holdout:
            raise UserError(
                f"holdout is {config.holdout}, but the study {config.study!r} began with {frozen}: what is held out "
                "cannot change once runs exist; restore it, or give the study another name."
            )
        content = {
            "study": config.study,
            "params": str(self.params),
            **config.model_dump(include={"holdout", "variants", "grid", "seeds"}),
            "runs": {run.id: run.record for run in self.runs},
        }
        write_text(path, json.dumps(content, indent=1) + "\n")


def make_plan(
    path: str | Path, overrides: Mapping[str, Any] | None = None, root: str | Path = "outputs"
) -> Plan:
    """The runs of a study file, checked, before anything is started or written.

    Args:
        overrides: dotted keys of the study file, e.g. `{"run.trainer.total_training_steps": 5}`.

    Raises:
        UserError: anything wrong in the file, in any run's configuration or in a notebook's parameters; a file of tasks
            or a law that there is not.
    """
    path = Path(path)
    config = read_study(path, overrides or {})
    shared = {key[4:]: value for key, value in (overrides or {}).items() if key.startswith("run.")}
    variants = config.variants or {"": {}}
    levels = {"variant": list(config.variants), **config.grid}
    baselines = {k: v[0] for k, v in levels.items() if len(v) > 1 and k != "model.path"} | config.baselines
    runs, makers = [], {}
    for name, cell, seed in itertools.product(variants, config.cells(), config.seeds):
        changes = {"study": config.study, **shared, **variants[name], **cell, "seed": seed}
        place = {**cell, "seed": seed, "variant": name}
        held_out = bool(config.holdout) and all(place[k] in v for k, v in config.holdout.items())
        run = _with_tasks_made_once(load(path, changes), makers)
        runs.append(PlannedRun(run, cell, changes, held_out, name, baselines))
    if len({run.id for run in runs}) < len(runs):
        raise UserError(f"{path}: two runs would be the same: a value of the grid or a seed is listed twice.")
    if all(run.held_out for run in runs) and config.holdout:
        raise UserError(f"{path}: holdout is {config.holdout}, which is every run: leave some for the fit.")
    _check_first_steps(path, runs)
    check_parameters(config.notebook, {"config": "", "overrides": {}, "root": ""})
    plan = Plan(config, path, runs, Path(root), overrides or {})
    _check_laws(plan)
    return plan


def _check_laws(plan: Plan) -> None:
    """Refuse wrong parameters of the analysis before the first run."""
    from rlkit.laws.law import resolve  # seconds, which other commands do without

    chosen = plan.analysis
    for law in (chosen.get("law"), chosen.get("training_law"), *chosen.get("forms", [])):
        if law:
            resolve(law)


def _with_tasks_made_once(
    config: RunConfig, makers: dict[tuple[type, str], Callable[[int], Task]]
) -> RunConfig:
    """The configuration with sources that make each of their tasks once for all runs of a plan; `makers`, filled here,
    are what makes and keeps the tasks of each source's options."""

    def shared(source: Source) -> Source:
        key = type(source), source.model_dump_json(exclude={"weight", "count"})
        copy = source.model_copy()
        vars(copy)["task"] = makers.setdefault(key, cache(source.task))
        return copy

    data, evaluation = config.data, config.evaluation
    data = data.model_copy(update={"train": tuple(map(shared, data.train))})
    if evaluation.sources:
        evaluation = evaluation.model_copy(update={"sources": tuple(map(shared, evaluation.sources))})
    return config.model_copy(update={"data": data, "evaluation": evaluation})


def _check_first_steps(path: Path, runs: Sequence[PlannedRun]) -> None:
    """Refuse a study with runs that would end at their first step, as those that differ in seed or size all do."""
    from rlkit.training.checks import preflight  # loads torch

    seen = set()
    for run in runs:
        content = run.config.model_dump(mode="json")
        content["seed"], content["model"]["warm_start"]["seed"], content["actor"]["optim"] = 0, 0, {}
        model = run.config.model.path
        if model in LADDER or not at_hand(model):  # a hub's model is looked at when a run loads it
            content["model"]["path"] = "ladder" if model in LADDER else "hub"
        if (key := content_hash(content)) in seen:
            continue
        seen.add(key)
        config = run.config
        if config.data.order == "curriculum" and config.data.train_max_samples <= 0 and not at_hand(model):
            trainer = config.trainer.model_copy(update={"total_training_steps": 1})  # else it makes all tasks
            config = config.model_copy(update={"trainer": trainer})
        try:
            preflight(config)
        except UserError as error:
            raise UserError(f"{path}: {run.label}: {error}") from None
