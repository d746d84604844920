"""Figures as tables and texts write them: separators, currency, percent, accounting negatives, millions."""

import re
from dataclasses import dataclass

_FIGURE = re.compile(
    r"(?P<open>\()?\s*(?P<sign>[+-]?)\s*(?P<money>\\?[$€£¥]|usd\s*)?\s*(?P<sign2>[+-]?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?P<power>e[+-]?\d{1,3})?"
    r"\s*(?P<scale>thousand|million|billion|trillion|k|m|mn|bn|tn)?\b\s*(?P<money2>dollars|usd|euros?)?"
    r"\s*(?P<percent>\\?%|percent|per cent|percentage points?)?\s*(?P<close>\))?",
    re.IGNORECASE,
)
_SCALES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "m": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9,
           "trillion": 1e12, "tn": 1e12}  # fmt: skip
TOLERANCE = 1e-3
"""Relative difference within which figures with decimals agree: 33.3 and 33.33."""


@dataclass(frozen=True)
class Figure:
    value: float
    whole: bool
    percent: bool
    scale: float


def figure(text: str, abbreviations: bool = True) -> Figure | None:
    """The figure that a text is, or None if it is something else (a range, a word, a formula).

    Without `abbreviations`, 5 m and 5 mn are no figures: they may be metres and meganewtons.
    """
    match = _FIGURE.fullmatch(text.strip()) if len(text) < 100 else None
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    if not abbreviations and len(match["scale"] or "million") <= 2:
        return None
    digits = match["digits"].replace(",", "")
    value = float(digits + (match["power"] or ""))
    negative = (match["sign"] == "-") != (match["sign2"] == "-") or bool(match["open"])
    scale = _SCALES.get((match["scale"] or "").lower(), 1.0)
    whole = "." not in digits and not match["power"]
    return Figure(-value if negative else value, whole, bool(match["percent"]), scale)


def same_figure(a: Figure, b: Figure) -> bool:
    """Equal within TOLERANCE if either has decimals, exactly if both are whole (2018 is not 2019).

    A percent sign or a word such as million may be missing on one side (the table's head has it), but
    where both are written they count; 12.3% is also 0.123.
    """
    if a.percent == b.percent and a.scale != b.scale and 1.0 not in (a.scale, b.scale):
        return _near(a.value * a.scale, b.value * b.scale, False)
    if _near(a.value, b.value, a.whole and b.whole):
        return True
    if a.scale != b.scale and _near(a.value * a.scale, b.value * b.scale, False):
        return True
    if a.percent == b.percent:
        return False
    share, plain = (a, b) if a.percent else (b, a)
    return _near(share.value / 100, plain.value, False)


def _near(a: float, b: float, whole: bool) -> bool:
    return a == b if whole else abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) and (a < 0) == (b < 0)
