"""Plain values between two processes, as JSON over a socket.

Standard library only: this runs inside the sandbox, too. What has no plain form stays where it is: the other side
gets an `Opaque`, which is equal to nothing.
"""

from __future__ import annotations

import collections
import decimal
import fractions
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_LONGEST = 64 << 20  # bytes of one message
MANY = 100_000  # items that are taken from an iterator, hexadecimal digits of a fraction
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
        built: list[Any] = [
            iter(items[i]) if i in items else self._shell(n, passed or []) for i, n in enumerate(nodes)
        ]
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
            if len(value[0]) + len(value[1]) > MANY:
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
