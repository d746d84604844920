"""Scoring programs: every test must pass, in a sandbox, within the answer's deadline.

A truth is one of (as a mapping or as its JSON string):
    {"inputs", "outputs"}             standard input and output of each test
    {"fn_name", "inputs", "outputs"}  arguments and value of a function or of a method of `Solution`
    {"functional": code}              test code with assertions
    {"pytest": code}                  a pytest file that imports from `solution`
    {"solution_file": code}           a test script that imports from `solution`
An optional "checker" (code that sets `ok` from `inp`, `out`, `expected`) judges tests with several right
outputs.
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import after_thinking, fences, literal
from rlkit.domains.code.compare import same_output, same_value
from rlkit.errors import UserError
from rlkit.rewards.grading import Grading, Ungradable
from rlkit.rewards.sandbox import programs
from rlkit.rewards.truth import parse
from rlkit.types import Reward

_TAGS = ("python", "python3", "py", "py3", "pypy", "pypy3", "python2", "cpython")
_MARGIN = 0.3  # seconds of the deadline that are kept for ending the sandbox
_TESTS = {"functional", "solution_file", "pytest"}
_VERL = ("codecontests", "apps", "codeforces", "taco", "livecodebench", "humaneval", "mbpp")


@scorer("codegen__*", *_VERL)
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the last Python fence outside the reasoning passes every test.

    parts: tests_passed, tests_total and, for a failure, the first reason. With reward.partial_credit the
    value is the share of tests passed.
    """
    truth = parse(ground_truth, dict, "a program")
    program = extract(response)
    if program is None or not program.strip():
        return Reward.of(False, reason="no program")
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Reward.of(False, reason=f"{type(error).__name__}: {error}"[:200])
    if not tree.body:
        return Reward.of(False, reason="the program is empty")
    if _TESTS & set(truth):
        return _examined(program, truth, extra_info, grading)
    if not isinstance(truth.get("inputs"), list) or not isinstance(truth.get("outputs"), list):
        raise UserError(
            "The ground truth of a program needs inputs and outputs (lists), functional, pytest or solution_file, "
            f"and has {', '.join(sorted(truth)) or 'nothing'}."
        )
    if len(truth["inputs"]) != len(truth["outputs"]) or not truth["inputs"]:
        raise UserError(f"A program has {len(truth['inputs'])} inputs and {len(truth['outputs'])} outputs.")
    return (_called if truth.get("fn_name") else _run)(program, truth, grading)


def extract(response: str) -> str | None:
    """The last fence tagged as Python, else the last without a tag, else a response that has no fence."""
    found = fences(response)
    for tags in (_TAGS, ("",)):
        bodies = [body for tag, body in found if tag.split(" ")[0].split("{")[0] in tags]
        if bodies:
            return bodies[-1].removeprefix("\ufeff")
    text = after_thinking(response)
    return None if "```" in text or "~~~" in text else text


def _seconds(grading: Grading) -> float:
    return max(0.1, grading.remaining() - _MARGIN)


def _result(passed: int, total: int, reason: str | None) -> Reward:
    correct = passed == total and reason is None
    parts: dict[str, Any] = {"tests_passed": passed, "tests_total": total}
    if reason:
        parts["reason"] = reason
    return Reward.of(correct, passed / total, **parts)


def _text(value: Any) -> str:
    """A test's input or output; lists are lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _run(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Standard input and output."""
    passed, reason = 0, None
    for given, expected in zip(truth["inputs"], truth["outputs"], strict=True):
        outcome = programs.run_script(grading, program, _text(given), _seconds(grading))
        failure = _failure(grading, outcome, _text(given), _text(expected), truth.get("checker"))
        passed += failure is None
        reason = reason or failure
        if failure and (not grading.settings.partial_credit or failure == "time"):
            break
    return _result(passed, len(truth["inputs"]), reason)


def _failure(grading: Grading, outcome: Any, given: str, expected: str, checker: str | None) -> str | None:
    """Why a test failed, or None."""
    if outcome.reason:
        return outcome.reason
    if outcome.status != 0:
        last = outcome.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"exit status {outcome.status}: {last}"[:200]
    try:
        printed = outcome.stdout.decode("utf-8")
    except UnicodeDecodeError:
        return "the output is not UTF-8"
    if checker:
        return (
            None if _checked(grading, checker, given, printed, expected) else "the checker rejects the output"
        )
    return None if same_output(printed, expected) else "wrong output"


_CHECKER = """import json, sys
values = json.load(sys.stdin)
code = values.pop("checker")
try:
    exec(code, values)
except Exception:
    values["ok"] = False
print("ok" if values.get("ok") is True else "no")
"""


def _checked(grading: Grading, checker: str, given: str, printed: str, expected: str) -> bool:
    values = json.dumps({"checker": checker, "inp": given, "out": printed, "expected": expected})
    outcome = programs.run_script(grading, _CHECKER, values, _seconds(grading))
    return outcome.ok and outcome.stdout.strip() == b"ok"


def _called(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Arguments and values."""
    calls = [_arguments(given) for given in truth["inputs"]]
    wrapped = all(isinstance(given, list) for given in truth["inputs"])
    expected = [_value(output, wrapped) for output in truth["outputs"]]

    def enough(call: programs.Call, index: int) -> bool:
        failed = call.error is not None or not same_value(call.value, expected[index])
        return failed and not grading.settings.partial_credit

    found = programs.call_function(grading, program, truth["fn_name"], calls, _seconds(grading), enough)
    right = [
        call.error is None and same_value(call.value, value)
        for call, value in zip(found, expected, strict=False)
    ]
    reason = None if all(right) and len(found) == len(calls) else "wrong value"
    errors = [call.error for call in found if call.error]
    return _result(sum(right), len(calls), errors[0] if errors else reason)


def _arguments(given: Any) -> list[Any]:
    """A test's arguments: a list of them, or text with one JSON value a line."""
    if isinstance(given, list):
        return given
    if isinstance(given, dict):
        return [given]
    return [literal(line, line) for line in str(given).split("\n") if line.strip()]


def _value(output: Any, wrapped: bool) -> Any:
    """The expected value; where arguments come as lists, values may come in a list of one (APPS)."""
    value = literal(output, output) if isinstance(output, str) and not wrapped else output
    return value[0] if wrapped and isinstance(value, list) and len(value) == 1 else value


def _examined(
    program: str, truth: Mapping[str, Any], extra_info: Mapping[str, Any], grading: Grading
) -> Reward:
    """Test code, in a sandbox apart from the program's."""
    kind = next(k for k in ("functional", "solution_file", "pytest") if k in truth)
    tests = truth[kind]
    if not isinstance(tests, str) or not tests.strip():
        raise UserError("The test code of a program is empty.")
    try:
        ast.parse(tests)
    except SyntaxError as error:
        raise UserError(f"The test code of a program is no Python: {error}.") from None
    outcome = programs.examine(
        grading,
        program,
        tests,
        _seconds(grading),
        role="pytest" if kind == "pytest" else "asserts",
        prefix=str(extra_info.get("prefix") or ""),
        entry_point=extra_info.get("entry_point") or extra_info.get("function_name"),
        all=grading.settings.partial_credit,
    )
    if lacks := outcome.get("lacks"):
        raise Ungradable(f"The sandbox has no {lacks}, which the tests run in: install it, and bubblewrap.")
    return _result(outcome["passed"], outcome["total"], outcome["error"])
