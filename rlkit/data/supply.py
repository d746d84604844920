"""The training tasks of one source, by ordinal: distinct where a number of unique tasks is asked for,
never one that is held out or on the other side of the SFT:RL split."""

from collections.abc import Callable, Iterator

from rlkit.data.lengths import PromptLengths
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import derive, generator
from rlkit.types import Task

SEED_STRIDE = 2**40
"""Indices that one run's seed may use; seeds have disjoint ranges."""
RETRY_STRIDE = 2**32
MAX_REFUSED = 2_000
"""Refused tasks in a row after which a source counts as exhausted."""
AT_ONCE = 256
"""Prompts whose tokens are counted together."""


class Supply:
    """Tasks of one source by ordinal 0, 1, …; beyond `limit` unique tasks they repeat in a new order.

    Args:
        source: where tasks come from.
        label: the source's name in messages.
        seed: the run's seed.
        allowed: whether a task may be trained on.
        limit: unique tasks; None is without end, and then chance repeats of a small space stay.
        difficulty: sort key of a curriculum; needs a limit.
        lengths: counts the tokens of many prompts at once, where `allowed` asks for those of each.
    """

    def __init__(
        self,
        source: Source,
        label: str,
        seed: int,
        allowed: Callable[[Task], bool],
        limit: int | None = None,
        difficulty: Callable[[Task], float] | None = None,
        lengths: PromptLengths | None = None,
    ) -> None:
        self.source, self.label, self.seed, self.lengths = source, label, seed, lengths
        self.allowed, self.difficulty, self.limit = allowed, difficulty, limit
        size = source.total()
        self._rows = None if size is None else generator("rows", seed, label).permutation(size)
        self._pool: list[int] = []
        self._seen: set[str] = set()
        self._candidates = self._drawn()
        self._passes: dict[int, list[int]] = {}
        if limit is None and size is not None:
            self._fill(size)
            self.limit = len(self._pool)
            if not self._pool:
                raise self._exhausted()

    def task(self, ordinal: int) -> Task:
        """The task at this place of the source's own sequence."""
        if self.limit is None:
            return self._fresh(ordinal)
        epoch, place = divmod(ordinal, self.limit)
        if epoch == 0 and self.difficulty is None:
            self._fill(place + 1)
            return self.source.task(self._pool[place])
        return self.source.task(self._pass(epoch)[place])

    def _fresh(self, ordinal: int) -> Task:
        start = HELD_OUT_INDICES + self.seed * SEED_STRIDE + ordinal
        for attempt in range(MAX_REFUSED):  # elsewhere, so that a place needs no other place
            task = self.source.task(start + attempt * RETRY_STRIDE)
            if self.allowed(task):
                return task
        raise self._exhausted()

    def _pass(self, epoch: int) -> list[int]:
        """Indices of one pass over the pool: shuffled, then sorted by difficulty in a curriculum."""
        if epoch not in self._passes:
            self._fill(self.limit or 0)
            order = generator("epoch", self.seed, self.label, epoch).permutation(self.limit or 0)
            indices = [self._pool[int(k)] for k in order]
            if self.difficulty is not None:
                difficulty = self.difficulty
                indices.sort(key=lambda index: difficulty(self.source.task(index)))
            self._passes = {epoch: indices}
        return self._passes[epoch]

    def _fill(self, count: int) -> None:
        """Extend the pool to `count` distinct allowed problems, or to all there are."""
        refused = 0
        while len(self._pool) < count and (refused <= MAX_REFUSED or self._rows is not None):
            drawn = next(self._candidates, None)
            if drawn is None:
                break
            index, task = drawn
            if task.problem in self._seen or not self.allowed(task):
                refused += 1
                continue
            refused = 0
            self._seen.add(task.problem)
            self._pool.append(index)
        if self.limit is not None and len(self._pool) < count:
            raise self._exhausted()

    def _drawn(self) -> Iterator[tuple[int, Task]]:
        """(index of the source, task) in this run's order: endless, or every row once."""
        first = HELD_OUT_INDICES + self.seed * SEED_STRIDE
        size = AT_ONCE if self.lengths else 1
        start, end = 0, None if self._rows is None else len(self._rows)
        while end is None or start < end:
            places = range(start, start + size if end is None else min(start + size, end))
            indices = [first + k if self._rows is None else int(self._rows[k]) for k in places]
            tasks = [self.source.task(index) for index in indices]
            if self.lengths:
                self.lengths.count(tasks)
            yield from zip(indices, tasks, strict=True)
            start += size

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


def on_sft_side(key: str, ratio: float) -> bool:
    """Whether what has this key belongs to the supervised part of a pool: a pure function of content, so the
    parts are disjoint in any file, and a smaller ratio's part is contained in a larger one's."""
    return ratio > 0 and derive("sft", key) < ratio * 2.0**63
