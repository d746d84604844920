"""Values, calls and references between two sandboxed processes, as JSON over a socket.

Standard library only: this runs inside the sandbox, too. Plain data is copied; everything else stays
where it is and is reached by reference (`Proxy`). The receiver rebuilds values from exact built-in
types, so a subclass with a forged `__eq__` arrives as the number or list that it holds.
"""

from __future__ import annotations

import builtins
import collections
import decimal
import fractions
import importlib
import json
import socket
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

_LONGEST = 64 << 20  # bytes of one message
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
_MUTABLE = ("list", "dict", "set", "object")
Nodes = list[list[Any]]


class Lost(Exception):
    """The other side ended."""


class Codec:
    """Values as a list of nodes, without recursion: a long linked list does not exhaust the stack.

    Args:
        shared: classes that both sides have from the same prefix code; their instances are copied.
    """

    def __init__(self, shared: dict[str, Any]) -> None:
        self.shared = shared
        self.exported: list[Any] = []  # what the other side holds references to
        self.proxies: dict[int, Any] = {}  # its references that we hold

    def encode(self, value: Any) -> tuple[Nodes, list[Any]]:
        """The nodes, and the object of each; node 0 is the value itself."""
        nodes: Nodes = []
        index: dict[int, int] = {}
        objects: list[Any] = []

        def place(item: Any) -> int:
            key = id(item)
            if key not in index:
                index[key] = len(objects)
                objects.append(item)
            return index[key]

        place(value)
        while len(nodes) < len(objects):
            nodes.append(self._node(objects[len(nodes)], place, objects))
        return nodes, objects

    def _node(self, item: Any, place: Callable[[Any], int], keep: list[Any]) -> list[Any]:
        cls = type(item)
        if item is None or cls in (bool, float, str):
            return ["v", item]
        if isinstance(item, int):
            return ["i", format(int.__add__(item, 0), "x")]
        if isinstance(item, float):
            return ["v", float.__add__(item, 0.0)]
        if isinstance(item, str):
            return ["v", str.__str__(item)]
        if isinstance(item, bytes | bytearray):
            return ["bytes", bytes(item).decode("latin-1")]
        if isinstance(item, complex):
            return ["complex", [item.real, item.imag]]
        if isinstance(item, decimal.Decimal | fractions.Fraction):
            return ["Decimal" if isinstance(item, decimal.Decimal) else "Fraction", str(item)]
        for name, kind in _SEQUENCES.items():
            if isinstance(item, kind):
                return [name, [place(x) for x in kind.__iter__(item)]]
        if isinstance(item, dict):
            return ["dict", [[place(k), place(dict.__getitem__(item, k))] for k in dict.__iter__(item)]]
        if isinstance(item, Proxy):
            return ["own", object.__getattribute__(item, "_number")]
        if cls.__module__ == "numpy" and hasattr(item, "tolist"):
            return self._node(item.tolist(), place, keep)
        return self._other(item, cls, place)

    def _other(self, item: Any, cls: type, place: Callable[[Any], int]) -> list[Any]:
        if isinstance(item, types.ModuleType):
            return ["module", item.__name__]
        if isinstance(item, type | types.FunctionType | types.BuiltinFunctionType):
            home, name = item.__module__, item.__name__
            if home in sys.stdlib_module_names and getattr(sys.modules.get(home), name, None) is item:
                return ["import", home, name]
            if isinstance(item, type) and issubclass(item, BaseException):
                base = next(b.__name__ for b in item.__mro__ if b.__module__ == "builtins")
                return ["exception", self._export(item), name, base]
        if self.shared.get(cls.__name__) is cls:
            return ["object", cls.__name__, place(dict(vars(item)))]
        return ["ref", self._export(item)]

    def _export(self, item: Any) -> int:
        for number, known in enumerate(self.exported):
            if known is item:
                return number
        self.exported.append(item)
        return len(self.exported) - 1

    def decode(self, nodes: Nodes, make: Callable[[list[Any]], Any]) -> tuple[Any, list[Any]]:
        """The value, and every node's; mutable containers are filled last, so that cycles close.
        `make` gives what stands for a node that is a reference."""
        built = [self._shell(node, make) for node in nodes]
        for position in range(len(nodes) - 1, -1, -1):  # tuples innermost first: a part follows its whole
            kind, content = nodes[position][:2]
            if kind in ("tuple", "frozenset"):
                built[position] = _SEQUENCES[kind](built[i] for i in content)
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

    def _shell(self, node: list[Any], make: Callable[[list[Any]], Any]) -> Any:
        kind, value = node[0], node[1]
        simple: Mapping[str, Callable[[Any], Any]] = {
            "v": lambda v: v,
            "i": lambda v: int(v, 16),
            "bytes": lambda v: v.encode("latin-1"),
            "complex": lambda v: complex(*v),
            "Decimal": decimal.Decimal,
            "Fraction": fractions.Fraction,
            "dict": lambda v: {},
            "own": lambda v: self.exported[v],
        }
        if kind in simple:
            return simple[kind](value)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]()
        if kind == "object" and isinstance(self.shared.get(value), type):
            return self.shared[value].__new__(self.shared[value])
        return make(node)


