"""Programs: tasks with generated tests, and the scorer that runs a program against its tests in the sandbox."""

import ast
import builtins
import json
import math
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import after_thinking, fences, literal
from rlkit.errors import UserError
from rlkit.rewards.grading import Grading, Ungradable, parse
from rlkit.rewards.sandbox import programs
from rlkit.rewards.sandbox.testing import TestCode
from rlkit.seeds import generator
from rlkit.types import Reward, Task

# --- Programs composed of steps -----------------------------------------------------------------------
# The function and the source of a step say the same thing twice, so that ground truth needs no execution of text;
# the tests run the sources and compare.

Type = Literal["list", "string", "integer"]
PARAMETER: dict[Type, str] = {"list": "xs", "string": "s", "integer": "n"}
HINT: dict[Type, str] = {"list": "list[int]", "string": "str", "integer": "int"}


class Step(NamedTuple):
    """`code` is an expression of the parameter's name; `{k}` stands for a constant from 2 to 5."""

    takes: Type
    gives: Type
    words: str
    code: str
    run: Callable[[Any, int], Any]
    invertible: bool = False


def _rotated(x: Any, k: int) -> Any:
    return x[k:] + x[:k]


# fmt: off
STEPS = (
    Step("list", "list", "sort it in ascending order", "sorted(xs)", lambda x, k: sorted(x)),
    Step("list", "list", "sort it in descending order", "sorted(xs, reverse=True)", lambda x, k: sorted(x)[::-1]),
    Step("list", "list", "reverse it", "xs[::-1]", lambda x, k: x[::-1], True),
    Step("list", "list", "multiply every element by {k}",
         "[x * {k} for x in xs]", lambda x, k: [v * k for v in x], True),
    Step("list", "list", "add {k} to every element", "[x + {k} for x in xs]", lambda x, k: [v + k for v in x], True),
    Step("list", "list", "square every element", "[x * x for x in xs]", lambda x, k: [v * v for v in x]),
    Step("list", "list", "drop the first element", "xs[1:]", lambda x, k: x[1:]),
    Step("list", "list", "keep every second element from the first on", "xs[::2]", lambda x, k: x[::2]),
    Step("list", "list", "keep the elements greater than {k}",
         "[x for x in xs if x > {k}]", lambda x, k: [v for v in x if v > k]),
    Step("list", "list", "keep the even elements",
         "[x for x in xs if x % 2 == 0]", lambda x, k: [v for v in x if v % 2 == 0]),
    Step("list", "list", "append its length", "xs + [len(xs)]", lambda x, k: [*x, len(x)], True),
    Step("list", "list", "replace it by its running sums",
         "[sum(xs[:i + 1]) for i in range(len(xs))]", lambda x, k: [sum(x[: i + 1]) for i in range(len(x))], True),
    Step("list", "integer", "take the sum of its elements", "sum(xs)", lambda x, k: sum(x)),
    Step("list", "integer", "take the sum of the squares of its elements",
         "sum(x * x for x in xs)", lambda x, k: sum(v * v for v in x)),
    Step("list", "integer", "take its largest element, or 0 if it is empty",
         "max(xs, default=0)", lambda x, k: max(x, default=0)),
    Step("list", "integer", "take its largest element minus its smallest, or 0 if it is empty",
         "max(xs, default=0) - min(xs, default=0)", lambda x, k: max(x, default=0) - min(x, default=0)),
    Step("list", "string", "join its elements into a string with hyphens",
         '"-".join(map(str, xs))', lambda x, k: "-".join(map(str, x)), True),
    Step("string", "string", "reverse it", "s[::-1]", lambda x, k: x[::-1], True),
    Step("string", "string", "sort its characters", '"".join(sorted(s))', lambda x, k: "".join(sorted(x))),
    Step("string", "string", "convert it to upper case", "s.upper()", lambda x, k: x.upper()),
    Step("string", "string", "move its first {k} characters to the end", "s[{k}:] + s[:{k}]", _rotated, True),
    Step("string", "string", "write every character twice",
         '"".join(c + c for c in s)', lambda x, k: "".join(c + c for c in x), True),
    Step("string", "string", "keep every second character from the first on", "s[::2]", lambda x, k: x[::2]),
    Step("string", "string", "append its first character", "s + s[:1]", lambda x, k: x + x[:1], True),
    Step("string", "string", "remove its last character", "s[:-1]", lambda x, k: x[:-1]),
    Step("string", "list", "list its code points", "[ord(c) for c in s]", lambda x, k: [ord(c) for c in x], True),
    Step("string", "integer", "sum its code points", "sum(ord(c) for c in s)", lambda x, k: sum(map(ord, x))),
    Step("integer", "integer", "multiply it by {k}", "n * {k}", lambda x, k: x * k, True),
    Step("integer", "integer", "add {k}", "n + {k}", lambda x, k: x + k, True),
    Step("integer", "integer", "square it", "n * n", lambda x, k: x * x),
    Step("integer", "integer", "add the sum of its decimal digits (ignoring a sign)",
         "n + sum(int(d) for d in str(abs(n)))", lambda x, k: x + sum(map(int, str(abs(x))))),
    Step("integer", "string", "write it as a decimal string", "str(n)", lambda x, k: str(x), True),
    Step("integer", "list", "take the list of its decimal digits (ignoring a sign)",
         "[int(d) for d in str(abs(n))]", lambda x, k: [int(d) for d in str(abs(x))]),
)
# fmt: on


