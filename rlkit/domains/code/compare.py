"""Comparing what a program printed or returned with what was expected, as judges do.

Output is compared line by line and token by token: blanks at the ends and runs of blanks do not count,
nor do empty lines; numbers with a fraction may differ by 1e-6 (or by 1e-9 relatively, for large ones);
yes and no are compared without case (a habit of Codeforces).
"""

import re
from typing import Any

_ABSOLUTE, _RELATIVE = 1e-6, 1e-9
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = ("yes", "no")


def same_output(printed: str, expected: str) -> bool:
    """Whether printed text is the expected one."""
    if printed == expected:
        return True
    ours, theirs = _lines(printed), _lines(expected)
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(_same_token, a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def _lines(text: str) -> list[list[str]]:
    return [tokens for line in text.splitlines() if (tokens := line.split())]


def _same_token(a: str, b: str) -> bool:
    if a == b:
        return True
    if _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b) and len(a) + len(b) < 600:
        if not set(".eE") & set(a + b):
            return int(a) == int(b)
        return close(float(a), float(b), whole=not set(".eE") & set(b))
    return a.lower() == b.lower() and a.lower() in _WORDS


def close(a: float, b: float, whole: bool = False) -> bool:
    """Within the tolerance; an expected whole number must be met exactly."""
    return a == b if whole else abs(a - b) <= max(_ABSOLUTE, _RELATIVE * abs(b))


def same_value(got: Any, expected: Any) -> bool:
    """Whether a returned value is the expected JSON value: tuples are lists, keys are text, floats have a
    tolerance, and neither 1 nor "true" is true."""
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, int | float) and isinstance(expected, int | float):
        try:
            return close(got, expected, whole=isinstance(got, int) and isinstance(expected, int))
        except OverflowError:  # a whole number beyond any float
            return False
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(same_value, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        ours, theirs = ({_key(k): v for k, v in d.items()} for d in (got, expected))
        return ours.keys() == theirs.keys() and all(same_value(ours[k], theirs[k]) for k in theirs)
    return type(got) is type(expected) and bool(got == expected)


def _key(key: Any) -> str:
    """A key as JSON writes it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)
