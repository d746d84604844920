"""What runs test code in the sandbox: against a program in another process, or in the program's own.

Standard library only. The process of the tests calls the program's functions by name and gets plain values; no object
of the program is ever asked whether it is equal, smaller or inside. Tests that need such objects run in the program's
process instead; nothing they say can be trusted.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import importlib.util
import itertools
import json
import signal
import socket
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

try:
    from inside import FUTURE, PRELUDE, new_module, run_code, said, solution_module
    from plain import Lost, Opaque, Plain, receive, send
except ImportError:  # outside a sandbox
    from rlkit.rewards.sandbox.inside import FUTURE, PRELUDE, new_module, run_code, said, solution_module
    from rlkit.rewards.sandbox.plain import Lost, Opaque, Plain, receive, send


class Program:
    """In the tests' process: the program in the other one, whose functions can be called.

    Args:
        shared: classes of the prefix, by name.
    """

    def __init__(self, sock: socket.socket, shared: Mapping[str, Any]) -> None:
        self.insufficient: str | None = None
        """What the tests passed to the program that is no plain value, if anything."""
        self._file, self._shared = sock.makefile("rwb"), shared
        self._plain = Plain(shared, self._other, lambda node: Opaque(str(node[1])))
        self._functions: dict[str, Any] = {}
        self._count = itertools.count()

    def names(self) -> dict[str, Any]:
        """What the program defines, once it is loaded: a function for each function, None for each other value.

        Raises:
            Lost: it fails to load; the message says why.
        """
        kind, content = receive(self._file)
        if kind != "loaded":
            raise Lost(str(content)[:300])
        for name, called in dict(content).items():
            self._functions[str(name)] = self._function(str(name)) if called else None
        if "Solution" in self._functions:
            self._functions["Solution"] = self._solution()
        return self._functions

    def call(self, name: str, number: int | None = None, arguments: Any = (), keywords: Any = None) -> Any:
        """The plain value of a call, or of a name that is no function. What the program raises is raised here."""
        nodes, passed = self._plain.encode([name, number, list(arguments), dict(keywords or {})])
        send(self._file, "call", nodes)
        kind, *content = receive(self._file)
        if kind == "raise":
            raise self._exception(*content)
        return self._plain.decode(content[0], passed)[0][0]

    def _function(self, name: str, number: int | None = None) -> Any:
        def function(*arguments: Any, **keywords: Any) -> Any:
            return self.call(name, number, arguments, keywords)

        function.__name__ = name
        return function

    def _solution(self) -> Any:
        program = self

        class Solution:
            def __init__(self) -> None:
                self._number = next(program._count)

            def __getattr__(self, method: str) -> Any:
                if method.startswith("__"):
                    raise AttributeError(method)
                return program._function(method, self._number)

        return Solution

    def _other(self, item: Any) -> list[Any]:
        """The node of what the tests pass: a function of the program or of the standard library, by its name."""
        if isinstance(item, Opaque):
            raise TypeError(f"a {item.kind} is no plain value")
        if type(item) is type(iter([])):
            return ["iterator", list(item)]
        name, home = getattr(item, "__name__", None), getattr(item, "__module__", None)
        if isinstance(name, str) and name in self._functions and self._functions[name] is item:
            return ["function", name]
        standard = isinstance(name, str) and isinstance(home, str) and home in sys.stdlib_module_names
        if standard and getattr(sys.modules.get(str(home)), str(name), None) is item:
            return ["import", home, name]
        self.insufficient = type(item).__name__
        raise TypeError(f"a {self.insufficient} is no plain value")

    def _exception(self, base: str, name: str, arguments: list[Any]) -> Exception:
        """The program's exception as the nearest built-in one: never one that ends this process."""
        cls = getattr(builtins, str(base), None)
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            cls = Exception
        own = self._shared.get(name)
        if isinstance(own, type) and issubclass(own, Exception):
            cls = own
        elif name != cls.__name__:
            cls = type(str(name), (cls,), {})
        try:
            return cls(*arguments)
        except Exception:
            return Exception(name, *arguments)


def tests(verdict: socket.socket, request: dict[str, Any], sock: socket.socket | None = None) -> None:
    """Run test code and write one JSON line with the outcome to `verdict`.

    Args:
        request: tests, prefix, entry, announced (whether the row names the entry), pytest (whether pytest runs them),
            all (go on after a failure), each (seconds from one check to the next, after which the process is ended),
            nonce (which the outcome repeats), and without `sock` the program, which is then run in this process.
        sock: leads to the process with the program.
    """
    outcome: dict[str, Any] = {"passed": 0, "total": 1, "error": None, "checks": 0}
    signal.setitimer(signal.ITIMER_REAL, request["each"])
    try:
        _examine(request, outcome, sock)
    except BaseException as error:
        outcome["error"] = outcome["error"] or (str(error) if isinstance(error, Lost) else said(error))
    if not outcome["checks"]:
        outcome["error"] = outcome["error"] or "no assertion was reached"
    verdict.sendall(json.dumps({**outcome, "nonce": request["nonce"]}).encode() + b"\n")


