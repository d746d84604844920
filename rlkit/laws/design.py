"""The best use of a budget under a law, and what a design would show of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.bootstrap import refit, runaways
from rlkit.laws.fitting import LawFit
from rlkit.laws.law import Law, resolve
from rlkit.laws.optimum import check_determined
from rlkit.laws.solver import Loss, Problem, to_space
from rlkit.laws.table import numbers
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


def allocate_rollouts(
    law: str | Law | LawFit,
    budget: float | Sequence[float],
    *,
    prompts: int,
    params: Mapping[str, float] | None = None,
    draws: np.ndarray | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """The best rollouts a prompt for each budget of rollouts, by a law of one column as
    `rlkit.measures.allocation.rollouts_law` fits it.

    Args:
        law, params, draws: a LawFit, or a law with its parameters (and their draws, (B, p)). prompts: a step.

    Returns:
        One row a budget: budget, rollout.n, low and high where there are draws, data.train_batch_size, and the steps
        that rollout.n, as a whole number, leaves.

    Raises:
        UserError: a law of several columns.
    """
    form, values, own = _known(law, params)
    draws = own if draws is None else draws
    if len(form.columns) != 1:
        told = f"and {form.name!r} has {', '.join(form.columns)}"
        raise UserError(f"prompts plans by a law of one column, the budget in rollouts, {told}.")
    C = np.atleast_1d(np.asarray(budget, dtype=float))
    columns = {form.columns[0]: C}
    n = to_space(form(columns, values[None]), form.returns, "linear")[0][0]
    table = pd.DataFrame({"budget": C, "rollout.n": n})
    if draws is not None:
        spread = to_space(form(columns, draws), form.returns, "linear")[0]
        table["low"], table["high"] = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return table.assign(
        **{"data.train_batch_size": prompts}, steps=C / (prompts * np.maximum(np.round(n), 1))
    )


def design(
    law: str | Law | LawFit,
    runs: pd.DataFrame,
    *,
    params: Mapping[str, float] | None = None,
    noise: float,
    run_noise: float = 0.0,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The estimates to expect of a least-squares fit before a study is run: measurements are drawn from the law at the
    design and fitted, so many times over.

    Args:
        law, params: the truth assumed; a LawFit brings its own parameters.
        runs: one row a measurement with the law's columns; rows that share `run` share an offset.
        noise, run_noise: standard deviation of one measurement and of a run's offset, in residual space.
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
    run = pd.factorize(runs["run"])[0] if "run" in runs.columns else np.arange(len(runs))
    rng = generator("laws", "design", seed)
    y = problem.predict(z)[0] + noise * rng.standard_normal((draws, len(runs)))
    y += run_noise * rng.standard_normal((draws, run.max() + 1))[:, run]
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
