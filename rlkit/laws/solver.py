"""Losses, and the batched solver: many fits of one law at once, each with its own start, weights and observations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from rlkit.errors import UserError
from rlkit.laws.law import Columns, Law, Space

CELLS = 1 << 15  # cells (B·n) worked on at once: the arrays of a step stay near the processor's cache


class Terms(NamedTuple):
    """A loss cell by cell, each (B, n): value, first and second derivative in the prediction, and the curvature of a
    quadratic above it, which damps the solver where the second derivative vanishes (None: the second derivative)."""

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray | float
    majorant: np.ndarray | None = None


@dataclass(frozen=True)
class Loss:
    """A sum over rows. ls: r²/2; huber (Hoffmann et al. 2022): r²/2 inside delta, delta·(|r| - delta/2) outside."""

    name: str
    delta: float = 0.0

    @property
    def robust(self) -> bool:
        return self.name == "huber"

    def __call__(self, prediction: np.ndarray, y: np.ndarray) -> Terms:
        r = prediction - y
        if not self.robust:
            return Terms(0.5 * r * r, r, 1.0)
        size, slope = np.abs(r), np.clip(r, -self.delta, self.delta)
        inside, majorant = (size <= self.delta).astype(float), self.delta / np.maximum(size, self.delta)
        return Terms(slope * (r - 0.5 * slope), slope, inside, majorant)


def make_loss(loss: str | None, delta: float | None) -> Loss:
    """A Loss from its name, a UserError for an unknown one; without one, ls, or huber where there is a delta."""
    name = loss or ("ls" if delta is None else "huber")
    if name not in ("ls", "huber"):
        raise UserError(f"Unknown loss {loss!r}: use one of ls, huber.")
    if name != "huber" and delta is not None:
        raise UserError(f"delta is {delta!r}, which only the loss huber has: leave it out for {name}.")
    if delta is not None and not 0 < delta < np.inf:
        raise UserError(f"delta is {delta!r}, but Huber's loss needs delta > 0, in units of the residual.")
    return Loss(name, float(delta or 1e-3) if name == "huber" else 0.0)


class Quadratic(NamedTuple):
    """Objective (B,), gradient (B, p), curvature (B, p, p) and damping (B, p), in z."""

    objective: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray
    damping: np.ndarray


class Solution(NamedTuple):
    """z (B, p), objective (B,), converged (B,)."""

    z: np.ndarray
    objective: np.ndarray
    converged: np.ndarray

    def and_of(self, *others: "Solution") -> "Solution":
        """The rows of all of them."""
        return Solution(*map(np.concatenate, zip(self, *others, strict=True)))

    def put(self, rows: np.ndarray, better: "Solution") -> None:
        """Replace `rows`, indices into B, in place."""
        for old, new in zip(self, better, strict=True):
            old[rows] = new


def to_space(value: np.ndarray, returns: Space, space: Space) -> tuple[np.ndarray, np.ndarray | float]:
    """A law's value in the space of the residuals, and the derivative of that map."""
    if returns == space:
        return value, 1.0
    y, outer = value, 1.0
    if returns == "log":
        y = outer = np.exp(value)
    elif returns == "loglog":
        y = np.exp(-np.exp(value))
        outer = -np.exp(value) * y
    elif returns == "logit":
        y = expit(value)
        outer = y * expit(-value)
    if space == "log":
        return np.log(y), outer / y
    if space == "loglog":
        return np.log(-np.log(y)), outer / (y * np.log(y))
    return (np.log(y) - np.log1p(-y), outer / (y * (1 - y))) if space == "logit" else (y, outer)


