"""Calling a function of an untrusted program in the sandbox, and counting what it executes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlkit.config import RewardConfig
from rlkit.rewards.grading import Grading
from rlkit.rewards.sandbox import programs
from rlkit.rewards.sandbox.inside import Opaque

# Runs beside the program, in its process: a program that tampers with the tracer can fake how much it executes. What
# it returns is compared outside.
_COUNTING = """
import sys
space = {"__name__": "solution"}
def measure(source, name, arguments):
    executed = 0
    def trace(frame, event, _):
        nonlocal executed
        if frame.f_code.co_filename != "solution":
            return None
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        return trace
    if name not in space:
        exec(compile(source, "solution", "exec"), space)
    function = space[name]
    sys.settrace(trace)
    try:
        return [function(*arguments), executed, None]
    except BaseException as error:
        return [None, executed, f"{type(error).__name__}: {error}"]
    finally:
        sys.settrace(None)
"""
LONGEST = 100_000  # characters of a program


class Call(NamedTuple):
    """One call: its value (None when it failed), bytecode instructions executed, and why it failed."""

    value: Any
    executed: int
    problem: str | None


def call(source: str, function: str, arguments: Sequence[Sequence[Any]], seconds: float = 2.0) -> list[Call]:
    """`function(*arguments[i])` of the program `source` for every i, in one sandboxed process.

    `executed` counts instructions of the program's own frames, a deterministic measure of work that builtins
    do not add to. Values are plain ones of built-in types; anything else counts as a failure.

    Raises:
        UserError: no sandbox works here.
        Ungradable: the sandbox broke down twice.
    """
    calls = [[source[:LONGEST], function, list(a)] for a in arguments]
    found = [
        _parsed(c, seconds) for c in programs.call_function(_grading(), _COUNTING, "measure", calls, seconds)
    ]
    last = found[-1] if found else Call(None, 0, "the program ended early")
    return found + [Call(None, 0, last.problem)] * (len(calls) - len(found))


def _grading() -> Grading:
    return Grading(RewardConfig())


def _parsed(call: programs.Call, seconds: float) -> Call:
    if call.error is not None:
        reasons = {"time": f"it ran longer than {seconds:g} s", "memory": "it used too much memory"}
        ended = call.error.startswith("exit")
        return Call(
            None, 0, "the program ended early" if ended else reasons.get(call.error, call.error)[:200]
        )
    if not (isinstance(call.value, list) and len(call.value) == 3 and isinstance(call.value[1], int)):
        return Call(None, 0, "the program ended early")
    value, executed, problem = call.value
    if problem is not None:
        return Call(None, executed, str(problem)[:200])
    if isinstance(value, Opaque):
        return Call(None, executed, f"it returned a {value.kind}, which is no plain value")
    return Call(value, executed, None)
