"""How long prompts are by the model's tokenizer, and which are refused or left out (`data.filter_overlong_prompts`)."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rlkit.config import RunConfig
from rlkit.config.model import is_ladder
from rlkit.errors import UserError
from rlkit.types import ENVIRONMENT, Task


def fitting(config: RunConfig, tasks: Sequence[Task]) -> list[bool]:
    """Which of the tasks `data.filter_overlong_prompts` keeps."""
    if not config.data.filter_overlong_prompts:
        return [True] * len(tasks)
    return [tokens <= config.data.max_prompt_length for tokens in prompt_lengths(config, tasks)]


def check_lengths(config: RunConfig, tasks: Sequence[Task], where: str) -> None:
    """Raise UserError where a prompt of the tasks of `where` is longer than data.max_prompt_length."""
    lengths, limit = prompt_lengths(config, tasks), config.data.max_prompt_length
    if (longest := max(lengths, default=0)) > limit:
        task = tasks[lengths.index(longest)]
        raise UserError(
            f"data.max_prompt_length is {limit}, but {sum(n > limit for n in lengths):,} of {len(lengths):,} {where} "
            f"prompts are longer: that of task {task.id} ({task.data_source}) has {longest:,} tokens. Raise it, or "
            "leave them out with data.filter_overlong_prompts=true."
        )


def prompt_lengths(config: RunConfig, tasks: Sequence[Task]) -> list[int]:
    """Tokens of each task's prompt by the tokenizer of `model.path` and its chat template; 0 for an environment's
    task, which the episode limits."""
    from rlkit.models.prompts import encode_chats, ladder_length

    asked = {task.id: task.prompt for task in tasks if not task.data_source.startswith(ENVIRONMENT)}
    if not asked:
        return [0] * len(tasks)
    if is_ladder(config.model.path):
        return [ladder_length(asked[task.id]) if task.id in asked else 0 for task in tasks]
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
