"""Intrinsic performance: return measured in the compute that the best model size needs to reach it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.table import numbers


def frontier(df: pd.DataFrame, *, y: str, compute: str, run: str, maximise: bool = True) -> pd.DataFrame:
    """The compute-efficient frontier of a family of learning curves.

    Each run's curve is made monotone (its best value so far); the frontier at a value is the least compute at
    which any run reaches it, with compute interpolated in ln between measured points.

    Args:
        df: one row a measurement. y: performance. compute: FLOPs so far, above 0. run: names the curve.
        maximise: False where a lower y is better.

    Returns:
        Columns y (increasing in difficulty), compute (increasing), run: who is on the frontier there.

    Raises:
        UserError: fewer than two runs, or compute that is not positive.
    """
    values, cost = numbers(df, y, "y"), numbers(df, compute, "compute")
    if np.any(cost <= 0):
        raise UserError(
            f"compute (column {compute!r}) is zero or negative in {int((cost <= 0).sum())} rows: drop them."
        )
    if run not in df.columns or df[run].nunique() < 2:
        raise UserError(f"run is {run!r}: the frontier needs a column that names at least two runs.")
    sign = 1.0 if maximise else -1.0
    curves = []
    for name, index in df.reset_index(drop=True).groupby(run).groups.items():
        rows = np.asarray(index)[np.argsort(cost[index], kind="stable")]
        best = np.maximum.accumulate(sign * values[rows])
        first = np.r_[True, np.diff(best) > 0]
        curves.append((name, best[first], np.log(cost[rows][first])))
    levels = np.unique(np.concatenate([c[1] for c in curves]))
    reach = np.array([np.interp(levels, b, ln_c, left=ln_c[0], right=np.inf) for _, b, ln_c in curves])
    at = reach.argmin(axis=0)
    least = np.minimum.accumulate(reach.min(axis=0)[::-1])[::-1]
    return pd.DataFrame({"y": sign * levels, "compute": np.exp(least), "run": [curves[i][0] for i in at]})


def intrinsic_performance(
    df: pd.DataFrame, *, y: str, compute: str, run: str, maximise: bool = True
) -> pd.Series:
    """Each measurement's performance as the least compute with which any run of the family reaches it.

    A monotone transform of y, so curves of odd shape become comparable; it is a power law in size and
    interactions where the family has one (Hilton et al. 2023, arXiv 2301.13442, section 3). Below the
    frontier's first value it is the compute of that value. Fit it with the law `intrinsic`.

    Raises:
        UserError: as `frontier`.
    """
    line = frontier(df, y=y, compute=compute, run=run, maximise=maximise)
    sign = 1.0 if maximise else -1.0
    ln_c = np.interp(
        sign * numbers(df, y, "y"), sign * line["y"].to_numpy(), np.log(line["compute"].to_numpy())
    )
    return pd.Series(np.exp(ln_c), index=df.index, name="intrinsic")
