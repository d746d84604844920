"""Losses of a fit: sums over rows, never means, of a function of prediction and observation.

Each gives, cell by cell, its value, its first and second derivative in the prediction, and the curvature of a
quadratic that lies above it (what damps the solver where the true curvature vanishes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlkit.errors import UserError


class Terms(NamedTuple):
    """Value, slope, curvature and majorant curvature of the loss, each (B, n)."""

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray | float
    majorant: np.ndarray | float


@dataclass(frozen=True)
class Loss:
    """A loss by name.

    ls: r²/2 · huber: r²/2 inside delta, delta·(|r| - delta/2) outside (sum, as Hoffmann et al. 2022) ·
    lad: |r| · quantile: r·(tau - [r < 0]) with r = y - prediction · binomial: -ln likelihood of a pass rate y
    out of n = weight samples, less that of the saturated model · likelihood: the law's own value.
    lad and quantile are smoothed within `delta` of zero; `path` leads down to a negligible one.
    """

    name: str
    delta: float = 0.0
    tau: float = 0.5

    @property
    def label(self) -> str:
        if self.name == "huber":
            return f"Huber, delta = {self.delta:g}"
        return f"quantile {self.tau:g}" if self.name == "quantile" else self.name

    def __call__(self, prediction: np.ndarray, y: np.ndarray) -> Terms:
        if self.name == "likelihood":
            # Outer products of the rows' scores stand in for the Hessian (Berndt et al. 1974).
            return Terms(prediction, np.ones_like(prediction), 1.0, 1.0)
        if self.name == "binomial":
            return _binomial(prediction, y)
        r = prediction - y
        if self.name == "ls":
            return Terms(0.5 * r * r, r, 1.0, 1.0)
        return self._huber(r)

    def _huber(self, r: np.ndarray) -> Terms:
        size, slope = np.abs(r), np.clip(r, -self.delta, self.delta)
        value = slope * (r - 0.5 * slope)
        inside = (size <= self.delta).astype(float)
        majorant = self.delta / np.maximum(size, self.delta)
        if self.name == "huber":
            return Terms(value, slope, inside, majorant)
        # A prediction above y (r > 0) costs 1 - tau, one below costs tau; lad is twice the median's loss.
        side = np.where(r > 0, 1 - self.tau, self.tau) * ((2 if self.name == "lad" else 1) / self.delta)
        return Terms(side * value, side * slope, side * inside, side * majorant)

    def path(self, scale: float) -> list[Loss]:
        """Losses to minimise in turn, ending with this one; `scale` is the spread of y in residual units."""
        if self.name == "huber":
            wide = np.geomspace(scale / 10, self.delta, 4) if self.delta < scale / 30 else [self.delta]
            return [replace(self, delta=float(d)) for d in wide]
        if self.name in ("lad", "quantile"):
            return [replace(self, delta=float(d)) for d in scale * np.geomspace(1e-1, 1e-9, 14)]
        return [self]

    def refit(self, scale: float) -> list[Loss]:
        """The shorter path from a neighbouring optimum, e.g. from that of all rows to that of a resample."""
        return self.path(scale)[3:] if self.name in ("lad", "quantile") else [self]


def _binomial(p: np.ndarray, y: np.ndarray) -> Terms:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(y > 0, y * np.log(y / p), 0.0) + np.where(
            y < 1, (1 - y) * np.log((1 - y) / (1 - p)), 0.0
        )
        fisher = 1 / (p * (1 - p))
    return Terms(np.where((p > 0) & (p < 1), value, np.inf), (p - y) * fisher, fisher, fisher)


def make_loss(loss: str | Loss | None, delta: float | None) -> Loss:
    """A Loss from its name: ls, huber, huber:0.01, lad, quantile:0.9, binomial; without one, ls, or huber where there
    is a delta.

    Raises:
        UserError: an unknown name, a number that the loss does not take, a delta or quantile out of range.
    """
    if isinstance(loss, Loss):
        return loss
    name, _, argument = (loss or ("ls" if delta is None else "huber")).partition(":")
    known: Sequence[str] = ("ls", "huber", "lad", "quantile", "binomial")
    if name not in known:
        raise UserError(f"Unknown loss {loss!r}: use one of ls, huber, lad, quantile:0.9, binomial.")
    if argument and name not in ("huber", "quantile"):
        raise UserError(f"loss is {loss!r}, but {name} takes no number: write {name!r}.")
    try:
        number = float(argument) if argument else None
    except ValueError:
        raise UserError(
            f"loss is {loss!r}: write a number behind the colon, e.g. 'quantile:0.9' or 'huber:0.01'."
        ) from None
    if name == "huber":
        delta = number if number is not None else 1e-3 if delta is None else delta
        if not 0 < delta < np.inf:
            raise UserError(
                f"delta is {delta!r}, but Huber's loss needs delta > 0, in units of the residual."
            )
        return Loss(name, delta)
    tau = 0.5 if number is None else number
    if not 0 < tau < 1:
        raise UserError(f"loss is {loss!r}, but a quantile lies between 0 and 1, e.g. 'quantile:0.9'.")
    return Loss(name, 0.0, tau)
