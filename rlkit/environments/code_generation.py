"""Code generation: write a function, test it in the sandbox, debug it until its tests pass."""

import ast
import json
import re
import subprocess
import sys
import textwrap
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.environments import code_problems
from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)
from rlkit.environments.sandboxed import Call, call
from rlkit.errors import UserError

LOOK, TESTS, HIDDEN, EFFICIENCY, STYLE, WASTED = -0.1, 3.0, 4.0, 1.0, 1.0, -0.2  # documented below
STYLE_LIMIT = 5  # ruff findings at which nothing is left of the reward for style
RULES = "E,F,W,B,C4,SIM,PERF"

Cases = tuple[tuple[Any, Any], ...]  # argument and answer


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
        return code_problems.draw(rng, self.visible_tests, self.hidden_tests)

    def begin(self, problem: Problem) -> str:
        visible, hidden = (tuple((a, b) for a, b in problem[name]) for name in ("visible", "hidden"))
        if not visible or not hidden:
            raise UserError("A code problem has visible and hidden tests, each [argument, answer].")
        self._state = State(str(problem["description"]), str(problem["reference"]), visible, hidden)
        return self._state.description

    def get_valid_actions(self) -> list[str]:
        names, state = super().get_valid_actions(), self._state
        hidden = set()
        if names and not state.source:
            hidden = {"add_logic", "test_code", "debug"}
        elif names and not state.failing:
            hidden = {"debug"}
        if names and state.shown == len(state.visible):
            hidden.add("analyze_requirements")
        return [n for n in names if n not in hidden]

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
        calls = call(self._state.source, "solve", [(argument,) for argument, _ in cases], self.timeout)
        good = [
            c.problem is None and same(c.value, answer) for c, (_, answer) in zip(calls, cases, strict=True)
        ]
        return calls, good

    def _submit(self, gain: float) -> ActionResult:
        state: State = self._state
        calls, good = self._run(state.hidden)
        executed = sum(c.executed for c, ok in zip(calls, good, strict=True) if ok)
        reference = _executed(state.reference, json.dumps([[argument] for argument, _ in state.hidden]))
        due = sum(n for n, ok in zip(reference, good, strict=True) if ok)
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
        name = re.search(r"solve\((\w+)\)", self._state.description)
        body = str(rng.choice(("return None", "pass", f"return {name[1] if name else 'x'}")))
        return {
            "value": body if action == "add_logic" else f"def solve({name[1] if name else 'x'}):\n    {body}"
        }

    def parse_action(self, text: str) -> tuple[str, dict[str, Any]]:
        action, params = super().parse_action(text)
        if isinstance(params.get("value"), str):
            params["value"] = params["value"].lstrip("\n")
        return action, params

    def format_action(self, action: str, params: Params | None = None) -> str:
        return f"{action}\n{params['value'].rstrip()}" if params and "value" in params else action

    def render(self) -> str:
        return self._state.source or f"# {self._state.description}\n"


def unfenced(text: str) -> str:
    """A program without the Markdown fence around it."""
    match = re.search(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    return match[1] if match else text


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


@lru_cache(4096)
def _executed(reference: str, arguments: str) -> list[int]:
    return [c.executed for c in call(reference, "solve", json.loads(arguments))]


@lru_cache(4096)
def style_findings(source: str) -> int:
    """How many findings ruff has in a program (rules E, F, W, B, C4, SIM and PERF; nothing is executed)."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--quiet",
        "--select",
        RULES,
    ]
    command += ["--output-format", "json", "--stdin-filename", "solution.py", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=30)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ruff failed: {done.stderr.strip()[:200]}")
    return len(json.loads(done.stdout))
