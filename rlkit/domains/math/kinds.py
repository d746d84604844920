"""What a final answer can be, and the two questions that all readers of one ask: is it a name, and where do its
parts part?"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

PIECE = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
OPEN = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
CLOSE = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:mathrm|text|mathbf|operatorname)\s*\{[^{}]*\})'*(?:_\{?[A-Za-z0-9, +-]*\}?)?"
    r"(?:\s*\(\s*[A-Za-z0-9, ]+\s*\))?|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)"
)


@dataclass
class Value:
    text: str


@dataclass
class Expression(Value):
    """A number or formula."""


@dataclass
class Opaque(Value):
    """Notation that is compared as it is written."""


@dataclass
class Text(Value):
    """Words, without their typography."""

    date: tuple[int | None, str, int | None] | None = None


@dataclass
class Time(Value):
    """A time of day; `half` is "a", "p" or "" where it is left out."""

    clock: str
    half: str


@dataclass
class Items(Value):
    """Parts in brackets, or a bare list (no brackets); intervals are Items of two."""

    opening: str
    closing: str
    parts: list[str]

    @property
    def unordered(self) -> bool:
        return self.opening in ("", "\\{")


@dataclass
class Union(Value):
    parts: list[str]


@dataclass
class Relation(Value):
    """operands[0] operators[0] operands[1] …"""

    operands: list[str]
    operators: list[str]

    def reversed(self, flipped: Mapping[str, str]) -> "Relation":
        return Relation(self.text, self.operands[::-1], [flipped.get(o, o) for o in self.operators[::-1]])

    def variable(self) -> str:
        return next((o for o in self.operands if is_name(o) and o != "\\infty"), "")


@dataclass
class Matrix(Value):
    kind: str
    rows: list[list[str]]


@dataclass
class Cases(Value):
    rows: list[list[str]]


@dataclass
class Quantity(Value):
    """A number and its unit; `text` is the number."""

    unit: str

    @property
    def number(self) -> str:
        return self.text


@dataclass
class Based(Value):
    """Digits with the base as a subscript."""

    digits: str
    base: int


@dataclass
class Ratio(Value):
    parts: list[str]


def is_name(text: str) -> bool:
    """A symbol or a function's left side: x, a_n, f(x), \\mathrm{Area}."""
    return _NAME.fullmatch(text.strip()) is not None and text.strip() not in ("\\pi", "e", "i", "\\infty")


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts and the separators between them, outside all brackets. Brackets of intervals need not match."""
    parts, found, depth, start = [], [], 0, 0
    for match in PIECE.finditer(text):
        piece = match.group()
        if piece in OPEN or piece.startswith("\\begin"):
            depth += 1
        elif piece in CLOSE or piece.startswith("\\end"):
            depth -= 1
        elif depth == 0 and piece in separators:
            parts.append(text[start : match.start()].strip())
            found.append(piece)
            start = match.end()
    return [*parts, text[start:].strip()], found
