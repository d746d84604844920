"""Which isolation works on this machine, and a jail in it: a process in the sandbox that runs programs (jail.py).

bubblewrap  new network, PID, IPC, UTS and mount namespaces over a read-only system; as root without a
            user namespace (programs run as another user), as an ordinary user with one
rlimits     no namespaces: own user, own folder, rlimits. Needs root. Programs can open connections and
            read what all users of the machine may read. Packages are those that all users can read
unsafe      own process group and rlimits only; programs can do what this user can"""

import contextlib
import fcntl
import json
import multiprocessing.connection
import os
import shutil
import signal
import site
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from rlkit.errors import UserError
from rlkit.sandbox.limits import ENVIRONMENT, LIMITS, OUTPUT
from rlkit.sandbox.plain import Channel, Lost

PROMISED = ("numpy", "sortedcontainers", "pytest")
"""Packages that programs count on: without one a program that imports it cannot be judged."""
LOCKS = Path("/run")  # where the users that programs have are marked, if it can be written
_PACKAGES = (  # what bubblewrap shows of the installed packages
    "numpy numpy.libs sortedcontainers py.py pytest _pytest pluggy iniconfig packaging pygments".split()  # noqa: SIM905
)
_START = 10.0  # seconds in which a jail must answer
_IMPORTS = 120.0  # the same where it imports packages first
_MARGIN = 3.0  # seconds that a jail may take to kill a program and what it started, on a loaded machine
_ADVICE = (
    "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) and allow namespaces (in Docker: "
    "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined), "
    "or set reward.sandbox=unsafe on a machine that you can lose."
)


def choose(wanted: str = "auto") -> str:
    """The level to use: the best that works for `auto`, else the one asked for. Raises UserError where it does not work
    on this machine; the message says how to make it work."""
    why = ""
    for level in ("bubblewrap", "rlimits") if wanted == "auto" else (wanted,):
        if level == "unsafe" or (problem := problem_of(level)) is None:
            return level
        why += f"{level} does not work here: {problem} "
    raise UserError(f"Programs of the policy cannot be run safely: {why}{_ADVICE}")


def report() -> str:
    """Which isolation is active on this machine and how to raise it, in a sentence."""
    try:
        if (level := choose()) == "bubblewrap":
            return "sandbox: bubblewrap: no network, read-only system, own processes. Nothing to raise."
    except UserError as error:
        return f"sandbox: none. {error}"
    return f"sandbox: {level}, because bubblewrap does not work here: {problem_of('bubblewrap')} {_ADVICE}"


@lru_cache
def problem_of(level: str) -> str | None:
    """Why a level cannot be used here, or None if a trial run of a program succeeds."""
    if level == "bubblewrap" and shutil.which("bwrap") is None:
        return "it is not installed."
    if level == "rlimits" and os.geteuid() != 0:
        return "it needs root."
    if level == "rlimits" and _python(for_all=True) is None:
        return "it needs a Python that other users can read."
    try:
        with Jail(level) as jail:
            outcome = jail.run("import csv\nprint(6 * 7)", b"", seconds=10)
    except (OSError, RuntimeError) as error:
        return f"{error}."
    return None if outcome.stdout == b"42\n" else f"a trial program ended with {outcome}."


class Outcome(NamedTuple):
    """How a program ended: `reason` is None, "time", "output" or "memory"; a signal's status is below 0 or over 128."""

    status: int
    reason: str | None
    stdout: bytes
    stderr: bytes


