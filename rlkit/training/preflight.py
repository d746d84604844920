"""What would end a run at its first step, found before anything is trained."""

from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.models.loading import load_tokenizer
from rlkit.models.rungs import LADDER
from rlkit.rewards import scorer_of
from rlkit.samplers.rollouts import ENVIRONMENT, require_short
from rlkit.training import algorithms


def preflight(config: RunConfig) -> None:
    """Make what can be made of a run without weights: its first batch of tasks with their tokens, its reward function.

    Tokens are counted for ladder models and folders; those of a hub's model when the run loads it.

    Raises:
        UserError: the run would end at its first step, or before.
    """
    if config.trainer.backend == "local":
        algorithms.check(config)
    for source in config.data.train:
        source.check()
    scorer_of(config.reward)
    tasks = TaskStream(config, held_out(config)).batch(1)
    answers = [t for t in tasks if not t.data_source.startswith(ENVIRONMENT)]
    path = config.model.path
    if answers and (path in LADDER or Path(path).is_dir()):
        chats = [list(t.prompt) for t in answers]
        ids: Any = load_tokenizer(path).apply_chat_template(
            chats, add_generation_prompt=True, return_dict=False
        )
        require_short(answers, ids, config.data.max_prompt_length)
