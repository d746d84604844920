"""Test code in the sandbox, standard library only. It runs in a process of its own, which calls the program's functions
by name and gets plain values; no object of the program is ever asked whether it is equal, smaller or inside. Tests
that need such objects run in the program's process instead; nothing they say can be trusted."""

from __future__ import annotations

import ast
import builtins
import codeop
import contextlib
import importlib.util
import itertools
import signal
import socket
import sys
import traceback
import types
from collections.abc import Container, Mapping
from functools import partial
from typing import Any

from . import inside, plain
from .reading import Counted, TestCode, callee


class NotLoaded(Exception):
    """A program that cannot be called."""


class _Solution:
    """An instance of the program's `Solution`, by its number."""

    def __init__(self, program: Program) -> None:
        self._call, self._number = program.call, next(program.count)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)
        return partial(self._call, method, self._number)


class Program:
    """A program in another process, at the other end of `channel`, whose functions can be called; both sides have the
    `shared` classes, by name, from the same prefix. A StopIteration is one at the lines `stops` of the tests alone.
    Raises NotLoaded where it fails to load."""

    def __init__(self, channel: plain.Channel, shared: Mapping[str, Any], stops: Container[int] = ()) -> None:
        self.plain, self._channel, self.count = plain.Plain(shared), channel, itertools.count()
        self._stops = stops
        kind, content = channel.receive()
        if kind != "loaded":
            raise NotLoaded(str(content)[:300])
        self._callable = {str(name): bool(called) for name, called in content}

    def ask(self, name: str, number: int | None, arguments: Any, keywords: Any) -> tuple[Any, list[Any]]:
        """The plain value of a call, or of a name that is no function; and what the program raised, if anything: the
        nearest built-in class, its own class's name, and the arguments. `number` is that of the instance of `Solution`
        whose method it is; None for a function, or a new instance."""
        nodes, passed = self.plain.encode([name, number, list(arguments), dict(keywords)])
        self._channel.send(nodes)
        kind, *content = self._channel.receive()
        return (None, content) if kind == "raise" else (self.plain.decode(content[0], passed)[0][0], [])

    def names(self, used: set[str]) -> dict[str, Any]:
        """A function for each of the program's functions, and the values of its other names."""
        found = {n: partial(self.call, n, None) for n in self._callable if n in used}
        values = {n: function() for n, function in found.items() if not self._callable[n]}
        return {**found, **values, **({"Solution": partial(_Solution, self)} if "Solution" in found else {})}

    def call(self, name: str, number: int | None, /, *arguments: Any, **keywords: Any) -> Any:
        value, raised = self.ask(name, number, arguments, keywords)
        if raised:
            raise self._exception(*raised)
        return value

    def _exception(self, base: str, name: str, arguments: list[Any]) -> Exception:
        """The program's exception as the nearest built-in one: never one that ends this process, or a loop of the
        tests, as a StopIteration does that they do not expect."""
        cls = self.plain.shared.get(name) or getattr(builtins, str(base), None)
        at = (line for frame, line in traceback.walk_stack(None) if frame.f_code.co_filename == "tests.py")
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            cls = Exception
        if issubclass(cls, StopIteration) and next(at, 0) not in self._stops:
            cls = Exception
        if name != cls.__name__:
            cls = type(str(name), (cls,), {})
        with contextlib.suppress(Exception):
            return cls(*arguments)
        return Exception(name, *arguments)


def run(verdict: plain.Channel, job: Mapping[str, Any], sock: socket.socket | None = None) -> None:
    """Run test code and send the job's nonce and the outcome, as programs.Tested has it. The job is that of
    programs._tested; its program is run in this process unless `sock` leads to the one that it runs in."""
    tests, fault = _Run(job), None
    try:
        fault = tests.fault()
        if fault is None:
            tests.load(sock)
            if tests.statements():
                tests.definitions()
    except BaseException as error:
        tests.failed(str(error) if isinstance(error, NotLoaded | plain.Lost) else inside.said(error))
    if not tests.checks:
        tests.failed("no assertion was reached")
    if not tests.total:  # loops, or a function that asserts and is called
        tests.passed = int(not tests.error)
    outcome = {"passed": tests.passed, "total": max(1, tests.total), "error": tests.error, "fault": fault}
    insufficient = bool(tests.program and tests.program.plain.insufficient)
    verdict.send(job["nonce"], {**outcome, "insufficient": insufficient})


