"""How sure: covariance, profiles and the thresholds they are read at.

Robust losses have no likelihood of their own, so their scale is estimated: an objective difference of
s²·t²/2 with s² = sum(slope²)/(n - p)/mean(curvature) plays the part of the likelihood-ratio statistic (Huber
and Ronchetti 2009, ch. 13). For least squares this is the F profile of lmfit's conf_interval.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from rlkit.laws.losses import Loss
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import minimise

FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound


class Profile(NamedTuple):
    """The objective minimised over the other parameters at `values` of one, and where it crosses the
    level."""

    name: str
    values: np.ndarray
    objective: np.ndarray
    low: float
    high: float


def smooth_curvature(fit: Optimum) -> tuple[Loss, np.ndarray]:
    """The loss with delta widened to the residuals' own spread, and the mean curvature (n,) it gives.

    Where nearly all residuals lie outside delta, the rows inside are too few to estimate a density from. A robust fit
    passes through about as many points as it has parameters: their residuals say nothing of the spread, and are
    left out.
    """
    loss, r = fit.loss, fit.residuals
    if loss.name not in ("huber", "lad", "quantile"):
        return loss, np.broadcast_to(loss(fit.predicted[None], fit.observed[None]).curvature, (1, len(r)))[0]
    told = np.sort(np.abs(r - np.median(r)))[min(int(fit.free.sum()), len(r) - 1) :]
    spread = 1.4826 * np.median(told)
    width = max(loss.delta, 0.8 * spread * len(r) ** -0.2, 1e-12)  # a kernel's bandwidth
    wide = replace(loss, delta=width)
    inside = (np.abs(r) <= width).astype(float)
    side = (
        1.0
        if loss.name == "huber"
        else (2.0 if loss.name == "lad" else 1.0) * np.where(r > 0, loss.tau, 1 - loss.tau)
    )
    slope_limit = loss.delta if loss.name == "huber" else 1.0
    return wide, inside * side * slope_limit / width


def covariance(fit: Optimum) -> np.ndarray:
    """(p, p) Wald covariance in z: s²·H⁻¹ for least squares, the sandwich H⁻¹·G·H⁻¹ for robust losses, H⁻¹
    for likelihoods (a binomial one scaled by its dispersion where that exceeds 1); with clusters the sandwich of
    their sums, whatever the loss."""
    _, J = fit.problem.jacobian(fit.z[None])
    J = J[0][fit.free]
    w, (_, curvature) = fit.table.weights, smooth_curvature(fit)
    H = (J * w * curvature) @ J.T
    inverse = np.linalg.pinv(H, rcond=1e-13, hermitian=True)
    n, p = len(w), len(J)
    if fit.loss.name in ("huber", "lad", "quantile"):
        middle = _scores(J * w * fit.slopes, None)
        small = inverse @ middle @ inverse * n / (n - p)
    else:
        small = inverse * scale(fit)
    if fit.table.cluster is not None:
        clusters = fit.table.cluster.max() + 1
        middle = _scores(J * w * fit.slopes, fit.table.cluster)
        small = inverse @ middle @ inverse * (clusters / (clusters - 1)) * (n - 1) / (n - p)
    out = np.zeros((len(fit.z), len(fit.z)))
    out[np.ix_(fit.free, fit.free)] = small
    return out


def _scores(slopes: np.ndarray, cluster: np.ndarray | None) -> np.ndarray:
    """(p, p) sum of outer products of the rows' slopes (p, n), added up within clusters first."""
    if cluster is not None:
        slopes = slopes @ np.eye(cluster.max() + 1)[cluster]
    return slopes @ slopes.T


def scale(fit: Optimum) -> float:
    """What an objective difference of t²/2 is multiplied by."""
    w, n, p = fit.table.weights, len(fit.table), int(fit.free.sum())
    if fit.loss.name == "likelihood":
        return 1.0
    if fit.loss.name == "ls":
        return float(2 * fit.objective / (n - p))
    if fit.loss.name == "binomial":
        return max(1.0, 2 * fit.objective / (n - p))
    _, curvature = smooth_curvature(fit)
    return float((w**2 * fit.slopes**2).sum() / (n - p) / max((w * curvature).mean(), 1e-300))


def threshold(fit: Optimum, level: float) -> float:
    """The objective at which a profile leaves the interval."""
    n, p = len(fit.table), int(fit.free.sum())
    upper = (1 + level) / 2
    t = float(stats.norm.ppf(upper) if fit.loss.name == "likelihood" else stats.t.ppf(upper, n - p))
    return fit.minimum + 0.5 * t * t * scale(fit)


