"""The coverage law -ln pass@k = a·k^-b from counts of correct samples, with intervals from resampled
problems.

The points of a pass@k curve share their samples, so intervals that treat them as independent mean nothing;
problems are what is independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.evaluation.passk import pass_at_k, resample_sums
from rlkit.laws.fitting import fit
from rlkit.laws.resample import Scheme
from rlkit.laws.result import LawFit
from rlkit.laws.rules import column
from rlkit.laws.solver import minimise, to_space
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
    """Fit the coverage law to pass@k averaged over problems, by least squares in ln(-ln pass@k).

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
    one = fit(curve, "coverage", y="pass@k", x="k", loss="ls")
    if not bootstrap:
        return one
    means = resample_sums(values[:, usable], generator("laws", "coverage", seed), bootstrap) / len(values)
    means = means[((means > 0) & (means < 1)).all(axis=1)]
    y = to_space(means, "linear", "loglog")[0]
    solved = minimise(
        one.problem, np.repeat(one.z[None], len(y), axis=0), y, one.table.weights, [one.loss], 1e-12
    )
    draws = one.law.from_z(solved.z)[0]
    scheme = Scheme("cluster", len(values))
    note = (
        f"The intervals resample {len(values)} problems; another sample of problems, not of k, is "
        "what they allow for."
    )
    return replace(one, draws=draws, scheme=scheme, lost=bootstrap - len(draws), seed=seed, notes=(note,))
