"""What a study is going to do: its runs, in order of cost, and where each stands."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.config.run import value_of
from rlkit.errors import UserError
from rlkit.files import read_json, write_text
from rlkit.models.shapes import LADDER, at_hand
from rlkit.params import override, validate
from rlkit.seeds import content_hash
from rlkit.studies.file import StudyConfig, read_study
from rlkit.studies.notebook import check_parameters, parameters_of

MOST = 10_000  # runs of a study: planning one takes hundredths of a second
Cost = tuple[float, float]  # FLOPs and seconds, NaN where they are not known


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a study (outputs/<study>): its configuration and how that differs from what all runs share
    (`overrides`), its cell in words (`name`), and of its variant and of each key of the grid the value and the one that
    others are compared with (`factors`)."""

    config: RunConfig
    overrides: Mapping[str, Any]
    name: str
    variant: str
    factors: Mapping[str, list[Any]]
    held_out: bool
    study: Path

    @cached_property
    def id(self) -> str:
        return self.config.id

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.config.seed}"

    @property
    def folder(self) -> Path:
        return self.study / "runs" / self.id

    @property
    def notebook(self) -> Path:
        return self.study / "notebooks" / f"{self.id}.ipynb"

    @property
    def trained(self) -> bool:
        return read_json(self.folder / "run.json").get("status") == "finished"

    @property
    def finished(self) -> bool:
        return self.trained and self.notebook.exists()


@dataclass(frozen=True)
class Plan:
    """What a study is going to do."""

    config: StudyConfig
    params: Path
    runs: list[PlannedRun]
    root: Path
    overrides: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return self.root / self.config.study

    @cached_property
    def analysis(self) -> dict[str, Any]:
        """What the analysis notebook is executed with: the study's folder, or what `rlkit.study` was called
        with where the notebook calls it too, and the parameters of the study's file."""
        section = self.config.analysis
        given = {"study": str(self.folder), "params": str(self.params), "root": str(self.root)}
        known = parameters_of(section.notebook)
        chosen = {k: v for k, v in (given | {"overrides": dict(self.overrides)}).items() if k in known}
        return check_parameters(section.notebook, {**chosen, **(section.model_extra or {})})

    def with_threads(self, threads: int) -> "Plan":
        """The plan with so many CPU threads a run, where its file names no number; predicted seconds depend on it."""
        runs = []
        for run in self.runs:
            if not run.config.trainer.num_threads:
                overrides = {**run.overrides, "trainer.num_threads": threads}
                run = replace(run, config=_with_trainer(run.config, num_threads=threads), overrides=overrides)
            runs.append(run)
        return replace(self, runs=runs)

    @cached_property
    def to_do(self) -> list[PlannedRun]:
        """The runs that are not finished, most expensive first: the last to end is then a short one. Before all others
        one of each warm start, which those that share it would wait for."""
        unfinished = [run for run in self.runs if not run.finished]
        unfinished.sort(key=lambda run: -self.costs[run.name][0])
        warm = [run for run in unfinished if run.config.model.starts_warm]
        first = {run.config.model.model_dump_json(): run.id for run in reversed(warm)}.values()
        return sorted(unfinished, key=lambda run: run.id not in first)

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """What a whole run of each cell with unfinished ones is predicted to take."""
        from rlkit.sizing.estimate import estimate

        found = {run.name: run.config for run in self.runs if not run.finished}
        costs = {name: estimate(config) for name, config in found.items()}
        return {name: (e.flops, e.seconds) if e else (math.nan, math.nan) for name, e in costs.items()}

    @cached_property
    def warm_starts(self) -> dict[str, Cost]:
        """What the warm starts that are to be made are predicted to take, by the first cell of those that share them;
        where each seed has its own, those of all seeds together."""
        to_come = [run for run in self.runs if run.config.model.starts_warm and not run.finished]
        if not to_come:
            return {}
        from rlkit.sizing.estimate import estimate_warm_start
        from rlkit.training.warm_cache import to_make

        found, first = dict[str, Cost](), dict[Path | None, PlannedRun]()
        for run in {(run.name, run.config.model.warm_start.seed): run for run in to_come}.values():
            first.setdefault(to_make(run.config), run)
        for folder, run in first.items():
            if folder and (cost := estimate_warm_start(run.config)):
                flops, seconds = found.get(run.name, (0.0, 0.0))
                found[run.name] = flops + cost[0], seconds + cost[1]
        return found

    def record(self) -> None:
        """Write study.json: the runs, and the held-out cells; a UserError where it has begun with other ones."""
        path, config = self.folder / "study.json", self.config
        held, begun = config.model_dump(include={"holdout", "holdout_after"}), read_json(path)
        for key, value in held.items():
            if (frozen := begun.get(key, value)) != value:
                told = f"{key} is {value}, but the study {config.study!r} began with {frozen}"
                mend = "what is held out cannot change once runs exist; restore it, or give the study another name"
                raise UserError(f"{told}: {mend}.")
        content = {"study": config.study, "params": str(self.params), **held, "runs": {}}
        for run in self.runs:
            variant = {"variant": run.variant} if run.variant else {}
            facts = {"held_out": run.held_out, "seed": run.config.seed, "factors": run.factors}
            content["runs"][run.id] = {"cell": run.name, **variant, **facts}
        write_text(path, json.dumps(content, indent=1) + "\n")


