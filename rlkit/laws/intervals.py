"""The uncertainty of an optimum: bootstrap resamples, Wald covariances and profile intervals.

Rows (case) or whole clusters (run, seed, prompt; Field and Welsh 2007) are resampled as weights. The other resamples
keep the design and draw noise: single residuals, a first-order autoregression, or residuals of whole clusters with
random signs (wild; Cameron, Gelbach and Miller 2008). Weights that leave a size out of a few runs give another law, on
one side of the estimate, so that clusters are wild but for robust losses. The scale of robust profiles is estimated:
an objective difference of s²·t²/2 with s² = sum(slope²)/(n - p)/mean(curvature) plays the part of the likelihood-ratio
statistic (Huber and Ronchetti 2009, ch. 13). For least squares this is lmfit's F profile.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import elementwise
from scipy.signal import lfilter

from rlkit.errors import UserError
from rlkit.laws.law import Law
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import Loss, Problem, Solution, minimise
from rlkit.laws.table import Table
from rlkit.seeds import generator

RESAMPLES = 1000  # of a bootstrap, where no number is asked for
FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound
WEBB = np.sqrt([0.5, 1.0, 1.5])  # sizes of the random signs of wild clusters (Webb 2014), of mean square 1
WALK = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf)  # in standard errors


class Draws(NamedTuple):
    """Parameters of the resamples (B, p); how many more could not be fitted; their kind (case, cluster, residual,
    wild cluster or autoregressive), independent `units`, degrees of `freedom` and lag-1 autocorrelation `rho`."""

    values: np.ndarray
    lost: int
    kind: str
    units: int
    freedom: float
    rho: float = 0.0

    def ends(self, found: np.ndarray, center: np.ndarray, level: float) -> np.ndarray:
        """(2, …) percentiles of what the resamples give, found (B, …), stretched about the estimate: m units understate
        the variance by (m - 1)/m, rows by (n - p)/n (drawn noise is inflated already), and an estimated spread has t
        quantiles."""
        ends, upper, stretch = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0), (1 + level) / 2, np.inf
        if self.freedom >= 1:
            inflate = np.sqrt(self.units / self.freedom) if self.kind in ("case", "cluster") else 1.0
            stretch = float(inflate * stats.t.ppf(upper, self.freedom) / stats.norm.ppf(upper))
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(ends == center, ends, center + stretch * (ends - center))


class Autoregression:
    """A first-order autoregression of a fit's errors, in units of `Optimum.sizes`. Residuals look less correlated
    than errors are, because the fit absorbs what varies slowly. With R(rho) the errors' correlations and G = 1 - H the
    fit's projection, residuals have the covariance G·R·G: rho is where its lag-1 autocorrelation is the one seen, and
    the errors' variance is the residuals' sum of squares over tr(G·R)."""

    GRID = np.linspace(0.0, 0.97, 25)

    def __init__(self, found: Optimum) -> None:
        n = len(found.table)
        assert found.table.order is not None
        self.order = found.table.order
        sizes = found.sizes[self.order]
        H = absorbed(found)[:, self.order]
        e = found.residuals[self.order] / sizes
        e = e - H.T @ (H @ e)
        self.sum_of_squares = float(e @ e)
        seen = float(e[1:] @ e[:-1] / max(self.sum_of_squares, 1e-300))
        self.trace, ratio = np.empty(len(self.GRID)), np.empty(len(self.GRID))
        for i, rho in enumerate(self.GRID):
            before, after = (lfilter([1], [1, -rho], H[:, ::way].T, axis=0) for way in (1, -1))
            RH = before + after[::-1] - H.T
            inner = H @ RH
            self.trace[i] = n - np.trace(inner)
            # The sum over neighbours of G·R·G = R - H'·H·R - R·H'·H + H'·(H·R·H')·H.
            cross = (H[:, :-1].T * RH[1:]).sum() + (RH[:-1] * H[:, 1:].T).sum()
            both = ((H[:, :-1].T @ inner) * H[:, 1:].T).sum()
            ratio[i] = (rho * (n - 1) - cross + both) / self.trace[i]
        rho = float(np.interp(seen, np.maximum.accumulate(ratio), self.GRID))
        self.rho = min(rho * n / max(n - 2, 1), 0.97)  # a ratio of sums falls 2·rho/n short
        self.freedom = np.maximum((n - len(H)) * (1 - self.GRID**2) / (1 + self.GRID**2), 1.0)
        self.error = 1 / np.sqrt(max((n - len(H)) * (1 - self.rho**2), 1.0))  # of atanh(rho)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """(count, n) noise; each draw has a rho and a size as uncertain as their estimates."""
        rho = np.clip(np.tanh(np.arctanh(self.rho) + rng.standard_normal(count) * self.error), 0.0, 0.97)
        freedom = np.interp(rho, self.GRID, self.freedom)
        size = np.sqrt(self.sum_of_squares / np.interp(rho, self.GRID, self.trace))
        size *= np.sqrt(freedom / rng.chisquare(freedom))
        e = rng.standard_normal((count, len(self.order)))
        for t in range(1, len(self.order)):
            e[:, t] = rho * e[:, t - 1] + np.sqrt(1 - rho**2) * e[:, t]
        noise = np.empty_like(e)
        noise[:, self.order] = e * size[:, None]
        return noise


def absorbed(found: Optimum) -> np.ndarray:
    """(q, n) orthonormal: the directions of the errors, in units of `Optimum.sizes`, that the fit absorbs."""
    J = found.problem.jacobian(found.z[None])[0][found.law.estimated] / found.sizes
    unit = np.nan_to_num(J / np.maximum(np.linalg.norm(J, axis=1)[:, None], 1e-300))
    _, scale, basis = np.linalg.svd(unit, full_matrices=False)
    return basis[scale > 1e-9]


def wild(found: Optimum, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n) noise in units of `Optimum.sizes`: the residuals of each cluster times a random sign, as errors of a
    fit without it (CR3: what the fit absorbs of a cluster is given back)."""
    cluster, H, e = found.table.cluster, absorbed(found), found.residuals / found.sizes
    assert cluster is not None
    groups = int(cluster.max()) + 1
    for i in range(groups):
        own = cluster == i
        values, vectors = np.linalg.eigh(np.eye(own.sum()) - H[:, own].T @ H[:, own])
        kept = np.where(values > 1e-6, values, np.inf)  # one that alone determines a parameter fits itself
        e[own] = vectors @ (vectors.T @ e[own] / kept)
    return np.sqrt((groups - 1) / groups) * e * rng.choice([*-WEBB, *WEBB], size=(count, groups))[:, cluster]


