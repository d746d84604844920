"""Code generation: write a function, test it in the sandbox, debug it until its tests pass."""

import ast
import json
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.config import RewardConfig
from rlkit.domains.grading import Grading
from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)
from rlkit.errors import UserError
from rlkit.sandbox import programs
from rlkit.sandbox.plain import Opaque

LOOK, TESTS, HIDDEN, EFFICIENCY, STYLE, WASTED = -0.1, 3.0, 4.0, 1.0, 1.0, -0.2  # documented below
STYLE_LIMIT = 5  # ruff findings at which nothing is left of the reward for style
RULES = "E,F,W,B,C4,SIM,PERF"
LONGEST = 100_000  # characters of a program

Cases = tuple[tuple[Any, Any], ...]  # argument and answer


class Call(NamedTuple):
    """One call: its value (None when it failed), bytecode instructions executed, and why it failed."""

    value: Any
    executed: int
    problem: str | None


class State(NamedTuple):
    """A problem and the program so far; `best` is the largest share of visible tests passed in a test run."""

    description: str
    reference: str
    visible: Cases
    hidden: Cases
    source: str = ""
    shown: int = 0
    best: float = 0.0
    failing: bool = False


@environments.register("code_generation")
class CodeGeneration(BaseEnvironment):
    """Write `solve` so that it passes the tests. Programs run in the sandbox only.

    Rewards: test_code earns 3 times the rise of the best share of visible tests passed, or -0.2 when it does
    not rise. The run that passes them all ends the episode and adds, on hidden tests, 4 times the share
    passed, 1 times efficiency (the reference's executed instructions over the program's, at most 1, on
    tests passed) and 1 times style (1 minus a fifth for each finding of ruff). analyze_requirements shows
    one more visible test and costs 0.1. Writing costs nothing, but a program that does not parse or has no
    `solve` is an invalid action. Success is passing every test.

    Not covered: a program that tampers with the tracer can fake efficiency (at most its 1.0), but no answer.
    """

    purpose: ClassVar[str] = "Write a Python function that passes its tests."
    multiline: ClassVar[bool] = True
    actions: ClassVar[dict[str, str]] = {
        "analyze_requirements": "see one more example test",
        "write_function": "give the whole program, which defines solve",
        "add_logic": "append lines to the end of solve's body",
        "test_code": "run the visible tests",
        "debug": "after a failed test: give the corrected program",
    }

    kind: Literal["code_generation"] = "code_generation"
    visible_tests: Annotated[int, Field(ge=1, le=10)] = 3
    """Tests that the agent can see and run."""
    hidden_tests: Annotated[int, Field(ge=3, le=30)] = 6
    """Tests that only the final reward runs; two of them are empty or one element long."""
    timeout: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Seconds that one run of all tests may take."""

    @property
    def slow(self) -> bool:
        return True

    def problem(self, rng: np.random.Generator) -> Problem:
        family = FAMILIES[int(rng.integers(len(FAMILIES)))]
        k, visible = int(rng.integers(2, 10)), self.visible_tests
        sizes = [6] * visible + [0, 1] + [40] * (self.hidden_tests - 2)
        arguments = [_argument(family, rng, most) for most in sizes]
        cases = [[argument, family.answer(argument, k)] for argument in arguments]
        return {
            "description": f"Write solve({family.argument}) that returns {family.ask.format(k=k)}.",
            "reference": family.reference.format(k=k),
            "visible": cases[:visible],
            "hidden": cases[visible:],
        }

    def begin(self, problem: Problem) -> str:
        visible, hidden = (tuple((a, b) for a, b in problem[name]) for name in ("visible", "hidden"))
        if not visible or not hidden:
            raise UserError("A code problem has visible and hidden tests, each [argument, answer].")
        self._state = State(str(problem["description"]), str(problem["reference"]), visible, hidden)
        return self._state.description

    def get_valid_actions(self) -> list[str]:
        names, state = super().get_valid_actions(), self._state
        if not names:
            return []
        hidden = {"debug"} if state.source else {"debug", "add_logic", "test_code"}
        hidden -= {"debug"} if state.failing else set()
        hidden |= {"analyze_requirements"} if state.shown == len(state.visible) else set()
        return [name for name in names if name not in hidden]

    def act(self, action: str, params: Params) -> ActionResult:
        state: State = self._state
        if action == "analyze_requirements":
            argument, answer = state.visible[state.shown]
            self._state = state._replace(shown=state.shown + 1)
            return ActionResult(f"solve({argument!r}) returns {answer!r}.", LOOK, False)
        if action == "test_code":
            return self._test()
        source = unfenced(str(params.get("value", ""))).rstrip() + "\n"
        if action == "add_logic":
            source = state.source + textwrap.indent(textwrap.dedent(source), "    ")
        check_source(source)
        self._state = state._replace(source=source, failing=False)
        return ActionResult(f"Saved {len(source.splitlines())} lines.", 0.0, False)

    def _test(self) -> ActionResult:
        state: State = self._state
        calls, good = self._run(state.visible)
        share = sum(good) / len(good)
        gain = TESTS * (share - state.best) if share > state.best else WASTED
        self._state = state._replace(best=max(share, state.best), failing=share < 1)
        if share == 1:
            return self._submit(gain)
        first = good.index(False)
        argument, answer = state.visible[first]
        got = calls[first].problem or f"it returned {calls[first].value!r:.80}"
        text = (
            f"{sum(good)} of {len(good)} tests pass. solve({argument!r}) should return {answer!r}, but {got}."
        )
        return ActionResult(text, gain, False, {"passed": share})

    def _run(self, cases: Cases) -> tuple[list[Call], list[bool]]:
        calls = call(self._state.source, [argument for argument, _ in cases], self.timeout)
        pairs = zip(calls, cases, strict=True)
        return calls, [c.problem is None and same(c.value, answer) for c, (_, answer) in pairs]

    def _submit(self, gain: float) -> ActionResult:
        state: State = self._state
        calls, good = self._run(state.hidden)
        executed = sum(c.executed for c, ok in zip(calls, good, strict=True) if ok)
        reference = call(state.reference, [argument for argument, _ in state.hidden])
        due = sum(c.executed for c, ok in zip(reference, good, strict=True) if ok)
        parts = {
            "correctness": sum(good) / len(good),
            "efficiency": min(due / executed, 1.0) if executed else 0.0,
            "style": max(1 - style_findings(state.source) / STYLE_LIMIT, 0.0),
        }
        reward = (
            gain + HIDDEN * parts["correctness"] + EFFICIENCY * parts["efficiency"] + STYLE * parts["style"]
        )
        shown = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
        info = {"success": all(good), "parts": parts}
        return ActionResult(f"All visible tests pass. Hidden tests: {shown}.", reward, True, info)

    def expert(self) -> tuple[str, Params]:
        """Look at one test, write the reference, test it."""
        if not self._state.shown:
            return "analyze_requirements", {}
        if self._state.source != self._state.reference:
            return "write_function", {"value": self._state.reference}
        return "test_code", {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        if action in ("analyze_requirements", "test_code"):
            return {}
        name = "s" if "solve(s)" in self._state.description else "xs"
        body = str(rng.choice(("return None", "pass", f"return {name}")))
        return {"value": body if action == "add_logic" else f"def solve({name}):\n    {body}"}

    def format_action(self, action: str, params: Params | None = None) -> str:
        return f"{action}\n{params['value'].rstrip()}" if params and "value" in params else action

    def render(self) -> str:
        return self._state.source or f"# {self._state.description}\n"


def unfenced(text: str) -> str:
    """A program without the Markdown fence around it."""
    match = re.search(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return match[1] if match else text.removesuffix("```")


def check_source(source: str) -> None:
    """Raises InvalidAction unless `source` is Python that defines `solve` at its top."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidAction(f"That is no Python program: {type(error).__name__} {error}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "solve" for node in tree.body):
        raise InvalidAction("The program defines no function solve.")


