"""Scoring predicted inputs and outputs of programs."""

import ast
import math
from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import after_thinking, fences, last_box, literal
from rlkit.domains.code.compare import same_value
from rlkit.errors import UserError
from rlkit.rewards.grading import Grading
from rlkit.rewards.sandbox import programs
from rlkit.rewards.truth import parse
from rlkit.types import Reward

_LONGEST = 200_000  # characters of an answer that is read
_CALL_SECONDS = 5.0
_MISSING = object()


@scorer("simulation__string_trace")
def score_trace(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the response, without blanks around it, is the truth."""
    return Reward.of(response.strip() == ground_truth)


@scorer("simulation__codeio*")
def score_codeio(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the value in the last fence, box or bracketed pair equals the truth's.

    The truth is `"output": value` or `"input": value`, with or without braces. Values are compared as
    JSON: 1 is not true; "true" is true, and text that holds JSON is that JSON; a missing wrapper is
    forgiven; of two equal keys the last counts; NaN is not null.
    """
    name, truth = _pair(ground_truth)
    answer = _codeio_answer(response)
    if answer is _MISSING:
        return Reward.of(False, reason="no answer")
    if isinstance(answer, dict) and name in answer:
        answer = answer[name]
    return Reward.of(_same_json(answer, truth))


def _pair(ground_truth: Any) -> tuple[str, Any]:
    value = ground_truth
    if isinstance(value, str):
        text = value.strip()
        value = _value(text if text.startswith("{") else "{" + text + "}")
    if isinstance(value, dict):
        for name in ("output", "input"):
            if name in value:
                return name, value[name]
    raise UserError(
        f'The ground truth of codeio must be "output": … or "input": …, not {str(ground_truth)[:80]!r}.'
    )


def _codeio_answer(response: str) -> Any:
    text = after_thinking(response)
    candidates = [body for tag, body in fences(response) if tag in ("json", "", "python", "text")]
    box = last_box(text)
    candidates = candidates[-1:] + ([box[1]] if box else []) + _braces(text)
    for candidate in candidates:
        for form in (candidate, "{" + candidate + "}"):
            value = _value(form)
            if value is not _MISSING:
                return value
    return _MISSING


def _braces(text: str) -> list[str]:
    """The last complete {…} of a text, if any."""
    end = text.rfind("}")
    depth = 0
    for position in range(end, max(-1, end - _LONGEST), -1):
        depth += {"}": 1, "{": -1}.get(text[position], 0)
        if depth == 0:
            return [text[position : end + 1]]
    return []


def _value(text: str) -> Any:
    """The JSON or Python literal that a text is."""
    return literal(text, _MISSING) if text.strip() and len(text) <= _LONGEST else _MISSING


def _same_json(a: Any, b: Any) -> bool:
    if isinstance(a, str) != isinstance(b, str):
        text, other = (a, b) if isinstance(a, str) else (b, a)
        value = {"true": True, "false": False, "null": None, "none": None}.get(text.strip().lower(), _MISSING)
        value = _value(text) if value is _MISSING else value
        return value is not _MISSING and not isinstance(value, str) and _same_json(value, other)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_json(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_json, a, b))
    return same_value(a, b)


@scorer("simulation__cruxeval*")
def score_cruxeval(
    response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading
) -> Reward:
    """1 when the last fence holds one assertion `assert f(arguments) == value` of literals that is true.

    With `extra_info["input"]` or `["output"]`, the arguments (when the output is asked for) or the value
    (when the input is) must be the given ones; without either, nothing would tell a true assertion about
    another input from the answer, which is an error.
    """
    truth = parse(ground_truth, dict, "cruxeval")
    code = truth.get("functional")
    if not isinstance(code, str) or not {"input", "output"} & set(extra_info):
        raise UserError("cruxeval needs ground_truth.functional, and input or output in extra_info.")
    claim = _claim(fences(response)[-1][1] if fences(response) else after_thinking(response))
    if claim is None:
        return Reward.of(False, reason="no assertion of literals")
    name, arguments, keywords, value = claim
    given = extra_info.get("input")
    if given is not None and _call(f"f({given})") != (arguments, keywords):
        if extra_info.get("output") is None or not same_literal(_literal(extra_info["output"]), value):
            return Reward.of(False, reason="the assertion is about something else")
        if not _asks_for_input(extra_info):
            return Reward.of(False, reason="the assertion is about another input")
    elif given is None and not same_literal(_literal(extra_info["output"]), value):
        return Reward.of(False, reason="the assertion is about another output")
    runner = f"{code}\n\ndef _called(arguments, keywords):\n    return {name}(*arguments, **keywords)\n"
    seconds = min(_CALL_SECONDS, grading.remaining() - 0.3)
    call = programs.call_function(grading, runner, "_called", [[list(arguments), keywords]], seconds)[0]
    return Reward.of(call.error is None and same_literal(call.value, value))


def _asks_for_input(extra_info: Mapping[str, Any]) -> bool:
    return str(extra_info.get("task") or extra_info.get("mode") or "").endswith(("input", "-i"))


def _claim(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any], Any] | None:
    """Function, arguments and value of the only assertion in a text."""
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        return None
    test = body[0].test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    call, value = test.left, test.comparators[0]
    if not isinstance(call, ast.Call):
        call, value = value, call
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return None
    try:
        keywords = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return call.func.id, tuple(map(ast.literal_eval, call.args)), keywords, ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _call(text: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    claim = _claim(f"assert {text} == 0")
    return claim and (claim[1], claim[2])


def _literal(text: Any) -> Any:
    try:
        return ast.literal_eval(str(text).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise UserError(f"cruxeval: {str(text)[:80]!r} in extra_info is no literal.") from None


def same_literal(a: Any, b: Any) -> bool:
    """Python's equality of plain values, with types: 1 is not True, a tuple is not a list."""
    return (
        type(a) is type(b) and repr(a) == repr(b)
        if not isinstance(a, set | dict)
        else bool(type(a) is type(b) and a == b)
    )
