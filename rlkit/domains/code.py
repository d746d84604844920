"""Programs: tasks to write one, composed of steps, with generated tests; and the scorer that runs the program in a
response against its tests in the sandbox."""

import ast
import json
import re
import secrets
import textwrap
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources, vocabulary
from rlkit.domains.answers import after_thinking, fences, literal
from rlkit.domains.grading import Grading, parse, same_output, same_value
from rlkit.errors import Ungradable, UserError
from rlkit.sandbox import programs
from rlkit.sandbox.reading import TestCode
from rlkit.seeds import generator
from rlkit.types import Reward, Task

TYPES = vocabulary("types")
"""Of each parameter its type, that in words, what a line of input with it holds, and the code that reads that."""


class Step(NamedTuple):
    """`code` is an expression of the parameter's name; `{k}` in it and in `words` is a constant from 2 to 5."""

    takes: str
    gives: str
    words: str
    code: str
    invertible: bool = False


STEPS = tuple(Step(*row) for row in vocabulary("steps"))


class Program(tuple[Step, ...]):
    """A chain of steps with constants, applied to one parameter."""

    def words(self) -> str:
        return "; then ".join(step.words for step in self)

    def run(self, value: Any) -> Any:
        for step in self:
            value = eval(step.code, {step.takes: value})  # of vocabulary.json
        return value

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        takes, gives = self[0].takes, self[-1].gives
        lines = (f"    {step.gives} = {step.code}" for step in self)
        head = f"def {name}({takes}: {TYPES[takes][0]}) -> {TYPES[gives][0]}:"
        return "\n".join([head, *lines, f"    return {gives}"])


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of `length` steps whose types fit, or fewer where none is left; no step stands twice."""
    pool = [s for s in STEPS if s.invertible or not invertible]
    at = list(TYPES)[int(rng.integers(3))]
    chosen: list[Step] = []
    while len(chosen) < length and (fitting := [s for s in pool if s.takes == at and s not in chosen]):
        chosen.append(fitting[int(rng.integers(len(fitting)))])
        at = chosen[-1].gives
    filled = zip(chosen, rng.integers(2, 6, size=len(chosen)).tolist(), strict=True)
    return Program(s._replace(words=s.words.format(k=k), code=s.code.format(k=k)) for s, k in filled)


def an_input(rng: np.random.Generator, kind: str) -> Any:
    """A random argument: 3 to 8 numbers of -20 … 40, 4 to 9 letters, or a number of -99 … 999."""
    if kind == "xs":
        return [int(k) for k in rng.integers(-20, 41, size=int(rng.integers(3, 9)))]
    if kind == "s":
        return "".join(chr(97 + int(k)) for k in rng.integers(26, size=int(rng.integers(4, 10))))
    return int(rng.integers(-99, 1000))


def cases(rng: np.random.Generator, program: Program, count: int) -> list[tuple[Any, Any]]:
    """`count` different inputs with their outputs."""
    found: dict[str, tuple[Any, Any]] = {}
    while len(found) < count:
        value = an_input(rng, program[0].takes)
        found[repr(value)] = (value, program.run(value))
    return list(found.values())


TESTS = 8  # hidden ones of a program
TEST_TIMEOUT = 3.0  # seconds for a right program's microseconds: each endless one holds up a step as long


@sources.register("programs")
class Programs(Source):
    """Programs composed of steps: half are functions with assertions, half read a line and print. All tests were
    computed from the reference solution, `extra_info["reference"]`."""

    makes: ClassVar[tuple[str, ...]] = ("codegen__composed",)
    kind: Literal["programs"] = "programs"
    steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("programs", self.steps, TESTS, "both", index)
        stdin = bool(rng.integers(2))
        program, tests = Program(), []
        while len({repr(out) for _, out in tests}) < TESTS // 2:  # outputs that tell programs apart
            program = compose(rng, int(rng.integers(1, self.steps + 1)))
            tests = cases(rng, program, TESTS + 1)
        question, truth, code = (_stdin if stdin else _functional)(program, tests)
        info = {"index": index, "difficulty": len(program), "reference": code, "test_timeout": TEST_TIMEOUT}
        info |= {"solution": f"```python\n{code}\n```"}
        return Task.ask("codegen__composed", question, json.dumps(truth), ability="codegen", extra_info=info)


def _functional(program: Program, tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    """Question, ground truth and solution; the first test is shown."""
    (given, result), *hidden = tests
    question = (
        f"Write a Python function `solve({program[0].takes})` that takes {TYPES[program[0].takes][1]} and does the "
        f"following: {program.words()}; then return the result.\nFor example, solve({given!r}) returns {result!r}.\n"
        "Answer with the function in a ```python fence."
    )
    checks = "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in hidden)
    return question, {"functional": checks}, program.source()


def _stdin(program: Program, tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    (_, _, called, read), many = TYPES[program[0].takes], program[-1].gives == "xs"
    (given, *inputs), (result, *outputs) = (list(map(_line, side)) for side in zip(*tests, strict=True))
    question = (
        f"Write a Python program that reads one line with {called} and does the following: {program.words()}; then "
        f"print the result{' separated by spaces' if many else ''}.\nFor example, for the input\n{given}it prints\n"
        f"{result}Answer with the whole program in a ```python fence."
    )
    code = f"{program.source()}\n\nresult = solve({read})\nprint({'*' if many else ''}result)"
    return question, {"inputs": inputs, "outputs": outputs}, code


def _line(value: Any) -> str:
    return " ".join(map(str, value if isinstance(value, list) else [value])) + "\n"


_TAGS = ("python", "python3", "py", "py3", "pypy", "pypy3", "python2", "cpython")
_MARKED = re.compile(r"\[(?:BEGIN|PYTHON)\]\n?(.*?)(?:\[DONE\]|\[/PYTHON\]|\Z)", re.DOTALL)
_FENCE = re.compile(r"^(?P<before>.*?)(?:`{3,}|~{3,})[ \t]*(?P<tag>\w*)", re.DOTALL)
_DEFINED = re.compile(r"^[ \t]*(?:async +)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*=[^=]", re.MULTILINE)
_READS = re.compile(r"\binput\(|\bstdin\b|\bopen\(0|\bfileinput\b|\bos\.read\(")
_LONGEST = 200_000  # characters of a program
_NO_PYTHON = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


def extract(response: str, wanted: Collection[str] = (), start: str = "") -> str | None:
    """The program in a response: outside the reasoning the last fence tagged as Python, else the last one without a
    tag, else the whole text; None where no fence may hold Python.

    Of several fences it is the last that defines most of `wanted`, the names that the tests use (another may show an
    example), and without `wanted` the last that reads its input, if any does. A fence may be opened by the prompt or
    never closed. One that defines none of `wanted` is the body of the function that `start` ends with, if it can be."""

    def fit(body: str) -> int:
        defined = {name for pair in _DEFINED.findall(body) for name in pair}
        return len(defined & {*wanted}) if wanted else bool(_READS.search(body))

    text = after_thinking(response).replace("\r\n", "\n")
    if not (bodies := _bodies(text)):
        return None
    program = max(reversed(bodies), key=fit)
    if not _is_program(program) and (first := _FENCE.match(text)) and first["tag"].lower() in (*_TAGS, ""):
        outer = text[text.find("\n", first.end()) + 1 : max(map(text.rfind, ("```", "~~~")))]
        if _is_program(outer):  # there are fences in its docstrings
            program = textwrap.dedent(outer)
    whole = f"{start.rstrip()}\n{textwrap.indent(textwrap.dedent(program), '    ')}"
    is_body = start and wanted and not fit(program) and _is_program(whole)
    return whole if is_body else program.removeprefix("\ufeff")


def _bodies(text: str) -> list[str]:
    """The fences that may hold Python; the whole text where there is no fence."""
    if marked := _MARKED.findall(text):
        text = marked[-1]
    if (first := _FENCE.match(text)) is None:
        return [text]
    if not first["tag"] and _is_program(first["before"]):
        text = "```python\n" + text  # the prompt opened it
    closed = fences(f"{text}\n{'```' if '```' in text else '~~~'}")
    found = [(re.split("[ {]", tag)[0], body) for tag, body in closed if body.strip()]
    return [body for tag, body in found if tag in _TAGS] or [body for tag, body in found if not tag]


def _is_program(text: str) -> bool:
    """Whether a text is Python, and more than a word of prose that happens to be an expression."""
    try:
        found = ast.parse(textwrap.dedent(text)).body if len(text) <= _LONGEST else []
    except _NO_PYTHON:
        return False
    prose = (ast.Expr, ast.AnnAssign)
    return any(not isinstance(node, prose) or isinstance(node.value, ast.Call) for node in found)


def _start(extra_info: Mapping[str, Any]) -> str:
    """The beginning of the program that a row's prefix or prompt gives, if it does."""
    texts = map(extra_info.get, ("prefix", "prompt", "original_prompt", "question"))
    found = (re.search(r"(?m)^(?:from|import|def)\b[\s\S]*", text) for text in texts if isinstance(text, str))
    return next((match[0].partition("\n```")[0] for match in found if match), "")


