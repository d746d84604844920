"""rlkit.fit: from a table to a LawFit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from rlkit.errors import UserError
from rlkit.laws import intervals, report, table
from rlkit.laws.intervals import RESAMPLES, Draws
from rlkit.laws.law import Law, Space, resolve
from rlkit.laws.optimum import Optimum, search
from rlkit.laws.solver import Loss, make_loss, to_space

Band = Literal["confidence", "prediction"]


@dataclass(frozen=True)
class LawFit(Optimum):
    """A fitted law: its optimum, its uncertainty and its predictions. It has `count` resamples of rows or residuals
    (`kind`) from a seed, or resamples that were drawn elsewhere (`given`); `notes` are warnings, too."""

    count: int = 0
    kind: str = "residual"
    seed: int = 0
    given: Draws | None = None
    notes: tuple[str, ...] = ()

    warnings = cached_property(report.warnings)
    lack_of_fit = property(report.lack_of_fit)
    criteria = property(report.criteria)
    summary = report.summary
    to_json = report.to_json
    to_latex = report.to_latex

    @cached_property
    def resampled(self) -> Draws | None:
        """The resamples (`intervals.resample`), drawn when first needed; None where none were asked for."""
        if self.given is not None or not self.count:
            return self.given
        return intervals.resample(self, self.kind, self.count, self.seed)

    @property
    def draws(self) -> np.ndarray | None:
        """(B, p) parameters of the resamples, None without a bootstrap."""
        return None if self.resampled is None else self.resampled.values

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the estimates, of the draws or else Wald's, which are NaN at a bound."""
        with np.errstate(all="ignore"):
            if self.draws is not None:
                sd = np.std(self.draws, axis=0, ddof=1)
            else:
                sd = np.sqrt(np.diagonal(intervals.wald_covariance(self))) * self.law.from_z(self.z)[1]
                sd[[p in self.at_bound for p in self.law.parameters]] = np.nan
        return dict(zip(self.law.parameters, sd.tolist(), strict=True))

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter: percentiles of the resamples, stretched for small samples; without any the
        profile (of independent rows), where the objective, minimised over the other parameters, leaves its threshold;
        an end that is never reached is the parameter's bound or infinite. A UserError for a level outside (0, 1)."""
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        if self.draws is None:
            return intervals.profiles(self, level)
        # Linear parameters may be at a bound, which is infinitely far away in z: theirs are natural units.
        law, natural = self.law, self.law.linearly
        draws = np.where(natural, self.draws, law.to_z(self.draws))
        center = np.where(natural, law.from_z(self.z)[0], self.z)
        ends = self._percentiles(draws, center, level)
        ends = np.where(natural, ends, law.from_z(ends)[0])
        limits = np.array([law.limits(name) for name in law.parameters]).T
        pairs = np.array([np.maximum(ends[0], limits[0]), np.minimum(ends[1], limits[1])]).T.tolist()
        return {p: (low, high) for p, (low, high) in zip(law.parameters, pairs, strict=True) if p in law.free}

    def _percentiles(self, draws: np.ndarray, center: np.ndarray, level: float) -> np.ndarray:
        """(2, …) percentiles of draws (B, …), stretched about the estimate."""
        assert self.resampled is not None
        ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        stretch = self.resampled.stretch(level)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(ends == center, ends, center + stretch * (ends - center))

    def predict(self, df: Any, band: Band | None = None, level: float = 0.95, repeats: int = 1) -> Any:
        """Predictions for the rows of df (a table or a mapping), whose columns are named as those fitted: without a
        band a Series, with one a DataFrame of prediction, low and high. "confidence" is of the law itself, "prediction"
        of the mean of `repeats` new measurements, with the weights in df or the fit's median. Errors as `rlkit.fit`."""
        df = pd.DataFrame(df)
        columns = {c: table.numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem, name = replace(self.problem, columns=columns), self.table.record["weights"]
        with np.errstate(all="ignore"):  # a degenerate law leaves the range of floats beyond its data
            center = problem.predict(self.z[None])[0]
            natural = to_space(center, problem.space, "linear")[0]
            value = pd.Series(natural, df.index, name=self.table.names["y"])
            if band is None:
                return value
            noise, known = np.zeros(len(df)), np.median(self.table.weights)
            e = self.residuals / self.sizes() * np.sqrt(len(self.table) / self.freedom)
            if band == "prediction":
                known = table.numbers(df, name, "weights") if name in df.columns else known
                noise = self.sizes(center, np.broadcast_to(known, len(df)))
            if self.draws is None:
                J = problem.jacobian(self.z[None])[0]
                variance = np.einsum("pm,pq,qm->m", J, intervals.wald_covariance(self), J)
                variance = variance + np.mean(e**2) * noise**2 / repeats
                half = stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(variance)
                ends = np.stack([center - half, center + half])
            else:
                draws = problem.predict(self.law.to_z(self.draws))
                if noise.any():
                    rng = np.random.default_rng(self.seed)
                    draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
                ends = self._percentiles(draws, center, level)
            ends = to_space(ends, problem.space, "linear")[0]
        found = {"prediction": value, "low": np.minimum(*ends), "high": np.maximum(*ends)}
        return pd.DataFrame(found, index=df.index)

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v:.4g}" for k, v in self.params.items())
        return f"LawFit({self.law.name}: {values}; n={len(self.table)})"


