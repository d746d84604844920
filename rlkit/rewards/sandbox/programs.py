"""What scorers and environments ask the sandbox for: run a script, call functions, run test code.

Jails are started at the first use in a process and kept; one that breaks down is replaced.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from rlkit.rewards.grading import Grading
from rlkit.rewards.sandbox import values
from rlkit.rewards.sandbox.client import Jail, Outcome
from rlkit.rewards.sandbox.levels import Level, choose

T = TypeVar("T")

_jails: dict[tuple[Any, ...], Jail] = {}
_choose = lru_cache(choose)


def level(grading: Grading) -> Level:
    """The isolation in use. Raises UserError where no safe one works and none was waived."""
    return _choose(grading.settings.sandbox)


def _jail(grading: Grading, purpose: str, modules: tuple[str, ...] = ()) -> Jail:
    key = (os.getpid(), purpose, grading.settings.sandbox, modules)
    if key not in _jails:
        with grading.loading():
            _jails[key] = Jail(level(grading), modules=modules)
    return _jails[key]


def close() -> None:
    """End this process's jails."""
    while _jails:
        _jails.popitem()[1].close()


def _sturdy(task: Callable[[], T]) -> T:
    """The task's result; once more with new jails if the sandbox broke down."""
    try:
        return task()
    except RuntimeError:
        close()
        return task()


def run_script(grading: Grading, program: str, stdin: str | bytes = b"", seconds: float = 10.0) -> Outcome:
    """Run a program as `python main.py` would, with the sandbox and the clock of `grading`.

    Raises:
        RuntimeError: the sandbox cannot be started.
        UserError: no safe isolation works here.
    """
    data = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
    return _sturdy(lambda: _jail(grading, "program").run(program, data, seconds))


class Unknown:
    """A value that has no plain form: equal to nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


class _Caller(values.Link):
    """The worker's end of a candidate: plain values only, nothing is imported or called back."""

    def make(self, node: Any) -> Any:
        if node[0] == "exception":
            return type(str(node[2]), (Exception,), {})
        return Unknown()

    def answer(self, nodes: Any) -> None:
        raise values.Lost("the program sends requests")


@dataclass(frozen=True)
class Call:
    """The outcome of one call: its value, or why there is none."""

    value: Any = None
    error: str | None = None


def call_function(
    grading: Grading,
    program: str,
    name: str,
    calls: Sequence[list[Any]],
    seconds: float = 10.0,
    enough: Callable[[Call, int], bool] | None = None,
    modules: Sequence[str] = (),
) -> list[Call]:
    """Load a program and call its function (or `Solution` method) with each list of arguments.

    Args:
        enough: `enough(call, index)` may end the calls early.
        modules: installed packages that the program uses, e.g. `("reasoning_gym",)`. This process keeps a jail
            that has imported them (seconds, once) and forks it for each program (milliseconds), so nothing that
            one program does is seen by the next. There is no network and no variable of our environment.

    A call that did not happen for lack of time has the error "time"; a program that ended itself has "exit".
    With `modules`, a library that evaluates untrusted text does so in the process that gives the value: the text
    can reach nothing else, but it can forge that value, so check first that it is made of what an answer may hold.
    """
    return _sturdy(lambda: _call_function(grading, program, name, calls, seconds, enough, tuple(modules)))


def _call_function(
    grading: Grading,
    program: str,
    name: str,
    calls: Sequence[list[Any]],
    seconds: float,
    enough: Callable[[Call, int], bool] | None,
    modules: tuple[str, ...],
) -> list[Call]:
    jail = _jail(grading, "program", modules)
    end = time.monotonic() + seconds
    ours, theirs = socket.socketpair()
    with _null() as null, theirs:
        jail.start("candidate", program, [null, null, null, theirs.fileno()], seconds)
    found: list[Call] = []
    with ours:
        link = _Caller(ours, values.Codec({}))
        try:
            ours.settimeout(seconds)
            kind, nodes, _ = link.receive()
            if kind == "raise":
                raise values.Lost(_described(link, nodes))
            for index, arguments in enumerate(calls):
                ours.settimeout(max(0.01, end - time.monotonic()))
                found.append(_one(link, name, arguments))
                if enough and enough(found[-1], index):
                    break
        except TimeoutError:
            found.append(Call(error="time"))
        except (values.Lost, OSError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            found.append(Call(error=f"exit: {error}"))
    jail.finish()
    return found


def _one(link: _Caller, name: str, arguments: list[Any]) -> Call:
    try:
        return Call(link.request("function", name, arguments))
    except (TimeoutError, values.Lost):
        raise
    except Exception as error:
        return Call(error=f"{type(error).__name__}: {error}"[:300])


def _described(link: _Caller, nodes: Any) -> str:
    value, _ = link.codec.decode(nodes, link.make)
    return f"{getattr(value[0], '__name__', 'error')}: {', '.join(map(str, value[1]))}"[:300]


def examine(
    grading: Grading, program: str, tests: str, seconds: float = 10.0, **request: Any
) -> dict[str, Any]:
    """Run test code against a program: each in a sandbox of its own, talking over a socket.

    Args:
        request: `role` ("asserts" or "pytest"), `prefix` (code that both sides run first),
            `entry_point`, `all` (go on after a failed assertion).

    Returns:
        passed, total, error (None if all passed; "time" if there was not enough of it), and where the sandbox has not
        what the tests need, `lacks`.
    """
    return _sturdy(lambda: _examine(grading, program, tests, seconds, request))


def _examine(
    grading: Grading, program: str, tests: str, seconds: float, request: dict[str, Any]
) -> dict[str, Any]:
    request = {"role": "asserts", "prefix": "", "entry_point": None, "all": False, **request}
    candidate, examiner = _jail(grading, "program"), _jail(grading, "tests")
    left, right = socket.socketpair()
    verdict, verdict_end = socket.socketpair()
    with _null() as null, left, right, verdict_end:
        candidate.start(
            "candidate", program, [null, null, null, left.fileno()], seconds, prefix=request["prefix"]
        )
        examiner.start(program=tests, descriptors=[null, null, null, right.fileno(), verdict_end.fileno()],
                       seconds=seconds, **request)  # fmt: skip
    with verdict:
        line, late = _line(verdict, time.monotonic() + seconds)
    candidate.finish()
    examiner.finish()
    if late:
        return {"passed": 0, "total": 1, "error": "time"}
    return json.loads(line) if line else {"passed": 0, "total": 1, "error": "the test process ended early"}


def _line(sock: socket.socket, end: float) -> tuple[bytes, bool]:
    """One line, and whether the time was over before it came."""
    data = bytearray()
    while not data.endswith(b"\n"):
        sock.settimeout(max(0.01, end - time.monotonic()))
        try:
            piece = sock.recv(65536)
        except TimeoutError:
            return b"", True
        if not piece or len(data) > 1 << 20:
            return b"", False
        data += piece
    return bytes(data), False


@contextlib.contextmanager
def _null() -> Any:
    number = os.open(os.devnull, os.O_RDWR)
    try:
        yield number
    finally:
        os.close(number)