def _examine(request: dict[str, Any], outcome: dict[str, Any], sock: socket.socket | None) -> None:
    tree = ast.parse(request["tests"])
    main = new_module("__main__")
    try:
        outcome["lacks"] = next(
            (name for name in _imported(tree) if importlib.util.find_spec(name) is None), None
        )
        run_code(request["prefix"], "prefix.py", main)
    except Exception as error:
        outcome["fault"] = f"the prefix fails: {said(error)}"
    if outcome["lacks"] or "fault" in outcome:
        return
    program, explicit = None, _explicit(tree)
    used = (
        {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | explicit | {"Solution", request["entry"]}
    )
    if sock:
        shared = {n: v for n, v in vars(main).items() if isinstance(v, type) and v.__module__ == "__main__"}
        program = Program(sock, shared)
        functions = program.names()
        found = {n: functions[n] or program.call(n) for n in functions if n in used}
    else:
        module, names, before = solution_module(request["program"], request["prefix"])
        main.__dict__.update(
            (n, v) for n, v in before.items() if n in main.__dict__ and not n.startswith("__")
        )
        found = {n: module.__dict__[n] for n in names}
    solution = types.ModuleType("solution")
    sys.modules["solution"] = solution
    bound = _bound(main, found, used, request)
    solution.__dict__.update({n: v for n, v in found.items() if n in explicit} | bound)
    main.__dict__.update(bound)
    _pytest(main, tree, request, outcome) if request["pytest"] else _statements(main, tree, request, outcome)
    if program and program.insufficient:
        outcome["insufficient"] = program.insufficient


def _imported(tree: ast.Module) -> list[str]:
    """The modules that the tests themselves need."""
    names = [a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names]
    names += [n.module for n in tree.body if isinstance(n, ast.ImportFrom) and n.module and not n.level]
    return [
        name for name in (name.partition(".")[0] for name in names) if name not in ("solution", "__future__")
    ]


def _explicit(tree: ast.Module) -> set[str]:
    """The names that tests import from `solution`, or take from it as attributes."""
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "solution"]
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    names = {n.attr for n in attributes if n.value.id == "solution"}  # type: ignore[attr-defined]
    return names | {a.name for n in froms for a in n.names}


def _bound(
    main: types.ModuleType, found: dict[str, Any], used: set[str], request: dict[str, Any]
) -> dict[str, Any]:
    """The program's names in the tests' namespace, and those of the standard library that the tests take for granted.

    The prefix's names are the prefix's, unless it only announces what the program is to define. A name that hides
    one of Python's counts only if it is what is tested: the tests' own `abs`, `sorted` and `Counter` are the real ones.
    """
    own = set(vars(main)) - {n.name for n in ast.parse(request["prefix"]).body if announced(n)}
    tested = ("Solution", request["entry"] if request["announced"] else None)
    free = [n for n in found if n in used and n not in own]
    mine = [n for n in free if not hasattr(builtins, n) and n not in PRELUDE]
    mine = (mine or free) + [n for n in tested if n in found]
    modules = (used & {"np", *sys.stdlib_module_names}) - own - set(mine)
    taken: dict[str, Any] = {n: PRELUDE[n] for n in used if n in PRELUDE and n not in own}
    for name in modules:
        with contextlib.suppress(ImportError):
            taken[name] = importlib.import_module("numpy" if name == "np" else name)
    return taken | {n: found[n] for n in mine}


def announced(node: ast.stmt) -> bool:
    """Whether a function or class of the prefix has no body yet."""
    if isinstance(node, ast.ClassDef):
        return node.name == "Solution"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    idle = (ast.Pass, ast.Raise, ast.Expr, ast.Import, ast.ImportFrom)
    said = [n for n in node.body if isinstance(n, idle)]
    return len(said) == len(node.body) and all(
        isinstance(n.value, ast.Constant) for n in said if isinstance(n, ast.Expr)
    )


def is_check(node: ast.AST) -> bool:
    """Whether a statement can fail because the program is wrong: assert, self.assertEqual(…), with raises(…), or a
    branch that raises, asserts a constant or exits."""
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.Expr):
        return _is_call(node.value, "assert", "fail", "check_")
    if isinstance(node, ast.With | ast.AsyncWith) and any(
        _is_call(item.context_expr, "assert", "raises", "warns") for item in node.items
    ):
        return True
    blocks = [getattr(node, field, ()) for field in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(node, "handlers", ())]
    return not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) and any(
        isinstance(child, ast.Raise)
        or (isinstance(child, ast.Assert) and isinstance(child.test, ast.Constant))
        or (isinstance(child, ast.Expr) and _is_call(child.value, "exit", "_exit", "quit"))
        for block in blocks
        if isinstance(block, list)
        for child in block
    )


