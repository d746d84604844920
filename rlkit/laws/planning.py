"""Planning: the best use of a budget under a law, what a design would show, and which runs to add.

`rlkit plan params/plan.yaml` reads them from a file:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from scipy import stats

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.laws.fitting import LawFit
from rlkit.laws.law import Law, resolve
from rlkit.laws.solver import Problem, to_space
from rlkit.laws.table import numbers
from rlkit.params import override, read_yaml, validate
from rlkit.sizing.devices import Device

Grid = dict[str, list[float]] | str
DATA = ("D", "X", "E")  # columns that a law may call its data


def _known(
    law: str | Law | LawFit, params: Mapping[str, float] | None
) -> tuple[Law, np.ndarray, np.ndarray | None]:
    """A law, its parameters (p,) and, of a fit, their draws (B, p).

    Raises:
        UserError: parameters missing or unknown.
    """
    if isinstance(law, LawFit):
        return law.law, np.array(list(law.params.values())), law.draws
    form = resolve(law)
    form.check(params or {})
    given = {**form.pinned, **(params or {})}
    if missing := [p for p in form.parameters if p not in given]:
        told = f"the law {form.name!r} needs {', '.join(form.parameters)}"
        raise UserError(f"params lacks {', '.join(missing)}: {told}.")
    return form, np.array([float(given[p]) for p in form.parameters]), None


# --- the best use of a budget -----------------------------------------------------------------------------


def allocate(
    law: str | Law | LawFit,
    budget: float | Sequence[float],
    *,
    params: Mapping[str, float] | None = None,
    flops_per_cell: float = 6.0,
    maximise: bool = False,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compute-optimal size and data for each budget: the best y on N·D·flops_per_cell = budget.

    Args:
        law: a LawFit (its draws give the intervals), or a law with `params`. It must have the columns N and
            one of D, X or E; a third column U takes the value of the data (no repeats).
        budget: FLOPs. flops_per_cell: FLOPs a parameter and token.
        maximise: a higher y is better.

    Returns:
        One row a budget: budget, N, the data column, their ratio, y; N_low, N_high, y_low, y_high where there
        are draws. `at_edge` is true where the optimum lies outside the nine decades searched.

    Raises:
        UserError: a law without N and data, a budget that is not positive.
    """
    form, values, draws = _known(law, params)
    data = next((c for c in DATA if c in form.columns), None)
    if data is None or "N" not in form.columns:
        told = f"and {form.name!r} has {', '.join(form.columns)}"
        raise UserError(f"allocate needs a law of N and D (or X, E), {told}.")
    rows = []
    for C in np.atleast_1d(np.asarray(budget, dtype=float)):
        if not C > 0:
            raise UserError(f"budget is {C:g}: give FLOPs above 0.")
        (best,), edge = _best(form, values[None], C / flops_per_cell, data, maximise)
        row = {"budget": C, "N": best[0], data: best[1], f"{data}/N": best[1] / best[0], "y": best[2]}
        if draws is not None:
            spread, _ = _best(form, draws, C / flops_per_cell, data, maximise)
            low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
            row |= {"N_low": low[0], "N_high": high[0], "y_low": low[2], "y_high": high[2]}
        rows.append(row | {"at_edge": edge})
    return pd.DataFrame(rows)


def _best(law: Law, values: np.ndarray, cells: float, data: str, maximise: bool) -> tuple[np.ndarray, bool]:
    """(B, 3) best N, data and y with N·data = cells: a grid in ln N, then three zooms around its best point."""
    middle, width = np.full(len(values), np.log(cells) / 2), np.log(10) * 4.5
    edge, rows = False, np.arange(len(values))
    for zoom in range(4):
        ln_n = middle[:, None] + np.linspace(-width, width, 201)
        y = np.empty_like(ln_n)
        for i, N in enumerate(np.exp(ln_n)):
            columns = {"N": N, data: cells / N, "U": cells / N}
            found = law({c: columns[c] for c in law.columns}, values[i : i + 1])
            y[i] = to_space(found, law.returns, "linear")[0][0]
        k = np.nanargmax(y if maximise else -y, axis=1)
        edge = edge or (zoom == 0 and bool(k[0] in (0, 200)))
        middle, width = ln_n[rows, k], width / 50
    N = np.exp(middle)
    return np.column_stack([N, cells / N, y[rows, k]]), edge


