"""How many tasks each source gives to each step, a pure function of config and step, and which tasks they are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlkit.config import RunConfig
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import derive, generator
from rlkit.types import Task

SEED_STRIDE = 2**40
"""Indices that one run's seed may use; seeds have disjoint ranges."""
RETRY_STRIDE = 2**32
MAX_REFUSED = 2_000
"""Refused tasks in a row after which a source counts as exhausted."""
AT_ONCE, FEWEST = 1024, 64
"""Most tasks that are looked at together, and fewest rows of a file that are read."""


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

    def plan(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """(sources,) tasks before the step, and in it."""
        before = self.until(step - 1)
        return before, self.until(step) - before


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


class Supply:
    """Tasks of one source by ordinal 0, 1, …; beyond `limit` unique tasks they repeat in a new order.

    Args:
        source: where tasks come from.
        label: the source's name in messages.
        seed: the run's seed.
        allowed: whether each of some tasks may be trained on.
        limit: unique tasks; None is as many as a file has, or without end, and then chance repeats of a small space
            stay.
        difficulty: sort key of a curriculum; needs a limit.
    """

    def __init__(
        self,
        source: Source,
        label: str,
        seed: int,
        allowed: Callable[[Sequence[Task]], list[bool]],
        limit: int | None = None,
        difficulty: Callable[[Task], float] | None = None,
    ) -> None:
        self.source, self.label, self.seed = source, label, seed
        self.allowed, self.difficulty, self.limit = allowed, difficulty, limit
        self._first = HELD_OUT_INDICES + seed * SEED_STRIDE
        size = source.total()
        self._rows = None if size is None else generator("rows", seed, label).permutation(size)
        self._pool: list[int] = []
        self._seen: set[str] = set()
        self._next = 0
        self._passes: dict[int, list[int]] = {}
        if limit is None and size is not None:
            self._fill(size)
            self.limit = len(self._pool)
            if not self._pool:
                raise self._exhausted()

    def tasks(self, start: int, count: int) -> list[Task]:
        """The tasks at these places of the source's own sequence."""
        if self.limit is None:
            return self._fresh(start, count)
        self._fill(min(start + count, self.limit))
        return self.source.tasks([self._index(ordinal) for ordinal in range(start, start + count)])

    def _fresh(self, start: int, count: int) -> list[Task]:
        tasks = self.source.tasks(range(self._first + start, self._first + start + count))
        refused = [k for k, allowed in enumerate(self.allowed(tasks)) if not allowed]
        for attempt in range(1, MAX_REFUSED):  # elsewhere, so that a place needs no other place
            if not refused:
                return tasks
            again = self.source.tasks([self._first + start + k + attempt * RETRY_STRIDE for k in refused])
            for k, task in zip(refused, again, strict=True):
                tasks[k] = task
            refused = [k for k, allowed in zip(refused, self.allowed(again), strict=True) if not allowed]
        raise self._exhausted()

    def _index(self, ordinal: int) -> int:
        epoch, place = divmod(ordinal, self.limit or 1)
        return self._pool[place] if epoch == 0 and self.difficulty is None else self._pass(epoch)[place]

    def _pass(self, epoch: int) -> list[int]:
        """Indices of one pass over the pool: shuffled, then sorted by difficulty in a curriculum."""
        if epoch not in self._passes:
            self._fill(self.limit or 0)
            order = generator("epoch", self.seed, self.label, epoch).permutation(self.limit or 0)
            indices = [self._pool[int(k)] for k in order]
            if self.difficulty is not None:
                ranks = dict(zip(indices, map(self.difficulty, self.source.tasks(indices)), strict=True))
                indices.sort(key=ranks.__getitem__)
            self._passes = {epoch: indices}
        return self._passes[epoch]

    def _fill(self, count: int) -> None:
        """Extend the pool to `count` distinct allowed problems, or to all there are."""
        refused = 0
        while len(self._pool) < count and (refused <= MAX_REFUSED or self._rows is not None):
            drawn = self._draw(min(count - len(self._pool), AT_ONCE))
            if not drawn:
                break
            tasks = self.source.tasks(drawn)
            for index, task, allowed in zip(drawn, tasks, self.allowed(tasks), strict=True):
                refused += 1
                if allowed and task.problem not in self._seen:
                    refused = 0
                    self._seen.add(task.problem)
                    self._pool.append(index)
        if self.limit is not None and len(self._pool) < count:
            raise self._exhausted()

    def _draw(self, count: int) -> list[int]:
        """The next indices of the source in this run's order: endless, or every row once."""
        count = count if self._rows is None else max(count, FEWEST)
        start, self._next = self._next, self._next + count
        if self._rows is None:
            return list(range(self._first + start, self._first + start + count))
        return self._rows[start : start + count].tolist()

    def _exhausted(self) -> UserError:
        asked = "endless ones" if self.limit is None else str(self.limit)
        lower = "Lower evaluation.size or data.train_max_samples"
        if self.difficulty is not None:
            lower = (
                "A curriculum has each task once unless data.train_max_samples is fewer than "
                "trainer.total_training_steps × data.train_batch_size: lower one of them"
            )
        return UserError(
            f"{self.label} has too few distinct tasks: {len(self._pool)} may be trained on and {asked} are "
            f"asked for; the others repeat, or are held out or set aside for SFT. {lower}, or widen the source."
        )


def difficulty_key(field: str, label: str) -> Callable[[Task], float]:
    """The sort key of a curriculum: a number in extra_info, negated for a field with a leading "-"."""
    name, sign = field.removeprefix("-"), -1.0 if field.startswith("-") else 1.0

    def key(task: Task) -> float:
        value = task.extra_info.get(name)
        if not isinstance(value, int | float):
            known = ", ".join(k for k, v in task.extra_info.items() if isinstance(v, int | float))
            raise UserError(
                f"data.difficulty_field is {field!r}, but a task of {label} has {name!r} = {value!r}: "
                f"use one of {known or 'no field: the source has no difficulty'}."
            )
        return sign * value

    return key


def on_sft_side(key: str, ratio: float) -> bool:
    """Whether what has this key belongs to the supervised part of a pool: a pure function of content, so the
    parts are disjoint in any file, and a smaller ratio's part is contained in a larger one's."""
    return ratio > 0 and derive("sft", key) < ratio * 2.0**63
