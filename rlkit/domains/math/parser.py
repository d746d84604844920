"""A small parser for the mathematics of final answers, LaTeX or plain text, into nested tuples.

Nothing is evaluated while parsing, so no answer can make it hang; depth and length are bounded.

    ("num", Fraction)  ("sym", name)  ("add", …)  ("mul", …)  ("neg", a)  ("pow", a, b)  ("inv", a)
    ("fn", name, …)  ("fact", a)  ("sum" | "prod", name, low, high, body)  ("diff", name, body)
"""

from fractions import Fraction
from typing import Any

from rlkit.domains.math.tokens import Unreadable, number, repeating, tokens

Node = tuple[Any, ...]

_MAX_DEPTH = 600

_FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "log", "ln", "lg", "exp", "gcd", "lcm", "max", "min", "floor", "ceil", "abs",
}  # fmt: skip
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_CONSTANTS = {"pi": "pi", "infty": "infty", "infinity": "infty", "inf": "infty"}
_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar"
)
_GREEK = set(_LETTERS.split())
_FONTS = {"mathrm", "mathbf", "mathit", "mathsf", "operatorname", "boldsymbol", "bm", "vec", "hat", "rm"}
_STARTS = {"frac", "sqrt", "binom", "lfloor", "lceil", "{", "sum", "prod", "overline", "cfrac"}
_STARTS |= _FUNCTIONS | _GREEK | _FONTS | _CONSTANTS.keys() | _ALIASES.keys()
_CLOSING = {"(": ")", "[": "]", "\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "{": "}"}


def parse(text: str) -> Node:
    """The expression in `text`, which has been normalised. Raises Unreadable."""
    parser = _Parser(tokens(text))
    node = parser.sum()
    if parser.peek() is not None:
        raise Unreadable(f"{parser.peek()!r} is not expected")
    return node


class _Parser:
    """Recursive descent with the usual precedences; juxtaposition is multiplication."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bars = 0  # open |…|

    def peek(self, ahead: int = 0) -> str | None:
        index = self.position + ahead
        return self.tokens[index][1] if index < len(self.tokens) else None

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index][0] if index < len(self.tokens) else "end"

    def next(self) -> tuple[str, str]:
        if self.position >= len(self.tokens):
            raise Unreadable("the expression ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, value: str) -> None:
        if self.peek() != value:
            raise Unreadable(f"{value!r} is missing")
        self.position += 1

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unreadable("nested too deep")
        terms = [self.term()]
        while self.peek() in ("+", "-"):
            negative = self.next()[1] == "-"
            term = self.term()
            terms.append(("neg", term) if negative else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def term(self) -> Node:
        if self.peek() in ("+", "-"):
            negative = self.next()[1] == "-"
            term = self.term()
            return ("neg", term) if negative else term
        factors = [self.power()]
        while True:
            value = self.peek()
            if value == "*":
                self.next()
                factors.append(self.signed())
            elif value in ("/", "\\div"):
                self.next()
                factors.append(("inv", self.signed()))
            elif self.starts_factor():
                factors.append(self.power())
            else:
                return factors[0] if len(factors) == 1 else ("mul", *factors)

    def signed(self) -> Node:
        if self.peek() in ("+", "-"):
            negative = self.next()[1] == "-"
            factor = self.signed()
            return ("neg", factor) if negative else factor
        return self.power()

    def starts_factor(self) -> bool:
        kind, value = self.kind(), self.peek() or ""
        if kind in ("num", "letter", "word", "repeat"):
            return True
        if kind == "spaced":
            raise Unreadable("two numbers side by side")
        if kind == "command":
            return value[1:] in _STARTS
        return value in ("(", "[", "{") or (value == "|" and not self.bars)

    def power(self) -> Node:
        base = self.postfix(self.atom())
        if self.peek() == "^":
            self.next()
            return self.postfix(("pow", base, self.exponent()))
        return base

    def postfix(self, node: Node) -> Node:
        while self.peek() in ("!", "\\%", "%", "\\degree"):
            mark = self.next()[1]
            if mark == "!":
                node = ("fact", node)
            elif mark == "\\degree":
                node = ("mul", node, ("sym", "pi"), ("num", Fraction(1, 180)))
            else:
                node = ("mul", node, ("num", Fraction(1, 100)))
        return node

    def exponent(self) -> Node:
        """What follows ^: a group, a signed power (2^-1, 2^3^2 is right-associative) or one digit."""
        if self.peek() in ("+", "-"):
            negative = self.next()[1] == "-"
            node = self.exponent()
            return ("neg", node) if negative else node
        node = self.group() if self.peek() == "{" else self.atom(one_digit=False)
        while self.peek() == "!":
            self.next()
            node = ("fact", node)
        if self.peek() == "^":
            self.next()
            return ("pow", node, self.exponent())
        return node

    def group(self) -> Node:
        self.expect("{")
        node = self.sum()
        self.expect("}")
        return node

    def argument(self) -> Node:
        """An argument of \\frac or \\sqrt: a group or a single token (one digit of a number)."""
        if self.peek() == "{":
            return self.group()
        if self.kind() in ("num", "spaced"):
            value = self.next()[1]
            if len(value) > 1:  # \frac12: the rest of the digits is the next argument
                self.position -= 1
                self.tokens[self.position] = ("num", value[1:])
            return ("num", Fraction(value[0]))
        return self.atom()

    def atom(self, one_digit: bool = False) -> Node:
        kind, value = self.next()
        if kind in ("num", "spaced"):
            return self.mixed(number(value))
        if kind == "repeat":
            return ("num", repeating(value))
        if kind == "letter":
            return self.subscripted(value)
        if kind == "word":
            return self.named(value)
        if kind == "command":
            return self.command(value)
        if value in ("(", "[", "{"):
            node = self.sum()
            self.expect(_CLOSING[value])
            return node
        if value == "|":
            self.bars += 1
            node = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("fn", "abs", node)
        raise Unreadable(f"{value!r} is not expected")

    def mixed(self, number: Fraction) -> Node:
        """A whole number in front of a fraction of plain numbers: 3\\frac{1}{2}, 1 3/4."""
        if number.denominator != 1:
            return ("num", number)
        if self.kind() == "spaced" and self.peek(1) == "/" and self.kind(2) == "num":
            top, bottom = self.peek(), self.peek(2)
            self.position += 3
        elif self.peek() == "\\frac" and (found := self.plain_fraction()):
            top, bottom, used = found
            self.position += used
        else:
            return ("num", number)
        assert top is not None and bottom is not None
        if not (top.isdigit() and bottom.isdigit()) or int(bottom) == 0:
            raise Unreadable("not a mixed number")
        return ("num", number + Fraction(int(top), int(bottom)))

    def plain_fraction(self) -> tuple[str, str, int] | None:
        tokens = [self.peek(i) or "" for i in range(1, 7)]
        if tokens[0] == "{" == tokens[3] and tokens[2] == "}" == tokens[5]:
            return (tokens[1], tokens[4], 7) if tokens[1].isdigit() and tokens[4].isdigit() else None
        if tokens[0].isdigit() and len(tokens[0]) == 2:
            return tokens[0][0], tokens[0][1], 2
        return None

    def subscripted(self, name: str) -> Node:
        if self.peek() == "_":
            self.next()
            name += "_" + self.raw()
        return ("sym", name)

    def raw(self) -> str:
        """A subscript as text."""
        if self.peek() != "{":
            return self.next()[1]
        depth, parts = 0, []
        while True:
            value = self.next()[1]
            depth += {"{": 1, "}": -1}.get(value, 0)
            if depth == 0:
                return "".join(parts)
            if value != "{" or depth > 1:
                parts.append(value)

    def command(self, value: str) -> Node:
        name = value[1:]
        if name == "frac":
            if variable := self.derivative():
                return ("diff", variable, self.term())
            top = self.argument()
            return ("mul", top, ("inv", self.argument()))
        if name == "binom":
            top = self.argument()
            return ("fn", "binom", top, self.argument())
        if name in ("sum", "prod"):
            return self.series(name)
        if name in ("lfloor", "lceil"):
            node = self.sum()
            self.expect(_CLOSING[value])
            return ("fn", "floor" if name == "lfloor" else "ceil", node)
        if name == "{":
            node = self.sum()
            self.expect("\\}")
            return node
        if name in _GREEK:
            return self.subscripted(name)
        if name in _FONTS or name == "overline":
            return self.font(name)
        return self.named(name)

    def derivative(self) -> str:
        """The x of {d}{dx}, where that follows."""
        values = [self.peek(i) or "" for i in range(7)]
        if values[:5] + values[6:] != ["{", "d", "}", "{", "d", "}"]:
            return ""
        self.position += 7
        return values[5]

    def font(self, command: str) -> Node:
        """\\mathrm{e} is e; a longer word in a font is one symbol."""
        word = self.raw()
        if command in ("operatorname", "mathrm") and (word in _FUNCTIONS or word in _ALIASES):
            return self.named(word)
        if not word.isalnum():
            raise Unreadable(f"{word!r} is not a name")
        if command in ("vec", "hat", "overline"):
            word = f"{command} {word}"
        return self.subscripted(word)

    def named(self, name: str) -> Node:
        name = _ALIASES.get(name, name)
        if name in _CONSTANTS:
            return ("sym", _CONSTANTS[name])
        if name in ("sqrt", "cbrt"):
            return self.root(2 if name == "sqrt" else 3)
        if name in _FUNCTIONS:
            return self.function(name)
        raise Unreadable(f"\\{name} is not known")

    def root(self, order: int) -> Node:
        degree: Node = ("num", Fraction(order))
        if self.peek() == "[":
            self.next()
            degree = self.sum()
            self.expect("]")
        return ("pow", self.argument(), ("inv", degree))

    def series(self, name: str) -> Node:
        self.expect("_")
        self.expect("{")
        variable = self.next()[1]
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high = self.exponent()
        return (name, variable, low, high, self.term())

    def function(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        while self.peek() in ("^", "_"):
            if self.next()[1] == "^":
                power = self.exponent()
            else:
                base = self.argument()
        arguments = self.arguments(name)
        if power == ("neg", ("num", Fraction(1))) and name in _INVERSES:
            name, power = _INVERSES[name], None
        node: Node = ("fn", name, *arguments)
        if base is not None:
            node = ("mul", ("fn", "ln", *arguments), ("inv", ("fn", "ln", base)))
        return node if power is None else ("pow", node, power)

    def arguments(self, name: str) -> list[Node]:
        """(a, b), or what follows without brackets up to the next sign or function: sin 2x cos y."""
        if self.peek() in ("(", "[", "{"):
            closing = _CLOSING[self.next()[1]]
            found = [self.sum()]
            while self.peek() == ",":
                self.next()
                found.append(self.sum())
            self.expect(closing)
            return found
        factors = [self.signed()]
        while self.starts_factor() and not self.is_function() and self.peek() not in ("(", "[", "{"):
            factors.append(self.power())
        while self.peek() == "/" and self.kind(1) == "num":
            self.next()
            factors.append(("inv", self.power()))
        return [factors[0] if len(factors) == 1 else ("mul", *factors)]

    def is_function(self) -> bool:
        name = (self.peek() or "").lstrip("\\")
        return _ALIASES.get(name, name) in _FUNCTIONS
