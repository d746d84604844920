"""What runs in a sandboxed process: a script, a candidate (the program's functions, called from outside)
or an examiner (test code that calls a candidate in another sandbox).

Standard library only. Values cross as JSON: plain data is copied, everything else stays where it is and
is reached by reference. The examiner rebuilds values from exact built-in types, so a subclass with a
forged `__eq__` arrives as the number or list that it holds; and the test code is never in the
program's process, so the program can neither read it nor change the builtins that it compares with.
"""

import builtins
import importlib
import io
import json
import os
import sys
import traceback
import types

# What programs use most is imported once, here.
import bisect, collections, copy, decimal, fractions, functools, heapq, itertools, math, operator  # noqa: E401, F401, I001
import _sitebuiltins, atexit, random, re, string, threading, typing  # noqa: E401, F401, I001

_LONGEST = 64 << 20  # bytes of one message
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}


# --- Scripts ------------------------------------------------------------------------------------------


def _fresh(name):
    """A module for the program and standard streams of its own."""
    sys.path.insert(0, os.getcwd())
    sys.argv = ["main.py"]
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8"
    )
    sys.stdout = sys.__stdout__ = _writer(1, "strict")
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace")
    module.__dict__["__builtins__"] = builtins
    for word in ("exit", "quit"):  # what `site` adds
        setattr(builtins, word, _sitebuiltins.Quitter(word, ""))
    return module


def _writer(number, errors):
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n")


def script(program):
    """Run a program as `python main.py` would, and end the process with its exit status."""
    module = _fresh("__main__")
    code = 0
    try:
        exec(compile(program, "main.py", "exec", dont_inherit=True), module.__dict__)
    except SystemExit as stop:
        code = _exit_status(stop.code)
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        code = code or 120
    try:
        sys.stderr.flush()
    except BaseException:
        pass
    os._exit(code & 0xFF)


def _exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


# --- Values on the wire -------------------------------------------------------------------------------


class Lost(Exception):
    """The other side ended."""


def _known(cls, shared):
    """A class that both sides have from the same prefix code."""
    return shared.get(cls.__name__) is cls


