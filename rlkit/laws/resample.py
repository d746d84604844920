"""Bootstrap resamples as row weights: how often each row was drawn.

case: rows · cluster: whole clusters (run, seed, prompt; Field and Welsh 2007) · block: stretches of time within a
series (Künsch 1989, circular) · cluster and block: blocks within resampled clusters · residual: the design stays
and residuals are drawn, which changes y instead of the weights.
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
    """How resamples are drawn: the kind, the number of independent units and, for blocks, their length."""

    kind: str
    units: int
    length: int = 0

    def stretch(self, level: float, parameters: int) -> float:
        """How much wider than the resamples' own spread an interval must be in a small sample.

        Resampling m units understates the variance by (m - 1)/m, or (n - p)/n for rows, and the spread it shows is
        itself estimated: t quantiles with that many degrees of freedom in place of the normal's.
        """
        freedom = self.units - (parameters if self.kind in ("case", "residual") else 1)
        if freedom < 1:
            return np.inf
        upper = (1 + level) / 2
        inflate = 1.0 if self.kind == "residual" else np.sqrt(self.units / freedom)
        return float(inflate * stats.t.ppf(upper, freedom) / stats.norm.ppf(upper))


def scheme(table: Table, kind: str, block: int | str | None, residuals: np.ndarray) -> Scheme:
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
    length = block if isinstance(block, int) else block_length(table, residuals)
    if clusters:
        return Scheme("cluster+block", clusters, length)
    blocks = -(-len(table) // length)
    if blocks < 3:
        raise UserError(
            f"block length {length} leaves {blocks} blocks in {len(table)} rows: use a shorter one (at most {len(table) // 3})."
        )
    return Scheme("block", blocks, length)


def autocorrelation(table: Table, residuals: np.ndarray) -> float:
    """Lag-1 autocorrelation of the residuals within the series."""
    assert table.order is not None and table.series is not None
    r, s = residuals[table.order], table.series[table.order]
    same = s[1:] == s[:-1]
    r = r - r.mean()
    return (
        float((r[1:] * r[:-1])[same].sum() / max((r * r).sum() * same.mean(), 1e-300)) if same.any() else 0.0
    )


def block_length(table: Table, residuals: np.ndarray) -> int:
    """The length with the least mean squared error for a first-order autoregression (Carlstein 1986, as in Politis
    and White 2004): (6^(1/2)·rho/(1 - rho²))^(2/3)·n^(1/3)."""
    assert table.series is not None
    rho = min(max(autocorrelation(table, residuals), 0.0), 0.95)
    per_series = len(table) / (int(table.series.max()) + 1)
    best = (np.sqrt(6) * rho / (1 - rho * rho)) ** (2 / 3) * per_series ** (1 / 3)
    return int(np.clip(np.ceil(best), 1, max(1, per_series // 3)))


def draw(table: Table, plan: Scheme, count: int, seed: int) -> np.ndarray:
    """(count, n) weights, `table.weights` times the number of draws of each row; a function of seed alone."""
    rng = generator("laws", "bootstrap", seed)
    n = len(table)
    if plan.kind == "case":
        chosen = rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n)
    elif plan.kind == "block":
        counts = _blocks(table, plan.length, np.ones((count, 1), dtype=int), rng)
    else:
        assert table.cluster is not None
        copies = rng.multinomial(plan.units, np.full(plan.units, 1 / plan.units), size=count)
        counts = (
            copies[:, table.cluster] if plan.kind == "cluster" else _blocks(table, plan.length, copies, rng)
        )
    return counts * table.weights


def _blocks(table: Table, length: int, copies: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw counts when each series is drawn `copies` (count, series) times as circular blocks."""
    assert table.order is not None and table.series is not None
    counts = np.zeros((len(copies), len(table)))
    for s in range(copies.shape[1]):
        rows = table.order[table.series[table.order] == s]
        need = -(-len(rows) // length)
        resample = np.repeat(np.arange(len(copies)), copies[:, s] * need)
        first = rng.integers(len(rows), size=len(resample))
        share = len(rows) / (
            need * length
        )  # the last block may overrun: keep the total at the series' length
        for offset in range(length):
            np.add.at(counts, (resample, rows[(first + offset) % len(rows)]), share)
    return counts


def draw_residuals(
    predicted: np.ndarray, residuals: np.ndarray, parameters: int, count: int, seed: int
) -> np.ndarray:
    """(count, n) observations: the fit plus drawn residuals, centred and inflated by sqrt(n/(n - p))."""
    rng = generator("laws", "residuals", seed)
    n = len(residuals)
    pool = (residuals - residuals.mean()) * np.sqrt(n / (n - parameters))
    return predicted + pool[rng.integers(n, size=(count, n))]
