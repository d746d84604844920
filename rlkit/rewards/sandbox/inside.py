"""What runs inside the sandbox: a script, a program whose functions are called, or the tests that call them.

Standard library only. Program and tests are two processes in two sandboxes. Between them a socket carries calls
of functions by name in one direction and plain values in the other: the program's process can neither read the
tests nor make theirs do anything, and no object of the program is ever asked whether it is equal, smaller or inside.
Tests that need such objects run in the program's process instead (`together`); nothing they say can be trusted.
"""

from __future__ import annotations
import __future__

import _sitebuiltins
import ast
import atexit
import builtins
import collections
import contextlib
import decimal
import fractions
import importlib
import importlib.util
import io
import itertools
import json
import os
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

COMMON = tuple(
    "bisect collections copy datetime decimal fractions functools heapq itertools math operator random re "  # noqa: SIM905
    "statistics string time typing".split()
)
for _name in COMMON:  # what programs use most is imported once, before they are forked
    importlib.import_module(_name)

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


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


def _module(name: str) -> types.ModuleType:
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


def _run(code: Any, name: str, module: types.ModuleType) -> None:
    exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)


def script(program: str) -> NoReturn:
    """Run a program as `python main.py` would, and end the process with its exit status."""
    module = _module("__main__")
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


# --- Plain values over a socket -----------------------------------------------------------------------

_LONGEST = 64 << 20  # bytes of one message
_MANY = 100_000  # items that are taken from an iterator, hexadecimal digits of a fraction
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
_MUTABLE = ("list", "dict", "set", "deque", "object")
Nodes = list[list[Any]]


class Lost(Exception):
    """The other process ended, or what it sends is no message."""


