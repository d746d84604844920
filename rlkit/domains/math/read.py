"""Reading the mathematics of a final answer: typography removed, then tokens, then an expression as nested tuples.

Nothing is evaluated while reading, so no answer can make it hang; depth and length are bounded.

    ("num", Fraction)  ("sym", name)  ("add", …)  ("mul", …)  ("neg", a)  ("pow", a, b)  ("inv", a)
    ("fn", name, …)  ("fact", a)  ("sum" | "prod" | "int", name, low, high, body)  ("diff", name, body)
"""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_RATIONAL = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<number>[0-9]*\.?[0-9]+|[0-9]+\.)"
    r"|(?P<a>[0-9]+)\s*/\s*(?P<b>[+-]?[0-9]+)"
    r"|\\[dt]?frac\s*\{\s*(?P<c>[+-]?[0-9]+)\s*\}\s*\{\s*(?P<d>[+-]?[0-9]+)\s*\}"
    r"|\\[dt]?frac\s*(?P<e>[0-9])\s*(?P<f>[0-9]))"
)
_LONGEST_NUMBER = 4000  # characters; Python refuses to convert longer digit strings


def same_integer(a: str, b: str) -> bool | None:
    """Whether two plain whole numbers are equal; None if one is something else."""
    if _INTEGER.fullmatch(a) and _INTEGER.fullmatch(b):
        return int(a) == int(b)
    return None


def rational(text: str) -> Fraction | None:
    """The value of a whole number, a decimal, a/b or \\frac{a}{b}; None for anything else."""
    match = _RATIONAL.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        return None
    if match["number"]:
        value = Fraction(match["number"].rstrip("."))
    else:
        top, bottom = match["a"] or match["c"] or match["e"], match["b"] or match["d"] or match["f"]
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
    return -value if match["sign"] == "-" else value


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖ", "0123456789+-()nk")
_RAISED = re.compile(f"[{''.join(map(chr, _SUPERSCRIPTS))}]+")
_LOWERED = re.compile(f"[{''.join(map(chr, _SUBSCRIPTS))}]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")

_SYMBOLS = {
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": "*", "÷": r"\div ", "⁄": "/",
    "∕": "/",
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "±": r"\pm ", "∓": r"\mp ",
    "≤": r"\le ", "≦": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "≧": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "≡": r"\equiv ", "∞": r"\infty ", "√": r"\sqrt ", "∛": r"\sqrt[3]",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "⊂": r"\subset ",
    "°": r"^\circ ", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "…": r"\ldots ",
    "→": r"\to ", "∠": r"\angle ", "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "。": ".", "，": ",", "、": ",", "：": ":", "；": ";",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
}  # fmt: skip
_GREEK_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "sigma tau upsilon phi chi psi omega"
)
_GREEK_SIGNS = {
    chr(code): f"\\{name} "
    for code, name in zip(
        [*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA)],
        _GREEK_LETTERS.split(),
        strict=True,
    )
} | {"Γ": r"\Gamma ", "Δ": r"\Delta ", "Θ": r"\Theta ", "Λ": r"\Lambda ", "Σ": r"\Sigma ", "Φ": r"\Phi ",
     "Ψ": r"\Psi ", "Ω": r"\Omega ", "Π": r"\Pi ", "ϕ": r"\phi ", "µ": r"\mu "}  # fmt: skip

