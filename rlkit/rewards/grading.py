"""Grading one answer inside a worker: find the scorer, call it, and turn every failure into an error."""

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlkit.errors import UserError
from rlkit.rewards import context
from rlkit.rewards.routing import resolve
from rlkit.rewards.truth import decode
from rlkit.types import Reward


class Ungradable(Exception):
    """Raised by a scorer that cannot tell: the truth is malformed, a service is unreachable …"""


def grade(data_source: str, response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None) -> Reward:
    """The reward of one answer; never raises."""
    settings = context.settings
    context.begin(settings.timeout)
    try:
        truth, extra = decode(ground_truth), decode(extra_info) if extra_info else {}
        if truth is None:
            return Reward.failed("The ground truth is missing.")
        if settings.custom_reward_function:
            return _custom(settings.custom_reward_function, data_source, response, ground_truth, extra)
        scorer = resolve(data_source, settings.scorer)
        if not getattr(scorer, "quick", False):
            context.slow()
        return scorer(response, truth, extra)
    except (UserError, Ungradable) as error:
        return Reward.failed(str(error))
    except MemoryError:
        return Reward.of(False, killed="memory")
    except RecursionError:
        return Reward.of(False, killed="recursion")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        reason = f"{type(error).__name__}: {error} ({where})"
        return Reward.failed(f"The scorer of {data_source!r} failed: {reason}")


def _custom(
    name: str, data_source: str, response: str, ground_truth: Any, extra: Mapping[str, Any]
) -> Reward:
    """A function with verl's compute_score signature, plain or async; its number or dict as a Reward. Whether the
    answer is right it says by `acc`; where it does not, a score of at least 1 is, and one for effort is not."""
    result = load_function(name)(
        data_source=data_source, solution_str=response, ground_truth=ground_truth, extra_info=dict(extra)
    )
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    parts = dict(result) if isinstance(result, Mapping) else {}
    value = parts.pop("score") if parts else result
    if isinstance(value, Mapping) or not math.isfinite(float(value)):
        raise Ungradable(f"{name} returned {value!r}, which is no finite score.")
    return Reward(float(value), bool(parts.get("acc", float(value) >= 1)), parts)


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def version_of(name: str) -> str:
    """A hash of the file that `load_function` takes its function from. Raises UserError as that does."""
    load_function(name)
    place = name.rpartition(":")[0]
    spec = None if place.endswith(".py") else importlib.util.find_spec(place)
    file = Path(spec.origin or "" if spec else place)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.is_file() else "unknown"  # built in


@lru_cache
def load_function(name: str) -> Callable[..., Any]:
    """`module:function` or `path/to/file.py:function`.

    Raises:
        UserError: the module or file cannot be imported, or has no such function.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon or not place:
        raise UserError(f"custom_reward_function is {name!r}: write module:function or file.py:function.")
    with context.loading():
        return _import_function(name, place, attribute)


def _import_function(name: str, place: str, attribute: str) -> Callable[..., Any]:
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("rlkit_custom_reward", place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        return getattr(module, attribute)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise UserError(f"custom_reward_function is {name!r}: {error}.") from None
