"""Scoring reasoning-gym's tasks with their own scorers (Stojanovski et al. 2025, arXiv 2505.24760)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import tagged
from rlkit.errors import UserError
from rlkit.rewards.grading import Grading
from rlkit.rewards.truth import parse
from rlkit.types import Reward

_ALMOST = 1 - 1e-9


@scorer("reasoning_gym*", "reasoning-gym*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """The value that the data set's own scorer gives the last `<answer>`; correct is full marks.

    `extra_info["entry"]` is the item (or its JSON text), with `metadata.source_dataset` as reasoning-gym
    writes it; `extra_info["task"]` or `["dataset"]` names the data set otherwise.
    """
    entry = parse(extra_info.get("entry") or {}, dict, "a reasoning-gym item")
    metadata = entry.get("metadata") or extra_info.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    name = extra_info.get("dataset") or extra_info.get("task") or metadata.get("source_dataset")
    if not name:
        raise UserError("A reasoning-gym row needs extra_info.entry with metadata.source_dataset.")
    answer = tagged(response)
    if answer is None:
        return Reward.of(False, reason="no answer")
    item = {"answer": ground_truth, **entry, "metadata": metadata}
    value = float(_scorer(str(name), grading)(answer=answer.strip(), entry=item))
    return Reward.of(value >= _ALMOST, min(1.0, max(0.0, value)))


@lru_cache
def _scorer(name: str, grading: Grading) -> Any:
    with grading.loading():
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise UserError(f"reasoning-gym has no data set {name!r}.")
    return reasoning_gym.get_score_answer_fn(name)
