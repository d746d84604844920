"""Choosing between laws by what they predict, and testing a law where it was not fitted.

Held-out rows are withheld before the fit reads anything. A fit that has seen them is a separate row,
labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import rules
from rlkit.laws.bootstrap import Scheme, draw_noise
from rlkit.laws.fitting import GroupedFit, LawFit, fit
from rlkit.laws.law import Law, resolve
from rlkit.laws.report import CONVENTION
from rlkit.laws.solver import to_space
from rlkit.laws.table import HELD_OUT, frozen, held_out, mapping, numbers
from rlkit.seeds import generator


@dataclass(frozen=True)
class Backtest:
    """A law fitted without the held-out rows and what it said of them.

    Attributes:
        fit: fitted without them.
        refit: fitted with them; for comparison of parameters, never of errors.
        held_out: the rows with prediction, low and high (prediction band), prediction_error (predicted - observed)
            and inside.
        rmse: root mean square error on them in units of y. bias: mean error, above 0 where the law predicts
            too much. log_rmse: the same of ln y, NaN where
            y is not positive. inside: share of them within the band. level: that of the band.
    """

    fit: LawFit
    refit: LawFit
    held_out: pd.DataFrame
    rmse: float
    bias: float
    log_rmse: float
    inside: float
    level: float

    def table(self) -> pd.DataFrame:
        """Parameters of both fits, with intervals; the refit is labelled as having seen the held-out rows."""
        rows = []
        for label, one in (("without held-out rows", self.fit), ("REFIT, saw the held-out rows", self.refit)):
            for name, (low, high) in one.interval(self.level).items():
                rows.append(
                    {"fit": label, "parameter": name, "value": one.params[name], "low": low, "high": high}
                )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return (
            f"{self.fit!r} on {len(self.held_out)} held-out rows: rmse {self.rmse:.4g}, bias {self.bias:+.4g}, "
            f"{self.inside:.0%} inside the {self.level:.0%} prediction band"
        )


def backtest(
    df: pd.DataFrame,
    law: str | Law,
    *,
    y: str,
    x: Any = None,
    holdout: Any = None,
    level: float = 0.95,
    **options: Any,
) -> Backtest:
    """Fit without the held-out rows, predict them, and only then refit with them.

    Args:
        holdout: rules for the held-out rows; rows with a true `held_out` column are held out in any case. Rows that
            `exclude` leaves out are neither fitted nor predicted.
        options: those of `fit`.

    Raises:
        UserError: nothing is held out; otherwise as `fit`.
    """
    if options.get("group") is not None:
        raise UserError("backtest takes one group at a time: select its rows first.")
    form, exclude = resolve(law), options.get("exclude")
    held = held_out(df, holdout)
    for rule in rules.split(exclude):
        held &= ~rules.matches(df, rule, "exclude")
    if not held.any():
        raise UserError(
            "Nothing is held out: give holdout=, e.g. 'N > 1e9', or a true-or-false column 'held_out'."
        )
    without = fit(df, form, y=y, x=x, holdout=holdout, **options)
    unread = df.loc[held].drop(columns=HELD_OUT, errors="ignore")
    band = without.predict(unread, band="prediction", level=level)
    observed = numbers(unread, y, "y")
    error = band["prediction"].to_numpy() - observed
    inside = (observed >= band["low"]) & (observed <= band["high"])
    positive = np.all(observed > 0) and np.all(band["prediction"] > 0)
    log_rmse = float(np.sqrt(np.mean(np.log(observed / band["prediction"]) ** 2))) if positive else np.nan
    rows = unread.assign(**{c: band[c] for c in band}, prediction_error=error, inside=inside)
    again = fit(df.drop(columns=HELD_OUT, errors="ignore"), form, y=y, x=x, **options)
    with np.errstate(over="ignore"):
        rmse = float(np.sqrt(np.mean(error**2)))
    return Backtest(without, again, rows, rmse, float(error.mean()), log_rmse, float(inside.mean()), level)


@dataclass(frozen=True)
class Comparison:
    """Laws ranked by their error on rows that none of them saw.

    `table` has one row a law, best first: tail_rmse, tail_bias, tail_log_rmse, inside (share of tail rows in
    the 95 % prediction band), aicc, aic, bic, r2, lack_of_fit (p of the test of replicates, NaN without any),
    parameters, n, warnings. `failed` says why a law could not be
    fitted.
    """

    table: pd.DataFrame
    backtests: Mapping[str, Backtest]
    failed: Mapping[str, str]
    tail: str

    @property
    def best(self) -> LawFit:
        """The fit, without the tail, of the law that predicts the tail best."""
        return self.backtests[self.table["law"].iloc[0]].fit

    def summary(self) -> str:
        lines = [
            f"Ranked by error on the held-out tail ({self.tail}); no fit saw it.",
            "",
            self.table.to_string(index=False),
        ]
        lines += [f"{name}: not fitted: {why}" for name, why in self.failed.items()]
        return "\n".join(
            [*lines, "", f"{CONVENTION}; comparable only between laws in the same residual space."]
        )

    def __repr__(self) -> str:
        return self.summary()


def compare(
    df: pd.DataFrame,
    laws: Sequence[str | Law],
    *,
    y: str,
    x: Mapping[str, Any] | str | None = None,
    holdout: Any = None,
    tail: float = 0.25,
    **options: Any,
) -> Comparison:
    """Rank laws by how well they extrapolate.

    Args:
        laws: two or more names or Laws.
        x: column names for all the laws together (each takes those it has), or a mapping of law to such a
            mapping.
        holdout: the tail. By default the rows that a study held out, or, where it held none, those in the top quarter
            (`tail`) of the distinct values of the first law's widest column.
        options: those of `fit`; residuals are taken in the same space for every law, ln y unless log=False or
            y is not positive.

    Raises:
        UserError: every law failed, or there is nothing to rank; otherwise as `fit`.
    """
    forms = [resolve(law) for law in laws]
    if len({f.name for f in forms}) < 2:
        raise UserError(f"compare needs two laws or more, not {[f.name for f in forms]}.")
    options.setdefault("log", bool((df[y] > 0).all()) if y in df.columns else True)
    columns = {f.name: _columns(f, x) for f in forms}
    if holdout is None and not frozen(df).any():
        holdout = tail_rule(df, list(mapping(forms[0], columns[forms[0].name]).values()), tail)
    found: dict[str, Backtest] = {}
    failed: dict[str, str] = {}
    for form in forms:
        try:
            found[form.name] = backtest(df, form, y=y, x=columns[form.name], holdout=holdout, **options)
        except UserError as error:
            failed[form.name] = str(error)
    if not found:
        raise UserError("No law could be fitted: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    table = pd.DataFrame([_row(name, one) for name, one in found.items()]).sort_values("tail_rmse")
    shown = "; ".join(rules.describe(r) for r in rules.split(holdout)) or HELD_OUT
    return Comparison(table.reset_index(drop=True), found, failed, shown)


def _columns(law: Law, x: Mapping[str, Any] | str | None) -> Any:
    if x is None or isinstance(x, str):
        return x
    if law.name in x and not isinstance(x[law.name], str):
        return x[law.name]
    chosen = {c: name for c, name in x.items() if c in law.columns}
    only = [c for c in law.columns if c != law.target]
    if not chosen and len(only) == 1 and len(x) == 1:
        return {only[0]: next(iter(x.values()))}
    return chosen


def _row(name: str, test: Backtest) -> dict[str, Any]:
    c = test.fit.criteria
    return {
        "law": name, "tail_rmse": test.rmse, "tail_bias": test.bias, "tail_log_rmse": test.log_rmse,
        "inside": test.inside, "aicc": c.aicc, "aic": c.aic, "bic": c.bic, "r2": c.r2,
        "lack_of_fit": np.nan if (found := test.fit.lack_of_fit) is None else found.p,
        "parameters": len(test.fit.law.free),
        "n": len(test.fit.table), "warnings": len(test.fit.warnings),
    }  # fmt: skip


def tail_rule(df: pd.DataFrame, names: Sequence[str], share: float) -> str:
    """The rule that holds out the rows with the largest values of the column with the most distinct ones."""
    name = max(names, key=lambda c: rules.column(df, c, "x").nunique())
    values = np.sort(df[name].dropna().unique())
    cut = values[max(0, int(np.ceil(len(values) * (1 - share))) - 1)]
    if cut == values[-1]:
        raise UserError(f"{name} has too few distinct values ({len(values)}) for a tail: give holdout=.")
    return f"{name} > {float(cut)!r}"


def sensitivity(
    df: pd.DataFrame,
    law: str | Law,
    *,
    y: str,
    x: Any = None,
    along: str | None = None,
    cuts: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    **options: Any,
) -> pd.DataFrame:
    """How the parameters move when the fit starts later: one row a cut.

    Args:
        along: column whose smallest values are dropped (compute, steps); default the widest of the law's
            columns.
        cuts: at least four shares of its distinct values.

    Returns:
        Columns cut (share dropped), rule, n, objective, starts_agree, and for each parameter its value and
        its multi-start spread ("<name> spread").

    Raises:
        UserError: fewer than four cuts; otherwise as `fit`.
    """
    if len(cuts) < 4:
        raise UserError(f"cuts has {len(cuts)} values: start-window sensitivity takes at least four.")
    form = resolve(law)
    column = along or max(mapping(form, x).values(), key=lambda c: rules.column(df, c, "x").nunique())
    values = np.sort(rules.column(df, column, "along").dropna().unique())
    rows = []
    for cut in cuts:
        rule = f"{column} < {values[int(cut * len(values))]}"
        kept = df.loc[~rules.matches(df, rule, "along")]
        one = fit(kept, form, y=y, x=x, **options)
        spread = {f"{p} spread": high - low for p, (low, high) in one.starts.spread.items()}
        row = {"cut": cut, "rule": rule, "n": len(one.table), "objective": one.objective}
        rows.append(row | {"starts_agree": f"{one.starts.agree}/{one.starts.tried}"} | one.params | spread)
    return pd.DataFrame(rows)


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
            f"If the law is true, intervals of nominal {self.level:.0%} {verdict}: on {self.replicates} simulated "
            f"copies of this design they hold the truth in {shown} (± {margin:.0%} from the number of copies)."
        )


def recover(fit: LawFit, replicates: int = 100, level: float = 0.95, seed: int = 0) -> Recovery:
    """Simulate the fit's own design and state the coverage of its intervals, if the law is true.

    The truth is the fit; each replicate gives its rows new noise (resampled residuals, plus an offset a cluster
    as large as the residuals' own) and is fitted and bootstrapped in the same way, with at most 200 resamples.

    Raises:
        UserError: fits of several groups; a likelihood law (its data are counts, not values with residuals); a law
            that its own data reject, whose misfit would be simulated as noise; no replicate could be fitted.
    """
    if isinstance(fit, GroupedFit):
        raise UserError(f"recover takes one group at a time: give fit[{next(iter(fit))!r}].")
    if fit.law.target:
        raise UserError(
            f"recover simulates residuals, which the likelihood law {fit.law.name!r} does not have."
        )
    test = fit.lack_of_fit
    if test is not None and test.p < 0.05:
        raise UserError(
            f"The law {fit.law.name!r} is rejected by its own data (p = {test.p:.2g} of the lack-of-fit test), so "
            "copies that are simulated from it say nothing of its intervals: fit another law."
        )
    rng = generator("laws", "recover", seed)
    plan = fit.scheme or Scheme("residual", len(fit.table))
    noise = draw_noise(fit, plan, replicates, rng)
    names = fit.law.free
    lows, highs, values, failed = [], [], [], 0
    for i in range(replicates):
        y = to_space(fit.predicted + noise[i], fit.problem.space, "linear")[0]
        y = np.clip(y, 0.0, 1.0) if fit.loss.name == "binomial" else y
        try:
            one = fit.again(replace(fit.table, y=y), seed=i, most=200)
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
