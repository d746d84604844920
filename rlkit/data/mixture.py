"""How many tasks each source gives to each step: exact proportions, a pure function of config and step."""

from collections.abc import Sequence

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