@dataclass(frozen=True)
class Problem:
    """A law, its columns (n,), the space of its residuals, and whether differences are central, for the last digits."""

    law: Law
    columns: Columns
    space: Space
    central: bool = False

    def values(self, z: np.ndarray) -> np.ndarray:
        """The law's own values, (B, n)."""
        return self.law(self.columns, self.law.from_z(z)[0])

    def predict(self, z: np.ndarray) -> np.ndarray:
        """Predictions in residual space, (B, n)."""
        return to_space(self.values(z), self.law.returns, self.space)[0]

    def terms(self, values: np.ndarray, loss: Loss, y: np.ndarray) -> Terms:
        """The loss of the law's own values, cell by cell."""
        return loss(to_space(values, self.law.returns, self.space)[0], y)

    def jacobian(self, z: np.ndarray, value: np.ndarray | None = None) -> np.ndarray:
        """Derivatives in z of predictions (B, p, n), exact where the law is linear; `value` is the law's own at z."""
        law, (B, p) = self.law, z.shape
        still, linear, each = ~law.estimated, law.linearly, np.arange(p)
        h = (6e-6 if self.central else 3e-8) * np.maximum(1.0, np.abs(z))
        values, slope = law.from_z(z)
        step = np.maximum(np.abs(values), 1.0)
        scale = np.where(linear, slope / step, (0.5 if self.central else 1.0) / h)
        moved = np.repeat(values[None], 2 * p if self.central else p, axis=0)
        ends = np.where(linear, values + step, law.from_z(z + h)[0])
        moved[each, :, each] = np.where(still, values, ends).T
        if self.central:
            moved[p + each, :, each] = np.where(still | linear, values, law.from_z(z - h)[0]).T
        found = law(self.columns, moved.reshape(-1, p)).reshape(len(moved), B, -1)
        value = law(self.columns, values) if value is None else value
        J = (found[:p] - (found[p:] if self.central else value)) * scale.T[:, :, None]
        return (J * to_space(value, law.returns, self.space)[1]).transpose(1, 0, 2)

    def unit(self, z: np.ndarray, name: str) -> float:
        """The value of a linear parameter at which its term is as large as the others together, at z (p,)."""
        j = self.law.parameters.index(name)
        values = np.repeat(self.law.from_z(z[None])[0], 3, axis=0)
        values[1:, j] = 0.0, 1.0
        with np.errstate(over="ignore", invalid="ignore"):  # terms that vanish, or leave what a float holds
            whole, without, one = self.law(self.columns, values)
            if (one == without).all():  # beside the other terms it is below their last digit
                values[1:, self.law.linearly] = 0.0
                values[2, j] = 1.0
                _, without, one = self.law(self.columns, values)
            return float(np.abs(whole).mean() / np.maximum(np.abs(one - without).mean(), 1e-300))

    def quadratic(
        self, z: np.ndarray, value: np.ndarray, terms: Terms, weights: np.ndarray, free: np.ndarray
    ) -> Quadratic:
        """The objective's local model at z, where the law has these values and the loss these terms; coordinates that
        are not free have no slope. Where it is not finite the objective is infinite, and the step is refused."""
        J = self.jacobian(z, value)
        if not free.all():
            J *= free[:, :, None]
        objective = np.einsum("bn,bn->b", weights, terms.value)
        gradient = (J @ (weights * terms.slope)[:, :, None])[:, :, 0]
        curvature = (J * (weights * terms.curvature)[:, None, :]) @ J.transpose(0, 2, 1)
        if terms.majorant is None:
            damping = np.diagonal(curvature, axis1=1, axis2=2).copy()
        else:
            damping = ((J * J) @ (weights * terms.majorant)[:, :, None])[:, :, 0]
        bad = ~np.isfinite(objective + gradient.sum(axis=1) + curvature.sum(axis=(1, 2)))
        if bad.any():
            objective[bad], gradient[bad], curvature[bad], damping[bad] = np.inf, 0.0, 0.0, 1.0
        return Quadratic(objective, gradient, curvature, damping)


