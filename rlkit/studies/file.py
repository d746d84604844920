"""The file of a study: what it may hold, and how it is read."""

import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from rlkit.config import Positive, RunConfig, Section, load
from rlkit.errors import UserError
from rlkit.params import override, read_yaml, validate


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
    holdout_after: Positive | None = None
    """Evaluations after this training step are held out of the laws along training."""
    baselines: dict[str, Any] = Field({})
    """With which value of a grid's key, or which `variant`, the others are compared in pairs; default the first of
    each, and no comparison of `model.path`."""
    analysis: Analysis = Analysis()

    def cells(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values; one empty cell for an empty grid."""
        combinations = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in combinations]

    @field_validator("grid", "holdout")
    @classmethod
    def _values(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in value.items():
            if not values:
                raise ValueError(f"{key} has no values: list at least one or leave the key out")
        return value


HOLD_DOTTED = {"grid": 1, "holdout": 1, "variants": 2}  # sections whose own keys, at this depth, are dotted


def read_study(path: Path, overrides: Mapping[str, Any]) -> StudyConfig:
    """A study's file with overrides under its dotted keys. A UserError where it is a run's or has unknown keys, or
    where grid, variants and held-out cells do not go together."""
    content: dict[str, Any] = {"study": path.stem, **read_yaml(path)}
    sections = [key for key in content if key in RunConfig.model_fields and key != "study"]
    if "run" not in content and sections:
        raise UserError(
            f"{path} holds the keys of a run ({', '.join(sections)}): use rlkit run {path}, or put them under 'run:'."
        )
    dotted: dict[str, Any] = {}
    for key, value in overrides.items():
        *parents, last = key.split(".", HOLD_DOTTED.get(key.partition(".")[0], 0))
        place = content if parents else dotted
        for name in parents:
            place[name] = dict(place.get(name) or {})
            place = place[name]
        place[last] = value
    config: StudyConfig = validate(StudyConfig, override(content, dotted), where=str(path))
    if "seed" in config.grid or "study" in config.grid:
        raise UserError(f"{path}: grid cannot hold 'seed' or 'study': list seeds under 'seeds'.")
    for name, changes in config.variants.items():
        if both := [key for key in changes if key in (*config.grid, "seed", "study")]:
            raise UserError(
                f"{path}: variants.{name} sets {both}, which the grid or the seeds set too: drop one."
            )
    axes = {"seed": config.seeds, "variant": list(config.variants), **config.grid}
    baselines = {key: [value] for key, value in config.baselines.items()}
    named = (("holdout", config.holdout), ("baselines", baselines))
    for section, key, values in ((section, *item) for section, keys in named for item in keys.items()):
        if missing := [value for value in values if value not in axes.get(key, [])]:
            raise UserError(
                f"{path}: {section}.{key} has {missing}, which the grid does not: it has {axes.get(key, [])}."
            )
    return config


def load_one(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The RunConfig of one run: of a run's file, or of the cell of a study's file that overrides choose by the
    keys of its grid and, where it has variants, by `variant`. A variant that changes nothing need not be named.

    A UserError as of `rlkit.load`, and where a part of the cell is not chosen, since such a run would stand in the
    study's folder and be none of its runs; overrides that name the study, as those of its own runs do, need no more."""
    config, content, given = load(path, overrides), read_yaml(path), overrides or {}
    if "run" not in content or "study" in given:
        return config
    variants = content.get("variants") or {}
    axes = {"variant": list(variants)} if variants and all(variants.values()) else {}
    axes |= content.get("grid") or {}
    if any(key not in given for key in axes):
        cell = {key: given.get(key, values[0]) for key, values in axes.items()}
        words = " ".join(shlex.quote(f"{key}={value}") for key, value in cell.items())
        raise UserError(
            f"{path} is a study over {', '.join(axes)}: rlkit study {path} trains all its runs; for one, choose its "
            f"cell, e.g. rlkit run {path} {words}, in Python by the overrides {cell}."
        )
    return config
