"""What scorers and environments ask the sandbox for: run a script, call functions, run test code. Jails are started at
the first use in a thread and end with it; one that breaks down is replaced."""

import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from rlkit.errors import Ungradable
from rlkit.sandbox.levels import PROMISED, Jail, Outcome, choose
from rlkit.sandbox.plain import Channel, Lost
from rlkit.sandbox.reading import TestCode, last_function
from rlkit.sandbox.testing import NotLoaded, Program

if TYPE_CHECKING:
    from rlkit.config import RewardConfig

P = ParamSpec("P")
T = TypeVar("T")
LOADING_SECONDS = 120.0  # that the start of a service or an import may take
MARGIN = 1.0  # seconds of an answer's time that are kept for ending the sandbox


class Grading:
    """What a scorer with a parameter `grading` may use: the run's reward section, `settings`, and the time left for
    this answer. `announce` is told how many seconds to wait for it from now on."""

    def __init__(self, settings: "RewardConfig", announce: Callable[[float], None] = lambda _: None) -> None:
        self.settings, self._announce = settings, announce
        self._deadline = time.monotonic() + settings.timeout

    def remaining(self) -> float:
        """Seconds left for this answer."""
        return self._deadline - time.monotonic()

    def seconds(self, margin: float = MARGIN) -> float:
        """Seconds that a program may have: those left but for the sandbox's end."""
        return max(0.1, self.remaining() - margin)

    def extend(self, seconds: float) -> None:
        """Give this answer `seconds` from now on: a program's tests have a total of their own."""
        self._deadline = time.monotonic() + seconds
        self._announce(seconds)


class _Jails(dict[tuple[Any, ...], Jail]):
    """A thread's jails by process (a fork has its parent's, too, which are not its own), purpose, level and modules."""

    def close(self) -> None:
        for key in [key for key in self if key[0] == os.getpid()]:
            self.pop(key).close()

    __del__ = close


_thread = threading.local()


def _jail(grading: Grading, purpose: str = "program", modules: Sequence[str] = ()) -> Jail:
    jails = vars(_thread).setdefault("jails", _Jails())
    key = (os.getpid(), purpose, grading.settings.sandbox, *modules)
    if key not in jails:
        left = grading.remaining()  # of which the start takes nothing
        grading.extend(LOADING_SECONDS)
        try:
            jails[key] = Jail(choose(grading.settings.sandbox), modules=modules)
        finally:
            grading.extend(left)
    return jails[key]


def close() -> None:
    """End this thread's jails."""
    vars(_thread).get("jails", _Jails()).close()


class _Killed(RuntimeError):
    """An outcome: of a program that ended by SIGKILL of its own or of the machine, which lacked memory."""


def _unless_killed(outcome: T, *ended: tuple[int, str | None]) -> T:
    if (128 + signal.SIGKILL, None) in ended:
        raise _Killed(outcome)
    return outcome


def _twice(task: Callable[Concatenate[Grading, P], T]) -> Callable[Concatenate[Grading, P], T]:
    """A task that is done once more, in as much time, if a program is killed or the sandbox breaks down, then with new
    jails. The second time a killed program has ended itself; Ungradable if the sandbox breaks down again."""

    @wraps(task)
    def twice(grading: Grading, *arguments: P.args, **options: P.kwargs) -> T:
        left = grading.remaining()
        try:
            return task(grading, *arguments, **options)
        except RuntimeError as error:
            if not isinstance(error, _Killed):
                close()
        grading.extend(left)
        try:
            return task(grading, *arguments, **options)
        except _Killed as error:
            return error.args[0]
        except RuntimeError as error:
            raise Ungradable(str(error)) from None

    return twice


@_twice
def run_script(grading: Grading, program: str, stdin: str, seconds: float) -> Outcome:
    """Run a program as `python main.py` would. Ungradable: the sandbox cannot be started. UserError: none is safe."""
    outcome = _jail(grading).run(program, stdin.encode("utf-8", "surrogatepass"), seconds)
    return _unless_killed(outcome, (outcome.status, outcome.reason))


def missing_package(grading: Grading, error: str) -> str | None:
    """The package that a program could not import and that the sandbox should have, from the program's error."""
    found = re.search(rf"No module named '({'|'.join(PROMISED)})\b", error)
    tried = run_script(grading, f"import {found[1]}\nprint()", "", 30.0) if found else None
    return found[1] if found and tried and not tried.stdout else None


