"""Choosing between laws by what they predict of rows that no fit has read, and testing intervals by simulation."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import table as tables
from rlkit.laws.fitting import LawFit, fit
from rlkit.laws.intervals import draw_values
from rlkit.laws.law import Law, resolve
from rlkit.laws.optimum import search
from rlkit.laws.solver import to_space
from rlkit.seeds import generator


@dataclass(frozen=True)
class Backtest:
    """A law fitted without the held-out rows and what it said of them: the rows with prediction, low and high (95 %
    prediction band), prediction_error (predicted - observed) and inside; rmse in units of y; bias, the mean error,
    above 0 where the law predicts too much; and the share inside the band."""

    fit: LawFit
    held_out: pd.DataFrame
    rmse: float
    bias: float
    inside: float

    def __repr__(self) -> str:
        told = f"rmse {self.rmse:.4g}, bias {self.bias:+.4g}, {self.inside:.0%} inside the 95% band"
        return f"{self.fit!r} on {len(self.held_out)} held-out rows: {told}"


def backtest(df: pd.DataFrame, law: str | Law, *, y: str, x: Any = None, **options: Any) -> Backtest:
    """Fit without the rows that `holdout` chooses or whose `held_out` is true, and predict them; rows that `exclude`
    leaves out are neither. Options and errors are those of `fit`, without group; nothing held out is one, too."""
    if options.get("group") is not None:
        raise UserError("backtest takes one group at a time: select its rows first.")
    _, held, _ = tables.leave_out(df, options.get("exclude"), options.get("holdout"))
    if held.empty:
        raise UserError("Nothing is held out: give holdout=, e.g. 'N > 1e9', or a column 'held_out'.")
    without = fit(df, law, y=y, x=x, **options)
    rows = held.assign(**without.predict(held, band="prediction"))
    observed = tables.numbers(held, y, "y")
    rows["prediction_error"] = error = rows["prediction"].to_numpy() - observed
    rows["inside"] = (observed >= rows["low"]) & (observed <= rows["high"])
    rmse = float(np.linalg.norm(error) / np.sqrt(len(error)))
    return Backtest(without, rows, rmse, float(error.mean()), float(rows["inside"].mean()))


def compare(df: pd.DataFrame, laws: Sequence[str | Law], *, y: str, x: Any = None, **options: Any) -> pd.DataFrame:
    """Rank two laws or more by their error on rows that none of them saw (`backtest`). A UserError where every law
    failed, or as `fit`. x: column names for all the laws together; each takes those it has. options: those of `fit`;
    residuals are taken in ln y for every law unless log=False or y is not positive. Returns a row a law, best first:
    law, tail_rmse, tail_bias, inside (share of tail rows in the 95 % prediction band), aicc, aic, bic, r2, lack_of_fit
    (p of the test of replicates), parameters, n, warnings (their number), and failed, why a law could not be fitted."""
    forms = {form.name: form for form in map(resolve, laws)}
    if len(forms) < 2:
        raise UserError(f"compare needs two laws or more, not {list(forms)}.")
    options.setdefault("log", y not in df.columns or bool((df[y] > 0).all()))
    rows: list[dict[str, Any]] = []
    for name, form in forms.items():
        columns = {c: own for c, own in x.items() if c in form.columns} if isinstance(x, Mapping) else x
        try:
            test = backtest(df, form, y=y, x=columns, **options)
        except UserError as error:
            rows.append({"law": name, "failed": str(error)})
            continue
        c, lack = test.fit.criteria, test.fit.lack_of_fit
        rows.append({"law": name, "tail_rmse": test.rmse, "tail_bias": test.bias, "inside": test.inside,
                     "aicc": c.aicc, "aic": c.aic, "bic": c.bic, "r2": c.r2,
                     "lack_of_fit": np.nan if lack is None else lack.p, "parameters": len(test.fit.law.free),
                     "n": len(test.fit.table), "warnings": len(test.fit.warnings)})  # fmt: skip
    if all("failed" in row for row in rows):
        raise UserError(" ".join(dict.fromkeys(row["failed"] for row in rows)))
    return pd.DataFrame(rows).sort_values("tail_rmse", ignore_index=True)


@dataclass(frozen=True)
class Recovery:
    """What simulated copies of a design gave: `table` has a row a parameter, with truth, coverage, median_width and
    open_ended (share of intervals with an infinite end); `failed` counts copies that could not be fitted."""

    table: pd.DataFrame
    replicates: int
    failed: int

    @property
    def statement(self) -> str:
        """The sentence that belongs under a figure."""
        margin = 2 * np.sqrt(0.95 * 0.05 / self.replicates)
        coverage = self.table.set_index("parameter")["coverage"]
        honest = coverage.min() >= 0.95 - margin - 0.02
        verdict = "are honest" if honest else f"are too short (worst: {coverage.idxmin()})"
        shown = ", ".join(f"{name} {share:.0%}" for name, share in coverage.items())
        held = f"on {self.replicates} simulated copies of this design they hold the truth in {shown}"
        told = f"{held} (± {margin:.0%} from the number of copies)"
        return f"If the law is true, intervals of nominal 95% {verdict}: {told}."


def recover(one: LawFit, replicates: int = 100, seed: int = 0) -> Recovery:
    """Simulate the fit's own design and state the coverage of its intervals, if the law is true: each copy has new
    noise like its residuals and at most 200 resamples. A UserError for several groups, a fit of graded samples, and a
    law that is rejected."""
    if isinstance(one, Mapping):
        raise UserError(f"recover takes one group at a time: give fit[{next(iter(one))!r}].")
    if one.given is not None:
        told = "resample graded samples, which recover does not simulate: give a fit of rows, by rlkit.fit"
        raise UserError(f"The intervals of this fit {told}.")
    if (test := one.lack_of_fit) is not None and test.p < 0.05:
        told = f"is rejected by its own data (p = {test.p:.2g}), so copies of it say nothing of its intervals"
        raise UserError(f"The law {one.law.name!r} {told}: fit another law.")
    names, space, found = one.law.free, one.problem.space, []
    rng = generator("laws", "recover", seed)
    for i, value in enumerate(draw_values(one, replicates, rng)):
        rows = replace(one.table, y=to_space(value, space, "linear")[0])
        options = {"count": min(one.count, 200), "kind": one.kind, "seed": i}
        with suppress(UserError):
            ends = LawFit(**vars(search(rows, one.law, one.loss, space)), **options).interval()
            found.append([ends[p] for p in names])
    if not found:
        raise UserError(f"None of the {replicates} simulated copies of this design could be fitted.")
    low, high = np.moveaxis(np.array(found), 2, 0)  # (copies, parameters) each
    truth = np.array([one.params[p] for p in names])
    inside, open_ended = (low <= truth) & (truth <= high), np.isinf(low) | np.isinf(high)
    table = pd.DataFrame({"parameter": names, "truth": truth, "coverage": inside.mean(axis=0)})
    table = table.assign(median_width=np.median(high - low, axis=0), open_ended=open_ended.mean(axis=0))
    return Recovery(table, len(found), replicates - len(found))
