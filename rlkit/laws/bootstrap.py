"""Bootstrap resamples of a fit. Rows (case) or whole clusters (run, seed, prompt; Field and Welsh 2007) are drawn as
weights. The other schemes keep the design and draw noise: single residuals, or a first-order autoregression."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.signal import lfilter

from rlkit.errors import UserError
from rlkit.laws.law import Law
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import Loss, Problem, Solution, minimise
from rlkit.laws.table import Table
from rlkit.seeds import generator


class Draws(NamedTuple):
    """Parameters of the resamples (B, p), and how many more could not be fitted; of which kind they are, case, cluster,
    residual or autoregressive, from so many independent `units` (of an autoregression, degrees of freedom), with the
    errors' lag-1 autocorrelation `rho`."""

    values: np.ndarray
    lost: int
    kind: str
    units: int
    rho: float = 0.0

    def stretch(self, level: float, parameters: int) -> float:
        """How much wider than the resamples' own spread an interval must be in a small sample: resampling m units
        understates the variance by (m - 1)/m, or (n - p)/n for rows (drawn noise is inflated already), and the spread
        is itself estimated, hence t quantiles."""
        lost = {"case": parameters, "residual": parameters, "autoregressive": 0}
        freedom = self.units - lost.get(self.kind, 1)
        if freedom < 1:
            return np.inf
        upper = (1 + level) / 2
        inflate = np.sqrt(self.units / freedom) if self.kind in ("case", "cluster") else 1.0
        return float(inflate * stats.t.ppf(upper, freedom) / stats.norm.ppf(upper))


class Autoregression:
    """A first-order autoregression of a fit's errors, in units of `Optimum.sizes()`.

    Residuals look less correlated than errors are, because the fit absorbs what varies slowly. With R(rho) the errors'
    correlations and G = 1 - H the fit's projection, residuals have the covariance G·R·G: rho is where its lag-1
    autocorrelation is the one seen, and the errors' variance is the residuals' sum of squares over tr(G·R).
    """

    GRID = np.linspace(0.0, 0.97, 25)

    def __init__(self, found: Optimum) -> None:
        n = len(found.table)
        assert found.table.order is not None
        self.order = found.table.order
        sizes = found.sizes()[self.order]
        J = found.problem.jacobian(found.z[None])[1][0][found.law.estimated][:, self.order] / sizes
        unit = np.nan_to_num(J / np.maximum(np.linalg.norm(J, axis=1)[:, None], 1e-300))
        _, scale, basis = np.linalg.svd(unit, full_matrices=False)
        H = basis[scale > 1e-9]  # (q, n) orthonormal: the directions that the fit absorbs
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
        # a ratio of sums falls 2·rho/n short of that of their means
        self.rho = min(rho * n / max(n - 2, 1), 0.97)
        self.freedom = np.maximum((n - len(H)) * (1 - self.GRID**2) / (1 + self.GRID**2), 1.0)
        self.error = 1 / np.sqrt(max((n - len(H)) * (1 - self.rho**2), 1.0))  # of atanh(rho)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """(count, n) noise; each draw has a rho and a size as uncertain as their estimates."""
        rho = np.tanh(np.arctanh(self.rho) + rng.standard_normal(count) * self.error)
        rho = np.clip(rho, 0.0, 0.97)
        freedom = np.interp(rho, self.GRID, self.freedom)
        size = np.sqrt(self.sum_of_squares / np.interp(rho, self.GRID, self.trace))
        size *= np.sqrt(freedom / rng.chisquare(freedom))
        e = rng.standard_normal((count, len(self.order)))
        for t in range(1, len(self.order)):
            e[:, t] = rho * e[:, t - 1] + np.sqrt(1 - rho**2) * e[:, t]
        noise = np.empty_like(e)
        noise[:, self.order] = e * size[:, None]
        return noise


