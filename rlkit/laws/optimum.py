"""From a table to an optimum: many starts, and a second search that can contradict their agreement. Starts are a grid
over the parameters that are not linear; the others are solved for (variable projection, Golub and Pereyra 1973)."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rlkit.errors import UserError
from rlkit.laws.law import REAL, Law, Space, resolve
from rlkit.laws.solver import Loss, Problem, Solution, minimise, to_space
from rlkit.laws.table import Table
from rlkit.seeds import generator

SAME = 1e-6  # objectives that differ by less than this share are of one optimum


class Starts(NamedTuple):
    """Starts that were followed, those within 1e-6 of the best, and parameters along which a walk found a better."""

    tried: int
    agree: int
    overruled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Optimum:
    """One law fitted to one table, at z (p,) in the engine's coordinates.

    Attributes:
        objective: sum over rows of weight times loss. minimum: the same where the search ended,
            before parameters that it drove to a bound are set beside it.
        at_bound: linear parameters that the search drove to a bound, and that bound.
        ends: (K, p) the best eight z that the search ended at, best first.
    """

    law: Law
    loss: Loss
    table: Table
    problem: Problem
    z: np.ndarray
    objective: float
    minimum: float
    starts: Starts
    at_bound: Mapping[str, float]
    ends: np.ndarray = field(repr=False)

    @property
    def params(self) -> dict[str, float]:
        """Estimates in natural units."""
        values = self.law.from_z(self.z[None])[0][0].tolist()
        return {**dict(zip(self.law.parameters, values, strict=True)), **self.at_bound}

    @property
    def freedom(self) -> int:
        """Rows less free parameters."""
        return len(self.table) - len(self.law.free)

    @cached_property
    def observed(self) -> np.ndarray:
        """(n,) y in residual space."""
        return to_space(self.table.y, "linear", self.problem.space)[0]

    @cached_property
    def predicted(self) -> np.ndarray:
        """(n,) prediction in residual space."""
        return self.problem.predict(self.z[None])[0]

    @property
    def residuals(self) -> np.ndarray:
        """(n,) observed - predicted in residual space."""
        return self.observed - self.predicted

    @property
    def slopes(self) -> np.ndarray:
        """(n,) derivative of the loss in the prediction."""
        return self.loss(self.predicted[None], self.observed[None]).slope[0]

    @property
    def sizes(self) -> np.ndarray:
        """(n,) noise of each row, up to a factor."""
        return self.table.weights**-0.5


def search(rows: Table, law: Law, loss: Loss, space: Space) -> Optimum:
    """The best optimum; a UserError where the law is finite at no start, or the columns do not determine it."""
    problem = Problem(law, rows.columns, space)
    y, w = to_space(rows.y, "linear", space)[0], rows.weights
    scale, smoother = float(np.std(y)) or 1.0, []
    if loss.robust and loss.delta < scale / 30:  # minimised in turn before it
        smoother = [replace(loss, delta=delta) for delta in np.geomspace(scale / 10, loss.delta, 4)[:-1].tolist()]
    begin = _starts(problem, y, w, [*smoother, loss][0])
    if not len(begin):
        raise UserError(f"The law {law.name!r} is finite at no start: check the units of its columns.")
    check_determined(problem, begin, rows.names)
    found = minimise(problem, begin, y, w, loss, 1e-14, before=smoother)
    if law.like:  # directions so flat that the starts can agree on a worse optimum: more about theirs
        best = found.z[np.argmin(found.objective)]
        about = best + generator("laws", "starts").normal(0, 1, (24, len(best))) * law.estimated
        more = minimise(problem, about, y, w, loss, 1e-5, rounds=60, before=smoother)
        found = found.and_of(minimise(problem, more.z[[np.argmin(more.objective)]], y, w, loss, 1e-14))
    found, overruled = _contradict(problem, found, y, w, loss)
    i = int(np.argmin(found.objective))
    problem = replace(problem, central=True)
    polished = minimise(problem, found.z[[i]], y, w, loss, 1e-15, rounds=10)
    if polished.objective[0] <= found.objective[i]:
        found.z[i], found.objective[i] = polished.z[0], polished.objective[0]
    z, at_bound = _settle(problem, found.z[i])
    objective = float((w * loss(problem.predict(z[None]), y).value).sum())
    near = found.objective <= found.objective.min() * (1 + SAME) + 1e-20
    starts = Starts(len(found.z), int(near.sum()), overruled)
    least, ends = float(found.objective[i]), found.z[np.argsort(found.objective)][:8]
    return Optimum(law, loss, rows, problem, z, objective, least, starts, at_bound, ends)


def _starts(problem: Problem, y: np.ndarray, weights: np.ndarray, loss: Loss) -> np.ndarray:
    """Up to ten starts z (K, p), the best of the grid by `loss`, no two within 0.05 in every coordinate."""
    law, columns = problem.law, problem.columns
    with np.errstate(all="ignore"):
        points = _grid(law, columns)
        if law.like:
            points = _alike(problem, y, weights, loss, points)
        # Least squares in the law's own value, weighted by how steeply the residual follows it.
        inner = {"loglog": 1e-6, "logit": 1e-3}.get(law.returns, 0.0)
        level = to_space(y, problem.space, "linear")[0]
        own = to_space(np.clip(level, inner, 1 - inner) if inner else level, "linear", law.returns)[0]
        outer = to_space(own, law.returns, problem.space)[1]
        z = law.to_z(_project(law, columns, own, weights * outer**2, points))
        score = (weights * loss(problem.predict(z), y).value).sum(axis=1)
    order = np.argsort(np.where(np.isfinite(score), score, np.inf), kind="stable")
    chosen: list[np.ndarray] = []
    for at in z[order[np.isfinite(score[order])]]:
        if len(chosen) < 10 and all(np.abs(at - other).max() > 0.05 for other in chosen):
            chosen.append(at)
    return np.array(chosen)


def _grid(law: Law, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Grid of natural parameters (G, p); linear parameters are 1."""

    def axis(name: str) -> Any:
        low, high = law.limits(name)
        if name in law.pinned or name in law.linear:
            return [law.pinned.get(name, 1.0)]
        if (chosen := law.starts.get(name)) is not None:
            return chosen(columns) if callable(chosen) else chosen
        if np.isfinite(high):
            return low + (high - low) * np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        return low + np.geomspace(0.03, 10, 8) if np.isfinite(low) else (-3, -1, -0.3, 0, 0.3, 1, 3)

    axes = itertools.product(*map(axis, law.parameters))
    points = np.array(list(itertools.islice(axes, 200_000)), dtype=float)
    return points[:: -(-len(points) // 2000)]


def _project(law: Law, columns, target: np.ndarray, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points with linear parameters at the best feasible least-squares solution of every subset, others at zero."""
    free = [name for name in law.linear if name not in law.pinned]
    if not free:
        return points
    where, out = [law.parameters.index(name) for name in free], points.copy()
    out[:, where] = 0.0
    offset = law(columns, out)
    basis = np.empty((len(points), len(free), len(target)))
    for i, j in enumerate(where):
        one = out.copy()
        one[:, j] = 1.0
        basis[:, i] = law(columns, one) - offset
    scale = np.maximum(np.sqrt((basis**2 * weights).sum(axis=2)), 1e-300)
    basis /= scale[:, :, None]
    rhs = target - offset
    normal = (basis * weights) @ basis.transpose(0, 2, 1)
    moment = (basis @ (weights * rhs)[:, :, None])[:, :, 0]
    total = (weights * rhs * rhs).sum(axis=1)
    best, solved = np.full(len(points), np.inf), np.zeros((len(points), len(free)))
    signed = [law.limits(name) == REAL for name in free]
    for subset in list(itertools.product((True, False), repeat=len(free)))[:-1]:
        k = np.flatnonzero(subset)
        c, ridge = np.zeros((len(points), len(free))), 1e-12 * np.eye(len(k))
        c[:, k] = np.linalg.solve(normal[:, k[:, None], k] + ridge, moment[:, k, None])[:, :, 0]
        left = total - 2 * (c * moment).sum(axis=1) + np.einsum("gi,gij,gj->g", c, normal, c)
        feasible = np.all((c >= 0) | signed, axis=1) & np.isfinite(left) & (left < best)
        best[feasible], solved[feasible] = left[feasible], c[feasible]
    out[:, where] = solved / scale
    # A term at exactly zero has no slope in z, so no search could revive it: it starts at a thousandth of y.
    unit = np.abs(target).mean() / np.maximum(scale / np.sqrt(weights.sum()), 1e-300)
    for i, j in enumerate(where):
        low, high = law.limits(free[i])
        if not signed[i]:
            out[:, j] = np.clip(out[:, j], low + 1e-3 * unit[:, i], high - 1e-3 * min(high - low, 1e300))
    return out


def _alike(problem: Problem, y: np.ndarray, weights: np.ndarray, loss: Loss, grid: np.ndarray) -> np.ndarray:
    """The grid with the parameters that the law shares with the law `like` at that law's starts and best fits."""
    law, simple = problem.law, resolve(str(problem.law.like))
    simple = simple.pin(**{k: v for k, v in law.pinned.items() if k in simple.parameters})
    sub = Problem(simple, {c: problem.columns[c] for c in simple.columns}, problem.space)
    begin = _starts(sub, y, weights, loss)
    found = minimise(sub, begin, y, weights, loss, 1e-8)
    best = np.unique(np.round([*begin, *found.z[np.argsort(found.objective)[:4]]], 3), axis=0)
    values, out = simple.from_z(best)[0], np.repeat(grid, len(best), axis=0)
    for name in set(simple.parameters) - set(law.pinned):
        out[:, law.parameters.index(name)] = np.tile(values[:, simple.parameters.index(name)], len(grid))
    return out


def check_determined(problem: Problem, begin: np.ndarray, names: Mapping[str, str]) -> None:
    """Refuse a design on which the law has fewer independent directions than parameters, at every start `begin`."""
    law = problem.law
    with np.errstate(all="ignore"):
        J = replace(problem, central=True).jacobian(begin)[:, law.estimated]
        J = np.nan_to_num(J / np.sqrt((J * J).sum(axis=2, keepdims=True)), posinf=0.0, neginf=0.0)
    rank = int((np.linalg.svd(J, compute_uv=False) > 1e-7).sum(axis=1).max())  # exact to 1e-10
    if rank < len(law.free):
        distinct = ", ".join(f"{len(np.unique(v))} of {names[c]}" for c, v in problem.columns.items())
        told = f"with {distinct}, only {rank} combinations of them change the prediction"
        what = f"The data do not determine the {len(law.free)} parameters of {law.name!r}: {told}"
        raise UserError(f"{what}. Add values, pin a parameter, or use a law with fewer.")


def _contradict(
    problem: Problem, found: Solution, y: np.ndarray, w: np.ndarray, loss: Loss
) -> tuple[Solution, tuple[str, ...]]:
    """The solutions with any better one found from two units to either side of the best, and along which parameters."""
    law, overruled = problem.law, []
    index = np.repeat(np.flatnonzero(law.estimated & ~law.linearly), 2)
    away = np.eye(len(law.parameters))[index] * np.tile([-2.0, 2.0], len(index) // 2)[:, None]
    for _ in range(3 if len(index) else 0):
        best = int(np.argmin(found.objective))
        there = minimise(problem, np.clip(found.z[best], -30, 30) + away, y, w, loss, 1e-4, rounds=20)
        least = int(np.argmin(np.where(np.isfinite(there.objective), there.objective, np.inf)))
        if not there.objective[least] < found.objective[best] * (1 - SAME) - 1e-20:
            break
        overruled.append(law.parameters[index[least]])
        found = found.and_of(minimise(problem, there.z[[least]], y, w, loss, 1e-14))
    return found, tuple(dict.fromkeys(overruled))


def _settle(problem: Problem, z: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """z with linear parameters that went to a bound (an infinite z) a billionth of their unit beside it, and those."""
    z, reached = z.copy(), {}
    for name in problem.law.linear:
        low, high = problem.law.limits(name)
        if name in problem.law.pinned or np.isinf(low):
            continue
        j = problem.law.parameters.index(name)
        value, near = problem.law.from_z(z[None])[0][0, j], 1e-6 * min(problem.unit(z, name), high - low)
        if min(value - low, high - value) < near:
            bound, inward = (low, 1) if value - low < near else (high, -1)
            reached[name] = bound
            z[j] = problem.law.to_z(np.full((1, len(z)), bound + 1e-3 * near * inward))[0, j]
    return z, reached
