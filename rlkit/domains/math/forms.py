"""An answer's text with one spelling for each sign, and its forms: a number and unit, words, a group, a relation."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from rlkit.domains import vocabulary
from rlkit.domains.math.equal_expressions import same_expression
from rlkit.domains.math.parse import FONT, OF_ONE, is_wrapped, split
from rlkit.domains.math.units import Amount, compound, split_unit
from rlkit.domains.table import NUMBERS

_RAISED = ("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", "^")
_LOWERED = ("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖ", "0123456789+-()nk", "_")
_SYMBOLS = vocabulary("unicode")
_COMMANDS = {name: sign for sign, names in vocabulary("latex").items() for name in names.split()}
_DENIED = r"[^{}]{0,60}(?:\b(?:can)?not?\b|n't|never|than|least|most|except)"
_IS = r"(?:(?:is|are|(?:would|will|should|must) be)(?: equal to)?|equals)"
_LABEL = (  # 3 of "The answer is 3", "Max: 3", "=3", "\\Rightarrow 3"
    rf"(?:\\(?:text|mathrm)\s*\{{(?!{_DENIED})"
    r"[A-Za-z][A-Za-z ]{1,60}?(?: is| are|:| is:|=| =)\s*\}"
    r"|[=:](?!=)|\\(?:approx|equiv|therefore|Rightarrow|implies|Longrightarrow|rightarrow)(?![A-Za-z]))"
)
_SCALES = {"hundred": 100, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_OF_UNIT = rf"\s*((?:{FONT}\{{[A-Za-z ]+\}}(?:\s*\^\s*(?:-?\d|\{{\s*-?\d\s*\}}))?[\s*]*)+)"
_CONJUNCTION = r"(?<![\\\w]){0}(?!\w)|\\(?:text|mathrm)\s*\{{\s*,?\s*{0}\s*,?\s*\}}"
_REWRITES: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        (r"\\begin\s*\{cases\}([^&]*)\\end\s*\{cases\}", lambda m: m[1].replace("\\\\", ", ")),
        (r"^ ?(?:\$\$?(.*?)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\]) ?\.? ?$", r"\1\2\3"),
        (r"\\(?:left|right|middle)\s*\.(?!\d)", ""),
        (r"\\([A-Za-z]+)\*?", lambda m: _COMMANDS.get(m[1], m[0])),
        (rf"^\s*{_LABEL}\s*(?=\S)", ""),
        (rf"^\s*(\\text\s*\{{)?\s*(?!{_DENIED})[A-Za-z][A-Za-z ]{{0,60}}? {_IS} (?=(?:\}} ?)?-?[\d$])", r"\1"),
        (r"\\cup\s*_\s*\{((?:[^{}]|\{[^{}]*\})*\\in(?:[^{}]|\{[^{}]*\})*)\}\s*(.+)", r"\2, \1"),
        (r"^\s*\\\{\s*([a-z])\s*[|:]\s*(\1\s*=[^=]*)\\\}\s*$", r"\2"),  # \{x | x = 2k, k \in Z\}
        (r"^\s*(?:\\text\s*\{\s*(?:[Nn]egative|[Mm]inus)\s*\}|(?:[Nn]egative|[Mm]inus)(?=\s))\s*(?=[\d.\\])", "-"),
        (rf"{FONT}\{{({'|'.join(OF_ONE.split())}|max|min|gcd|lcm)\}}", r"\\\1 "),
        (r"(?<=\S)\s*\(\s*\\approx\s*([\d.]+(?:\\?%)?)\s*\)\s*$", r" \\approx \1"),
        (r"^\s*<([^<>]*,[^<>]*)>\s*$", r"\\langle \1\\rangle "),
        (r"\\(?:text|mathrm)\s*\{\s*(?:\\?\$|USD)\s*\}|\\\$|\bUSD\b", "$"),
        (r"\\(?:color|textcolor|colorbox)\s*(?:\[[^\]]{0,20}\])?\s*\{[^{}]{0,40}\}", " "),
        (r"(?<![.\d])\.\.\.(?!\.)", r"\\ldots "),
        (r"\\(?:text|mathrm)\s*\{\s*\(?mod\s*\}|(?<![\\A-Za-z])mod(?![A-Za-z])", r" \\mod "),
        (r"\(?\s*\\mod[\s{]*([^(){}=,]*[^(){}=,\s.])[\s}).]*$", r" \\mod \1"),
        (r"\\(frac|binom)\s*(\d)\s*(\d)", r"\\\1{\2}{\3}"),
        (rf"\\frac\s*\{{{_OF_UNIT}\}}\s*\{{{_OF_UNIT}\}}", r" \1/(\2)"),  # m over s
        (r"\{([^{}\\]{1,100})\\choose(?![A-Za-z])([^{}\\]{1,100})\}", r"\\binom{\1}{\2}"),
        (r"\\mathbb\s*([A-Z])(?![A-Za-z])", r"\\mathbb{\1}"),
        (rf"^\s*([+-]?)\s*(?:{FONT}\{{\s*)?[Ii]nfinity\s*\}}?\s*$", r"\1\\infty "),
        (r"\\text\s*\{([^{}]{0,60}?[^{}\s])\s(and|or)\s*\}", r"\\text{\1} \2 "),  # 2\text{ hens and }3
        (r"\\frac\s*\{\s*d\s*([A-Za-z])\s*\}\s*\{\s*d\s*[A-Za-z]\s*\}", r"\1'"),  # dy/dx
        (r"(?<=\d) ?[xX] ?(?=10 ?\^)", "*"),  # 3 x 10^8
        (r"<=", r"\\le "), (r">=", r"\\ge "), (r"(?<![\d)}])!=", r"\\ne "), (r"\*\*", "^"),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\(?:circ|degree)(?![A-Za-z])", r"\\degree "),
        (r"\^ ?\{? ?((?:\\prime ?)+)\}?", lambda m: "'" * m[1].count("p")),
        (r"(?<=\d)\{,\}(?=\d{3})|(?<=\d),?\\!(?=\d{3}(?!\d))|(?<=\d)\\[,;: ](?=\d{3}(?!\d))", ","),  # thousands
        (r"(?<!\\)\\[,;:! ]|(?<!\\)~", " "),
        (r"(?<![\d.])(\d{1,9}) *\\degree *(\d\d?) *'(?!') *(?:(\d\d?) *(?:''|\"))?", r"(\1+\2/60+0\3/3600)\\degree "),
        (rf"(?<=\d)\s*(\\text\s*\{{\s*)?({'|'.join(_SCALES)})s?\b", lambda m: f"*{_SCALES[m[2]]}{m[1] or ''}"),
        (rf"{FONT}\{{\s*\}}", " "),
        (_CONJUNCTION.format("(?:and|AND)"), r" \\and "),
        (_CONJUNCTION.format("(?:or|OR)"), r" \\or "),
        (r"(?<=\S)\s*(\\text\s*\{\s*)?\( *\\or ([^()]*)\)(?(1)\s*\})\s*$", r" \\or \2"),
        (r"\\equiv(?=.*\\mod)", "="),
        (r"^(-?(?:\\frac ?\{\d+\} ?\{\d+\}|\d+/\d+)) *(?:\\text\{ *)?\( *(\d*\.\d+|\d+\\?%) *\)\}?$", r"\1 \\or \2"),
        (r"^(.*(?:\\sqrt|\\frac|\\pi|\^|/).*)\\approx *-?[\d.]+ *(?:\\?%)? *$", r"\1"),  # for the reader
        (r"^ *-?\d{1,3}(?: \d{3})+(?:\.\d+)? *$", lambda m: m[0].replace(" ", "")),
    )
]  # fmt: skip

_BOLD = re.compile(  # a formula that is bold as a whole
    FONT + r"(\{(?:.*\\(?:frac|sqrt|binom|pi)(?![A-Za-z])|\s*[-+(]?\d[^{}]*\^).*\})"
)


def _latex(char: str) -> str:
    """A Unicode character as LaTeX or ASCII; "" for one without width."""
    if char in _SYMBOLS or unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f":
        return _SYMBOLS.get(char, "")
    plain = unicodedata.normalize("NFKC", char)
    if "⁄" in plain:
        return rf"\frac{{{plain.replace('⁄', '}{')}}}"
    if match := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(plain[:1], "")):
        return f"\\{match[2].lower() if match[1] == 'SMALL' else match[2].capitalize()} "
    return _SYMBOLS.get(plain, plain)


def from_unicode(text: str) -> str:
    """Unicode mathematics as LaTeX and ASCII."""
    if text.isascii():
        return text
    for small, plain, sign in (_RAISED, _LOWERED):
        text = re.sub(f"([{small}]+)", rf"{sign}{{\1}}", text).translate(str.maketrans(small, plain))
    text = re.sub("((?:[0-9]\u0305)+)", lambda m: rf"\overline{{{m[0].replace(chr(0x305), '')}}}", text)
    return "".join(map(_latex, text))


@lru_cache(2048)  # a truth is compared with the answers of a whole group
def normalize(text: str) -> str:
    """An answer with one spelling for each sign, and without dollars, sizes of brackets and labels."""
    text = from_unicode(text)
    odd = re.search(r"(?<!\\)\\(?:\\\\)*(?!\\)", text)
    if not odd and re.search(r"\\\\(?:[A-Za-z]{2}|[{}%|$,;!])", text):  # it was escaped twice
        text = text.replace("\\\\", "\\")
    for pattern, replacement in _REWRITES:
        if pattern.search(text):  # a substitution takes three times as long
            text = pattern.sub(replacement, text)
    text = re.sub(r"\s+", " ", text.replace("$", " ") if text.count("$") > 1 else text).strip()
    text = re.sub(r"(?<!\.)[.,;:]$", "", re.sub(r"(?: ?\\\\)+$", "", text)).strip()
    if (whole := _BOLD.fullmatch(text)) and is_wrapped(whole[1]):
        text = whole[1]
    return text[1:-1].strip() if text.startswith("{") and is_wrapped(text) else text


@lru_cache(2048)
def squeeze(text: str) -> str:
    """Without what means nothing: blanks that are not between two digits or letters, braces around one character."""
    text = re.sub(r"(?<=[\^_])\s*\{\s*(\w|\\[A-Za-z]+)\s*\}", r"\1", text)
    text = re.sub(r"(?<=[A-Za-z0-9.]) (?=[A-Za-z0-9.])", "\0", text)
    return text.replace(" ", "").replace("\0", " ")


class Group(NamedTuple):
    """Parts in brackets: "()", "[)", "{}" …; "" for a bare list, "named" for `x=2, y=1`, "cup" for a union,
    ":" for a ratio, whose parts are divided by the first, and "matrix", whose parts are rows such as (1,2)."""

    brackets: str
    parts: list[str]


class Relation(NamedTuple):
    """operands[0] operators[0] operands[1] …"""

    operands: list[str]
    operators: list[str]


Form = Amount | str | Group | Relation  # a text is plain words in lower case, without typography

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
IN_FONT = re.compile(FONT + r"\{([^{}]*)\}")
_NAME = re.compile(
    r"(?:\\?(?:sin|cos|tan|cot|sec|csc|log|ln|lim|max|min|m?\\angle|triangle|det|dim)\s*(?:_\{[^{}]*\})?\s*)?"
    r"\|?(?:\\?[A-Za-z]+|\\(?:mathrm|text|mathcal)\s*\{[^{}]*\}"
    r"|\\(?:overline|vec|hat|bar|tilde|overrightarrow|widehat)\s*\{?\s*[A-Za-z]+\s*\}?)'*"
    r"(?:_(?:\{[^{}]*\}|\\?[A-Za-z0-9]+))?(?:\^\{?-1\}?|'+)?(?:\s*[(\[]\s*[A-Za-z0-9, ]+\s*[)\]])?\|?"
    r"|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)|\[[A-Z]+\]"
)
_ENVIRONMENT = re.compile(
    r"[\[(]?\s*\\begin\s*\{(?P<name>[pbB]?(?:small)?matrix|array)\}\s*(?:\{[lcr| ]*\})?(?P<body>(?s:.*))"
    r"\\end\s*\{(?P=name)\}\s*[\])]?"
)
_BRACKETS = re.compile(r"(\\\{|\\langle(?![A-Za-z])|[(\[{])(.*?)(\\\}|\\rangle|[)\]}])", re.DOTALL)
_THOUSANDS = re.compile(rf"(\$?-?\d{{1,3}}(?:,\d{{3}})+(?!\d)(?:\.\d+)?)(?=$|\s*(?:{FONT}|[A-Za-z*]))")
_TIME = re.compile(r"0*(\d{1,2}:\d{2}(?::\d{2})?)(?:([ap])\.?m\.?)?", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Za-z](?:\^\d)?(?: [A-Za-z](?:\^\d)?)*")
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) )?no (?:(?:real|integer|such|positive|valid|possible|integral) )*(?:solutions?|roots?"
    r"|values?|numbers?|integers?)(?: exists?)?|none(?: exists?)?|(?:the )?(?:empty|null) set"
)


def read_forms(text: str) -> Iterator[Form]:
    """Every sensible reading of a normalised answer, the likeliest first; most have one."""
    if (match := IN_FONT.fullmatch(text)) and re.search(r"\d|[A-Z]\s*,\s*[A-Z](?![a-z])", match[1]):
        text = match[1]
    text = _THOUSANDS.sub(lambda m: m[1].replace(",", ""), text.strip(), count=1)
    if match := _ENVIRONMENT.fullmatch(text):
        rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
        cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
        yield Group("matrix", [f"({','.join(row)})" for row in cells])
        if all(len(row) == 1 for row in cells) and len(cells) > 1:
            yield Group("()", [row[0] for row in cells])  # a column vector as a point
    elif "\\pm" in text or "\\mp" in text:
        plus, minus = (text.replace("\\pm", s).replace("\\mp", t) for s, t in ("+-", "-+"))
        yield Group("{}", [part.strip().removeprefix("+").strip() for part in (plus, minus)])
    elif len(parts := _list(text)) > 1:
        yield compound(text) or _named(parts) or Group("", parts)
    elif len(parts := split(text, {"\\cup"})[0]) > 1:
        yield Group("cup", parts)
    elif len((found := split(text, RELATIONS))[0]) > 1:
        yield Relation(*found)
    elif bracketed := _bracketed(text):
        yield bracketed
        if bracketed.brackets == "{}" and len(bracketed.parts) == 1:
            members = read_forms(bracketed.parts[0])  # \{3\} may say 3, \{\emptyset\} not \emptyset
            yield from (form for form in members if not (isinstance(form, Group) and form.brackets == "{}"))
        if bracketed.brackets == "[]" and all(re.fullmatch(r"\[[^][]*\]", row) for row in bracketed.parts):
            yield Group("matrix", [f"({row[1:-1]})" for row in bracketed.parts])
    else:
        yield from _single(text)


def _list(text: str) -> list[str]:
    """The parts of a bare list: at commas, semicolons, "and", "or"."""
    if re.search(r", |;|\\(?:and|or)\b", text):  # in 1,000, 2,000 a comma is part of a number
        text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "\0", text)
    return [part.replace("\0", ",") for part in split(text, {",", ";", "\\and", "\\or"})[0] if part]


def _named(parts: list[str]) -> Group | None:
    """`y=3, x=2` sorted by the names; None where a part has no name of its own."""
    named = {part.partition("=")[0].strip(): part for part in parts if split(part, RELATIONS)[1] == ["="]}
    complete = len(named) == len(parts) and all(map(is_name, named))
    return Group("named", [named[name] for name in sorted(named)]) if complete else None


def _bracketed(text: str) -> Group | None:
    """(a, b), [a, b), \\{a, b\\}, \\langle a, b\\rangle as a whole; all but a set's need a comma."""
    match = _BRACKETS.fullmatch(text)
    if match is None or not is_wrapped(text):
        return None
    parts = _list(match[2])
    if ("|" in match[2]) if match[1] == "\\{" else len(parts) < 2:
        return None  # a set described by a condition; an expression in brackets
    brackets = (match[1] + match[3]).replace("\\langle", "(").replace("\\rangle", ")").replace("\\", "")
    return Group(brackets, parts)


