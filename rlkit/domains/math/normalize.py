"""Typography removed: Unicode to LaTeX, and LaTeX that only changes how an answer looks.

The result keeps every blank that separates two digits, because `1 3/4` is not `13/4`.
"""

import re
import unicodedata

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
_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "sigma tau upsilon phi chi psi omega"
)
_GREEK = {
    chr(code): f"\\{name} "
    for code, name in zip(
        [*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA)],
        _LETTERS.split(),
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
_SIZES = r"left|right|middle|[bB]igg?[lrm]?|(?:no)?limits|(?:display|text|script)style"
_REPLACEMENTS = [
    (re.compile(r"\\(?:left|right|middle)\s*\.(?!\d)"), ""),
    (re.compile(rf"\\(?:{_SIZES})(?![A-Za-z])"), " "),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(rf"\\frac\s*\{{\s*({_ROMAN})\}}\s*\{{\s*({_ROMAN})\}}"), r" \1/(\2)"),  # m over s, as a unit
    (re.compile(r"\\frac\s*\{\s*d\s*([A-Za-z])\s*\}\s*\{\s*d\s*[A-Za-z]\s*\}"), r"\1'"),  # dy/dx
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"^\s*\\approx\s*"), ""),
    # An exact value and, for the reader, its decimal: the exact one is the answer.
    (re.compile(r"^(.*(?:\\sqrt|\\frac|\\pi|\^|/).*?)\s*\\approx\s*-?[\d.]+\s*$"), r"\1"),
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
    (re.compile(r"\\var(epsilon|phi|theta|rho|pi|sigma)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"(?<=\d)\{,\}(?=\d{3})|(?<=\d)\\[,!;: ](?=\d{3}(?!\d))"), ","),
    (re.compile(r"(?<!\\)\\(?:[,;:! ]|quad|qquad|enspace|thinspace)(?![A-Za-z])|(?<!\\)~"), " "),
    (re.compile(r"\\\$|\\(?:usd|pounds|euro)(?![A-Za-z])|\bUSD\b|[£€¥₹]"), "$"),
    (re.compile(_CONJUNCTION.format(word="and", sign="land|wedge")), r" \\and "),
    (re.compile(_CONJUNCTION.format(word="or", sign="lor|vee")), r" \\or "),
]  # fmt: skip
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
    if category == "Cf":
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
    mapped = "".join(_SYMBOLS.get(c) or _GREEK.get(c) or _ascii(c) for c in text)
    return "".join(_SYMBOLS.get(c) or _GREEK.get(c) or c for c in mapped)


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
    text = single_backslashes(from_unicode(text)).strip()
    if match := _DOLLARS.match(text):
        text = next(g for g in match.groups() if g is not None)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = text.replace("$", " ") if text.count("$") > 1 else text
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"(?:\\\\\s*)+$", "", text).strip()  # a line break at the end
    text = re.sub(r"(?<!\.)[.,;:]$", "", text).strip()
    if re.fullmatch(r"-?\d{1,3}(?: \d{3})+(?:\.\d+)?", text):
        text = text.replace(" ", "")
    return _unwrap(text)


def _unwrap(text: str) -> str:
    """`{42}` is `42`: braces that enclose everything are dropped."""
    while text.startswith("{") and text.endswith("}") and _encloses(text):
        text = text[1:-1].strip()
    return text


def _encloses(text: str) -> bool:
    depth = 0
    for index, char in enumerate(text):
        if char in "{}" and (index == 0 or text[index - 1] != "\\"):
            depth += 1 if char == "{" else -1
            if depth == 0:
                return index == len(text) - 1
    return False


def squeeze(text: str) -> str:
    """Without the blanks that mean nothing: those not between two digits or a letter and a letter."""
    text = re.sub(r"(?<=[A-Za-z0-9.]) (?=[A-Za-z0-9.])", "\0", text)
    return text.replace(" ", "").replace("\0", " ")