class Jail(contextlib.AbstractContextManager["Jail"]):
    """A sandbox of a level with a warm interpreter, which imports `modules` from all installed packages and forks for
    every program. RuntimeError, from every method: it cannot be started or breaks down; then it is closed."""

    def __init__(self, level: str, modules: Sequence[str] = (), limits: Mapping[str, int] = LIMITS) -> None:
        self.control, theirs = socket.socketpair()
        self._contains = level != "unsafe"
        self._log = TemporaryFile()  # noqa: SIM115 (closed in close)
        self._user, lock = _user() if os.geteuid() == 0 and level != "unsafe" else (0, None)
        settings = {"control": theirs.fileno(), "user": self._user, "limits": limits, "modules": [*modules]}
        with theirs, lock or contextlib.nullcontext():  # the jail holds them, to its end
            self._process = subprocess.Popen(
                _command(level, settings), pass_fds=[theirs.fileno()],
                stdin=lock or subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log,
                env=ENVIRONMENT, cwd="/", start_new_session=True,
            )  # fmt: skip
        try:
            Channel(self.control, time.monotonic() + (_IMPORTS if modules else _START)).receive()
        except (Lost, OSError):
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
            self.close()
            raise RuntimeError(f"The sandbox does not start: {said or 'it gives no reason'}") from None

    def start(self, streams: Sequence[int], sockets: Sequence[socket.socket], seconds: float, **job: Any) -> None:
        """Have a job done. Its descriptors 0, 1 and 2 are `streams` (nothing where there are none), the next are the
        sockets, which it has from then on."""
        ours, theirs = socket.socketpair()
        with open(os.devnull, "r+b", buffering=0) as null, contextlib.ExitStack() as stack, ours:
            given, *ends = [stack.enter_context(end).fileno() for end in (theirs, *sockets)]
            try:
                socket.send_fds(self.control, [b"!"], [given, *(streams or [null.fileno()] * 3), *ends])
                stack.close()
                Channel(ours, time.monotonic() + _START, sys.maxsize).send({"seconds": seconds, **job})
            except OSError:
                self.close()
                raise RuntimeError("The sandbox broke down before it ran a program.") from None

    def wait(self, seconds: float) -> bool:
        """Whether the program ends within some seconds."""
        return bool(multiprocessing.connection.wait([self.control], seconds))

    def finish(self) -> tuple[int, str | None]:
        """End the program if it has not ended, with all that it started: its exit status and why the jail killed it."""
        try:
            self.control.sendall(b"k")
            status, reason = Channel(self.control, time.monotonic() + _MARGIN).receive()
            if status == -signal.SIGKILL and reason is None and self._contains:
                raise Lost("what no program can end was killed")
        except (Lost, OSError):
            self.close()
            raise RuntimeError("The sandbox broke down while it ran a program.") from None
        return status, reason

    def run(self, program: str, stdin: bytes, seconds: float) -> Outcome:
        """Run a program as a script, with files as its standard streams."""
        with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as err:
            source.write(stdin)
            source.seek(0)
            streams = [file.fileno() for file in (source, out, err)]
            for number in streams if self._user else ():  # so that it may open /dev/stdin
                os.fchown(number, self._user, self._user)
            self.start(streams, [], seconds, role="script", program=program)
            ended = self.wait(seconds)
            status, reason = self.finish()
            stdout, stderr = (os.pread(number, OUTPUT + 1, 0) for number in streams[1:])
        if max(len(stdout), len(stderr)) > OUTPUT:
            reason = "output"
        elif not ended:
            reason = "time"
        return Outcome(status, reason, stdout, stderr)

    def close(self) -> None:
        self.control.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _user() -> tuple[int, IO[str]]:
    """A uid that nobody has, for the programs of one jail, and what keeps other jails from it while it is open."""
    folder = LOCKS if os.access(LOCKS, os.W_OK) else Path("/tmp/rlkit-sandbox-users")  # one for all processes
    folder.mkdir(mode=0o700, exist_ok=True)
    if (found := folder.lstat()).st_uid or found.st_mode & 0o170002 != stat.S_IFDIR:
        raise RuntimeError(f"The sandbox does not start: {folder} is no folder that root alone can write.")
    for number in range(60_000, 65_000):  # which containers map, too
        # A file that programs can neither make nor open, and so not lock.
        lock = os.fdopen(os.open(folder / f"rlkit-sandbox-user-{number}", os.O_RDWR | os.O_CREAT, 0o600))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel frees it, however its holder ends
            return number, lock
        lock.close()
    raise RuntimeError("The sandbox does not start: every user for programs is taken.")


# The command that starts a jail

_BOOT = "import sys; sys.path.append(sys.argv[1]); from sandbox import jail; jail.main(sys.argv[2])"


def _command(level: str, settings: dict[str, Any]) -> list[str]:
    """The command line of a jail with these settings, as jail.main has them, but for level and paths."""
    own, home, outside = str(_python()), str(Path(__file__).parent.parent), []
    python = str(_python(for_all=True)) if level == "rlimits" and not settings["modules"] else own
    folders = [f for f in sys.path if f.endswith("-packages") and os.path.isdir(f)]
    paths = folders if Path(python).name == Path(own).name else []  # compiled code needs a Python like ours
    if level == "bubblewrap":
        bound = {f"{home}/sandbox": "/jail/sandbox"}
        if settings["modules"]:
            bound |= {folder: f"/packages/{i}" for i, folder in enumerate(folders)}
        else:
            bound |= {f"{folder}/{n}": f"/packages/0/{n}" for folder in reversed(folders) for n in _PACKAGES}
        paths = [f"/packages/{i}" for i, _ in enumerate(folders)]
        home, outside = "/jail", _bubblewrap(python, bound)
    settings |= {"level": level, "paths": paths}
    return [*outside, python, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, home, json.dumps(settings)]


def _bubblewrap(python: str, bound: Mapping[str, str]) -> list[str]:
    """The beginning of the command: a system with those files of `bound` that exist, in the places given there."""
    prefix, user = str(Path(python).parent.parent), "--unshare-user"
    if os.geteuid() == 0:
        user = "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
    line = [shutil.which("bwrap") or "bwrap"]  # the jail's PATH may lack its folder
    line += f"""{user} --cap-add CAP_SYS_ADMIN --cap-add CAP_KILL --die-with-parent
        --unshare-net --unshare-pid --unshare-ipc --unshare-uts --proc /proc --dev /dev --tmpfs /tmp
        --perms 0755 --dir /packages --perms 0755 --dir /packages/0 --perms 0755 --dir /jail
        --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache --ro-bind-try /etc/localtime /etc/localtime""".split()
    for place in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        link = os.path.islink(place)
        line += ["--symlink", os.readlink(place), place] if link else ["--ro-bind-try", place, place]
    if not prefix.startswith("/usr"):
        for parent in reversed(Path(prefix).parents[:-1]):
            line += ["--perms", "0755", "--dir", str(parent)]
        line += ["--ro-bind", prefix, prefix]
    for folder in {*sys.path, *site.getsitepackages([prefix, "/usr", "/usr/local"])}:
        shown = folder.endswith("-packages") and folder.startswith(("/usr/", f"{prefix}/"))
        if shown and os.path.isdir(folder):
            line += ["--tmpfs", folder, "--remount-ro", folder]  # the grader may be installed there
    for origin, place in bound.items():
        line += ["--ro-bind-try", origin, place]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _python(for_all: bool = False) -> str | None:
    """The interpreter behind a virtual environment, or, if any, one that every user can read."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        real = Path(os.path.realpath(path))
        if not for_all or (real.exists() and all(p.stat().st_mode & 0o001 for p in real.parents)):
            return str(real)
    return None
