"""How many tasks each source gives to each step, a pure function of config and step, and which tasks they are."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count as counting
from itertools import islice

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
AT_ONCE = 1024
"""Most tasks that are looked at together."""


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


def planned(config: RunConfig, weights: np.ndarray, step: int) -> np.ndarray:
    """(sources,) tasks of each source in steps 1 … step, by `data.order` and (sources,) weights."""
    data, total = config.data, step * config.data.train_batch_size
    if data.order == "stages":
        starts = [stage.start for stage in data.stages]
        lasting = [
            min(end, step + 1) - start for start, end in zip(starts, [*starts[1:], step + 1], strict=True)
        ]
        parts = [
            apportion(max(0, n) * data.train_batch_size, stage.weights)
            for n, stage in zip(lasting, data.stages, strict=True)
        ]
        return np.sum(parts, axis=0)
    whole = config.trainer.total_training_steps * data.train_batch_size
    if data.order == "sequential" and total <= whole:
        totals = apportion(whole, weights)
        return np.clip(total - (np.cumsum(totals) - totals), 0, totals)
    return apportion(total, weights)


Allowed = Callable[[Sequence[Task]], list[bool]]
"""Whether each of some tasks may be used."""


def draw(
    source: Source, indices: Iterator[int], count: int, known: set[str], allowed: Allowed, endless: bool
) -> Iterator[tuple[int, Task]]:
    """Up to `count` tasks at the next indices, each with its index, that are allowed and whose problems are not in
    `known`, to which they are added. It ends where the indices do; an endless source ends after MAX_REFUSED others."""
    found = refused = 0
    while found < count and (refused <= MAX_REFUSED or not endless):
        if not (some := list(islice(indices, min(count - found, AT_ONCE)))):
            break
        tasks = source.tasks(some)
        for index, task, good in zip(some, tasks, allowed(tasks), strict=True):
            refused += 1
            if good and task.problem not in known:
                known.add(task.problem)
                found, refused = found + 1, 0
                yield index, task


class Supply:
    """Tasks of one source by ordinal 0, 1, …; beyond `limit` unique tasks they repeat in a new order.

    Args:
        label: the source's name in messages.
        seed: the run's seed.
        limit: unique tasks; None is as many as a file has, or without end, and then chance repeats of a small space
            stay.
        difficulty: field of extra_info that a curriculum sorts by, descending with a leading "-"; needs a limit.
    """

    def __init__(
        self, source: Source, label: str, seed: int, allowed: Allowed, limit: int | None, difficulty: str
    ) -> None:
        self.source, self.label, self.seed = source, label, seed
        self.allowed, self.limit, self.difficulty = allowed, limit, difficulty
        self._first, rows = HELD_OUT_INDICES + seed * SEED_STRIDE, source.total()
        self._pool: list[int] = []  # indices of the unique tasks
        self._keys: list[float] = []  # which a curriculum sorts them by
        self._pass: tuple[int, list[int]] = (-1, [])  # the last pass over the pool: its number and order
        if (count := rows if limit is None else limit) is None:
            return
        endless = rows is None
        indices = (
            counting(self._first) if rows is None else iter(generator("rows", seed, label).permutation(rows))
        )
        for index, task in draw(source, map(int, indices), count, set(), allowed, endless):
            self._pool.append(index)
            if difficulty:
                self._keys.append(self._key(task))
        if len(self._pool) < (limit or 1):
            raise self._exhausted(limit or 1)
        self.limit = len(self._pool)

    def tasks(self, start: int, count: int) -> list[Task]:
        """The tasks at these places of the source's own sequence."""
        if self.limit is None:
            return self._fresh(start, count)
        places = (divmod(ordinal, self.limit) for ordinal in range(start, start + count))
        return self.source.tasks([self._ordered(epoch)[place] for epoch, place in places])

    def _fresh(self, start: int, count: int) -> list[Task]:
        places = range(self._first + start, self._first + start + count)
        tasks: dict[int, Task] = {}
        for attempt in range(MAX_REFUSED):  # elsewhere, so that a place needs no other place
            left = [place for place in places if place not in tasks]
            if not left:
                return [tasks[place] for place in places]
            drawn = self.source.tasks([place + attempt * RETRY_STRIDE for place in left])
            found = zip(left, drawn, self.allowed(drawn), strict=True)
            tasks |= {place: task for place, task, allowed in found if allowed}
        raise self._exhausted("endless ones")

    def _ordered(self, epoch: int) -> list[int]:
        """Indices of one pass over the pool: shuffled from the second on, in a curriculum sorted by difficulty."""
        if epoch == 0 and not self.difficulty:
            return self._pool
        if self._pass[0] != epoch:
            rng = generator("epoch", self.seed, self.label, epoch)
            order = rng.permutation(len(self._pool)).tolist()
            if self.difficulty:
                order.sort(key=self._keys.__getitem__)
            self._pass = epoch, [self._pool[k] for k in order]
        return self._pass[1]

    def _key(self, task: Task) -> float:
        name = self.difficulty.removeprefix("-")
        value = task.extra_info.get(name)
        if not isinstance(value, int | float):
            known = ", ".join(k for k, v in task.extra_info.items() if isinstance(v, int | float))
            raise UserError(
                f"data.difficulty_field is {self.difficulty!r}, but a task of {self.label} has {name!r} = {value!r}: "
                f"use one of {known or 'no field: the source has no difficulty'}."
            )
        return -value if self.difficulty.startswith("-") else value

    def _exhausted(self, asked: int | str) -> UserError:
        return UserError(
            f"{self.label} has too few distinct tasks: {len(self._pool)} may be trained on and {asked} are asked for; "
            "the others repeat, or are held out or set aside for SFT. Lower evaluation.size, data.train_max_samples or "
            "(a curriculum has each task once) trainer.total_training_steps, or widen the source."
        )


def on_sft_side(key: str, ratio: float) -> bool:
    """Whether what has this key belongs to the supervised part of a pool: a pure function of content, so the
    parts are disjoint in any file, and a smaller ratio's part is contained in a larger one's."""
    return ratio > 0 and derive("sft", key) < ratio * 2.0**63
