"""Short text compared as words: typography, letter case, articles, and singular or plural do not count."""

import re

_FONTS = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mathit|mbox|operatorname|rm|ce|emph)\s*(?=\{)")
_ARTICLES = {"the", "a", "an"}
_ENDINGS = (
    ("ies", "y"), ("ves", "f"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"),
    ("ia", "ion"), ("a", "um"), ("a", "on"), ("ae", "a"), ("i", "us"), ("ses", "sis"), ("ices", "ix"),
)  # fmt: skip


def same_text(answer: str, truth: str) -> bool:
    """Whether two short texts have the same words, or are the same formula of chemistry."""
    if formula(answer) == formula(truth):
        return True
    return _symbols(answer) == _symbols(truth) and _same_words(words(answer), words(truth))


def _symbols(text: str) -> list[str]:
    """Signs that carry meaning (a charge, an inequality), hyphens between letters apart."""
    return re.findall(r"(?<![A-Za-z])-|-(?![A-Za-z])|[+=<>/*]", formula(text))


def words(text: str) -> list[str]:
    """Words in lower case, without typography, articles and punctuation."""
    text = re.sub(r"[{}$\\~]", " ", _FONTS.sub("", text))
    found = re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text)
    if any(char.isdigit() for char in text):  # 5 mW is not 5 MW
        found = [word.casefold() if len(word) > 3 else word for word in found]
    else:
        found = [word if _is_symbol(word) else word.casefold() for word in found]
    return [word for word in found if word not in _ARTICLES]


def _is_symbol(word: str) -> bool:
    """CO is not Co."""
    return len(word) == 2 and word.isupper() and word != "NO"


def _same_words(a: list[str], b: list[str]) -> bool:
    """Word by word; only where there are words at all: `5 - 3` has none."""
    spoken = any(word.isalpha() and len(word) > 1 for word in a + b)
    return spoken and len(a) == len(b) and all(map(_same_word, a, b))


def _same_word(a: str, b: str) -> bool:
    return a == b or (len(a) > 3 and len(b) > 3 and bool(_singulars(a) & _singulars(b)))


def _singulars(word: str) -> set[str]:
    found = {word}
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        found.add(word[:-1])
        if word.endswith("es"):
            found.add(word[:-2])
    for plural, singular in _ENDINGS:
        if word.endswith(plural) and len(word) > len(plural) + 2:
            found.add(word[: -len(plural)] + singular)
    return found


def formula(text: str) -> str:
    """A formula of chemistry without typography, in its own letter case: `\\mathrm{Na^+}` is `Na+`,
    `H_2O` is `H2O`."""
    text = _FONTS.sub("", text).translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉⁺⁻−", "0123456789+--"))
    return re.sub(r"[\s{}$^_\\]", "", text).rstrip(".")