class Opaque:
    """A value of the program without a plain form: equal to nothing, neither true nor false."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"a {self.kind} is no plain value")

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class Plain:
    """Plain values as a list of nodes, without recursion: a long linked list does not exhaust the stack.

    Numbers, strings and containers arrive as exact built-in types, whatever subclass they were.

    Args:
        shared: classes that both sides have from the same prefix; of their instances the attributes are sent.
        other: the node of a value without a plain form, or an exception.
        resolve: the value of such a node.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        other: Callable[[Any], list[Any]],
        resolve: Callable[[list[Any]], Any],
    ) -> None:
        self.shared, self.other, self.resolve = shared, other, resolve

    def encode(self, value: Any, passed: Iterable[Any] = ()) -> tuple[Nodes, list[Any]]:
        """The nodes, and the mutable objects among them in order. Those of `passed` are sent with their number."""
        numbers = {id(item): number for number, item in enumerate(passed)}
        nodes, objects, places = [], [value], {}

        def place(item: Any) -> int:
            if not isinstance(item, tuple | frozenset):  # which so always stand behind what they are in
                if id(item) in places:
                    return places[id(item)]
                places[id(item)] = len(objects)
            if len(objects) > _LONGEST // 8:
                raise MemoryError("a value is too big to be passed on")
            objects.append(item)
            return len(objects) - 1

        places[id(value)] = 0
        while len(nodes) < len(objects):
            item = objects[len(nodes)]
            node = self._node(item, place)
            nodes.append([*node, numbers[id(item)]] if id(item) in numbers else node)
        return nodes, [item for node, item in zip(nodes, objects, strict=True) if node[0] in _MUTABLE]

    def _node(self, item: Any, place: Callable[[Any], int]) -> list[Any]:
        cls = type(item)
        if item is None or cls in (bool, float, str):
            return ["v", item]
        if isinstance(item, int):
            return ["i", format(int.__index__(item), "x")]
        if isinstance(item, float):
            return ["v", float.__float__(item)]
        if isinstance(item, str):
            return ["v", str.__str__(item)]
        if isinstance(item, bytes | bytearray):
            return ["bytes", bytes(item).decode("latin-1")]
        if isinstance(item, complex):
            return ["complex", [item.real, item.imag]]
        if isinstance(item, range):
            return ["range", [item.start, item.stop, item.step]]
        if isinstance(item, decimal.Decimal):
            return ["Decimal", str(item)]
        if isinstance(item, fractions.Fraction):
            return ["Fraction", [format(item.numerator, "x"), format(item.denominator, "x")]]
        for name, kind in _SEQUENCES.items():
            if isinstance(item, kind):
                return [name, [place(x) for x in kind.__iter__(item)]]
        if isinstance(item, dict):
            return ["dict", [[place(k), place(dict.__getitem__(item, k))] for k in dict.__iter__(item)]]
        if self.shared.get(cls.__name__) is cls and hasattr(item, "__dict__"):
            return ["object", [[str(k), place(v)] for k, v in vars(item).items()], cls.__name__]
        if cls.__module__ == "numpy" and hasattr(item, "tolist"):
            return self._node(item.tolist(), place)
        node = self.other(item)
        return ["iterator", [place(x) for x in node[1]]] if node[0] == "iterator" else node

    def decode(self, nodes: Nodes, passed: list[Any] | None = None) -> tuple[Any, list[Any]]:
        """The value, and every mutable object. Objects of `passed` are not made anew but changed in place."""
        items: dict[int, list[Any]] = {i: [] for i, node in enumerate(nodes) if node[0] == "iterator"}
        built = [iter(items[i]) if i in items else self._shell(n, passed or []) for i, n in enumerate(nodes)]
        for position in range(len(nodes) - 1, -1, -1):  # tuples innermost first
            if nodes[position][0] in ("tuple", "frozenset"):
                built[position] = _SEQUENCES[nodes[position][0]](built[i] for i in nodes[position][1])
        for node, value in zip(nodes, built, strict=True):  # mutable containers last, so that cycles close
            if node[0] in ("list", "deque"):
                value.extend(built[i] for i in node[1])
            elif node[0] == "object":
                vars(value).update((name, built[i]) for name, i in node[1])
        for position, found in items.items():
            found.extend(built[i] for i in nodes[position][1])
        for node, value in zip(nodes, built, strict=True):
            if node[0] == "set":
                value.update(built[i] for i in node[1])
            elif node[0] == "dict":
                value.update((built[k], built[v]) for k, v in node[1])
        return built[0], [value for node, value in zip(nodes, built, strict=True) if node[0] in _MUTABLE]

    def _shell(self, node: list[Any], passed: list[Any]) -> Any:
        kind, value = node[0], node[1]
        if kind in _MUTABLE:
            return self._mutable(node, passed)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]()
        if kind == "v":
            return value
        if kind == "i":
            return int(value, 16)
        if kind == "bytes":
            return value.encode("latin-1")
        if kind == "complex":
            return complex(*value)
        if kind == "range":
            return range(*value)
        if kind == "Decimal":
            return decimal.Decimal(value)
        if kind == "Fraction":
            if len(value[0]) + len(value[1]) > _MANY:
                raise ValueError("a fraction is too long")
            return fractions.Fraction(int(value[0], 16), int(value[1], 16))
        return self.resolve(node)

    def _mutable(self, node: list[Any], passed: list[Any]) -> Any:
        """An empty object for a node to fill: a new one or, with a number, the one that was passed."""
        kind = self.shared[node[2]] if node[0] == "object" else {**_SEQUENCES, "dict": dict}[node[0]]
        number = node[3 if node[0] == "object" else 2 :]
        if not number:
            return kind.__new__(kind)
        old = passed[number[0]]
        if not isinstance(old, kind):
            raise TypeError(f"a {type(old).__name__} was passed, and a {node[0]} comes back")
        (vars(old) if node[0] == "object" else old).clear()
        return old


def send(file: Any, *message: Any) -> None:
    """Write a message: its length, then JSON."""
    data = json.dumps(message).encode()
    if len(data) > _LONGEST:
        raise MemoryError("a value is too big to be passed on")
    file.write(b"%d\n" % len(data) + data)
    file.flush()


def receive(file: Any) -> list[Any]:
    """The next message. Raises Lost when there is none."""
    try:
        line = file.readline(20)
        data = file.read(int(line)) if line.strip().isdigit() and int(line) <= _LONGEST else b""
        if not data or len(data) < int(line):
            raise Lost("the program ended")
        message = json.loads(data)
    except (ConnectionError, ValueError, RecursionError):
        raise Lost("the program sends no message") from None
    if not isinstance(message, list) or not message:
        raise Lost("the program sends no message")
    return message


# --- The program's functions --------------------------------------------------------------------------


def functions(sock: socket.socket, program: str, prefix: str) -> NoReturn:
    """Load a program and serve calls of its functions until the other side ends."""
    file = sock.makefile("rwb")
    try:
        module, names, before = _solution(program, prefix)
    except BaseException as error:
        send(file, "failed", _said(error))
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