def profiles(fit: Optimum, names: tuple[str, ...], level: float) -> dict[str, Profile]:
    """Profile intervals of several parameters at once; an end that is never reached is the bound or infinite.

    Both sides of every parameter walk outward together, each step started from the one before it.
    """
    index = np.repeat([fit.law.parameters.index(n) for n in names], 2)
    side = np.tile([-1.0, 1.0], len(names))
    unit = np.clip(np.sqrt(np.diagonal(covariance(fit)))[index], 1e-4, 2.0)
    unit[[fit.law.parameters[j] in fit.at_bound for j in index]] = 2.0  # no slope there, so no error either
    bounded = np.array([np.isfinite(fit.law.limits(fit.law.parameters[j])).any() for j in index])
    limit, best = threshold(fit, level), fit.minimum
    reach = np.where(bounded, FAR, 1e4 * unit)
    offsets, heights = [np.zeros(len(index))], [np.full(len(index), best)]
    at = np.repeat(fit.z[None], len(index), axis=0)
    for factor in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf):
        offset = np.minimum(factor * unit, reach)
        at, height = _constrained(fit, at, index, fit.z[index] + side * offset)
        offsets.append(offset)
        heights.append(height)
        if np.all((height > limit) | (offset >= reach)):
            break
    found = _crossings(fit, index, side, np.array(offsets), np.array(heights), limit)
    return {
        name: _assemble(fit, name, 2 * i, side, np.array(offsets), np.array(heights), found)
        for i, name in enumerate(names)
    }


def _natural(fit: Optimum, j: int, value: float) -> float:
    return float(fit.law.natural(j, np.asarray(value, dtype=float))[0])


def _constrained(
    fit: Optimum, at: np.ndarray, index: np.ndarray, fixed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minima over the other parameters with coordinate index[i] of row i held at fixed[i]."""
    start, rows = at.copy(), np.arange(len(at))
    start[rows, index] = fixed
    free = np.repeat(fit.free[None], len(at), axis=0)
    free[rows, index] = False
    losses = fit.loss.refit(fit.spread)
    solution = minimise(fit.problem, start, fit.observed, fit.table.weights, losses, 1e-9, free)
    return solution.z, solution.objective


def _crossings(fit: Optimum, index, side, offsets, heights, limit) -> np.ndarray:
    """Offsets at which each walk crosses the limit, by interpolation in sqrt(objective) and six
    bisections."""
    over = heights > limit
    crossed = over.any(axis=0)
    first = np.where(crossed, over.argmax(axis=0), 1)
    rows = np.arange(len(index))
    low, high = offsets[first - 1, rows], offsets[first, rows]
    low_h, high_h = heights[first - 1, rows], heights[first, rows]
    at = np.repeat(fit.z[None], len(index), axis=0)
    for step in range(8):
        a, b, c = (np.sqrt(np.maximum(h - fit.minimum, 0)) for h in (low_h, high_h, np.array(limit)))
        share = np.where(b > a, (c - a) / np.maximum(b - a, 1e-300), 0.5)
        share = np.clip(share, 0.02, 0.98) if step % 3 < 2 else 0.5
        middle = low + (high - low) * share
        at, height = _constrained(fit, at, index, fit.z[index] + side * middle)
        outside = height > limit
        high, high_h = np.where(outside, middle, high), np.where(outside, height, high_h)
        low, low_h = np.where(outside, low, middle), np.where(outside, low_h, height)
    return np.where(crossed, (low + high) / 2, np.inf)


def _assemble(fit: Optimum, name: str, row: int, side, offsets, heights, found) -> Profile:
    j = fit.law.parameters.index(name)
    z = np.concatenate([(fit.z[j] - offsets[::-1, row]), (fit.z[j] + offsets[1:, row + 1])])
    objective = np.concatenate([heights[::-1, row], heights[1:, row + 1]])
    ends = []
    for k, bound in ((row, fit.law.limits(name)[0]), (row + 1, fit.law.limits(name)[1])):
        ends.append(bound if np.isinf(found[k]) else _natural(fit, j, fit.z[j] + side[k] * found[k]))
    return Profile(
        name, np.array([_natural(fit, j, v) for v in z]), objective, float(ends[0]), float(ends[1])
    )
