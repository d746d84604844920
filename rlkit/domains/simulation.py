"""Simulation: predicting what a program prints, returns or needs; tasks above, scorers below."""

import ast
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pprint import pformat  # sorts keys and tells types apart
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import FONT, after_thinking, fences, last_box, literal
from rlkit.domains.code import an_input, compose
from rlkit.domains.grading import Grading, parse, same_value
from rlkit.errors import UserError
from rlkit.sandbox import programs
from rlkit.sandbox.reading import last_function
from rlkit.seeds import generator
from rlkit.types import Reward, Task

_PROGRAMS = {
    "sorted": lambda s: "".join(sorted(s)), "reversed": lambda s: s[::-1], "max": max, "min": min,
    "last": lambda s: s[-1], "rotate": lambda s: s[1:] + s[0],
}  # fmt: skip


@sources.register("string_trace")
class StringTrace(Source):
    """What a one-line string program gives. Example: `sorted dbca` → `abcd`."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__string_trace",)
    kind: Literal["string_trace"] = "string_trace"
    length: Annotated[int, Field(ge=2, le=20)] = 4
    """Most letters of the input; drawn evenly from 2 up to it."""
    letters: Annotated[int, Field(ge=2, le=26)] = 8
    """Size of the alphabet."""

    def task(self, index: int) -> Task:
        rng = generator("string_trace", self.length, self.letters, index)
        size = int(rng.integers(2, self.length + 1))
        text = "".join(chr(97 + int(k)) for k in rng.integers(self.letters, size=size))
        name = list(_PROGRAMS)[int(rng.integers(len(_PROGRAMS)))]
        fields = {"ability": "simulation", "extra_info": {"index": index, "difficulty": size}}
        return Task.ask("simulation__string_trace", f"{name} {text}", _PROGRAMS[name](text), **fields)


@sources.register("code_io")
class CodeIO(Source):
    """What a composed program gives for an input, as in Guru's codeio, or which input gives an output: then every step
    can be undone, so that the answer is the only one."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__codeio_generated",)
    kind: Literal["code_io"] = "code_io"
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    """Most steps of the program; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("code_io", self.steps, "both", index)
        wanted, given = (("output", "input"), ("input", "output"))[int(rng.integers(2))]
        program = compose(rng, int(rng.integers(1, self.steps + 1)), invertible=wanted == "input")
        value = an_input(rng, takes := program[0].takes)
        pair = {"input": {takes: value}, "output": program.run(value)}
        form = f" (a mapping with the key {takes})" if wanted == "input" else ""
        question = (
            f"Here is a Python function:\n{program.source()}\n\n"
            f"Its {given} is {json.dumps(pair[given])}. What is its {wanted}{form}? Please output the final answer "
            f'within ```json``` as {{"{wanted}": ...}}.'
        )
        truth = f'"{wanted}": {json.dumps(pair[wanted])}'
        fields = {"ability": "simulation", "extra_info": {"index": index, "difficulty": len(program)}}
        return Task.ask("simulation__codeio_generated", question, truth, **fields)


_LONGEST = 20_000  # characters of an answer that is read
_CALL_SECONDS = 5.0
_MISSING = object()
_MAPPING = re.compile(r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")  # with two more inside one another


@scorer("simulation__codeio*")
def score_codeio(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the value in the last fence, box or mapping equals the truth's, `"output": value` or `"input": value` with
    or without braces. Values are compared as JSON: 1 is not true; text that holds JSON is that JSON; a missing wrapper
    is forgiven, a second key is not."""
    truth = _value(ground_truth) if isinstance(ground_truth, str) else ground_truth
    name = next((n for n in ("output", "input") if isinstance(truth, dict) and n in truth), None)
    if name is None:
        raise UserError(f'A truth of codeio is "output": … or "input": …, not {str(ground_truth)[:80]!r}.')
    values = [value for text in _candidates(response) if (value := _value(text)) is not _MISSING]
    if not values:
        return Reward.of(False, reason="no answer")
    bare = values[0][name] if isinstance(values[0], dict) and [*values[0]] == [name] else values[0]
    return Reward.of(_same_json(bare, truth[name]))


