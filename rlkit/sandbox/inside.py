"""What runs inside the sandbox: a script, or a program whose functions are called by name. Standard library only."""

from __future__ import annotations

import ast
import atexit
import builtins
import codeop
import contextlib
import gc
import importlib
import io
import os
import site
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from .plain import Channel, Lost, Plain

COMMON = tuple(
    "bisect collections copy datetime decimal fractions functools heapq itertools math operator random re "  # noqa: SIM905
    "statistics string time typing".split()
)
for _name in COMMON:  # what programs use most is imported once, before they are forked
    importlib.import_module(_name)


class _NoInput(io.RawIOBase):
    """Standard input where there is none."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise EOFError("there is no input")


def new_module(name: str, source: io.RawIOBase | None = None) -> types.ModuleType:
    """A module for the program, with standard streams of its own and whole numbers of any length."""
    sys.path.insert(0, os.getcwd())
    sys.argv = ["main.py"]
    sys.set_int_max_str_digits(0)
    buffer = io.BufferedReader(source or _NoInput())
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(buffer, "utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", -1, "utf-8", "strict", "\n", False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", -1, "utf-8", "backslashreplace", "\n", False)  # type: ignore[misc]  # noqa: SIM115
    for stream, kind, mode in ((sys.stdin, "in", "r"), (sys.stdout, "out", "w"), (sys.stderr, "err", "w")):
        stream.buffer.raw.name, stream.mode = f"<std{kind}>", mode  # type: ignore[misc]
    site.setquit()  # exit and quit
    module = types.ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__="main.py")
    sys.modules[name] = module
    return module


def run_code(code: str, name: str, space: dict[str, Any]) -> None:
    exec(compile(code, name, "exec", dont_inherit=True), space)


def script(program: str) -> NoReturn:
    """Run a program as `python main.py` would, and end the process with its exit status."""
    module = new_module("__main__", io.FileIO(0, closefd=False))
    code: Any = 0
    try:
        run_code(program, "main.py", module.__dict__)
    except SystemExit as stop:
        code = stop.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    endings: list[Callable[[], Any]] = [  # as the interpreter ends
        threading._shutdown,  # type: ignore[attr-defined]  # waits for threads
        atexit._run_exitfuncs,
        lambda: getattr(sys.stdout, "closed", sys.stdout is None) or sys.stdout.flush(),
        lambda: sys.__dict__.update(stdin=sys.__stdin__, stdout=sys.__stdout__, stderr=sys.__stderr__),
        lambda: module.__dict__.update(dict.fromkeys(module.__dict__.keys() - {"__builtins__"})),
        gc.collect,  # closes files, calls __del__
        lambda: sys.stdout.closed or sys.stdout.flush(),
        lambda: sys.stderr.closed or sys.stderr.flush(),
    ]
    for end in endings:
        try:
            end()
        except BaseException:
            code = code or 120
    os._exit(code & 0xFF)


PRELUDE: dict[str, Any] = {name: sys.modules[name] for name in (*COMMON, "sys")}
"""What LeetCode imports for its programs, which therefore do not: modules, `List`, `deque` …"""
for _module in map(sys.modules.__getitem__, "typing collections itertools functools heapq bisect".split()):  # noqa: SIM905
    PRELUDE |= {n: v for n, v in vars(_module).items() if not n.startswith("_") and callable(v)}
    PRELUDE |= {n: getattr(_module, n) for n in getattr(_module, "__all__", ())}
for _name in PRELUDE.keys() & vars(builtins).keys():
    del PRELUDE[_name]


def solution_module(program: str, prefix: str) -> tuple[types.ModuleType, list[str], dict[str, Any]]:
    """The program as the module `solution`, the names that it defines, and what was there before it."""
    module = new_module("solution")
    module.__dict__.update(PRELUDE)
    run_code(prefix, "prefix.py", module.__dict__)
    before = dict(module.__dict__)
    _load(program, module)
    own = [n for n, v in vars(module).items() if before.get(n, module) is not v and n[:2] != "__"]
    return module, own, before


def _load(program: str, module: types.ModuleType) -> None:
    """Run a program for its definitions. A statement that fails for want of input, of which tests of functions have
    none, is left out, as are later ones that fail: demonstrations are often written below a function."""
    compiled = codeop.Compile()  # knows the program's __future__ imports from the first time on
    body, wants_input = ast.parse(program, "solution.py").body, False
    while body:
        try:
            return exec(compiled(ast.Module(body, []), "solution.py", "exec"), module.__dict__)  # type: ignore[arg-type]
        except BaseException as error:
            trace = error.__traceback__ and error.__traceback__.tb_next
            wants_input = wants_input or isinstance(error.__context__ or error, EOFError)
            if trace is None or not wants_input:
                raise
            body = [statement for statement in body if statement.lineno > trace.tb_lineno]


def functions(channel: Channel, program: str, prefix: str) -> NoReturn:
    """Load a program and serve calls of its functions until the other side ends."""
    try:
        module, names, before = solution_module(program, prefix)
    except BaseException as error:
        channel.send("failed", said(error))
        os._exit(1)
    space = module.__dict__
    prefixed = [n for n, v in before.items() if isinstance(v, type) and v.__module__ == "solution"]
    plain = Plain({n: space[n] for n in prefixed if isinstance(space.get(n), type)}, opaque=True)
    solutions: dict[Any, Any] = {}
    channel.send("loaded", [[name, callable(space[name])] for name in names])
    with contextlib.suppress(Lost):
        while True:
            [nodes] = channel.receive()
            (name, number, arguments, keywords), passed = plain.decode(nodes)
            try:
                if number is None and (name in names or "Solution" not in names):
                    found = space[name]
                else:  # a method of the instance `number` of Solution, or of a new one
                    if number is None or number not in solutions:
                        solutions[number] = space["Solution"]()
                    found = getattr(solutions[number], name)
                value = found(*arguments, **keywords) if callable(found) else found
                channel.send("value", plain.encode([value, passed], passed)[0])
            except BaseException as error:
                # as the nearest built-in class, its own class's name, and its arguments
                base = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
                args = [a if isinstance(a, str | float | bool) or type(a) is int else str(a) for a in error.args]
                channel.send("raise", base, type(error).__name__, args)
    os._exit(0)


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