def minimise(
    problem: Problem, z: np.ndarray, y: np.ndarray, weights: np.ndarray, loss: Loss, tolerance: float = 1e-10,
    free: np.ndarray | None = None, rounds: int = 150, before: Sequence[Loss] = (),
) -> Solution:  # fmt: skip
    """Levenberg-Marquardt on every row of the batch, from z (B, p), through each loss of `before` first. y and weights
    are (n,), (1, n) or (B, n); `free`, bool (p,) or (B, p), are coordinates that move (pinned ones never do). A search
    ends where a step gains less than the share `tolerance`, or after so many rounds."""
    y, weights, parts = np.atleast_2d(y), np.atleast_2d(weights), []
    free = np.ones((1, z.shape[1]), dtype=bool) if free is None else np.atleast_2d(free)
    size = max(4, CELLS // y.shape[1])
    with np.errstate(all="ignore"):
        for first in range(0, len(z), size):
            y_, w_, free_ = (_take(a, slice(first, first + size)) for a in (y, weights, free))
            part = Solution(z[first : first + size], np.empty(0), np.empty(0))
            for smoother in before:
                part = _levenberg(problem, part.z, y_, w_, smoother, 1e-5, free_, rounds)
            part = _levenberg(problem, part.z, y_, w_, loss, tolerance, free_, rounds)
            if rounds >= 150:
                _at_bounds(problem, part, y_, w_, loss, tolerance, free_)
            parts.append(part)
    return parts[0].and_of(*parts[1:])


def _take(a: np.ndarray, rows) -> np.ndarray:
    """Rows of an array that may have a single row for the whole batch."""
    return a[rows] if len(a) > 1 else a


def _levenberg(problem: Problem, z, y, weights, loss, tolerance: float, free, rounds: int = 150) -> Solution:
    z = np.array(z, dtype=float)
    B, p = z.shape
    value = problem.values(z)
    state = problem.quadratic(z, value, problem.terms(value, loss, y), weights, free)
    objective, converged = state.objective.copy(), np.zeros(B, bool)
    active, mu, eye = np.arange(B), np.full(B, 1e-2), np.eye(p)
    for _ in range(rounds):
        floor = 1e-10 * state.damping.max(axis=1, keepdims=True) + 1e-290
        matrix = state.curvature + (mu[:, None] * (state.damping + floor) + 1e-14 * floor)[:, :, None] * eye
        step = -np.linalg.solve(matrix, state.gradient[:, :, None])[:, :, 0]
        step *= np.minimum(1, 4 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        gain = -(state.gradient * step).sum(axis=1)
        before, trial = z[active], z[active] + step
        value = problem.values(trial)
        terms = problem.terms(value, loss, _take(y, active))
        total = (_take(weights, active) * terms.value).sum(axis=1)
        better = total < state.objective  # not where it is not finite
        z[active[better]] = trial[better]
        reached = np.where(better, total, state.objective)
        small = (gain <= tolerance * np.abs(reached)) & (np.where(better, mu / 5, mu * 6) < 1e3)
        done = small | (np.abs(step).max(axis=1) < 1e-11) | (mu * 6 > 1e12)
        objective[active] = reached
        converged[active[done]] = np.isfinite(reached[done])
        moved = np.flatnonzero(better & ~done)  # derivatives are taken where they are needed
        at = active[moved]
        if len(at):
            parts: list[Any] = [a[moved] if isinstance(a, np.ndarray) else a for a in terms]
            terms = Terms(*parts)
            there = problem.quadratic(z[at], value[moved], terms, _take(weights, at), _take(free, at))
            fine = np.isfinite(there.objective)  # a step to where there is no slope is taken back
            z[at[~fine]], objective[at[~fine]] = before[moved[~fine]], state.objective[moved[~fine]]
            better[moved[~fine]] = False
            for old, new in zip(state, there, strict=True):
                old[moved[fine]] = new[fine]
        mu = np.where(better, np.maximum(mu / 5, 1e-10), np.minimum(mu * 6, 1e13))
        if done.any():
            active, mu = active[~done], mu[~done]
            state = Quadratic(*(a[~done] for a in state))
            if not len(active):
                break
    return Solution(z, objective, converged)


def _at_bounds(problem: Problem, found: Solution, y, weights, loss: Loss, tolerance: float, free) -> None:
    """Solve rows that still walk to a bound again, in place, each linear parameter in turn held at its nearest one."""
    law = problem.law
    walking = np.flatnonzero(~found.converged & np.isfinite(found.objective))
    for j, name in enumerate(law.parameters):
        low, high = law.limits(name)
        if not len(walking) or name not in law.linear or name in law.pinned or np.isinf(low):
            continue
        start = found.z[walking].copy()
        start[:, j] = np.where(start[:, j] > 0, 40.0, -40.0) if np.isfinite(high) else -690.0
        moving = np.broadcast_to(_take(free, walking), start.shape).copy()
        moving[:, j] = False
        held = _levenberg(problem, start, _take(y, walking), _take(weights, walking), loss, tolerance, moving)
        better = held.converged & (held.objective <= found.objective[walking] * (1 + 1e-7))
        found.put(walking[better], Solution(*(part[better] for part in held)))