class Program(NamedTuple):
    """A chain of steps with their constants, applied to one parameter."""

    steps: tuple[Step, ...]
    constants: tuple[int, ...]

    @property
    def takes(self) -> Type:
        return self.steps[0].takes

    def run(self, value: Any) -> Any:
        for step, k in zip(self.steps, self.constants, strict=True):
            value = step.run(value, k)
        return value

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        lines = [f"def {name}({PARAMETER[self.takes]}: {HINT[self.takes]}) -> {HINT[self.steps[-1].gives]}:"]
        for step, k in zip(self.steps, self.constants, strict=True):
            lines.append(f"    {PARAMETER[step.gives]} = {step.code.format(k=k)}")
        return "\n".join([*lines, f"    return {PARAMETER[self.steps[-1].gives]}"])

    def words(self) -> str:
        return "; then ".join(s.words.format(k=k) for s, k in zip(self.steps, self.constants, strict=True))


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of `length` steps whose types fit; no step stands twice."""
    pool = [s for s in STEPS if s.invertible or not invertible]
    kinds: list[Type] = ["list", "string", "integer"]
    at = kinds[int(rng.integers(3))]
    chosen: list[Step] = []
    while len(chosen) < length:
        fitting = [s for s in pool if s.takes == at and s not in chosen]
        if not fitting:  # a dead end: all steps of this type are used
            break
        chosen.append(fitting[int(rng.integers(len(fitting)))])
        at = chosen[-1].gives
    return Program(tuple(chosen), tuple(int(k) for k in rng.integers(2, 6, size=len(chosen))))


def an_input(rng: np.random.Generator, kind: Type) -> Any:
    """A random argument: 3 to 8 numbers of -20 … 40, 4 to 9 letters, or a number of -99 … 999."""
    if kind == "list":
        return [int(k) for k in rng.integers(-20, 41, size=int(rng.integers(3, 9)))]
    if kind == "string":
        return "".join(chr(97 + int(k)) for k in rng.integers(26, size=int(rng.integers(4, 10))))
    return int(rng.integers(-99, 1000))


def cases(rng: np.random.Generator, program: Program, count: int) -> list[tuple[Any, Any]]:
    """`count` different inputs with their outputs."""
    found: dict[str, tuple[Any, Any]] = {}
    while len(found) < count:
        value = an_input(rng, program.takes)
        found[repr(value)] = (value, program.run(value))
    return list(found.values())


# --- Tasks --------------------------------------------------------------------------------------------

READ: dict[Type, str] = {
    "list": "list(map(int, input().split()))",
    "string": "input()",
    "integer": "int(input())",
}
SHOWN: dict[Type, str] = {"list": "a list of integers", "string": "a string", "integer": "an integer"}
LINE: dict[Type, str] = {
    "list": "integers separated by spaces",
    "string": "a string",
    "integer": "an integer",
}


@sources.register("programs")
class Programs(Source):
    """Functions of a list, a string or an integer, composed of steps, with generated tests.

    `extra_info["solution"]` is the reference solution in a fence; all tests were computed from it.
    """

    makes: ClassVar[tuple[str, ...]] = ("codegen__composed",)
    kind: Literal["programs"] = "programs"
    steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps; drawn evenly from 1 up to it."""
    tests: Annotated[int, Field(ge=3, le=50)] = 8
    """Hidden tests."""
    form: Literal["functional", "stdin", "both"] = "both"
    """functional: assertions on a function. stdin: a whole program that reads and prints."""

    def task(self, index: int) -> Task:
        rng = generator("programs", self.steps, self.tests, self.form, index)
        stdin = self.form == "stdin" or (self.form == "both" and bool(rng.integers(2)))
        program, tests = Program((), ()), []
        while len({repr(out) for _, out in tests}) < self.tests // 2:  # outputs that tell programs apart
            program = compose(rng, int(rng.integers(1, self.steps + 1)))
            tests = cases(rng, program, self.tests + 1)
        example, tests = tests[0], tests[1:]
        question, truth, code = (_stdin if stdin else _functional)(program, example, tests)
        return Task.ask(
            "codegen__composed",
            question,
            json.dumps(truth),
            ability="codegen",
            extra_info={
                "index": index,
                "difficulty": len(program.steps),
                "reference": code,
                "solution": f"```python\n{code}\n```",
            },
        )