def _solution(program: str, prefix: str) -> tuple[types.ModuleType, list[str], dict[str, Any]]:
    """The program as the module `solution`, the names that it defines, and what was there before it."""
    module = _module("solution")
    module.__dict__.update(PRELUDE)
    if prefix:
        _run(prefix, "prefix.py", module)
    before = dict(module.__dict__)
    _load(program, module)
    bound = set(compile(program, "solution.py", "exec", dont_inherit=True).co_names)
    names = [n for n, v in vars(module).items() if n in bound or before.get(n, module) is not v]
    return module, [n for n in names if not n.startswith("__")], before


def _load(program: str, module: types.ModuleType) -> None:
    """Run a program for its definitions. A statement that fails because it wants input, of which tests of functions
    have none, is left out: demonstrations are often written below a function."""
    flags = compile(program, "solution.py", "exec", dont_inherit=True).co_flags & _FUTURE
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
        return ["iterator", list(itertools.islice(item, _MANY))]
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


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


# --- The tests ----------------------------------------------------------------------------------------


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
        outcome["error"] = outcome["error"] or (str(error) if isinstance(error, Lost) else _said(error))
    if not outcome["checks"]:
        outcome["error"] = outcome["error"] or "no assertion was reached"
    verdict.sendall(json.dumps({**outcome, "nonce": request["nonce"]}).encode() + b"\n")


def _examine(request: dict[str, Any], outcome: dict[str, Any], sock: socket.socket | None) -> None:
    tree = ast.parse(request["tests"])
    main = _module("__main__")
    try:
        outcome["lacks"] = next(
            (name for name in _imported(tree) if importlib.util.find_spec(name) is None), None
        )
        _run(request["prefix"], "prefix.py", main)
    except Exception as error:
        outcome["fault"] = f"the prefix fails: {_said(error)}"
    if outcome["lacks"] or "fault" in outcome:
        return
    program = None
    if sock:
        shared = {n: v for n, v in vars(main).items() if isinstance(v, type) and v.__module__ == "__main__"}
        program = Program(sock, shared)
        functions = program.names()
        found = {n: functions[n] or program.call(n) for n in functions if n in _used(tree, request)}
    else:
        module, names, before = _solution(request["program"], request["prefix"])
        main.__dict__.update(
            (n, v) for n, v in before.items() if n in main.__dict__ and not n.startswith("__")
        )
        found = {n: module.__dict__[n] for n in names}
    solution = types.ModuleType("solution")
    sys.modules["solution"] = solution
    bound = _bound(main, found, tree, request)
    solution.__dict__.update({n: v for n, v in found.items() if n in _explicit(tree)} | bound)
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


def _used(tree: ast.Module, request: dict[str, Any]) -> set[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return names | _explicit(tree) | {"Solution", request["entry"]}


def _bound(
    main: types.ModuleType, found: dict[str, Any], tree: ast.Module, request: dict[str, Any]
) -> dict[str, Any]:
    """The program's names in the tests' namespace, and those of the standard library that the tests take for granted.

    The prefix's names are the prefix's, unless it only announces what the program is to define. A name that hides
    one of Python's counts only if it is what is tested: the tests' own `abs`, `sorted` and `Counter` are the real ones.
    """
    own = set(vars(main)) - {n.name for n in ast.parse(request["prefix"]).body if announced(n)}
    tested = ("Solution", request["entry"] if request["announced"] else None)
    free = [n for n in found if n in _used(tree, request) and n not in own]
    mine = [n for n in free if not hasattr(builtins, n) and n not in PRELUDE]
    mine = (mine or free) + [n for n in tested if n in found]
    modules = {n for n in _used(tree, request) if n in ("np", *sys.stdlib_module_names)} - own - set(mine)
    taken: dict[str, Any] = {n: PRELUDE[n] for n in _used(tree, request) if n in PRELUDE and n not in own}
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
    flags = compile(tree, "tests.py", "exec", dont_inherit=True).co_flags & _FUTURE
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    outcome["total"] = 0
    if any(name == "unittest" for name in _imported(tree)):
        importlib.import_module("unittest").main = lambda *_, **__: None  # the test cases are run below
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
            outcome["error"] = outcome["error"] or _said(error) + line
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
