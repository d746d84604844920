"""From a table to an optimum: many starts, and a second search that can contradict their agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlkit.errors import UserError
from rlkit.laws.law import Law
from rlkit.laws.losses import Loss
from rlkit.laws.optimum import Optimum, Starts, scaled_curvature
from rlkit.laws.solver import Problem, Solution, minimise, to_space
from rlkit.laws.starts import starts
from rlkit.laws.table import Table

SAME = 1e-6  # objectives that differ by less than this share are of one optimum


def search(rows: Table, law: Law, loss: Loss, space) -> tuple[Optimum, Solution]:
    """The best optimum, and all that the starts ended at.

    Raises:
        UserError: the law has no finite value at any start, or the columns do not determine its parameters.
    """
    problem = Problem(law, rows.columns, space)
    y, w = to_space(rows.y, "linear", space)[0], rows.weights
    path = loss.path(float(np.std(y)) or 1.0)
    begin = starts(problem, y, w, path[0])
    if not len(begin):
        raise UserError(
            f"The law {law.name!r} has no finite value at any start: check the units of "
            f"{', '.join(rows.names.values())}."
        )
    _check_determined(problem, begin, rows)
    found = minimise(problem, begin, y, w, path, tolerance=1e-14)
    found, overruled = _contradict(problem, found, y, w, path)
    i = int(np.argmin(found.objective))
    problem = replace(problem, central=True)
    polished = minimise(problem, found.z[[i]], y, w, path[-1:], 1e-15, rounds=10)
    if polished.objective[0] <= found.objective[i]:
        found.z[i], found.objective[i] = polished.z[0], polished.objective[0]
    exact = replace(path[-1], delta=1e-250) if loss.name in ("lad", "quantile") else path[-1]
    z, at_bound = _settle(problem, found.z[i])
    objective = float((w * exact(problem.predict(z[None]), y).value).sum())
    free = np.array([p not in law.pinned for p in law.parameters])
    slope = problem.quadratic(found.z[[i]], path[-1], y[None], w[None]).gradient[0][free]
    gradient = float(np.abs(slope).max() / max(abs(found.objective[i]), 1e-300))
    values = np.linalg.eigvalsh(scaled_curvature(problem, z, path[-1], y, w, free))
    condition = float(values[-1] / values[0]) if values[0] > 0 else np.inf
    best = Optimum(
        law, path[-1], rows, problem, z, objective, float(found.objective[i]), gradient, condition,
        _agreement(law, found, overruled), at_bound,
    )  # fmt: skip
    return best, found


def _check_determined(problem: Problem, begin: np.ndarray, rows: Table) -> None:
    """Refuse a design on which the law has fewer independent directions than parameters, at every start.

    The rank is that of the columns, not of the optimum, where a term at zero or a parameter that ran away loses a
    direction by rounding. Derivatives are exact to 1e-10, and a design that determines a law is above 1e-7.
    """
    law = problem.law
    with np.errstate(all="ignore"):
        J = replace(problem, central=True).jacobian(begin)[1][
            :, [p not in law.pinned for p in law.parameters]
        ]
        J = np.nan_to_num(J / np.sqrt((J * J).sum(axis=2, keepdims=True)), posinf=0.0, neginf=0.0)
    rank = int((np.linalg.svd(J, compute_uv=False) > 1e-7).sum(axis=1).max())
    if rank < len(law.free):
        values = ", ".join(
            f"{len(np.unique(v))} of {rows.names[c]}" for c, v in rows.columns.items() if c in rows.names
        )
        raise UserError(
            f"The data do not determine the {len(law.free)} parameters of {law.name!r}: with {values}, only {rank} "
            "combinations of them change the prediction. Add values, pin a parameter, or use a law with fewer."
        )


def _contradict(
    problem: Problem, found: Solution, y: np.ndarray, w: np.ndarray, path: Sequence[Loss]
) -> tuple[Solution, tuple[str, ...]]:
    """The solutions with any better one that a walk from the best found, and the parameters that it walked along.

    Each parameter that is not linear is held at a distance on either side, the others are minimised there, and then all
    are let go: a profile's walk, which leaves a basin that a wide loss pulls every start into. It is repeated from a
    better optimum.
    """
    law, overruled = problem.law, []
    walked = [j for j, name in enumerate(law.parameters) if name not in (*law.pinned, *law.linear)]
    steps = [(j, step) for j in walked for step in (-2.0, 2.0)]
    for _ in range(3 if steps else 0):
        best = int(np.argmin(found.objective))
        z = np.repeat(np.clip(found.z[best], -30, 30)[None], len(steps), axis=0)
        free = np.ones(z.shape, dtype=bool)
        for row, (j, step) in enumerate(steps):
            z[row, j] += step
            free[row, j] = False
        held = minimise(problem, z, y, w, path[-1:], 1e-3, free, rounds=10)
        there = minimise(problem, held.z, y, w, path[-1:], 1e-4, rounds=15)
        least = int(np.argmin(np.where(np.isfinite(there.objective), there.objective, np.inf)))
        if not there.objective[least] < found.objective[best] * (1 - SAME) - 1e-20:
            break
        overruled.append(law.parameters[steps[least][0]])
        better = minimise(problem, there.z[[least]], y, w, path[-1:], 1e-14)
        found = Solution(*(np.concatenate([a, b]) for a, b in zip(found, better, strict=True)))
    return found, tuple(dict.fromkeys(overruled))


def _agreement(law: Law, found: Solution, overruled: tuple[str, ...]) -> Starts:
    best = found.objective.min()
    near = found.objective <= best + SAME * abs(best) + 1e-20
    values = law.from_z(found.z[near])[0]
    spread = {p: (float(values[:, j].min()), float(values[:, j].max())) for j, p in enumerate(law.parameters)}
    worst = found.objective[np.isfinite(found.objective)].max() / best if best > 0 else np.nan
    return Starts(len(found.z), int(near.sum()), spread, float(worst), overruled)


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