@scorer("codegen__*", "codecontests", "apps", "codeforces", "taco", "livecodebench", "humaneval", "mbpp")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the program in the response (`extract`) passes every test, each within reward.timeout, or the row's own
    `extra_info["test_timeout"]` where that is less, and all within reward.total_timeout.

    A truth is one of (as a mapping or as its JSON string):
        {"inputs", "outputs"}             standard input and output of each test
        {"fn_name", "inputs", "outputs"}  arguments and value of a function or of a method of `Solution`
        {"functional": code}              test code with assertions, or HumanEval's check(candidate)
        {"pytest": code}                  a pytest file without fixtures that imports from `solution`
        {"solution_file": code}           a test script that imports from `solution`
    An optional "checker" (code that sets `ok` from `inp`, `out`, `expected`) judges tests with several right outputs.

    parts: tests_passed, tests_total, for a failure the first `reason` ("time", "memory" …), and `trusted: False` where
    the tests had to run in the program's process, which may have changed what they say.

    Raises:
        UserError, Ungradable: the truth is broken, or its tests check nothing; the sandbox lacks a package.
    """
    truth, tests = _truth(ground_truth, extra_info)
    wanted = tests.free | {tests.entry or ""} if tests else {str(truth.get("fn_name") or "")}
    program = extract(response, wanted - {""}, _start(extra_info)) or ""
    if len(program) > _LONGEST:
        return Reward.of(False, reason=f"the program is longer than {_LONGEST} characters")
    try:
        if not ast.parse(program).body:
            return Reward.of(False, reason="no program")
    except _NO_PYTHON as error:
        return Reward.of(False, reason=f"{type(error).__name__}: {error}"[:200])
    grading.extend(grading.settings.total_timeout + programs.MARGIN)
    if (seconds := extra_info.get("test_timeout")) is not None:
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise UserError(f"extra_info.test_timeout of a program is {seconds!r}: give seconds above 0.")
        least = min(seconds, grading.settings.timeout)
        grading.settings = grading.settings.model_copy(update={"timeout": least})
    if tests is None:
        return (_called if truth.get("fn_name") else _run)(program, truth, grading)
    outcome = programs.run_tests(grading, program, tests, grading.seconds())
    if outcome.fault:
        raise Ungradable(f"The test code of a program says nothing about it: {outcome.fault}.")
    trusted = {} if outcome.trusted else {"trusted": False}
    return _result(grading, outcome.passed, outcome.total, outcome.error, **trusted)


def _truth(ground_truth: Any, extra_info: Mapping[str, Any]) -> tuple[dict[str, Any], TestCode | None]:
    """The truth, and its test code if it has any. Raises UserError for one that no program can be judged by."""
    truth = parse(ground_truth, dict, "a program")
    if kind := next(filter(truth.__contains__, ("functional", "solution_file", "pytest")), None):
        if not isinstance(truth[kind], str) or not truth[kind].strip():
            raise UserError("The test code of a program is empty.")
        entry = extra_info.get("entry_point") or extra_info.get("function_name")
        try:
            return truth, TestCode(truth[kind], str(extra_info.get("prefix") or ""), entry, kind == "pytest")
        except _NO_PYTHON as error:
            raise UserError(f"The test code of a program, or its prefix, is no Python: {error}.") from None
    inputs, outputs = truth.get("inputs"), truth.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        needs = "inputs and outputs (lists), functional, pytest or solution_file"
        has = ", ".join(sorted(map(str, truth))) or "nothing"
        raise UserError(f"The ground truth of a program needs {needs}, and has {has}.")
    if len(inputs) != len(outputs) or not inputs:
        raise UserError(f"A program has {len(inputs)} inputs and {len(outputs)} outputs.")
    if truth.get("checker") and not _is_program(truth["checker"]):
        raise UserError("The checker of a program is no Python.")
    return truth, None


def _result(grading: Grading, passed: int, total: int, reason: str | None, **parts: Any) -> Reward:
    if reason and (package := programs.missing_package(grading, reason)):
        raise Ungradable(f"A program imports {package}, which the sandbox lacks here: install bubblewrap.")
    correct = passed == total and reason is None
    said = {"reason": reason} if reason else {}
    return Reward.of(correct, passed / max(1, total), tests_passed=passed, tests_total=total, **said, **parts)


def _run(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Standard input and output; lists are lines."""
    passed, reason, checker = 0, None, truth.get("checker")
    for test in zip(truth["inputs"], truth["outputs"], strict=True):
        given, expected = ("\n".join(map(str, t)) if isinstance(t, list) else str(t) for t in test)
        printed, failure = _script(grading, program, given)
        if failure is None and checker:
            failure = _rejected(grading, checker, given, printed, expected)
        elif failure is None and not same_output(printed, expected):
            failure = "wrong output"
        passed += failure is None
        reason = reason or failure
        if failure and (not grading.settings.partial_credit or failure == "time"):
            break
    return _result(grading, passed, len(truth["inputs"]), reason)