def same(value: Any, answer: Any) -> bool:
    """Equal in value and in type, so that True is not 1, also inside lists; JSON's lists stand for lists only."""
    if type(value) is not type(answer):
        return False
    if isinstance(answer, list):
        return len(value) == len(answer) and all(map(same, value, answer))
    return value == answer


def style_findings(source: str) -> int:
    """How many findings ruff has in a program (rules E, F, W, B, C4, SIM and PERF; nothing is executed)."""
    options = f"-m ruff check --isolated --no-cache --quiet --select {RULES} --output-format json"
    command = [sys.executable, *options.split(), "--stdin-filename", "solution.py", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=30)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ruff failed: {done.stderr.strip()[:200]}")
    return len(json.loads(done.stdout))


class Family(NamedTuple):
    """A kind of problem: what is asked, the answer as a function of (argument, k), a reference program, and
    whether the argument is a list of numbers ("xs") or a text ("s")."""

    ask: str
    answer: Callable[[Any, int], Any]
    reference: str
    argument: str = "xs"


def _longest_run(xs: list[int], k: int) -> int:
    return max((len(list(run)) for above, run in groupby(xs, lambda x: x > k) if above), default=0)


def _pairs(xs: list[int], k: int) -> int:
    return sum(xs[i] + xs[j] == k for i in range(len(xs)) for j in range(i))


