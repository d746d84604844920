"""What crosses the border of a sandbox: messages over a socket, and values as JSON. Standard library only. What has no
plain form stays where it is, and the other side gets an `Opaque`, which is equal to nothing."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import itertools
import json
import socket
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import suppress
from typing import Any

_LONGEST = 16 << 20  # bytes of one message: decoding it takes seconds
_MOST_OBJECTS = 8 << 20  # in one value
_MANY = 100_000  # items that are taken from an iterator, hexadecimal digits of a fraction
_WHOLE = 1 << 60  # a number below it is sent as JSON's
_DEEPEST = 10_000  # tuples inside one another: hashing deeper ones would exhaust the stack


class Lost(Exception):
    """The other process ended, or what it sends is no message."""


class Channel:
    """Messages of at most `largest` bytes over a socket: eight bytes with the length, then JSON. Nothing is waited for
    beyond `end` (of time.monotonic), however little the other side sends or takes at a time."""

    def __init__(self, sock: socket.socket, end: float = float("inf"), largest: int = _LONGEST) -> None:
        self.sock, self.end, self.largest = sock, end, largest

    def send(self, *message: Any) -> None:
        data = json.dumps(message).encode()
        if len(data) > self.largest:
            raise MemoryError("a value is too big to be passed on")
        self.write(data)

    def write(self, data: bytes) -> None:
        self._limit()
        self.sock.sendall(len(data).to_bytes(8, "big") + data)

    def receive(self) -> list[Any]:
        """The next message, a list. Raises Lost where none comes, TimeoutError at the end."""
        with suppress(ValueError, RecursionError):
            if isinstance(message := json.loads(self.read()), list) and message:
                return message
        raise Lost("the program sends no message")

    def read(self) -> bytearray:
        """The bytes of the next message."""
        size = int.from_bytes(self._read(8), "big")
        if size > self.largest:
            raise Lost("the program sends no message")
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            self._limit()
            piece = b""
            with suppress(ConnectionError):
                piece = self.sock.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise Lost("the program ended")
            data += piece
        return data

    def _limit(self) -> None:
        if self.end < float("inf"):
            left = self.end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.sock.settimeout(left)


class Opaque:
    """A value of the program without a plain form: equal to nothing. The program says whether it is true, and has the
    value back under its number where it is passed on to another function."""

    def __init__(self, kind: str, truth: bool | None, number: Any) -> None:
        self.kind, self.truth, self.number = kind, truth, number

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if self.truth is None:
            raise TypeError(f"a {self.kind} is no plain value")
        return self.truth


def _fraction(digits: str) -> fractions.Fraction:
    if len(digits) > _MANY:
        raise ValueError("a fraction is too long")
    return fractions.Fraction(*(int(number, 16) for number in digits.split("/")))


# Kind of node: type, its JSON form, and the value of that.
_ATOMS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (int, lambda x: format(int.__index__(x), "x"), lambda v: int(v, 16)),
    "float": (float, float.__float__, float),
    "str": (str, str.__str__, str),
    "bytes": ((bytes, bytearray), lambda x: bytes(x).decode("latin-1"), lambda v: v.encode("latin-1")),
    "complex": (complex, lambda x: [x.real, x.imag], lambda v: complex(*v)),
    "range": (range, lambda x: [x.start, x.stop, x.step], lambda v: range(*v)),
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "Fraction": (fractions.Fraction, lambda x: f"{x.numerator:x}/{x.denominator:x}", _fraction),
    **{c.__name__: (c, c.isoformat, c.fromisoformat) for c in (dt.datetime, dt.date, dt.time)},
    "timedelta": (dt.timedelta, lambda x: [x.days, x.seconds, x.microseconds], lambda v: dt.timedelta(*v)),
}
# Kind of node that holds others: type. Those of `_MUTABLE` are made empty and then filled.
_HOLDERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque, "dict": dict}
_FIXED: dict[str, Any] = {"tuple": tuple, "frozenset": frozenset, "iterator": iter}
_MUTABLE = {*_HOLDERS, "object"} - {*_FIXED}
_ITERATED = (Iterator, KeysView, ValuesView, ItemsView)
_LEAVES = {type(None), bool, float, str}
Nodes = list[list[Any]]


class Plain:
    """Plain values as a list of nodes, without recursion: a long linked list does not exhaust the stack. A container
    holds numbers and strings themselves, and of all else [the number of its node]. Numbers, strings and containers
    arrive as exact built-in types, whatever subclass they were. `shared` are classes that both sides have from the same
    prefix; of their instances the attributes are sent. With `opaque` a value without a plain form becomes an Opaque on
    the other side; else it is a TypeError."""

    def __init__(self, shared: Mapping[str, Any], opaque: bool = False) -> None:
        self.shared, self.opaque = shared, opaque
        self.kept: list[Any] = []  # values of this side that the other one has as Opaque
        self.insufficient = False  # whether a value of this side was refused

    def encode(self, value: Any, passed: Iterable[Any] = ()) -> tuple[Nodes, list[Any]]:
        """The nodes, and the mutable objects among them in order. Those of `passed` are sent with their number."""
        numbers = {id(item): number for number, item in enumerate(passed)}
        nodes, objects, places = [], [value], {id(value): 0}

        def place(item: Any) -> Any:
            if type(item) in _LEAVES or (type(item) is int and -_WHOLE < item < _WHOLE):
                return item
            # those that are left out always stand behind what holds them
            if not isinstance(item, (tuple, frozenset, *_ITERATED)):
                if id(item) in places:
                    return [places[id(item)]]
                places[id(item)] = len(objects)
            if len(objects) > _MOST_OBJECTS:
                raise MemoryError("a value is too big to be passed on")
            objects.append(item)
            return [len(objects) - 1]

        while len(nodes) < len(objects):
            item = objects[len(nodes)]
            node = self._node(item, place)
            nodes.append([*node, numbers[id(item)]] if id(item) in numbers else node)
        return nodes, [item for node, item in zip(nodes, objects, strict=True) if node[0] in _MUTABLE]

    def _node(self, item: Any, place: Callable[[Any], Any]) -> list[Any]:
        cls = type(item)
        if cls in _LEAVES:
            return ["v", item]
        for kind, (atom, written, _) in _ATOMS.items():
            if isinstance(item, atom):
                return [kind, written(item)]
        for kind, holder in _HOLDERS.items():
            if isinstance(item, holder):
                held = holder.items(item) if holder is dict else holder.__iter__(item)
                return [kind, [[*map(place, x)] if holder is dict else place(x) for x in held]]
        if self.shared.get(cls.__name__) is cls and hasattr(item, "__dict__"):
            return ["object", [cls.__name__, [[str(k), place(v)] for k, v in vars(item).items()]]]
        if cls.__module__ == "numpy" and hasattr(item, "tolist"):
            return self._node(item.tolist(), place)
        if isinstance(item, _ITERATED):
            return ["iterator", [place(x) for x in itertools.islice(item, _MANY)]]
        if cls is Opaque:
            return ["kept", item.number]
        if not self.opaque:
            self.insufficient = True
            raise TypeError(f"a {cls.__name__} is no plain value")
        self.kept.append(item)
        truth = None
        with suppress(Exception):
            truth = bool(item)
        return ["opaque", [cls.__name__, truth, len(self.kept) - 1]]

    def decode(self, nodes: Nodes, passed: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
        """The value, and every mutable object. Objects of `passed` are not made anew but changed in place."""
        built, depth = [self._empty(node, passed) for node in nodes], [0] * len(nodes)

        def values(items: list[Any]) -> list[Any]:
            return [built[item[0]] if type(item) is list else item for item in items]

        for position in range(len(nodes) - 1, -1, -1):  # innermost first
            if make := _FIXED.get(nodes[position][0]):
                held = nodes[position][1]
                depth[position] = 1 + max((depth[x[0]] for x in held if type(x) is list), default=0)
                if depth[position] > _DEEPEST:
                    raise RecursionError("a value is too deep to be passed on")
                built[position] = make(values(held))
        mutable = [(*node[:2], new) for node, new in zip(nodes, built, strict=True) if node[0] in _MUTABLE]
        for kind, content, value in mutable:  # last, so that cycles close
            if kind in ("list", "deque"):
                value.extend(values(content))
            elif kind == "object":
                vars(value).update((name, values([item])[0]) for name, item in content[1])
        for kind, content, value in mutable:  # what is hashed has its attributes now
            if kind in ("set", "dict"):
                value.update(values(content) if kind == "set" else map(values, content))
        return built[0], [value for *_, value in mutable]

    def _empty(self, node: list[Any], passed: Sequence[Any]) -> Any:
        """The value of a node that holds no others; else an empty one to fill, which has a number if it was passed."""
        kind, value = node[0], node[1]
        if kind == "v":
            return value
        if kind in _ATOMS:
            return _ATOMS[kind][2](value)
        if kind in _FIXED:
            return None
        if kind == "kept":
            return self.kept[value]
        if kind not in _MUTABLE:
            name, truth, number = value
            return Opaque(str(name), truth if isinstance(truth, bool) else None, number)
        cls = self.shared[value[0]] if kind == "object" else _HOLDERS[kind]
        if len(node) == 2:
            return cls.__new__(cls)
        old = passed[node[2]]
        if not isinstance(old, cls):
            raise TypeError(f"a {type(old).__name__} was passed, and a {kind} comes back")
        (vars(old) if kind == "object" else old).clear()
        return old