# --- what a design would show -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """What a study would show.

    Attributes:
        intervals: one row a parameter: truth, low and high (where its estimate is expected), width; infinite where
            the design cannot tell the parameter from others.
        additions: one row a candidate run, most gained a FLOP first: its columns, flops, the factor by which it
            multiplies each parameter's width (0 where an infinite one becomes finite), and gain_per_flop, the mean fall
            in ln width a FLOP relative to the largest finite one.
        flops: of the design.
    """

    intervals: pd.DataFrame
    additions: pd.DataFrame
    flops: float


def design(
    law: str | Law | LawFit,
    runs: pd.DataFrame,
    *,
    params: Mapping[str, float] | None = None,
    noise: float,
    run_noise: float = 0.0,
    candidates: pd.DataFrame | None = None,
    flops: str = "6ND",
    level: float = 0.95,
) -> Design:
    """The intervals to expect of a least-squares fit before a study is run, and the best runs to add.

    Intervals are those of the information matrix at the parameters assumed, taken of the logarithm of a positive
    parameter: they are true to first order in the noise.

    Args:
        law, params: the truth assumed; a LawFit brings its own parameters.
        runs: one row a measurement under the law's column names; a column `run` names rows that share an
            offset.
        noise, run_noise: standard deviation of one measurement and of a run's offset, in residual space.
        candidates: rows that could be added, one at a time.
        flops: "6ND" or the name of a column. A row is charged for itself, so give only the last evaluation of a run.

    Raises:
        UserError: columns or parameters missing, a column of costs missing, noise that is not positive, fewer rows
            than parameters.
    """
    form, values, _ = _known(law, params)
    if not noise > 0:
        raise UserError(f"noise is {noise:g}: give the standard deviation of one measurement, above 0.")
    if len(runs) <= len(form.free):
        raise UserError(
            f"{len(runs)} rows cannot determine the {len(form.free)} parameters of {form.name!r}."
        )
    quantile = float(stats.norm.ppf((1 + level) / 2))

    def expected(rows: pd.DataFrame) -> pd.DataFrame:
        ends = _ends(form, values, rows, (noise, run_noise), quantile)
        table = pd.DataFrame(ends, columns=["parameter", "truth", "low", "high"])
        return table.assign(width=(table["high"] - table["low"]).fillna(np.inf))

    intervals = expected(runs)
    base, rows = intervals["width"].to_numpy(), []
    for i in range(0 if candidates is None else len(candidates)):
        one = candidates.iloc[[i]]  # type: ignore[union-attr]
        own = one.assign(run=f"candidate {i}") if "run" in runs.columns else one  # with an offset of its own
        more = expected(pd.concat([runs, own], ignore_index=True))["width"].to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.nan_to_num(more / base, nan=1.0)  # infinite both times: no change
            gain = -np.log(ratio).mean() / _flops(one, flops)
        shrink = dict(zip((f"{p} width" for p in form.free), ratio, strict=True))
        rows.append({**one.iloc[0].to_dict(), "flops": _flops(one, flops), **shrink, "gain_per_flop": gain})
    additions = pd.DataFrame(rows)
    if rows:
        additions["gain_per_flop"] /= additions["gain_per_flop"].abs().replace(np.inf, 0.0).max() or 1.0
        additions = additions.sort_values(
            ["gain_per_flop", "flops"], ascending=[False, True], ignore_index=True
        )
    return Design(intervals, additions, _flops(runs, flops))


def _ends(
    law: Law, values: np.ndarray, rows: pd.DataFrame, noise: tuple[float, float], quantile: float
) -> list[tuple[str, float, float, float]]:
    """Name, truth, low and high of each free parameter, ends infinite where the rows leave it undetermined."""
    columns = {c: numbers(rows, c, f"design column {c!r}") for c in law.columns}
    problem, z = Problem(law, columns, law.space, central=True), law.to_z(values[None])
    free = np.array([p not in law.pinned for p in law.parameters])
    run = rows["run"].to_numpy() if "run" in rows.columns else np.arange(len(rows))
    errors = noise[0] ** 2 * np.eye(len(rows)) + noise[1] ** 2 * np.equal.outer(run, run)
    J = problem.jacobian(z)[1][0][free]
    information = J @ np.linalg.solve(errors, J.T)
    unit = np.sqrt(np.maximum(np.diagonal(information), 1e-300))
    size, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    seen = size > 1e-9 * size[-1]
    blind = np.any(np.abs(vectors[:, ~seen]) > 1e-3, axis=1).tolist()
    half, found = quantile * np.sqrt((vectors[:, seen] ** 2 / size[seen]).sum(axis=1)) / unit, []
    for i, j in enumerate(np.flatnonzero(free).tolist()):
        low, high = (float(law.natural(j, z[0, j] + sign * half[i])[0]) for sign in (-1, 1))
        low, high = (-np.inf, np.inf) if blind[i] else (low, high)
        found.append((law.parameters[j], float(values[j]), low, high))
    return found


def _flops(rows: pd.DataFrame, rule: str) -> float:
    if rule in rows.columns:
        return float(rows[rule].sum())
    if rule == "6ND" and {"N", "D"} <= set(rows.columns):
        return float((6.0 * rows["N"] * rows["D"]).sum())
    told = "there are no columns N and D for '6ND', and no column of that name. Name one"
    raise UserError(f"flops is {rule!r}: {told}.")


# --- a plan as a file -------------------------------------------------------------------------------------


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
    price: Device = Device()
    """The device whose hours are told, and the price of one."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""


