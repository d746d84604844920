"""What scorers share: ground truths as they are stored, and a call into the sandbox.

Guru's second data set holds a ground truth as {"compressed": base64(gzip(json))} and extra_info as
{"part_1": …, "part_n": …}, the pieces of one such string.
"""

import base64
import gzip
import io
import json
import zlib
from collections.abc import Mapping
from typing import Any

from rlkit.errors import Ungradable, UserError, WrongAnswer
from rlkit.sandbox import programs
from rlkit.sandbox.programs import Grading

__all__ = ["Grading", "decode", "parse", "score_in_sandbox"]

_LARGEST = 512 << 20  # bytes of a decompressed ground truth


def decode(value: Any) -> Any:
    """The value itself, or what its compressed form holds.

    Raises:
        UserError: a compressed value that cannot be read.
    """
    if isinstance(value, Mapping):
        if set(value) == {"compressed"}:
            return _inflate(value["compressed"])
        pieces = {k: v for k, v in value.items() if v is not None}
        if pieces and all(k.startswith("part_") and k[5:].isdigit() for k in pieces):
            return _inflate("".join(pieces[k] for k in sorted(pieces, key=lambda k: int(k[5:]))))
    return value


def _inflate(text: Any) -> Any:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text, validate=True))) as file:
            if len(data := file.read(_LARGEST + 1)) > _LARGEST:
                raise ValueError(f"it is larger than {_LARGEST >> 20} MB")
        return json.loads(data)
    except (OSError, EOFError, zlib.error, TypeError, ValueError) as error:
        raise UserError(f"A compressed ground truth cannot be decoded: {error}.") from None


def parse(value: Any, kind: type, what: str) -> Any:
    """`value` if it is a dict or list as its domain needs, else what its JSON string holds.

    Raises:
        UserError: neither the value nor its JSON form has the type.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise UserError(f"The ground truth of {what} is no JSON: {value[:80]!r}.") from None
    if not isinstance(value, kind):
        raise UserError(f"The ground truth of {what} must be a {kind.__name__}, not {type(value).__name__}.")
    return value


def score_in_sandbox(
    grading: Grading, source: str, arguments: list[Any], modules: tuple[str, ...], whose: str
) -> Any:
    """What `score(*arguments)` of `source` returns, a scorer that may evaluate the response as Python.

    Raises:
        WrongAnswer: the response ended it.
        Ungradable: it failed by itself, with an exception.
    """
    seconds = grading.seconds(margin=0.3)
    [call] = programs.call_function(grading, source, "score", [arguments], seconds, modules=modules)
    if call.error is None:
        return call.value
    if call.error in ("time", "memory") or call.error.startswith("exit:"):
        raise WrongAnswer(call.error)
    raise Ungradable(f"{whose} failed in the sandbox: {call.error}.")
