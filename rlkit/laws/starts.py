"""Where a fit starts: a small fixed grid over the parameters that are not linear, the linear ones solved for.

Variable projection (Golub and Pereyra 1973): for each grid point the best linear parameters are a weighted
non-negative least-squares problem in a few unknowns, so the search has the dimension of the nonlinear ones
only.
"""

from __future__ import annotations

import itertools

import numpy as np

from rlkit.laws.law import REAL, Law, resolve
from rlkit.laws.losses import Loss
from rlkit.laws.solver import Problem, minimise, to_space

MAX_GRID = 2000


def _grid(law: Law, columns) -> np.ndarray:
    """Grid of natural parameters (G, p); linear parameters are 1."""
    axes = []
    for name in law.parameters:
        if name in law.pinned:
            axes.append(np.array([law.pinned[name]]))
        elif name in law.linear:
            axes.append(np.ones(1))
        elif name in law.starts:
            chosen = law.starts[name]
            axes.append(np.asarray(chosen(columns) if callable(chosen) else chosen, dtype=float))
        else:
            axes.append(_default_axis(*law.limits(name)))
    points = np.array(list(itertools.islice(itertools.product(*axes), 200_000)))
    return points[:: -(-len(points) // MAX_GRID)]


def _default_axis(low: float, high: float) -> np.ndarray:
    if np.isfinite(low) and np.isfinite(high):
        return low + (high - low) * np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    if np.isfinite(low):
        return low + np.geomspace(0.03, 10, 8)
    return np.array([-3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0])


def project(law: Law, columns, target: np.ndarray, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points with their linear parameters solved by weighted least squares, within their bounds.

    Every subset of the (at most four) linear parameters is tried with the others at zero; the best feasible
    one is the exact non-negative solution.
    """
    free = [name for name in law.linear if name not in law.pinned]
    if not free:
        return points
    where = [law.parameters.index(name) for name in free]
    zero = points.copy()
    zero[:, where] = 0.0
    offset = law(columns, zero)
    basis = np.empty((len(points), len(free), len(target)))
    for i, j in enumerate(where):
        one = zero.copy()
        one[:, j] = 1.0
        basis[:, i] = law(columns, one) - offset
    scale = np.sqrt((basis**2 * weights).sum(axis=2))
    basis /= np.maximum(scale, 1e-300)[:, :, None]
    rhs = target - offset
    normal = (basis * weights) @ basis.transpose(0, 2, 1)
    moment = (basis @ (weights * rhs)[:, :, None])[:, :, 0]
    total = (weights * rhs * rhs).sum(axis=1)
    best, solved = np.full(len(points), np.inf), np.zeros((len(points), len(free)))
    signed = [law.limits(name) == REAL for name in free]
    for subset in itertools.product((True, False), repeat=len(free)):
        k = np.flatnonzero(subset)
        if not len(k):
            continue
        c = np.zeros((len(points), len(free)))
        ridge = 1e-12 * np.eye(len(k))
        c[:, k] = np.linalg.solve(normal[:, k[:, None], k] + ridge, moment[:, k, None])[:, :, 0]
        left = total - 2 * (c * moment).sum(axis=1) + np.einsum("gi,gij,gj->g", c, normal, c)
        feasible = np.all((c >= 0) | signed, axis=1) & np.isfinite(left) & (left < best)
        best[feasible], solved[feasible] = left[feasible], c[feasible]
    out = points.copy()
    out[:, where] = solved / np.maximum(scale, 1e-300)
    # A term at exactly zero has no slope in z, so no search could revive it: it starts at a thousandth of y.
    unit = np.abs(target).mean() / np.maximum(scale / np.sqrt(weights.sum()), 1e-300)
    for i, j in enumerate(where):
        low, high = law.limits(free[i])
        if not signed[i]:
            out[:, j] = np.clip(out[:, j], low + 1e-3 * unit[:, i], high - 1e-3 * min(high - low, 1e300))
    return out


def starts(problem: Problem, y: np.ndarray, weights: np.ndarray, loss: Loss, keep: int = 10) -> np.ndarray:
    """Up to `keep` starts z (K, p), the best of the grid by `loss`, no two of them near each other."""
    law, columns = problem.law, problem.columns
    with np.errstate(all="ignore"):
        points = _grid(law, columns)
        if law.like:
            points = _alike(problem, y, weights, loss, points)
        if law.target is None:
            # Least squares in the law's own value, weighted by how steeply the residual follows it.
            inner = {"loglog": 1e-6, "logit": 1e-3}.get(law.returns, 0.0)
            level = to_space(y, problem.space, "linear")[0]
            own = to_space(np.clip(level, inner, 1 - inner) if inner else level, "linear", law.returns)[0]
            outer = to_space(own, law.returns, problem.space)[1]
            points = project(law, columns, own, weights * outer**2, points)
        z = law.to_z(points)
        score = (weights * loss(problem.predict(z), y).value).sum(axis=1)
    order = np.argsort(np.where(np.isfinite(score), score, np.inf), kind="stable")
    order = order[np.isfinite(score[order])]
    return z[_spread(z[order], keep, order)]


def _alike(
    problem: Problem, y: np.ndarray, weights: np.ndarray, loss: Loss, points: np.ndarray
) -> np.ndarray:
    """The grid with the parameters it shares with the law `like` taken from that law's best fits."""
    law = problem.law
    simple = resolve(str(law.like))
    pinned = {k: v for k, v in law.pinned.items() if k in simple.parameters}
    sub = Problem(simple.pin(**pinned), {c: problem.columns[c] for c in simple.columns}, problem.space)
    found = minimise(sub, starts(sub, y, weights, loss), y, weights, loss.path(float(np.std(y)) or 1.0), 1e-8)
    best = np.unique(np.round(found.z[np.argsort(found.objective)[:4]], 3), axis=0)
    values = sub.law.from_z(best)[0]
    out = np.repeat(points, len(values), axis=0)
    for j, name in enumerate(law.parameters):
        if name in simple.parameters and name not in law.pinned:
            out[:, j] = np.tile(values[:, simple.parameters.index(name)], len(points))
    return out


def _spread(z: np.ndarray, keep: int, order: np.ndarray) -> np.ndarray:
    """The first `keep` of the sorted starts that are not within 0.05 of an earlier one in every
    coordinate."""
    chosen: list[int] = []
    for i in range(len(z)):
        if all(np.abs(z[i] - z[j]).max() > 0.05 for j in chosen):
            chosen.append(i)
        if len(chosen) == keep:
            break
    return order[chosen]