_CONJUNCTION = (
    r"(?<![\\\w]){word}(?!\w)|\\(?:text|textrm|mathrm|mbox)\s*\{{\s*,?\s*{word}\s*,?\s*\}}"
    r"|\\(?:{sign})(?![A-Za-z])"
)
_WORD = r"\\(?:text|mathrm|textrm|rm|mbox)\s*\{\s*[A-Za-z]+\s*\}"
_ROMAN = rf"(?:{_WORD}(?:\s*\^\s*\{{?\s*-?\d\s*\}}?)?(?:\s|\\[,;]|\\cdot)*)+"
_SIZES = (
    r"left|right|middle|[bB]igg?[lrm]?|(?:no)?limits|(?:display|text|script)style"
    r"|[lL]arge|LARGE|[hH]uge|tiny|small"
)
_COLOUR = r"\\(?:color|textcolor|colorbox|definecolor)\s*(?:\[[^\]]{0,20}\])?\s*\{[^{}]{0,40}\}"
_LABEL = (  # 3 of "The answer is 3", "Max: 3", "=3", "\\Rightarrow 3"
    r"(?:\\(?:text|textbf|mathrm|mbox)\s*\{(?![^{}]{0,60}(?:\bnot?\b|n't|than|least|most|except))"
    r"[A-Za-z][A-Za-z ]{2,60}?(?: is|:| is:|=| =)\s*\}"
    r"|[=:](?!=)|\\(?:therefore|Rightarrow|implies|Longrightarrow|rightarrow)(?![A-Za-z]))"
)
_REPLACEMENTS = [
    (re.compile(rf"^\s*{_LABEL}\s*(?=\S)"), ""),
    (re.compile(r"^\s*(\\(?:text|textbf)\s*\{)(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is:?|:| =)\s*"), r"\1"),
    (re.compile(r"\\(?:text|mathrm)\s*\{\s*(?:\\?\$|USD)\s*\}|\\textdollar(?![A-Za-z])"), r"\$"),
    (re.compile(r"\\(?:text|textbf|mathrm)\s*\{\s*(-?\d[\d.]*)\s*\}(?!\s*_)"), r" \1 "),
    (re.compile(r"\\text\s*\{\s*[.,;]?\s*\}\s*$"), ""),
    (re.compile(r"\\(?:operatorname\*?|text|mathrm)\s*\{(max|min|gcd|lcm)\}(?=\s*[(\\=])"), r"\\\1 "),
    (re.compile(r"\\(?:mathbf|mathrm|textbf|boldsymbol|bm|bf|rm)\s*(?=-?[\d.,]+\s*\}?\s*$)"), ""),
    (re.compile(r"\\surd(?![A-Za-z])"), r"\\sqrt "),
    (re.compile(r"(?<=[+-])\s*\\text\s*\{\s*([A-Z])\s*\}"), r"\1"),
    (re.compile(r"(?<=\S)\s*\\text\s*\{\s*\((?:approximately|approx\.?|about)\s*([\d.]+)\)\s*\}"), r" \\approx \1"),
    (re.compile(rf"{_COLOUR}|\\(?:underline|uline|underset\s*\{{\s*\}})(?![A-Za-z])"), " "),
    (re.compile(r"\{\s*\{([^{}]*)\}\s*\}"), r"{\1}"),
    (re.compile(r"\\(?:dots[cbm]?|cdots|hdots|vdots)(?![A-Za-z])|(?<!\.)(?<!\d)\.\.\.(?!\.)"), r"\\ldots "),
    (re.compile(r"\\(?:pmod|bmod|pod|mod)(?![A-Za-z])|\\(?:text|mathrm|operatorname)\s*\{\s*\(?mod\s*\}"), r" \\mod "),
    (re.compile(r"(?<![\\A-Za-z])mod(?![A-Za-z])"), r" \\mod "),
    (re.compile(r"\\cong(?=[^=]*\\mod)"), r"\\equiv "),
    (re.compile(r"\\(?:left|right|middle)\s*\.(?!\d)"), ""),
    (re.compile(rf"\\(?:{_SIZES})(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:[dtcsx]|nice)frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(rf"\\frac\s*\{{\s*({_ROMAN})\}}\s*\{{\s*({_ROMAN})\}}"), r" \1/(\2)"),  # m over s, as a unit
    (re.compile(r"\\(text|mathrm|textrm|mbox)\s*\{([^{}]{0,60}?[^{}\s])\s(and|or)\s*\}"), r"\\\1{\2} \3 "),  # hens and
    (re.compile(r"\\(text|mathrm|textrm|mbox)\s*\{\s*(and|or)\s([^{}]{1,60})\}"), r" \2 \\\1{\3}"),
    (re.compile(r"\\frac\s*\{\s*d\s*([A-Za-z])\s*\}\s*\{\s*d\s*[A-Za-z]\s*\}"), r"\1'"),  # dy/dx
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"^\s*\\approx\s*"), ""),
    (re.compile(r"\{([^{}\\]{1,100})\\choose(?![A-Za-z])([^{}\\]{1,100})\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\\mathbb\s*([A-Z])(?![A-Za-z])"), r"\\mathbb{\1}"),
    (re.compile(r"\\(?:leq|leqslant)(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant)(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\neq(?![A-Za-z])"), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"!="), r"\\ne "),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\lbrack(?![A-Za-z])"), "["),
    (re.compile(r"\\rbrack(?![A-Za-z])"), "]"),
    (re.compile(r"\\lparen(?![A-Za-z])"), "("),
    (re.compile(r"\\rparen(?![A-Za-z])"), ")"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])"), "|"),
    (re.compile(r"\\(?:ast|cdot|times)(?![A-Za-z])"), "*"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])|\\degree(?:s)?(?![A-Za-z])"), r"\\degree "),
    (re.compile(r"\\(?:varnothing|O)(?![A-Za-z])"), r"\\emptyset "),
    (re.compile(r"\\(?:bold|bf|boldmath)(?![A-Za-z])"), r"\\mathbf "),
    (re.compile(r"\\var(epsilon|phi|theta|rho|pi|sigma)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"(?<=\d)\{,\}(?=\d{3})|(?<=\d)\\[,!;: ](?=\d{3}(?!\d))"), ","),
    (re.compile(r"(?<!\\)\\(?:[,;:! ]|(?:q?quad|enspace|thinspace)(?![A-Za-z]))|(?<!\\)~"), " "),
    (re.compile(r"\\\$|\\(?:usd|pounds|euro)(?![A-Za-z])|\bUSD\b|[£€¥₹]"), "$"),
    (re.compile(_CONJUNCTION.format(word="and", sign="land|wedge")), r" \\and "),
    (re.compile(_CONJUNCTION.format(word="or", sign="lor|vee")), r" \\or "),
]  # fmt: skip
_EXACT = re.compile(r"\\sqrt|\\frac|\\pi|\^|/")
_DOLLARS = re.compile(
    r"^\s*(?:\$\$?(?P<a>.*?)\$\$?|\\\((?P<b>.*)\\\)|\\\[(?P<c>.*)\\\])\s*\.?\s*$", re.DOTALL
)


_BACKSLASHES = re.compile(r"\\+")
_ESCAPED_TWICE = re.compile(r"\\\\(?:[A-Za-z]{2}|[{}%|$,;!])")


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match.group()).partition("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}" if bottom else match.group()


def _ascii(char: str) -> str:
    """Digits of any script and full-width forms in ASCII; characters without width removed."""
    if char < "\x80":
        return char if char >= " " or char in "\n\t" else " "
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    category = unicodedata.category(char)
    if category == "Cf" or "\ufe00" <= char <= "\ufe0f":  # without width, or a variant of the sign before
        return ""
    if category == "Zs":
        return " "
    return unicodedata.normalize("NFKC", char)


def from_unicode(text: str) -> str:
    """Unicode mathematics as LaTeX and ASCII."""
    if text.isascii():
        return text
    text = _VULGAR.sub(_vulgar, text)
    text = _RAISED.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
    text = re.sub(r"√\s*([0-9]+(?:\.[0-9]+)?)", r"\\sqrt{\1}", text)
    text = re.sub("((?:[0-9]\u0305)+)", lambda m: rf"\overline{{{m.group().replace(chr(0x305), '')}}}", text)
    text = re.sub(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))", ",", text)  # thousands
    mapped = "".join(_SYMBOLS.get(c) or _GREEK_SIGNS.get(c) or _ascii(c) for c in text)
    return "".join(_SYMBOLS.get(c) or _GREEK_SIGNS.get(c) or c for c in mapped)