class Codec:
    """Values as a list of nodes, iteratively, so that a long linked list does not exhaust the stack."""

    def __init__(self, shared):
        self.shared = shared  # names of the prefix that both sides ran
        self.exported = []  # what the other side holds references to
        self.proxies = {}  # its references that we hold

    def encode(self, value):
        nodes, index, objects = [], {}, []

        def place(item):
            key = id(item)
            if key not in index:
                index[key] = len(objects)
                objects.append(item)
                nodes.append(None)
            return index[key]

        place(value)
        done = 0
        while done < len(objects):
            nodes[done] = self._node(objects[done], place)
            done += 1
        return nodes, objects

    def _node(self, item, place):
        cls = type(item)
        if item is None or cls is bool or cls is float or cls is str:
            return ["v", item]
        if isinstance(item, bool):
            return ["v", bool(item)]
        if isinstance(item, int):
            return ["i", format(int.__add__(item, 0), "x")]
        if isinstance(item, float):
            return ["v", float.__add__(item, 0.0)]
        if isinstance(item, str):
            return ["v", str.__str__(item)]
        if isinstance(item, (bytes, bytearray)):
            return ["bytes", bytes(item).decode("latin-1")]
        if isinstance(item, complex):
            return ["complex", [item.real, item.imag]]
        if isinstance(item, (decimal.Decimal, fractions.Fraction)):
            return [cls.__name__, str(item)]
        for name, kind in _SEQUENCES.items():
            if isinstance(item, kind):
                return [name, [place(x) for x in kind.__iter__(item)]]
        if isinstance(item, dict):
            return ["dict", [[place(k), place(dict.__getitem__(item, k))] for k in dict.__iter__(item)]]
        if isinstance(item, Proxy):
            return ["own", object.__getattribute__(item, "_number")]
        if cls.__module__ == "numpy" and hasattr(item, "tolist"):
            return (
                ["list", [place(x) for x in item.tolist()]] if item.ndim else self._node(item.tolist(), place)
            )
        return self._other(item, cls, place)

    def _other(self, item, cls, place):
        if isinstance(item, types.ModuleType):
            return ["module", item.__name__]
        home = getattr(item, "__module__", None)
        if isinstance(item, (type, types.FunctionType, types.BuiltinFunctionType)):
            if home in sys.stdlib_module_names and sys.modules.get(home) is not None:
                if getattr(sys.modules[home], getattr(item, "__name__", ""), None) is item:
                    return ["import", home, item.__name__]
            if isinstance(item, type) and issubclass(item, BaseException):
                bases = [b.__name__ for b in item.__mro__ if b.__module__ == "builtins"]
                return ["exception", self._export(item), item.__name__, bases[0]]
        if _known(cls, self.shared):
            return ["object", cls.__name__, place(dict(vars(item)))]
        return ["ref", self._export(item)]

    def _export(self, item):
        for number, known in enumerate(self.exported):
            if known is item:
                return number
        self.exported.append(item)
        return len(self.exported) - 1

    def decode(self, nodes, make):
        """The value and all nodes' values; mutable containers are filled last, so that cycles close."""
        built = [self._shell(node, make) for node in nodes]
        self._tuples(nodes, built)
        for node, value in zip(nodes, built, strict=True):
            if node[0] in ("list", "deque"):
                value.extend(built[i] for i in node[1])
            elif node[0] == "set":
                value.update(built[i] for i in node[1])
            elif node[0] == "dict":
                value.update((built[k], built[v]) for k, v in node[1])
        for node, value in zip(nodes, built, strict=True):
            if node[0] == "object" and hasattr(value, "__dict__"):
                vars(value).update(built[node[2]])
        return built[0], built

    def _tuples(self, nodes, built):
        """Tuples and frozensets, innermost first: in JSON order a part comes after its whole."""
        for position in range(len(nodes) - 1, -1, -1):
            if nodes[position][0] in ("tuple", "frozenset"):
                built[position] = _SEQUENCES[nodes[position][0]](built[i] for i in nodes[position][1])

    def _shell(self, node, make):
        kind, value = node[0], node[1]
        if kind == "v":
            return value
        if kind == "i":
            return int(value, 16)
        if kind == "bytes":
            return value.encode("latin-1")
        if kind == "complex":
            return complex(*value)
        if kind == "Decimal":
            return decimal.Decimal(value)
        if kind == "Fraction":
            return fractions.Fraction(value)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]()
        if kind == "dict":
            return {}
        if kind == "own":
            return self.exported[value]
        if kind == "object" and isinstance(self.shared.get(value), type):
            return self.shared[value].__new__(self.shared[value])
        return make(node)


# --- Messages -----------------------------------------------------------------------------------------


class Link:
    """Requests and replies over a socket; a side that waits for a reply serves requests meanwhile."""

    def __init__(self, sock, codec):
        self.file = sock.makefile("rwb")
        self.codec = codec
        self.serve = None  # function(operation, arguments) for requests of the other side

    def send(self, kind, value, extra=None):
        nodes, objects = self.codec.encode(value)
        data = json.dumps([kind, nodes, extra]).encode()
        if len(data) > _LONGEST:
            raise MemoryError("a value is too big to be passed on")
        self.file.write(b"%d\n" % len(data) + data)
        self.file.flush()
        return objects

    def receive(self):
        line = self.file.readline(20)
        if not line.strip().isdigit() or int(line) > _LONGEST:
            raise Lost("the program ended")
        data = self.file.read(int(line))
        if len(data) < int(line):
            raise Lost("the program ended")
        return json.loads(data)

    def request(self, operation, *arguments):
        objects = self.send("request", [operation, *arguments])
        while True:
            kind, nodes, extra = self.receive()
            if kind == "request":
                self.answer(nodes)
                continue
            value, _ = self.codec.decode(nodes, self.make)
            if extra:
                self._write_back(objects, extra)
            if kind == "raise":
                raise _exception(value)
            return value

    def _write_back(self, objects, extra):
        """What the call changed in its mutable arguments is changed here, too."""
        changed, _ = self.codec.decode(extra["nodes"], self.make)
        for position, new in zip(extra["positions"], changed):
            old = objects[position]
            if type(old) is list:
                old[:] = new
            elif type(old) in (dict, set):
                old.clear()
                old.update(new)
            elif type(new) is type(old) and hasattr(old, "__dict__"):
                vars(old).update(vars(new))

    def answer(self, nodes):
        (operation, *arguments), built = self.codec.decode(nodes, self.make)
        try:
            kind, value = "value", self.serve(operation, arguments)
        except Lost:
            raise
        except BaseException as error:
            kind, value = "raise", [type(error), [str(a) for a in error.args]]
        positions = [i for i, node in enumerate(nodes) if i and node[0] in ("list", "dict", "set", "object")]
        extra = None
        if positions:
            extra = {"positions": positions, "nodes": self.codec.encode([built[i] for i in positions])[0]}
        self.send(kind, value, extra)

    def make(self, node):
        """A stand-in for something that stays on the other side."""
        kind = node[0]
        if kind == "module":
            return (
                importlib.import_module(node[1])
                if node[1].partition(".")[0] in sys.stdlib_module_names
                else None
            )
        if kind == "import" and node[1] in sys.stdlib_module_names:
            return getattr(importlib.import_module(node[1]), node[2], None)
        number = node[1]
        if number not in self.codec.proxies:
            if kind == "exception":
                base = getattr(builtins, node[3], Exception)
                stand_in = type(node[2], (base,), {"_rlkit_number": number})
            else:
                stand_in = Proxy(self, number)
            self.codec.proxies[number] = stand_in
        return self.codec.proxies[number]


