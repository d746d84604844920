"""An optimum with its uncertainty: resamples, intervals and predictions with bands.

The scale of robust profiles is estimated: an objective difference of s²·t²/2 with s² = sum(slope²)/(n - p)/
mean(curvature) plays the part of the likelihood-ratio statistic (Huber and Ronchetti 2009, ch. 13). For least squares
this is the F profile of lmfit's conf_interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import elementwise

from rlkit.errors import UserError
from rlkit.laws import bootstrap
from rlkit.laws.bootstrap import Draws, Plan, Scheme
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import Problem, Solution, minimise, to_space
from rlkit.laws.table import numbers

Band = Literal["confidence", "prediction"]
FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound
WALK = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf)  # in standard errors


@dataclass(frozen=True)
class Estimate(Optimum):
    """An optimum and how its uncertainty is found: the resamples asked for, all that the search `ends` at, where they
    may start, or resamples that were drawn elsewhere (`given`); `notes` are shown with the warnings."""

    plan: Plan
    ends: Solution = field(repr=False)
    given: Draws | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def resampled(self) -> Draws | None:
        """The resamples, drawn when first needed; None where none were asked for. A UserError as of
        `bootstrap.resample`."""
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

    @cached_property
    def covariance(self) -> np.ndarray:
        """(p, p) covariance of the estimates in natural units: of the draws, or without them Wald's."""
        with np.errstate(all="ignore"):
            if self.draws is not None:
                return np.cov(self.draws.T).reshape(len(self.z), len(self.z))
            slope = self.law.from_z(self.z[None])[1][0]
            return wald_covariance(self) * np.outer(slope, slope)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the estimates; without a bootstrap NaN for one at a bound."""
        with np.errstate(over="ignore", invalid="ignore"):
            sd = np.sqrt(np.diagonal(self.covariance)).tolist()
        found = dict(zip(self.law.parameters, sd, strict=True))
        return found if self.draws is not None else {**found, **dict.fromkeys(self.at_bound, np.nan)}

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter: percentiles of the resamples, stretched for small samples; without any the
        profile (of independent rows), where the objective, minimised over the other parameters, leaves its threshold;
        an end that is never reached is the parameter's bound or infinite. A UserError for a level outside (0, 1)."""
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        if self.draws is None:
            return profiles(self, level)
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

    def predict(
        self,
        df: pd.DataFrame | Mapping[str, Any],
        band: Band | None = None,
        level: float = 0.95,
        repeats: int = 1,
    ) -> Any:
        """Predictions for the rows of df, under the column names that the law was fitted with: without a band a Series,
        with one a DataFrame of prediction, low and high. "confidence" is of the law itself, "prediction" of the mean of
        `repeats` new measurements, with the weights in df's column of weights or the fit's median. A UserError for a
        column that is missing or not finite."""
        df = df if isinstance(df, pd.DataFrame) else pd.DataFrame(df)
        columns = {c: numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem, name = replace(self.problem, columns=columns), self.table.record["weights"]
        with np.errstate(all="ignore"):  # a degenerate law leaves the range of floats beyond its data
            center = problem.predict(self.z[None])[0]
            natural = to_space(center, self.space, "linear")[0]
            value = pd.Series(natural, df.index, name=self.table.names["y"])
            if band is None:
                return value
            noise = np.zeros(len(df))
            if band == "prediction":
                known = numbers(df, name, "weights") if name in df.columns else np.median(self.table.weights)
                noise = self.sizes_at(center, np.broadcast_to(known, len(df)))
            ends = to_space(self._ends(problem, center, noise, level, repeats), self.space, "linear")[0]
        table = {"prediction": value, "low": np.minimum(*ends), "high": np.maximum(*ends)}
        return pd.DataFrame(table, index=df.index)

    def _ends(
        self, problem: Problem, center: np.ndarray, noise: np.ndarray, level: float, repeats: int
    ) -> np.ndarray:
        """(2, m) ends of a band about the predictions `center` (m,), in residual space."""
        e = self.residuals / self.sizes * np.sqrt(len(self.table) / self.freedom)
        if self.draws is None:
            J = problem.jacobian(self.z[None])[1][0]
            variance = np.einsum("pm,pq,qm->m", J, wald_covariance(self), J)
            variance = variance + np.mean(e**2) * noise**2 / repeats
            half = stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(variance)
            return np.stack([center - half, center + half])
        draws = problem.predict(self.law.to_z(self.draws))
        if noise.any():
            rng = np.random.default_rng(self.plan.seed)
            draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
        return self._percentiles(draws, center, level)


def _smooth_curvature(fit: Optimum) -> np.ndarray:
    """(n,) curvature of the loss, for robust ones with delta widened to the residuals' own spread but for those that
    the fit passes through, about as many as it has parameters."""
    loss, r = fit.loss, fit.residuals
    if not loss.robust:
        return np.broadcast_to(loss(fit.predicted[None], fit.observed[None]).curvature, (1, len(r)))[0]
    told = np.sort(np.abs(r - np.median(r)))[min(len(fit.law.free), len(r) - 1) :]
    width = max(loss.delta, 0.8 * 1.4826 * np.median(told) * len(r) ** -0.2, 1e-12)  # a kernel's bandwidth
    return (np.abs(r) <= width) * (loss.delta if loss.name == "huber" else 1.0) / width


def wald_covariance(fit: Optimum) -> np.ndarray:
    """(p, p) Wald covariance in z: s²·H⁻¹ for least squares, the sandwich H⁻¹·G·H⁻¹ for robust losses, H⁻¹ scaled by
    its dispersion where that exceeds 1 for the binomial; with clusters the sandwich of their sums."""
    J = fit.problem.jacobian(fit.z[None])[1][0][fit.law.estimated]
    w, cluster, (p, n) = fit.table.weights, fit.table.cluster, J.shape
    inverse = np.linalg.pinv((J * w * _smooth_curvature(fit)) @ J.T, rcond=1e-13, hermitian=True)
    scores = J * w * fit.slopes
    if cluster is not None:
        count = cluster.max() + 1
        scores = scores @ np.eye(count)[cluster]
        small = inverse @ (scores @ scores.T) @ inverse * (count / (count - 1)) * (n - 1) / (n - p)
    elif fit.loss.robust:
        small = inverse @ (scores @ scores.T) @ inverse * n / (n - p)
    else:
        small = inverse * _scale(fit)
    out = np.zeros((len(fit.z), len(fit.z)))
    out[np.ix_(fit.law.estimated, fit.law.estimated)] = small
    return out


def _scale(fit: Optimum) -> float:
    """What an objective difference of t²/2 is multiplied by."""
    if not fit.loss.robust:
        spread = float(2 * fit.objective / fit.freedom)
        return spread if fit.loss.name == "ls" else max(1.0, spread)
    w = fit.table.weights
    mean = max((w * _smooth_curvature(fit)).mean(), 1e-300)
    return float((w**2 * fit.slopes**2).sum() / fit.freedom / mean)


def profiles(fit: Optimum, level: float) -> dict[str, tuple[float, float]]:
    """Ends of each free parameter's profile interval; one that is never reached is the bound or infinite. Both sides of
    every parameter walk outward together."""
    law, names = fit.law, fit.law.free
    index = np.repeat([law.parameters.index(n) for n in names], 2)
    side = np.tile([-1.0, 1.0], len(names))
    unit = np.clip(np.sqrt(np.diagonal(wald_covariance(fit)))[index], 1e-4, 2.0)
    unit[[law.parameters[j] in fit.at_bound for j in index]] = 2.0  # no slope there, so no error either
    bounded = np.array([np.isfinite(law.limits(law.parameters[j])).any() for j in index])
    t = float(stats.t.ppf((1 + level) / 2, fit.freedom))
    limit = fit.minimum + 0.5 * t * t * _scale(fit)
    reach = np.where(bounded, FAR, 1e4 * unit)
    offsets, heights = [np.zeros(len(index))], [np.full(len(index), fit.minimum)]
    at = np.repeat(fit.z[None], len(index), axis=0)
    for factor in WALK:
        offset = np.minimum(factor * unit, reach)
        at, height = _constrained(fit, at, index, fit.z[index] + side * offset)
        offsets.append(offset)
        heights.append(height)
        if np.all((height > limit) | (offset >= reach)):
            break
    found = _crossings(fit, index, side, np.array(offsets), np.array(heights), limit)
    ends = [
        law.limits(law.parameters[j])[k % 2]
        if np.isinf(found[k])
        else float(law.natural(j, fit.z[j] + side[k] * found[k])[0])
        for k, j in enumerate(index)
    ]
    return dict(zip(names, zip(ends[::2], ends[1::2], strict=True), strict=True))


def _constrained(
    fit: Optimum, at: np.ndarray, index: np.ndarray, fixed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minima over the other parameters with coordinate index[i] of row i held at fixed[i]."""
    start, rows = at.copy(), np.arange(len(at))
    start[rows, index] = fixed
    free = np.repeat(fit.law.estimated[None], len(at), axis=0)
    free[rows, index] = False
    losses = fit.loss.refit(fit.spread)
    solution = minimise(fit.problem, start, fit.observed, fit.table.weights, losses, 1e-9, free)
    return solution.z, solution.objective


def _crossings(fit: Optimum, index, side, offsets, heights, limit: float) -> np.ndarray:
    """Offsets at which each walk crosses the limit; infinite where none does."""
    crossed = (heights > limit).any(axis=0)
    first, rows = np.where(crossed, (heights > limit).argmax(axis=0), 1), np.arange(len(index))
    at = np.repeat(fit.z[None], len(index), axis=0)

    def beyond(offset: np.ndarray, row: np.ndarray) -> np.ndarray:
        i = row.astype(int)
        at[i], height = _constrained(fit, at[i], index[i], fit.z[index[i]] + side[i] * offset)
        return height - limit

    ends = offsets[first - 1, rows], offsets[first, rows]
    found = elementwise.find_root(beyond, ends, args=(rows,), tolerances={"xrtol": 1e-4}, maxiter=30)
    return np.where(crossed, found.x, np.inf)
