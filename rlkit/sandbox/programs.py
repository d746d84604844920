"""What scorers and environments ask the sandbox for: run a script, call functions, run test code.

Jails are started at the first use in a process and kept; one that breaks down is replaced.
"""

import contextlib
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rlkit.errors import Ungradable
from rlkit.sandbox.inside import Channel, Lost
from rlkit.sandbox.levels import PROMISED, Jail, Outcome, choose
from rlkit.sandbox.reading import TestCode, last_function
from rlkit.sandbox.testing import NotLoaded, Program

if TYPE_CHECKING:
    from rlkit.domains.grading import Grading

P = ParamSpec("P")
T = TypeVar("T")

_jails: dict[tuple[Any, ...], Jail] = {}
_choose = lru_cache(choose)


def _jail(grading: "Grading", purpose: str = "program", modules: Sequence[str] = ()) -> Jail:
    key = (os.getpid(), purpose, grading.settings.sandbox, *modules)
    if key not in _jails:
        with grading.loading():
            _jails[key] = Jail(_choose(grading.settings.sandbox), modules=modules)
    return _jails[key]


def close() -> None:
    """End this process's jails."""
    while _jails:
        _jails.popitem()[1].close()


def _twice(task: Callable[P, T]) -> Callable[P, T]:
    """A task that is done once more, with new jails, if the sandbox breaks down; Ungradable if it does so again."""

    @wraps(task)
    def twice(*arguments: P.args, **options: P.kwargs) -> T:
        with contextlib.suppress(RuntimeError):
            return task(*arguments, **options)
        close()
        try:
            return task(*arguments, **options)
        except RuntimeError as error:
            raise Ungradable(str(error)) from None

    return twice


@_twice
def run_script(grading: "Grading", program: str, stdin: str | bytes = b"", seconds: float = 10.0) -> Outcome:
    """Run a program as `python main.py` would, with the sandbox of `grading`.

    Raises:
        Ungradable: the sandbox cannot be started.
        UserError: no safe isolation works here.
    """
    data = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
    return _jail(grading).run(program, data, seconds)


def missing_package(grading: "Grading", error: str) -> str | None:
    """The package that a program could not import and that the sandbox should have, from the program's error."""
    found = re.search(r"No module named '(\w+)", error)
    if found is None or found[1] not in PROMISED:
        return None
    return None if run_script(grading, f"import {found[1]}", seconds=30.0).ok else found[1]


@dataclass(frozen=True)
class Call:
    """The outcome of one call: its value, or why there is none."""

    value: Any = None
    error: str | None = None


@_twice
def call_function(
    grading: "Grading",
    program: str,
    name: str,
    calls: Sequence[list[Any]],
    seconds: float = 10.0,
    enough: Callable[[Call, int], bool] | None = None,
    modules: Sequence[str] = (),
) -> list[Call]:
    """Load a program and call its function (or `Solution` method) with each list of arguments.

    Values arrive as plain ones of built-in types, whatever class they had; others as objects equal to nothing.

    Args:
        seconds: for loading the program and all calls; each of these may take reward.timeout.
        enough: `enough(call, index)` may end the calls early.
        modules: installed packages that the program uses, e.g. `("reasoning_gym",)`. This process keeps a jail
            that has imported them (seconds, once) and forks it for each program (milliseconds), so nothing that
            one program does is seen by the next. There is no network and no variable of our environment.

    A call that did not happen for lack of time has the error "time"; a program that ended itself has "exit".
    With `modules`, a library that evaluates untrusted text does so in the process that gives the value: the text
    can reach nothing else, but it can forge that value, so check first that it is made of what an answer may hold.
    """
    jail = _jail(grading, modules=modules)
    end = time.monotonic() + seconds
    ours, theirs = socket.socketpair()
    _start(jail, [theirs], seconds, role="functions", program=program, prefix="")
    each = grading.settings.timeout
    found: list[Call] = []
    with ours:
        channel = Channel(ours, min(end, time.monotonic() + each))
        try:
            loaded = Program(channel, {})
            for index, arguments in enumerate(calls):
                channel.end = min(end, time.monotonic() + each)
                value, raised = loaded.ask(name, None, arguments, {})
                error = f"{raised[1]}: {', '.join(map(str, raised[2]))}"[:300] if raised else None
                found.append(Call(value, error))
                if enough and enough(found[-1], index):
                    break
        except TimeoutError:
            found.append(Call(error="time"))
        except NotLoaded as error:
            found.append(Call(error=str(error)))
        except Exception as error:  # of any kind: the program may send anything
            found.append(Call(error=f"exit: {error}"[:300]))
    _, reason = jail.finish()
    if reason == "memory" and found and found[-1].error:
        found[-1] = Call(error="memory")
    return found


