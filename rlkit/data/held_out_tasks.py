"""Held-out tasks and suites, on which a run is measured (stream.py keeps them out of training); how tasks are drawn."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import SupportsIndex

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.prompt_lengths import fitting
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Task

MAX_REFUSED = 2_000  # refused tasks in a row after which a source counts as exhausted
AT_ONCE = 1024  # most tasks that are looked at together


def held_out(config: RunConfig) -> list[Task]:
    """`evaluation.size` distinct problems, spread evenly over the sources, the same for every run of a study: they
    depend on the sources' options and on `evaluation.seed` alone. Raises UserError: a source has too few of them."""
    sources = config.evaluation.sources or config.data.train
    parts = apportion(config.evaluation.size, [1.0] * len(sources))
    chosen, problems = list[Task](), set[str]()
    for source, label, part in zip(sources, labels(sources), parts.tolist(), strict=True):
        rng, size = generator("held_out", config.evaluation.seed, label.partition("#")[0]), source.total()
        indices = iter(partial(rng.integers, HELD_OUT_INDICES), None) if size is None else rng.permutation(size)
        found = [task for _, task in draw(source, indices, part, partial(fitting, config), problems)]
        if len(found) < part:
            raise UserError(
                f"evaluation.size asks {part} held-out tasks of {label}, which has only {len(found)} "
                "distinct ones: lower evaluation.size or widen the source's options."
            )
        chosen += found
    return chosen


def suites(config: RunConfig, left_out: Counter[str]) -> dict[str, list[Task]]:
    """The tasks of each of `evaluation.suites`, by its name: all of them, in order, each problem once.
    `left_out` counts the prompts of each that `data.filter_overlong_prompts` leaves out. Raises UserError: a suite
    without tasks or without end, or two of one name."""
    found: dict[str, list[Task]] = {}
    for suite in config.evaluation.suites:
        name, size, problem = suite.suite(), suite.total(), ""
        distinct = list({task.problem: task for task in suite.tasks(range(size or 0))}.values())
        kept = list(itertools.compress(distinct, fitting(config, distinct)))
        if name in found:
            problem = " twice: name each suite once."
        elif size is None:
            problem = ", whose problems never end: name it in evaluation.sources, which draws evaluation.size of them."
        elif not kept:
            problem = f", which has no task of at most data.max_prompt_length ({config.data.max_prompt_length}) tokens."
        if problem:
            raise UserError(f"evaluation.suites has {name}{problem}")
        found[name] = kept
        left_out[name] += len(distinct) - len(kept)
    return found


def labels(sources: Sequence[Source]) -> list[str]:
    """A name for each source: its kind, numbered from the second of a kind on (`arithmetic#2`)."""
    kinds = [str(getattr(s, "kind", type(s).__name__)) for s in sources]
    return [k if kinds[:i].count(k) == 0 else f"{k}#{kinds[:i].count(k) + 1}" for i, k in enumerate(kinds)]


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
