"""What scorers and environments ask the sandbox for: run a script, call functions, run test code.

Jails are started at the first use in a process and kept; one that breaks down is replaced.
"""

import ast
import builtins
import collections
import contextlib
import decimal
import fractions
import io
import json
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from rlkit.rewards.grading import Grading, Ungradable
from rlkit.rewards.sandbox.inside import PRELUDE
from rlkit.rewards.sandbox.jail import Jail, Outcome
from rlkit.rewards.sandbox.levels import PROMISED, Level, choose
from rlkit.rewards.sandbox.plain import Opaque, Plain, receive, send
from rlkit.rewards.sandbox.testing import announced, is_check

T = TypeVar("T")

_jails: dict[tuple[Any, ...], Jail] = {}
_choose = lru_cache(choose)


def level(grading: Grading) -> Level:
    """The isolation in use. Raises UserError where no safe one works and none was waived."""
    return _choose(grading.settings.sandbox)


def _jail(grading: Grading, purpose: str, modules: tuple[str, ...] = ()) -> Jail:
    key = (os.getpid(), purpose, grading.settings.sandbox, modules)
    if key not in _jails:
        with grading.loading():
            _jails[key] = Jail(level(grading), modules=modules)
    return _jails[key]


def close() -> None:
    """End this process's jails."""
    while _jails:
        _jails.popitem()[1].close()


def _sturdy(task: Callable[[], T]) -> T:
    """The task's result; once more with new jails if the sandbox broke down, and Ungradable if it does so again."""
    try:
        return task()
    except RuntimeError:
        close()
    try:
        return task()
    except RuntimeError as error:
        raise Ungradable(str(error)) from None


def run_script(grading: Grading, program: str, stdin: str | bytes = b"", seconds: float = 10.0) -> Outcome:
    """Run a program as `python main.py` would, with the sandbox of `grading`.

    Raises:
        Ungradable: the sandbox cannot be started.
        UserError: no safe isolation works here.
    """
    data = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
    return _sturdy(lambda: _jail(grading, "program").run(program, data, seconds))


def missing_package(grading: Grading, error: str) -> str | None:
    """The package that a program could not import and that the sandbox should have, from the program's error."""
    found = re.search(r"No module named '(\w+)", error)
    if found is None or found[1] not in PROMISED:
        return None
    return None if run_script(grading, f"import {found[1]}", seconds=30.0).ok else found[1]


# --- Calls of functions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """The outcome of one call: its value, or why there is none."""

    value: Any = None
    error: str | None = None


def call_function(
    grading: Grading,
    program: str,
    name: str,
    calls: Sequence[list[Any]],
    seconds: float = 10.0,
    enough: Callable[[Call, int], bool] | None = None,
    each: float = float("inf"),
    modules: Sequence[str] = (),
) -> list[Call]:
    """Load a program and call its function (or `Solution` method) with each list of arguments.

    Values arrive as plain ones of built-in types, whatever class they had; others as objects equal to nothing.

    Args:
        seconds: for loading the program and all calls.
        enough: `enough(call, index)` may end the calls early.
        each: seconds for each call.
        modules: installed packages that the program uses, e.g. `("reasoning_gym",)`. This process keeps a jail
            that has imported them (seconds, once) and forks it for each program (milliseconds), so nothing that
            one program does is seen by the next. There is no network and no variable of our environment.

    A call that did not happen for lack of time has the error "time"; a program that ended itself has "exit".
    With `modules`, a library that evaluates untrusted text does so in the process that gives the value: the text
    can reach nothing else, but it can forge that value, so check first that it is made of what an answer may hold.
    """
    return _sturdy(
        lambda: _call_function(grading, program, name, calls, seconds, enough, each, tuple(modules))
    )


def _call_function(
    grading: Grading,
    program: str,
    name: str,
    calls: Sequence[list[Any]],
    seconds: float,
    enough: Callable[[Call, int], bool] | None,
    each: float,
    modules: tuple[str, ...],
) -> list[Call]:
    jail = _jail(grading, "program", modules)
    end = time.monotonic() + seconds
    ours, theirs = socket.socketpair()
    with _null() as null, theirs:
        jail.start("functions", program, [null, null, null, theirs.fileno()], seconds, prefix="")
    found: list[Call] = []
    with ours:
        stream = _Timed(ours, min(end, time.monotonic() + each))
        file = io.BufferedRWPair(stream, stream)
        try:
            kind, content = receive(file)
            if kind != "loaded":
                found.append(Call(error=str(content)[:300]))
                calls = ()
            for index, arguments in enumerate(calls):
                stream.end = min(end, time.monotonic() + each)
                found.append(_one(file, name, arguments))
                if enough and enough(found[-1], index):
                    break
        except TimeoutError:
            found.append(Call(error="time"))
        except Exception as error:  # of any kind: the program may send anything
            found.append(Call(error=f"exit: {error}"[:300]))
    _, reason = jail.finish()
    if reason == "memory" and found and found[-1].error:
        found[-1] = Call(error="memory")
    return found


