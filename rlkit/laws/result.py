"""LawFit: a fitted law with everything that decided it, its uncertainty and its predictions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
from scipy import stats

from rlkit.errors import UserError, did_you_mean
from rlkit.laws import diagnose, intervals, report
from rlkit.laws.law import Law
from rlkit.laws.losses import Loss
from rlkit.laws.resample import Scheme
from rlkit.laws.solver import Problem, to_space
from rlkit.laws.table import Table, mapping, numbers

Band = Literal["confidence", "prediction"]
Method = Literal["bootstrap", "profile", "wald"]


@dataclass(frozen=True)
class Starts:
    """How the search went: starts polished, how many reached the best objective within 1e-6 of it, and the
    spread (low, high) of each parameter over those."""

    tried: int
    agree: int
    spread: Mapping[str, tuple[float, float]]
    worst: float


@dataclass(frozen=True)
class LawFit:
    """One law fitted to one table.

    Attributes:
        law, loss, table, problem: what was fitted to what; residuals are observed - predicted in
            `problem.space`.
        z: (p,) the optimum in the engine's coordinates.
        objective: sum over rows of weight times loss.
        gradient: largest slope of the objective in z, as a share of the objective.
        condition: condition number of the curvature in z, each coordinate scaled to unit curvature.
        starts: how many starts agree.
        at_bound: linear parameters that the search drove to a bound, and that bound.
        draws: (B, p) parameters of the bootstrap resamples, None without a bootstrap.
        scheme: how those were drawn; `lost` counts resamples that could not be fitted.
    """

    law: Law
    loss: Loss
    table: Table
    problem: Problem
    z: np.ndarray
    objective: float
    minimum: float
    gradient: float
    condition: float
    starts: Starts
    at_bound: Mapping[str, float]
    seed: int = 0
    draws: np.ndarray | None = None
    scheme: Scheme | None = None
    lost: int = 0
    notes: tuple[str, ...] = ()

    @property
    def params(self) -> dict[str, float]:
        """Estimates in natural units."""
        values = self.law.from_z(self.z[None])[0][0].tolist()
        return {**dict(zip(self.law.parameters, values, strict=True)), **self.at_bound}

    @property
    def free(self) -> np.ndarray:
        """(p,) bool: estimated, not pinned."""
        return np.array([p not in self.law.pinned for p in self.law.parameters])

    @property
    def space(self) -> str:
        return self.problem.space

    @cached_property
    def observed(self) -> np.ndarray:
        """(n,) y in residual space."""
        return to_space(self.table.y, "linear", self.problem.space)[0]

    @cached_property
    def predicted(self) -> np.ndarray:
        """(n,) prediction in residual space."""
        return self.problem.predict(self.z[None])[0]

    @property
    def residuals(self) -> np.ndarray:
        """(n,) observed - predicted in residual space."""
        return self.observed - self.predicted

    @property
    def slopes(self) -> np.ndarray:
        """(n,) derivative of the loss in the prediction."""
        return self.loss(self.predicted[None], self.observed[None]).slope[0]

    @property
    def spread(self) -> float:
        """Standard deviation of y in residual space."""
        return float(np.std(self.observed)) or 1.0

    def natural(self, j: int, value: float) -> float:
        """Coordinate j of z in natural units."""
        z = self.z.copy()
        z[j] = value
        return float(self.law.from_z(z[None])[0][0, j])

    @cached_property
    def covariance(self) -> np.ndarray:
        """(p, p) Wald covariance in natural units: a linear approximation at the optimum."""
        slope = self.law.from_z(self.z[None])[1][0]
        with np.errstate(over="ignore"):
            return intervals.covariance(self) * np.outer(slope, slope)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard deviation of the bootstrap draws; without a bootstrap Wald's, NaN for one at a bound."""
        sd = np.sqrt(np.diagonal(self.covariance)) if self.draws is None else self.draws.std(axis=0, ddof=1)
        found = dict(zip(self.law.parameters, sd.tolist(), strict=True))
        return found if self.draws is not None else {**found, **dict.fromkeys(self.at_bound, np.nan)}

    @property
    def correlation(self) -> np.ndarray:
        """(p, p) correlations of the estimates, from the draws or Wald's."""
        cov = self.covariance if self.draws is None else np.cov(self.draws.T)
        sd = np.sqrt(np.maximum(np.diagonal(cov), 1e-300))
        return cov / np.outer(sd, sd)

    def interval(self, level: float = 0.95, method: Method | None = None) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter.

        bootstrap, the default after one: percentiles of the draws, stretched for small samples
        (`Scheme.stretch`). profile, the default otherwise: where the objective, minimised over the other
        parameters, leaves its threshold; an end that is never reached is the parameter's bound or infinite.
        wald: estimate ± t times stderr.

        Raises:
            UserError: a level outside (0, 1), or bootstrap without draws.
        """
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        method = method or ("profile" if self.draws is None else "bootstrap")
        if method == "profile":
            return {name: (p.low, p.high) for name, p in self._profiles(level).items()}
        if method == "wald":
            t = stats.t.ppf((1 + level) / 2, len(self.table) - self.free.sum())
            half = dict(zip(self.law.parameters, t * np.sqrt(np.diagonal(self.covariance)), strict=True))
            return {
                p: (float(self.params[p] - half[p]), float(self.params[p] + half[p])) for p in self.law.free
            }
        if self.draws is None or self.scheme is None:
            raise UserError(
                "There are no bootstrap draws: fit with bootstrap=1000, or ask for method='profile'."
            )
        # Linear parameters may be at a bound, which is infinitely far away in z: theirs are natural units.
        natural = np.array([p in self.law.linear for p in self.law.parameters])
        draws = np.where(natural, self.draws, self.law.to_z(self.draws))
        center = np.where(natural, self.law.from_z(self.z[None])[0][0], self.z)
        ends = self._percentiles(draws, center, level)
        low, high = (np.where(natural, e, self.law.from_z(e[None])[0][0]) for e in ends)
        found = {}
        for j, name in enumerate(self.law.parameters):
            if name in self.law.free:
                bounds = self.law.limits(name)
                found[name] = (float(max(low[j], bounds[0])), float(min(high[j], bounds[1])))
        return found

    def _percentiles(self, draws: np.ndarray, center: np.ndarray, level: float) -> np.ndarray:
        """(2, …) percentiles of draws (B, …), stretched about the estimate."""
        assert self.scheme is not None
        ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        stretch = self.scheme.stretch(level, int(self.free.sum()))
        with np.errstate(invalid="ignore"):
            return np.where(ends == center, ends, center + stretch * (ends - center))

    def _profiles(self, level: float) -> dict[str, intervals.Profile]:
        cache = self.__dict__.setdefault("_profile_cache", {})
        if level not in cache:
            cache[level] = intervals.profiles(self, self.law.free, level)
        return cache[level]

    def profile(self, name: str, level: float = 0.95) -> intervals.Profile:
        """Values of one parameter, the objective minimised over the others there, and the interval's ends."""
        if name not in self.law.free:
            raise UserError(
                f"{name!r} is not a free parameter of {self.law.name!r}.{did_you_mean(name, self.law.free)}"
            )
        return self._profiles(level)[name]

    @overload
    def predict(self, df: pd.DataFrame | Mapping[str, Any]) -> pd.Series: ...
    @overload
    def predict(
        self, df: pd.DataFrame | Mapping[str, Any], band: Band, level: float = 0.95
    ) -> pd.DataFrame: ...
    def predict(
        self, df: pd.DataFrame | Mapping[str, Any], band: Band | None = None, level: float = 0.95
    ) -> pd.Series | pd.DataFrame:
        """Predictions for the rows of df, under the column names that the law was fitted with.

        Args:
            band: None gives a Series. "confidence" adds columns low and high for the law itself, "prediction"
                for a new measurement at these columns, with the fit's residual spread on top.

        Raises:
            UserError: a column that is missing or has no finite value; a band for a likelihood's predictor
                without bootstrap draws.
        """
        df = df if isinstance(df, pd.DataFrame) else pd.DataFrame(df)
        if self.law.predictor is not None:
            return self._predict_likelihood(df, band, level)
        columns = {c: numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem = replace(self.problem, columns=columns)
        with np.errstate(all="ignore"):
            center = problem.predict(self.z[None])[0]
            ends = None if band is None else self._band(problem, center, band, level)
        return self._frame(df, self._back(center), None if ends is None else [self._back(e) for e in ends])

    def _band(self, problem: Problem, center: np.ndarray, band: Band, level: float) -> np.ndarray:
        """(2, m) ends in residual space."""
        n, p = len(self.table), int(self.free.sum())
        noise = self.residuals * np.sqrt(n / (n - p)) if band == "prediction" else np.zeros(1)
        if self.draws is not None:
            draws = problem.predict(self.law.to_z(self.draws))
            ends = self._percentiles(draws, center, level)
            if band == "confidence":
                return ends
            rng = np.random.default_rng(self.seed)
            return self._percentiles(draws + rng.choice(noise, size=(len(draws), 1)), center, level)
        _, J = problem.jacobian(self.z[None])
        variance = np.einsum("pm,pq,qm->m", J[0], intervals.covariance(self), J[0]) + np.mean(noise**2)
        half = stats.t.ppf((1 + level) / 2, n - p) * np.sqrt(variance)
        return np.stack([center - half, center + half])

    def _back(self, value: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # a degenerate law leaves the range of floats beyond its data
            return to_space(value, self.problem.space, "linear")[0]

    def _predict_likelihood(self, df: pd.DataFrame, band: Band | None, level: float):
        predictor = self.law.predictor
        assert predictor is not None
        arguments = inspect.signature(predictor).parameters.values()
        names = [a.name for a in arguments if a.kind is a.POSITIONAL_OR_KEYWORD]
        where = mapping(self.law, {k: v for k, v in self.table.names.items() if k in names}, names)
        columns = [numbers(df, where[c], f"x[{c!r}]") for c in names]

        def at(values: np.ndarray) -> np.ndarray:
            return predictor(*columns, **{p: values[:, [j]] for j, p in enumerate(self.law.parameters)})

        center = at(self.law.from_z(self.z[None])[0])[0]
        if band is None:
            return self._frame(df, center, None)
        if self.draws is None or band == "prediction":
            raise UserError(
                f"The law {self.law.name!r} has confidence bands only, and only after a bootstrap: fit "
                "with bootstrap=1000."
            )
        return self._frame(df, center, list(self._percentiles(at(self.draws), center, level)))

    def _frame(self, df: pd.DataFrame, center: np.ndarray, ends: list[np.ndarray] | None):
        series = pd.Series(center, index=df.index, name=self.table.names["y"])
        if ends is None:
            return series
        low, high = np.minimum(*ends), np.maximum(*ends)
        return pd.DataFrame({"prediction": series, "low": low, "high": high}, index=df.index)

    @cached_property
    def warnings(self) -> list[str]:
        """What a reviewer would object to, in words."""
        return diagnose.warnings(self)

    @property
    def criteria(self) -> report.Criteria:
        """Log-likelihood, AIC and BIC with their convention, R² overall and within groups."""
        return report.criteria(self)

    def summary(self, level: float = 0.95) -> str:
        """Text: what was fitted, estimates with intervals, correlations, criteria and warnings."""
        return report.summary(self, level)

    def to_latex(self, level: float = 0.95, notes: Sequence[str] = ()) -> str:
        """A booktabs table of estimates and intervals; under it the notes and what the warnings have found."""
        return report.to_latex(self, level, notes)

    def to_json(self, path: str | Path | None = None, level: float = 0.95) -> str:
        """Everything the fit recorded as JSON text; written to `path` atomically when one is given."""
        return report.to_json(self, path, level)

    def plot(self, ax: Any = None, holdout: pd.DataFrame | None = None, level: float = 0.95) -> Any:
        """Matplotlib axes with the points, the law and its confidence band; `holdout` rows are drawn
        hollow."""
        from rlkit.laws.plot import plot

        return plot(self, ax, holdout, level)

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v:.4g}" for k, v in self.params.items())
        return f"LawFit({self.law.name}: {values}; n={len(self.table)}, {len(self.warnings)} warnings)"


class GroupedFit(dict[Any, LawFit]):
    """One LawFit a group, as a mapping, with a table of all of them."""

    @property
    def params(self) -> pd.DataFrame:
        """Estimates, one row a group."""
        return pd.DataFrame({g: fit.params for g, fit in self.items()}).T

    def interval(self, level: float = 0.95, method: Method | None = None) -> pd.DataFrame:
        """Rows (group, parameter) with value, low and high."""
        rows = []
        for group, fit in self.items():
            for name, (low, high) in fit.interval(level, method).items():
                rows.append(
                    {"group": group, "parameter": name, "value": fit.params[name], "low": low, "high": high}
                )
        return pd.DataFrame(rows)

    @property
    def warnings(self) -> list[str]:
        """The warnings of every group, each with the group's name."""
        return [f"{group}: {text}" for group, fit in self.items() for text in fit.warnings]

    def summary(self, level: float = 0.95) -> str:
        """The summaries one after another."""
        return "\n\n".join(f"== {group} ==\n{fit.summary(level)}" for group, fit in self.items())

    def to_json(self, path: str | Path | None = None, level: float = 0.95) -> str:
        """JSON text with one entry a group."""
        return report.write({str(g): report.record(fit, level) for g, fit in self.items()}, path)

    def plot(self, ax: Any = None, level: float = 0.95) -> Any:
        """All groups on one pair of axes."""
        for group, fit in self.items():
            ax = fit.plot(ax, level=level)
            ax.lines[-1].set_label(str(group))
        ax.legend()
        return ax
