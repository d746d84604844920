"""Test code before it is run: what it checks, what it takes from a program, and whether it needs the program's objects.
Standard library only: the process that runs the tests reads them, too."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import sys
from collections import deque
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeGuard

from .inside import PRELUDE

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_PLAIN_TYPES = (str, int, float, complex, list, dict, set, frozenset, tuple, bytes, range, deque, Decimal, Fraction)
_PLAIN_ATTRIBUTES = {name for kind in _PLAIN_TYPES for name in dir(kind) if not name.startswith("__")}
_PLAIN_CLASSES = {kind.__name__ for kind in _PLAIN_TYPES} | {
    *("", "bool", "date", "datetime", "time", "timedelta", "builtins", "collections", "decimal", "fractions")
}
_IN_PROCESS = frozenset(
    "redirect_stdout redirect_stderr capsys capfd StringIO stdout stdin monkeypatch patch mock MagicMock inspect "  # noqa: SIM905
    "signature next islice eval exec compile __import__ pickle subprocess asyncio tracemalloc getattr setattr vars "
    "__name__ __doc__ __dict__ __class__ open tempfile tmp_path".split()
)
"""What tests use to look into the process that the program runs in, or to leave files for it."""
_CLASS_NAME = re.compile("[A-Z]|[A-Z][a-zA-Z0-9]*[a-z][a-zA-Z0-9]*")
_BY_CLASS = ("isinstance", "issubclass", "raises", "assertRaises", "assertRaisesRegex", "assertIsInstance")
_LOOPS = {"map", "filter", "iter", *dir(itertools)}  # which a StopIteration of what they call would end


class TestCode:
    """Test code as it is written, which alone decides how it is run: the program has no say in it. `prefix` is run
    before it; its functions and classes without a body only announce the program's. `entry` is the function under
    test, of `Solution` where the program defines it there. With `pytest` only what it defines is run. Raises what
    ast.parse raises where it is no Python."""

    def __init__(self, text: str, prefix: str = "", entry: str | None = None, pytest: bool = False) -> None:
        self.text, self.prefix, self.pytest = text, prefix, pytest
        self.entry = entry.rpartition(".")[2] if entry else None
        self.tree, before = ast.parse(text), ast.parse(prefix)
        self.nodes, self.before = list(ast.walk(self.tree)), list(ast.walk(before))
        froms = [n for n in self.nodes if isinstance(n, ast.ImportFrom)]
        modules = [a.name for n in self.tree.body if isinstance(n, ast.Import) for a in n.names]
        modules += [n.module or "" for n in froms if n in self.tree.body and not n.level]
        self.imported = sorted({m.partition(".")[0] for m in modules} - {"", "solution", "__future__"})
        """The modules that it needs."""
        self.announced = {n.name for n in before.body if isinstance(n, _DEFINITIONS) and _is_announced(n)}
        checks = [n.args for n in self.tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"]
        given = any(len(a.args) - len(a.defaults) == 1 for a in checks)
        self.gives_candidate = given and "check" not in map(callee, self.nodes)
        """Whether its check(candidate) is given the function under test, without a call that says which that is."""
        attributes = [n for n in self.nodes if isinstance(n, ast.Attribute)]
        self.explicit = {a.name for n in froms if n.module == "solution" for a in n.names}
        self.explicit |= {n.attr for n in attributes if _id(n.value) == "solution"}
        """The names that it imports from the program, or takes from it as attributes."""
        self.used = {*map(_id, self.nodes)} | self.explicit | {"Solution", self.entry or "Solution"}

    @cached_property
    def free(self) -> set[str]:
        """The names that it takes from the program: those that are not Python's, its own or the prefix's."""
        known = {*dir(builtins), *PRELUDE, *sys.stdlib_module_names, "np"}
        known |= {n.name for n in self.before if isinstance(n, _DEFINITIONS)} - self.announced
        known |= {n.name for n in self.nodes if isinstance(n, _DEFINITIONS)}
        aliases, loaded = set(), set()
        for node in [*self.nodes, *self.before]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {(a.asname or a.name).partition(".")[0] for a in node.names}
                (aliases if getattr(node, "module", "") == "solution" else known).update(names)
            elif isinstance(node, ast.Name):
                (loaded if isinstance(node.ctx, ast.Load) else known).add(node.id)
            elif isinstance(node, ast.arg | ast.ExceptHandler):
                known.add(node.arg if isinstance(node, ast.arg) else node.name or "")
        return (loaded & self.used) - (known - {"Solution"}) | aliases

    @cached_property
    def stops(self) -> set[int]:
        """The lines where it expects a StopIteration of the program, which can end no loop of the tests there."""
        # What names the exception, and the statements that raise it.
        parts: list[Any] = [(n.handlers, n.body) for n in self.nodes if isinstance(n, ast.Try)]
        parts += [(n.items, n.body) for n in self.nodes if isinstance(n, ast.With)]
        parts += [(n.args[:1], [n]) for n in self.nodes if isinstance(n, ast.Call)]
        lines: set[int] = set()
        for named, body in parts:
            classes = [getattr(n, "type", getattr(n, "context_expr", n)) for n in named]
            expected = {_id(n) for c in classes if c for n in ast.walk(c)}
            if "StopIteration" in expected and not _LOOPS & {_name(n) for b in body for n in ast.walk(b)}:
                lines |= {*range(body[0].lineno, body[-1].end_lineno + 1)}
        return lines

    def fault(self) -> str | None:
        """Why it says nothing about any program, if so: it can reach nothing that fails, or has a test function whose
        arguments nobody gives, such as fixtures of pytest."""
        body, called = self.tree.body, {*map(callee, self.nodes), "check"}
        tests = [n for n in body if _is_test(n) and n.name not in called]
        methods = [m for n in tests if isinstance(n, ast.ClassDef) for m in n.body if _is_test(m)]
        for node in [*tests, *methods]:
            plain = isinstance(node, _FUNCTIONS) and not node.decorator_list
            if plain and len(node.args.args) - len(node.args.defaults) > (node in methods):
                return f"nobody gives the arguments of {node.name}"
        definitions = {n.name: n for n in body if isinstance(n, _DEFINITIONS)}
        todo: list[ast.AST] = [*filter(_is_test, body)]
        todo += [] if self.pytest else [n for n in body if not isinstance(n, _DEFINITIONS)]
        while todo:
            nodes = list(ast.walk(todo.pop()))
            if any(map(_is_check, nodes)):
                return None
            todo += [definitions.pop(name) for name in {*map(_id, nodes)} & definitions.keys()]
        return "it checks nothing"

    def needs_program(self) -> bool:
        """Whether it uses more of a program than plain values of its functions: classes, functions, what it prints."""
        free, nodes = self.free, self.nodes
        parameters = {n.arg for n in nodes if isinstance(n, ast.arg)}
        fields = ("id", "attr", "name")
        known = _PLAIN_ATTRIBUTES | {getattr(n, f) for n in self.before for f in fields if hasattr(n, f)}
        pairs = [(_id(t), n.value) for n in nodes if isinstance(n, ast.Assign) for t in n.targets]
        pairs += [(n.target.id, n.value) for n in nodes if isinstance(n, ast.NamedExpr)]
        solutions = {name for name, value in pairs if name and callee(value) == "Solution"}
        solutions |= {"solution"} - free

        def is_result(node: ast.AST) -> bool:
            """A call of the program."""
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                return callee(node.func.value) == "Solution" or _id(node.func.value) in solutions
            return callee(node) in (free | parameters) - {"Solution"}

        results = {name for name, value in pairs if name and is_result(value)}
        functions = self._compared()
        for node in nodes:
            names = {_id(n) for n in ast.iter_child_nodes(node)} & free
            found: object = isinstance(node, ast.Await | ast.AsyncFunctionDef)
            if isinstance(node, ast.Name):
                found = node.id in _IN_PROCESS - {"__name__"}
            elif isinstance(node, ast.Attribute):
                foreign = node.attr not in known and (is_result(node.value) or _id(node.value) in results)
                found = foreign or names or node.attr in _IN_PROCESS
            elif isinstance(node, ast.Call):
                name = callee(node)
                called = name in free - {"Solution"} and node not in functions
                by_class = _name(node.func) in _BY_CLASS and (names - {name} or self._other_classes(node))
                is_class = called and _CLASS_NAME.fullmatch(name)
                found = is_class or by_class or is_result(node.func) or name in results - parameters
            elif isinstance(node, ast.ExceptHandler | ast.ClassDef | ast.withitem):
                found = names
            elif isinstance(node, ast.FunctionDef):
                found = free & {_id(n) for d in node.decorator_list for n in ast.walk(d)}
            if found:
                return True
        return False

    def _other_classes(self, call: ast.Call) -> set[str]:
        """The classes that a value is asked for and that plain values do not have."""
        if _name(call.func) not in ("isinstance", "assertIsInstance") or len(call.args) < 2:
            return set()
        asked = {_name(node) for node in ast.walk(call.args[1])}
        own = {node.name for node in (*self.before, *self.nodes) if isinstance(node, ast.ClassDef)}
        return asked - own - _PLAIN_CLASSES

    def _compared(self) -> set[ast.AST]:
        """Calls that are compared with something that is not the program's: of functions, whatever their names."""
        found: set[ast.AST] = set()
        for test in [n.test for n in self.nodes if isinstance(n, ast.Assert)]:
            test = test.operand if isinstance(test, ast.UnaryOp) else test
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
            own = [side for side in sides if self.free & {*map(_id, ast.walk(side))}]
            found |= {*own} if len(own) == 1 else set()
        return found