def _exception(value):
    cls, arguments = value
    if isinstance(cls, type) and issubclass(cls, BaseException):
        return (
            cls(*arguments) if not issubclass(cls, (SystemExit, KeyboardInterrupt)) else Exception(*arguments)
        )
    return Exception(*arguments)


class Proxy:
    """A reference to an object of the other side."""

    def __init__(self, link, number):
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)

    def __call__(self, *args, **kwargs):
        return _ask(self, "call", list(args), kwargs)

    def __getattr__(self, name):
        return _ask(self, "getattr", name)

    def __setattr__(self, name, value):
        return _ask(self, "setattr", name, value)

    def __eq__(self, other):
        """By state: never by the other side's own `__eq__`."""
        if not isinstance(other, Proxy):
            return False
        return self is other or _ask(self, "state") == _ask(other, "state")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(object.__getattribute__(self, "_number"))

    def __instancecheck__(self, item):
        return isinstance(item, Proxy) and _ask(self, "isinstance", item)


def _ask(proxy, operation, *arguments):
    link = object.__getattribute__(proxy, "_link")
    return link.request(operation, proxy, *arguments)


def _forward(name):
    def method(self, *arguments):
        return _ask(self, "special", name, list(arguments))

    return method


_SPECIAL = (
    "len iter next getitem setitem delitem contains bool str repr int float abs neg add sub mul truediv floordiv "
    "mod pow radd rsub rmul rtruediv lt le gt ge and or xor enter exit index reversed matmul"
)
for _name in _SPECIAL.split():
    setattr(Proxy, f"__{_name}__", _forward(f"__{_name}__"))


# --- The candidate ------------------------------------------------------------------------------------


def candidate(sock, program, prefix):
    """Load a program and serve calls of its functions until the other side ends."""
    module = _fresh("solution")
    shared = {}
    if prefix:
        exec(compile(prefix, "prefix.py", "exec", dont_inherit=True), module.__dict__)
        shared = {
            n: v for n, v in module.__dict__.items() if isinstance(v, type) and v.__module__ == "solution"
        }
    before = dict(module.__dict__)
    link = Link(sock, Codec(shared))
    try:
        exec(compile(program, "solution.py", "exec", dont_inherit=True), module.__dict__)
        for name in shared:  # the program may define the prefix's classes again
            if isinstance(module.__dict__.get(name), type):
                shared[name] = module.__dict__[name]
    except BaseException as error:
        link.send("raise", [type(error), [str(a) for a in error.args]])
        traceback.print_exc()
        os._exit(1)
    own = [n for n, v in module.__dict__.items() if not n.startswith("__") and before.get(n, module) is not v]
    link.send("value", own)

    def serve(operation, arguments):
        return _serve(module, operation, arguments)

    link.serve = serve
    try:
        while True:
            kind, nodes, _ = link.receive()
            link.answer(nodes)
    except Lost:
        os._exit(0)