def draw_weights(table: Table, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n) weights of case and cluster resamples: `table.weights` times the draws of each row."""
    n = len(table)
    if table.cluster is not None:
        units = int(table.cluster.max()) + 1
        counts = rng.multinomial(units, np.full(units, 1 / units), size=count)
        return counts[:, table.cluster] * table.weights
    chosen = rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
    return np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n) * table.weights


def draw_values(found: Optimum, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n) values in residual space: what is predicted, with noise like the residuals. Single residuals are
    divided by `Optimum.sizes`, centred and inflated by sqrt(n/(n - p))."""
    n = len(found.table)
    if found.table.order is not None:
        noise = Autoregression(found).draw(count, rng)
    elif found.table.cluster is not None:
        noise = wild(found, count, rng)
    else:
        e = found.residuals / found.sizes
        e = (e - e.mean()) * np.sqrt(n / max(found.freedom, 1))
        noise = e[rng.integers(n, size=(count, n))]
    return found.predicted + noise * found.sizes


def resample(found: Optimum, kind: str, count: int, seed: int) -> Draws:
    """Parameters of `count` resamples, as `refit` finds them; a UserError where they have too few distinct points."""
    rows, units, rho = found.table, len(found.table), 0.0
    if kind not in ("case", "residual"):
        raise UserError(f"resample is {kind!r}: use 'case' or 'residual'.")
    freedom: float = units - len(found.law.free)
    if rows.order is not None:
        noise = Autoregression(found)
        kind, rho = "autoregressive", noise.rho
        freedom = units = max(2, round(float(np.interp(rho, noise.GRID, noise.freedom))))
    elif rows.cluster is not None:
        units = int(rows.cluster.max()) + 1
        if kind == "case":
            kind, freedom = "cluster", units - 1
        else:  # less the directions that the fit absorbs between clusters
            means = absorbed(found) @ (np.eye(units)[rows.cluster] * np.bincount(rows.cluster) ** -0.5)
            kind, freedom = "wild cluster", max(units - float((means**2).sum()), 1.0)
    y, weights, usable = found.observed, rows.weights[None], np.ones(count, dtype=bool)
    rng, pool = generator("laws", "bootstrap", seed), known_optima(found)
    if kind in ("case", "cluster"):
        weights = draw_weights(rows, count, rng)
        cells = rows.cells()
        if cells.max() <= 400:  # at least as many distinct points as parameters
            usable = ((weights > 0) @ np.eye(cells.max() + 1)[cells] > 0).sum(axis=1) >= len(found.law.free)
    else:
        y = draw_values(found, count, rng)
    others = generator("laws", "cross-check", seed).permutation(count)[: 64 if y.ndim == 1 else 8]
    solved = refit(replace(found.problem, central=False), found.loss, pool, found.z, y, weights, others)
    usable &= np.isfinite(solved.objective)  # one that still walks has run away, and is counted
    if usable.sum() < 2:
        told = f"the {units} units leave too few distinct points. Use resample='residual' or more data"
        raise UserError(f"None of the {count} resamples could be fitted: {told}.")
    return Draws(found.law.from_z(solved.z[usable])[0], int(count - usable.sum()), kind, units, freedom, rho)