def _is_call(node: ast.AST, *beginnings: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
    return name.startswith(beginnings)


class _Counted(ast.NodeTransformer):
    """Every check calls `__check__()` first."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, field, None), list):
                setattr(node, field, [new for child in block for new in self._with_call(child)])
        return node

    def _with_call(self, node: ast.stmt) -> list[ast.stmt]:
        if not is_check(node):
            return [node]
        call = ast.Expr(ast.Call(ast.Name("__check__", ast.Load()), [], []))
        return [ast.fix_missing_locations(ast.copy_location(call, node)), node]


def _counting(request: dict[str, Any], outcome: dict[str, Any]) -> Callable[[], None]:
    def check() -> None:
        outcome["checks"] += 1
        signal.setitimer(signal.ITIMER_REAL, request["each"])

    return check


def _statements(
    main: types.ModuleType, tree: ast.Module, request: dict[str, Any], outcome: dict[str, Any]
) -> None:
    """Run the tests statement by statement, then what they define and do not call: check, test functions, test cases.
    Each assertion at the top and each such function is a test."""
    flags = compile(tree, "tests.py", "exec", dont_inherit=True).co_flags & FUTURE
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    outcome["total"] = 0
    if any(name == "unittest" for name in _imported(tree)):
        unittest: Any = importlib.import_module("unittest")
        unittest.main = lambda *_, **__: None  # the test cases are run below
    main.__dict__["__check__"] = _counting(request, outcome)

    def attempt(code: Any, *arguments: Any, counts: bool = True, line: str = "") -> bool:
        """Whether to go on."""
        outcome["total"] += counts
        try:
            code(*arguments)
            outcome["passed"] += counts
        except SystemExit as stop:
            if stop.code:
                raise AssertionError("the tests failed") from None
            return False
        except Exception as error:
            if not counts and not isinstance(error, AssertionError):
                raise
            outcome["error"] = outcome["error"] or said(error) + line
            return request["all"]
        return True

    body = _Counted().visit(tree).body
    later = sum(isinstance(node, ast.Assert) for node in body)
    for node in body:
        code = compile(ast.Module([node], []), "tests.py", "exec", flags, dont_inherit=True)
        if not attempt(
            exec, code, vars(main), counts=isinstance(node, ast.Assert), line=f" (line {node.lineno})"
        ):
            break
    outcome["total"] = max(outcome["total"], later)
    if outcome["error"] and not request["all"]:
        outcome["total"] = max(1, outcome["total"])
        return
    for function, *arguments in _uncalled(main, called, request):
        attempt(function, *arguments)
    for case in [v for v in vars(main).values() if _is_case(v)]:
        _test_case(case, outcome)
    if not outcome["total"]:  # loops, or a function that asserts and is called
        outcome["total"], outcome["passed"] = 1, int(not outcome["error"])


def _uncalled(main: types.ModuleType, called: set[str], request: dict[str, Any]) -> list[tuple[Any, ...]]:
    """HumanEval's check(candidate) and functions test…(), where the tests define them and do not call them."""
    found: list[tuple[Any, ...]] = []
    for name, value in vars(main).items():
        if (
            isinstance(value, types.FunctionType)
            and value.__code__.co_filename == "tests.py"
            and name not in called
        ):
            takes = value.__code__.co_argcount - len(value.__defaults__ or ())
            if name == "check" and takes == 1:
                found.append((value, _candidate(main, request["entry"])))
            elif (name == "check" or name.startswith("test")) and takes == 0:
                found.append((value,))
    return found


def _candidate(main: types.ModuleType, entry: str | None) -> Any:
    if entry in vars(main):
        return vars(main)[str(entry)]
    if entry and "Solution" in vars(main):
        return getattr(vars(main)["Solution"](), entry)
    raise NameError(f"the program does not define {entry or 'a function'}")


def _is_case(value: Any) -> bool:
    unittest = sys.modules.get("unittest")
    return isinstance(value, type) and unittest is not None and issubclass(value, unittest.TestCase)


def _test_case(case: Any, outcome: dict[str, Any]) -> None:
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    failed = [*result.failures, *result.errors]
    outcome["total"] += result.testsRun - len(result.skipped)
    outcome["passed"] += result.testsRun - len(result.skipped) - len(failed) - len(result.unexpectedSuccesses)
    if failed or result.unexpectedSuccesses:
        last = failed[0][1].strip().rpartition("\n")[2] if failed else "a test passes that should not"
        outcome["error"] = outcome["error"] or last[:300]


def _pytest(
    main: types.ModuleType, tree: ast.Module, request: dict[str, Any], outcome: dict[str, Any]
) -> None:
    """Run the tests as a file of pytest's."""
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

    for name, value in {**vars(main), "__check__": _counting(request, outcome)}.items():
        if not hasattr(builtins, name):  # the tests may use names that they do not import
            setattr(builtins, name, value)
    with open("test_solution.py", "w") as file:
        file.write(ast.unparse(_Counted().visit(tree)))
    status = pytest.main(["-q", "-p", "no:cacheprovider", "test_solution.py"], plugins=[Count()])
    outcome["passed"], outcome["total"] = counts["passed"], max(1, sum(counts.values()))
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        outcome["fault"] = "pytest collects no test"
    elif status != 0 and not outcome["error"]:
        outcome["error"] = f"pytest ended with {status!r}"