def single_backslashes(text: str) -> str:
    """Text that was escaped twice, read as meant: every backslash is one of a pair, and some pair begins a command.

    A row separator among single backslashes stays as it is.
    """
    runs = _BACKSLASHES.findall(text)
    if any(len(run) % 2 for run in runs) or not _ESCAPED_TWICE.search(text):
        return text
    return text.replace("\\\\", "\\")


def normalize(text: str) -> str:
    """One answer, without dollars, sizes of brackets, spacing commands and a final full stop."""
    text = re.sub(r"\s+", " ", single_backslashes(from_unicode(text))).strip()
    if match := _DOLLARS.match(text):
        text = next(g for g in match.groups() if g is not None)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    exact, sign, decimal = text.rpartition("\\approx")
    if sign and _EXACT.search(exact) and re.fullmatch(r"\s*-?[\d.]+\s*", decimal):
        text = exact  # the decimal was for the reader
    text = text.replace("$", " ") if text.count("$") > 1 else text
    text = re.sub(r"\s+", " ", text).strip()
    while text.endswith("\\\\"):  # a line break at the end
        text = text[:-2].rstrip()
    text = re.sub(r"(?<!\.)[.,;:]$", "", text).strip()
    if re.fullmatch(r"-?\d{1,3}(?: \d{3})+(?:\.\d+)?", text):
        text = text.replace(" ", "")
    return _unwrapped(text)