def refit(
    problem: Problem, loss: Loss, pool: np.ndarray, center: np.ndarray, y: np.ndarray,
    weights: np.ndarray, others: np.ndarray,
) -> Solution:  # fmt: skip
    """Fits of many resamples, y (B, n) or weights (B, n) being theirs: each from the best of `pool` (K, p), and again
    from `center` (p,) or the solution of one of the rows `others`, where that beats its own."""
    start, _ = _best_of(problem, loss, pool, y, weights)
    solved = minimise(problem, start, y, weights, loss, 1e-8)
    start, score = _best_of(problem, loss, np.concatenate([center[None], solved.z[others]]), y, weights)
    if len(worse := np.flatnonzero(~(solved.objective <= score * (1 + 1e-6)))):
        own_y, own_weights = (a[worse] if a.ndim == 2 and len(a) > 1 else a for a in (y, weights))
        solved.put(worse, minimise(problem, start[worse], own_y, own_weights, loss, 1e-8))
    return solved


def runaways(law: Law, values: np.ndarray, params: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Of each free parameter, which estimates (B, p) are at a bound, or a million times away from `params`."""
    found = {}
    for name in law.free:
        (low, high), own = law.limits(name), values[:, law.parameters.index(name)]
        unit = abs(params[name]) or float(np.median(np.abs(own))) or 1.0
        found[name] = (own - low < 1e-6 * unit) | (high - own < 1e-6 * unit)
        if name not in law.linear:
            found[name] |= np.abs(own - (low if np.isfinite(low) else 0.0)) > 1e6 * unit
    return found


def known_optima(found: Optimum) -> np.ndarray:
    """Where resamples may start: the known optima, or ones held away from bounds, where there is no slope."""
    law, problem = found.law, found.problem
    if not found.at_bound:
        return found.ends
    start, free = np.repeat(found.z[None], 3, axis=0), found.law.estimated.copy()
    for name, bound in found.at_bound.items():
        j, (low, high) = law.parameters.index(name), law.limits(name)
        away = np.array([0.02, 0.1, 0.3]) * min(problem.unit(found.z, name), high - low)
        values = bound + away * (1 if bound == low else -1)
        start[:, j], free[j] = law.to_z(np.repeat(values[:, None], len(free), axis=1))[:, j], False
    return minimise(problem, start, found.observed, found.table.weights, found.loss, 1e-8, free).z


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


def _smooth_curvature(fit: Optimum) -> np.ndarray:
    """(n,) curvature of the loss; of robust ones as wide as residuals that the fit does not pass through."""
    loss, r = fit.loss, fit.residuals
    if not loss.robust:
        return np.ones(len(r))
    told = np.sort(np.abs(r - np.median(r)))[min(len(fit.law.free), len(r) - 1) :]
    width = max(loss.delta, 0.8 * 1.4826 * np.median(told) * len(r) ** -0.2, 1e-12)  # a kernel's bandwidth
    return (np.abs(r) <= width) * loss.delta / width


def wald_covariance(fit: Optimum) -> np.ndarray:
    """(p, p) Wald covariance in z: s²·H⁻¹ for least squares, the sandwich H⁻¹·G·H⁻¹ for robust losses; with clusters
    the sandwich of their sums."""
    J = fit.problem.jacobian(fit.z[None])[0][fit.law.estimated]
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
        return float(2 * fit.objective / fit.freedom)
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
        at, height, _ = _constrained(fit, at, index, fit.z[index] + side * offset)
        offsets.append(offset)
        heights.append(height)
        if np.all((height > limit) | (offset >= reach)):
            break
    over, offsets = np.array(heights) > limit, np.array(offsets)
    crossed, at = over.any(axis=0), np.repeat(fit.z[None], len(index), axis=0)
    first = np.where(crossed, over.argmax(axis=0), 1)

    def beyond(offset: np.ndarray, row: np.ndarray) -> np.ndarray:
        i = row.astype(int)
        at[i], height, _ = _constrained(fit, at[i], index[i], fit.z[index[i]] + side[i] * offset)
        return height - limit

    between = offsets[first - 1, rows], offsets[first, rows]
    found = elementwise.find_root(beyond, between, args=(rows,), tolerances={"xrtol": 1e-4}, maxiter=30)
    at[rows, index] = fit.z[index] + side * np.where(crossed, found.x, np.inf)
    ends = law.from_z(at)[0][rows, index].tolist()
    return dict(zip(names, zip(ends[::2], ends[1::2], strict=True), strict=True))


def _constrained(fit: Optimum, at: np.ndarray, index: np.ndarray, fixed: np.ndarray) -> Solution:
    """Minima over the other parameters with coordinate index[i] of row i held at fixed[i]."""
    start, rows = at.copy(), np.arange(len(at))
    start[rows, index] = fixed
    free = np.repeat(fit.law.estimated[None], len(at), axis=0)
    free[rows, index] = False
    return minimise(fit.problem, start, fit.observed, fit.table.weights, fit.loss, 1e-9, free)