def fit(
    df: pd.DataFrame, law: str | Law, *, y: str, x: Mapping[str, str] | str | None = None, group: str | None = None,
    loss: str | Loss | None = None, delta: float | None = None, log: bool | None = None, weights: str | None = None,
    bootstrap: int | None = None, resample: Literal["case", "residual"] | None = None,
    cluster: str | Sequence[str] | None = None, block: str | None = None, seed: int = 0,
    exclude: Any = None, holdout: Any = None,
) -> Any:  # fmt: skip
    """Fit a law to the rows of a table: a LawFit, or a dict of group to LawFit. A UserError names column and rows.

    Args:
        law: a name (see `rlkit.laws.laws`) or a Law.
        y: column of the measured quantity. x: the law's columns to the table's; a lone name for a one-column law.
        group: column; a separate fit for each of its values.
        loss: ls (the default), huber (the default where there is a delta), lad, or binomial (y a pass rate, weights
            the number of samples). The objective is the sum over rows, never the mean.
        delta: of huber, in units of the residual; 1e-3 where none is given.
        log: residuals in ln y (True) or y (False); the default is the law's own space.
        weights: column, e.g. the number of samples behind each row: inverse variances, up to a factor.
        bootstrap: number of resamples; by default 1,000, drawn when first needed, and with 0 intervals are profiles.
        resample: residuals ("residual", the default of ls and binomial) or rows ("case", that of robust losses).
        cluster: column(s) of what is independent (run, seed, prompt): residuals or rows of whole clusters.
        block: the column of time, for rows of one run: noise is a first-order autoregression like the residuals.
        exclude, holdout: rules for rows that are not fitted (rlkit.laws.table); rows with a true `held_out` never are.
    """
    form, target = resolve(law), make_loss(loss, delta)
    if target.name == "binomial" and weights is None:
        raise UserError("loss='binomial' needs weights=, the column with each pass rate's number of samples.")
    count = RESAMPLES if bootstrap is None else bootstrap
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UserError(f"bootstrap is {bootstrap!r}: give the number of resamples, 0 or more.")
    if block is not None and (cluster is not None or not isinstance(block, str)):
        told = "give the column that holds time, of one run; of several runs, cluster= alone"
        raise UserError(f"block is {block!r}, with cluster {cluster!r}: {told}.")
    plan = {"count": count, "kind": resample or ("case" if target.robust else "residual"), "seed": seed}
    space: Space = "linear" if log is not None or target.name == "binomial" else form.space
    if log and target.name != "binomial":
        space = "loglog" if form.space == "loglog" else "log"
    kept, record = table.leave_out(df, exclude, holdout)
    options = {"weights": weights, "cluster": cluster, "block": block}

    def one(part: pd.DataFrame, notes: Sequence[str] = ()) -> LawFit:
        rows = table.build(part, form, y, x, space, record, options)
        made = LawFit(**vars(search(rows, form, target, space)), **plan, notes=tuple(notes))
        if bootstrap:
            _ = made.resampled  # what is wrong with the resamples that were asked for is said now
        return made

    return one(kept) if group is None else _groups(df, kept, group, one)


def _groups(df: pd.DataFrame, kept: pd.DataFrame, group: str, one: Any) -> dict[Any, LawFit]:
    values = table.column(df, group, "group")
    if values.nunique() < 2:
        raise UserError(f"group {group!r} has {values.nunique()} value in {len(df)} rows: leave group out.")
    notes = []
    if missing := int(kept[group].isna().sum()):
        notes.append(f"{missing} of {len(kept)} rows have no value of {group} and are in no fit.")
    if left := sorted(map(str, set(values.dropna()) - set(kept[group]))):
        notes.append(f"No row of {group} {', '.join(left)} may be fitted: all are held out or excluded.")
    fits = {}
    for name, part in kept.groupby(group, sort=True):
        try:
            fits[name] = one(part, notes)
        except UserError as error:
            raise UserError(f"In group {name!r}: {error}") from None
    return fits
