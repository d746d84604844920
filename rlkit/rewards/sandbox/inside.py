"""What runs inside the sandbox: a script, or a program whose functions are called by name (testing.py: the tests).

Standard library only. The program's process can neither read the tests nor make theirs do anything: it answers calls
with plain values.
"""

from __future__ import annotations
import __future__

import _sitebuiltins
import ast
import atexit
import builtins
import collections.abc
import contextlib
import importlib
import io
import itertools
import os
import socket
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

try:
    from plain import MANY, Lost, Plain, receive, send
except ImportError:  # outside a sandbox
    from rlkit.rewards.sandbox.plain import MANY, Lost, Plain, receive, send

COMMON = tuple(
    "bisect collections copy datetime decimal fractions functools heapq itertools math operator random re "  # noqa: SIM905
    "statistics string time typing".split()
)
for _name in COMMON:  # what programs use most is imported once, before they are forked
    importlib.import_module(_name)

FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


# --- Scripts ------------------------------------------------------------------------------------------


class _Input(io.FileIO):
    """Standard input that knows whether it was read."""

    touched = False

    def readinto(self, buffer: Any) -> int | None:
        _Input.touched = True
        return super().readinto(buffer)

    def readall(self) -> bytes:
        _Input.touched = True
        return super().readall()


def new_module(name: str) -> types.ModuleType:
    """A module for the program, with standard streams of its own and whole numbers of any length."""
    sys.path.insert(0, os.getcwd())
    sys.argv = ["main.py"]
    sys.set_int_max_str_digits(0)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(_Input(0, closefd=False)), "utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace")  # type: ignore[misc]
    for word in ("exit", "quit"):  # what `site` adds
        setattr(builtins, word, _sitebuiltins.Quitter(word, ""))
    module = types.ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__="main.py")
    sys.modules[name] = module
    return module


def _writer(number: int, errors: str) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n")


def run_code(code: Any, name: str, module: types.ModuleType) -> None:
    exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)


def script(program: str) -> NoReturn:
    """Run a program as `python main.py` would, and end the process with its exit status."""
    module = new_module("__main__")
    code = 0
    try:
        run_code(program, "main.py", module)
    except SystemExit as stop:
        code = _exit_status(stop.code)
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        code = code or 120
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _exit_status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


# --- The program's functions --------------------------------------------------------------------------


def functions(sock: socket.socket, program: str, prefix: str) -> NoReturn:
    """Load a program and serve calls of its functions until the other side ends."""
    file = sock.makefile("rwb")
    try:
        module, names, before = solution_module(program, prefix)
    except BaseException as error:
        send(file, "failed", said(error))
        os._exit(1)
    shared = {n: v for n, v in before.items() if isinstance(v, type) and v.__module__ == "solution"}
    for name in shared:  # the program may define the prefix's classes again
        if isinstance(module.__dict__.get(name), type):
            shared[name] = module.__dict__[name]
    solutions: dict[Any, Any] = {}
    plain = Plain(shared, _without_plain_form, lambda node: _named(module, node))
    send(file, "loaded", [[name, callable(module.__dict__[name])] for name in names])
    with contextlib.suppress(Lost):
        while True:
            _, nodes = receive(file)
            (name, number, arguments, keywords), passed = plain.decode(nodes)
            try:
                found = _find(module, name, number, solutions)
                value = found(*arguments, **keywords) if callable(found) else found
                send(file, "value", plain.encode([value, passed], passed)[0])
            except BaseException as error:
                send(file, "raise", *_raised(error))
    os._exit(0)


def solution_module(program: str, prefix: str) -> tuple[types.ModuleType, list[str], dict[str, Any]]:
    """The program as the module `solution`, the names that it defines, and what was there before it."""
    module = new_module("solution")
    module.__dict__.update(PRELUDE)
    if prefix:
        run_code(prefix, "prefix.py", module)
    before = dict(module.__dict__)
    _load(program, module)
    bound = set(compile(program, "solution.py", "exec", dont_inherit=True).co_names)
    names = [n for n, v in vars(module).items() if n in bound or before.get(n, module) is not v]
    return module, [n for n in names if not n.startswith("__")], before


def _load(program: str, module: types.ModuleType) -> None:
    """Run a program for its definitions. A statement that fails because it wants input, of which tests of functions
    have none, is left out: demonstrations are often written below a function."""
    flags = compile(program, "solution.py", "exec", dont_inherit=True).co_flags & FUTURE
    body = ast.parse(program, "solution.py").body
    while body:
        try:
            code = compile(ast.Module(body, []), "solution.py", "exec", flags, dont_inherit=True)
            return exec(code, module.__dict__)
        except BaseException as error:
            trace = error.__traceback__ and error.__traceback__.tb_next
            if not _Input.touched or trace is None:
                raise
            body = [statement for statement in body if statement.lineno > trace.tb_lineno]


def _prelude() -> dict[str, Any]:
    """What LeetCode imports for its programs, which therefore do not: modules, `List`, `deque` …"""
    names: dict[str, Any] = {name: sys.modules[name] for name in (*COMMON, "sys")}
    for home in ("typing", "collections", "itertools", "functools", "heapq", "bisect"):
        module = sys.modules[home]
        names |= {n: getattr(module, n) for n in module.__all__} if hasattr(module, "__all__") else {}
        names |= {n: v for n, v in vars(module).items() if not n.startswith("_") and callable(v)}
    return {name: value for name, value in names.items() if not hasattr(builtins, name)}


PRELUDE = _prelude()


def _find(module: types.ModuleType, name: str, number: Any, solutions: dict[Any, Any]) -> Any:
    """A name of the program, or a method of its `Solution`: of the instance `number`, or of a new one."""
    if number is None and name in module.__dict__:
        return module.__dict__[name]
    if number is None or number not in solutions:
        solutions[number] = module.__dict__["Solution"]()
    return getattr(solutions[number], name)


def _without_plain_form(item: Any) -> list[Any]:
    """In the program's process: iterators are run, of other things only the type is told."""
    views = type({}.keys()), type({}.values()), type({}.items())
    if isinstance(item, (collections.abc.Iterator, *views)):
        return ["iterator", list(itertools.islice(item, MANY))]
    return ["opaque", type(item).__name__]


def _named(module: types.ModuleType, node: list[Any]) -> Any:
    """In the program's process: what the tests name, a function of the program or of the standard library."""
    if node[0] == "function":
        return module.__dict__[node[1]]
    return getattr(importlib.import_module(node[1]), node[2])


def _raised(error: BaseException) -> tuple[str, str, list[Any]]:
    """An exception as the nearest built-in class, its own class's name, and its arguments."""
    base = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    simple = [a if isinstance(a, str | float | bool) or type(a) is int else str(a) for a in error.args]
    return base, type(error).__name__, simple


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
