"""A plan as a file: `rlkit plan params/plan.yaml`.

law: chinchilla
params: {E: 1.69, A: 406.4, alpha: 0.34, B: 410.7, beta: 0.28}    # or  fit: outputs/study/fit.json
budget: [1.0e+21, 1.0e+22]      # FLOPs: the best N and D of each
design: {N: [1.0e+8, 1.0e+9], D: [1.0e+9, 1.0e+10, 1.0e+11]}      # every combination; or a CSV file
seeds: 3
noise: 0.008                    # standard deviation of one measurement, in residual space
candidates: {N: [3.0e+9], D: [1.0e+10, 1.0e+11]}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.laws.law import resolve
from rlkit.laws.planner import Design, Price, allocate, design
from rlkit.params import override, read_yaml, validate

Grid = dict[str, list[float]] | str


class PriceConfig(Section):
    """What a FLOP costs."""

    flops_per_second: PositiveFloat = Price.flops_per_second
    """Peak of one device; the default is an H100's in dense bf16."""
    utilization: float = Field(default=Price.utilization, gt=0, le=1)
    """Share of the peak that training reaches."""
    per_hour: PositiveFloat | None = None
    """Price of one device-hour; leave it out and no money is shown."""
    currency: str = Price.currency
    """Name of the money column."""


