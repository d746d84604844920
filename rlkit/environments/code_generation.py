"""Code generation: write a function, test it in the sandbox, debug it until its tests pass."""

import ast
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from rlkit.config import RewardConfig
from rlkit.domains.code import extract
from rlkit.domains.grading import Grading
from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.base import Params, Problem
from rlkit.errors import UserError
from rlkit.results.machine import usable_cores
from rlkit.sandbox import programs

LOOK, TESTS, HIDDEN, WASTED = -0.1, 3.0, 4.0, -0.2  # documented below
VISIBLE = 3  # tests that the agent can see and run
SIZES = (6, 6, 6, 0, 1, 40, 40, 40, 40)  # of the tests' arguments, at most; the first are visible
FAMILIES = (  # argument (numbers xs or a text s), what is asked, and a program that does it
    ("xs", "the sum of the numbers in xs that are divisible by {k}",
     "def solve(xs):\n    return sum(x for x in xs if x % {k} == 0)\n"),
    ("xs", "the length of the longest run of neighbouring numbers in xs above {k}",
     "def solve(xs):\n    best = run = 0\n    for x in xs:\n        run = run + 1 if x > {k} else 0\n"
     "        best = max(best, run)\n    return best\n"),
    ("s", "every {k}-th letter of s, beginning with the first", "def solve(s):\n    return s[::{k}]\n"),
)  # fmt: skip

Cases = tuple[tuple[Any, Any], ...]  # argument and answer


@environments.register("code_generation")
class CodeGeneration(BaseEnvironment):
    """Write `solve` so that it passes the tests. Programs run in the sandbox only.

    Rewards: test_code earns 3 times the rise of the best share of visible tests passed, or -0.2 when it does
    not rise. The run that passes them all ends the episode and adds 4 times the share of hidden tests passed.
    analyze_requirements shows one more visible test and costs 0.1. Writing costs nothing, but a program that does not
    parse or has no `solve` is an invalid action. Success is passing every test.
    """

    purpose: ClassVar[str] = "Write a Python function that passes its tests."
    multiline: ClassVar[bool] = True
    slow: ClassVar[bool] = True
    actions: ClassVar[dict[str, str]] = {
        "analyze_requirements": "see one more example test",
        "write_function": "give the whole program, which defines solve, also to correct it",
        "test_code": "run the visible tests",
    }

    kind: Literal["code_generation"] = "code_generation"
    timeout: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Seconds that one run of all tests may take."""

    _description: str = PrivateAttr("")
    _reference: str = PrivateAttr("")
    _visible: Cases = PrivateAttr(())
    _hidden: Cases = PrivateAttr(())
    _source: str = PrivateAttr("")  # the program so far
    _shown: int = PrivateAttr(0)  # visible tests that the agent has seen
    _best: float = PrivateAttr(0.0)  # the largest share of visible tests passed in a test run

    def problem(self, rng: np.random.Generator) -> Problem:
        name, asked, reference = FAMILIES[int(rng.integers(len(FAMILIES)))]
        k, space = int(rng.integers(2, 10)), dict[str, Any]()
        exec(reference.format(k=k), space)  # one of the programs above
        arguments = [_argument(name, rng, most) for most in SIZES]
        cases = [[argument, space["solve"](argument)] for argument in arguments]
        return {
            "description": f"Write solve({name}) that returns {asked.format(k=k)}.",
            "reference": reference.format(k=k),
            "visible": cases[:VISIBLE],
            "hidden": cases[VISIBLE:],
        }

    def begin(self, problem: Problem) -> str:
        visible, hidden = (tuple((a, b) for a, b in problem[name]) for name in ("visible", "hidden"))
        if not visible or not hidden:
            raise UserError("A code problem has visible and hidden tests, each [argument, answer].")
        self._description, self._reference = str(problem["description"]), str(problem["reference"])
        self._visible, self._hidden, self._source, self._shown, self._best = visible, hidden, "", 0, 0.0
        return self._description

    def get_valid_actions(self) -> list[str]:
        names = super().get_valid_actions()
        hidden = set() if self._source else {"test_code"}
        hidden |= {"analyze_requirements"} if self._shown == len(self._visible) else set()
        return [name for name in names if name not in hidden]

    def act(self, action: str, params: Params) -> ActionResult:
        if action == "analyze_requirements":
            argument, answer = self._visible[self._shown]
            self._shown += 1
            return ActionResult(f"solve({argument!r}) returns {answer!r}.", LOOK, False)
        if action == "test_code":
            return self._test()
        source = (extract(str(params.get("value", "")), ["solve"]) or "").rstrip() + "\n"
        check_source(source)
        self._source = source
        return ActionResult(f"Saved {len(source.splitlines())} lines.", 0.0, False)

    def _test(self) -> ActionResult:
        problems = failures(self._source, self._visible, self.timeout)
        share = problems.count(None) / len(problems)
        gain = TESTS * (share - self._best) if share > self._best else WASTED
        self._best = max(share, self._best)
        if share == 1:
            hidden = failures(self._source, self._hidden, self.timeout).count(None) / len(self._hidden)
            text = f"All visible tests pass, and {hidden:.0%} of the hidden ones."
            info = {"success": hidden == 1, "hidden": hidden}
            return ActionResult(text, gain + HIDDEN * hidden, True, info)
        (argument, answer), wrong = next(pair for pair in zip(self._visible, problems, strict=True) if pair[1])
        told = f"{problems.count(None)} of {len(problems)} tests pass"
        text = f"{told}. solve({argument!r}) should return {answer!r}, but {wrong}."
        return ActionResult(text, gain, False, {"passed": share})

    def expert(self) -> tuple[str, Params]:
        """Look at one test, write the reference, test it."""
        if not self._shown:
            return "analyze_requirements", {}
        if self._source != self._reference:
            return "write_function", {"value": self._reference}
        return "test_code", {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        if action in ("analyze_requirements", "test_code"):
            return {}
        name = "s" if "solve(s)" in self._description else "xs"
        return {"value": f"def solve({name}):\n    return {rng.choice(('None', '0', name))}"}

    def format_action(self, action: str, params: Params | None = None) -> str:
        return f"{action}\n{str(params['value']).rstrip()}" if params and "value" in params else action

    def render(self) -> str:
        return self._source or f"# {self._description}\n"


def check_source(source: str) -> None:
    """Raises InvalidAction unless it is Python that defines `solve` at its top."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidAction(f"That is no Python program: {type(error).__name__} {error}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "solve" for node in tree.body):
        raise InvalidAction("The program defines no function solve.")


