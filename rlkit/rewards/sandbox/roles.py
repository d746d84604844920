"""What runs in a sandboxed process: a script, a candidate (the program's functions, called from outside)
or an examiner (test code that calls a candidate in another sandbox).

Standard library only. The test code is never in the program's process, so the program can neither read
it nor change the builtins that it compares with.
"""

from __future__ import annotations

import _sitebuiltins
import ast
import atexit
import builtins
import contextlib
import importlib
import io
import json
import os
import socket
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

try:
    from values import Codec, Link, Lost, as_exception
except ImportError:  # outside a sandbox
    from rlkit.rewards.sandbox.values import Codec, Link, Lost, as_exception

_COMMON = (
    "bisect collections copy datetime decimal fractions functools heapq itertools math operator random re "
    "statistics string time typing"
)
for _name in _COMMON.split():  # what programs use most is imported once, before they are forked
    importlib.import_module(_name)


def _fresh(name: str) -> types.ModuleType:
    """A module for the program, and standard streams of its own."""
    sys.path.insert(0, os.getcwd())
    sys.argv = ["main.py"]
    module = types.ModuleType(name)
    sys.modules[name] = module
    stdin = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(stdin, encoding="utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace")  # type: ignore[misc]
    module.__dict__["__builtins__"] = builtins
    for word in ("exit", "quit"):  # what `site` adds
        setattr(builtins, word, _sitebuiltins.Quitter(word, ""))
    return module


def _writer(number: int, errors: str) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n")


def _run(code: str, name: str, module: types.ModuleType) -> None:
    exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)


def script(program: str) -> NoReturn:
    """Run a program as `python main.py` would, and end the process with its exit status."""
    module = _fresh("__main__")
    code = 0
    try:
        _run(program, "main.py", module)
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


# --- The candidate ------------------------------------------------------------------------------------


def candidate(sock: socket.socket, program: str, prefix: str) -> NoReturn:
    """Load a program and serve calls of its functions until the other side ends."""
    module = _fresh("solution")
    module.__dict__.update(_prelude())
    shared = _prefixed(module, prefix)
    before = dict(module.__dict__)
    link = Link(sock, Codec(shared), lambda operation, arguments: _serve(module, operation, arguments))
    try:
        _run(program, "solution.py", module)
    except BaseException as error:
        link.send("raise", [type(error), [str(a) for a in error.args]])
        traceback.print_exc()
        os._exit(1)
    for name in shared:  # the program may define the prefix's classes again
        if isinstance(module.__dict__.get(name), type):
            shared[name] = module.__dict__[name]
    bound = set(compile(program, "solution.py", "exec", dont_inherit=True).co_names)
    own = [n for n, v in vars(module).items() if n in bound or before.get(n, module) is not v]
    own = [n for n in own if not n.startswith("__")]
    link.send("value", own)
    with contextlib.suppress(Lost):
        while True:
            _, nodes, _ = link.receive()
            link.answer(nodes)
    os._exit(0)


def _prelude() -> dict[str, Any]:
    """What LeetCode imports for its programs, which therefore do not: modules, `List`, `deque` …"""
    names: dict[str, Any] = {name: sys.modules[name] for name in (*_COMMON.split(), "sys")}
    for home in ("typing", "collections", "itertools", "functools", "heapq", "bisect"):
        module = sys.modules[home]
        names |= {n: getattr(module, n) for n in module.__all__} if hasattr(module, "__all__") else {}
        names |= {n: v for n, v in vars(module).items() if not n.startswith("_") and callable(v)}
    return {name: value for name, value in names.items() if not hasattr(builtins, name)}


def _prefixed(module: types.ModuleType, prefix: str) -> dict[str, Any]:
    """Run the prefix; the classes that it defines."""
    if prefix:
        _run(prefix, "prefix.py", module)
    here = module.__name__
    return {n: v for n, v in module.__dict__.items() if isinstance(v, type) and v.__module__ == here}


def _serve(module: types.ModuleType, operation: str, arguments: list[Any]) -> Any:
    if operation == "get":
        return module.__dict__[arguments[0]]
    if operation == "function":
        return _function(module, arguments[0])(*arguments[1])
    target, *rest = arguments
    if operation == "call":
        return target(*rest[0], **rest[1])
    if operation == "getattr":
        return getattr(target, rest[0])
    if operation == "setattr":
        return setattr(target, *rest)
    if operation == "special":
        return _special(target, *rest)
    if operation == "isinstance":
        return isinstance(rest[0], target)
    if operation == "state":
        return [type(target).__qualname__, dict(getattr(target, "__dict__", {})) or repr(target)]
    raise ValueError(operation)