def _single(text: str) -> Iterator[Form]:
    """Readings of what has no parts."""
    if match := _TIME.fullmatch(re.sub(rf"{FONT}|[{{}}~\s]", "", text)):  # without a.m. or p.m. it is either
        yield from (f"{match[1]} {half}m" for half in (match[2] or "ap").lower())
        return
    if len(parts := split(text, {":"})[0]) > 1 and all(parts):
        yield Group(":", [f"({part})/({parts[0]})" for part in parts])
        ratio = f"({parts[0]})/({parts[1]})"
        if len(parts) == 2 and not same_expression(ratio, rf"\lfloor {ratio} \rfloor"):
            yield Amount(ratio)  # 2:1 is no way to write 2
        return
    words = _words(text)
    if words and (count := NUMBERS.get(words.replace(" ", "-"))) is not None:
        yield Amount(str(count))
    if text == "\\emptyset" or (words and _NOTHING.fullmatch(words)):
        yield Group("{}", [])
    if words is not None and (len(words) > 1 or not text.isalpha()):
        words = words.removeprefix("there are ").replace("many solutions", "many")
        yield re.sub(r"^(?:(?:the )?limit )?does not exist$", "dne", words)
        return
    amount = compound(text) or split_unit(text)
    yield amount
    if _LETTERS.fullmatch(amount.unit):  # 3 m is also 3 times m
        yield Amount(text)
    if amount.unit in ("degree", "degrees", "deg"):
        yield Amount(f"({amount.number})*\\pi/180", "rad")


