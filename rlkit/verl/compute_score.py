"""verl's reward function: `compute_score` over the router and its worker processes.

    reward.custom_reward_function.path=pkg://rlkit.verl.compute_score
    +reward.custom_reward_function.reward_kwargs.config={timeout: 10}

verl calls it in threads of its reward workers. An answer that cannot be graded raises: verl 0.9.1 then drops
this answer alone (its session fails, the others of the group are trained on), so an error is never a zero.
"""

from collections.abc import Mapping
from typing import Any

from rlkit.config import RewardConfig
from rlkit.data.rows import WRITTEN, from_verl
from rlkit.rewards.pool import shared_router
from rlkit.types import Reward
from rlkit.verl.answers_log import record

PLACE = "rlkit"  # the key of extra_info under which our agent loop says which answer this is


class UngradedAnswer(RuntimeError):
    """An answer could not be graded; its message is the reason."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    answers: str | None = None,
    **_: Any,
) -> dict[str, float]:
    """The reward of one answer of a row that `rlkit data export` wrote, with the same keys for every data_source:
    `score` (what trains) and `correct` (1.0 or 0.0, what is reported). `config` is a `reward` section, `answers` the
    folder of the answers log, if any. Raises UngradedAnswer where the grader failed, which is logged."""
    info, settings = dict(extra_info or {}), RewardConfig.model_validate(dict(config or {}))
    router = shared_router(settings)  # pyright: ignore[reportArgumentType]  # frozen models hash
    truth, task_info = from_verl(ground_truth, {k: info[k] for k in WRITTEN if k in info})
    [reward] = router.grade_rows([(data_source, solution_str, truth, task_info)])
    if answers and PLACE in info:
        record(answers, info[PLACE], data_source, solution_str, reward)
    return score_of(reward)


def score_of(reward: Reward) -> dict[str, float]:
    """A reward as verl takes it. Raises UngradedAnswer."""
    if reward.value is None:
        raise UngradedAnswer(reward.error)
    return {"score": reward.value, "correct": float(bool(reward.correct))}
