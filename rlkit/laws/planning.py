"""The best use of a budget under a law, and what a design would show of it: `rlkit plan params/plan.yaml`."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field, PositiveFloat, PositiveInt

from rlkit.errors import UserError
from rlkit.files import read_json
from rlkit.laws.fitting import LawFit
from rlkit.laws.intervals import Draws, refit, runaways
from rlkit.laws.law import Law, Space, resolve
from rlkit.laws.optimum import check_determined
from rlkit.laws.report import RAN_AWAY
from rlkit.laws.solver import Loss, Problem, to_space
from rlkit.laws.table import numbers
from rlkit.params import Section, override, read_yaml, validate
from rlkit.seeds import generator

DATA = ("D", "X", "E")  # columns that a law may call its data


def _known(
    law: str | Law | LawFit, params: Mapping[str, float] | None, draws: Draws | None = None
) -> tuple[Law, np.ndarray, Draws | None]:
    """A law, (1 + B, p) its parameters and resamples of them, and these; a UserError for missing or unknown ones."""
    if isinstance(law, LawFit):
        form, values, draws = law.law, list(law.params.values()), law.resampled
    else:
        form = resolve(law)
        given = form.pin(**(params or {})).pinned
        if missing := [p for p in form.parameters if p not in given]:
            raise UserError(f"params lacks {', '.join(missing)}, which the law {form.name!r} needs.")
        values = [float(given[p]) for p in form.parameters]
    return form, np.array([values, *([] if draws is None else draws.values)]), draws


def allocate(
    law: str | Law | LawFit, budget: float | Sequence[float], *, params: Mapping[str, float] | None = None,
    draws: Draws | None = None, flops_per_cell: float = 6.0, level: float = 0.95,
) -> pd.DataFrame:  # fmt: skip
    """Compute-optimal size and data for each budget: the best y on N·D·flops_per_cell = budget, the highest of a law of
    pass rates (a logit) and else the lowest. `law` is a LawFit (its resamples give the intervals), or a law with
    `params` (and `draws`), of N and one of D, X, E; budget: FLOPs; flops_per_cell: FLOPs a parameter and token. One row
    a budget: budget, N, data, their ratio, y; of resamples N_low, N_high, y_low, y_high; at_edge (of nine decades)."""
    (form, every, draws), rows = _known(law, params, draws), []
    data = next((c for c in DATA if c in form.columns), "")
    if {"N", data} != set(form.columns):
        raise UserError(f"allocate needs a law of N and D (or X, E), not of {', '.join(form.columns)}.")
    for C in np.atleast_1d(np.asarray(budget, dtype=float)):
        if not C > 0:
            raise UserError(f"budget is {C:g}: give FLOPs above 0.")
        found, edge = _best(form, every, C / flops_per_cell, data)
        best = found[0]
        row = {"budget": C, "N": best[0], data: best[1], f"{data}/N": best[1] / best[0], "y": best[2]}
        if draws is not None:
            row["N_low"], row["N_high"] = _ends(draws, found[:, 0], "log", level)
            row["y_low"], row["y_high"] = _ends(draws, found[:, 2], form.space, level)
        rows.append(row | {"at_edge": edge})
    return pd.DataFrame(rows)


def _ends(draws: Draws, found: np.ndarray, space: Space, level: float) -> np.ndarray:
    """(2, …) the interval of found[0] from what the resamples give, found[1:], taken in a space where that has it."""
    space = space if found.min() > 0 else "linear"
    center, *rest = to_space(found, "linear", space)[0]
    return to_space(draws.ends(np.array(rest), center, level), space, "linear")[0]


def _best(law: Law, values: np.ndarray, cells: float, data: str) -> tuple[np.ndarray, bool]:
    """(B, 3) best N, data and y with N·data = cells by a grid in ln N and zooms; whether the first is at an end."""
    middle, width = np.full(len(values), np.log(cells) / 2), np.log(10) * 4.5
    edge, rows = False, np.arange(len(values))
    for zoom in range(4):
        ln_n = middle[:, None] + np.linspace(-width, width, 201)
        y = np.empty_like(ln_n)
        for i, N in enumerate(np.exp(ln_n)):
            found = law({"N": N, data: cells / N}, values[i : i + 1])
            y[i] = to_space(found, law.returns, "linear")[0][0]
        k = np.nanargmax(y if law.returns == "logit" else -y, axis=1)
        edge = edge or (zoom == 0 and bool(k[0] in (0, 200)))
        middle, width = ln_n[rows, k], width / 50
    N = np.exp(middle)
    return np.column_stack([N, cells / N, y[rows, k]]), edge


def _rollouts(
    law: Law, every: np.ndarray, draws: Draws | None, budget: list[float], prompts: int, level: float
) -> pd.DataFrame:
    """The best rollouts a prompt in each budget of rollouts (parameters (1 + B, p)), and the steps that they leave."""
    if len(law.columns) != 1:
        raise UserError(f"prompts needs a law of one column, the budget in rollouts, not of {law.columns}.")
    C = np.asarray(budget, dtype=float)
    n = to_space(law({law.columns[0]: C}, every), law.returns, "linear")[0]
    table = pd.DataFrame({"budget": C, "rollout.n": n[0]})
    if draws is not None:
        table["low"], table["high"] = _ends(draws, n, law.space, level)
    steps = C / (prompts * np.maximum(np.round(n[0]), 1))
    return table.assign(**{"data.train_batch_size": prompts}, steps=steps)


def design(
    law: str | Law | LawFit, runs: pd.DataFrame, *, params: Mapping[str, float] | None = None, noise: float,
    level: float = 0.95, draws: int = 200, seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """The estimates to expect of a least-squares fit before a study is run: measurements (`runs`, a row each) are drawn
    from the law with noise of a standard deviation in residual space, and fitted, so many times over. Returns one row a
    parameter: parameter, truth, low and high (which hold the share `level` of the estimates), width, at_bound (how many
    ended at a bound or ran away); `attrs`: draws, failed. A UserError for a design that does not determine the law."""
    form, (values, *_), _ = _known(law, params)
    if not noise > 0:
        raise UserError(f"noise is {noise:g}: give the standard deviation of one measurement, above 0.")
    columns = {c: numbers(runs, c, f"design column {c!r}") for c in form.columns}
    if len(runs) <= len(form.free):
        raise UserError(f"{len(runs)} rows cannot determine {len(form.free)} parameters of {form.name!r}.")
    problem, z = Problem(form, columns, form.space, central=True), form.to_z(values[None])
    check_determined(problem, z, {c: c for c in columns})
    rng = generator("laws", "design", seed)
    y = problem.predict(z)[0] + noise * rng.standard_normal((draws, len(runs)))
    found = refit(problem, Loss("ls"), z, z[0], y, np.ones((1, len(runs))), rng.permutation(draws)[:16])
    estimates = form.from_z(found.z[np.isfinite(found.objective)])[0]
    estimates[np.abs(estimates) < 1e-200] = 0.0  # at a bound
    if len(estimates) < 2:
        raise UserError(f"None of the {draws} simulated studies of this design could be fitted.")
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    bound = runaways(form, estimates, dict(zip(form.parameters, values, strict=True)))
    ends = {"low": low, "high": high, "width": high - low}
    table = pd.DataFrame({"parameter": form.parameters, "truth": values, **ends})
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
    design: dict[str, list[float]] = Field({})
    """The study: values of each column of the law; every combination is a cell."""
    seeds: PositiveInt = 1
    """Runs a cell."""
    noise: PositiveFloat | None = None
    """Standard deviation of one measurement in residual space; default the fit's."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""
    difference: PositiveFloat | None = None
    """A difference of pass@1 between two cells that a study is to show: how many seeds a cell that takes."""
    spread: PositiveFloat | None = None
    """For it the standard deviation of pass@1 between seeds, which a study's summary says."""
    error: float = Field(default=0.0, ge=0)
    """And the standard error of such a difference over problems: a quarter of its interval's width."""


