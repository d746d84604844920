"""Calling a function of an untrusted program in the sandbox, and counting what it executes."""

import ast
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

# Answers are compared outside, so a program that prints, exits or patches the harness gains nothing.
_HARNESS = """
import json, sys
request = json.loads(sys.stdin.readline())
space = {"__name__": "solution"}
report = []
try:
    exec(compile(request["source"], "solution", "exec"), space)
    function = space[request["function"]]
except BaseException as error:
    report = [[None, 0, f"{type(error).__name__}: {error}"]] * len(request["arguments"])
else:
    for arguments in request["arguments"]:
        executed = 0
        def trace(frame, event, _):
            global executed
            if frame.f_code.co_filename != "solution":
                return None
            frame.f_trace_opcodes = True
            executed += event == "opcode"
            return trace
        sys.settrace(trace)
        try:
            value, problem = repr(function(*arguments)), None
        except BaseException as error:
            value, problem = None, f"{type(error).__name__}: {error}"
        finally:
            sys.settrace(None)
        report.append([value, executed, problem])
print()
print(json.dumps(report))
"""
LONGEST = 100_000  # characters of a program, and of a printed value


class Call(NamedTuple):
    """One call: its value (None when it failed), bytecode instructions executed, and why it failed."""

    value: Any
    executed: int
    problem: str | None


def call(source: str, function: str, arguments: Sequence[Sequence[Any]], seconds: float = 2.0) -> list[Call]:
    """`function(*arguments[i])` of the program `source` for every i, in one sandboxed process.

    `executed` counts instructions of the program's own frames, a deterministic measure of work that builtins
    do not add to. Values are Python literals; anything else counts as a failure.

    Raises:
        UserError: no sandbox works here.
        RuntimeError: the sandbox broke down twice.
    """
    request = {"source": source[:LONGEST], "function": function, "arguments": [list(a) for a in arguments]}
    stdin = json.dumps(request).encode() + b"\n"
    try:
        outcome = _jail(os.getpid()).run(_HARNESS, stdin, seconds)
    except RuntimeError:
        _jail.cache_clear()
        outcome = _jail(os.getpid()).run(_HARNESS, stdin, seconds)
    reason = {"time": f"it ran longer than {seconds:g} s", "memory": "it used too much memory"}
    lost = Call(None, 0, reason.get(outcome.reason or "", "the program ended early"))
    try:
        rows = json.loads(outcome.stdout.rstrip().rpartition(b"\n")[2])
        return [_parse(*row) for row in rows] if len(rows) == len(arguments) else [lost] * len(arguments)
    except (ValueError, TypeError):
        return [lost] * len(arguments)


def _parse(value: str | None, executed: int, problem: str | None) -> Call:
    if value is None:
        return Call(None, int(executed), str(problem)[:200])
    try:
        return Call(ast.literal_eval(value[:LONGEST]), int(executed), None)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return Call(None, int(executed), f"it returned {value[:60]}, which is no plain value")


@lru_cache(1)
def _jail(process: int):
    """This process's sandbox, started at the first call (a forked process starts its own)."""
    from rlkit.rewards.sandbox.client import Jail
    from rlkit.rewards.sandbox.levels import choose

    return Jail(choose())
