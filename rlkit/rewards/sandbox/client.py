"""The worker's side of the sandbox: a jail process that is started once and forks for every program.

The caller reads what a program prints, up to a cap, and keeps the clock; the jail only starts programs,
ends them with everything they started, and says how they ended.
"""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlkit.rewards.sandbox import cgroups
from rlkit.rewards.sandbox.levels import ENVIRONMENT, Level, command

_START = 10.0  # seconds in which a jail must answer
_IMPORTS = 120.0  # the same where it imports packages first
_MARGIN = 1.0  # seconds that a jail may take to kill a program


@dataclass(frozen=True)
class Limits:
    """What a program may use."""

    memory: int = 1 << 30  # bytes, of each process and of all together (rlkit.rewards.sandbox.cgroups)
    output: int = 16 << 20  # bytes of standard output, and of standard error
    files: int = 64 << 20  # bytes of all files in its folder
    processes: int = 64


@dataclass(frozen=True)
class Outcome:
    """How a program ended: `reason` is None, "time", "output" or "memory"; a status is negative or above
    128 after a signal."""

    status: int
    reason: str | None
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        return self.status == 0 and self.reason is None


class Jail:
    """A sandbox with a warm interpreter. A context manager; a broken one is closed and not reused.

    Args:
        modules: what it imports at its start, from all installed packages; programs are forked with it.

    Raises:
        RuntimeError: the sandbox cannot be started.
    """

    _count = 0

    def __init__(self, level: Level, limits: Limits | None = None, modules: Sequence[str] = ()) -> None:
        self.limits = limits or Limits()
        Jail._count += 1
        number = (os.getpid() * 4 + Jail._count) % 50_000  # its programs' user, unlike other jails'
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._group, self._kills = self._grouped(), 0
        start = command(level, theirs.fileno(), number, modules)
        with theirs:
            self._process = subprocess.Popen(
                self._group.command(start) if self._group else start,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        self.control = ours
        ours.settimeout(_IMPORTS if modules else _START)
        try:
            ready = ours.recv(1)
        except OSError:
            ready = b""
        if ready != b"!":
            complaint = self._complaint()
            self.close()
            raise RuntimeError(f"The sandbox does not start: {complaint}")

    def _grouped(self) -> cgroups.Group | None:
        """A cgroup of the jail's own, where one may be made."""
        parent = cgroups.parent()
        if parent is None:
            return None
        try:
            return cgroups.Group(parent, f"rlkit-{os.getpid()}-{Jail._count}", self.limits.memory)
        except OSError:
            return None

    def _complaint(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it gives no reason"

    def start(self, role: str, program: str, descriptors: list[int], seconds: float, **extra: Any) -> None:
        """Have a program started; the descriptors become its 0, 1, 2 …"""
        request = {
            "role": role,
            "program": program,
            "seconds": seconds,
            "memory": self.limits.memory,
            "files": self.limits.files,
            "processes": self.limits.processes,
            **extra,
        }
        data = json.dumps(request).encode()
        try:
            socket.send_fds(self.control, [len(data).to_bytes(4, "big")], descriptors)
            self.control.sendall(data)
        except OSError:
            self.close()
            raise RuntimeError("The sandbox broke down before it ran a program.") from None

    def finish(self) -> tuple[int, str | None]:
        """End the program if it has not ended, with all that it started: its exit status and why the jail
        killed it. Raises RuntimeError if the jail does not answer; it is closed then."""
        self.control.settimeout(_MARGIN)
        line = b""
        try:
            self.control.sendall(b"k")
            while not line.endswith(b"\n"):
                piece = self.control.recv(4096)
                if not piece:
                    raise OSError
                line += piece
        except OSError:
            self.close()
            raise RuntimeError("The sandbox broke down while it ran a program.") from None
        reply = json.loads(line)
        kills = self._group.kills() if self._group else 0
        grown, self._kills = kills > self._kills, kills
        return reply["status"], "memory" if grown else reply["reason"]

    def run(self, program: str, stdin: bytes, seconds: float) -> Outcome:
        """Run a program as a script."""
        source = _sealed(stdin)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            self.start("script", program, [source, out_end, err_end], seconds)
        finally:
            for number in (source, out_end, err_end):
                os.close(number)
        try:
            return self._collect(out, err, time.monotonic() + seconds)
        finally:
            os.close(out)
            os.close(err)

    def _collect(self, out: int, err: int, end: float) -> Outcome:
        """Read both streams until the program ends, its time is over or it has written too much."""
        read: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
        with selectors.DefaultSelector() as selector:
            for number in (out, err, self.control.fileno()):
                selector.register(number, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, end - time.monotonic()))
                if not ready:
                    status, _ = self.finish()
                    return Outcome(status, "time", bytes(read[out]), bytes(read[err]))
                for key, _ in ready:
                    if key.fd in read and not self._drain(key.fd, read[key.fd]):
                        selector.unregister(key.fd)
                if max(map(len, read.values())) > self.limits.output:
                    status, _ = self.finish()
                    return Outcome(status, "output", bytes(read[out]), bytes(read[err]))
                if [key.fd for key, _ in ready] == [self.control.fileno()]:
                    break
        status, reason = self.finish()
        for number in read:
            os.set_blocking(number, False)
            with contextlib.suppress(BlockingIOError):
                while self._drain(number, read[number]) and len(read[number]) <= self.limits.output:
                    pass
        return Outcome(status, reason, bytes(read[out]), bytes(read[err]))

    @staticmethod
    def _drain(number: int, buffer: bytearray) -> bool:
        data = os.read(number, 1 << 18)
        buffer += data
        return bool(data)

    def close(self) -> None:
        self.control.close()
        self._process.kill()
        self._process.wait()
        self._log.close()
        if self._group:
            self._group.close()

    def __enter__(self) -> "Jail":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sealed(data: bytes) -> int:
    """A readable descriptor that holds `data` and that nobody can change."""
    if sys.platform != "linux":
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            return os.dup(file.fileno())
    import fcntl

    number = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return number
