"""Ground truths as rows store them: JSON strings and Guru's compressed variant, decoded.

Guru's second data set holds a truth as {"compressed": base64(gzip(json))} and extra_info as
{"part_1": …, "part_n": …}, the pieces of one such string.
"""

import base64
import binascii
import gzip
import io
import json
import zlib
from collections.abc import Mapping
from typing import Any

from rlkit.errors import UserError

_LIMIT = 512 << 20  # bytes after decompression


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
            data = file.read(_LIMIT + 1)
        if len(data) > _LIMIT:
            raise UserError(f"A compressed ground truth is larger than {_LIMIT >> 20} MB.")
        return json.loads(data)
    except (binascii.Error, OSError, EOFError, zlib.error, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"A compressed ground truth cannot be decoded: {error}.") from None


def parse(value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """`value` if it has the type that its domain needs, else what its JSON string holds.

    Raises:
        UserError: neither the value nor its JSON form has the type.
    """
    if isinstance(value, str) and (kind is not str):
        try:
            value = json.loads(value)
        except ValueError:
            raise UserError(f"The ground truth of {what} is no JSON: {value[:80]!r}.") from None
    if not isinstance(value, kind) or isinstance(value, bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise UserError(f"The ground truth of {what} must be a {names}, not {type(value).__name__}.")
    return value