def _start(jail: Jail, sockets: Sequence[socket.socket], seconds: float, **job: Any) -> None:
    """Have a job done that finds nothing in its standard streams; it has the sockets from then on."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        jail.start([null, null, null, *(s.fileno() for s in sockets)], seconds, **job)
    finally:
        os.close(null)
        for end in sockets:
            end.close()


@dataclass(frozen=True)
class Tested:
    """The outcome of test code.

    `error` is None if all tests passed, "time" or "memory". `trusted` is False where the tests ran in the program's
    process, which could have changed the outcome. `fault` says why the tests say nothing about any program.
    """

    passed: int = 0
    total: int = 1
    error: str | None = None
    trusted: bool = True
    fault: str | None = None


def run_tests(grading: "Grading", program: str, tests: TestCode, seconds: float = 60.0) -> Tested:
    """Run test code against a program, each in a sandbox of its own, unless the tests need the program's own objects.

    Where the tests name no entry it is the last function of the program that no other one of it uses. From one check
    to the next reward.timeout may pass, and `seconds` in all.
    """
    if not tests.checks():
        return Tested(fault="the tests check nothing")
    apart = not tests.needs_program()
    outcome = _tested(grading, program, tests, seconds, apart)
    if apart and outcome["insufficient"]:  # what the tests pass is no plain value
        apart = False
        outcome = _tested(grading, program, tests, seconds, apart)
    if outcome["fault"] and not apart:  # which the program may have said
        outcome["fault"] = _tested(grading, "", tests, seconds, True)["fault"]
    del outcome["insufficient"]
    return Tested(**outcome, trusted=apart)


@_twice
def _tested(grading: "Grading", program: str, tests: TestCode, seconds: float, apart: bool) -> dict[str, Any]:
    """The program in one jail and the tests in another, or both in one process. The outcome leaves on a socket that
    only the tests' process has."""
    job = {
        "tests": tests.text,
        "prefix": tests.prefix,
        "entry": tests.entry or last_function(program),
        "named": tests.entry,
        "pytest": tests.pytest,
        "all": grading.settings.partial_credit,
        "each": grading.settings.timeout,
        "nonce": secrets.token_hex(),
    }
    jails = [_jail(grading, "program")]
    verdict, verdict_end = socket.socketpair()
    if apart:
        jails.append(_jail(grading, "tests"))
        left, right = socket.socketpair()
        _start(jails[0], [left], seconds, role="functions", program=program, prefix=tests.prefix)
        _start(jails[1], [verdict_end, right], seconds, role="tests", **job)
    else:
        _start(jails[0], [verdict_end], seconds, role="together", program=program, **job)
    late, message = False, [None, {}]
    with verdict:
        try:
            message = Channel(verdict, time.monotonic() + seconds).receive()
        except TimeoutError:
            late = True
        except Lost:
            jails[-1].wait(1.0)  # which knows how the tests' process ended
    ended = [jail.finish() for jail in jails]
    late = late or abs(ended[-1][0]) in (signal.SIGALRM, 128 + signal.SIGALRM)
    outcome = {
        "passed": 0,
        "total": 1,
        "error": "time" if late else "the program ended the tests",
        "fault": None,
    }
    outcome = message[1] if message[0] == job["nonce"] else {**outcome, "insufficient": False}
    if outcome["error"] and "memory" in [reason for _, reason in ended]:
        outcome["error"] = "memory"
    return outcome
