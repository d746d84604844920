"""Episodes as training data: token ids with a weight on every action token."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rlkit.config import Optimizer, Positive, Section
from rlkit.environments.chat import ChatTokens
from rlkit.environments.trajectory import Trajectory
from rlkit.errors import UserError
from rlkit.models.prompts import encode_text

LARGEST_WEIGHT = 20.0  # of a step under `advantage_weighted`, as in Peng et al. 2019


class AgenticConfig(Section):
    """How episodes become a loss."""

    method: Literal["reward_weighted", "advantage_weighted", "filtered"] = "reward_weighted"
    """reward_weighted: every token of an episode weighs exp(return / (temperature · std of returns)).
    advantage_weighted: every step weighs exp(advantage / (temperature · std)), its advantage being the return
    from it on minus the mean of that over all episodes at the same step (AWR, Peng et al., arXiv 1910.00177).
    filtered: successful episodes alone, equally (filtered behaviour cloning)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Softness of the weights: towards 0 only the best count, large values are plain behaviour cloning."""
    epochs: Positive = 4
    """Passes over the episodes."""
    batch_size: Positive | None = None
    """Episodes an optimizer step. None: 32, or an eighth of them where that is fewer."""
    optim: Optimizer | None = None
    """None: cosine from 4e-3 where all weights train and 1e-3 for an adapter, after a warm-up of a fifth of the steps,
    at most 20."""
    max_length: Positive = 2048
    """Longest episode in tokens, prompt included; longer ones are left out and counted."""
    max_response_length: Positive = 512
    """Tokens of an episode that the trained model plays."""
    max_turn_length: Positive = 64
    """Tokens of one of its turns."""


@dataclass(frozen=True)
class Example:
    """One episode as ids: (S,) prompt, (T,) response, (T,) weights, zero on observations."""

    prompt_ids: np.ndarray
    response_ids: np.ndarray
    weights: np.ndarray


def encode(chat: ChatTokens, trajectory: Trajectory, weights: np.ndarray) -> Example:
    """A trajectory's ids, those that a rollout of the same texts appends, and weights on its actions."""
    stop = int(chat.tokenizer.eos_token_id)
    pieces: list[np.ndarray] = []
    spread: list[np.ndarray] = []
    for i, (step, weight) in enumerate(zip(trajectory.transitions, weights, strict=True)):
        action = np.asarray([*encode_text(chat.tokenizer, step.text), stop], np.int64)
        pieces.append(action)
        spread.append(np.full(len(action), weight))
        if i + 1 < len(trajectory):
            pieces.append(chat.follow(step.next_state, stop))
            spread.append(np.zeros(len(pieces[-1])))
    return Example(chat.prompt(trajectory.messages), np.concatenate(pieces), np.concatenate(spread))


def step_weights(trajectories: Sequence[Trajectory], config: AgenticConfig) -> list[np.ndarray]:
    """The weight of every step of every episode, by `config.method`; not yet normalised. Raises UserError as
    `AgenticTrainer.prepare_training_data` does."""
    for i, trajectory in enumerate(trajectories):
        for k, step in enumerate(trajectory.transitions, 1):
            if not isinstance(step.reward, numbers.Real) or not math.isfinite(step.reward):
                raise UserError(
                    f"Step {k} of trajectory {i} has the reward {step.reward!r}: a reward is a finite number."
                )
    if config.method == "filtered":
        if not any(t.success for t in trajectories):
            raise UserError(
                "None of the trajectories succeeded, so method 'filtered' leaves nothing: use another."
            )
        return [np.full(len(t), float(t.success)) for t in trajectories]
    if config.method == "advantage_weighted":
        return _advantage_weights(trajectories, config.temperature)
    returns = np.array([t.total_reward for t in trajectories])
    if not returns.any():
        raise UserError(
            "Every trajectory has the return 0, so method 'reward_weighted' tells none from another: use "
            "'advantage_weighted' or 'filtered'."
        )
    scale = config.temperature * returns.std() or 1.0
    weights = np.exp((returns - returns.max()) / scale)
    return [np.full(len(t), weight) for t, weight in zip(trajectories, weights, strict=True)]


def _advantage_weights(trajectories: Sequence[Trajectory], temperature: float) -> list[np.ndarray]:
    to_go = [np.cumsum([t.reward for t in e.transitions][::-1])[::-1] for e in trajectories]
    longest = max(map(len, to_go))
    baseline = [float(np.mean([g[k] for g in to_go if len(g) > k])) for k in range(longest)]
    advantages = [g - baseline[: len(g)] for g in to_go]
    scale = temperature * float(np.concatenate(advantages).std()) or 1.0
    return [np.minimum(np.exp(a / scale), LARGEST_WEIGHT) for a in advantages]
