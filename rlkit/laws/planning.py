"""`rlkit plan params/plan.yaml`: the best use of a budget under a law, and what a design would show.

law: chinchilla
params: {E: 1.69, A: 406.4, alpha: 0.34, B: 410.7, beta: 0.28}    # or  fit: outputs/study/fit.json
budget: [1.0e+21, 1.0e+22]      # FLOPs: the best N and D of each
design: {N: [1.0e+8, 1.0e+9], D: [1.0e+9, 1.0e+10, 1.0e+11]}      # every combination; or a CSV file
seeds: 3
noise: 0.008                    # standard deviation of one measurement, in residual space
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.laws.design import allocate, allocate_rollouts, design
from rlkit.laws.diagnose import RAN_AWAY
from rlkit.laws.law import resolve
from rlkit.params import override, read_yaml, validate
from rlkit.sizing.devices import Device


class PlanConfig(Section):
    """Everything a plan file may hold."""

    law: str | None = None
    """The law assumed; may be left out when `fit` names one."""
    params: dict[str, float] = Field({})
    """Its parameters; they override those of `fit`."""
    fit: str | None = None
    """A file that LawFit.to_json wrote: law, parameters and residual spread are taken from it."""
    budget: list[PositiveFloat] = Field([])
    """FLOPs for which the best N and D are sought; with `prompts` rollouts."""
    prompts: PositiveInt | None = None
    """Prompts a step: the law says how many rollouts a prompt are best in a budget of rollouts."""
    flops_per_cell: PositiveFloat = 6.0
    """FLOPs a parameter and token."""
    maximise: bool = False
    """True where a higher y is better."""
    design: dict[str, list[float]] | str | None = None
    """The study: values of each column of the law (every combination is a cell), or a CSV file with the
    columns."""
    seeds: PositiveInt = 1
    """Runs a cell."""
    noise: PositiveFloat | None = None
    """Standard deviation of one measurement in residual space; default the fit's."""
    run_noise: NonNegativeFloat = 0.0
    """Standard deviation of an offset that a run's measurements share."""
    price: Device = Device()
    """The device whose hours are told, and the price of one."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""


@dataclass(frozen=True)
class PlanResult:
    """What was planned: `allocation` (None without a budget) and `design` (None without a design).

    Attributes:
        flops: what the design costs, 6·N·D a run; None where its law has no N and D.
        columns: the table's column behind each of the law's, and y, where the law came from a fit.
        cautions: what that fit's data do not show, and where the plan leaves them.
    """

    config: PlanConfig
    law: str
    params: dict[str, float]
    allocation: pd.DataFrame | None
    design: pd.DataFrame | None
    flops: float | None
    columns: Mapping[str, str]
    cautions: list[str]

    def summary(self) -> str:
        """The text that `rlkit plan` prints."""
        number = "{:.4g}".format
        lines = [f"{self.law}: " + ", ".join(f"{k} = {v:.5g}" for k, v in self.params.items())]
        if self.columns:
            lines.append("fitted with " + ", ".join(f"{k} = {v}" for k, v in self.columns.items()))
        if self.allocation is not None:
            cost = f"{self.config.flops_per_cell:g}·N·{self.allocation.columns[2]} FLOPs"
            cost = "rollouts a prompt · prompts a step · steps" if self.config.prompts else cost
            lines += ["", f"Best use of each budget, where a run costs {cost}"]
            lines.append(self.allocation.to_string(index=False, float_format=number))
        if self.design is not None:
            spent = (
                {} if self.flops is None else {"flops": self.flops, **_cost(self.flops, self.config.price)}
            )
            told = ", ".join(f"{k} {number(v)}" for k, v in spent.items())
            share, draws = f"{self.config.level:.0%}", self.design.attrs["draws"]
            lines += [
                "",
                f"The design{': ' * bool(told)}{told}. {share} of the estimates of {draws} simulated studies:",
            ]
            lines.append(self.design.to_string(index=False, float_format=number))
        lines += ["", *(f"! {text}" for text in self.cautions)] if self.cautions else []
        return "\n".join(lines)


def plan(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> PlanResult:
    """Carry out a plan file (or its content): allocate budgets, and say which intervals a design would give.

    Raises:
        UserError: anything wrong in the file; neither a budget nor a design.
    """
    where = "" if isinstance(source, Mapping) else str(source)
    content = dict(source) if isinstance(source, Mapping) else read_yaml(source)
    config: PlanConfig = validate(PlanConfig, override(content, overrides or {}), where=where)
    record = _record(config.fit)
    law = resolve(config.law or record.get("law") or _refuse("law"))
    fitted = record if record.get("law") == law.name else {}
    params = {**fitted.get("params", {}), **config.params}
    if not config.budget and config.design is None:
        raise UserError("The plan has neither a budget nor a design: give at least one.")
    allocation, designed, flops = None, None, None
    drawn = np.array(fitted["draws"]) if fitted.get("draws") and not config.params else None
    if config.budget and config.prompts:
        options = {"prompts": config.prompts, "level": config.level}
        allocation = allocate_rollouts(law, config.budget, params=params, draws=drawn, **options)
    elif config.budget:
        options = config.model_dump(include={"flops_per_cell", "maximise", "level"})
        allocation = allocate(law, config.budget, params=params, draws=drawn, **options)
        allocation = allocation.assign(**_cost(allocation["budget"], config.price))
    if config.design is not None:
        rows, noise = _rows(config), config.noise or record.get("residual_sd") or _refuse("noise")
        designed = design(
            law, rows, params=params, noise=noise, run_noise=config.run_noise, level=config.level
        )
        flops = float((6 * rows["N"] * rows["D"]).sum()) if {"N", "D"} <= set(rows.columns) else None
    shown = {p: params[p] for p in law.parameters if p in params}
    cautions = _cautions(fitted, allocation) + _weak(designed)
    return PlanResult(
        config, law.name, shown, allocation, designed, flops, fitted.get("columns", {}), cautions
    )


def _cost(flops: Any, price: Device) -> dict[str, Any]:
    """gpu_hours and, where an hour has a price, cost."""
    hours = flops / (price.flops_per_second * price.utilization * 3600)
    return {"gpu_hours": hours} | ({} if price.per_hour is None else {"cost": hours * price.per_hour})


def _cautions(fitted: Mapping[str, Any], allocation: pd.DataFrame | None) -> list[str]:
    """The warnings of the fit that a plan starts from, and where the best use of a budget lies beyond its data."""
    found = list(fitted.get("warnings", []))
    if allocation is not None and "rollout.n" in allocation and allocation["rollout.n"].min() < 2:
        found.append(
            "A group of fewer than 2 rollouts has nothing to compare: the law leaves its range there."
        )
    for column, (low, high) in fitted.get("seen", {}).items():
        if (
            allocation is not None
            and fitted["columns"].get(column) == "budget"
            and allocation["budget"].max() > high
        ):
            most = allocation["budget"].max()
            found.append(f"The largest budget is {most:.3g}, and the fit saw {low:.3g} to {high:.3g}.")
        if allocation is not None and column in allocation:
            least, most = allocation[column].min(), allocation[column].max()
            if least < low or most > high:
                found.append(
                    f"The best {column} is {least:.3g} to {most:.3g}, and the fit saw {low:.3g} to {high:.3g}: beyond "
                    "that, the plan rests on the law's form alone."
                )
    return found


def _weak(designed: pd.DataFrame | None) -> list[str]:
    """What the simulated fits of a design say against it."""
    if designed is None:
        return []
    draws, failed = designed.attrs["draws"], designed.attrs["failed"]
    found = [f"{failed} of {draws} simulated studies could not be fitted."] if failed else []
    for name, count in designed.set_index("parameter")["at_bound"].items():
        if count > 0.05 * draws:
            found.append(
                f"In {count} of {draws} simulated studies {name} ends {RAN_AWAY}: the design cannot bound it."
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
        told = "which is not a file that LawFit.to_json wrote (one group)"
        raise UserError(f"fit is {path!r}, {told}.") from None
    return record


def _rows(config: PlanConfig) -> pd.DataFrame:
    """One row a run: every combination of the design's values, or the rows of its CSV file, for each seed."""
    grid, seeds = config.design, config.seeds
    if isinstance(grid, str):
        if not Path(grid).is_file():
            raise UserError(f"design is {grid!r}: there is no such file.")
        cells = pd.read_csv(grid)
    else:
        cells = pd.DataFrame(itertools.product(*(grid or {}).values()), columns=list(grid or {}))
    rows = pd.concat([cells] * seeds, ignore_index=True)
    return rows if "run" in rows.columns and seeds == 1 else rows.assign(run=range(len(rows)))
