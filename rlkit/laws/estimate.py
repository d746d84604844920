"""An optimum with its uncertainty: resamples, intervals and predictions with bands.

The scale of robust profiles is estimated: an objective difference of s²·t²/2 with s² = sum(slope²)/(n - p)/
mean(curvature) plays the part of the likelihood-ratio statistic (Huber and Ronchetti 2009, ch. 13). For least squares
this is the F profile of lmfit's conf_interval.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import elementwise

from rlkit.errors import UserError
from rlkit.laws import bootstrap
from rlkit.laws.bootstrap import Draws, Scheme
from rlkit.laws.optimum import Optimum
from rlkit.laws.solver import minimise, to_space
from rlkit.laws.table import numbers

Band = Literal["confidence", "prediction"]
FAR = 30.0  # ln of the factor at which a parameter counts as having reached its bound
WALK = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, np.inf)  # in standard errors


@dataclass(frozen=True)
class Estimate(Optimum):
    """An optimum with so many resamples (`count`) of rows ("case") or residuals (`kind`) from a seed, or resamples that
    were drawn elsewhere (`given`); `notes` are shown with the warnings."""

    count: int = 0
    kind: str = "residual"
    seed: int = 0
    given: Draws | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def resampled(self) -> Draws | None:
        """The resamples (`bootstrap.resample`), drawn when first needed; None where none were asked for."""
        if self.given is not None or not self.count:
            return self.given
        return bootstrap.resample(self, self.kind, self.count, self.seed)

    @property
    def draws(self) -> np.ndarray | None:
        """(B, p) parameters of the resamples, None without a bootstrap."""
        return None if self.resampled is None else self.resampled.values

    @property
    def scheme(self) -> Scheme | None:
        """How the resamples were drawn."""
        return None if self.resampled is None else self.resampled.scheme

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the estimates, of the draws or else Wald's, which are NaN at a bound."""
        with np.errstate(all="ignore"):
            if self.draws is not None:
                sd = np.std(self.draws, axis=0, ddof=1)
            else:
                sd = np.sqrt(np.diagonal(wald_covariance(self))) * self.law.from_z(self.z)[1]
                sd[[p in self.at_bound for p in self.law.parameters]] = np.nan
        return dict(zip(self.law.parameters, sd.tolist(), strict=True))

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter: percentiles of the resamples, stretched for small samples; without any the
        profile (of independent rows), where the objective, minimised over the other parameters, leaves its threshold;
        an end that is never reached is the parameter's bound or infinite. A UserError for a level outside (0, 1)."""
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        if self.draws is None:
            return profiles(self, level)
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
        assert self.scheme is not None
        ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        stretch = self.scheme.stretch(level, len(self.law.free))
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(ends == center, ends, center + stretch * (ends - center))

    def predict(self, df: Any, band: Band | None = None, level: float = 0.95, repeats: int = 1) -> Any:
        """Predictions for the rows of df (a table or a mapping), whose columns are named as those fitted: without a
        band a Series, with one a DataFrame of prediction, low and high. "confidence" is of the law itself, "prediction"
        of the mean of `repeats` new measurements, with the weights in df's column of weights or the fit's median. A
        UserError for a column that is missing or not finite."""
        df = df if isinstance(df, pd.DataFrame) else pd.DataFrame(df)
        columns = {c: numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem, name = replace(self.problem, columns=columns), self.table.record["weights"]
        with np.errstate(all="ignore"):  # a degenerate law leaves the range of floats beyond its data
            center = problem.predict(self.z[None])[0]
            natural = to_space(center, self.space, "linear")[0]
            value = pd.Series(natural, df.index, name=self.table.names["y"])
            if band is None:
                return value
            noise, e = (
                np.zeros(len(df)),
                self.residuals / self.sizes() * np.sqrt(len(self.table) / self.freedom),
            )
            if band == "prediction":
                known = numbers(df, name, "weights") if name in df.columns else np.median(self.table.weights)
                noise = self.sizes(center, np.broadcast_to(known, len(df)))
            if self.draws is None:
                J = problem.jacobian(self.z[None])[1][0]
                variance = np.einsum("pm,pq,qm->m", J, wald_covariance(self), J)
                variance = variance + np.mean(e**2) * noise**2 / repeats
                half = stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(variance)
                ends = np.stack([center - half, center + half])
            else:
                draws = problem.predict(self.law.to_z(self.draws))
                if noise.any():
                    rng = np.random.default_rng(self.seed)
                    draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
                ends = self._percentiles(draws, center, level)
            ends = to_space(ends, self.space, "linear")[0]
        table = {"prediction": value, "low": np.minimum(*ends), "high": np.maximum(*ends)}
        return pd.DataFrame(table, index=df.index)


def _smooth_curvature(fit: Optimum) -> np.ndarray:
    """(n,) curvature of the loss; of robust ones as wide as residuals that the fit does not pass through."""
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
    if cluster is None and not fit.loss.robust:
        small = inverse * _scale(fit)
    else:
        scores, inflate = J * w * fit.slopes, n / (n - p)
        if cluster is not None:
            count = cluster.max() + 1
            scores = scores @ np.eye(count)[cluster]
            inflate = (count / (count - 1)) * (n - 1) / (n - p)
        small = inverse @ (scores @ scores.T) @ inverse * inflate
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
    """Ends of each free parameter's profile interval; both sides of every parameter walk outward together."""
    law, names = fit.law, fit.law.free
    index = np.repeat([law.parameters.index(n) for n in names], 2)
    side, rows = np.tile([-1.0, 1.0], len(names)), np.arange(len(index))
    unit = np.clip(np.sqrt(np.diagonal(wald_covariance(fit)))[index], 1e-4, 2.0)
    unit[[law.parameters[j] in fit.at_bound for j in index]] = 2.0  # no slope there, so no error either
    bounded = np.isfinite([law.limits(law.parameters[j]) for j in index]).any(axis=1)
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
    over, offsets = np.array(heights) > limit, np.array(offsets)
    crossed, at = over.any(axis=0), np.repeat(fit.z[None], len(index), axis=0)
    first = np.where(crossed, over.argmax(axis=0), 1)

    def beyond(offset: np.ndarray, row: np.ndarray) -> np.ndarray:
        i = row.astype(int)
        at[i], height = _constrained(fit, at[i], index[i], fit.z[index[i]] + side[i] * offset)
        return height - limit

    between = offsets[first - 1, rows], offsets[first, rows]
    found = elementwise.find_root(beyond, between, args=(rows,), tolerances={"xrtol": 1e-4}, maxiter=30)
    at[rows, index] = fit.z[index] + side * np.where(crossed, found.x, np.inf)
    ends = law.from_z(at)[0][rows, index].tolist()
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
