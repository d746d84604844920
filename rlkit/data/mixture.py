"""How many tasks each source gives to each step: exact proportions, a pure function of config and step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlkit.config import RunConfig


def apportion(total: int, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """`total` seats by weight, by Webster's method (Sainte-Laguë): (sources,) whole numbers that sum to it.

    It is house-monotone: a larger total takes nothing away from any source. Hence counts up to a step
    need no memory of earlier steps, and smaller data sets are contained in larger ones.
    """
    share = np.asarray(weights, float)
    share = share / share.sum()
    seats = np.maximum(np.floor(total * share).astype(int) - len(share) - 1, 0)  # never above the result
    for _ in range(total - int(seats.sum())):
        seats[int(np.argmax(share / (seats + 0.5)))] += 1
    return seats


class Schedule:
    """Cumulative tasks of each source up to a step, for every order but the adaptive one."""

    def __init__(self, config: RunConfig, weights: np.ndarray) -> None:
        self.batch = config.data.train_batch_size
        self.order = config.data.order
        self.weights = weights
        self.stages = [(s.start, np.asarray(s.weights)) for s in config.data.stages]
        self.totals = apportion(config.trainer.total_training_steps * self.batch, weights)

    def until(self, step: int) -> np.ndarray:
        """(sources,) tasks in steps 1 … step."""
        total = step * self.batch
        if self.order == "stages":
            ends = [start - 1 for start, _ in self.stages[1:]] + [step]
            parts = [
                apportion(max(0, min(end, step) - start + 1) * self.batch, weights)
                for (start, weights), end in zip(self.stages, ends, strict=True)
            ]
            return np.sum(parts, axis=0)
        if self.order == "sequential" and total <= self.totals.sum():
            before = np.cumsum(self.totals) - self.totals
            return np.clip(total - before, 0, self.totals)
        return apportion(total, self.weights)


class Adaptive:
    """Weights by running pass rate: w_i = base_i · (p_i(1 − p_i) + 0.02), p_i an average over about 20 steps.

    p(1 − p) is the variance of a 0/1 reward: what a group-relative advantage can learn from.
    """

    decay, floor = 0.95, 0.02

    def __init__(self, base: np.ndarray, batch: int) -> None:
        self.base, self.batch = base, batch
        self.step, self.shown, self.rates = 0, np.zeros(len(base), int), np.full(len(base), 0.5)

    def plan(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        if step != self.step + 1:
            raise ValueError(
                f"an adaptive curriculum after step {self.step} gives step {self.step + 1}, not {step}"
            )
        return self.shown, apportion(self.batch, self.base * (self.rates * (1 - self.rates) + self.floor))

    def observe(self, step: int, graded: Sequence[tuple[int, bool]]) -> None:
        _, counts = self.plan(step)
        for i in {i for i, _ in graded}:
            rate = float(np.mean([correct for j, correct in graded if j == i]))
            self.rates[i] = self.decay * self.rates[i] + (1 - self.decay) * rate
        self.shown, self.step = self.shown + counts, step

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "shown": self.shown.tolist(), "rates": self.rates.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step, self.shown, self.rates = state["step"], np.array(state["shown"]), np.array(state["rates"])
