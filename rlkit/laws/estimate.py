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

from rlkit.errors import UserError
from rlkit.laws import bootstrap, intervals
from rlkit.laws.bootstrap import Draws, Plan, Scheme
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import Solution, to_space
from rlkit.laws.table import numbers

Band = Literal["confidence", "prediction"]
Method = Literal["bootstrap", "profile"]


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
        """(p, p) covariance of the estimates in natural units: of the draws, or without them Wald's, a linear
        approximation that is robust to clusters where they were named."""
        with np.errstate(all="ignore"):
            if self.draws is not None:
                return np.cov(self.draws.T).reshape(len(self.z), len(self.z))
            slope = self.law.from_z(self.z[None])[1][0]
            return intervals.covariance(self) * np.outer(slope, slope)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the estimates; without a bootstrap NaN for one at a bound."""
        with np.errstate(over="ignore", invalid="ignore"):
            sd = np.sqrt(np.diagonal(self.covariance)).tolist()
        found = dict(zip(self.law.parameters, sd, strict=True))
        return found if self.draws is not None else {**found, **dict.fromkeys(self.at_bound, np.nan)}

    @property
    def correlation(self) -> np.ndarray:
        """(p, p) correlations of the estimates."""
        with np.errstate(all="ignore"):
            sd = np.sqrt(np.maximum(np.diagonal(self.covariance), 1e-300))
            return self.covariance / np.outer(sd, sd)

    def interval(self, level: float = 0.95, method: Method | None = None) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter.

        bootstrap, the default where there are resamples: their percentiles, stretched for small samples
        (`Scheme.stretch`). profile, the default otherwise: where the objective, minimised over the other
        parameters, leaves its threshold; an end that is never reached is the parameter's bound or infinite. Rows count
        as independent.

        Raises:
            UserError: a level outside (0, 1), an unknown method, or bootstrap without draws.
        """
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        method = method or ("profile" if self.draws is None else "bootstrap")
        if method not in ("bootstrap", "profile"):
            raise UserError(f"method is {method!r}: use bootstrap or profile.")
        if method == "profile":
            return intervals.profiles(self, level)
        if self.draws is None:
            told = "fit with bootstrap=1000, or ask for method='profile'"
            raise UserError(f"There are no bootstrap draws: {told}.")
        # Linear parameters may be at a bound, which is infinitely far away in z: theirs are natural units.
        natural = np.array([p in self.law.linear for p in self.law.parameters])
        draws = np.where(natural, self.draws, self.law.to_z(self.draws))
        center = np.where(natural, self.law.from_z(self.z[None])[0][0], self.z)
        ends = self._percentiles(draws, center, level)
        ends = np.where(natural, ends, self.law.from_z(ends)[0])
        limits = np.array([self.law.limits(name) for name in self.law.parameters])
        low, high = np.maximum(ends[0], limits[:, 0]), np.minimum(ends[1], limits[:, 1])
        found = dict(zip(self.law.parameters, zip(low.tolist(), high.tolist(), strict=True), strict=True))
        return {name: found[name] for name in self.law.free}

    def _percentiles(self, draws: np.ndarray, center: np.ndarray, level: float) -> np.ndarray:
        """(2, …) percentiles of draws (B, …), stretched about the estimate."""
        assert self.scheme is not None
        ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        stretch = self.scheme.stretch(level, len(self.law.free))
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(ends == center, ends, center + stretch * (ends - center))

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
            UserError: a column that is missing or has no finite value; for a likelihood law a prediction band, or one
                without bootstrap draws.
        """
        df = df if isinstance(df, pd.DataFrame) else pd.DataFrame(df)
        with np.errstate(all="ignore"):  # a degenerate law leaves the range of floats beyond its data
            value, ends = self._bands(df, band, level, repeats)
        series = pd.Series(value, index=df.index, name=self.table.names["y"])
        if ends is None:
            return series
        low, high = np.minimum(*ends), np.maximum(*ends)
        return pd.DataFrame({"prediction": series, "low": low, "high": high}, index=df.index)

    def _bands(
        self, df: pd.DataFrame, band: Band | None, level: float, repeats: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(m,) predictions and (2, m) ends, in natural units."""
        if self.law.predictor is not None:
            return self._likelihood_bands(df, band, level)
        columns = {c: numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem = replace(self.problem, columns=columns)
        center, noise = problem.predict(self.z[None])[0], None
        if band == "prediction":
            name = self.table.record["weights"]
            known = numbers(df, name, "weights") if name in df.columns else np.median(self.table.weights)
            noise = self.sizes_at(center, np.broadcast_to(known, len(df)))
        e = self.residuals / self.sizes * np.sqrt(len(self.table) / self.freedom)
        ends = None
        if band is not None and self.draws is not None:
            draws = problem.predict(self.law.to_z(self.draws))
            if noise is not None:
                rng = np.random.default_rng(self.plan.seed)
                draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
            ends = self._percentiles(draws, center, level)
        elif band is not None:
            J = problem.jacobian(self.z[None])[1][0]
            variance = np.einsum("pm,pq,qm->m", J, intervals.covariance(self), J)
            variance = variance if noise is None else variance + np.mean(e**2) * noise**2 / repeats
            half = stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(variance)
            ends = np.stack([center - half, center + half])
        value = to_space(center, self.space, "linear")[0]
        return value, None if ends is None else to_space(ends, self.space, "linear")[0]

    def _likelihood_bands(
        self, df: pd.DataFrame, band: Band | None, level: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        predictor = self.law.predictor
        assert predictor is not None
        names = [n for n in inspect.signature(predictor).parameters if n not in self.law.parameters]
        columns = [numbers(df, self.table.names.get(name, name), f"x[{name!r}]") for name in names]

        def at(values: np.ndarray) -> np.ndarray:
            return predictor(*columns, **{p: values[:, [j]] for j, p in enumerate(self.law.parameters)})

        center = at(self.law.from_z(self.z[None])[0])[0]
        if band is None:
            return center, None
        if self.draws is None or band == "prediction":
            raise UserError(
                f"The law {self.law.name!r} has confidence bands only, and only after a bootstrap: fit "
                "with bootstrap=1000."
            )
        return center, self._percentiles(at(self.draws), center, level)