def draw_weights(table: Table, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n) weights of case and cluster resamples: `table.weights` times the draws of each row."""
    n = len(table)
    if table.cluster is not None:
        units = int(table.cluster.max()) + 1
        counts = rng.multinomial(units, np.full(units, 1 / units), size=count)
        return counts[:, table.cluster] * table.weights
    chosen = rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
    return np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n) * table.weights


def draw_values(found: Optimum, kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n) values in residual space: what is predicted, with noise like the residuals. Single residuals are
    divided by `Optimum.sizes()`, centred and inflated by sqrt(n/(n - p)). Each cluster has an offset, of the variance
    that a one-way analysis of variance leaves between clusters (Chambers and Chandra 2013)."""
    n, cluster = len(found.table), found.table.cluster
    if kind == "autoregressive":
        noise = Autoregression(found).draw(count, rng)
    else:
        e, offsets = found.residuals / found.sizes(), 0.0
        e = (e - e.mean()) * np.sqrt(n / max(found.freedom, 1))
        if cluster is not None:
            size = np.bincount(cluster)
            mean = np.bincount(cluster, e) / size
            e = (e - mean[cluster]) * np.sqrt(n / max(n - len(size), 1))
            between = max(0.0, np.var(mean, ddof=1) - np.mean(e**2) * np.mean(1 / size))
            scaled = (mean - mean.mean()) * np.sqrt(between / max(np.var(mean), 1e-300))
            offsets = rng.choice(scaled, size=(count, len(size)))[:, cluster]
        noise = offsets + e[rng.integers(n, size=(count, n))]
    y = found.predicted + noise * found.sizes()
    return np.clip(y, 0.0, 1.0) if found.loss.name == "binomial" else y


def resample(found: Optimum, kind: str, count: int, seed: int) -> Draws:
    """Every resample starts from the known optimum that suits it best, and again from its neighbours' solutions where
    one beats its own. A UserError where they have too few distinct points."""
    rows, losses, units, rho = found.table, found.loss.refit(found.spread), len(found.table), 0.0
    if kind not in ("case", "residual"):
        raise UserError(f"resample is {kind!r}: use 'case' or 'residual'.")
    if kind == "residual" and (rows.cluster is not None or rows.order is not None):
        raise UserError("resample='residual' draws single residuals: leave cluster and block out.")
    if rows.order is not None:
        noise = Autoregression(found)
        kind, rho = "autoregressive", noise.rho
        units = max(2, round(float(np.interp(rho, noise.GRID, noise.freedom))))
    elif rows.cluster is not None:
        kind, units = "cluster", int(rows.cluster.max()) + 1
    y, weights, usable = found.observed, rows.weights[None], np.ones(count, dtype=bool)
    rng, pool = generator("laws", "bootstrap", seed), _pool(found, losses)
    if kind in ("case", "cluster"):
        weights = draw_weights(rows, count, rng)
        cells = rows.cells()
        if cells.max() <= 400:  # at least as many distinct points as parameters
            usable = ((weights > 0) @ np.eye(cells.max() + 1)[cells] > 0).sum(axis=1) >= len(found.law.free)
    else:
        y = draw_values(found, kind, count, rng)
    others = generator("laws", "cross-check", seed).permutation(count)[: 64 if y.ndim == 1 else 8]
    solved = refit(replace(found.problem, central=False), losses, pool, found.z, y, weights, others)
    usable &= np.isfinite(solved.objective)  # one that still walks has run away, and is counted
    if usable.sum() < 2:
        told = f"the {units} units leave too few distinct points. Use resample='residual' or more data"
        raise UserError(f"None of the {count} resamples could be fitted: {told}.")
    return Draws(found.law.from_z(solved.z[usable])[0], int(count - usable.sum()), kind, units, rho)


def refit(
    problem: Problem, losses: Sequence[Loss], pool: np.ndarray, center: np.ndarray, y: np.ndarray,
    weights: np.ndarray, others: np.ndarray,
) -> Solution:  # fmt: skip
    """Fits of many resamples, y (B, n) or weights (B, n) being theirs: each from the best of `pool` (K, p), and again
    from `center` (p,) or the solution of one of the rows `others`, where that beats its own."""
    start, _ = _best_of(problem, losses[-1], pool, y, weights)
    solved = minimise(problem, start, y, weights, losses, 1e-8)
    start, score = _best_of(problem, losses[-1], np.concatenate([center[None], solved.z[others]]), y, weights)
    if len(worse := np.flatnonzero(~(solved.objective <= score * (1 + 1e-6)))):
        own_y, own_weights = (a[worse] if a.ndim == 2 and len(a) > 1 else a for a in (y, weights))
        solved.put(worse, minimise(problem, start[worse], own_y, own_weights, losses, 1e-8))
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


def _pool(found: Optimum, losses: Sequence[Loss]) -> np.ndarray:
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
    return minimise(problem, start, found.observed, found.table.weights, losses, 1e-8, free).z


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
