"""Grading processes: a fork server that has the scorers imported, and the workers that it forks.

The trainer itself has threads and perhaps a GPU, so it must not fork, and a process that imports the scorers takes a
second. `multiprocessing`'s fork server would give workers the trainer's environment and run its `__main__` in each.

Messages of a worker are JSON and not pickle, so that one that was taken over can send values alone: the number of the
next answer, how many seconds to wait for more, and for each graded answer [value, correct, parts, error, seconds].
"""

import faulthandler
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from rlkit.config import RewardConfig
from rlkit.domains import scorers
from rlkit.rewards.grading import NOBODY, grade, load_function
from rlkit.sandbox import programs
from rlkit.sandbox.jail import PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl
from rlkit.sandbox.plain import Channel, Lost
from rlkit.types import Reward

_GRACE = 0.7  # seconds after the deadline: scorers that watch the clock themselves finish first
_LARGEST = 1 << 30  # bytes of a message from a worker
_MEMORY = 4 << 30  # bytes of address space of a worker; a greedy answer gets a MemoryError
_RESIDENT = 1 << 30  # bytes in memory after which a worker is replaced
_TOGETHER = 0.01  # seconds for which outcomes are collected

_VARIABLES = set(
    "PATH HOME USER LANG LANGUAGE TZ TMPDIR VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES "  # noqa: SIM905
    "RLKIT_PLUGINS OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS HF_HOME HF_HUB_OFFLINE "
    "TRANSFORMERS_OFFLINE SSL_CERT_FILE SSL_CERT_DIR http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY "
    "NO_PROXY PYTHONPATH PYTHONHOME PYTHONUTF8 PYTHONHASHSEED PYTHONNOUSERSITE PYTHONUSERBASE "
    "PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX LC_ALL LC_CTYPE LC_NUMERIC LC_TIME".split()
)


def environment(config: RewardConfig) -> dict[str, str]:
    """The variables of this process that a worker gets: a fixed list without secrets, and the judge's key where
    there is a judge."""
    # A proxy's address may hold a password; threads take address space, of which there is a limit.
    names = {name for name in _VARIABLES if not ("proxy" in name.lower() and "@" in os.environ.get(name, ""))}
    names |= {"JUDGE_API_KEY"} if config.judge_url else set()
    return {"OPENBLAS_NUM_THREADS": "1"} | {name: os.environ[name] for name in names & os.environ.keys()}


class ForkServer:
    """The process that forks workers, with these `sys.path` and variables; another one is started if it dies."""

    def __init__(self, path: Sequence[str], variables: Mapping[str, str]) -> None:
        code = "import sys; sys.path[:] = sys.argv[1:]; from rlkit.rewards.worker import main; main()"
        self._command, self._variables = [sys.executable, "-P", "-c", code, *path], variables
        self.numbers, self._lock = itertools.count(1), threading.Lock()
        self._start()

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                self._command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=self._variables,
                start_new_session=True,  # Ctrl-C stops the trainer, which then ends its workers
            )  # fmt: skip

    def ask(self, number: int, *descriptors: int) -> None:
        """Have a worker of this number forked that has these descriptors (see `_work`); without any, have it ended."""
        with self._lock:
            try:
                socket.send_fds(self._socket, [number.to_bytes(8)], descriptors)
            except ConnectionError:
                if descriptors:
                    self._start()
                    socket.send_fds(self._socket, [number.to_bytes(8)], descriptors)


class Worker:
    """A worker as the router sees it; its first outcomes, of no answers, say that it is ready. Methods raise OSError,
    Lost or ValueError where it dies or sends nonsense."""

    def __init__(self, server: ForkServer, config: RewardConfig) -> None:
        ours, theirs = socket.socketpair()
        self._begins, their_begins = os.pipe()  # a byte for each answer that the worker begins
        os.set_blocking(self._begins, False)
        self._server, self._number = server, next(server.numbers)
        with theirs, open(their_begins, "wb", buffering=0):
            server.ask(self._number, theirs.fileno(), their_begins)
        self._timeout = config.timeout
        self._longest = max(config.timeout, programs.LOADING_SECONDS + config.total_timeout)
        self._channel = Channel(ours, time.monotonic() + programs.LOADING_SECONDS, _LARGEST)
        self._sent = self._begun = self._graded = 0
        self.crashed = False
        self._channel.write(config.model_dump_json().encode())

    def send(self, rows: bytes, count: int) -> None:
        """Have rows graded: the JSON of a list of `grade`'s arguments."""
        self.held()  # empties the pipe, which the worker would wait for
        self._channel.end = time.monotonic() + self._timeout + _GRACE
        self._channel.write(rows)
        self._sent += count

    def outcomes(self) -> list[tuple[Reward, float]]:
        """The next outcomes, of none or several rows: rewards and seconds taken. Raises TimeoutError: one is late."""
        number, wait, *found = self._channel.receive()
        if number != self._graded or number + len(found) > self._sent:
            raise ValueError("an outcome that was not asked for")
        self._channel.end = time.monotonic() + min(wait, self._longest) + _GRACE
        self._graded += len(found)
        return [(Reward(*told), min(seconds, self._longest)) for *told, seconds in found]

    def held(self) -> int:
        """The place of the answer that it is at among those that it was sent and that have no outcome yet. Afterwards
        `crashed` says whether it ended by a fault of its own."""
        with suppress(BlockingIOError):
            begun, fault, _ = os.read(self._begins, 1 << 16).partition(b"Fatal")  # faulthandler's first word
            self._begun, self.crashed = self._begun + len(begun), bool(fault)
        return max(0, self._begun - self._graded - 1)

    def kill(self) -> None:
        """End it at once; from any thread."""
        self._server.ask(self._number)

    def close(self) -> None:
        """End it and release the connection."""
        self.kill()
        self._channel.sock.close()
        os.close(self._begins)


