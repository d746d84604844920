"""Tokens of mathematical text, and the values of its numbers."""

import re
from fractions import Fraction

_MAX_TOKENS = 30_000
_LONGEST_NUMBER, _LARGEST_EXPONENT = 4000, 5000  # characters; power of ten
_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<repeat>\d*\.\d*(?:\\overline|\\bar|\\dot)\s*\{?\s*\d+\s*\}?(?:\s*\\dot\s*\{?\d\}?)?|\d*\.\d*\(\d+\)|\d*\.\d{3,}(?:\.\.\.|\\l?dots))"
    r"|(?P<num>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?\.\d+|\d{1,3}(?:,\d{3})+(?![\d,])|\d+\.?(?!\d))(?P<sci>[eE][+-]?\d+(?![A-Za-z\d]))?"
    r"|(?P<command>\\[A-Za-z]+|\\[{}|%])"
    r"|(?P<word>arc(?:sin|cos|tan)|a?sinh?|a?cosh?|a?tanh?|sec|csc|cot|log|ln|exp|sqrt|cbrt|pi|infinity|infty|inf|floor|ceil|abs|gcd|lcm|max|min)(?![a-z])"
    r"|(?P<letter>[A-Za-z]'*)"
    r"|(?P<op>.))",
    re.DOTALL,
)


class Unreadable(ValueError):
    """The text is not an expression that this parser knows."""


def tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > _MAX_TOKENS:
            raise Unreadable("not an expression")
        kind = match.lastgroup or "op"
        if kind == "sci":
            kind = "num"
        value = match.group().strip()
        if (
            kind == "num"
            and tokens
            and tokens[-1][0] == "num"
            and text[match.start() : match.end()][0].isspace()
        ):
            kind = "spaced"
        tokens.append((kind, value))
        position = match.end()
    return tokens


def number(text: str) -> Fraction:
    text = text.replace(",", "").replace("E", "e").rstrip(".")
    if len(text) > _LONGEST_NUMBER or ("e" in text and abs(int(text.partition("e")[2])) > _LARGEST_EXPONENT):
        raise Unreadable("a number too long")
    return Fraction(text)


def repeating(text: str) -> Fraction:
    """0.1\\overline{6}, 0.(3), 0.\\dot{3}, 0.333…: exactly the periodic decimal."""
    whole, _, rest = text.partition(".")
    if match := re.fullmatch(
        r"(\d*)\s*(?:\\overline|\\bar|\\dot|\()\s*\{?\s*(\d+)\s*[})]?\s*(?:\\dot\s*\{?(\d)\}?)?", rest
    ):
        fixed, period = match.group(1), match.group(2) + (match.group(3) or "")
    else:
        digits = re.match(r"\d+", rest).group()  # type: ignore[union-attr]
        tail = re.search(r"(\d+?)\1+$", digits)
        if tail is None or (len(tail.group()) < 3):
            raise Unreadable("an ellipsis without a period")
        fixed, period = digits[: tail.start()], tail.group(1)
    nines = 10 ** len(period) - 1
    scale = 10 ** len(fixed)
    return Fraction(int(whole or 0)) + Fraction(int(fixed or 0), scale) + Fraction(int(period), nines * scale)