class Link:
    """Requests and replies over a socket; a side that waits for a reply serves requests meanwhile.

    Args:
        serve: answers the other side's requests: (operation, arguments) to a value.
    """

    def __init__(
        self, sock: socket.socket, codec: Codec, serve: Callable[[str, list[Any]], Any] | None = None
    ) -> None:
        self.file = sock.makefile("rwb")
        self.codec = codec
        self.serve = serve

    def send(self, kind: str, value: Any, extra: Any = None) -> list[Any]:
        """Send a message; returns the objects of its nodes."""
        nodes, objects = self.codec.encode(value)
        data = json.dumps([kind, nodes, extra]).encode()
        if len(data) > _LONGEST:
            raise MemoryError("a value is too big to be passed on")
        self.file.write(b"%d\n" % len(data) + data)
        self.file.flush()
        return objects

    def receive(self) -> tuple[str, Nodes, Any]:
        """The next message. Raises Lost when there is none, or what comes is none."""
        line = self.file.readline(20)
        if not line.strip().isdigit() or int(line) > _LONGEST:
            raise Lost("the program ended")
        data = self.file.read(int(line))
        if len(data) < int(line):
            raise Lost("the program ended")
        return json.loads(data)

    def request(self, operation: str, *arguments: Any) -> Any:
        """Have the other side do something; what it raises is raised here."""
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
                raise as_exception(value)
            return value

    def _write_back(self, objects: list[Any], extra: Any) -> None:
        """What the call changed in its mutable arguments is changed here, too."""
        changed, _ = self.codec.decode(extra["nodes"], self.make)
        for position, new in zip(extra["positions"], changed, strict=True):
            old = objects[position]
            if type(old) is list:
                old[:] = new
            elif type(old) in (dict, set):
                old.clear()
                old.update(new)
            elif type(new) is type(old) and hasattr(old, "__dict__"):
                vars(old).update(vars(new))

    def answer(self, nodes: Nodes) -> None:
        """Do what a request asks for and send the outcome, with the arguments as they are afterwards."""
        assert self.serve is not None
        (operation, *arguments), built = self.codec.decode(nodes, self.make)
        try:
            kind, value = "value", self.serve(operation, arguments)
        except Lost:
            raise
        except BaseException as error:
            kind, value = "raise", [type(error), [str(a) for a in error.args]]
        positions = [i for i, node in enumerate(nodes) if i and node[0] in _MUTABLE]
        extra = None
        if positions:
            extra = {"positions": positions, "nodes": self.codec.encode([built[i] for i in positions])[0]}
        self.send(kind, value, extra)

    def make(self, node: list[Any]) -> Any:
        """A stand-in for something that stays on the other side; the standard library is imported here."""
        kind = node[0]
        if kind in ("module", "import"):
            if node[1].partition(".")[0] not in sys.stdlib_module_names:
                return None
            module = importlib.import_module(node[1])
            return module if kind == "module" else getattr(module, node[2], None)
        number = node[1]
        if number not in self.codec.proxies:
            stand_in: Any = Proxy(self, number)
            if kind == "exception":  # a class of its own, so that `except` works
                stand_in = type(node[2], (getattr(builtins, node[3], Exception),), {})
            self.codec.proxies[number] = stand_in
        return self.codec.proxies[number]


def as_exception(value: Any) -> Exception:
    """The exception of a "raise" message, never one that ends the process."""
    cls, arguments = value
    if isinstance(cls, type) and issubclass(cls, Exception):
        return cls(*arguments)
    return Exception(getattr(cls, "__name__", "error"), *arguments)


class Proxy:
    """A reference to an object of the other side: calls, attributes and operators are done there."""

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ask(self, "call", list(args), kwargs)

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", name, value)

    def __eq__(self, other: object) -> bool:
        """By state: never by the other side's own `__eq__`."""
        if not isinstance(other, Proxy):
            return False
        return self is other or _ask(self, "state") == _ask(other, "state")

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))

    def __instancecheck__(self, item: Any) -> bool:
        return isinstance(item, Proxy) and _ask(self, "isinstance", item)


def _ask(proxy: Proxy, operation: str, *arguments: Any) -> Any:
    return object.__getattribute__(proxy, "_link").request(operation, proxy, *arguments)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Proxy, *arguments: Any) -> Any:
        return _ask(self, "special", name, list(arguments))

    return method


_SPECIAL = (
    "len iter next getitem setitem delitem contains bool str repr int float abs neg add sub mul truediv "
    "floordiv mod pow radd rsub rmul rtruediv lt le gt ge and or xor enter exit index reversed matmul"
)
for _name in _SPECIAL.split():
    setattr(Proxy, f"__{_name}__", _forward(f"__{_name}__"))
