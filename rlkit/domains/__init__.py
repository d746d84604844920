"""Domains: where tasks come from and how answers are scored.

In: options of a source and an index, or a response with its ground truth. Out: a Task, or a Reward. A domain is one
file or one folder here: it registers *sources* (components that make tasks) and *scorers* (functions that grade an
answer for the data_sources they name). Adding a domain is adding a file: docs/how-to/extend.md has one.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rlkit.registry import Component, Registry
from rlkit.types import Reward, Task

Scorer = Callable[..., Reward]
"""`score(response, ground_truth, extra_info)`, or with a fourth parameter `grading` (rlkit.domains.grading.Grading) for
those that need the settings or the time left. The reward's value is the share that is right: it is paid where
`reward.partial_credit` is set, and all or nothing otherwise."""

_WHERE = "a file that `plugins` names, or under rlkit/domains/."
_OWN = f"Name a grader in reward.custom_reward_function, or register a scorer with @scorer(name) in {_WHERE}"
scorers = Registry("data_source", "rlkit.domains", hint=_OWN)
scorer = scorers.register
_ROOMS = ("rlkit.domains", "rlkit.data.sources", "rlkit.environments.rollout")
sources = Registry("source", *_ROOMS, hint=f"A source is a class in {_WHERE}")


@lru_cache
def resolve(data_source: str) -> Scorer:
    """The scorer of a data_source: an exact name wins over a shell pattern, a longer pattern over a shorter one.

    Raises:
        UserError: no scorer is registered for it; the message names the nearest known ones."""
    patterns = [name for name in scorers if fnmatchcase(data_source, name)]
    exact = data_source in scorers or not patterns  # an unknown name is the error
    return scorers[data_source if exact else max(patterns, key=len)]


def vocabulary(name: str) -> Any:
    """A table of vocabulary.json: what generators draw from (a task is a seed's for ever), and signs in LaTeX."""
    return json.loads(resources.files(__name__).joinpath("vocabulary.json").read_text(encoding="utf-8"))[name]


HELD_OUT_INDICES = 1_000_000
"""A generator's indices below it make held-out tasks, those from it on training tasks."""


class Source(Component):
    """An endless, deterministic supply of tasks; `task(i)` depends on the options and on i alone.

    Training and held-out tasks are split by index range, never by seed, and every training task that asks
    what a held-out one asks is skipped (small spaces repeat themselves)."""

    weight: Annotated[float, Field(ge=0)] = 1.0
    """Share of the mixture, relative to the other sources; 0 is evaluated and not trained on."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Unique training tasks of this source: its weight too, in place of `data.train_max_samples`."""

    makes: ClassVar[tuple[str, ...]] = ()
    """data_sources of a generator's tasks (shell patterns), whose problems may differ in their numbers alone."""

    @abstractmethod
    def task(self, index: int) -> Task:
        """The task at this index, any non-negative integer (below `total()` where there is one)."""

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        """The tasks at these indices; a source that reads from a disk reads them together."""
        return [self.task(index) for index in indices]

    def total(self) -> int | None:
        """How many tasks there are; None for a generator, which never ends. Raises UserError where what it reads is not
        there."""
        return None

    def suite(self) -> str:
        """Its name where `evaluation.suites` has it: its own, its file's, or its kind."""
        name, path, kind = (getattr(self, field, None) for field in ("name", "path", "kind"))
        return str(name or (path and Path(path).stem) or kind or type(self).__name__)
