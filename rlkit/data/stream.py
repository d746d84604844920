"""The training tasks of a run, batch by batch."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.held_out_set import labels, suites
from rlkit.data.order import Supply, apportion, planned
from rlkit.data.prompt_lengths import check_generated, check_lengths
from rlkit.errors import UserError
from rlkit.seeds import content_hash, generator
from rlkit.types import Task


class TaskStream:
    """The training tasks of a run, batch by batch. `batch(step)` is a pure function of config and step: a resumed run
    continues with the next row without any state. `held_out` are tasks whose problems must never be trained on, besides
    those of `evaluation.suites`; side "sft" is the part that `data.sft_ratio` sets aside. Raises UserError: more tasks
    are asked for than exist, or more passes than `data.max_epochs`."""

    def __init__(
        self, config: RunConfig, held_out: Iterable[Task], side: Literal["rl", "sft"] = "rl"
    ) -> None:
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
        for supply, count in self._used():
            unique = supply.unique() if data.max_epochs else None
            if unique and count > data.max_epochs * unique:
                raise UserError(
                    f"{count} tasks of {supply.label} are asked for, {count / unique:.1f} passes over {unique} unique "
                    f"ones, and data.max_epochs is {data.max_epochs}: raise it or data.train_max_samples, or lower "
                    "trainer.total_training_steps."
                )

    def __iter__(self) -> Iterator[list[Task]]:
        return (self.batch(step) for step in range(1, self.config.trainer.total_training_steps + 1))

    def batch(self, step: int) -> list[Task]:
        """The P tasks of a step (1, 2, …), in an order shuffled within the step."""
        before, after, tasks = self._until(step - 1).tolist(), self._until(step).tolist(), list[Task]()
        for supply, start, end in zip(self._supplies, before, after, strict=True):
            tasks += supply.tasks(start, end - start) if end > start else []
        order = generator("batch", self.config.seed, step).permutation(len(tasks))
        return [tasks[int(k)] for k in order]

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
        generator without a number of unique tasks the first 16,384 that it makes, held-out ones too."""
        sets = {"held-out": held_out, **self.suites}
        for supply, count in self._used():
            first = min(count, supply.unique() or 16_384)
            if supply.unique() is None and not self.config.data.filter_overlong_prompts:
                check_generated(self.config, supply.source, supply.first, first, supply.label)
            else:
                sets[supply.label] = supply.tasks(0, first)
        for where, tasks in sets.items():
            check_lengths(self.config, tasks, where)

    def left_out(self) -> dict[str, int]:
        """Prompts that `data.filter_overlong_prompts` left out: of each suite, and of each source's drawn tasks."""
        return dict(self._left_out + Counter({supply.label: supply.overlong for supply in self._supplies}))

    def _used(self) -> list[tuple[Supply, int]]:
        """The sources that the run draws from, and how many tasks from each."""
        counts = self._until(self.config.trainer.total_training_steps).tolist()
        return [pair for pair in zip(self._supplies, counts, strict=True) if pair[1]]

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
    hashes, digests = {"held_out_hash": content_hash(evaluated)}, []
    for path in (getattr(source, "path", None) for source in stream.config.data.train):
        if path and Path(path).is_file():
            with Path(path).open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes | ({"data_files_hash": content_hash(digests)} if digests else {})