class Counted(ast.NodeTransformer):
    """Changes a tree so that every check calls `__check__()` first."""

    def generic_visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        if not _is_check(node):
            return node
        call = ast.Expr(ast.Call(ast.Name("__check__", ast.Load()), [], []))
        return [ast.fix_missing_locations(ast.copy_location(call, node)), node]


def last_function(program: str) -> str | None:
    """The last function of a program, or method of its `Solution`, that no other one uses."""
    body: list[Any] = ast.parse(program).body
    functions = [n for n in body if isinstance(n, ast.FunctionDef)]
    if not functions:
        methods = [n for c in body if isinstance(c, ast.ClassDef) and c.name == "Solution" for n in c.body]
        functions = [n for n in methods if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
    uses = {f.name: {_name(n) for n in ast.walk(f)} for f in functions}
    free = [name for name in uses if not any(name in uses[other] for other in uses if other != name)]
    return (free or [*uses, None])[-1]


def _id(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _name(node: ast.AST) -> str:
    """A name, or that of an attribute."""
    return _id(node) or getattr(node, "attr", "")


def callee(node: ast.AST) -> str:
    """The name that is called."""
    return _id(node.func) if isinstance(node, ast.Call) else ""


def _is_test(node: ast.AST) -> TypeGuard[Any]:
    """Whether it is run without being called: check(candidate), a test function, a test class."""
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test") or any(ast.unparse(b).endswith("TestCase") for b in node.bases)
    return isinstance(node, _FUNCTIONS) and (node.name == "check" or node.name.startswith("test"))


def _is_announced(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a function or class of the prefix has no body yet."""
    if isinstance(node, ast.ClassDef):
        return node.name == "Solution"
    said = [n.value if isinstance(n, ast.Expr) else n for n in node.body]
    return all(isinstance(n, ast.Pass | ast.Raise | ast.Import | ast.ImportFrom | ast.Constant) for n in said)


def _is_check(node: ast.AST) -> bool:
    """Whether a statement can fail because the program is wrong: assert, self.assertEqual(…), with raises(…), or a
    branch that raises, asserts a constant or exits."""
    if isinstance(node, ast.Expr):
        return _begins(node.value, "assert", "fail", "check_")
    if any(_begins(item.context_expr, "assert", "raises", "warns") for item in getattr(node, "items", ())):
        return True  # a with statement
    if not isinstance(node, ast.stmt) or isinstance(node, _DEFINITIONS):
        return False
    return isinstance(node, ast.Assert) or any(
        isinstance(child, ast.Raise)
        or (isinstance(child, ast.Assert) and isinstance(child.test, ast.Constant))
        or (isinstance(child, ast.Expr) and _begins(child.value, "exit", "_exit", "quit"))
        for part in [node, *getattr(node, "handlers", ())]
        for child in ast.iter_child_nodes(part)
    )


def _begins(node: ast.AST, *beginnings: str) -> bool:
    """Whether it is a call of a name with such a beginning."""
    return isinstance(node, ast.Call) and _name(node.func).startswith(beginnings)
