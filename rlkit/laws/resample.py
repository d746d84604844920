"""Bootstrap resamples.

Rows (case) or whole clusters (run, seed, prompt; Field and Welsh 2007) are drawn as weights. residual, block
(stretches of time, Künsch 1989, circular) and cluster with block keep the design and draw noise instead: y
changes, weights not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlkit.errors import UserError
from rlkit.laws.table import Table
from rlkit.seeds import generator


@dataclass(frozen=True)
class Scheme:
    """How resamples are drawn: the kind, the number of independent units and, for blocks, their length in
    rows and the residuals' lag-1 autocorrelation."""

    kind: str
    units: int
    length: int = 0
    rho: float = 0.0

    @property
    def draws_noise(self) -> bool:
        """Whether resamples differ in y and not in weights."""
        return self.kind in ("residual", "block", "cluster+block")

    def stretch(self, level: float, parameters: int) -> float:
        """How much wider than the resamples' own spread an interval must be in a small sample.

        Resampling m units understates the variance by (m - 1)/m, or (n - p)/n for rows, and the spread it
        shows is itself estimated: t quantiles with that many degrees of freedom in place of the normal's.
        Drawn noise has been inflated already.
        """
        freedom = self.units - (parameters if self.kind in ("case", "residual") else 1)
        if freedom < 1:
            return np.inf
        upper = (1 + level) / 2
        inflate = 1.0 if self.draws_noise else np.sqrt(self.units / freedom)
        return float(inflate * stats.t.ppf(upper, freedom) / stats.norm.ppf(upper))


def scheme(
    table: Table, kind: str, block: int | str | None, residuals: np.ndarray, parameters: int
) -> Scheme:
    """The scheme that a fit's arguments ask for; an automatic block length comes from the residuals."""
    if kind not in ("case", "residual"):
        raise UserError(f"resample is {kind!r}: use 'case' or 'residual'.")
    if kind == "residual" and (table.cluster is not None or block is not None):
        raise UserError(
            "resample='residual' draws single residuals: leave cluster and block out, or use resample='case'."
        )
    clusters = 0 if table.cluster is None else int(table.cluster.max()) + 1
    if block is None:
        return Scheme("cluster", clusters) if clusters else Scheme(kind, len(table))
    rho = autocorrelation(table, residuals, parameters)
    length = block if isinstance(block, int) else block_length(table, rho)
    if clusters:
        return Scheme("cluster+block", clusters, length, rho)
    blocks = -(-len(table) // length)
    if blocks < 3:
        raise UserError(
            f"block length {length} leaves {blocks} blocks in {len(table)} rows: use at most "
            f"{len(table) // 3}."
        )
    return Scheme("block", blocks, length, rho)


def autocorrelation(table: Table, residuals: np.ndarray, parameters: int) -> float:
    """Lag-1 autocorrelation within the series, between 0 and 0.95.

    Residuals of a fit look less correlated than the errors are. With q parameters absorbed by a series of m
    points the bias is about -(q + (q + 2)·rho)/m, which for q = 1 is Marriott and Pope's (1954).
    """
    assert table.order is not None and table.series is not None
    s = table.series[table.order]
    size = np.bincount(s)
    r = residuals[table.order]
    r = r - (np.bincount(s, r) / np.maximum(size, 1))[s]
    same = s[1:] == s[:-1]
    if not same.any() or not (r * r).sum():
        return 0.0
    raw = (r[1:] * r[:-1])[same].sum() / (r * r).sum()
    m, q = size.mean(), parameters / len(size) + (len(size) > 1)
    return float(np.clip((m * raw + q) / max(m - q - 2, 1), 0.0, 0.95))


def block_length(table: Table, rho: float) -> int:
    """The length with the least mean squared error for a first-order autoregression (Carlstein 1986, as in
    Politis and White 2004): (6^(1/2)·rho/(1 - rho²))^(2/3)·n^(1/3)."""
    assert table.series is not None
    per_series = len(table) / (int(table.series.max()) + 1)
    best = (np.sqrt(6) * rho / (1 - rho * rho)) ** (2 / 3) * per_series ** (1 / 3)
    return int(np.clip(np.ceil(best), 1, max(1, per_series // 3)))


def block_inflation(length: int, rho: float) -> float:
    """What blocks are multiplied by: their sums show only part of a first-order autoregression's long-run
    variance (1 + rho)/(1 - rho), namely 1 + 2·sum over lags k below the length of (1 - k/length)·rho^k."""
    k = np.arange(1, length)
    return float(np.sqrt((1 + rho) / (1 - rho) / (1 + 2 * ((1 - k / length) * rho**k).sum())))


def draw(table: Table, plan: Scheme, count: int, seed: int) -> np.ndarray:
    """(count, n) weights of case and cluster resamples: `table.weights` times the number of draws of each
    row."""
    rng = generator("laws", "bootstrap", seed)
    if plan.kind == "cluster":
        assert table.cluster is not None
        counts = rng.multinomial(plan.units, np.full(plan.units, 1 / plan.units), size=count)[
            :, table.cluster
        ]
    else:
        n = len(table)
        chosen = rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n)
    return counts * table.weights


def draw_noise(
    table: Table, plan: Scheme, residuals: np.ndarray, parameters: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """(count, n) noise like the residuals: what residual and block resamples add to the fit.

    Residuals are centred and inflated by sqrt(n/(n - p)). With clusters, each gets an offset, drawn from the
    clusters' mean residuals after these are scaled to the variance that a one-way analysis of variance leaves
    between clusters (the random-effect block bootstrap, Chambers and Chandra 2013), and the rest is drawn
    within. With blocks, stretches of time of one series after another are drawn whole.
    """
    n = len(residuals)
    r = (residuals - residuals.mean()) * np.sqrt(n / (n - parameters))
    if table.cluster is None:
        return _rest(table, plan, r, count, rng)
    size = np.bincount(table.cluster)
    mean = np.bincount(table.cluster, r) / size
    freedom = max(n - len(size), 1)
    within = (r - mean[table.cluster]) * np.sqrt(n / freedom)
    between = max(0.0, np.var(mean, ddof=1) - np.mean(within**2) * np.mean(1 / size))
    offsets = (mean - mean.mean()) * np.sqrt(between / max(np.var(mean), 1e-300))
    drawn = rng.choice(offsets, size=(count, len(size)))
    return drawn[:, table.cluster] + _rest(table, plan, within, count, rng)


def _rest(
    table: Table, plan: Scheme, residuals: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    n = len(residuals)
    if plan.length <= 1:
        return residuals[rng.integers(n, size=(count, n))]
    assert table.order is not None
    first = rng.integers(n, size=(count, -(-n // plan.length)))
    picked = (first[:, :, None] + np.arange(plan.length)).reshape(count, -1)[:, :n] % n
    noise = np.empty((count, n))
    noise[:, table.order] = residuals[table.order][picked] * block_inflation(plan.length, plan.rho)
    return noise