class _Timed(io.RawIOBase):
    """A socket on which nothing lasts beyond `end`, however little the other side sends or takes at a time."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self.sock, self.end = sock, end

    def readable(self) -> bool:
        return True

    writable = readable

    def readinto(self, buffer: Any) -> int:
        return self._in_time().recv_into(buffer)

    def write(self, data: Any) -> int:
        return self._in_time().send(data)

    def _in_time(self) -> socket.socket:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)
        return self.sock


def _one(file: Any, name: str, arguments: list[Any]) -> Call:
    plain = Plain({}, _no_plain_form, lambda node: Opaque(str(node[1])))
    nodes, passed = plain.encode([name, None, arguments, {}])
    send(file, "call", nodes)
    kind, *content = receive(file)
    if kind == "raise":
        return Call(error=f"{content[1]}: {', '.join(map(str, content[2]))}"[:300])
    return Call(plain.decode(content[0], passed)[0][0])


def _no_plain_form(item: Any) -> Any:
    raise TypeError(f"a {type(item).__name__} is no plain value")


@contextlib.contextmanager
def _null() -> Iterator[int]:
    number = os.open(os.devnull, os.O_RDWR)
    try:
        yield number
    finally:
        os.close(number)


# --- Test code ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """The outcome of test code.

    `error` is None if all tests passed, "time" or "memory". `trusted` is False where the tests ran in the program's
    process, which could have changed the outcome. `fault` says why the tests say nothing about any program.
    """

    passed: int = 0
    total: int = 1
    error: str | None = None
    trusted: bool = True
    fault: str | None = None


def run_tests(
    grading: Grading,
    program: str,
    tests: str,
    prefix: str = "",
    entry: str | None = None,
    pytest: bool = False,
    seconds: tuple[float, float] = (10.0, 60.0),
) -> Tested:
    """Run test code against a program, each in a sandbox of its own, unless the tests need the program's own objects.

    Args:
        prefix: code that both sides run first; the tests' side keeps what it defines.
        entry: the function under test; of `Solution`, where the program defines it there. By default the last
            function of the program that no other one of it uses.
        pytest: whether pytest runs the tests.
        seconds: most from one check to the next, and in all.
    """
    tree, before = ast.parse(tests), ast.parse(prefix)
    if not _has_check(tree, pytest):
        return Tested(fault="the tests check nothing")
    uses_pytest = pytest or (_imports(tree, "pytest") and any(_is_test(node) for node in tree.body))
    request = {
        "tests": tests,
        "prefix": prefix,
        "entry": entry.rpartition(".")[2] if entry else _last_function(program),
        "announced": bool(entry),
        "pytest": uses_pytest,
        "all": grading.settings.partial_credit,
        "each": seconds[0],
    }
    apart = not needs_program(tree, before)
    outcome = _sturdy(lambda: (_apart if apart else _together)(grading, program, request, seconds[1]))
    if outcome.get("insufficient"):  # what the tests pass is no plain value
        apart = False
        outcome = _sturdy(lambda: _together(grading, program, request, seconds[1]))
    fault = outcome.get("fault")
    if lacks := outcome.get("lacks"):
        fault = f"the sandbox has no {lacks}, which the tests run in: install it, and bubblewrap"
    return Tested(outcome["passed"], outcome["total"], outcome["error"], apart, fault)


def names_tested(tests: str, prefix: str, entry: str | None) -> set[str]:
    """The names that test code takes from a program."""
    names = _free_names(list(ast.walk(ast.parse(tests))), list(ast.walk(ast.parse(prefix))))
    used = {n.id for n in ast.walk(ast.parse(tests)) if isinstance(n, ast.Name)}
    return {n for n in names if n != "Solution" or n in used} | (
        {entry.rpartition(".")[2]} if entry else set()
    )


def _apart(grading: Grading, program: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The program in one jail and the tests in another; the verdict comes from the tests' process alone."""
    jails = _jail(grading, "program"), _jail(grading, "tests")
    left, right = socket.socketpair()
    verdict, verdict_end = socket.socketpair()
    nonce = secrets.token_hex()
    with _null() as null, left, right, verdict_end:
        ends = [null, null, null, left.fileno()]
        jails[0].start("functions", program, ends, seconds, prefix=request["prefix"])
        ends = [null, null, null, right.fileno(), verdict_end.fileno()]
        jails[1].start("tests", "", ends, seconds, nonce=nonce, **request)
    return _verdict(verdict, nonce, jails, seconds)


