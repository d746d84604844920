"""Mathematics as Reasoning360 scores it (naive_dapo), for `scorer: guru`.

Its leniencies and gaps are kept: a factor of 100 passes as a percentage, words such as "hours" are
deleted, "=" cuts off what stands before it, and nothing that needs symbolic algebra with \\pi or a brace
behind ^ is ever equal. One difference is meant: where the original hands the model's text to Python's
evaluator, this compares it with rlkit's parser, so no answer is executed.

verl's own functions are used where Reasoning360 took them from verl; their files are loaded by path,
because importing the verl package imports torch.
"""

import importlib.util
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rlkit.domains import guru_scorer
from rlkit.domains.math.evaluate import same
from rlkit.domains.math.parser import Unreadable, parse
from rlkit.types import Reward

_REPLACED = (
    ("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "),
    ("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12"),
)  # fmt: skip
_UNITS = "degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard|liter"
_BRACKETS = "()[]"
_PERCENT_TOLERANCE = 1e-4


@lru_cache
def verl_file(name: str) -> ModuleType:
    """A module of verl.utils.reward_score, loaded without the verl package."""
    package = importlib.util.find_spec("verl")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "utils" / "reward_score" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"rlkit_verl_{name.replace('/', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@guru_scorer("math__*", "math", "numina_*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """The last box outside the reasoning, or without a box the whole text, against the truth."""
    text = response.split("</think>")[-1]
    answer, truth = last_box(text) or text, str(ground_truth)
    correct = _grade(answer, truth)
    if not correct and "\\pi" not in answer + truth:  # with \pi the original raises and counts it wrong
        correct = _math_equal(answer, truth)
    return Reward.of(correct)


