"""What scorers share: ground truths as they are stored, and outputs of programs.

Guru's second data set holds a ground truth as {"compressed": base64(gzip(json))} and extra_info as
{"part_1": …, "part_n": …}, the pieces of one such string."""

import base64
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import literal
from rlkit.errors import UserError
from rlkit.sandbox.programs import Grading as Grading
from rlkit.types import Reward

_LARGEST = 512 << 20  # bytes of a decompressed ground truth


def decode(value: Any) -> Any:
    """The value itself, or what its compressed form holds. UserError: it cannot be read."""
    if not isinstance(value, Mapping):
        return value
    pieces = {name: piece for name, piece in value.items() if piece is not None}
    if set(pieces) != {"compressed"} and not (pieces and all(re.fullmatch(r"part_\d+", n) for n in pieces)):
        return value
    try:
        text = "".join(pieces[name] for name in sorted(pieces, key=lambda name: (len(name), name)))
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text, validate=True))) as file:
            if len(data := file.read(_LARGEST + 1)) > _LARGEST:
                raise ValueError(f"it is larger than {_LARGEST >> 20} MB")
        return json.loads(data)
    except (OSError, EOFError, zlib.error, TypeError, ValueError) as error:
        raise UserError(f"A compressed ground truth cannot be decoded: {error}.") from None


def parse(value: Any, kind: type, what: str) -> Any:
    """`value`, or what it is written as in JSON or Python, if it is of this kind. UserError: it is not."""
    read = literal(value) if isinstance(value, str) else value
    if not isinstance(read, kind):
        raise UserError(f"The truth of {what} must be a {kind.__name__} in JSON, not {str(value)[:80]!r}.")
    return read


def as_text(value: Any, what: str) -> str:
    """A ground truth that is text or a number, as text. UserError: it is another value, or empty."""
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"The ground truth of {what} must be text that is not empty, not {str(value)[:80]!r}.")
    return text.strip()


@scorer("logic__brief_ordering", "simulation__string_trace")
def score_exact(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """Of tasks for the smallest models: 1 when the response, without blanks around it, is the truth."""
    return Reward.of(response.strip() == ground_truth)


# Printed outputs and returned values against the expected ones, as judges of programs compare them.

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
_WORDS = ("yes", "no", "nan", "inf", "-inf")
_LONGEST_NUMBER = 300  # characters; longer ones are compared as text


def same_output(printed: str, expected: str) -> bool:
    """Whether printed text is the expected one, line by line and token by token, blanks and empty lines aside. Yes and
    no are compared without case (a habit of Codeforces); numbers with a fraction have the tolerance of `close`."""
    ours, theirs = ([t for line in text.splitlines() if (t := line.split())] for text in (printed, expected))
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(_same_token, a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def _same_token(a: str, b: str) -> bool:
    if a == b:
        return True
    if _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b) and max(len(a), len(b)) <= _LONGEST_NUMBER:
        if not set(".eE") & set(b) or not (math.isfinite(float(a)) and math.isfinite(float(b))):
            return Decimal(a) == Decimal(b)
        return close(float(a), b)
    return a.lower() == b.lower() and a.lower() in _WORDS


def close(a: float, expected: str) -> bool:
    """Whether a number is the expected one, as that is written. They may differ by 1e-6 but not by more than a
    thousandth of it, by 1e-9 of a large one (at most 0.01), or by half a unit of the last of six or more decimals.
    Infinities and NaN are met by themselves only."""
    b = float(expected)
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (a != a and b != b)
    decimals = -int(Decimal(expected).as_tuple().exponent)
    small = min(1e-6, 1e-3 * abs(b)) if b else 1e-9
    large = max(min(1e-9 * abs(b), 0.01), 4 * math.ulp(b))
    return abs(a - b) <= max(small, large, 0.500001 * 10.0**-decimals if decimals >= 6 else 0.0)


def same_value(got: Any, expected: Any) -> bool:
    """Whether a returned value is the expected JSON value: tuples are lists, keys are text, floats have a tolerance,
    and neither 1 nor "true" is true. What cannot be compared is not the same."""
    try:
        if isinstance(got, bool) or isinstance(expected, bool):
            return got is expected
        if isinstance(got, int | float) and isinstance(expected, int | float):
            if got == expected or (isinstance(got, int) and isinstance(expected, int)):
                return got == expected
            return close(float(got), repr(expected))
        if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
            return len(got) == len(expected) and all(map(same_value, got, expected))
        if isinstance(got, dict) and isinstance(expected, dict):
            ours, theirs = ({_key(k): v for k, v in d.items()} for d in (got, expected))
            equal = ours.keys() == theirs.keys() and len(ours) == len(got)
            return equal and all(same_value(ours[k], theirs[k]) for k in theirs)
        return type(got) is type(expected) and bool(got == expected)
    except (RecursionError, ValueError, OverflowError, TypeError, ArithmeticError):
        return False


def _key(key: Any) -> str:
    """A key as JSON writes it. ValueError: a whole number of thousands of digits."""
    return json.dumps(key) if isinstance(key, bool) or key is None else str(key)