def _special(target: Any, name: str, arguments: list[Any]) -> Any:
    if name in ("__bool__", "__int__"):
        return bool(target) if name == "__bool__" else int(target)
    method = getattr(type(target), name, None)
    if method is None:
        raise TypeError(f"{type(target).__name__!r} has no {name}")
    return method(target, *arguments)


def _function(module: types.ModuleType, name: str) -> Any:
    """A function of the program, or a method of its `Solution`, on a new instance for each call."""
    if name in module.__dict__:
        return module.__dict__[name]
    return getattr(module.__dict__["Solution"](), name)


# --- The examiner -------------------------------------------------------------------------------------


def examiner(sock: socket.socket, verdict: socket.socket, request: dict[str, Any]) -> None:
    """Run test code against a candidate; one JSON line with the outcome goes to `verdict`."""
    module = _fresh("__main__")
    outcome: dict[str, Any] = {"passed": 0, "total": 1, "error": None}
    try:
        link = Link(sock, Codec(_prefixed(module, request["prefix"])), _callback)
        kind, nodes, _ = link.receive()
        value, _ = link.codec.decode(nodes, link.make)
        if kind == "raise":
            raise as_exception(value)
        _bind(module, link, value, request)
        (_pytest if request["role"] == "pytest" else _statements)(module, request, outcome)
    except BaseException as error:
        outcome["error"] = f"{type(error).__name__}: {error}"[:300]
    verdict.sendall(json.dumps(outcome).encode() + b"\n")


def _callback(operation: str, arguments: list[Any]) -> Any:
    """The candidate may call functions that the tests passed to it; nothing else."""
    target, *rest = arguments
    if operation != "call" or not isinstance(target, types.FunctionType | types.BuiltinFunctionType):
        raise PermissionError("only functions can be called back")
    return target(*rest[0], **rest[1])


def _bind(module: types.ModuleType, link: Link, names: list[str], request: dict[str, Any]) -> None:
    """The program's names in the tests' namespace. One that hides a builtin counts only if it is what is
    tested: the tests' own abs and sorted are the real ones."""
    used = _names(compile(request["program"], "tests.py", "exec", dont_inherit=True))
    subject = any(n in used and not hasattr(builtins, n) for n in names)
    solution = types.ModuleType("solution")
    for name in names:
        if hasattr(builtins, name) and subject and name != request.get("entry_point"):
            continue
        if name in used or request["role"] == "pytest":
            value = link.request("get", name)
            solution.__dict__[name] = value
            if not isinstance(value, types.ModuleType) or name not in module.__dict__:
                module.__dict__[name] = value
    sys.modules["solution"] = solution


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _statements(module: types.ModuleType, request: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Run the test script statement by statement; each assertion at its top level is a test."""
    tree = ast.parse(request["program"])
    tests = sum(isinstance(node, ast.Assert) for node in tree.body)
    outcome["total"] = max(1, tests)
    for node in tree.body:
        code = compile(ast.Module([node], []), "tests.py", "exec", dont_inherit=True)
        try:
            exec(code, module.__dict__)
            outcome["passed"] += isinstance(node, ast.Assert)
        except AssertionError as error:
            outcome["error"] = outcome["error"] or f"AssertionError: {error} (line {node.lineno})"
            if not request["all"]:
                return
        except SystemExit as stop:
            if stop.code:
                raise AssertionError("the tests failed") from None
    _check(module, request.get("entry_point"), tree)
    if not tests and not outcome["error"]:
        outcome["passed"] = 1


def _check(module: types.ModuleType, entry: str | None, tree: ast.Module) -> None:
    """HumanEval's `check(candidate)`, if the script defines it and does not call it."""
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    if entry in module.__dict__ and "check" in module.__dict__ and "check" not in called:
        module.__dict__["check"](module.__dict__[entry])


def _pytest(module: types.ModuleType, request: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Run a pytest file that imports from `solution`."""
    try:
        import pytest
    except ImportError:
        outcome["lacks"] = "pytest"
        return
    counts = {"passed": 0, "failed": 0}

    class Count:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                counts["failed"] += 1
                outcome["error"] = outcome["error"] or str(report.longrepr)[-300:]
            elif report.when == "call" and report.passed:
                counts["passed"] += 1

    with open("test_solution.py", "w") as file:
        file.write(request["program"])
    status = pytest.main(["-q", "-p", "no:cacheprovider", "test_solution.py"], plugins=[Count()])
    outcome["passed"], outcome["total"] = counts["passed"], max(1, sum(counts.values()))
    if status != 0 and not outcome["error"]:
        outcome["error"] = f"pytest ended with {status!r}"
