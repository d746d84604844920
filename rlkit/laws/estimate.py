"""An optimum with its uncertainty: resamples, intervals and predictions with bands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
from scipy import stats

from rlkit.errors import UserError, did_you_mean
from rlkit.laws import bootstrap, intervals
from rlkit.laws.bootstrap import Draws, Plan, Scheme
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import Problem, Solution, to_space
from rlkit.laws.table import mapping, numbers

Band = Literal["confidence", "prediction"]
Method = Literal["bootstrap", "profile", "wald"]


@dataclass(frozen=True)
class Estimate(Optimum):
    """An optimum and how its uncertainty is found.

    Attributes:
        plan: the resamples asked for; they are drawn when first needed.
        ends: all that the search ended at, where resamples may start.
        given: resamples that were drawn elsewhere.
        notes: sentences to be shown with the warnings.
    """

    plan: Plan = field(default_factory=Plan)
    ends: Solution | None = field(default=None, repr=False)
    given: Draws | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def resampled(self) -> Draws | None:
        """The resamples; None where none were asked for.

        Raises:
            UserError: as `bootstrap.resample`.
        """
        if self.given is not None or not self.plan.count:
            return self.given
        return bootstrap.resample(self, self.ends, self.plan)

    @property
    def draws(self) -> np.ndarray | None:
        """(B, p) parameters of the resamples, None without a bootstrap."""
        return None if self.resampled is None else self.resampled.values

    @property
    def scheme(self) -> Scheme | None:
        """How the resamples were drawn."""
        return None if self.resampled is None else self.resampled.scheme

    @property
    def lost(self) -> int:
        """Resamples that could not be fitted."""
        return 0 if self.resampled is None else self.resampled.lost

    @cached_property
    def covariance(self) -> np.ndarray:
        """(p, p) Wald covariance in natural units: a linear approximation at the optimum."""
        slope = self.law.from_z(self.z[None])[1][0]
        with np.errstate(over="ignore"):
            return intervals.covariance(self) * np.outer(slope, slope)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard deviation of the bootstrap draws; without a bootstrap Wald's, NaN for one at a bound."""
        with np.errstate(over="ignore", invalid="ignore"):
            sd = (
                np.sqrt(np.diagonal(self.covariance))
                if self.draws is None
                else self.draws.std(axis=0, ddof=1)
            )
        found = dict(zip(self.law.parameters, sd.tolist(), strict=True))
        return found if self.draws is not None else {**found, **dict.fromkeys(self.at_bound, np.nan)}

    @property
    def correlation(self) -> np.ndarray:
        """(p, p) correlations of the estimates, from the draws or Wald's."""
        with np.errstate(all="ignore"):
            cov = self.covariance if self.draws is None else np.cov(self.draws.T)
            sd = np.sqrt(np.maximum(np.diagonal(cov), 1e-300))
            return cov / np.outer(sd, sd)

    def interval(self, level: float = 0.95, method: Method | None = None) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter.

        bootstrap, the default where there are resamples: their percentiles, stretched for small samples
        (`Scheme.stretch`). profile, the default otherwise: where the objective, minimised over the other
        parameters, leaves its threshold; an end that is never reached is the parameter's bound or infinite. Rows count
        as independent. wald: estimate ± t times the standard error, robust to clusters where they were named.

        Raises:
            UserError: a level outside (0, 1), an unknown method, or bootstrap without draws.
        """
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        method = method or ("profile" if self.draws is None else "bootstrap")
        if method == "profile":
            return {name: (p.low, p.high) for name, p in self._profiles(level).items()}
        if method == "wald":
            clusters = self.table.cluster
            freedom = self.freedom if clusters is None else int(clusters.max())
            half = stats.t.ppf((1 + level) / 2, freedom) * np.sqrt(np.diagonal(self.covariance))
            ends = dict(zip(self.law.parameters, half, strict=True))
            return {
                p: (float(self.params[p] - ends[p]), float(self.params[p] + ends[p])) for p in self.law.free
            }
        if method != "bootstrap":
            raise UserError(f"method is {method!r}: use bootstrap, profile or wald.")
        if self.draws is None:
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
        with np.errstate(invalid="ignore", over="ignore"):
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
        self, df: pd.DataFrame | Mapping[str, Any], band: Band, level: float = 0.95, repeats: int = 1
    ) -> pd.DataFrame: ...
    def predict(
        self,
        df: pd.DataFrame | Mapping[str, Any],
        band: Band | None = None,
        level: float = 0.95,
        repeats: int = 1,
    ) -> pd.Series | pd.DataFrame:
        """Predictions for the rows of df, under the column names that the law was fitted with.

        Args:
            band: None gives a Series. "confidence" adds columns low and high for the law itself, "prediction"
                for a new measurement at these columns, with the fit's residual spread on top; a measurement has the
                weight in df's column of weights, or the median weight of the fitted rows.
            repeats: of "prediction": the band is of the mean of so many new measurements.

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
            ends = None
            if band is not None:
                noise = self._noise(df, center) if band == "prediction" else None
                ends = [self._back(e) for e in self._band(problem, center, noise, level, repeats)]
        return self._frame(df, self._back(center), ends)

    def _noise(self, df: pd.DataFrame, center: np.ndarray) -> np.ndarray:
        """(m,) what a residual of standard deviation 1 (`Optimum.sizes`) has at each new row."""
        name = self.table.weighted
        known = name is not None and name in df.columns
        w = numbers(df, str(name), "weights") if known else np.full(len(df), np.median(self.table.weights))
        return np.sqrt(center * (1 - center) / w) if self.loss.name == "binomial" else w**-0.5

    def _band(
        self, problem: Problem, center: np.ndarray, noise: np.ndarray | None, level: float, repeats: int
    ) -> np.ndarray:
        """(2, m) ends in residual space."""
        e = self.residuals / self.sizes * np.sqrt(len(self.table) / self.freedom)
        if self.draws is not None:
            draws = problem.predict(self.law.to_z(self.draws))
            if noise is not None:
                rng = np.random.default_rng(self.plan.seed)
                draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
            return self._percentiles(draws, center, level)
        _, J = problem.jacobian(self.z[None])
        variance = np.einsum("pm,pq,qm->m", J[0], intervals.covariance(self), J[0])
        variance = variance if noise is None else variance + np.mean(e**2) * noise**2 / repeats
        half = stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(variance)
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
