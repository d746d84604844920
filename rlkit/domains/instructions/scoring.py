"""Scoring responses to IFEval and IFBench: every instruction must be followed."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import after_thinking, literal
from rlkit.domains.instructions import checks
from rlkit.errors import UserError
from rlkit.types import Reward


@scorer("ood__ifeval", "ifeval")
def score_ifeval(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the response outside the reasoning follows every instruction.

    Args:
        ground_truth: arguments of each instruction, a list of mappings (or its JSON or Python text).
        extra_info: `instruction_id_list`, and `prompt` for instructions that repeat it.

    parts: instructions_followed, instructions_total. With reward.partial_credit the value is their ratio.
    """
    names = extra_info.get("instruction_id_list")
    if not isinstance(names, list):
        raise UserError("An ifeval row needs extra_info.instruction_id_list, a list of names.")
    return _score(response, names, _read(ground_truth), extra_info.get("prompt"))


@scorer("ood__ifbench", "ifbench")
def score_ifbench(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """`score_ifeval` for IFBench, whose truth is `[{"instruction_id": [...], "kwargs": [...]}]`."""
    truth = _read(ground_truth)
    first = truth[0] if truth else None
    if not isinstance(first, Mapping) or not isinstance(first.get("instruction_id"), list):
        raise UserError("The ground truth of an ifbench row needs instruction_id and kwargs, both lists.")
    return _score(response, first["instruction_id"], first.get("kwargs") or [], extra_info.get("prompt"))


def _read(ground_truth: Any) -> list[Any]:
    value = literal(ground_truth) if isinstance(ground_truth, str) else ground_truth
    if not isinstance(value, list):
        raise UserError(f"The ground truth of instructions is a list, not {str(ground_truth)[:80]!r}.")
    return value


def _score(response: str, names: Sequence[str], arguments: Sequence[Any], prompt: Any) -> Reward:
    if not names or len(names) != len(arguments):
        raise UserError(f"{len(names)} instructions have {len(arguments)} sets of arguments.")
    text = after_thinking(response).strip()
    followed = [bool(text) and _follows(text, n, a, prompt) for n, a in zip(names, arguments, strict=True)]
    count = {"instructions_followed": sum(followed), "instructions_total": len(followed)}
    return Reward.of(all(followed), sum(followed) / len(followed), **count)


def _follows(text: str, name: str, arguments: Any, prompt: Any) -> bool:
    check = checks[name]
    known = inspect.signature(check).parameters
    given = {k: _whole(v) for k, v in (arguments or {}).items() if v is not None and k in known}
    if "prompt_to_repeat" in known and prompt is not None:
        given.setdefault("prompt_to_repeat", prompt if isinstance(prompt, str) else str(prompt))
    try:
        inspect.signature(check).bind(text, **given)
    except TypeError as problem:
        raise UserError(f"The instruction {name!r}: {problem}.") from None
    return check(text, **given)


def _whole(value: Any) -> Any:
    """Arrow turns whole numbers into floats when a column also has gaps."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