def _unwrapped(text: str) -> str:
    """`42` for `{42}`: without the braces that enclose everything."""
    closing: dict[int, int] = {}
    stack: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match.group() == "{":
            stack.append(match.start())
        elif match.group() == "}" and stack:
            closing[stack.pop()] = match.start()
    start, end = 0, len(text)
    while start < end and text[start] == "{" and closing.get(start) == end - 1:
        start, end = start + 1, end - 1
        while start < end and text[start] == " ":
            start += 1
        while start < end and text[end - 1] == " ":
            end -= 1
    return text[start:end]


def squeeze(text: str) -> str:
    """Without the blanks that mean nothing: those not between two digits or a letter and a letter."""
    text = re.sub(r"(?<=[A-Za-z0-9.]) (?=[A-Za-z0-9.])", "\0", text)
    return text.replace(" ", "").replace("\0", " ")


_MAX_TOKENS = 30_000
_LONGEST_PERIOD, _LARGEST_EXPONENT = 200, 5000  # characters; power of ten
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
    if len(text) > _LONGEST_PERIOD:
        raise Unreadable("a periodic decimal too long")
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


Node = tuple[Any, ...]

_MAX_DEPTH = 100

_FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "log", "ln", "lg", "exp", "gcd", "lcm", "max", "min", "floor", "ceil", "abs",
}  # fmt: skip
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_CONSTANTS = {"pi": "pi", "infty": "infty", "infinity": "infty", "inf": "infty"}
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar"
)
_GREEK = set(_GREEK_NAMES.split())
_STYLES = {"mathrm", "mathbf", "mathit", "mathsf", "operatorname", "boldsymbol", "bm", "vec", "hat", "rm"}
_STARTS = {"int", "frac", "sqrt", "binom", "lfloor", "lceil", "{", "sum", "prod", "overline", "cfrac"}
_STARTS |= _FUNCTIONS | _GREEK | _STYLES | _CONSTANTS.keys() | _ALIASES.keys()
_CLOSING = {"(": ")", "[": "]", "\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "{": "}"}


def parse(text: str) -> Node:
    """The expression in `text`, which has been normalised.

    Raises:
        Unreadable: it is no expression, or nested too deep.
    """
    node = _parsed(text)
    if isinstance(node, str):
        raise Unreadable(node)
    return node


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Node | str:
    """The expression, or why the text is none."""
    try:
        parser = _Parser(tokens(text))
        node = parser.sum()
    except Unreadable as error:
        return str(error)
    except RecursionError:
        return "nested too deep"
    return node if parser.peek() is None else f"{parser.peek()!r} is not expected"


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
            if self.peek() in ("+", "-"):
                raise Unreadable("two signs in a row")  # --3 is 3 or a dash before 3
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
        if not (top.isdigit() and bottom.isdigit()) or max(len(top), len(bottom)) > 4000 or int(bottom) == 0:
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
        if name == "int":
            return self.integral()
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
        if name in _STYLES or name == "overline":
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

    def integral(self) -> Node:
        """\\int_a^b f(x) dx with bounds, up to its differential."""
        self.expect("_")
        low = self.argument()
        self.expect("^")
        high = self.argument()
        end = next(
            (
                i
                for i in range(self.position, len(self.tokens) - 1)
                if self.tokens[i][1] == "d" and self.tokens[i + 1][0] in ("letter", "command")
            ),
            None,
        )
        if end is None:
            raise Unreadable("an integral without its differential")
        variable = self.tokens[end + 1][1].lstrip("\\")
        inner = _Parser(self.tokens[self.position : end])
        body = inner.sum() if inner.tokens else ("num", Fraction(1))
        if inner.peek() is not None:
            raise Unreadable("an integrand that is not read")
        self.position = end + 2
        return ("int", variable, low, high, body)

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
        if self.peek() in ("(", "[", "{") or (self.peek() == "\\{" and name in ("max", "min", "gcd", "lcm")):
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