class PlanConfig(Section):
    """Everything a plan file may hold."""

    law: str | None = None
    """The law assumed; may be left out when `fit` names one."""
    params: dict[str, float] = Field({})
    """Its parameters; they override those of `fit`."""
    fit: str | None = None
    """A file that LawFit.to_json wrote: law, parameters and residual spread are taken from it."""
    budget: list[PositiveFloat] = Field([])
    """FLOPs for which the best N and D are sought."""
    flops_per_cell: PositiveFloat = 6.0
    """FLOPs a parameter and token."""
    tokens_per_step: PositiveFloat | None = None
    """Tokens (or tasks) of one training step, for a column of steps."""
    maximise: bool = False
    """True where a higher y is better."""
    design: Grid | None = None
    """The study: values of each column of the law (every combination is a cell), or a CSV file with the
    columns."""
    seeds: PositiveInt = 1
    """Runs a cell."""
    candidates: Grid | None = None
    """Runs that could be added, in the same forms."""
    noise: PositiveFloat | None = None
    """Standard deviation of one measurement in residual space; default the fit's."""
    run_noise: NonNegativeFloat = 0.0
    """Standard deviation of an offset that a run's measurements share."""
    flops: str = "6ND"
    """What a row costs: 6ND, or the name of a column."""
    price: PriceConfig = PriceConfig()
    replicates: PositiveInt = 1000
    """Simulated studies."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""
    seed: int = 0
    """Of the simulated noise."""


@dataclass(frozen=True)
class PlanResult:
    """What was planned: `allocation` (None without a budget) and `design` (None without a design).

    Attributes:
        flops_per_cell: FLOPs a unit of size and unit of data.
        columns: the table's column behind each of the law's, and y, where the law came from a fit.
        cautions: what that fit's data do not show, and where the plan leaves them.
    """

    law: str
    params: dict[str, float]
    allocation: pd.DataFrame | None
    design: Design | None
    flops_per_cell: float
    columns: Mapping[str, str]
    cautions: list[str]

    def summary(self) -> str:
        """The text that `rlkit plan` prints."""
        lines = [f"{self.law}: " + ", ".join(f"{k} = {v:.5g}" for k, v in self.params.items())]
        if self.columns:
            lines.append("fitted with " + ", ".join(f"{k} = {v}" for k, v in self.columns.items()))
        number = "{:.4g}".format
        if self.allocation is not None:
            shown = self.allocation.drop(columns="flops")
            cost = f"{self.flops_per_cell:g}·N·{shown.columns[2]}"
            lines += ["", f"Best use of each budget, where a run costs {cost} FLOPs"]
            lines += [shown.to_string(index=False, float_format=number)]
        if self.design is not None:
            cost = ", ".join(f"{number(v)} {k}" for k, v in self.design.cost.items())
            lines += [
                "",
                f"The design costs {cost}. Expected estimates over {self.design.replicates} simulated "
                "studies:",
            ]
            lines.append(self.design.intervals.to_string(index=False, float_format=number))
            if len(self.design.additions):
                lines += [
                    "",
                    "Runs to add, most gained a FLOP first, with the factor that each puts on a width (0 where an "
                    "infinite one becomes finite)",
                ]
                lines.append(self.design.additions.to_string(index=False, float_format=number))
        lines += ["", *(f"! {text}" for text in self.cautions)] if self.cautions else []
        return "\n".join(lines)


def plan(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> PlanResult:
    """Carry out a plan file (or its content): allocate budgets, simulate the design, rank candidate runs.

    Raises:
        UserError: anything wrong in the file; neither a budget nor a design.
    """
    where = "" if isinstance(source, Mapping) else str(source)
    content = dict(source) if isinstance(source, Mapping) else read_yaml(source)
    config: PlanConfig = validate(PlanConfig, override(content, overrides or {}), where=where)
    record = _record(config.fit)
    law = resolve(config.law or record.get("law") or _refuse("law"))
    params = {**(record.get("params", {}) if record.get("law") == law.name else {}), **config.params}
    price = Price(**config.price.model_dump())
    if not config.budget and config.design is None:
        raise UserError("The plan has neither a budget nor a design: give at least one.")
    allocation = None
    if config.budget:
        allocation = allocate(
            law, config.budget, params=params, flops_per_cell=config.flops_per_cell, maximise=config.maximise,
            tokens_per_step=config.tokens_per_step, price=price, level=config.level,
        )  # fmt: skip
    simulated = None
    if config.design is not None:
        noise = config.noise or record.get("residual_sd") or _refuse("noise")
        rows = _rows(config.design, "design", config.seeds)
        candidates = None if config.candidates is None else _rows(config.candidates, "candidates", 1)
        simulated = design(
            law, rows, params=params, noise=noise, run_noise=config.run_noise, candidates=candidates,
            flops=config.flops, price=price, replicates=config.replicates, level=config.level,
            seed=config.seed,
        )  # fmt: skip
    fitted = record if record.get("law") == law.name else {}
    return PlanResult(
        law.name, {p: params[p] for p in law.parameters if p in params}, allocation, simulated,
        config.flops_per_cell, fitted.get("columns", {}), _cautions(fitted, allocation),
    )  # fmt: skip


def _cautions(fitted: Mapping[str, Any], allocation: pd.DataFrame | None) -> list[str]:
    """The warnings of the fit that a plan starts from, and where the best use of a budget lies beyond its data."""
    found = list(fitted.get("warnings", []))
    for column, (low, high) in fitted.get("seen", {}).items():
        if allocation is None or column not in allocation:
            continue
        least, most = allocation[column].min(), allocation[column].max()
        if least < low or most > high:
            found.append(
                f"The best {column} is {least:.3g} to {most:.3g}, and the fit saw {low:.3g} to {high:.3g}: beyond "
                "that, the plan rests on the law's form alone."
            )
    return found


def _refuse(key: str) -> Any:
    raise UserError(f"The plan has no {key}: give it, or fit: with a file that LawFit.to_json wrote.")


def _record(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        record = record.get("fit", record)  # a study's analysis/law.json
        assert isinstance(record["params"], dict)
    except (OSError, ValueError, KeyError, AssertionError):
        raise UserError(
            f"fit is {path!r}, which is not a file that LawFit.to_json wrote (one group)."
        ) from None
    return record


def _rows(grid: Grid, key: str, seeds: int) -> pd.DataFrame:
    """One row a run: every combination of the grid's values, or the rows of a CSV file, `seeds` times."""
    if isinstance(grid, str):
        if not Path(grid).is_file():
            raise UserError(f"{key} is {grid!r}: there is no such file.")
        cells = pd.read_csv(grid)
    else:
        cells = pd.DataFrame(
            [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        )
    rows = pd.concat([cells] * seeds, ignore_index=True)
    return rows if "run" in rows.columns and seeds == 1 else rows.assign(run=range(len(rows)))