def seeds_needed(difference: float, spread: float, error: float) -> str:
    """How many seeds a cell would show a difference of pass@1 in four studies of five, in a sentence, from the standard
    deviation `spread` between seeds and the standard error of it over problems (both taken as normal)."""
    room = (difference / (1.96 + 0.84)) ** 2 - error**2  # variance that is left for seeds
    if room <= 0:
        return f"More seeds alone would not show a difference of {difference:g}: ask more problems."
    need, of = max(2, int(np.ceil(2 * spread**2 / room))), f"(spread between seeds {spread:.3f})"
    return f"About {need} seeds a cell would show a difference of {difference:g} {of}."


@dataclass(frozen=True)
class PlanResult:
    """What was planned: the law's parameters, `allocation` (None without a budget) and `design` (None without one)."""

    params: dict[str, float]
    allocation: pd.DataFrame | None
    design: pd.DataFrame | None
    text: str = field(repr=False)

    def summary(self) -> str:
        """The text that `rlkit plan` prints."""
        return self.text


def plan(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> PlanResult:
    """Carry out a plan file, or its content: allocate budgets, simulate a design. A UserError for any fault in it."""
    where, content = ("", dict(source)) if isinstance(source, Mapping) else (str(source), read_yaml(source))
    config: PlanConfig = validate(PlanConfig, override(content, overrides or {}), where=where)
    told, spread = config.difference, config.spread
    seeds = seeds_needed(told, spread or _refuse("spread"), config.error) if told else ""
    if seeds and not (config.budget or config.design):
        return PlanResult({}, None, None, seeds)
    record: Any = read_json(Path(config.fit)) if config.fit is not None else {"params": {}}
    record = record.get("fit", record)  # of a study's analysis/law.json
    if not isinstance(record, dict) or not isinstance(record.get("params"), dict):
        raise UserError(f"fit is {config.fit!r}, which is not a file that LawFit.to_json wrote.")
    law = resolve(config.law or record.get("law") or _refuse("law"))
    fitted = record if record.get("law") == law.name else {}
    if not config.budget and not config.design:
        raise UserError("The plan has no budget, design or difference: give at least one.")
    draws, drawn = None, fitted.get("bootstrap")
    if drawn and not config.params:
        draws = Draws(np.array(fitted["draws"]), *(drawn[name] for name in Draws._fields[1:]))
    _, every, _ = _known(law, {**fitted.get("params", {}), **config.params}, draws)
    params = dict(zip(law.parameters, every[0].tolist(), strict=True))
    lines = [f"{law.name}: " + ", ".join(f"{k} = {v:.5g}" for k, v in params.items())]
    if columns := fitted.get("columns"):
        lines.append("fitted with " + ", ".join(f"{k} = {v}" for k, v in columns.items()))
    allocation, designed, cautions = None, None, list(fitted.get("warnings", []))
    text = partial(pd.DataFrame.to_string, index=False, float_format="{:.4g}".format)
    if config.budget:
        if config.prompts:
            allocation = _rollouts(law, every, draws, config.budget, config.prompts, config.level)
            cost = "rollouts a prompt · prompts a step · steps"
        else:
            options = config.model_dump(include={"flops_per_cell", "level"})
            allocation = allocate(law, config.budget, params=params, draws=draws, **options)
            cost = f"{config.flops_per_cell:g}·N·{allocation.columns[2]} FLOPs"
        lines += ["", f"Best use of each budget, where a run costs {cost}", text(allocation)]
        cautions += _beyond(fitted, allocation)
    if config.design:
        noise = config.noise or record.get("residual_sd") or _refuse("noise")
        cells = pd.DataFrame(itertools.product(*config.design.values()), columns=list(config.design))
        runs = pd.concat([cells] * config.seeds, ignore_index=True)
        designed = design(law, runs, params=params, noise=noise, level=config.level)
        tried, failed = designed.attrs["draws"], designed.attrs["failed"]
        lines += ["", f"{config.level:.0%} of the estimates of {tried} simulated studies:", text(designed)]
        if failed:
            cautions.append(f"{failed} of {tried} simulated studies could not be fitted.")
        for name, count in designed.set_index("parameter")["at_bound"].items():
            if count > 0.05 * tried:
                told = "the design cannot bound it"
                cautions.append(f"In {count} of {tried} simulated studies {name} ends {RAN_AWAY}: {told}.")
    lines += ["", seeds] if seeds else []
    lines += ["", *(f"! {text}" for text in cautions)] if cautions else []
    return PlanResult(params, allocation, designed, "\n".join(lines))


def _beyond(fitted: Mapping[str, Any], allocation: pd.DataFrame) -> list[str]:
    """Where the best use of a budget lies beyond the data of the fit that a plan starts from."""
    found = []
    if "rollout.n" in allocation and allocation["rollout.n"].min() < 2:
        found.append("A group of fewer than 2 rollouts has nothing to compare: the law ends there.")
    for column, (low, high) in fitted.get("seen", {}).items():
        name = column if column in allocation else fitted["columns"].get(column)
        if name in allocation and (allocation[name].min() < low or allocation[name].max() > high):
            here = f"{name} is {allocation[name].min():.3g} to {allocation[name].max():.3g} here"
            seen = f"the fit saw {low:.3g} to {high:.3g}: the rest is the law's form alone"
            found.append(f"{here}, and {seen}.")
    return found


def _refuse(key: str) -> Any:
    raise UserError(f"The plan has no {key}: give it, or fit: with a file that LawFit.to_json wrote.")