def _functional(
    program: Program, example: tuple[Any, Any], tests: list[tuple[Any, Any]]
) -> tuple[str, Any, str]:
    question = (
        f"Write a Python function `solve({PARAMETER[program.takes]})` that takes {SHOWN[program.takes]} "
        f"and does the following: {program.words()}; then return the result.\nFor example, "
        f"solve({example[0]!r}) returns {example[1]!r}.\nAnswer with the function in a ```python fence."
    )
    checks = "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in tests)
    return question, {"functional": checks}, program.source()


def _stdin(program: Program, example: tuple[Any, Any], tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    gives = program.steps[-1].gives
    question = (
        f"Write a Python program that reads one line with {LINE[program.takes]} and does the following: "
        f"{program.words()}; then print the result{' separated by spaces' if gives == 'list' else ''}.\n"
        f"For example, for the input\n{line(example[0])}\nit prints\n{line(example[1])}\n"
        "Answer with the whole program in a ```python fence."
    )
    printed = "print(*result)" if gives == "list" else "print(result)"
    code = f"{program.source()}\n\nresult = solve({READ[program.takes]})\n{printed}"
    truth = {"inputs": [line(v) + "\n" for v, _ in tests], "outputs": [line(out) + "\n" for _, out in tests]}
    return question, truth, code


def line(value: Any) -> str:
    """A value as one line of standard input or output."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- The program in a response ------------------------------------------------------------------------

_TAGS = ("python", "python3", "py", "py3", "pypy", "pypy3", "python2", "cpython")
_MARKED = re.compile(r"\[(?:BEGIN|PYTHON)\]\n?(.*?)(?:\[DONE\]|\[/PYTHON\]|\[END\]|\Z)", re.DOTALL)
_FENCE = re.compile(r"^(?P<before>.*?)(?:`{3,}|~{3,})[ \t]*(?P<tag>\w*)", re.DOTALL)
_DEFINED = re.compile(r"^[ \t]*(?:async +)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*=[^=]", re.MULTILINE)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_READS = re.compile(r"\binput\(|\bstdin\b|\bopen\(0|\bfileinput\b|\bos\.read\(")
_STATEMENTS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.For,
               ast.While, ast.If, ast.Return, ast.With, ast.Try)  # fmt: skip


def extract(response: str, wanted: Collection[str] = (), start: str = "") -> str | None:
    """The program in a response, outside the reasoning.

    It is the last fence tagged as Python, else the last one without a tag, else the whole text; but of several fences
    the last that defines most of `wanted` (another may show an example), and without `wanted` the last that reads its
    input, if any does. Fences of definitions that it lacks are put before it. A fence may be opened by the prompt or
    never closed; [BEGIN] … [DONE] are one, too.

    Args:
        wanted: the names that the tests use.
        start: the beginning of a program. A response that is the body of its last function goes on with it.

    Returns:
        None where the response has fences, and none that may hold Python.
    """
    bodies = _bodies(after_thinking(response).replace("\r\n", "\n"))
    if not bodies:
        return None
    scores = [len({*_defined(body)} & {*wanted}) if wanted else bool(_READS.search(body)) for body in bodies]
    best = max(scores)
    at = [index for index, n in enumerate(scores) if n == best][-1]
    program = bodies[at].removeprefix("\ufeff")
    return _continued(start, program) if wanted and not best else _joined(bodies, at, {*wanted})


def _bodies(text: str) -> list[str]:
    """The fences that may hold Python; the whole text where there is no fence."""
    if marked := _MARKED.findall(text):
        text = marked[-1]
    elif "[DONE]" in text and _is_program(text.partition("[DONE]")[0]):  # the prompt wrote [BEGIN]
        text = text.partition("[DONE]")[0]
    first = _FENCE.match(text)
    if first is None:
        return [text]
    if not first["tag"] and _is_program(first["before"]):
        text = "```python\n" + text  # the prompt opened it
    marks = "~~~" if "```" not in text else "```"
    found = [
        (tag.split(" ")[0].split("{")[0], body) for tag, body in fences(f"{text}\n{marks}") if body.strip()
    ]
    for tags in (_TAGS, ("",)):
        if bodies := [body for tag, body in found if tag in tags]:
            return bodies
    return []


def _is_program(text: str) -> bool:
    """Whether a text is Python, and more than a word of prose that happens to be an expression."""
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [n for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    return bool(calls) or any(isinstance(n, _STATEMENTS) for n in body)


def _defined(program: str) -> set[str]:
    return {name for pair in _DEFINED.findall(program) for name in pair if name}


def _joined(bodies: list[str], at: int, wanted: set[str]) -> str:
    """The fence `at`, behind the fences of definitions only that bind names which it uses, or are wanted, and lacks."""
    program = bodies[at].removeprefix("\ufeff")
    for body in [*bodies[:at][::-1], *bodies[at + 1 :]]:
        try:
            tree, other = ast.parse(program), ast.parse(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in dir(builtins)}
        lacking = (used | wanted) - {name for node in ast.walk(tree) for name in _binds(node)}
        kinds = {isinstance(node, _DEFINITIONS) for node in other.body if not isinstance(node, ast.Assign)}
        if (
            kinds == {True}
            and "__future__" not in program
            and lacking & {name for node in other.body for name in _binds(node)}
        ):
            program = f"{body}\n{program}"
    return program


def _binds(node: ast.AST) -> set[str]:
    """The names that a statement, a parameter or a name itself binds."""
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    name = getattr(node, "name", None) or getattr(node, "arg", None)
    return {name} if isinstance(name, str) else set()


def _continued(start: str, body: str) -> str:
    """A function's body behind the function's beginning, if that makes a program; else the body as it is."""
    begun = re.search(
        r"^(?:from|import|def|class|@)\b.*", start.partition("```\n")[0], re.DOTALL | re.MULTILINE
    )
    code = begun[0].rstrip().removesuffix("```").rstrip() if begun else ""
    for indented in (textwrap.indent(textwrap.dedent(body), "    "), "    " + body.lstrip(" ")):
        if code and _is_program(f"{code}\n{indented}"):
            return f"{code}\n{indented}"
    return body


def _start(extra_info: Mapping[str, Any]) -> str:
    """The beginning of the program that a row's prompt gives, if it does."""
    for name in ("prefix", "starter_code", "prompt", "original_prompt", "question"):
        text = extra_info.get(name)
        if isinstance(text, list) and text and isinstance(text[-1], Mapping):  # messages
            text = text[-1].get("content")
        if isinstance(text, str) and "def " in text:
            return text.rpartition("```python\n")[2]
    return ""


# --- The scorer ---------------------------------------------------------------------------------------

_MARGIN = 1.0  # seconds of the deadline that are kept for ending the sandbox
_TESTS = ("functional", "solution_file", "pytest")
_VERL = ("codecontests", "apps", "codeforces", "taco", "livecodebench", "humaneval", "mbpp")


@scorer("codegen__*", *_VERL)
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the program in the response (`extract`) passes every test, each within reward.timeout and all within
    reward.total_timeout.

    A truth is one of (as a mapping or as its JSON string):
        {"inputs", "outputs"}             standard input and output of each test
        {"fn_name", "inputs", "outputs"}  arguments and value of a function or of a method of `Solution`
        {"functional": code}              test code with assertions, or HumanEval's check(candidate)
        {"pytest": code}                  a pytest file that imports from `solution`
        {"solution_file": code}           a test script that imports from `solution`
    An optional "checker" (code that sets `ok` from `inp`, `out`, `expected`) judges tests with several right outputs.

    parts: tests_passed, tests_total, for a failure the first `reason` ("time", "memory" …), and `trusted: False` where
    the tests had to run in the program's process, which may have changed what they say. The value is the share of
    tests passed, which counts with reward.partial_credit.

    Raises:
        UserError, Ungradable: the truth is broken, or its tests check nothing; the sandbox lacks a package.
    """
    truth = _truth(ground_truth)
    prefix = str(extra_info.get("prefix") or "")
    entry = extra_info.get("entry_point") or extra_info.get("function_name")
    text = next((truth[kind] for kind in _TESTS if kind in truth), None)
    _check_python(prefix, "prefix")
    tests = None if text is None else TestCode(text, prefix, entry, "pytest" in truth)
    wanted = tests.free | {tests.entry or ""} if tests else {str(truth.get("fn_name") or "")} - {""}
    program = extract(response, wanted, _start(extra_info))
    if program is None or not program.strip():
        return Reward.of(False, reason="no program")
    try:
        if not ast.parse(program).body:
            return Reward.of(False, reason="the program is empty")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Reward.of(False, reason=f"{type(error).__name__}: {error}"[:200])
    grading.extend(grading.settings.total_timeout + _MARGIN)
    if tests is None:
        return (_called if truth.get("fn_name") else _run)(program, truth, grading)
    outcome = programs.run_tests(grading, program, tests, max(0.1, grading.remaining() - _MARGIN))
    if outcome.fault:
        raise Ungradable(f"The test code of a program says nothing about it: {outcome.fault}.")
    trusted = {} if outcome.trusted else {"trusted": False}
    return _result(grading, outcome.passed, outcome.total, outcome.error, **trusted)


def _truth(ground_truth: Any) -> dict[str, Any]:
    """The truth as a mapping. Raises UserError for one that no program can be judged by."""
    if isinstance(ground_truth, str):
        ground_truth = _json(ground_truth, ground_truth)
    truth = parse(ground_truth, dict, "a program")
    for kind in _TESTS:
        if kind in truth:
            if not isinstance(truth[kind], str) or not truth[kind].strip():
                raise UserError("The test code of a program is empty.")
            _check_python(truth[kind], "test code")
            return truth
    inputs, outputs = truth.get("inputs"), truth.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise UserError(
            "The ground truth of a program needs inputs and outputs (lists), functional, pytest or solution_file, "
            f"and has {', '.join(sorted(map(str, truth))) or 'nothing'}."
        )
    if len(inputs) != len(outputs) or not inputs:
        raise UserError(f"A program has {len(inputs)} inputs and {len(outputs)} outputs.")
    if truth.get("checker"):
        _check_python(truth["checker"], "checker")
    return truth


def _check_python(code: Any, what: str) -> None:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise UserError(f"The {what} of a program is no Python: {error}.") from None


def _seconds(grading: Grading) -> float:
    """For the next test."""
    return max(0.1, min(grading.settings.timeout, grading.remaining() - _MARGIN))


def _result(grading: Grading, passed: int, total: int, reason: str | None, **parts: Any) -> Reward:
    if reason and (package := programs.missing_package(grading, reason)):
        raise Ungradable(
            f"A program imports {package}, which the sandbox does not have here: install bubblewrap."
        )
    correct = passed == total and reason is None
    said = {"reason": reason} if reason else {}
    return Reward.of(correct, passed / max(1, total), tests_passed=passed, tests_total=total, **said, **parts)


def _run(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Standard input and output."""
    passed, reason = 0, None
    for given, expected in zip(map(_text, truth["inputs"]), map(_text, truth["outputs"]), strict=True):
        outcome = programs.run_script(grading, program, given, _seconds(grading))
        failure = _failure(outcome, expected, bool(truth.get("checker")))
        if failure is None and truth.get("checker"):
            failure = _rejected(grading, truth["checker"], given, outcome.stdout.decode(), expected)
        passed += failure is None
        reason = reason or failure
        if failure and (not grading.settings.partial_credit or failure == "time"):
            break
    return _result(grading, passed, len(truth["inputs"]), reason)


def _text(value: Any) -> str:
    """A test's input or output; lists are lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _failure(outcome: programs.Outcome, expected: str, has_checker: bool) -> str | None:
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
    return None if has_checker or same_output(printed, expected) else "wrong output"


_CHECKER = """import json, sys
values = json.load(sys.stdin)
code = values.pop("checker")
try:
    exec(code, values)
except Exception:
    values["ok"] = False
print("ok" if values.get("ok") is True else "no")
"""


def _rejected(grading: Grading, checker: str, given: str, printed: str, expected: str) -> str | None:
    values = json.dumps({"checker": checker, "inp": given, "out": printed, "expected": expected})
    outcome = programs.run_script(grading, _CHECKER, values, _seconds(grading))
    return None if outcome.ok and outcome.stdout.strip() == b"ok" else "the checker rejects the output"


def _called(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Arguments and values."""
    calls = [_arguments(given) for given in truth["inputs"]]
    plain, unwrapped = _values(truth["inputs"], truth["outputs"])
    right = [
        [],
        [],
    ]  # whether each call gave the value that is written, and the one that is wrapped in a list

    def enough(call: programs.Call, index: int) -> bool:
        for values, so_far in ((plain, right[0]), (unwrapped, right[1])):
            so_far.append(call.error is None and values is not None and same_value(call.value, values[index]))
        return not grading.settings.partial_credit and not all(right[0]) and not all(right[1])

    seconds = max(0.1, grading.remaining() - _MARGIN)
    found = programs.call_function(grading, program, truth["fn_name"], calls, seconds, enough)
    best = max(sum(right[0]), sum(right[1]))
    errors = [call.error for call in found if call.error]
    reason = errors[0] if errors else None if best == len(calls) else "wrong value"
    return _result(grading, best, len(calls), reason)


def _arguments(given: Any) -> list[Any]:
    """A test's arguments: a list of them, or text with one JSON value a line."""
    if isinstance(given, list):
        return given
    if isinstance(given, dict):
        return [given]
    return [_json(line, line) for line in str(given).split("\n") if line.strip()]


def _values(inputs: list[Any], outputs: list[Any]) -> tuple[list[Any] | None, list[Any] | None]:
    """The expected values as they are written, and as they are where every one is wrapped in a list, as in APPS.

    Nothing tells the two apart where all outputs are lists of one: then a program may meet either, but in all tests
    the same."""
    if not all(isinstance(given, list) for given in inputs):
        return [_json(output, output) if isinstance(output, str) else output for output in outputs], None
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return outputs, [output[0] for output in outputs] if wrapped else None


def _json(text: str, default: Any) -> Any:
    """The JSON or else Python value that a text is, with whole numbers of any length."""
    try:
        return json.loads(text, parse_int=lambda digits: int(Decimal(digits)))
    except (ValueError, RecursionError):
        return literal(text, default)


# --- Comparing outputs and values, as judges do -------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = ("yes", "no", "nan", "inf", "-inf")
_LONGEST_NUMBER = 300  # characters; longer ones are compared as text


def same_output(printed: str, expected: str) -> bool:
    """Whether printed text is the expected one, line by line and token by token.

    Blanks at the ends and runs of blanks do not count, nor do empty lines; yes and no are compared without case (a
    habit of Codeforces); numbers with a fraction have the tolerance of `close`, whole ones have none.
    """
    if printed == expected:
        return True
    ours, theirs = ([t for line in text.splitlines() if (t := line.split())] for text in (printed, expected))
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(_same_token, a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def _same_token(a: str, b: str) -> bool:
    if a == b:
        return True
    if _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b) and max(len(a), len(b)) <= _LONGEST_NUMBER:
        if not set(".eE") & set(b) or not (math.isfinite(float(a)) and math.isfinite(float(b))):
            return Decimal(a) == Decimal(b)
        return close(float(a), float(b), -int(Decimal(b).as_tuple().exponent))
    return a.lower() == b.lower() and a.lower() in _WORDS


def close(a: float, b: float, decimals: int = 0) -> bool:
    """Whether a number is the expected one, `b`, which was given with so many decimals.

    They may differ by 1e-6 but not by more than a thousandth of `b`, by 1e-9 of a large `b` (at most 0.01), or by half
    a unit of the last of six or more decimals. Infinities and NaN are met by themselves only.
    """
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (a != a and b != b)
    small = min(1e-6, 1e-3 * abs(b)) if b else 1e-9
    large = max(min(1e-9 * abs(b), 0.01), 4 * math.ulp(b))
    rounding = 0.500001 * 10.0**-decimals if decimals >= 6 else 0.0
    return abs(a - b) <= max(small, large, rounding)


def same_value(got: Any, expected: Any) -> bool:
    """Whether a returned value is the expected JSON value: tuples are lists, keys are text, floats have a tolerance,
    and neither 1 nor "true" is true. What cannot be compared is not the same."""
    try:
        return _same_value(got, expected)
    except (RecursionError, ValueError, OverflowError, TypeError, ArithmeticError):
        return False


def _same_value(got: Any, expected: Any) -> bool:
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, int | float) and isinstance(expected, int | float):
        if got == expected or (isinstance(got, int) and isinstance(expected, int)):
            return got == expected
        decimals = -int(Decimal(repr(expected)).as_tuple().exponent) if math.isfinite(expected) else 0
        return close(float(got), float(expected), decimals)
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(_same_value, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        ours, theirs = ({_key(k): v for k, v in d.items()} for d in (got, expected))
        equal = ours.keys() == theirs.keys() and len(ours) == len(got)
        return equal and all(_same_value(ours[k], theirs[k]) for k in theirs)
    return type(got) is type(expected) and bool(got == expected)


def _key(key: Any) -> str:
    """A key as JSON writes it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(Decimal(key))  # of any length
    return "null" if key is None else str(key)
