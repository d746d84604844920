"""The order of training tasks (`data.order`): how many each source gives to each step, and which; curricula too."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.prompt_lengths import fitting
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import derive, generator
from rlkit.types import Task

SEED_STRIDE = 2**40  # indices that one run's seed may use; seeds have disjoint ranges
RETRY_STRIDE = 2**32
MAX_REFUSED = 2_000  # refused tasks in a row after which a source counts as exhausted
AT_ONCE = 1024  # most tasks that are looked at together


def apportion(total: int, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """`total` seats by weight, by Webster's method (Sainte-Laguë): (sources,) whole numbers that sum to it. A larger
    total takes nothing away from any source: counts up to a step need no memory of earlier ones, and smaller data sets
    are contained in larger ones."""
    share = np.asarray(weights, float)
    share = share / share.sum()
    seats = np.maximum(np.floor(total * share).astype(int) - len(share) - 1, 0)  # never above the result
    for _ in range(total - int(seats.sum())):
        seats[int(np.argmax(share / (seats + 0.5)))] += 1
    return seats


def planned(config: RunConfig, weights: np.ndarray, step: int) -> np.ndarray:
    """(sources,) tasks of each source in steps 1 … step, by `data.order` and (sources,) weights."""
    data, size = config.data, config.data.train_batch_size
    if data.order == "stages":
        lengths = np.diff([*(min(stage.start - 1, step) for stage in data.stages), step]).tolist()
        parts = [apportion(n * size, stage.weights) for n, stage in zip(lengths, data.stages, strict=True)]
        return np.sum(parts, axis=0)
    whole = config.trainer.total_training_steps * size
    if data.order == "sequential" and step * size <= whole:
        totals = apportion(whole, weights)
        return np.clip(step * size - (np.cumsum(totals) - totals), 0, totals)
    return apportion(step * size, weights)


def draw(
    source: Source, indices: Iterable[SupportsIndex], count: int, allowed: Callable[[list[Task]], list[bool]],
    known: set[str],
) -> Iterator[tuple[int, Task]]:  # fmt: skip
    """Up to `count` tasks at the next indices, each with its index, that are allowed and whose problems are not in
    `known`, to which they are added. It ends where the indices do; an endless source ends after MAX_REFUSED others."""
    indices, most = iter(indices), MAX_REFUSED if source.total() is None else float("inf")
    found = refused = 0
    while found < count and refused <= most:
        if not (some := list(map(int, itertools.islice(indices, min(count - found, AT_ONCE))))):
            return
        tasks = source.tasks(some)
        for index, task, good in zip(some, tasks, allowed(tasks), strict=True):
            refused += 1
            if good and task.problem not in known:
                known.add(task.problem)
                found, refused = found + 1, 0
                yield index, task


@dataclass
class Supply:
    """The training tasks of one source by ordinal 0, 1, …; beyond the unique ones they repeat in a new order."""

    config: RunConfig
    source: Source
    label: str  # its name in messages
    limit: int | None  # unique tasks; None: without end (chance repeats stay), or a file's, not read yet
    forbidden: set[str]  # problems that are evaluated
    side: Literal["rl", "sft"]
    overlong: int = 0  # prompts that data.filter_overlong_prompts left out of the tasks that were looked at

    def __post_init__(self) -> None:
        self._rows, self._sorted = self.source.total(), self.config.data.order == "curriculum"
        self.first = HELD_OUT_INDICES + self.config.seed * SEED_STRIDE
        self._pool: dict[int, float] = {}  # indices of the unique tasks, and what a curriculum sorts them by
        self._pass: tuple[int, list[int]] = (-1, [])  # the last pass over the pool: its number and order

    def unique(self) -> int | None:
        """How many unique tasks there are, None without end; the first call looks for them. UserError: too few."""
        count = self._rows if self.limit is None else self.limit
        if self._pool or count is None:
            return self.limit
        if self.limit == 0:
            mended = "raise data.train_max_samples or its weight, or set its weight to 0"
            raise UserError(f"{self.label} gets none of the unique tasks: {mended}.")
        rng = generator("rows", self.config.seed, self.label)
        places = itertools.count(self.first) if self._rows is None else rng.permutation(self._rows)
        found = draw(self.source, places, count, self._allowed, set())
        pool = {index: self._difficulty(task) if self._sorted else 0.0 for index, task in found}
        if len(pool) < (self.limit or 1):
            raise self._exhausted(len(pool), self.limit or 1)
        self._pool, self.limit = pool, len(pool)
        return self.limit

    def tasks(self, start: int, count: int) -> list[Task]:
        """The tasks at these places of the source's own sequence."""
        if (unique := self.unique()) is None:
            return self._fresh(range(self.first + start, self.first + start + count))
        places = (divmod(ordinal, unique) for ordinal in range(start, start + count))
        return self.source.tasks([self._ordered(epoch)[place] for epoch, place in places])

    def _fresh(self, places: range) -> list[Task]:
        tasks: dict[int, Task] = {}
        for attempt in range(MAX_REFUSED):  # elsewhere, so that a place needs no other place
            if not (left := [place for place in places if place not in tasks]):
                return [tasks[place] for place in places]
            drawn = self.source.tasks([place + attempt * RETRY_STRIDE for place in left])
            found = zip(left, drawn, self._allowed(drawn), strict=True)
            tasks |= {place: task for place, task, allowed in found if allowed}
        raise self._exhausted(0, "endless ones")

    def _ordered(self, epoch: int) -> list[int]:
        """Indices of one pass over the pool: shuffled from the second on, in a curriculum sorted by difficulty."""
        if self._pass[0] != epoch:
            order = list(self._pool)
            if epoch or self._sorted:
                rng = generator("epoch", self.config.seed, self.label, epoch)
                order = sorted(rng.permutation(order).tolist(), key=self._pool.__getitem__)
            self._pass = epoch, order
        return self._pass[1]

    def _allowed(self, tasks: Sequence[Task]) -> list[bool]:
        """Whether each task may be trained on, on this side."""
        allowed, ratio = [], self.config.data.sft_ratio
        for task, fits in zip(tasks, fitting(self.config, tasks), strict=True):
            new = task.problem not in self.forbidden
            self.overlong += new and not fits
            key = task.id if self._rows is None else task.problem  # a file may ask one under several truths
            # A pure function of content: the sides are disjoint in any file, a smaller ratio's within a larger one's.
            supervised = ratio > 0 and derive("sft", key) < ratio * 2.0**63
            allowed.append(new and fits and supervised == (self.side == "sft"))
        return allowed

    def _difficulty(self, task: Task) -> float:
        field, info = self.config.data.difficulty_field, task.extra_info
        name, sign = field.removeprefix("-"), -1 if field.startswith("-") else 1
        if isinstance(value := info.get(name), int | float):
            return sign * value
        known = ", ".join(k for k, v in info.items() if isinstance(v, int | float))
        problem = f"data.difficulty_field is {field!r}, but a task of {self.label} has {name!r} = {value!r}"
        raise UserError(f"{problem}: use one of {known or 'no field: the source has no difficulty'}.")

    def _exhausted(self, found: int, asked: int | str) -> UserError:
        return UserError(
            f"{self.label} has too few distinct tasks: {found} may be trained on and {asked} are asked for; the others "
            "repeat, or are held out or set aside for SFT. Lower evaluation.size, data.train_max_samples or (a "
            "curriculum has each task once) trainer.total_training_steps, or widen the source."
        )
