"""The best use of a budget under a law, and what a design would show of it. `rlkit plan params/plan.yaml`:

law: chinchilla
params: {E: 1.69, A: 406.4, alpha: 0.34, B: 410.7, beta: 0.28}    # or  fit: outputs/study/fit.json
budget: [1.0e+21, 1.0e+22]      # FLOPs: the best N and D of each
design: {N: [1.0e+8, 1.0e+9], D: [1.0e+9, 1.0e+10, 1.0e+11]}      # every combination
seeds: 3
noise: 0.008                    # standard deviation of one measurement, in residual space
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
from pydantic import Field, PositiveFloat, PositiveInt

from rlkit.config import Section
from rlkit.errors import UserError
from rlkit.laws.bootstrap import refit, runaways
from rlkit.laws.diagnose import RAN_AWAY
from rlkit.laws.fitting import LawFit
from rlkit.laws.law import Law, resolve
from rlkit.laws.optimum import check_determined
from rlkit.laws.solver import Loss, Problem, to_space
from rlkit.laws.table import numbers
from rlkit.params import override, read_yaml, validate
from rlkit.seeds import generator

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


def allocate(
    law: str | Law | LawFit,
    budget: float | Sequence[float],
    *,
    params: Mapping[str, float] | None = None,
    draws: np.ndarray | None = None,
    flops_per_cell: float = 6.0,
    maximise: bool = False,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compute-optimal size and data for each budget: the best y on N·D·flops_per_cell = budget.

    Args:
        law: a LawFit (its draws give the intervals), or a law with `params` (and `draws`, (B, p)). It must have the
            columns N and one of D, X or E; a third column U takes the value of the data (no repeats).
        budget: FLOPs. flops_per_cell: FLOPs a parameter and token.
        maximise: a higher y is better.

    Returns:
        One row a budget: budget, N, the data column, their ratio, y; N_low, N_high, y_low, y_high where there
        are draws. `at_edge` is true where the optimum lies outside the nine decades searched.

    Raises:
        UserError: a law without N and data, a budget that is not positive.
    """
    form, values, own = _known(law, params)
    draws = own if draws is None else draws
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


def _rollouts(
    form: Law,
    values: np.ndarray,
    draws: np.ndarray | None,
    budget: Sequence[float],
    prompts: int,
    level: float,
) -> pd.DataFrame:
    """The best rollouts a prompt for each budget of rollouts, by a law of one column as
    `rlkit.measures.allocation.rollouts_law` fits it, and the steps that so many, as a whole number, leave.
    """
    if len(form.columns) != 1:
        told = f"and {form.name!r} has {', '.join(form.columns)}"
        raise UserError(f"prompts plans by a law of one column, the budget in rollouts, {told}.")
    C = np.asarray(budget, dtype=float)
    every = values[None] if draws is None else np.vstack([values, draws])
    n = to_space(form({form.columns[0]: C}, every), form.returns, "linear")[0]
    table = pd.DataFrame({"budget": C, "rollout.n": n[0]})
    if draws is not None:
        table["low"], table["high"] = np.quantile(n[1:], [(1 - level) / 2, (1 + level) / 2], axis=0)
    steps = C / (prompts * np.maximum(np.round(n[0]), 1))
    return table.assign(**{"data.train_batch_size": prompts}, steps=steps)