class Call(NamedTuple):
    """The outcome of one call: its value, or why there is none ("time", "memory", "exit: …", an exception)."""

    value: Any = None
    error: str | None = None


@_twice
def call_function(
    grading: Grading, program: str, name: str, calls: Sequence[list[Any]], seconds: float,
    enough: Callable[[Call, int], bool] | None = None, modules: Sequence[str] = (),
) -> list[Call]:  # fmt: skip
    """Load a program and call its function (or `Solution` method) with each list of arguments. Values arrive as plain
    ones of built-in types, whatever class they had; others as objects equal to nothing.

    Args:
        seconds: for loading the program and all calls; each of these may take reward.timeout.
        enough: `enough(call, index)` may end the calls early.
        modules: installed packages that the program uses, which are imported once, before processes are forked. Text
            that they evaluate can forge the value, so check first that it is made of what an answer may hold."""
    jail = _jail(grading, modules=modules)
    end, each, found = time.monotonic() + seconds, grading.settings.timeout, list[Call]()
    ours, theirs = socket.socketpair()
    jail.start([], [theirs], seconds, role="functions", program=program, prefix="")
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
        except Exception as error:  # of any kind: the program may send anything
            found.append(Call(error=str(error) if isinstance(error, NotLoaded) else f"exit: {error}"[:300]))
    status, reason = jail.finish()
    if reason == "memory" and found and found[-1].error:
        found[-1] = Call(error="memory")
    return _unless_killed(found, (status, reason))


class Tested(NamedTuple):
    """The outcome of test code. `error`: None if all passed, "time" or "memory"; `fault`: why it tests no program;
    `insufficient`: it passes to the program what is no plain value; `trusted`: the program could not change it."""

    passed: int = 0
    total: int = 1
    error: str | None = None
    fault: str | None = None
    insufficient: bool = False
    trusted: bool = True


def run_tests(grading: Grading, program: str, tests: TestCode, seconds: float) -> Tested:
    """Run test code against a program, each in a sandbox of its own, unless the tests need the program's own objects.

    Where the tests name no entry it is the last function of the program that no other one of it uses. From one check
    to the next reward.timeout may pass, and `seconds` in all."""
    if fault := tests.fault():
        return Tested(fault=fault)
    apart = not tests.needs_program()
    tested = _tested(grading, program, tests, seconds, apart)
    if apart and tested.insufficient:
        apart, tested = False, _tested(grading, program, tests, seconds, False)
    if tested.fault and not apart:  # which the program may have said
        tested = tested._replace(fault=_tested(grading, "", tests, seconds, True).fault)
    return tested._replace(trusted=apart)


@_twice
def _tested(grading: Grading, program: str, tests: TestCode, seconds: float, apart: bool) -> Tested:
    """The program in one jail and the tests in another, or both in one process. The outcome leaves on a socket that
    only the tests' process has."""
    nonce, jails = secrets.token_hex(), [_jail(grading)]
    job = {
        "tests": tests.text, "prefix": tests.prefix, "pytest": tests.pytest, "nonce": nonce,
        "entry": tests.entry or last_function(program), "named": tests.entry,  # by the row
        "all": grading.settings.partial_credit,  # go on after a failure
        "each": grading.settings.timeout,  # from one check to the next, after which the process is ended
    }  # fmt: skip
    verdict, verdict_end = socket.socketpair()
    if apart:
        jails.append(_jail(grading, "tests"))
        left, right = socket.socketpair()
        jails[0].start([], [left], seconds, role="functions", program=program, prefix=tests.prefix)
        jails[1].start([], [verdict_end, right], seconds, role="tests", **job)
    else:
        jails[0].start([], [verdict_end], seconds, role="together", program=program, **job)
    message: list[Any] = [None]
    error = "the program ended the tests"
    with verdict:
        try:
            message = Channel(verdict, time.monotonic() + seconds).receive()
        except TimeoutError:
            error = "time"
        except Lost:
            jails[-1].wait(1.0)  # which knows how the tests' process ended
    ended = [jail.finish() for jail in jails]
    if abs(ended[-1][0]) in (signal.SIGALRM, 128 + signal.SIGALRM):
        error = "time"
    tested = Tested(**message[1]) if message[0] == nonce else Tested(error=error)
    memory = tested.error and "memory" in [reason for _, reason in ended]
    return _unless_killed(tested._replace(error="memory") if memory else tested, *ended)
