"""Wald covariances and profile intervals of an optimum.

The scale of robust profiles is estimated: an objective difference of s²·t²/2 with s² = sum(slope²)/(n - p)/
mean(curvature) plays the part of the likelihood-ratio statistic (Huber and Ronchetti 2009, ch. 13). For least squares
this is the F profile of lmfit's conf_interval.
"""

import numpy as np
from scipy import stats
from scipy.optimize import elementwise

from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import minimise

FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound
WALK = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf)  # in standard errors


def _smooth_curvature(fit: Optimum) -> np.ndarray:
    """(n,) curvature of the loss; of robust ones as wide as residuals that the fit does not pass through."""
    loss, r = fit.loss, fit.residuals
    if not loss.robust:
        return np.broadcast_to(loss(fit.predicted[None], fit.observed[None]).curvature, (1, len(r)))[0]
    told = np.sort(np.abs(r - np.median(r)))[min(len(fit.law.free), len(r) - 1) :]
    width = max(loss.delta, 0.8 * 1.4826 * np.median(told) * len(r) ** -0.2, 1e-12)  # a kernel's bandwidth
    return (np.abs(r) <= width) * (loss.delta if loss.name == "huber" else 1.0) / width


def wald_covariance(fit: Optimum) -> np.ndarray:
    """(p, p) Wald covariance in z: s²·H⁻¹ for least squares, the sandwich H⁻¹·G·H⁻¹ for robust losses, H⁻¹ scaled by
    its dispersion where that exceeds 1 for the binomial; with clusters the sandwich of their sums."""
    J = fit.problem.jacobian(fit.z[None])[1][0][fit.law.estimated]
    w, cluster, (p, n) = fit.table.weights, fit.table.cluster, J.shape
    inverse = np.linalg.pinv((J * w * _smooth_curvature(fit)) @ J.T, rcond=1e-13, hermitian=True)
    if cluster is None and not fit.loss.robust:
        small = inverse * _scale(fit)
    else:
        scores, inflate = J * w * fit.slopes, n / (n - p)
        if cluster is not None:
            count = cluster.max() + 1
            scores = scores @ np.eye(count)[cluster]
            inflate = (count / (count - 1)) * (n - 1) / (n - p)
        small = inverse @ (scores @ scores.T) @ inverse * inflate
    out = np.zeros((len(fit.z), len(fit.z)))
    out[np.ix_(fit.law.estimated, fit.law.estimated)] = small
    return out


def _scale(fit: Optimum) -> float:
    """What an objective difference of t²/2 is multiplied by."""
    if not fit.loss.robust:
        spread = float(2 * fit.objective / fit.freedom)
        return spread if fit.loss.name == "ls" else max(1.0, spread)
    w = fit.table.weights
    mean = max((w * _smooth_curvature(fit)).mean(), 1e-300)
    return float((w**2 * fit.slopes**2).sum() / fit.freedom / mean)


def profiles(fit: Optimum, level: float) -> dict[str, tuple[float, float]]:
    """Ends of each free parameter's profile interval; both sides of every parameter walk outward together."""
    law, names = fit.law, fit.law.free
    index = np.repeat([law.parameters.index(n) for n in names], 2)
    side, rows = np.tile([-1.0, 1.0], len(names)), np.arange(len(index))
    unit = np.clip(np.sqrt(np.diagonal(wald_covariance(fit)))[index], 1e-4, 2.0)
    unit[[law.parameters[j] in fit.at_bound for j in index]] = 2.0  # no slope there, so no error either
    bounded = np.isfinite([law.limits(law.parameters[j]) for j in index]).any(axis=1)
    t = float(stats.t.ppf((1 + level) / 2, fit.freedom))
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
    over, offsets = np.array(heights) > limit, np.array(offsets)
    crossed, at = over.any(axis=0), np.repeat(fit.z[None], len(index), axis=0)
    first = np.where(crossed, over.argmax(axis=0), 1)

    def beyond(offset: np.ndarray, row: np.ndarray) -> np.ndarray:
        i = row.astype(int)
        at[i], height = _constrained(fit, at[i], index[i], fit.z[index[i]] + side[i] * offset)
        return height - limit

    between = offsets[first - 1, rows], offsets[first, rows]
    found = elementwise.find_root(beyond, between, args=(rows,), tolerances={"xrtol": 1e-4}, maxiter=30)
    at[rows, index] = fit.z[index] + side * np.where(crossed, found.x, np.inf)
    ends = law.from_z(at)[0][rows, index].tolist()
    return dict(zip(names, zip(ends[::2], ends[1::2], strict=True), strict=True))


def _constrained(
    fit: Optimum, at: np.ndarray, index: np.ndarray, fixed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minima over the other parameters with coordinate index[i] of row i held at fixed[i]."""
    start, rows = at.copy(), np.arange(len(at))
    start[rows, index] = fixed
    free = np.repeat(fit.law.estimated[None], len(at), axis=0)
    free[rows, index] = False
    losses = fit.loss.refit(fit.spread)
    solution = minimise(fit.problem, start, fit.observed, fit.table.weights, losses, 1e-9, free)
    return solution.z, solution.objective
