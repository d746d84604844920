"""Does the study's own design recover a law it is told? Simulated data at the measured noise, refitted.

The truth is the fit; each replicate gives its rows new noise (resampled residuals, plus an offset a cluster
as large as the residuals' own) and is fitted and bootstrapped in the same way. What is reported is how often
the intervals hold the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.fitting import again
from rlkit.laws.resample import Scheme, draw_noise
from rlkit.laws.result import GroupedFit, LawFit
from rlkit.laws.solver import to_space
from rlkit.seeds import generator


@dataclass(frozen=True)
class Recovery:
    """What the replicates gave.

    `table` has one row a parameter: truth, coverage, truth_below and truth_above (shares of intervals that
    the truth misses on that side), median_width, open_ended (share of intervals with an infinite end),
    estimate_median.
    """

    table: pd.DataFrame
    replicates: int
    level: float
    failed: int

    @property
    def statement(self) -> str:
        """The sentence that belongs under a figure."""
        margin = 2 * np.sqrt(self.level * (1 - self.level) / self.replicates)
        worst = self.table.iloc[int(self.table["coverage"].argmin())]
        verdict = (
            "are honest"
            if self.table["coverage"].min() >= self.level - margin - 0.02
            else f"are too short (worst: {worst['parameter']})"
        )
        shown = ", ".join(f"{r.parameter} {r.coverage:.0%}" for r in self.table.itertuples())
        return (
            f"On {self.replicates} simulated copies of this design, intervals of nominal "
            f"{self.level:.0%} {verdict}: they hold "
            f"the truth in {shown} (± {margin:.0%} from the number of copies)."
        )


def recover(fit: LawFit, replicates: int = 100, level: float = 0.95, seed: int = 0) -> Recovery:
    """Simulate the fit's own design and state the coverage of its intervals.

    Raises:
        UserError: fits of several groups; a likelihood law (its data are counts, not values with residuals); no
            replicate could be fitted.
    """
    if isinstance(fit, GroupedFit):
        raise UserError(f"recover takes one group at a time: give fit[{next(iter(fit))!r}].")
    if fit.law.target:
        raise UserError(
            f"recover simulates residuals, which the likelihood law {fit.law.name!r} does not have."
        )
    rng = generator("laws", "recover", seed)
    plan = fit.scheme or Scheme("residual", len(fit.table))
    noise = draw_noise(fit.table, plan, fit.residuals, int(fit.free.sum()), replicates, rng)
    names = fit.law.free
    lows, highs, values, failed = [], [], [], 0
    for i in range(replicates):
        y = to_space(fit.predicted + noise[i], fit.problem.space, "linear")[0]
        try:
            one = again(fit, replace(fit.table, y=y), seed=i)
            ends = one.interval(level)
        except UserError:
            failed += 1
            continue
        values.append([one.params[p] for p in names])
        lows.append([ends[p][0] for p in names])
        highs.append([ends[p][1] for p in names])
    if not values:
        raise UserError(f"None of the {replicates} simulated copies of this design could be fitted.")
    truth = np.array([fit.params[p] for p in names])
    low, high = np.array(lows), np.array(highs)
    table = pd.DataFrame(
        {
            "parameter": names,
            "truth": truth,
            "coverage": ((low <= truth) & (truth <= high)).mean(axis=0),
            "truth_below": (truth < low).mean(axis=0),
            "truth_above": (truth > high).mean(axis=0),
            "median_width": np.median(high - low, axis=0),
            "open_ended": (np.isinf(low) | np.isinf(high)).mean(axis=0),
            "estimate_median": np.median(np.array(values), axis=0),
        }
    )
    return Recovery(table, len(values), level, failed)