def _argument(name: str, rng: np.random.Generator, most: int) -> list[int] | str:
    size = most if most < 2 else int(rng.integers(most // 2, most + 1))
    if name == "s":
        return "".join(chr(97 + int(c)) for c in rng.integers(5, size=size))
    return [int(x) for x in rng.integers(-9, 15, size=size)]


@cache
def _sandboxes(process: int) -> ThreadPoolExecutor:
    """Threads of this process, which have a sandbox each: one serves one caller at a time."""
    return ThreadPoolExecutor(max(2, usable_cores()), "sandbox")


def failures(source: str, cases: Cases, seconds: float = 5.0) -> list[str | None]:
    """What is wrong with `solve(argument)` of a program in each case, None where it gives the answer. Raises UserError
    where no sandbox works, Ungradable where it broke down twice."""
    arguments = [[argument] for argument, _ in cases]
    grading, threads = Grading(RewardConfig()), _sandboxes(os.getpid())
    calls = threads.submit(programs.call_function, grading, source, "solve", arguments, seconds).result()
    reasons = {"time": f"it ran longer than {seconds:g} s", "memory": "it used too much memory"}
    found: list[str | None] = []
    for call, (_, answer) in zip(calls, cases, strict=False):
        if call.error is not None:
            found.append(reasons.get(call.error, f"it failed: {call.error}")[:200])
        else:
            found.append(None if repr(call.value) == repr(answer) else f"it returned {call.value!r:.80}")
    return found + [found[-1] or "the program ended early"] * (len(cases) - len(found))