def main() -> None:
    """Fork and kill workers as the router's process asks for it, until that ends. Standard input is its socket."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # the sandboxes of killed workers become children of this process
    warnings.simplefilter("ignore", SyntaxWarning)  # of answers that are read as Python
    list(scorers)  # imports them
    # This imports more, and makes pint's registry of units.
    grade("math__units", r"\boxed{1 \text{ m}}", "100 cm", {})
    server, workers = socket.socket(fileno=0), dict[int, int]()  # process ids by number
    while (request := socket.recv_fds(server, 8, 2))[0]:
        with suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                workers = {number: worker for number, worker in workers.items() if worker != ended}
        number, descriptors = int.from_bytes(request[0]), request[1]
        if number in workers:
            os.kill(workers[number], signal.SIGKILL)
        elif descriptors:
            if (worker := os.fork()) == 0:
                _work(*descriptors)
            workers[number] = worker
            for descriptor in descriptors:
                os.close(descriptor)


def _work(connection: int, begins: int) -> None:
    """Be a worker that has these descriptors and no others, to its end."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for low, high in itertools.pairwise([2, *sorted((connection, begins)), os.sysconf("SC_OPEN_MAX")]):
            os.closerange(low + 1, high)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        faulthandler.enable(begins, all_threads=False)
        with suppress(Lost, ConnectionError):
            _serve(Channel(socket.socket(fileno=connection), largest=sys.maxsize), begins)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(channel: Channel, begins: int) -> None:
    """Grade rows until the router closes the connection, or too much memory is in use. Outcomes are sent together, at
    the latest after `_TOGETHER` seconds or before a longer wait; `begins` gets a byte for each answer that is begun."""
    config = RewardConfig.model_validate_json(channel.read())
    if config.custom_reward_function is None:  # a custom function may need any amount of memory
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    else:
        with suppress(Exception):  # each answer has the reason as its error
            load_function(config.custom_reward_function)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of user resets
    outcomes: list[list[Any]] = []
    process, number, told = os.getpid(), 0, 0.0

    def tell(wait: float = config.timeout) -> None:
        """Send the outcomes that are there, and how many seconds the next may take."""
        nonlocal number, told
        try:
            message = encode([number, wait, *outcomes])
        except Exception:  # of any kind: the parts are the scorer's
            said = {"parts": "they have no JSON form"}
            message = encode([number, wait, *([*o[:2], said, *o[3:]] for o in outcomes)])
        channel.write(message)
        number, told = number + len(outcomes), time.perf_counter()
        outcomes.clear()

    tell()
    while psutil.Process().memory_info().rss < _RESIDENT:
        for row in json.loads(channel.read()):
            os.write(begins, b".")
            start = time.perf_counter()
            reward = grade(*row, grading=programs.Grading(config, tell))
            if os.getpid() != process:  # the scorer forked: only one of the two may speak
                os._exit(0)
            end = time.perf_counter()
            outcomes.append([reward.value, reward.correct, reward.parts, reward.error, end - start])
            if end - told > _TOGETHER:
                tell()
        if outcomes:
            tell()


def _jsonable(value: Any) -> Any:
    """numpy scalars and arrays as lists and numbers, other mappings as dicts."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "items"):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def encode(value: Any) -> bytes:
    """JSON bytes; raises TypeError, ValueError or RecursionError for what JSON has no form for."""
    return json.dumps(value, default=_jsonable, separators=(",", ":")).encode()