class _Run:
    """A run of test code, and what passed so far."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job, self.passed, self.total, self.checks = job, 0, 0, 0
        self.error: str | None = None
        self.program: Program | None = None
        self.variables: set[str] = set()  # names of the program that are read again before each statement
        self.code = TestCode(job["tests"], job["prefix"], job["entry"], job["pytest"])
        self.space = vars(inside.new_module("__main__"))
        self.check(0)

    def failed(self, why: str) -> None:
        self.error = self.error or why[:300]

    def check(self, counts: int = 1) -> None:
        self.checks += counts
        signal.setitimer(signal.ITIMER_REAL, self.job["each"])

    def fault(self) -> str | None:
        """Run the prefix: why the tests say nothing about any program, if so."""
        for name in self.code.imported:
            if importlib.util.find_spec(name) is None:
                return f"the sandbox has no {name}, which they need: install it, and bubblewrap"
        try:
            inside.run_code(self.job["prefix"], "prefix.py", self.space)
        except Exception as error:
            return f"the prefix fails: {inside.said(error)}"

    def load(self, sock: socket.socket | None) -> None:
        """Bind the program's names, and those of the standard library that the tests take for granted.

        The prefix's names are the prefix's, unless it only announces what the program is to define. A name that hides
        one of Python's counts only if it is what is tested: the tests' own `abs` and `Counter` are the real ones, also
        where check(candidate) is given a function of that name."""
        if sock:
            classes = {n: v for n, v in self.space.items() if isinstance(v, type)}
            shared = {n: v for n, v in classes.items() if v.__module__ == "__main__"}
            self.program = Program(plain.Channel(sock), shared, self.code.stops)
            found = self.program.names(self.code.used)
        else:
            module, own, before = inside.solution_module(self.job["program"], self.job["prefix"])
            self.space.update((n, before[n]) for n in self.space.keys() & before.keys() if n[:2] != "__")
            found = {n: vars(module)[n] for n in own}
        own = self.space.keys() - self.code.announced
        free = found.keys() & self.code.used - own
        mine = {n for n in free if not hasattr(builtins, n) and n not in inside.PRELUDE}
        mine = mine or (set() if self.code.gives_candidate else free)
        mine |= found.keys() & {"Solution", self.job["named"]}
        self.found = found
        bound = {n: inside.PRELUDE[n] for n in self.code.used - own if n in inside.PRELUDE}
        for name in self.code.used & {"np", *sys.stdlib_module_names} - own - mine:
            with contextlib.suppress(ImportError):
                bound[name] = importlib.import_module("numpy" if name == "np" else name)
        bound |= {n: found[n] for n in mine}
        self.variables = {n for n in mine & self.code.free if not callable(found[n])}
        sys.modules["solution"] = solution = types.ModuleType("solution")
        vars(solution).update({n: v for n, v in found.items() if n in self.code.explicit} | bound)
        self.space.update(bound, __check__=self.check)

    def statements(self) -> bool:
        """Run the tests statement by statement; each assertion at the top is a test. Whether to go on."""
        for name in {"unittest", "pytest"} & {*self.code.imported}:  # what they would run is run below
            importlib.import_module(name).main = lambda *_, **__: 0  # type: ignore[attr-defined]
        compiled = codeop.Compile()  # knows the __future__ imports of the statements before
        body = Counted().visit(self.code.tree).body
        for node in body:
            code: Any = compiled(ast.Module([node], []), "tests.py", "exec")  # type: ignore[arg-type]
            if self.program and self.variables:
                self.space.update(self.program.names(self.variables))
            counts = isinstance(node, ast.Assert)
            if not self._attempt(partial(exec, code, self.space), counts, f" (line {node.lineno})"):
                break
        self.total = sum(isinstance(node, ast.Assert) for node in body)
        return self.job["all"] or not self.error

    def definitions(self) -> None:
        """Run what the tests define and do not call: check(candidate) and test functions, each a test, and classes."""
        called = {*map(callee, self.code.nodes)}
        for name, value in [item for item in self.space.items() if item[0] not in called]:
            if isinstance(value, type) and value.__module__ == "__main__":
                if name.startswith("Test") or hasattr(value, "assertEqual"):
                    self._run_class(value)
            elif isinstance(value, types.FunctionType) and value.__code__.co_filename == "tests.py":
                takes = value.__code__.co_argcount - len(value.__defaults__ or ())
                if name == "check" and takes == 1:
                    self._attempt(lambda check=value: check(self._candidate()))
                elif name == "check" or name.startswith("test"):
                    self._run_function(value)

    def _run_class(self, cls: Any) -> None:
        """Run the methods of a test class, of unittest's or not, that are not marked to be skipped."""
        getattr(cls, "setUpClass", getattr(cls, "setup_class", int))()
        for name in [n for n in dir(cls) if n.startswith("test")]:
            if any(hasattr(item, "__unittest_skip__") for item in (cls, getattr(cls, name))):
                continue
            if hasattr(cls, "assertEqual"):
                self._attempt(cls(name).debug)
            else:
                test = cls()
                getattr(test, "setup_method", int)()
                self._run_function(getattr(test, name))

    def _run_function(self, function: Any) -> None:
        """Call a test function, with each row of its `pytest.mark.parametrize`."""
        rows: list[dict[str, Any]] = [{}]
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names, values = mark.args[:2]
                names = names.replace(",", " ").split() if isinstance(names, str) else names
                given = [dict(zip(names, v if len(names) > 1 else [v], strict=True)) for v in values]
                rows = [row | more for row in rows for more in given]
        for row in rows:
            self._attempt(partial(function, **row))

    def _attempt(self, code: Any, counts: bool = True, line: str = "") -> bool:
        """Run one test or, where it does not count, a statement between them: whether to go on."""
        self.total += counts
        try:
            code()
        except SystemExit as stop:
            frames = traceback.extract_tb(stop.__traceback__)
            if stop.code or "solution.py" in [frame.filename for frame in frames]:
                self.failed("the tests were ended")
            return False
        except Exception as error:
            self.failed(inside.said(error) + line)
            return self.job["all"]
        self.passed += counts
        return True

    def _candidate(self) -> Any:
        """The function under test: the program's, whatever the prefix or the tests define under its name."""
        entry = self.job["entry"]
        if entry in self.found:
            return self.found[entry]
        if entry is None or "Solution" not in self.space:
            raise NameError(f"the program does not define {entry or 'a function'}")
        return getattr(self.space["Solution"](), entry)
