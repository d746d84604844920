"""An answer's text with one spelling for each sign: Unicode, fonts, sizes, labels and blanks of LaTeX."""

import re
import unicodedata

from rlkit.domains.math.parse import is_wrapped

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖ", "0123456789+-()nk")
_RAISED = re.compile(f"[{''.join(map(chr, _SUPERSCRIPTS))}]+")
_LOWERED = re.compile(f"[{''.join(map(chr, _SUBSCRIPTS))}]+")
_SYMBOLS = {
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "⁄": "/", "∕": "/",
    "−": "-", "–": "-", "—": "-", "‐": "-", "±": r"\pm ", "∓": r"\mp ",
    "≤": r"\le ", "≦": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "≧": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "≡": r"\equiv ", "∞": r"\infty ", "∝": r"\propto ", "√": r"\sqrt ", "∛": r"\sqrt[3]",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"\degree ", "′": "'", "’": "'", "‘": "'",
    "“": '"', "”": '"', "→": r"\to ", "∠": r"\angle ", "△": r"\triangle ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "。": ".", "、": ",", "£": "$", "€": "$", "¥": "$", "₹": "$",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
}  # fmt: skip
_COMMANDS = {
    name: command
    for command, names in {
        r"\text": "textrm textbf textit textsf mbox emph", r"\frac": "dfrac tfrac cfrac sfrac xfrac nicefrac",
        r"\mathrm": "mathbf mathit mathsf operatorname boldsymbol bm bold boldmath rm bf", r"\sqrt": "surd",
        r"\binom": "dbinom tbinom", r"\ldots ": "dots dotsc dotsb dotsm cdots hdots vdots",
        r"\mod ": "pmod bmod pod", r"\equiv ": "cong", r"\le ": "leq leqslant", r"\ge ": "geq geqslant",
        r"\ne ": "neq", "<": "lt", ">": "gt", r"\{": "lbrace", r"\}": "rbrace", "[": "lbrack", "]": "rbrack",
        "(": "lparen", ")": "rparen", "|": "lvert rvert vert mid", "*": "ast cdot times", r"\degree ": "degrees",
        r"\emptyset ": "varnothing O", r"\and ": "land wedge", r"\or ": "lor vee", r"\$": "textdollar usd pounds euro",
        r"\epsilon ": "varepsilon", r"\phi ": "varphi", r"\theta ": "vartheta", r"\rho ": "varrho",
        " ": "left right middle big bigl bigr Big Bigl Bigr bigg biggl biggr Bigg Biggl Biggr limits nolimits "
        "displaystyle textstyle scriptstyle large Large LARGE huge Huge tiny small underline uline "
        "quad qquad enspace thinspace",
    }.items()
    for name in names.split()
}  # fmt: skip
_ROMAN = r"(?:\\(?:text|mathrm)\s*\{\s*[A-Za-z]+\s*\}(?:\s*\^\s*(?:-?\d|\{\s*-?\d\s*\}))?(?:\s|\\[,;]|\*)*)+"
_LABEL = (  # 3 of "The answer is 3", "Max: 3", "=3", "\\Rightarrow 3"
    r"(?:\\(?:text|mathrm)\s*\{(?![^{}]{0,60}(?:\bnot?\b|n't|than|least|most|except))"
    r"[A-Za-z][A-Za-z ]{2,60}?(?: is|:| is:|=| =)\s*\}"
    r"|[=:](?!=)|\\(?:approx|therefore|Rightarrow|implies|Longrightarrow|rightarrow)(?![A-Za-z]))"
)
_N = r"\{?\s*(\d{1,4})\s*\}?"
_CONJUNCTION = r"(?<![\\\w]){0}(?!\w)|\\(?:text|mathrm)\s*\{{\s*,?\s*{0}\s*,?\s*\}}"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"^\s*{_LABEL}\s*(?=\S)", ""),
        (r"^\s*(?:\\text\s*\{\s*(?:[Nn]egative|[Mm]inus)\s*\}|(?:[Nn]egative|[Mm]inus)(?=\s))\s*(?=[\d.\\])", "-"),
        (r"(?<=\d)\s*\\text\s*\{\s*and a half\s*\}", ".5"),
        (r"^\s*(\\text\s*\{)(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer(?: is:?|:| =)\s*", r"\1"),
        (r"\\(?:text|mathrm)\s*\{(max|min|gcd|lcm)\}", r"\\\1 "),
        (r"(?<=\S)\s*\\text\s*\{\s*\((?:approximately|approx\.?|about)\s*([\d.]+)\)\s*\}", r" \\approx \1"),
        (r"(?<=\S)\s*\(\s*\\approx\s*([\d.]+(?:\\?%)?)\s*\)\s*$", r" \\approx \1"),
        (r"^\s*<([^<>]*,[^<>]*)>\s*$", r"\\langle \1\\rangle "),
        (r"\\(?:text|mathrm)\s*\{\s*(?:\\?\$|USD)\s*\}|\\\$|\bUSD\b", "$"),
        (r"\\(?:text|mathrm)\s*\{\s*(-?\d[\d.]*)\s*\}", r" \1 "),
        (r"\\(?:color|textcolor|colorbox)\s*(?:\[[^\]]{0,20}\])?\s*\{[^{}]{0,40}\}", " "),
        (r"(?<![.\d])\.\.\.(?!\.)", r"\\ldots "),
        (r"\\(?:text|mathrm)\s*\{\s*\(?mod\s*\}|(?<![\\A-Za-z])mod(?![A-Za-z])", r" \\mod "),
        (r"\(?\s*\\mod[\s{]*([^(){}=,]*[^(){}=,\s.])[\s}).]*$", r" \\mod \1"),
        (r"\\(frac|binom)\s*(\d)\s*(\d)", r"\\\1{\2}{\3}"),
        (rf"\\frac\s*\{{\s*({_ROMAN})\}}\s*\{{\s*({_ROMAN})\}}", r" \1/(\2)"),  # m over s, as a unit
        (r"\\text\s*\{([^{}]{0,60}?[^{}\s])\s(and|or)\s*\}", r"\\text{\1} \2 "),  # 2\text{ hens and }3
        (r"\\frac\s*\{\s*d\s*([A-Za-z])\s*\}\s*\{\s*d\s*[A-Za-z]\s*\}", r"\1'"),  # dy/dx
        (rf"^\s*(?:C\s*\(\s*{_N}\s*,\s*{_N}\s*\)|(?:\{{\s*\}}\s*)?[_^]\s*{_N}\s*C\s*_\s*{_N}|C\s*_\s*{_N}\s*\^\s*{_N})\s*$",
         r"\\binom{\1\3\5}{\2\4\6}"),  # C(5,2), {}_5C_2, C_5^2
        (r"\{([^{}\\]{1,100})\\choose(?![A-Za-z])([^{}\\]{1,100})\}", r"\\binom{\1}{\2}"),
        (r"\\mathbb\s*([A-Z])(?![A-Za-z])", r"\\mathbb{\1}"),
        (r"(?<=\d) ?[xX] ?(?=10 ?\^)", "*"),  # 3 x 10^8
        (r"<=", r"\\le "), (r">=", r"\\ge "), (r"(?<![\d)}])!=", r"\\ne "), (r"\*\*", "^"),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\(?:circ|degree)(?![A-Za-z])", r"\\degree "),
        (r"(?<=\d)\{,\}(?=\d{3})|(?<=\d),?\\!(?=\d{3}(?!\d))|(?<=\d)\\[,;: ](?=\d{3}(?!\d))", ","),  # thousands
        (r"(?<!\\)\\[,;:! ]|(?<!\\)~", " "),
        (_CONJUNCTION.format("(?:and|AND)"), r" \\and "),
        (_CONJUNCTION.format("(?:or|OR)"), r" \\or "),
    )
]  # fmt: skip
_MATH_MODE = re.compile(r"\s*(?:\$\$?(.*?)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\])\s*\.?\s*", re.DOTALL)


