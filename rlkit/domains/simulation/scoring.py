"""Scoring predicted program outputs."""

from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.types import Reward


@scorer("simulation__string_trace")
def score_trace(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the response, without blanks around it, is the truth."""
    return Reward.of(response.strip() == ground_truth)


score_trace.quick = True  # see rlkit.rewards.worker
