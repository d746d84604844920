"""What a search found: a law, the rows it was fitted to, and the parameters at which the loss is least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlkit.laws.law import Law
from rlkit.laws.losses import Loss
from rlkit.laws.solver import Problem, to_space
from rlkit.laws.table import Table


@dataclass(frozen=True)
class Starts:
    """How the search went.

    Attributes:
        tried: starts that were followed. agree: how many reached the best objective within 1e-6 of it.
        spread: (low, high) of each parameter over those. worst: the highest objective as a multiple of the best.
        overruled: parameters along which a walk away from the optimum, where the starts agreed, found a better one.
    """

    tried: int
    agree: int
    spread: Mapping[str, tuple[float, float]]
    worst: float
    overruled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Optimum:
    """One law fitted to one table.

    Attributes:
        law, loss, table, problem: what was fitted to what; residuals are observed - predicted in
            `problem.space`.
        z: (p,) the optimum in the engine's coordinates.
        objective: sum over rows of weight times loss. minimum: the same of the loss as smoothed for the solver.
        gradient: largest slope of the objective in z, as a share of the objective.
        condition: condition number of the curvature in z, each coordinate scaled to unit curvature.
        starts: how many starts agree.
        at_bound: linear parameters that the search drove to a bound, and that bound.
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
    def freedom(self) -> int:
        """Rows less free parameters."""
        return len(self.table) - int(self.free.sum())

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
    def sizes(self) -> np.ndarray:
        """(n,) what a residual of standard deviation 1 has at each row: 1/sqrt(weight), and with the binomial loss
        sqrt(p·(1 - p)/weight)."""
        w = self.table.weights
        return np.sqrt(self.predicted * (1 - self.predicted) / w) if self.loss.name == "binomial" else w**-0.5

    @property
    def slopes(self) -> np.ndarray:
        """(n,) derivative of the loss in the prediction."""
        return self.loss(self.predicted[None], self.observed[None]).slope[0]

    @property
    def spread(self) -> float:
        """Standard deviation of y in residual space."""
        return float(np.std(self.observed)) or 1.0


def scaled_curvature(
    problem: Problem, z: np.ndarray, loss: Loss, y: np.ndarray, w: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """J'WJ over the free coordinates with unit diagonal: what the data say of the parameters, whatever the
    loss."""
    with np.errstate(all="ignore"):
        J = problem.jacobian(z[None])[1][0][free]
        curvature = np.broadcast_to(
            loss(problem.predict(z[None]), y).curvature if loss.name == "binomial" else 1.0, (1, len(w))
        )[0]
        H = (J * w * curvature) @ J.T
    d = np.sqrt(np.maximum(np.nan_to_num(np.diagonal(H)), 1e-300))
    return np.nan_to_num(H / np.outer(d, d))
