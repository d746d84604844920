"""A run's tasks: the held-out set, the evaluation suites and the training batches, and the lengths of their prompts."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlkit.config import RunConfig
from rlkit.data.mixture import Supply, apportion, draw, on_sft_side, planned
from rlkit.domains import HELD_OUT_INDICES, Source
from rlkit.errors import UserError
from rlkit.models.shapes import at_hand
from rlkit.seeds import content_hash, generator
from rlkit.types import ENVIRONMENT, Task


def held_out(config: RunConfig) -> list[Task]:
    """`evaluation.size` distinct problems, spread evenly over the sources, the same for every run of a study: they
    depend on the sources' options and on `evaluation.seed` alone.

    Raises:
        UserError: a source has fewer distinct problems than its part of the set.
    """
    sources = config.evaluation.sources or config.data.train
    parts = apportion(config.evaluation.size, [1.0] * len(sources))
    chosen: list[Task] = []
    problems: set[str] = set()
    for source, label, part in zip(sources, labels(sources), parts.tolist(), strict=True):
        rng, size = generator("held_out", config.evaluation.seed, label.partition("#")[0]), source.total()
        endless = map(int, iter(partial(rng.integers, HELD_OUT_INDICES), None))
        indices = endless if size is None else iter(rng.permutation(size).tolist())
        found = list(draw(source, indices, part, problems, partial(_fitting, config), size is None))
        if len(found) < part:
            raise UserError(
                f"evaluation.size asks {part} held-out tasks of {label}, which has only {len(found)} "
                "distinct ones: lower evaluation.size or widen the source's options."
            )
        chosen += [task for _, task in found]
    return chosen


def suites(config: RunConfig, left_out: Counter[str] | None = None) -> dict[str, list[Task]]:
    """The tasks of each of `evaluation.suites`, by its name: all of them, in order, each problem once.

    Args:
        left_out: counts the prompts of each that `data.filter_overlong_prompts` leaves out.

    Raises:
        UserError: a suite without tasks or without end, or two of one name.
    """
    found: dict[str, list[Task]] = {}
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
        found[name] = list(compress(distinct, _fitting(config, distinct)))
        if not found[name]:
            raise UserError(
                f"evaluation.suites has {name}, which has no task of at most data.max_prompt_length "
                f"({config.data.max_prompt_length}) tokens."
            )
        if left_out is not None:
            left_out[name] += len(distinct) - len(found[name])
    return found


def labels(sources: Sequence[Source]) -> list[str]:
    """A name for each source: its kind, numbered from the second of a kind on (`arithmetic#2`)."""
    kinds = [str(getattr(s, "kind", type(s).__name__)) for s in sources]
    return [k if kinds[:i].count(k) == 0 else f"{k}#{kinds[:i].count(k) + 1}" for i, k in enumerate(kinds)]


class TaskStream:
    """The training tasks of a run, batch by batch.

    `batch(step)` is a pure function of config and step: a resumed run continues with the next row without any state.

    Args:
        held_out: tasks whose problems must never be trained on, besides those of `evaluation.suites`.
        side: "rl", or "sft" for the part that `data.sft_ratio` sets aside.

    Attributes:
        suites: the tasks of `evaluation.suites`, by the suite's name.

    Raises:
        UserError: more tasks are asked for than exist, or more passes than `data.max_epochs`.
    """

    def __init__(
        self, config: RunConfig, held_out: Iterable[Task], side: Literal["rl", "sft"] = "rl"
    ) -> None:
        self.config, self._side = config, side
        self.sources: tuple[Source, ...] = config.data.train
        self.labels = labels(self.sources)
        self._overlong: Counter[str] = Counter()
        self.suites = suites(config, self._overlong)
        self._endless = [source.total() is None for source in self.sources]
        self._forbidden = {task.problem for tasks in (held_out, *self.suites.values()) for task in tasks}
        self.weights = np.array([(s.count or s.weight) if s.weight else 0.0 for s in self.sources])
        self._supplies: dict[int, Supply] = {}
        self._limits = self._unique()
        most, total = config.data.max_epochs, self._until(config.trainer.total_training_steps)
        for i, count in enumerate(total if most else []):
            limit = self._supply(i).limit if count else None
            if limit and count > most * limit:
                raise UserError(
                    f"{count} tasks of {self.labels[i]} are asked for, {count / limit:.1f} passes over {limit} unique "
                    f"ones, and data.max_epochs is {most}: raise it or data.train_max_samples, or lower "
                    "trainer.total_training_steps."
                )

    def __iter__(self) -> Iterator[list[Task]]:
        return (self.batch(step) for step in range(1, self.config.trainer.total_training_steps + 1))

    def batch(self, step: int) -> list[Task]:
        """The P tasks of a step (1, 2, …), in an order shuffled within the step."""
        before = self._until(step - 1)
        return self._drawn(before, self._until(step) - before, "batch", self.config.seed, step)

    def first(self, count: int) -> list[Task]:
        """The first `count` tasks of the mixture, shuffled: no task twice while there are others."""
        counts = apportion(count, self.weights)
        return self._drawn(np.zeros_like(counts), counts, "first", self.config.seed, self._side, count)

    def exposure(self, step: int) -> dict[str, float]:
        """Tasks of each source shown up to a step (`data/tasks/<source>`); where their number is limited, also the
        unique ones (`data/unique/…`) and passes over them (`data/epochs/…`)."""
        metrics: dict[str, float] = {}
        for label, shown, limit in zip(self.labels, self._until(step), self._limits, strict=True):
            metrics[f"data/tasks/{label}"] = float(shown)
            if limit and shown:  # a limit may be known early, from tasks that were made for a later step
                metrics[f"data/unique/{label}"] = float(min(shown, limit))
                metrics[f"data/epochs/{label}"] = float(shown / limit)
        return metrics

    def check_prompts(self, held_out: Sequence[Task]) -> None:
        """Count the tokens of the prompts that the run will use, those of its suites and of `held_out` too; of a
        generator without a number of unique tasks the first 16,384.

        Raises:
            UserError: one is longer than data.max_prompt_length. It says how many are, and the longest.
        """
        limit, sets = self.config.data.max_prompt_length, {"held-out": held_out, **self.suites}
        for i, count in enumerate(self._until(self.config.trainer.total_training_steps)):
            if count:
                supply = self._supply(i)
                sets[self.labels[i]] = supply.tasks(0, min(int(count), supply.limit or 16_384))
        for where, tasks in sets.items():
            lengths = prompt_lengths(self.config, tasks)
            if tasks and (longest := max(lengths)) > limit:
                task = tasks[lengths.index(longest)]
                raise UserError(
                    f"data.max_prompt_length is {limit}, but {sum(n > limit for n in lengths):,} of {len(tasks):,} "
                    f"{where} prompts are longer: that of task {task.id} ({task.data_source}) has {longest:,} tokens. "
                    "Raise it, or leave them out with data.filter_overlong_prompts=true."
                )

    def left_out(self) -> dict[str, int]:
        """How many prompts `data.filter_overlong_prompts` left out: of each suite, and of each source as far as its
        tasks were drawn."""
        return {name: count for name, count in self._overlong.items() if count}

    def _until(self, step: int) -> np.ndarray:
        """(sources,) tasks in steps 1 … step."""
        return planned(self.config, self.weights, step)

    def _drawn(self, before: np.ndarray, counts: np.ndarray, *order: Any) -> list[Task]:
        """(sources,) `counts` tasks after the first (sources,) `before` of each, in an order of this name."""
        tasks = []
        for i, (start, count) in enumerate(zip(before, counts, strict=True)):
            tasks += self._supply(i).tasks(int(start), int(count)) if count else []
        return [tasks[int(k)] for k in generator(*order).permutation(len(tasks))]

    def _unique(self) -> list[int | None]:
        """Unique tasks of each source on this side of the SFT:RL split; None is without end."""
        data = self.config.data
        total = max(data.train_max_samples, sum(s.count or 0 for s in self.sources if s.weight))
        if total > 0:
            supervised = round(total * data.sft_ratio)
            return apportion(supervised if self._side == "sft" else total - supervised, self.weights).tolist()
        shown = self._until(self.config.trainer.total_training_steps).tolist()
        sorts = data.order == "curriculum"
        return [n if endless and sorts else None for n, endless in zip(shown, self._endless, strict=True)]

    def _supply(self, i: int) -> Supply:
        if i not in self._supplies:
            data, label, limit = self.config.data, self.labels[i], self._limits[i]
            if limit == 0:
                raise UserError(
                    f"{label} gets none of the unique tasks: raise data.train_max_samples or its weight, or set its "
                    "weight to 0."
                )
            field = data.difficulty_field if data.order == "curriculum" else ""
            supply = Supply(self.sources[i], label, self.config.seed, partial(self._allowed, i), limit, field)
            self._supplies[i], self._limits[i] = supply, supply.limit
        return self._supplies[i]

    def _allowed(self, i: int, tasks: Sequence[Task]) -> list[bool]:
        """Whether each task of source i may be trained on, on this side."""
        allowed = []
        for task, fits in zip(tasks, _fitting(self.config, tasks), strict=True):
            new = task.problem not in self._forbidden
            self._overlong[self.labels[i]] += new and not fits
            # a generator's problem has one truth; a file may ask one under several
            side = on_sft_side(task.id if self._endless[i] else task.problem, self.config.data.sft_ratio)
            allowed.append(new and fits and side == (self._side == "sft"))
        return allowed


def content_hashes(stream: TaskStream, held_out: Sequence[Task]) -> dict[str, str]:
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


def prompt_lengths(config: RunConfig, tasks: Sequence[Task]) -> list[int]:
    """Tokens of each task's prompt by the tokenizer of `model.path` and its chat template; 0 for an environment's
    task, which the episode limits."""
    from rlkit.models.prompts import encode_chats

    asked = {task.id: task.prompt for task in tasks if not task.data_source.startswith(ENVIRONMENT)}
    if not asked:
        return [0] * len(tasks)
    variables = json.dumps(config.data.apply_chat_template_kwargs, sort_keys=True)
    tokenizer, known = _counted(config.model.path, variables)
    new = [name for name in asked if name not in known]
    known |= zip(new, map(len, encode_chats(tokenizer, [asked[name] for name in new])), strict=True)
    return [known.get(task.id, 0) for task in tasks]


@lru_cache(4)
def _counted(path: str, variables: str) -> tuple[Any, dict[str, int]]:
    """A model's tokenizer with these variables of its template, and the lengths by it that are known, by task id."""
    from rlkit.models.loading import load_tokenizer
    from rlkit.models.prompts import set_template_defaults

    tokenizer = load_tokenizer(path)
    set_template_defaults(tokenizer, json.loads(variables))
    return tokenizer, {}


def _fitting(config: RunConfig, tasks: Sequence[Task]) -> list[bool]:
    """Which of the tasks `data.filter_overlong_prompts` keeps."""
    if not config.data.filter_overlong_prompts:
        return [True] * len(tasks)
    return [tokens <= config.data.max_prompt_length for tokens in prompt_lengths(config, tasks)]


def countable(config: RunConfig) -> RunConfig:
    """The run as far as it can be made without a hub: its prompts unfiltered where the tokenizer is not at hand."""
    if at_hand(config.model.path) or not config.data.filter_overlong_prompts:
        return config
    data = config.data.model_copy(update={"filter_overlong_prompts": False})
    return config.model_copy(update={"data": data})