def _rejected(grading: Grading, checker: str, given: str, printed: str, expected: str) -> str | None:
    """Why an output is wrong, if a checker does not set `ok`. Ungradable: it fails on the expected output, too."""
    token, failures = secrets.token_hex(), []
    for out in (printed, expected):
        values = f"inp, out, expected = {given!r}, {out!r}, {expected!r}"
        run = f"exec(compile({checker!r}, 'checker.py', 'exec'))"  # it may begin with a __future__ import
        judge = f"{values}\n{run}\nprint()\nprint({token!r} * (ok is True))\n"
        said, failure = _script(grading, judge, "")
        if failure in (None, "time", "memory", "output"):
            accepted = not failures and said.endswith(f"\n{token}\n")
            return None if accepted else "the checker rejects the output"
        failures.append(failure)
    raise Ungradable(f"The checker of a program fails on the expected output: {failures[1]}.")


def _script(grading: Grading, program: str, stdin: str) -> tuple[str, str | None]:
    """What a program prints, and why it did not end well, if so."""
    outcome = programs.run_script(grading, program, stdin, min(grading.settings.timeout, grading.seconds()))
    failure = outcome.reason
    if outcome.status != 0 and failure is None:
        last = outcome.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        failure = f"exit status {outcome.status}: {last}"[:200]
    return outcome.stdout.decode(errors="surrogateescape"), failure


