"""The errors that people are meant to read.

A `UserError` is one sentence that names the field, the value and the fix. The command line prints it
without a traceback and exits with status 2; notebooks show it as the last line.
"""

import difflib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent


class UserError(ValueError):
    """Something in the input is wrong and the message says what to do about it."""


class RunStopped(RuntimeError):
    """A run ended itself for a stated reason after writing a checkpoint (error rate, log-prob gap …)."""


class Ungradable(Exception):
    """Raised by a scorer that cannot tell: the truth is malformed, a service is unreachable …"""


class WrongAnswer(Exception):
    """Raised where the answer is wrong whatever the truth is; the message is the reason."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`" Did you mean 'a' or 'b'?"` for the nearest known names, or an empty string."""
    near = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def plain_warnings() -> None:
    """From now on show this package's own warnings as their sentence alone, without a path and a line of source: for
    programs of ours. Those of others look as ever."""
    others = warnings.formatwarning
    if getattr(others, "plain", False):
        return

    def sentence(message: Warning | str, category: type[Warning], filename: str, *place: Any) -> str:
        own = category is UserWarning and Path(filename).is_relative_to(_PACKAGE)
        return f"{message}\n" if own else others(message, category, filename, *place)

    sentence.plain = True  # type: ignore[attr-defined]
    warnings.formatwarning = sentence
