"""The parent's side of the worker processes: one nursery process that forks workers on request.

The nursery is a small single-threaded process with the scorers imported, so a replacement for a killed
worker is a fork of milliseconds, whatever threads the trainer has. It also does the killing: it is the
workers' parent, so a process id cannot have been reused. When the trainer ends, however it ends, the
nursery reads the end of its control socket and takes every worker with it.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any

from rlkit.rewards.wire import HELD, Channel

_BOOT = """import json, sys
sys.path[:] = json.loads(sys.argv[2])
from rlkit.rewards.worker import main
main(int(sys.argv[1]))"""


class Nursery:
    """Starts and kills workers. Thread-safe; a nursery that died is replaced at the next request.

    Args:
        settings: what every worker is told (a RewardConfig as a mapping).
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C stops the trainer, which then closes its workers
            )
        self._control = ours

    def _ask(self, request: Mapping[str, Any], descriptors: list[int]) -> Any:
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        reply = self._control.recv(4096)
        if not reply:
            raise ConnectionError
        return json.loads(reply)

    def spawn(self) -> "Worker":
        """A new worker. Raises RuntimeError when none can be started."""
        with self._lock:
            if self._closed:  # or it would be started again, for nobody
                raise RuntimeError("The router was closed.")
            ours, theirs = socket.socketpair()
            note = _memory()
            with theirs:
                request = {"op": "spawn", "settings": self._settings}
                for attempt in (1, 2):
                    try:
                        pid = self._ask(request, [theirs.fileno(), note.fileno()])
                        return Worker(self, pid, ours, note)
                    except OSError:
                        if attempt == 2:
                            raise RuntimeError("No grading process can be started.") from None
                        self._stop()
                        self._start()
        raise AssertionError("unreachable")

    def kill(self, pid: int) -> None:
        """Kill a worker and wait until it is gone."""
        with self._lock, contextlib.suppress(OSError):  # a dead nursery has taken its workers with it
            self._ask({"op": "kill", "pid": pid}, [])

    def _stop(self) -> None:
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._stop()


def _memory() -> IO[bytes]:
    """HELD bytes that two processes share. The router reads and writes them as a file: in memory that is
    mapped, a file that was cut short, or a full disk, would be a bus error and so the trainer's end."""
    if sys.platform == "linux":  # needs no disk, and its size can be sealed
        file = open(os.memfd_create("rlkit-note", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b", buffering=0)  # noqa: SIM115
        file.write(bytes(HELD))
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        file.write(bytes(HELD))
    return file


class Worker(Channel):
    """One grading process, as the router sees it.

    Args:
        note: file in memory in which it says which answer of a batch it is grading.
    """

    def __init__(self, nursery: Nursery, pid: int, sock: socket.socket, note: IO[bytes]) -> None:
        super().__init__(sock)
        self.pid = pid
        self._nursery, self._note = nursery, note

    def give(self, batch: bytes) -> None:
        """Send a batch of answers."""
        os.pwrite(self._note.fileno(), bytes(HELD), 0)
        self.send(batch)

    def held(self) -> int:
        """The answer of its batch that it is grading, or was when it died."""
        return int.from_bytes(os.pread(self._note.fileno(), HELD, 0), "big")

    def kill(self) -> None:
        self._nursery.kill(self.pid)
        self.close()

    def close(self) -> None:
        super().close()
        self._note.close()