def make_plan(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    root: str | Path = "outputs",
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """The runs of a study file with overrides under its dotted keys (`{"run.trainer.total_training_steps": 5}`), before
    anything is started; `say` is told what takes seconds. A UserError for anything wrong in the file, in any run's
    configuration or in a notebook's parameters, and for a file of tasks or a law that there is not."""
    path, root, overrides = Path(path), Path(root), overrides or {}
    config = read_study(path, overrides)
    axes = (config.variants or "1", *config.grid.values(), config.seeds)
    if (count := math.prod(map(len, axes))) > MOST:
        raise UserError(f"{path}: grid, variants and seeds make {count:,} runs: leave {MOST:,} at most.")
    say(f"Checking {count:,} runs of {path}: configurations, first tasks and costs …")

    shared = {key[4:]: value for key, value in overrides.items() if key.startswith("run.")}
    levels = {"variant": list(config.variants), **config.grid}
    baselines = {k: v[0] for k, v in levels.items() if len(v) > 1 and k != "model.path"} | config.baselines
    variants, runs, makers = config.variants or {"": {}}, [], {}
    for variant, values, seed in product(variants, product(*config.grid.values()), config.seeds):
        cell = dict(zip(config.grid, values, strict=True))
        changes = {"study": config.study, **shared, **variants[variant], **cell, "seed": seed}
        place = {**cell, "seed": seed, "variant": variant}
        held_out = bool(config.holdout) and all(place[k] in v for k, v in config.holdout.items())
        words = [variant] * bool(variant) + [value_of(key, value) for key, value in cell.items()]
        named = ({"variant": variant} if variant else {}) | cell
        factors = {key: [value, baselines.get(key)] for key, value in named.items()}
        run = validate(RunConfig, override(config.run, changes), where=str(path))
        for source in (*run.data.train, *(run.evaluation.sources or ())):  # each task is made once for all runs
            options = type(source), source.model_dump_json(exclude={"weight", "count"})
            vars(source)["task"] = makers.setdefault(options, cache(source.task))
        name = ", ".join(words) or config.study
        runs.append(PlannedRun(run, changes, name, variant, factors, held_out, root / config.study))
    if len({run.id for run in runs}) < len(runs):
        raise UserError(f"{path}: two runs would be the same: a value of the grid or a seed is listed twice.")
    if all(run.held_out for run in runs) and config.holdout:
        raise UserError(f"{path}: holdout is {config.holdout}, which is every run: leave some for the fit.")
    _check_first_steps(path, runs)
    check_parameters(config.notebook, {"config": "", "overrides": {}, "root": ""})
    plan = Plan(config, path, runs, root, overrides)
    analysis = plan.analysis
    for law in filter(None, (analysis.get("law"), analysis.get("training_law"), *analysis.get("forms", []))):
        from rlkit.laws.law import resolve  # a second, which files without a law do without

        resolve(law)
    return plan


def _with_trainer(config: RunConfig, **changes: int) -> RunConfig:
    return config.model_copy(update={"trainer": config.trainer.model_copy(update=changes)})


def _check_first_steps(path: Path, runs: Sequence[PlannedRun]) -> None:
    """Refuse a study with runs that would end at their first step, as those that differ in seed or size all do."""
    from rlkit.training.checks import preflight

    first: dict[str, PlannedRun] = {}
    for run in runs:
        model = run.config.model.path
        known = model if at_hand(model) else "hub"  # which is looked at when a run loads it
        kind = "ladder" if model in LADDER else known
        alike = {"seed": 0, "model.path": kind, "model.warm_start.seed": 0, "actor.optim": {}}
        first.setdefault(content_hash(override(run.config.model_dump(mode="json"), alike)), run)
    for run in first.values():
        config = run.config
        of_all = config.data.order == "curriculum" and config.data.train_max_samples <= 0
        if of_all and not at_hand(config.model.path):  # whose first batch takes all tasks to find
            config = _with_trainer(config, total_training_steps=1)
        try:
            preflight(config)
        except UserError as error:
            raise UserError(f"{path}: {run.label}: {error}") from None