@guru_scorer("aime*", "math_dapo*")
def score_dapo(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """verl's math_dapo: an `Answer:` line, and -1 for a wrong or missing one."""
    if not re.search(r"(?i)answer\s*:", response[-300:]):
        return Reward.of(False, -1.0)
    result = verl_file("math_dapo").compute_score(response, str(ground_truth))
    return Reward.of(bool(result["acc"]), float(result["score"]))


@guru_scorer("openai/gsm8k")
def score_gsm8k(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """verl's gsm8k: the number behind `####`."""
    value = float(verl_file("gsm8k").compute_score(response, str(ground_truth)))
    return Reward.of(value == 1.0, value)


@guru_scorer("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500")
def score_math(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """verl's math_reward: the last box, compared after Hendrycks's normalisation."""
    value = float(verl_file("math_reward").compute_score(response, str(ground_truth)))
    return Reward.of(value == 1.0, value)


def last_box(text: str) -> str | None:
    """Content of the last \\boxed (or else \\fbox) up to its closing brace; escapes are not seen."""
    start = text.rfind("\\boxed")
    start = text.rfind("\\fbox") if start < 0 else start
    opening = text.find("{", start) if start >= 0 else -1
    if opening < 0:
        return None
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position].strip()
    return None


def _grade(answer: str, truth: str) -> bool:
    mathd = verl_file("prime_math/math_normalize").normalize_answer
    if mathd(truth) == mathd(answer):
        return True
    a, b = _normalized(answer), _normalized(truth)
    if a == b:
        return True
    if not a or not b:
        return False
    ours, theirs = _elements(a), _elements(b)
    if (len(theirs) > 1 and (a[0] != b[0] or a[-1] != b[-1])) or len(ours) != len(theirs):
        return False
    return all(map(_same_element, ours, theirs))


def _normalized(text: str) -> str:
    if match := re.search(r"^\\text\{(.+?)\}$", text):
        text = match.group(1)
    for old, new in _REPLACED:
        text = text.replace(old, new)
    text = re.sub(rf"(?:{_UNITS})(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    if _whole(text):
        text = str(round(float(text)))
    if "\\" in text:
        text = re.sub(r"\\[td]frac", r"\\frac", text).replace("\\frac", " \\frac").strip()
    text = re.sub("- *", "-", text)
    text = re.sub("([0-9]) +([0-9])", r"\1+\2", text).lower()
    plain = _without_commas(text)
    return str(int(float(text.replace(",", "")))) if _whole(plain) else text


def _whole(text: str) -> bool:
    try:
        return abs(float(text) - round(float(text))) <= 1e-7
    except (ValueError, OverflowError):
        return False


def _without_commas(text: str) -> str:
    while (shorter := re.sub(r"(\d)(,)(\d\d\d)($|\D)", r"\1\3\4", text)) != text:
        text = shorter
    return text


def _elements(text: str) -> list[str]:
    text = _without_commas(text)
    inside = text[1:-1]
    if len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS and not set(inside) & set(_BRACKETS):
        return [part.strip() for part in inside.split(",")]
    return [text]


def _same_element(a: str, b: str) -> bool:
    fraction = r"^-?[0-9]+.?/0*[1-9][0-9]*.?$"
    if re.search(fraction, a) and re.search(fraction, b):
        return a == b
    if _whole(_without_commas(a)) != _whole(_without_commas(b)):
        return False
    return _by_algebra(a, b)


def _by_algebra(a: str, b: str) -> bool:
    """What sympy is asked in the original: few letters, no grouped or long exponents, no LaTeX."""
    text = f"({b})-({a})"
    letters = {c for c in text.replace("sqrt", "").replace("frac", "") if c.isalpha()}
    if len(letters) > 2 or "\\" in text or re.search(r"\^[{(]|\^[0-9]+\^|\^[0-9][0-9]+", text):
        return False
    try:
        return same(parse(a), parse(b))
    except (Unreadable, RecursionError):
        return False


def _math_equal(answer: str, truth: str) -> bool:
    """prime_math's math_equal."""
    a, b = _prepared(answer)[:1000], _prepared(truth)
    if a.strip().lower() == b.strip().lower() or a.replace(" ", "") == b.replace(" ", ""):
        return True
    x, y = _digits(a), _digits(b)
    if x is not None and y is not None:
        return any(math.isclose(y * k, x, rel_tol=_PERCENT_TOLERANCE) for k in (0.01, 1.0, 100.0))
    a, b = a.strip(), b.strip()
    if not a:
        return False
    if re.sub(r"[{}()]", "", a.strip("[]()") if _listed(a, b) else a) == re.sub(
        r"[{}()]", "", b.strip("[]()") if _listed(a, b) else b
    ):
        return True
    bracketed = b and a[0] in "([" and a[-1] in ")]" and (a[0], a[-1]) == (b[0], b[-1])
    if bracketed and _each(a[1:-1].split(","), b[1:-1].split(",")):
        return True
    if "," in a and "," in b and a.count(",") == b.count(","):
        return _each(a.split(","), b.split(","))
    return _symbolic(a, b)


def _symbolic(a: str, b: str) -> bool:
    """What the original asks sympy for: the same value. Its LaTeX parser multiplies a whole number by the fraction
    behind it, and does not know repeating decimals."""
    if "\\overline" in a + b:
        return False
    plain = (re.sub(r"\\[td]frac", r"\\frac", text) for text in (a, b))
    try:
        return same(*(parse(re.sub(r"(?<=\d)\s*\\frac", r"*\\frac", text)) for text in plain))
    except (Unreadable, RecursionError):
        return False


def _listed(a: str, b: str) -> bool:
    square = a.startswith("[") and a.endswith("]") and not b.startswith("(")
    return square or (a.startswith("(") and a.endswith(")") and not b.startswith("["))


def _each(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(_math_equal(x.strip(), y.strip()) for x, y in zip(a, b, strict=True))


def _prepared(text: str) -> str:
    """A dollar sign in front and a percent sign behind a number are dropped; a base, too."""
    if re.match(r"\$\d+(\.\d+)?", text):
        return text[1:]
    if re.match(r"^\d+(\.\d+)?\\?%$", text):
        return text.replace("\\%", "").replace("%", "")
    return text


def _digits(text: str) -> float | None:
    text = text.replace(",", "").strip()
    percent = re.fullmatch(r"(.+?)\\?%", text)
    try:
        return float(percent.group(1)) / 100 if percent else float(text)
    except ValueError:
        return None