FAMILIES: tuple[Family, ...] = (
    Family(
        "the sum of the numbers in xs that are divisible by {k}",
        lambda xs, k: sum(x for x in xs if x % k == 0),
        "def solve(xs):\n    return sum(x for x in xs if x % {k} == 0)\n",
    ),
    Family(
        "the list of sums of every {k} neighbouring numbers in xs, in order",
        lambda xs, k: [sum(xs[i : i + k]) for i in range(len(xs) - k + 1)],
        "def solve(xs):\n    total = sum(xs[:{k}])\n"
        "    sums = [total] if len(xs) >= {k} else []\n"
        "    for i in range({k}, len(xs)):\n        total += xs[i] - xs[i - {k}]\n"
        "        sums.append(total)\n"
        "    return sums\n",
    ),
    Family(
        "the number of pairs of positions in xs whose numbers add up to {k}",
        _pairs,
        "def solve(xs):\n    seen = {{}}\n    pairs = 0\n    for x in xs:\n"
        "        pairs += seen.get({k} - x, 0)\n"
        "        seen[x] = seen.get(x, 0) + 1\n    return pairs\n",
    ),
    Family(
        "the length of the longest run of neighbouring numbers in xs above {k}",
        _longest_run,
        "def solve(xs):\n    best = run = 0\n    for x in xs:\n        run = run + 1 if x > {k} else 0\n"
        "        best = max(best, run)\n    return best\n",
    ),
    Family(
        "the list of running sums of xs, each taken modulo {k}",
        lambda xs, k: [total % k for total in accumulate(xs)],
        "def solve(xs):\n    total = 0\n    sums = []\n    for x in xs:\n        total = (total + x) % {k}\n"
        "        sums.append(total)\n    return sums\n",
    ),
    Family(
        "xs rotated to the left by {k} places",
        lambda xs, k: xs[k % len(xs) :] + xs[: k % len(xs)] if xs else [],
        "def solve(xs):\n    if not xs:\n        return []\n    cut = {k} % len(xs)\n"
        "    return xs[cut:] + xs[:cut]\n",
    ),
    Family(
        "every {k}-th letter of s, beginning with the first",
        lambda s, k: s[::k],
        "def solve(s):\n    return s[::{k}]\n",
        "s",
    ),
    Family(
        "the letters that occur at least {k} times in s, sorted, as one string",
        lambda s, k: "".join(sorted(c for c in set(s) if s.count(c) >= k)),
        "def solve(s):\n    counts = {{}}\n    for c in s:\n        counts[c] = counts.get(c, 0) + 1\n"
        '    return "".join(sorted(c for c, n in counts.items() if n >= {k}))\n',
        "s",
    ),
)


def _argument(family: Family, rng: np.random.Generator, most: int) -> list[int] | str:
    size = most if most < 2 else int(rng.integers(most // 2, most + 1))
    if family.argument == "s":
        return "".join(chr(97 + int(c)) for c in rng.integers(5, size=size))
    return [int(x) for x in rng.integers(-9, 15, size=size)]


# Runs beside the program, in its process: a program that tampers with the tracer can fake how much it executes. What
# it returns is compared outside.
_COUNTING = """
import sys
space = {"__name__": "solution"}
def measure(source, argument):
    executed = 0
    def trace(frame, event, _):
        nonlocal executed
        if frame.f_code.co_filename != "solution":
            return None
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        return trace
    if "solve" not in space:
        exec(compile(source, "solution", "exec"), space)
    solve = space["solve"]
    sys.settrace(trace)
    try:
        return [solve(argument), executed, None]
    except BaseException as error:
        return [None, executed, f"{type(error).__name__}: {error}"]
    finally:
        sys.settrace(None)
"""
_SANDBOX = threading.Lock()  # it serves one caller at a time


def call(source: str, arguments: Sequence[Any], seconds: float = 2.0) -> list[Call]:
    """`solve(argument)` of the program `source` for every argument, in one sandboxed process.

    `executed` counts instructions of the program's own frames, a deterministic measure of work that builtins
    do not add to. Values are plain ones of built-in types; anything else counts as a failure.

    Raises:
        UserError: no sandbox works here.
        Ungradable: the sandbox broke down twice.
    """
    calls = [[source[:LONGEST], a] for a in arguments]
    with _SANDBOX:
        made = programs.call_function(Grading(RewardConfig()), _COUNTING, "measure", calls, seconds)
    found = [_parsed(c, seconds) for c in made]
    last = found[-1] if found else Call(None, 0, "the program ended early")
    return found + [Call(None, 0, last.problem)] * (len(calls) - len(found))


def _parsed(call: programs.Call, seconds: float) -> Call:
    early = Call(None, 0, "the program ended early")
    if call.error is not None:
        reasons = {"time": f"it ran longer than {seconds:g} s", "memory": "it used too much memory"}
        return (
            early
            if call.error.startswith("exit")
            else Call(None, 0, reasons.get(call.error, call.error)[:200])
        )
    if not (isinstance(call.value, list) and len(call.value) == 3 and isinstance(call.value[1], int)):
        return early
    value, executed, problem = call.value
    if problem is None and isinstance(value, Opaque):
        problem = f"it returned a {value.kind}, which is no plain value"
    return Call(value if problem is None else None, executed, None if problem is None else str(problem)[:200])
