"""The training tasks of a run batch by batch, in the order of `data.order`, and its data as files."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.held_out_tasks import MAX_REFUSED, apportion, draw, held_out, labels, suites
from rlkit.data.prompt_lengths import check_lengths, fitting
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import content_hash, derive, file_hash, generator
from rlkit.types import Task

SEED_STRIDE = 2**40  # indices that one run's seed may use; seeds have disjoint ranges
RETRY_STRIDE = 2**32
FEW = 8  # tasks that are made at once while a GPU computes


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
        key = "id" if self._rows is None else "problem"  # a file may ask one under several truths
        for task, fits in zip(tasks, fitting(self.config, tasks), strict=True):
            new = task.problem not in self.forbidden
            self.overlong += new and not fits
            # A pure function of content: the sides are disjoint in any file, a smaller ratio's within a larger one's.
            supervised = ratio > 0 and derive("sft", getattr(task, key)) < ratio * 2.0**63
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


class TaskStream:
    """The training tasks of a run, batch by batch. `batch(step)` is a pure function of config and step: a resumed run
    continues with the next row without any state. `held_out` are tasks whose problems must never be trained on, besides
    those of `evaluation.suites`; side "sft" is the part that `data.sft_ratio` sets aside. Raises UserError where
    more tasks are asked for than exist."""

    def __init__(self, config: RunConfig, held_out: Iterable[Task], side: Literal["rl", "sft"] = "rl") -> None:
        self.config, self._side, data = config, side, config.data
        self._left_out: Counter[str] = Counter()
        self.suites = suites(config, self._left_out)  # tasks by the suite's name
        forbidden = {task.problem for tasks in (held_out, *self.suites.values()) for task in tasks}
        self.weights = np.array([(s.count or s.weight) if s.weight else 0.0 for s in data.train])
        self._until = partial(planned, config, self.weights)  # (sources,) tasks in steps 1 … step
        self._supplies = [
            Supply(config, source, label, limit, forbidden, side)
            for source, label, limit in zip(data.train, labels(data.train), self._limits(), strict=True)
        ]

    def __iter__(self) -> Iterator[list[Task]]:
        return (self.batch(step) for step in range(1, self.config.trainer.total_training_steps + 1))

    def batch(self, step: int) -> list[Task]:
        """The P tasks of a step (1, 2, …), in an order shuffled within the step."""
        *_, tasks = self.making(step)
        return tasks

    def making(self, step: int) -> Iterator[list[Task]]:
        """`batch`, at last; before that, each time after a few more are made, none."""
        before, after, tasks = self._until(step - 1).tolist(), self._until(step).tolist(), list[Task]()
        for supply, start, end in zip(self._supplies, before, after, strict=True):
            for place in range(start, end, FEW):
                tasks += supply.tasks(place, min(FEW, end - place))
                yield []
        order = generator("batch", self.config.seed, step).permutation(len(tasks))
        yield [tasks[int(k)] for k in order]

    def exposure(self, step: int) -> dict[str, float]:
        """Tasks of each source shown up to a step (`data/tasks/<source>`); where their number is limited, also the
        unique ones (`data/unique/…`) and passes over them (`data/epochs/…`)."""
        metrics: dict[str, float] = {}
        for supply, shown in zip(self._supplies, self._until(step), strict=True):
            metrics[f"data/tasks/{supply.label}"] = float(shown)
            if supply.limit and shown:  # it may be known early, from tasks that were made for a later step
                metrics[f"data/unique/{supply.label}"] = float(min(shown, supply.limit))
                metrics[f"data/epochs/{supply.label}"] = float(shown / supply.limit)
        return metrics

    def check_prompts(self, held_out: Sequence[Task]) -> None:
        """`check_lengths` of the prompts that the run will use, those of its suites and of `held_out` too; of a
        generator without a number of unique tasks the first 16,384."""
        for where, tasks in {"held-out": held_out, **self.suites}.items():
            check_lengths(self.config, tasks, where)
        counts = self._until(self.config.trainer.total_training_steps).tolist()
        for supply, count in zip(self._supplies, counts, strict=True):
            if count:
                tasks = supply.tasks(0, min(count, supply.unique() or 16_384))
                check_lengths(self.config, tasks, supply.label)

    def left_out(self) -> dict[str, int]:
        """Prompts that `data.filter_overlong_prompts` left out: of each suite, and of each source's drawn tasks."""
        return dict(self._left_out + Counter({supply.label: supply.overlong for supply in self._supplies}))

    def _limits(self) -> list[int | None]:
        """Unique tasks of each source on this side of the SFT:RL split; None is without end."""
        data, most = self.config.data, self._until(self.config.trainer.total_training_steps).tolist()
        total = max(data.train_max_samples, sum(s.count or 0 for s in data.train if s.weight))
        if total > 0:
            supervised = round(total * data.sft_ratio)
            return apportion(supervised if self._side == "sft" else total - supervised, self.weights).tolist()
        if data.order != "curriculum":
            return [None] * len(most)
        return [n if source.total() is None else None for n, source in zip(most, data.train, strict=True)]


def content_hashes(stream: TaskStream, held_out: Sequence[Task]) -> dict[str, str]:
    """What every attempt at a run must have alike: `held_out_hash`, of all that it is evaluated on, and
    `data_files_hash`, of the files that it trains on, where there are any."""
    evaluated = [task.id for tasks in (held_out, *stream.suites.values()) for task in tasks]
    hashes = {"held_out_hash": content_hash(evaluated)}
    paths = (getattr(source, "path", None) for source in stream.config.data.train)
    digests = [file_hash(path) for path in paths if path and Path(path).is_file()]
    return hashes | ({"data_files_hash": content_hash(digests)} if digests else {})


def export(config: RunConfig, out: str | Path, *, progress: bool = True) -> dict[str, int]:
    """Write the parquet files `train`, the rows of all steps, step after step (read it without shuffling), and `test`,
    held-out tasks and suites; the number of rows of each. Raises UserError: the sources cannot give the tasks."""
    from rlkit.data import rows  # pyarrow

    out, tests = Path(out), held_out(config)
    stream = TaskStream(config, tests)
    stream.batch(1)  # what is wrong with the sources shows before a file is begun
    tests += [task for tasks in stream.suites.values() for task in tasks]
    train = (task for batch in stream for task in batch)
    return {
        "train": rows.write(out / "train.parquet", train, progress=progress),
        "test": rows.write(out / "test.parquet", tests, split="test", progress=progress),
    }
