"""What would end a run at its first step, found before anything is trained."""

import warnings
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import countable
from rlkit.errors import UserError
from rlkit.models.ladder import ladder_config
from rlkit.models.shapes import LADDER, at_hand
from rlkit.rewards import scorer_of
from rlkit.training import algorithms


def preflight(config: RunConfig) -> None:
    """Make what can be made of a run without weights: its tasks with their tokens, its reward function.

    Tokens are counted for ladder models and folders; those of a hub's model when the run loads it.

    Raises:
        UserError: the run would end at its first step, or before.
    """
    if config.trainer.backend == "local":
        algorithms.check(config)
    for source in (*config.data.train, *(config.evaluation.sources or ()), *config.evaluation.suites):
        source.check()
    scorer_of(config.reward)
    warn_of_defaults(config)
    made = countable(config)
    tests = held_out(made)
    stream = TaskStream(made, tests)
    stream.batch(1)
    path = config.model.path
    if at_hand(path):
        check_window(config, ladder_config(path) if path in LADDER else AutoConfig.from_pretrained(path))
        stream.check_prompts(tests)


def check_window(config: RunConfig, model: Any) -> None:
    """Refuse sequences that are longer than the model of this Hugging Face config was made for. Raises UserError."""
    window, data = getattr(model, "max_position_embeddings", None), config.data
    longest = data.max_prompt_length + data.max_response_length
    if window is not None and longest > window:
        raise UserError(
            f"data.max_prompt_length {data.max_prompt_length} and data.max_response_length {data.max_response_length} "
            f"are {longest} tokens, but {config.model.path} has positions for {window} (max_position_embeddings): "
            f"lower one of them by {longest - window}."
        )


def warn_of_defaults(config: RunConfig) -> None:
    """Warn of defaults that are made for ladder models, where the model is another; verl's are named."""
    path, whole = config.model.path, not config.model.lora_rank
    if path.startswith("ladder-") and not Path(path).exists():
        return
    unsuited = {
        "actor.optim.lr": (whole and config.actor.optim.lr > 1e-5, config.actor.optim.lr, "1e-6"),
        "critic.optim.lr": (
            config.algorithm.needs.critic and whole and config.critic.optim.lr > 1e-4, config.critic.optim.lr, "1e-5",
        ),
        "data.max_response_length": (config.data.max_response_length <= 16, config.data.max_response_length, "512"),
    }  # fmt: skip
    for key, (unfit, value, verls) in unsuited.items():
        if unfit:
            warnings.warn(
                f"{key} is {value:g}, which suits ladder models, and model.path is {path!r}: set it; verl's default is "
                f"{verls}.",
                stacklevel=2,
            )