def _called(program: str, truth: Mapping[str, Any], grading: Grading) -> Reward:
    """Arguments and values."""
    calls = list(map(_arguments, truth["inputs"]))
    forms = _values(truth["inputs"], truth["outputs"])
    right: list[list[bool]] = [[] for _ in forms]  # whether each call gave the value in this form

    def enough(call: programs.Call, index: int) -> bool:
        for values, so_far in zip(forms, right, strict=True):
            so_far[index:] = [call.error is None and same_value(call.value, values[index])]
        return not grading.settings.partial_credit and not any(map(all, right))

    found = programs.call_function(grading, program, truth["fn_name"], calls, grading.seconds(), enough)
    best = max(map(sum, right))
    wrong = None if best == len(calls) else "wrong value"
    return _result(grading, best, len(calls), next((call.error for call in found if call.error), wrong))


def _arguments(given: Any) -> list[Any]:
    """A test's arguments: a list of them, or text with one JSON value a line."""
    if isinstance(given, list | dict):
        return [given] if isinstance(given, dict) else given
    return [literal(line, line) for line in str(given).split("\n") if line.strip()]


def _values(inputs: list[Any], outputs: list[Any]) -> list[list[Any]]:
    """The expected values as they are written, and as they are if every one is wrapped in a list, as in APPS. Nothing
    tells the two apart where all outputs are lists of one: a program may meet either, but in all tests the same."""
    if not all(isinstance(given, list) for given in inputs):
        return [[literal(output, output) if isinstance(output, str) else output for output in outputs]]
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return [outputs, [output[0] for output in outputs]] if wrapped else [outputs]