def _words(text: str) -> str | None:
    """The plain lower-case words if the answer is text, else None."""
    bare = re.sub(FONT, "", text)
    marked = bare != text or re.fullmatch(r"[A-Za-z](?!'+$)[A-Za-z' .-]*", text)
    if not marked or re.search(r"\\(?:frac|sqrt|pi)(?![A-Za-z])", bare):
        return None  # or a formula and its unit
    plain = re.sub(r"[{}~$\"\\]", " ", bare)
    if not re.fullmatch(r"[\s(]*[A-Za-zÀ-ɏ][^=<>+*/^_]*", plain) or re.search(r"\d\s{0,3}[A-Za-z]*$", plain):
        return None
    words = re.sub(r"[\s.,;:!?'()-]+", " ", plain).strip()
    spoken = re.fullmatch(r"\w|[Nn]o|NO|[A-Z]{3,}", words)  # HTT: tosses in their order
    spoken = spoken or (re.search(r"[aeiouyAEIOUY]", words) and len(words.replace(" ", "")) >= 3)
    if bare == text and not spoken:
        return None
    return words.casefold() if len(words) > 1 else words


def is_name(text: str) -> bool:
    """A symbol, a function's left side or a named quantity: x, a_n, f(x), \\mathrm{Area}, \\overline{AB}."""
    text = text.strip()
    return len(text) < 60 and _NAME.fullmatch(text) is not None and text not in ("\\pi", "e", "i", "\\infty")
