"""Laws of curves that are not rows of a study: pass@k from counts, and performance measured in compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.evaluation.passk import pass_at_k, resample_sums
from rlkit.laws.bootstrap import Draws, Scheme
from rlkit.laws.fitting import LawFit, fit
from rlkit.laws.rules import column
from rlkit.laws.solver import minimise, to_space
from rlkit.laws.table import numbers
from rlkit.seeds import generator


def fit_coverage(
    df: pd.DataFrame,
    *,
    n: str = "n",
    c: str = "c",
    ks: Sequence[int] | None = None,
    bootstrap: int = 2000,
    seed: int = 0,
) -> LawFit:
    """Fit the coverage law -ln pass@k = a·k^-b to pass@k averaged over problems, by least squares in ln(-ln pass@k).

    The points of a pass@k curve share their samples, so intervals that treat them as independent mean nothing;
    problems are what is independent, and they are resampled.

    Args:
        df: one row a problem. n, c: columns with its samples and correct ones.
        ks: the k of the curve; default 1, 2, 5, 10, … up to the smallest n. Points at which pass@k is 0 or 1
            have no place on the law and are left out.
        bootstrap: resamples of problems; those with a pass@k of 0 or 1 at a used k are left out and counted.

    Raises:
        UserError: counts that are wrong, k above the smallest n, fewer than three usable k.
    """
    counts, correct = column(df, n, "n").to_numpy(), column(df, c, "c").to_numpy()
    if ks is None:
        steps = [m * 10**e for e in range(8) for m in (1, 2, 5)]
        ks = [k for k in steps if k <= counts.min()]
    grid = np.asarray(list(ks))
    values = pass_at_k(counts[:, None], correct[:, None], grid[None, :])
    mean = values.mean(axis=0)
    usable = (mean > 0) & (mean < 1)
    if usable.sum() < 3:
        raise UserError(
            f"pass@k lies strictly between 0 and 1 at {usable.sum()} of {len(grid)} k: give more values "
            "in ks."
        )
    curve = pd.DataFrame({"k": grid[usable], "pass@k": mean[usable]})
    one: LawFit = fit(curve, "coverage", y="pass@k", x="k", loss="ls", bootstrap=0)
    if not bootstrap:
        return one
    means = resample_sums(values[:, usable], generator("laws", "coverage", seed), bootstrap) / len(values)
    means = means[((means > 0) & (means < 1)).all(axis=1)]
    y = to_space(means, "linear", "loglog")[0]
    solved = minimise(
        one.problem, np.repeat(one.z[None], len(y), axis=0), y, one.table.weights, [one.loss], 1e-12
    )
    draws = Draws(one.law.from_z(solved.z)[0], Scheme("cluster", len(values)), bootstrap - len(y))
    note = (
        f"The intervals resample {len(values)} problems; another sample of problems, not of k, is "
        "what they allow for."
    )
    return replace(one, given=draws, plan=one.plan._replace(seed=seed), notes=(note,))


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