def _serve(module, operation, arguments):
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


def _special(target, name, arguments):
    if name == "__bool__":
        return bool(target)
    if name == "__int__":
        return int(target)
    return getattr(type(target), name)(target, *arguments)


def _function(module, name):
    """A function of the program, or a method of its `Solution`, on a new instance for each call."""
    if name in module.__dict__:
        return module.__dict__[name]
    return getattr(module.__dict__["Solution"](), name)


# --- The examiner -------------------------------------------------------------------------------------


def examiner(sock, verdict, request):
    """Run test code against a candidate; one JSON line with the outcome goes to `verdict`."""
    module = _fresh("__main__")
    shared = {}
    prefix = request.get("prefix", "")
    if prefix:
        exec(compile(prefix, "prefix.py", "exec", dont_inherit=True), module.__dict__)
        shared = {
            n: v for n, v in module.__dict__.items() if isinstance(v, type) and v.__module__ == "__main__"
        }
    link = Link(sock, Codec(shared))
    link.serve = _callback
    outcome = {"passed": 0, "total": 1, "error": None}
    try:
        kind, nodes, _ = link.receive()
        value, _ = link.codec.decode(nodes, link.make)
        if kind == "raise":
            raise _exception(value)
        _bind(module, link, value, request)
        runner = _pytest if request["role"] == "pytest" else _statements
        runner(module, request, outcome)
    except BaseException as error:
        outcome["error"] = f"{type(error).__name__}: {error}"[:300]
    verdict.sendall(json.dumps(outcome).encode() + b"\n")


def _callback(operation, arguments):
    """The candidate may call functions that the tests passed to it; nothing else."""
    target, *rest = arguments
    if operation != "call" or not isinstance(target, (types.FunctionType, types.BuiltinFunctionType, type)):
        raise PermissionError("only functions can be called back")
    return target(*rest[0], **rest[1])


def _bind(module, link, names, request):
    """The program's names in the tests' namespace. One that hides a builtin counts only if it is what is
    tested: the tests' own abs and sorted are the real ones."""
    tests = compile(request["program"], "tests.py", "exec", dont_inherit=True)
    used = _names(tests)
    subject = {n for n in names if n in used and not hasattr(builtins, n)}
    solution = types.ModuleType("solution")
    for name in names:
        if hasattr(builtins, name) and subject and name != request.get("entry_point"):
            continue
        if name in used or request["role"] == "pytest":
            value = link.request("get", name)
            solution.__dict__[name] = value
            if not isinstance(value, types.ModuleType) or name not in module.__dict__:
                module.__dict__[name] = value
    for alias in ("solution", request.get("module") or "solution"):
        sys.modules[alias] = solution


def _names(code):
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _statements(module, request, outcome):
    """Run the test script statement by statement; each assertion at its top level is a test."""
    import ast

    tree = ast.parse(request["program"])
    tests = [node for node in tree.body if isinstance(node, ast.Assert)]
    outcome["total"] = max(1, len(tests))
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
    _check(module, request, tree)
    if not tests and not outcome["error"]:
        outcome["passed"] = 1


def _check(module, request, tree):
    """HumanEval's `check(candidate)`, if the script defines it and does not call it."""
    import ast

    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    entry = request.get("entry_point")
    if "check" in module.__dict__ and "check" not in called and entry in module.__dict__:
        module.__dict__["check"](module.__dict__[entry])


def _pytest(module, request, outcome):
    import pytest

    class Count:
        passed = failed = 0

        def pytest_runtest_logreport(self, report):
            if report.failed:
                Count.failed += 1
                outcome["error"] = outcome["error"] or str(report.longrepr)[-300:]
            elif report.when == "call" and report.passed:
                Count.passed += 1

    with open("test_solution.py", "w") as file:
        file.write(request["program"])
    status = pytest.main(["-q", "-p", "no:cacheprovider", "test_solution.py"], plugins=[Count()])
    outcome["passed"], outcome["total"] = Count.passed, max(1, Count.passed + Count.failed)
    if status != 0 and not outcome["error"]:
        outcome["error"] = f"pytest ended with {status!r}"
