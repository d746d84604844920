"""How answers are graded: `reward.*`."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from rlkit.params import Section, Share


class OverlongBuffer(Section):
    """Soft overlong punishment (DAPO, arXiv 2503.14476): an answer loses reward for the tokens that it goes into the
    last `len` of data.max_response_length, up to `penalty_factor`."""

    enable: bool = False
    """Whether training rewards are lowered; evaluations never are."""
    len: PositiveInt = 4096
    """Tokens of the buffer."""
    penalty_factor: NonNegativeFloat = 1.0
    """What an answer that fills the buffer loses."""


class RewardConfig(Section):
    """How answers are graded."""

    custom_reward_function: str | None = None
    """`module:function` or `file.py:function` with verl's compute_score signature, instead of the router: a score, or
    a dict with `score` and `acc`, whether the answer is right; without `acc` it is where the score is at least 1. It
    runs as nobody where you are root, and else as you: then it can read the variables of your other processes."""
    num_workers: NonNegativeInt = 0
    """Grading processes; 0 is one a CPU core, at most 8."""
    timeout: PositiveFloat = 10.0
    """Seconds an answer may take, and each test of a program."""
    total_timeout: PositiveFloat = 60.0
    """Seconds that all tests of one program may take together."""
    max_error_rate: Share = 0.05
    """The run stops when more of a step cannot be graded."""
    sandbox: Literal["auto", "bubblewrap", "rlimits", "unsafe"] = "auto"
    """Isolation of untrusted programs; auto is the best that works here."""
    partial_credit: bool = False
    """Train on the share of tests or cells that are right (`parts.share`) instead of on all or nothing."""
    format_weight: Share = 0.0
    """Weight of the response's format in what trains: (1 - weight) · verdict + weight · format. Both are in the
    parts; what is reported is the verdict."""
    format: Literal["boxed", "answer", "think"] = "boxed"
    """boxed: a \\boxed{} outside the reasoning. answer: one <answer>…</answer>, at the end. think: one
    <think>…</think>, at the beginning and with text after it."""
    overlong_buffer: OverlongBuffer = OverlongBuffer()
    judge_url: str | None = None
    """OpenAI-compatible endpoint (…/v1) of the model that judges free-text answers; each worker asks one question at
    a time, so raise num_workers with it."""
    judge_model: str = "TIGER-Lab/general-verifier"
    """Model asked for at judge_url."""

    @field_validator("custom_reward_function", mode="before")
    @classmethod
    def _in_one(cls, value: Any) -> Any:
        if isinstance(value, Mapping):  # verl's own form
            raise ValueError(f"write {value.get('path', 'file.py')}:{value.get('name', 'function')} in one")
        if value is not None and not re.fullmatch(r".+:[^:]+", str(value)):
            raise ValueError(f"it is {value!r}: write module:function or file.py:function")
        return value
