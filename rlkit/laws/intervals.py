"""How sure: covariance, and profiles with the thresholds they are read at.

Robust losses have no likelihood of their own, so their scale is estimated: an objective difference of
s²·t²/2 with s² = sum(slope²)/(n - p)/mean(curvature) plays the part of the likelihood-ratio statistic (Huber
and Ronchetti 2009, ch. 13). For least squares this is the F profile of lmfit's conf_interval.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import minimise

FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound
WALK = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf)  # in standard errors


def _smooth_curvature(fit: Optimum) -> np.ndarray:
    """(n,) curvature of the loss, for robust ones with delta widened to the residuals' own spread.

    Where nearly all residuals lie outside delta, the rows inside are too few to estimate a density from. A robust fit
    passes through about as many points as it has parameters: their residuals say nothing of the spread, and are
    left out.
    """
    loss, r = fit.loss, fit.residuals
    if not loss.robust:
        return np.broadcast_to(loss(fit.predicted[None], fit.observed[None]).curvature, (1, len(r)))[0]
    told = np.sort(np.abs(r - np.median(r)))[min(len(fit.law.free), len(r) - 1) :]
    width = max(loss.delta, 0.8 * 1.4826 * np.median(told) * len(r) ** -0.2, 1e-12)  # a kernel's bandwidth
    return (np.abs(r) <= width) * (loss.delta if loss.name == "huber" else 1.0) / width


def _slopes(fit: Optimum) -> np.ndarray:
    """(n,) derivative of the loss in the prediction."""
    return fit.loss(fit.predicted[None], fit.observed[None]).slope[0]


def covariance(fit: Optimum) -> np.ndarray:
    """(p, p) Wald covariance in z: s²·H⁻¹ for least squares, the sandwich H⁻¹·G·H⁻¹ for robust losses, H⁻¹
    for likelihoods (a binomial one scaled by its dispersion where that exceeds 1); with clusters the sandwich of
    their sums, whatever the loss."""
    J = fit.problem.jacobian(fit.z[None])[1][0][fit.free]
    w, cluster, (p, n) = fit.table.weights, fit.table.cluster, J.shape
    inverse = np.linalg.pinv((J * w * _smooth_curvature(fit)) @ J.T, rcond=1e-13, hermitian=True)
    scores = J * w * _slopes(fit)
    if cluster is not None:
        count = cluster.max() + 1
        scores = scores @ np.eye(count)[cluster]
        small = inverse @ (scores @ scores.T) @ inverse * (count / (count - 1)) * (n - 1) / (n - p)
    elif fit.loss.robust:
        small = inverse @ (scores @ scores.T) @ inverse * n / (n - p)
    else:
        small = inverse * _scale(fit)
    out = np.zeros((len(fit.z), len(fit.z)))
    out[np.ix_(fit.free, fit.free)] = small
    return out


def _scale(fit: Optimum) -> float:
    """What an objective difference of t²/2 is multiplied by."""
    if fit.loss.name == "likelihood":
        return 1.0
    if not fit.loss.robust:
        spread = float(2 * fit.objective / fit.freedom)
        return spread if fit.loss.name == "ls" else max(1.0, spread)
    w = fit.table.weights
    mean = max((w * _smooth_curvature(fit)).mean(), 1e-300)
    return float((w**2 * _slopes(fit) ** 2).sum() / fit.freedom / mean)


def profiles(fit: Optimum, level: float) -> dict[str, tuple[float, float]]:
    """Ends of each free parameter's profile interval; one that is never reached is the bound or infinite.

    Both sides of every parameter walk outward together, each step started from the one before it, until the objective,
    minimised over the other parameters, is above the threshold.
    """
    law, names = fit.law, fit.law.free
    index = np.repeat([law.parameters.index(n) for n in names], 2)
    side = np.tile([-1.0, 1.0], len(names))
    unit = np.clip(np.sqrt(np.diagonal(covariance(fit)))[index], 1e-4, 2.0)
    unit[[law.parameters[j] in fit.at_bound for j in index]] = 2.0  # no slope there, so no error either
    bounded = np.array([np.isfinite(law.limits(law.parameters[j])).any() for j in index])
    upper = (1 + level) / 2
    t = float(stats.norm.ppf(upper) if fit.loss.name == "likelihood" else stats.t.ppf(upper, fit.freedom))
    limit = fit.minimum + 0.5 * t * t * _scale(fit)
    reach = np.where(bounded, FAR, 1e4 * unit)
    offsets, heights = [np.zeros(len(index))], [np.full(len(index), fit.minimum)]
    at = np.repeat(fit.z[None], len(index), axis=0)
    for factor in WALK:
        offset = np.minimum(factor * unit, reach)
        at, height = _constrained(fit, at, index, fit.z[index] + side * offset)
        offsets.append(offset)
        heights.append(height)
        if np.all((height > limit) | (offset >= reach)):
            break
    found = _crossings(fit, index, side, np.array(offsets), np.array(heights), limit)
    ends = [
        law.limits(law.parameters[j])[k % 2]
        if np.isinf(found[k])
        else float(law.natural(j, fit.z[j] + side[k] * found[k])[0])
        for k, j in enumerate(index)
    ]
    return dict(zip(names, zip(ends[::2], ends[1::2], strict=True), strict=True))


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


def _crossings(fit: Optimum, index, side, offsets, heights, limit: float) -> np.ndarray:
    """Offsets at which each walk crosses the limit, by interpolation in sqrt(objective) and bisections; infinite where
    none does."""
    crossed = (heights > limit).any(axis=0)
    first, rows = np.where(crossed, (heights > limit).argmax(axis=0), 1), np.arange(len(index))
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
