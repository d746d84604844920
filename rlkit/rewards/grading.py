"""Grading one answer inside a worker: find the scorer, call it, and turn failures into errors."""

import asyncio
import importlib.util
import inspect
import math
import os
import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlkit.config import OverlongBuffer, RewardConfig
from rlkit.domains import resolve
from rlkit.domains.grading import Grading, decode
from rlkit.errors import Ungradable, UserError, WrongAnswer
from rlkit.seeds import file_hash
from rlkit.types import Reward

NOBODY = 65534  # the user that a custom function runs as where we are root
SCORER_VERSION = "14"
"""Changes whenever any scorer's verdict changes; stored with every run."""
_takes = lru_cache(lambda scorer: frozenset(inspect.signature(scorer).parameters))


def grade(
    data_source: str, response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None,
    grading: Grading | None = None,
) -> Reward:  # fmt: skip
    """The reward of one answer; never raises."""
    grading = grading or Grading(RewardConfig())
    custom = grading.settings.custom_reward_function
    try:
        if not isinstance(data_source, str) or not data_source:
            return Reward(error=f"The row's data_source is {data_source!r}, not a name.")
        if not isinstance(response, str):
            return Reward(error=f"The row's response is a {type(response).__name__}, not text.")
        truth, extra = decode(ground_truth), decode(extra_info) if extra_info else {}
        if truth is None:
            return Reward(error="The ground truth is missing.")
        if custom:
            row = {"data_source": data_source, "solution_str": response, "ground_truth": ground_truth}
            result = load_function(custom)(**row, extra_info=dict(extra))
            reward = _reward_of(custom, asyncio.run(result) if inspect.iscoroutine(result) else result)
        else:
            scorer = resolve(data_source)
            options = {"grading": grading} if "grading" in _takes(scorer) else {}
            reward = scorer(response, truth, extra, **options)
            if grading.settings.partial_credit:
                reward = replace(reward, parts={**reward.parts, "share": reward.value})
            elif reward.value != reward.correct:
                reward = replace(reward, value=float(bool(reward.correct)))
        return _with_format(reward, response, grading.settings)
    except WrongAnswer as error:
        return Reward.of(False, reason=str(error))
    except (UserError, Ungradable) as error:
        return Reward(error=str(error))
    except (MemoryError, RecursionError) as error:
        return Reward.of(False, killed=type(error).__name__.removesuffix("Error").lower())
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        if custom:
            denied = isinstance(error, PermissionError) and os.geteuid() == NOBODY
            return Reward(error=f"{custom} failed: {reason}{' It runs as nobody.' if denied else ''}")
        return Reward.of(False, exception=reason[:300])


def _with_format(reward: Reward, response: str, settings: RewardConfig) -> Reward:
    """The weighted sum of a reward and of whether the response has the format; both are in the parts."""
    if reward.value is None or not (weight := settings.format_weight):
        return reward
    form = float(_has_format(response, settings.format))
    parts = {**reward.parts, "verdict": reward.value, "format": form}
    return replace(reward, value=(1 - weight) * reward.value + weight * form, parts=parts)


def _has_format(response: str, form: str) -> bool:
    """Whether a response has one of the forms that `reward.format` may ask for."""
    if form == "boxed":
        return "\\boxed{" in response.rpartition("</think>")[2]
    before, _, rest = response.partition(f"<{form}>")
    _, closed, after = rest.partition(f"</{form}>")
    if not closed or f"<{form}>" in rest or f"</{form}>" in before or f"</{form}>" in after:
        return False  # not one pair
    return not after.strip() if form == "answer" else not before.strip() and bool(after.strip())


def with_overlong_penalty(reward: Reward, length: int, limit: int, buffer: OverlongBuffer) -> Reward:
    """The reward of an answer of `length` tokens less what it loses for going into the last tokens before `limit`."""
    into = length - (limit - buffer.len)
    if not buffer.enable or reward.value is None or into <= 0:
        return reward
    penalty = into / buffer.len * buffer.penalty_factor
    return replace(reward, value=reward.value - penalty, parts={**reward.parts, "overlong_penalty": penalty})


def grading_metrics(rewards: Sequence[Reward | None]) -> dict[str, float]:
    """Shares of answers that are wrong without a scorer's decision: the grader was killed (deadline, memory, recursion,
    death), a program's time was over, or the scorer raised an exception."""
    parts = [reward.parts for reward in rewards if reward is not None]
    count = max(1, len(rewards))
    return {
        "reward/killed": sum("killed" in p for p in parts) / count,
        "reward/timeouts": sum(p.get("reason") == "time" for p in parts) / count,
        "reward/grader_exceptions": sum("exception" in p for p in parts) / count,
    }


def _reward_of(name: str, result: Any) -> Reward:
    """A number, or a mapping with `score` and `acc` (whether it is right, else score >= 1 says it), as a Reward."""
    parts = dict(result) if isinstance(result, Mapping) else {"score": result}
    try:
        value = parts.pop("score")
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (KeyError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        wanted = "a finite number, or a dict with score (a finite number) and acc (whether it is right)"
        raise Ungradable(f"{name} returned {str(result)[:100]!r}: return {wanted}.")
    return Reward(number, bool(parts.get("acc", number >= 1)), parts)


@lru_cache
def load_function(name: str) -> Callable[..., Any]:
    """`module:function` or `path/to/file.py:function`. UserError: it cannot be imported, or has no such function."""
    place, _, attribute = name.rpartition(":")
    try:
        own = place.endswith(".py")
        names = runpy.run_path(place, {}, "custom_reward") if own else vars(importlib.import_module(place))
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise UserError(f"custom_reward_function is {name!r}: {error}.") from None
    if attribute not in names:
        raise UserError(f"custom_reward_function is {name!r}: {place} has no {attribute}.")
    return names[attribute]


def scorer_of(config: RewardConfig) -> dict[str, str]:
    """What grades the answers of a RewardConfig: `scorer`, and `scorer_version`, which changes with its verdicts.
    Raises UserError where reward.custom_reward_function cannot be loaded."""
    if (own := config.custom_reward_function) is not None:
        load_function(own)
        place = own.rpartition(":")[0]
        spec = None if place.endswith(".py") else importlib.util.find_spec(place)
        file = Path(spec.origin or "" if spec else place)
        version = file_hash(file)[:12] if file.is_file() else "unknown"
        return {"scorer": own, "scorer_version": version}
    return {"scorer": "strict", "scorer_version": SCORER_VERSION}


def isolation(config: RewardConfig) -> str | None:
    """What a run says about the isolation of a reward function of the user's; None for rlkit's scorers."""
    if config.custom_reward_function is None:
        return None
    root = os.geteuid() == 0
    user = "nobody" if root else "you, and can read your files and your processes' keys and tokens"
    return (
        f"reward.custom_reward_function runs outside the sandbox as {user}. "
        "If it evaluates what answers say, they can forge verdicts and do what it can."
    )
