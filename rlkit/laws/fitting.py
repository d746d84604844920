"""rlkit.fit: from a table to a LawFit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import resample as resampling
from rlkit.laws import rules, table
from rlkit.laws.law import Law, Space, resolve
from rlkit.laws.losses import Loss, make_loss
from rlkit.laws.result import GroupedFit, LawFit, Starts
from rlkit.laws.solver import Problem, Solution, minimise, to_space
from rlkit.laws.starts import starts
from rlkit.seeds import generator


def fit(
    df: pd.DataFrame,
    law: str | Law,
    *,
    y: str,
    x: Mapping[str, str] | str | None = None,
    group: str | None = None,
    loss: str | Loss = "huber",
    delta: float = 1e-3,
    log: bool | None = None,
    weights: str | pd.Series | None = None,
    bootstrap: int = 0,
    resample: Literal["case", "residual"] = "case",
    cluster: str | Sequence[str] | None = None,
    block: int | str | None = None,
    seed: int = 0,
    exclude: Any = None,
    holdout: Any = None,
) -> Any:
    """Fit a law to the rows of a table.

    Args:
        df: one row a measurement.
        law: a name (power, saturating_power, chinchilla, data_constrained, sigmoid, tan, intrinsic,
            overoptimization_bon, overoptimization_rl, coverage, beta_binomial, transfer, mixture) or a Law.
        y: column of the measured quantity. x: the law's columns to the table's; a lone name for a one-column
            law.
        group: column; a separate fit for each of its values, returned as a GroupedFit.
        loss: ls, huber (delta in units of the residual), lad, quantile:0.9, or binomial (y a pass rate,
            weights the number of samples). The objective is the sum over rows, never the mean.
        log: residuals in ln y (True) or y (False); the default is the law's own space.
        weights: column, e.g. the number of samples behind each row.
        bootstrap: number of resamples. resample: rows ("case") or residuals. cluster: column(s); whole
            clusters are resampled (run, seed, prompt). block: stretches of time are resampled, of this many
            rows or, given the column that holds time, of a length chosen from the residuals.
        exclude, holdout: rules for rows that are not fitted (rlkit.laws.rules). Rows with a true column
            `held_out` (a study's frozen cells) are withheld in any case.

    Returns:
        A LawFit, or a GroupedFit (a mapping of group to LawFit) when `group` is given.

    Raises:
        UserError: anything wrong with the input, in one sentence naming column and rows.
    """
    form = resolve(law)
    options = dict(weights=weights, cluster=cluster, block=block, exclude=exclude, holdout=holdout)
    target = Loss("likelihood") if form.target else make_loss(loss, delta)
    space = _space(form, target, log)
    if target.name == "binomial" and weights is None:
        raise UserError(
            "loss='binomial' needs weights=, the column with the number of samples behind each pass rate."
        )
    if not isinstance(bootstrap, int) or bootstrap < 0:
        raise UserError(f"bootstrap is {bootstrap!r}: give the number of resamples, 0 or more.")
    plan = (bootstrap, resample, block, seed)
    if group is None:
        return _fit(table.build(df, form, y, x, space, **options), form, target, space, plan)
    values = rules.column(df, group, "group")
    if values.nunique() < 2:
        raise UserError(f"group {group!r} has {values.nunique()} value in {len(df)} rows: leave group out.")
    fits = GroupedFit()
    for name, part in df.groupby(group, sort=True):
        try:
            fits[name] = _fit(table.build(part, form, y, x, space, **options), form, target, space, plan)
        except UserError as error:
            raise UserError(f"In group {name!r}: {error}") from None
    return fits


def _space(law: Law, loss: Loss, log: bool | None) -> Space:
    if law.target or loss.name == "binomial":
        return "linear"
    if log is None:
        return law.space
    return ("loglog" if law.space == "loglog" else "log") if log else "linear"


def _fit(
    rows: table.Table, law: Law, loss: Loss, space: Space, plan: tuple[int, str, int | str | None, int]
) -> LawFit:
    problem = Problem(law, rows.columns, space)
    y, w = to_space(rows.y, "linear", space)[0], rows.weights
    spread = float(np.std(y)) or 1.0
    path = loss.path(spread)
    begin = starts(problem, y, w, path[0])
    if not len(begin):
        raise UserError(
            f"The law {law.name!r} has no finite value at any start: check the units of "
            f"{', '.join(rows.names.values())}."
        )
    _check_determined(problem, begin, rows)
    found = minimise(problem, begin, y, w, path, tolerance=1e-14)
    i = int(np.argmin(found.objective))
    exact = replace(path[-1], delta=1e-250) if loss.name in ("lad", "quantile") else path[-1]
    z, at_bound = _settle(problem, found.z[i])
    objective = float((w * exact(problem.predict(z[None]), y).value).sum())
    free = np.array([p not in law.pinned for p in law.parameters])
    result = LawFit(
        law, path[-1], rows, problem, z, objective, float(found.objective[i]), _relative(found, i, free),
        _condition(problem, z, path[-1], y, w, free), _agreement(law, found), at_bound, seed=plan[3],
    )  # fmt: skip
    return _bootstrap(result, found, plan) if plan[0] else result


def _check_determined(problem: Problem, begin: np.ndarray, rows: table.Table) -> None:
    """Refuse a design on which the law has fewer independent directions than parameters, at every start.

    The rank is that of the columns, not of the optimum, where a term at zero or a parameter that ran away loses a
    direction by rounding. Derivatives are exact to 1e-10, and a design that determines a law is above 1e-7.
    """
    law = problem.law
    with np.errstate(all="ignore"):
        J = problem.jacobian(begin)[1][:, [p not in law.pinned for p in law.parameters]]
        J = np.nan_to_num(J / np.sqrt((J * J).sum(axis=2, keepdims=True)), posinf=0.0, neginf=0.0)
    rank = int((np.linalg.svd(J, compute_uv=False) > 1e-7).sum(axis=1).max())
    if rank < len(law.free):
        values = ", ".join(f"{len(np.unique(v))} of {rows.names[c]}" for c, v in rows.columns.items())
        raise UserError(
            f"The data do not determine the {len(law.free)} parameters of {law.name!r}: with {values}, only {rank} "
            "combinations of them change the prediction. Add values, pin a parameter, or use a law with fewer."
        )


def again(one: LawFit, rows: table.Table, seed: int) -> LawFit:
    """The same law fitted in the same way to other rows."""
    scheme = one.scheme
    count = 0 if one.draws is None else len(one.draws) + one.lost
    kind = "residual" if scheme is not None and scheme.kind == "residual" else "case"
    block = scheme.length if scheme is not None and scheme.length else None
    return _fit(rows, one.law, one.loss, one.problem.space, (count, kind, block, seed))


def _relative(found: Solution, i: int, free: np.ndarray) -> float:
    return float(np.abs(found.gradient[i][free]).max() / max(abs(found.objective[i]), 1e-300))


def _agreement(law: Law, found: Solution) -> Starts:
    best = found.objective.min()
    near = found.objective <= best + 1e-6 * abs(best) + 1e-20
    values = law.from_z(found.z[near])[0]
    spread = {p: (float(values[:, j].min()), float(values[:, j].max())) for j, p in enumerate(law.parameters)}
    worst = found.objective[np.isfinite(found.objective)].max() / best if best > 0 else np.nan
    return Starts(len(found.z), int(near.sum()), spread, float(worst))


def scaled_curvature(
    problem: Problem, z: np.ndarray, loss: Loss, y: np.ndarray, w: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """J'WJ over the free coordinates with unit diagonal: what the data say of the parameters, whatever the
    loss."""
    with np.errstate(all="ignore"):
        J = problem.jacobian(z[None])[1][0][free]
        curvature = np.broadcast_to(
            loss(problem.predict(z[None]), y).curvature if loss.name == "binomial" else 1.0, (1, len(w))
        )[0]
    H = (J * w * curvature) @ J.T
    d = np.sqrt(np.maximum(np.diagonal(H), 1e-300))
    return np.nan_to_num(H / np.outer(d, d))


def _condition(*inputs: Any) -> float:
    values = np.linalg.eigvalsh(scaled_curvature(*inputs))
    return float(values[-1] / values[0]) if values[0] > 0 else np.inf


def _settle(problem: Problem, z: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """z with linear parameters that went to a bound at a standard place beside it, and those bounds.

    On its way to a bound z goes to infinity and stops anywhere; a billionth of the parameter's unit is where
    walks of profiles and resamples can begin.
    """
    z, reached = z.copy(), {}
    for name in problem.law.linear:
        low, high = problem.law.limits(name)
        if name in problem.law.pinned or np.isinf(low):
            continue
        j = problem.law.parameters.index(name)
        value, near = problem.law.from_z(z[None])[0][0, j], 1e-6 * min(problem.unit(z, name), high - low)
        bound = low if value - low < near else high if high - value < near else None
        if bound is not None:
            reached[name] = bound
            inside = np.full((1, len(z)), bound + 1e-3 * near * (1 if bound == low else -1))
            z[j] = problem.law.to_z(inside)[0, j]
    return z, reached


def _bootstrap(result: LawFit, found: Solution, plan: tuple[int, str, int | str | None, int]) -> LawFit:
    """Add the draws: every resample starts from whichever known optimum suits it best, and is solved again
    from its neighbours' solutions wherever one of those beats its own."""
    count, kind, block, seed = plan
    rows, problem, loss, p = result.table, result.problem, result.loss, int(result.free.sum())
    scheme = resampling.scheme(rows, kind, block, result.residuals, p)
    losses = loss.refit(result.spread)
    y, weights, usable = result.observed, rows.weights[None], np.ones(count, dtype=bool)
    pool = _pool(result, found, losses)
    if scheme.draws_noise:
        rng = generator("laws", "bootstrap", seed)
        y = result.predicted + resampling.draw_noise(rows, scheme, result.residuals, p, count, rng)
    else:
        weights = resampling.draw(rows, scheme, count, seed)
        usable = _determined(rows, weights, p)
        if result.law.target:
            problem, y, weights = _distinct(rows, problem, y, weights)
    solved = minimise(problem, _best_of(problem, loss, pool, y, weights)[0], y, weights, losses, 1e-8)
    others = generator("laws", "cross-check", seed).permutation(count)[: 64 if y.ndim == 1 else 8]
    again = np.concatenate([result.z[None], solved.z[others]])
    solved = _cross_check(problem, losses, solved, again, y, weights)
    if usable.sum() < 2:
        raise UserError(
            f"None of the {count} resamples could be fitted: the {scheme.units} units leave too few "
            "distinct points. Use resample='residual' or more data."
        )
    usable &= np.isfinite(
        solved.objective
    )  # one that still walks has run away, and is counted in the warnings
    draws = problem.law.from_z(solved.z[usable])[0]
    return replace(result, draws=draws, scheme=scheme, lost=int(count - usable.sum()))


def _pool(result: LawFit, found: Solution, losses: list[Loss]) -> np.ndarray:
    """Where resamples may start: the optima that the search found or, since a term at zero has no slope by
    which a resample could leave it, optima with each parameter at a bound held away from it."""
    law, problem = result.law, result.problem
    if not result.at_bound:
        return found.z[np.argsort(found.objective)][:8]
    start, free = np.repeat(result.z[None], 3, axis=0), result.free.copy()
    for name, bound in result.at_bound.items():
        j = law.parameters.index(name)
        low, high = law.limits(name)
        width = min(problem.unit(result.z, name), high - low)
        shares = np.array([0.02, 0.1, 0.3]) * width
        values = np.repeat((bound + shares * (1 if bound == low else -1))[:, None], len(free), axis=1)
        start[:, j], free[j] = law.to_z(values)[:, j], False
    return minimise(problem, start, result.observed, result.table.weights, losses, 1e-8, free).z


def _distinct(
    rows: table.Table, problem: Problem, y: np.ndarray, weights: np.ndarray
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """The distinct rows of counts, and the sums of the weights of the rows that are equal."""
    cells = rows.cells()
    order = np.argsort(cells, kind="stable")
    first = np.flatnonzero(np.diff(cells[order], prepend=-1))
    columns = {name: values[order[first]] for name, values in problem.columns.items()}
    return (
        replace(problem, columns=columns),
        y[order[first]],
        np.add.reduceat(weights[:, order], first, axis=1),
    )


def _best_of(
    problem: Problem, loss: Loss, pool: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each resample the pool's best start, and its objective; for weights all of them are one product."""
    with np.errstate(all="ignore"):
        predicted = problem.predict(pool)
        if y.ndim == 1:
            value = loss(predicted, y).value
            score = weights @ np.where(np.isfinite(value), value, 1e300).T
        else:
            score = np.stack([(weights * loss(one[None], y).value).sum(axis=1) for one in predicted], axis=1)
            score = np.where(np.isfinite(score), score, np.inf)
    best = score.argmin(axis=1)
    return pool[best], score[np.arange(len(score)), best]


def _cross_check(
    problem: Problem,
    losses: list[Loss],
    solved: Solution,
    pool: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Solution:
    """Restart the resamples for which a start of the pool has a lower objective than their own."""
    start, score = _best_of(problem, losses[-1], pool, y, weights)
    worse = np.flatnonzero(~(solved.objective <= score * (1 + 1e-6)))
    if len(worse):
        y, weights = (a[worse] if a.ndim == 2 and len(a) > 1 else a for a in (y, weights))
        again = minimise(problem, start[worse], y, weights, losses, 1e-8)
        for old, new in zip(solved, again, strict=True):
            old[worse] = new
    return solved


def _determined(rows: table.Table, weights: np.ndarray, parameters: int) -> np.ndarray:
    """(B,) bool: the resample holds at least as many distinct points as there are parameters."""
    cells = rows.cells()
    if cells.max() > 400:
        return np.ones(len(weights), dtype=bool)
    member = np.eye(cells.max() + 1)[cells]
    return ((weights > 0) @ member > 0).sum(axis=1) >= parameters
