"""How a normalised answer's text is read: split at signs outside brackets, parsed into an expression.

Nothing is evaluated while reading, and depth and length are bounded. An expression is a nested tuple:

    ("num", Fraction)  ("sym", name)  ("add", …)  ("mul", …)  ("neg", a)  ("inv", a)  ("pow", a, b)  ("fact", a)
    ("fn", name, …)
"""

import re
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Any

Node = tuple[Any, ...]

STEPS = 30_000  # operations that one pair of answers may take
_MAX_TOKENS = 5_000
_LONGEST_NUMBER = 4000  # characters; Python refuses to convert longer digit strings
_LARGEST_EXPONENT = 5000  # power of ten of a number such as 1e9


class Unreadable(ValueError):
    """The text is not an expression that this parser knows."""


class TooBig(RuntimeError):
    """The value is not computed because of its size."""


steps_left: ContextVar[int] = ContextVar("steps_left", default=STEPS)  # set to STEPS for every pair


def take_steps(count: int = 1) -> None:
    """Count operations of the pair that is compared. TooBig: it has taken too many."""
    if (left := steps_left.get() - count) < 0:
        raise TooBig
    steps_left.set(left)


FONT = r"\\(?:text|mathrm)(?![A-Za-z])\s*"  # before words of a normalised answer
_PIECE = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPEN = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
_CLOSE = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts and the separators between them, outside all brackets. Brackets of intervals need not match."""
    take_steps(len(text) // 30)
    if not any(separator in text for separator in separators):
        return [text.strip()], []
    parts, found, depth, start = [], [], 0, 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in _OPEN or piece.startswith("\\begin"):
            depth += 1
        elif piece in _CLOSE or piece.startswith("\\end"):
            depth -= 1
        elif depth == 0 and piece in separators:
            parts.append(text[start : match.start()].strip())
            found.append(piece)
            start = match.end()
    return [*parts, text[start:].strip()], found


def is_wrapped(text: str) -> bool:
    """Whether the first bracket closes at the very end."""
    depth = 0
    for match in _PIECE.finditer(text):
        depth += (match.group() in _OPEN) - (match.group() in _CLOSE)
        if depth == 0:
            return match.end() == len(text)
    return False


OF_ONE = "sin cos tan cot sec csc asin acos atan sinh cosh tanh log ln log10 exp floor ceil abs"
_OF_SEVERAL = {"gcd", "lcm", "max", "min"}
_FUNCTIONS = {*OF_ONE.split(), *_OF_SEVERAL}
_ALIASES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "tg": "tan", "ctg": "cot", "lg": "log10",
            "infinity": "infty", "inf": "infty"}  # fmt: skip
_STARTS = {"frac", "sqrt", "binom", "lfloor", "lceil", "{", "(", "[", "pi", "infty", *_FUNCTIONS, *_ALIASES}
_CALLS = {"(", "[", "{", *_FUNCTIONS, *_ALIASES} - {"infinity", "inf"}
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
_CLOSING |= {"\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_AROUND = {"\\lfloor": "floor", "\\lceil": "ceil", "|": "abs"}  # functions written as brackets
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|rho|sigma|tau|upsilon|phi|chi"
    "|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell|hbar|varepsilon|varphi|vartheta"
)
_INDEX = r"(?<!\\frac [A-Za-z])(?<!\\binom [A-Za-z])(?<!\^[A-Za-z])\d+(?!\d|\.\d|\^)"  # of H2O, not of \frac n2
_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<num>\d{0,99}\.\d{0,99}(?:(?:\\overline|\\bar|\\dot)\s*\{?\s*\d{1,99}\s*\}?(?:\s*\\dot\s*\{?\d\}?)?"
    r"|\(\d{1,99}\))|(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?\.\d+|\d{1,3}(?:,\d{3})+(?![\d,])|\d+\.?(?!\d))"
    r"(?:[eE][+-]?\d+(?![A-Za-z\d]))?)"
    r"|(?P<function>(?:arc(?:sin|cos|tan)|a?sinh?|a?cosh?|a?tanh?|sec|csc|cot|log|ln|exp|sqrt|pi"
    r"|infinity|infty|inf|floor|ceil|abs|gcd|lcm|max|min)(?![a-z]))"
    rf"|(?P<symbol>(?:[A-Za-z](?:'+|{_INDEX})?|\\(?:{_GREEK})(?![A-Za-z])"
    r"|\\(?:mathrm|vec|hat|overline)\s*\{?\s*[A-Za-z]+\s*\}?)"
    r"(?:\s*_\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|\d+|[A-Za-z]))?)"
    r"|(?P<command>\\[A-Za-z]+)|(?P<op>\\[{}|%]|\S))"
)
_MIXED = re.compile(
    r"(?<![\w.^}])(\d{1,9})(?:\s*\\frac\s*\{\s*(\d{1,9})\s*\}\s*\{\s*(\d{1,9})\s*\}|\s+(\d{1,9})\s*/\s*(\d{1,9})(?!\d))"
)


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """The expression in `text`, which has been normalised. Unreadable: it is none, or nested too deep."""
    try:
        return _Parser(_MIXED.sub(r"(\1+\2\4/\3\5)", text)).inside("")  # 3\frac{1}{2}, 3 1/2
    except RecursionError:
        raise Unreadable("nested too deep") from None


def _number(text: str) -> Node:
    """1,234.5, 1.5e3; 0.1\\overline{6}, 0.(3) and 0.\\dot{3} are exactly the periodic decimals."""
    text, *marked = re.split(r"[\\(]", text.replace(",", "").replace("E", "e").rstrip("."), maxsplit=1)
    if len(text) > _LONGEST_NUMBER or abs(int(text.partition("e")[2] or 0)) > _LARGEST_EXPONENT:
        raise Unreadable("a number too long")
    value = Fraction(text if text.strip(". ") else 0)
    if marked:
        period = re.sub(r"\D", "", marked[0])
        value += Fraction(int(period), 10 ** len(period) - 1) / 10 ** len(text.strip().partition(".")[2])
    return ("num", value)


_SUM, _PRODUCT, _POWER, _EXPONENT = range(4)  # how tightly operations bind
_PERCENT = ("num", Fraction(1, 100))
_MARKS = {"%": _PERCENT, "\\%": _PERCENT, "\\degree": ("mul", ("sym", "pi"), ("num", Fraction(1, 180)))}


class _Parser:
    """Precedence climbing (Pratt 1973); juxtaposition is multiplication."""

    def __init__(self, text: str) -> None:
        tokens = [(match.lastgroup or "", match[0].strip()) for match in _TOKEN.finditer(text)]
        if len(tokens) >= _MAX_TOKENS:
            raise Unreadable("the expression is too long")
        self.tokens = [("", ""), *reversed(tokens)]  # the next one is the last
        self.last = ("", "")
        self.bars = 0  # open |…|

    def pop(self) -> tuple[str, str]:
        self.last = self.tokens.pop()
        return self.last

    def accept(self, *values: str) -> str:
        """The next token's text if it is one of these; it is passed then."""
        return self.pop()[1] if self.tokens[-1][1] in values else ""

    def expect(self, value: str) -> None:
        if self.pop()[1] != value:
            raise Unreadable(f"{self.last[1]!r} in place of {value!r}")

    def expression(self, floor: int = _SUM) -> Node:
        """The longest expression from here whose operations bind at least as tightly as `floor`; an exponent is a
        group, a signed exponent (2^-1) or one token."""
        if sign := self.accept("+", "-"):
            if self.tokens[-1][1] in ("+", "-"):
                raise Unreadable("two signs in a row")  # --3 is 3 or a dash before 3
            part = self.expression(max(floor, _PRODUCT))
            node = ("neg", part) if sign == "-" else part
        else:
            node = self.atom()
        while True:
            if self.accept("^"):  # 2^3^2 is right-associative
                node = ("pow", node, self.expression(_EXPONENT))
            elif floor < _EXPONENT and (mark := self.accept("!", *_MARKS)):
                node = ("fact", node) if mark == "!" else ("mul", node, _MARKS[mark])
            elif floor <= _PRODUCT and (mark := self.accept("*", "/")):
                part = self.expression(_POWER)
                node = _joined("mul", node, part if mark == "*" else ("inv", part))
            elif floor <= _PRODUCT and self.starts_factor():
                node = _joined("mul", node, self.expression(_POWER))
            elif floor <= _SUM and (sign := self.accept("+", "-")):
                part = self.expression(_PRODUCT)
                node = _joined("add", node, ("neg", part) if sign == "-" else part)
            else:
                return node

    def starts_factor(self) -> bool:
        kind, value = self.tokens[-1]
        if kind == "num" == self.last[0]:
            raise Unreadable("two numbers side by side")
        plain = kind in ("num", "symbol") or value.lstrip("\\") in _STARTS
        return plain or (value == "|" and not self.bars)

    def inside(self, closing: str) -> Node:
        """The whole expression up to a closing bracket, or up to the end."""
        node = self.expression()
        self.expect(closing)
        return node

    def atom(self) -> Node:
        kind, value = self.pop()
        if kind == "num":
            return _number(value)
        if kind == "symbol":  # an unknown or a constant, with its subscript
            name = re.sub(r"\\mathrm|[\s{}\\]", "", value)
            return ("sym", re.sub(r"^([A-Za-z])(?=\d)", r"\1_", name))  # H2O is no product of H, 2 and O
        if value in _CLOSING:
            self.bars += value == "|"
            node = self.inside(_CLOSING[value])
            self.bars -= value == "|"
            return ("fn", _AROUND[value], node) if value in _AROUND else node
        name = value.lstrip("\\")
        name = _ALIASES.get(name, name)
        if name == "frac":
            return ("mul", self.atom(), ("inv", self.atom()))
        if name == "binom":
            return ("fn", "binom", self.atom(), self.atom())
        if name == "sqrt":
            degree = self.inside("]") if self.accept("[") else ("num", Fraction(2))
            return ("pow", self.atom(), ("inv", degree))
        if name in ("pi", "infty"):
            return ("sym", name)
        if name not in _FUNCTIONS:
            raise Unreadable(f"{value!r} is not expected")
        return self.function(name)

    def function(self, name: str) -> Node:
        """\\sin^2 x, \\sin^{-1} x, \\log_2 8: what follows a function's name."""
        power = base = None
        while mark := self.accept("^", "_"):
            power, base = (self.expression(_EXPONENT), base) if mark == "^" else (power, self.atom())
        arguments = self.arguments(name)
        if power == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan"):
            name, power = f"a{name}", None
        node: Node = ("fn", name, *arguments)
        if base is not None:
            node = ("mul", ("fn", "ln", *arguments), ("inv", ("fn", "ln", base)))
        return node if power is None else ("pow", node, power)

    def arguments(self, name: str) -> list[Node]:
        """(a, b), or what follows without brackets up to the next sign or function: sin 2x cos y."""
        if opening := self.accept("(", "[", "{", *(["\\{"] if name in _OF_SEVERAL else [])):
            found = [self.expression()]
            while self.accept(","):
                found.append(self.expression())
            self.expect(_CLOSING[opening])
            return found
        node = self.expression(_POWER)
        while self.starts_factor() and self.tokens[-1][1].lstrip("\\") not in _CALLS:
            node = _joined("mul", node, self.expression(_POWER))
        return [node]


def _joined(kind: str, node: Node, part: Node) -> Node:
    return (*node, part) if node[0] == kind else (kind, node, part)
