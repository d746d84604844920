"""A run's tasks: the held-out set, the evaluation suites and the training batches."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.lengths import too_long
from rlkit.data.mixture import MAX_REFUSED, Adaptive, Schedule, Supply, apportion, difficulty_key, on_sft_side
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import content_hash, generator
from rlkit.types import Reward, Task

Side = Literal["rl", "sft"]


def held_out(config: RunConfig) -> list[Task]:
    """`evaluation.size` distinct problems, spread evenly over the sources, the same for every run of a study.

    They depend on the sources' options and on `evaluation.seed`, not on the run's seed, on weights or on D.

    Raises:
        UserError: a source has fewer distinct problems than its part of the set.
    """
    return _held_out(config)[0]


def _held_out(config: RunConfig) -> tuple[list[Task], int]:
    """The held-out tasks, and how many problems were left out for their length."""
    sources = config.evaluation.sources or config.data.train
    parts = apportion(config.evaluation.size, [1.0] * len(sources))
    chosen: dict[str, Task] = {}
    overlong: set[str] = set()
    for source, label, part in zip(sources, labels(sources), parts, strict=True):
        before, wanted, refused = len(chosen), len(chosen) + int(part), 0
        indices = _held_out_indices(source, label, config.evaluation.seed)
        while refused <= MAX_REFUSED and (some := list(islice(indices, wanted - len(chosen)))):
            tasks = source.tasks(some)
            for task, long in zip(tasks, too_long(config, tasks), strict=True):
                overlong |= {task.problem} if long else set()
                refused += 1
                if task.problem not in chosen and not long:
                    chosen[task.problem], refused = task, 0
        if len(chosen) < wanted:
            raise UserError(
                f"evaluation.size asks {part} held-out tasks of {label}, which has only {len(chosen) - before} "
                "distinct ones: lower evaluation.size or widen the source's options."
            )
    return list(chosen.values()), len(overlong)


def _held_out_indices(source: Source, label: str, seed: int) -> Iterator[int]:
    rng = generator("held_out", seed, label.partition("#")[0])
    size = source.total()
    if size is not None:
        return (int(k) for k in rng.permutation(size))
    return iter(lambda: int(rng.integers(HELD_OUT_INDICES)), None)


def suites(config: RunConfig) -> dict[str, list[Task]]:
    """The tasks of each of `evaluation.suites`, by its name: all of them, in order, each problem once.

    Raises:
        UserError: a suite without tasks or without end, or two of one name.
    """
    return {name: tasks for name, (tasks, _) in _suites(config).items()}


def _suites(config: RunConfig) -> dict[str, tuple[list[Task], int]]:
    """Of each suite its tasks, and how many were left out for their length."""
    found: dict[str, tuple[list[Task], int]] = {}
    for suite in config.evaluation.suites:
        name, size = suite.suite(), suite.total()
        if name in found:
            raise UserError(f"evaluation.suites has {name} twice: name each suite once.")
        if size is None:
            raise UserError(
                f"evaluation.suites has {name}, whose problems never end: name it in evaluation.sources, which draws "
                "evaluation.size of them."
            )
        distinct = list({task.problem: task for task in suite.tasks(range(size))}.values())
        long = too_long(config, distinct)
        tasks = [task for task, left_out in zip(distinct, long, strict=True) if not left_out]
        if not tasks:
            raise UserError(f"evaluation.suites has {name}, which has no task.")
        found[name] = tasks, sum(long)
    return found


def content_hashes(stream: "TaskStream", held_out: Sequence[Task]) -> dict[str, str]:
    """What every attempt at a run must have alike: `held_out_hash`, of all that it is evaluated on, and
    `data_files_hash`, of the files that it trains on, where there are any."""
    evaluated = [task.id for tasks in (held_out, *stream.suites.values()) for task in tasks]
    digests = []
    for source in stream.sources:
        if (path := getattr(source, "path", None)) and Path(path).is_file():
            with Path(path).open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    files = {"data_files_hash": content_hash(digests)} if digests else {}
    return {"held_out_hash": content_hash(evaluated), **files}


def labels(sources: Sequence[Source]) -> list[str]:
    """A name for each source: its kind, numbered from the second of a kind on (`arithmetic#2`)."""
    kinds = [str(getattr(s, "kind", type(s).__name__)) for s in sources]
    return [k if kinds[:i].count(k) == 0 else f"{k}#{kinds[:i].count(k) + 1}" for i, k in enumerate(kinds)]


class TaskStream:
    """The training tasks of a run, batch by batch.

    `batch(step)` is a pure function of config and step, so a resumed run continues with the next row
    without stored state. `order: adaptive` alone has state: call `observe` after each step and keep
    `state_dict()` in the checkpoint.

    Args:
        config: sources, weights, order, D and sizes.
        held_out: tasks whose problems must never be trained on, besides those of `evaluation.suites`.
        side: "rl", or "sft" for the part that `data.sft_ratio` sets aside.

    Attributes:
        suites: the tasks of `evaluation.suites`, by the suite's name.

    Raises:
        UserError: more tasks are asked for than exist, or more passes than `data.max_epochs`.
    """

    def __init__(self, config: RunConfig, held_out: Iterable[Task], side: Side = "rl") -> None:
        data = config.data
        self.config, self.seed, self._side = config, config.seed, side
        self.sources: tuple[Source, ...] = data.train
        self.labels = labels(self.sources)
        self.suites = suites(config)
        self._forbidden = {task.problem for tasks in (held_out, *self.suites.values()) for task in tasks}
        self._overlong: dict[str, int] = {}
        self.weights = np.array([(s.count or s.weight) if s.weight else 0.0 for s in self.sources])
        self._schedule = Schedule(config, self.weights)
        self._supplies: dict[int, Supply] = {}
        self._limits = self._unique()
        self._check_epochs()
        self._adaptive = Adaptive(self.weights, data.train_batch_size) if data.order == "adaptive" else None
        self._mixture = self._adaptive or self._schedule
        self._origin: dict[str, int] = {}

    def __iter__(self) -> Iterator[list[Task]]:
        return (self.batch(step) for step in range(1, self.config.trainer.total_training_steps + 1))

    def batch(self, step: int) -> list[Task]:
        """The P tasks of a step (1, 2, …), in an order shuffled within the step."""
        if step < 1:
            raise ValueError(f"steps count from 1, not {step}")
        before, counts = self._mixture.plan(step)
        tasks, self._origin = [], {}
        for i, (start, count) in enumerate(zip(before, counts, strict=True)):
            part = self._supply(i).tasks(int(start), int(count)) if count else []
            self._origin |= dict.fromkeys((task.id for task in part), i)
            tasks += part
        return _shuffled(tasks, "batch", self.seed, step)

    def first(self, count: int) -> list[Task]:
        """The first `count` tasks of the mixture, shuffled: no task twice while there are others."""
        tasks = []
        for i, share in enumerate(apportion(count, self.weights)):
            tasks += self._supply(i).tasks(0, int(share)) if share else []
        return _shuffled(tasks, "first", self.seed, self._side, count)

    def exposure(self, step: int) -> dict[str, float]:
        """Tasks shown up to a step, of each source: all of them (`data/tasks/<source>`), the unique ones
        (`data/unique/<source>`, where their number is limited) and passes over the unique ones, from its first task on.
        Under an adaptive order: up to the last step observed."""
        shown_by_source = self._adaptive.shown if self._adaptive is not None else self._schedule.until(step)
        metrics: dict[str, float] = {}
        for label, shown, limit in zip(self.labels, shown_by_source, self._limits, strict=True):
            metrics[f"data/tasks/{label}"] = float(shown)
            if limit and shown:  # a limit may be known early, from tasks that were made for a later step
                metrics[f"data/unique/{label}"] = float(min(shown, limit))
                metrics[f"data/epochs/{label}"] = float(shown / limit)
        return metrics

    def observe(self, step: int, tasks: Sequence[Task], rewards: Sequence[Reward]) -> None:
        """Tell an adaptive curriculum how step `step` went: one reward a sample, with its task; samples
        that could not be graded are left out. Other orders ignore it."""
        if self._adaptive is not None:
            pairs = zip(tasks, rewards, strict=True)
            self._adaptive.observe(
                step, [(self._origin[t.id], bool(r.correct)) for t, r in pairs if r.error is None]
            )

    def state_dict(self) -> dict[str, Any]:
        """JSON state; empty unless the order is adaptive."""
        return self._adaptive.state_dict() if self._adaptive else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        if self._adaptive:
            self._adaptive.load_state_dict(state)

    def _unique(self) -> list[int | None]:
        """Unique tasks of each source on this side of the SFT:RL split; None is without end."""
        data = self.config.data
        counted = sum(s.count or 0 for s in self.sources if s.weight)
        total = data.train_max_samples if data.train_max_samples > 0 else counted
        if total:
            supervised = round(total * data.sft_ratio)
            unique = apportion(supervised if self._side == "sft" else total - supervised, self.weights)
            return [int(n) for n in unique]
        if data.order == "curriculum":
            pairs = zip(self._schedule.totals, self.sources, strict=True)
            return [int(n) if s.total() is None else None for n, s in pairs]
        return [None] * len(self.sources)

    def _check_epochs(self) -> None:
        most = self.config.data.max_epochs
        if not most:
            return
        shown = self._schedule.until(self.config.trainer.total_training_steps)
        for i, count in enumerate(shown):
            limit = self._supply(i).limit if count else None
            if limit and count > most * limit:
                raise UserError(
                    f"{count} tasks of {self.labels[i]} are asked for, {count / limit:.1f} passes over "
                    f"{limit} unique ones, and data.max_epochs is {most}: raise it or "
                    "data.train_max_samples, or lower trainer.total_training_steps."
                )

    def used(self, i: int, most: int) -> list[Task]:
        """The distinct tasks of source i that the run will train on; of those that a generator draws as it goes,
        the first `most`. An adaptive order may use any."""
        steps = self.config.trainer.total_training_steps
        shown = (
            steps * self.config.data.train_batch_size if self._adaptive else self._schedule.until(steps)[i]
        )
        if not shown or not self.weights[i]:
            return []
        supply = self._supply(i)
        return supply.tasks(0, min(int(shown), supply.limit or most))

    def left_out(self) -> dict[str, int]:
        """How many prompts `data.filter_overlong_prompts` left out: of the held-out tasks, of each suite, and of each
        source as far as its tasks were drawn."""
        if not self.config.data.filter_overlong_prompts:
            return {}
        evaluated = {name: overlong for name, (_, overlong) in _suites(self.config).items()}
        counts = {"held-out": _held_out(self.config)[1], **evaluated, **self._overlong}
        return {name: count for name, count in counts.items() if count}

    def _supply(self, i: int) -> Supply:
        if i not in self._supplies:
            if self._limits[i] == 0:
                raise UserError(
                    f"{self.labels[i]} gets none of the unique tasks: raise data.train_max_samples or its "
                    "weight, or set its weight to 0."
                )
            curriculum = self.config.data.order == "curriculum"
            key = difficulty_key(self.config.data.difficulty_field, self.labels[i]) if curriculum else None
            allowed, limit = partial(self._allowed, i), self._limits[i]
            supply = Supply(self.sources[i], self.labels[i], self.seed, allowed, limit, key)
            self._supplies[i], self._limits[i] = supply, supply.limit
        return self._supplies[i]

    def _allowed(self, i: int, tasks: Sequence[Task]) -> list[bool]:
        """Whether each task of source i may be trained on, on this side."""
        data, label = self.config.data, self.labels[i]
        long = too_long(self.config, tasks)
        endless = (
            self.sources[i].total() is None
        )  # its problem has one truth; a file may ask one under several
        allowed = []
        for task, left_out in zip(tasks, long, strict=True):
            known = task.problem in self._forbidden
            self._overlong[label] = self._overlong.get(label, 0) + (left_out and not known)
            side = on_sft_side(task.id if endless else task.problem, data.sft_ratio) == (self._side == "sft")
            allowed.append(side and not known and not left_out)
        return allowed


def _shuffled(tasks: Sequence[Task], *names: Any) -> list[Task]:
    return [tasks[int(k)] for k in generator(*names).permutation(len(tasks))]