@dataclass(frozen=True)
class PlanResult:
    """What was planned: `allocation` (None without a budget) and `design` (None without a design).

    Attributes:
        columns: the table's column behind each of the law's, and y, where the law came from a fit.
        cautions: what that fit's data do not show, and where the plan leaves them.
    """

    config: PlanConfig
    law: str
    params: dict[str, float]
    allocation: pd.DataFrame | None
    design: Design | None
    columns: Mapping[str, str]
    cautions: list[str]

    def summary(self) -> str:
        """The text that `rlkit plan` prints."""
        number = "{:.4g}".format
        lines = [f"{self.law}: " + ", ".join(f"{k} = {v:.5g}" for k, v in self.params.items())]
        if self.columns:
            lines.append("fitted with " + ", ".join(f"{k} = {v}" for k, v in self.columns.items()))
        if self.allocation is not None:
            cost = f"{self.config.flops_per_cell:g}·N·{self.allocation.columns[2]}"
            lines += ["", f"Best use of each budget, where a run costs {cost} FLOPs"]
            lines.append(self.allocation.to_string(index=False, float_format=number))
        if self.design is not None:
            spent = _cost(self.design.flops, self.config.price)
            cost = ", ".join(f"{k} {number(v)}" for k, v in {"flops": self.design.flops, **spent}.items())
            lines += ["", f"The design: {cost}. Expected estimates:"]
            lines.append(self.design.intervals.to_string(index=False, float_format=number))
            if len(self.design.additions):
                lines += [
                    "",
                    "Runs to add, most gained a FLOP first, with the factor that each puts on a width (0 where an "
                    "infinite one becomes finite)",
                    self.design.additions.to_string(index=False, float_format=number),
                ]
        lines += ["", *(f"! {text}" for text in self.cautions)] if self.cautions else []
        return "\n".join(lines)


def plan(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> PlanResult:
    """Carry out a plan file (or its content): allocate budgets, foretell the design's intervals, rank candidate runs.

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
    allocation = designed = None
    if config.budget:
        options = config.model_dump(include={"flops_per_cell", "maximise", "level"})
        allocation = allocate(law, config.budget, params=params, **options)
        allocation = allocation.assign(**_cost(allocation["budget"], config.price))
    if config.design is not None:
        candidates = None if config.candidates is None else _rows(config.candidates, "candidates", 1)
        options = config.model_dump(include={"run_noise", "flops", "level"})
        designed = design(
            law, _rows(config.design, "design", config.seeds), params=params, candidates=candidates,
            noise=config.noise or record.get("residual_sd") or _refuse("noise"), **options,
        )  # fmt: skip
    shown, cautions = {p: params[p] for p in law.parameters if p in params}, _cautions(fitted, allocation)
    return PlanResult(config, law.name, shown, allocation, designed, fitted.get("columns", {}), cautions)


def _cost(flops: Any, price: Device) -> dict[str, Any]:
    """gpu_hours and, where an hour has a price, cost."""
    hours = flops / (price.flops_per_second * price.utilization * 3600)
    return {"gpu_hours": hours} | ({} if price.per_hour is None else {"cost": hours * price.per_hour})


def _cautions(fitted: Mapping[str, Any], allocation: pd.DataFrame | None) -> list[str]:
    """The warnings of the fit that a plan starts from, and where the best use of a budget lies beyond its data."""
    found = list(fitted.get("warnings", []))
    for column, (low, high) in fitted.get("seen", {}).items():
        if allocation is not None and column in allocation:
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
        told = "which is not a file that LawFit.to_json wrote (one group)"
        raise UserError(f"fit is {path!r}, {told}.") from None
    return record


def _rows(grid: Grid, key: str, seeds: int) -> pd.DataFrame:
    """One row a run: every combination of the grid's values, or the rows of a CSV file, `seeds` times."""
    if isinstance(grid, str):
        if not Path(grid).is_file():
            raise UserError(f"{key} is {grid!r}: there is no such file.")
        cells = pd.read_csv(grid)
    else:
        cells = pd.DataFrame(itertools.product(*grid.values()), columns=list(grid))
    rows = pd.concat([cells] * seeds, ignore_index=True)
    return rows if "run" in rows.columns and seeds == 1 else rows.assign(run=range(len(rows)))
