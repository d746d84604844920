"""What a run is evaluated on and never trained on: the held-out tasks of its sources, and the evaluation suites."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import compress

from rlkit.config import RunConfig
from rlkit.data.order import apportion, draw
from rlkit.data.prompt_lengths import fitting
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Task


def held_out(config: RunConfig) -> list[Task]:
    """`evaluation.size` distinct problems, spread evenly over the sources, the same for every run of a study: they
    depend on the sources' options and on `evaluation.seed` alone. Raises UserError: a source has too few of them."""
    sources = config.evaluation.sources or config.data.train
    parts = apportion(config.evaluation.size, [1.0] * len(sources))
    chosen, problems = list[Task](), set[str]()
    for source, label, part in zip(sources, labels(sources), parts.tolist(), strict=True):
        rng, size = generator("held_out", config.evaluation.seed, label.partition("#")[0]), source.total()
        endless = iter(partial(rng.integers, HELD_OUT_INDICES), None)
        indices = endless if size is None else rng.permutation(size)
        found = [task for _, task in draw(source, indices, part, partial(fitting, config), problems)]
        if len(found) < part:
            raise UserError(
                f"evaluation.size asks {part} held-out tasks of {label}, which has only {len(found)} "
                "distinct ones: lower evaluation.size or widen the source's options."
            )
        chosen += found
    return chosen


def suites(config: RunConfig, left_out: Counter[str] | None = None) -> dict[str, list[Task]]:
    """The tasks of each of `evaluation.suites`, by its name: all of them, in order, each problem once.
    `left_out` counts the prompts of each that `data.filter_overlong_prompts` leaves out. Raises UserError: a suite
    without tasks or without end, or two of one name."""
    found: dict[str, list[Task]] = {}
    for suite in config.evaluation.suites:
        name, size, problem = suite.suite(), suite.total(), ""
        distinct = list({task.problem: task for task in suite.tasks(range(size or 0))}.values())
        kept = list(compress(distinct, fitting(config, distinct)))
        if name in found:
            problem = " twice: name each suite once."
        elif size is None:
            problem = ", whose problems never end: name it in evaluation.sources, which draws evaluation.size of them."
        elif not kept:
            limit = config.data.max_prompt_length
            problem = f", which has no task of at most data.max_prompt_length ({limit}) tokens."
        if problem:
            raise UserError(f"evaluation.suites has {name}{problem}")
        found[name] = kept
        if left_out is not None:
            left_out[name] += len(distinct) - len(kept)
    return found


def labels(sources: Sequence[Source]) -> list[str]:
    """A name for each source: its kind, numbered from the second of a kind on (`arithmetic#2`)."""
    kinds = [str(getattr(s, "kind", type(s).__name__)) for s in sources]
    return [k if kinds[:i].count(k) == 0 else f"{k}#{kinds[:i].count(k) + 1}" for i, k in enumerate(kinds)]