def _latex(char: str) -> str:
    """A Unicode character as LaTeX or ASCII; "" for one without width."""
    if (
        char in _SYMBOLS or unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"
    ):  # variant selectors
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
    text = _RAISED.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    text = re.sub(r"√\s*([0-9]+(?:\.[0-9]+)?)", r"\\sqrt{\1}", text)
    text = re.sub("((?:[0-9]\u0305)+)", lambda m: rf"\overline{{{m[0].replace(chr(0x305), '')}}}", text)
    return "".join(map(_latex, text))


def normalize(text: str) -> str:
    """An answer with one spelling for each sign, and without dollars, sizes of brackets and labels."""
    text = from_unicode(text)
    pairs = not any(len(run) % 2 for run in re.findall(r"\\+", text))
    if pairs and re.search(r"\\\\(?:[A-Za-z]{2}|[{}%|$,;!])", text):  # it was escaped twice
        text = text.replace("\\\\", "\\")
    text = re.sub(r"\s+", " ", text).strip()
    if match := _MATH_MODE.fullmatch(text):
        text = next(g for g in match.groups() if g is not None)
    text = re.sub(r"\\(?:left|right|middle)\s*\.(?!\d)", "", text)
    text = re.sub(r"\\([A-Za-z]+)\*?", lambda m: _COMMANDS.get(m[1], m[0]), text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    exact, _, decimal = text.rpartition("\\approx")
    if re.search(r"\\sqrt|\\frac|\\pi|\^|/", exact) and re.fullmatch(r"\s*-?[\d.]+\s*(?:\\?%)?\s*", decimal):
        text = exact  # the decimal was for the reader
    text = re.sub(r"\s+", " ", text.replace("$", " ") if text.count("$") > 1 else text).strip()
    text = re.sub(r"(?<!\.)[.,;:]$", "", re.sub(r"(?: ?\\\\)+$", "", text)).strip()
    if re.fullmatch(r"-?\d{1,3}(?: \d{3})+(?:\.\d+)?", text):
        text = text.replace(" ", "")
    for _ in range(3):
        if text.startswith("{") and is_wrapped(text):
            text = text[1:-1].strip()
    return text


def squeeze(text: str) -> str:
    """Without what means nothing: blanks that are not between two digits or letters, braces around one character."""
    text = re.sub(r"(?<=[\^_])\s*\{\s*(\w)\s*\}", r"\1", text)
    text = re.sub(r"(?<=[A-Za-z0-9.]) (?=[A-Za-z0-9.])", "\0", text)
    return text.replace(" ", "").replace("\0", " ")