def design(
    law: str | Law | LawFit,
    runs: pd.DataFrame,
    *,
    params: Mapping[str, float] | None = None,
    noise: float,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The estimates to expect of a least-squares fit before a study is run: measurements are drawn from the law at the
    design and fitted, so many times over.

    Args:
        law, params: the truth assumed; a LawFit brings its own parameters.
        runs: one row a measurement with the law's columns.
        noise: standard deviation of one measurement, in residual space.
        draws: studies that are simulated.

    Returns:
        One row a parameter: parameter, truth, low and high (which hold the share `level` of the estimates), width, and
        at_bound, how many estimates ended at a bound or ran away. `attrs` has draws and failed, how many fits did.

    Raises:
        UserError: columns or parameters missing, noise that is not positive, a design that does not determine the law.
    """
    form, values, _ = _known(law, params)
    if not noise > 0:
        raise UserError(f"noise is {noise:g}: give the standard deviation of one measurement, above 0.")
    columns = {c: numbers(runs, c, f"design column {c!r}") for c in form.columns}
    if len(runs) <= len(form.free):
        raise UserError(
            f"{len(runs)} rows cannot determine the {len(form.free)} parameters of {form.name!r}."
        )
    problem, z = Problem(form, columns, form.space, central=True), form.to_z(values[None])
    check_determined(problem, z, {c: c for c in columns})
    rng = generator("laws", "design", seed)
    y = problem.predict(z)[0] + noise * rng.standard_normal((draws, len(runs)))
    found = refit(problem, [Loss("ls")], z, z[0], y, np.ones((1, len(runs))), rng.permutation(draws)[:16])
    fine = np.isfinite(found.objective)
    estimates = form.from_z(found.z[fine])[0]
    estimates[np.abs(estimates) < 1e-200] = 0.0  # at a bound
    if len(estimates) < 2:
        raise UserError(f"None of the {draws} simulated studies of this design could be fitted.")
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    bound = runaways(form, estimates, dict(zip(form.parameters, values, strict=True)))
    table = pd.DataFrame(
        {"parameter": form.parameters, "truth": values, "low": low, "high": high, "width": high - low}
    )
    table = table[form.estimated].assign(at_bound=[int(bound[p].sum()) for p in form.free])
    table.attrs = {"draws": draws, "failed": draws - len(estimates)}
    return table.reset_index(drop=True)


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
    design: dict[str, list[float]] = Field({})
    """The study: values of each column of the law; every combination is a cell."""
    seeds: PositiveInt = 1
    """Runs a cell."""
    noise: PositiveFloat | None = None
    """Standard deviation of one measurement in residual space; default the fit's."""
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
    design: pd.DataFrame | None
    columns: Mapping[str, str]
    cautions: list[str]

    def summary(self) -> str:
        """The text that `rlkit plan` prints."""
        lines = [f"{self.law}: " + ", ".join(f"{k} = {v:.5g}" for k, v in self.params.items())]
        if self.columns:
            lines.append("fitted with " + ", ".join(f"{k} = {v}" for k, v in self.columns.items()))
        if self.allocation is not None:
            cost = f"{self.config.flops_per_cell:g}·N·{self.allocation.columns[2]} FLOPs"
            cost = "rollouts a prompt · prompts a step · steps" if self.config.prompts else cost
            lines += ["", f"Best use of each budget, where a run costs {cost}", _text(self.allocation)]
        if self.design is not None:
            share, draws = f"{self.config.level:.0%}", self.design.attrs["draws"]
            lines += ["", f"{share} of the estimates of {draws} simulated studies:", _text(self.design)]
        lines += ["", *(f"! {text}" for text in self.cautions)] if self.cautions else []
        return "\n".join(lines)


def _text(table: pd.DataFrame) -> str:
    return table.to_string(index=False, float_format="{:.4g}".format)


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
    if not config.budget and not config.design:
        raise UserError("The plan has neither a budget nor a design: give at least one.")
    allocation, designed = None, None
    if config.budget:
        drawn = fitted.get("draws") if not config.params else None
        draws = np.array(drawn) if drawn else None
        if config.prompts:
            form, values, _ = _known(law, params)
            allocation = _rollouts(form, values, draws, config.budget, config.prompts, config.level)
        else:
            options = config.model_dump(include={"flops_per_cell", "maximise", "level"})
            allocation = allocate(law, config.budget, params=params, draws=draws, **options)
    if config.design:
        noise = config.noise or record.get("residual_sd") or _refuse("noise")
        cells = pd.DataFrame(itertools.product(*config.design.values()), columns=list(config.design))
        runs = pd.concat([cells] * config.seeds, ignore_index=True)
        designed = design(law, runs, params=params, noise=noise, level=config.level)
    shown = {p: params[p] for p in law.parameters if p in params}
    cautions = list(fitted.get("warnings", [])) + _beyond(fitted, allocation) + _weak(designed)
    return PlanResult(config, law.name, shown, allocation, designed, fitted.get("columns", {}), cautions)


def _beyond(fitted: Mapping[str, Any], allocation: pd.DataFrame | None) -> list[str]:
    """Where the best use of a budget lies beyond the data of the fit that a plan starts from."""
    if allocation is None:
        return []
    found = []
    if "rollout.n" in allocation and allocation["rollout.n"].min() < 2:
        found.append(
            "A group of fewer than 2 rollouts has nothing to compare: the law leaves its range there."
        )
    for column, (low, high) in fitted.get("seen", {}).items():
        name = column if column in allocation else fitted["columns"].get(column)
        if name not in allocation:
            continue
        least, most = allocation[name].min(), allocation[name].max()
        if least < low or most > high:
            found.append(
                f"{name} is {least:.3g} to {most:.3g} here, and the fit saw {low:.3g} to {high:.3g}: beyond that, the "
                "plan rests on the law's form alone."
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
    except (OSError, ValueError, KeyError, AttributeError, AssertionError):
        told = "which is not a file that LawFit.to_json wrote (one group)"
        raise UserError(f"fit is {path!r}, {told}.") from None
    return record