def _together(grading: Grading, program: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Program and tests in one process."""
    jail = _jail(grading, "program")
    verdict, verdict_end = socket.socketpair()
    nonce = secrets.token_hex()
    with _null() as null, verdict_end:
        ends = [null, null, null, verdict_end.fileno()]
        jail.start("together", program, ends, seconds, nonce=nonce, **request)
    return _verdict(verdict, nonce, (jail,), seconds)


def _verdict(verdict: socket.socket, nonce: str, jails: tuple[Jail, ...], seconds: float) -> dict[str, Any]:
    line, late = b"", False
    with verdict:
        try:
            line = io.BufferedReader(_Timed(verdict, time.monotonic() + seconds)).readline(1 << 20)
        except TimeoutError:
            late = True
    ended = [jail.finish() for jail in jails]
    late = late or abs(ended[-1][0]) in (signal.SIGALRM, 128 + signal.SIGALRM)
    outcome: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        outcome = json.loads(line)
    if outcome.get("nonce") != nonce:
        outcome = {"passed": 0, "total": 1, "error": "time" if late else "the program ended the tests"}
    if outcome["error"] and "memory" in [reason for _, reason in ended]:
        outcome["error"] = "memory"
    return outcome


def _imports(tree: ast.Module, name: str) -> bool:
    return any(isinstance(n, ast.Import) and n.names[0].name == name for n in tree.body)


def _is_test(node: ast.stmt) -> bool:
    """Whether it is run without being called: check(candidate), a test function, a test case."""
    if isinstance(node, ast.ClassDef):
        cases = [ast.unparse(base).endswith("TestCase") for base in node.bases]
        return any(cases) or node.name.startswith("Test")
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return named and (node.name == "check" or node.name.startswith("test"))


def _has_check(tree: ast.Module, pytest: bool) -> bool:
    """Whether running the tests can reach anything that fails."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    definitions = {node.name: node for node in tree.body if isinstance(node, kinds)}
    todo: list[ast.AST] = [n for n in tree.body if _is_test(n) or not (isinstance(n, kinds) or pytest)]
    while todo:
        nodes = list(ast.walk(todo.pop()))
        if any(isinstance(node, ast.stmt) and is_check(node) for node in nodes):
            return True
        named = {node.id for node in nodes if isinstance(node, ast.Name)} & definitions.keys()
        todo += [definitions.pop(name) for name in named]
    return False


def _last_function(program: str) -> str | None:
    """The last function of a program, or method of its `Solution`, that no other one uses."""
    body = ast.parse(program).body
    functions = [n for n in body if isinstance(n, ast.FunctionDef)]
    for cls in body:
        if isinstance(cls, ast.ClassDef) and cls.name == "Solution" and not functions:
            functions = [n for n in cls.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    used = {
        name
        for function in functions
        for n in ast.walk(function)
        if (name := getattr(n, "id", None) or getattr(n, "attr", None)) and name != function.name
    }
    free = [f.name for f in functions if f.name not in used] or [f.name for f in functions]
    return free[-1] if free else None


# --- Whether tests need the program's own objects: decided by the tests, never by the program ---

_PLAIN_TYPES = (
    *(str, int, float, complex, list, dict, set, frozenset, tuple, bytes, range),
    *(collections.deque, decimal.Decimal, fractions.Fraction),
)
_PLAIN_ATTRIBUTES = {name for kind in _PLAIN_TYPES for name in dir(kind) if not name.startswith("__")}
_IN_PROCESS = frozenset(
    "redirect_stdout redirect_stderr capsys capfd StringIO stdout stdin monkeypatch patch mock MagicMock inspect "  # noqa: SIM905
    "signature next islice eval exec compile __import__ pickle subprocess asyncio tracemalloc getattr setattr vars "
    "__name__ __doc__ __dict__ __class__".split()
)
"""What tests use to look into the process that the program runs in."""
_CLASS_NAME = re.compile("[A-Z]|[A-Z][a-zA-Z0-9]*[a-z][a-zA-Z0-9]*")
_BY_CLASS = ("isinstance", "issubclass", "raises", "assertRaises", "assertRaisesRegex", "assertIsInstance")


def needs_program(tests: ast.Module, prefix: ast.Module) -> bool:
    """Whether tests use more of a program than the plain values of its functions: its classes, the functions that it
    returns, what it prints."""
    nodes = list(ast.walk(tests))
    free = _free_names(nodes, list(ast.walk(prefix)))
    parameters = {a.arg for n in nodes if isinstance(n, ast.arguments) for a in [*n.args, *n.kwonlyargs]}
    known = _PLAIN_ATTRIBUTES | {n.attr for n in ast.walk(prefix) if isinstance(n, ast.Attribute)}
    known |= {n.id for n in ast.walk(prefix) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known |= {n.name for n in ast.walk(prefix) if isinstance(n, ast.FunctionDef)}

    def is_solution(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Solution"

    def is_result(node: ast.AST) -> bool:
        """A call of the program."""
        if not isinstance(node, ast.Call) or is_solution(node):
            return False
        if isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else ""
            return is_solution(owner) or name in solutions or (name == "solution" and name not in free)
        return isinstance(node.func, ast.Name) and node.func.id in free | parameters

    def assigned(of: Callable[[ast.AST], bool]) -> set[str]:
        pairs = [(t, n.value) for n in nodes if isinstance(n, ast.Assign) for t in n.targets]
        pairs += [(n.target, n.value) for n in nodes if isinstance(n, ast.NamedExpr)]
        return {t.id for t, value in pairs if isinstance(t, ast.Name) and of(value)}

    solutions = assigned(is_solution)
    results = assigned(is_result)
    functions_only = _compared_calls(nodes, free)
    for node in nodes:
        names = {n.id for n in ast.iter_child_nodes(node) if isinstance(n, ast.Name)} & free
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            foreign = node.attr not in known and (is_result(node.value) or owner in results)
            if foreign or owner in free or node.attr in _IN_PROCESS:
                return True
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            last = called or getattr(node.func, "attr", "")
            if (
                is_result(node.func)
                or called in results - parameters
                or (last in _BY_CLASS and names - {called})
            ):
                return True
            if called in free - {"Solution"} and _CLASS_NAME.fullmatch(called) and node not in functions_only:
                return True
        elif isinstance(node, ast.ExceptHandler | ast.ClassDef | ast.withitem):
            if names:
                return True
        elif isinstance(node, ast.Await | ast.AsyncFunctionDef) or name in _IN_PROCESS - {"__name__"}:
            return True
        elif isinstance(node, ast.FunctionDef):
            decorators = [n for d in node.decorator_list for n in ast.walk(d)]
            if free & {n.id for n in decorators if isinstance(n, ast.Name)}:
                return True
    return False


def _free_names(tests: list[ast.AST], prefix: list[ast.AST]) -> set[str]:
    """The names that tests take from the program."""
    taken: set[str] = {"Solution"}
    defined = set(dir(builtins)) | set(PRELUDE) | set(sys.stdlib_module_names) | {"np"}
    test_nodes = set(tests)
    for node in [*tests, *prefix]:
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            taken |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined |= {node.name} if node in test_nodes or not announced(node) else set()
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    used = {n.id for n in tests if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return taken | (used - defined)


def _compared_calls(nodes: list[ast.AST], free: set[str]) -> set[ast.AST]:
    """Calls whose value is only asserted, or compared with something that is not the program's: of functions, even
    where they are written like classes."""
    found: set[ast.AST] = set()
    for node in nodes:
        if not isinstance(node, ast.Assert):
            continue
        test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
        sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
        names = [{n.id for n in ast.walk(side) if isinstance(n, ast.Name)} & free for side in sides]
        if sum(map(bool, names)) == 1:
            side = next(side for side, own in zip(sides, names, strict=True) if own)
            while isinstance(side, ast.Call) and isinstance(side.func, ast.Name) and len(side.args) == 1:
                if side.func.id in free:
                    break
                side = side.args[0]
            found.add(side)
    return found