def _candidates(response: str) -> list[str]:
    """Of the last fence and the last box the one that was given last, then the other, then a mapping in the text."""
    text = after_thinking(response)
    found = [body for tag, body in fences(text) if tag in ("json", "", "python", "text")][-1:]
    if box := last_box(text):
        boxed = re.sub(rf"\A\s*{FONT}\s*\{{(.*)\}}\s*\Z", r"\1", box[1], count=1, flags=re.DOTALL)
        behind = box[0] > max(text.rfind("```"), text.rfind("~~~"))
        found.insert(0 if behind else 1, re.sub(r"\\([{}_$%&#])", r"\1", boxed))
    return [*found, *_MAPPING.findall(text[-_LONGEST:])[-1:]]  # models repeat it, and the last may be cut


def _value(text: str) -> Any:
    """The JSON or Python literal that a text is, or is in braces; _MISSING where it is neither."""
    if not text.strip() or len(text) > _LONGEST:
        return _MISSING
    return literal(text, literal(f"{{{text}}}", _MISSING))


def _same_json(a: Any, b: Any) -> bool:
    if isinstance(a, str) != isinstance(b, str):
        text, other = (a, b) if isinstance(a, str) else (b, a)
        value = {"true": True, "false": False, "null": None}.get(text.strip().lower(), _value(text))
        return not isinstance(value, str) and _same_json(value, other)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_json(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_json, a, b))
    return same_value(a, b)


@scorer("simulation__cruxeval*")
def score_claim(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the last fence holds one assertion `assert f(arguments) == value` of literals that is true, about the
    arguments `extra_info["input"]` (when the output is asked for) or the value `["output"]` (when the input is)."""
    code = parse(ground_truth, dict, "cruxeval").get("functional")
    shown = {key: extra_info[key] for key in ("input", "output") if extra_info.get(key) is not None}
    if not isinstance(code, str) or not shown:  # a true assertion about anything would be an answer
        raise UserError("cruxeval needs ground_truth.functional, and input or output in extra_info.")
    known = _claim(f"assert f({shown.get('input', '')}) == {str(shown.get('output', 0)).strip()}")
    if known is None:
        raise UserError(f"cruxeval: the input or output in extra_info is no literal: {str(shown)[:120]}.")
    blocks = fences(response)
    text = blocks[-1][1] if blocks else after_thinking(response)
    if len(text) > _LONGEST or (claim := _claim(text)) is None:
        return Reward.of(False, reason="no assertion of literals")
    name, given, value = claim
    function = "f" if re.search(r"(?m)^(?:async +)?def +f\b|^f *=(?!=)", code) else last_function(code)
    mode = str(extra_info.get("task") or extra_info.get("mode") or "")
    any_input = "input" not in shown or mode.endswith(("input", "-i"))
    of_input = "input" in shown and pformat(known[1]) == pformat(given)
    of_output = "output" in shown and pformat(known[2]) == pformat(value)
    if name != function or not (of_input or (of_output and any_input)):
        return Reward.of(False, reason="the assertion is about something else")
    runner = f"{code}\n\ndef _called(arguments, keywords):\n    return {name}(*arguments, **keywords)\n"
    seconds = min(_CALL_SECONDS, grading.remaining() - 0.3)
    [call] = programs.call_function(grading, runner, "_called", [given], seconds)
    short = call.error is None and len(repr(call.value)) < 10 * _LONGEST  # else pformat takes minutes
    return Reward.of(short and pformat(call.value) == pformat(value))


def _claim(text: str) -> tuple[str, list[Any], Any] | None:
    """Function, arguments (positional and named ones) and value of the only assertion in a text."""
    with suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        match ast.parse(text.strip()).body:
            case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
                call, value = (left, right) if isinstance(left, ast.Call) else (right, left)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    named = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
                    given = [list(map(ast.literal_eval, call.args)), named]
                    return call.func.id, given, ast.literal_eval(value)
    return None
