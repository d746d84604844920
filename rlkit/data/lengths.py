"""The lengths of a run's prompts in tokens: each prompt is counted once."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import LADDER
from rlkit.types import ENVIRONMENT, Task

if TYPE_CHECKING:
    from rlkit.data.stream import TaskStream

GENERATED = 16_384
"""Tasks that are looked at before the first step of a generator that draws them as it goes."""
AT_ONCE = 1024


class PromptLengths:
    """Counts prompts by a model's tokenizer and chat template; the tokenizer is loaded with the first of them."""

    def __init__(self, path: str, template: Mapping[str, Any]) -> None:
        self.path, self.template = path, template
        self._tokenizer: Any = None
        self._known: dict[str, int] = {}

    def count(self, tasks: Sequence[Task]) -> list[int]:
        """Tokens of each task's prompt; 0 for an environment's, which are limited by the episode."""
        from rlkit.models.prompts import encode_chats, set_template_defaults

        new = {t.id: t.prompt for t in tasks if t.id not in self._known and not _acted(t)}
        if new and self._tokenizer is None:
            from rlkit.models.loading import load_tokenizer

            self._tokenizer = load_tokenizer(self.path)
            set_template_defaults(self._tokenizer, self.template)
        names = list(new)
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            ids = encode_chats(self._tokenizer, [new[name] for name in part])
            self._known |= zip(part, map(len, ids), strict=True)
        return [self._known.get(t.id, 0) for t in tasks]


def _acted(task: Task) -> bool:
    return task.data_source.startswith(ENVIRONMENT)


@lru_cache(4)
def _of(path: str, template: str) -> PromptLengths:
    return PromptLengths(path, json.loads(template))


def prompt_lengths(config: RunConfig) -> PromptLengths:
    """The lengths by the tokenizer of `model.path`, shared by all runs of this process that have it."""
    template = json.dumps(config.data.apply_chat_template_kwargs, sort_keys=True)
    return _of(config.model.path, template)


def at_hand(path: str) -> bool:
    """Whether a model's tokenizer is there without a hub: a ladder size's or a folder's."""
    return path in LADDER or Path(path).is_dir()


def countable(config: RunConfig) -> RunConfig:
    """The run as far as it can be made without a hub: its prompts unfiltered where the tokenizer is not at hand."""
    if at_hand(config.model.path) or not config.data.filter_overlong_prompts:
        return config
    return config.model_copy(
        update={"data": config.data.model_copy(update={"filter_overlong_prompts": False})}
    )


def too_long(config: RunConfig, tasks: Sequence[Task]) -> list[bool]:
    """Which of the tasks `data.filter_overlong_prompts` leaves out."""
    data = config.data
    if not data.filter_overlong_prompts:
        return [False] * len(tasks)
    return [tokens > data.max_prompt_length for tokens in prompt_lengths(config).count(tasks)]


def check_prompts(config: RunConfig, stream: "TaskStream", held_out: Sequence[Task]) -> None:
    """Count the prompts that a run will use, before its first step.

    Args:
        stream: the run's training tasks. Of a generator without a number of unique tasks, `GENERATED` are looked at.
        held_out: its held-out tasks; those of its suites are looked at as well.

    Raises:
        UserError: one is longer than data.max_prompt_length. It says how many are, and the longest.
    """
    lengths, limit = prompt_lengths(config), config.data.max_prompt_length
    sets = {"held-out": held_out, **stream.suites}
    sets |= {label: stream.used(i, GENERATED) for i, label in enumerate(stream.labels)}
    for where, chosen in sets.items():
        counts = lengths.count(chosen)
        overlong = [k for k, tokens in enumerate(counts) if tokens > limit]
        if overlong:
            longest = max(overlong, key=lambda k: counts[k])
            task = chosen[longest]
            raise UserError(
                f"data.max_prompt_length is {limit}, but {len(overlong):,} of {len(chosen):,} {where} prompts are "
                f"longer: that of task {task.id} ({task.data_source}) has {counts[longest]:,} tokens. Raise it, or "
                "leave them out with data.filter_overlong_prompts=true."
            )
