"""A grading process: it reads batches of answers from the router, grades them and sends the outcomes back.

Messages are JSON and not pickle, so that a worker that untrusted text has taken over can send nothing but values:
[GRADED, outcome, …] of the batch's next answers, [LOADING, seconds to wait], and [END, whether the worker has grown
too big] after the last outcome of a batch.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from rlkit.config import RewardConfig
from rlkit.rewards.grading import LOADING_SECONDS, NOBODY, Grading, grade, load_function
from rlkit.rewards.sandbox import programs
from rlkit.types import Reward

GRADED, LOADING, END = range(3)

_MEMORY = 4 << 30  # bytes of address space of a worker; a greedy answer gets a MemoryError
_RECYCLE = 1 << 30  # bytes resident after which the router replaces a worker
_PATIENCE = 1e-3  # seconds that outcomes of quick answers are collected before they are sent
_PR_SET_NO_NEW_PRIVS = 38

_VARIABLES = {
    "PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
}  # fmt: skip


def environment(config: RewardConfig) -> dict[str, str]:
    """The variables of this process that a worker gets: a fixed list without secrets, those of `reward.env_vars`, and
    the judge's key where there is a judge."""
    named = {*config.env_vars, *(("JUDGE_API_KEY",) if config.judge_url else ())}

    def passed(name: str, value: str) -> bool:
        plain = name in _VARIABLES or name.startswith(("LC_", "PYTHON"))
        return name in named or (plain and "@" not in value)  # a proxy's address may hold a password

    return {name: value for name, value in os.environ.items() if passed(name, value)}


@dataclass
class Start:
    """The configuration of a new worker. The fork server unpickles it in the new process and calls `_bootstrap`, as it
    does with a multiprocessing.Process."""

    config: RewardConfig
    environment: Mapping[str, str]

    def _bootstrap(self, sentinel: int) -> int:
        """Serve the router until it closes the connection.

        Args:
            sentinel: a pipe whose other end the router's process holds.
        """
        try:
            _end_with(sentinel)
            os.setsid()  # Ctrl-C stops the trainer, which then ends its workers
            _replace_environment(self.environment)
            with open(os.devnull, "r+b") as null:
                os.dup2(null.fileno(), 0)
                os.dup2(null.fileno(), 1)
            connection, begun = forkserver.get_inherited_fds() or []
            _serve(Connection(connection), begun, self.config)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0


def _end_with(sentinel: int) -> None:
    """Have the kernel kill this process when the other end of the pipe closes, whatever it is computing then."""
    if sys.platform == "linux":
        fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)


def _replace_environment(variables: Mapping[str, str]) -> None:
    """Also in the memory that /proc/self/environ shows, which unsetting a variable leaves as it was."""
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    index = 0
    while entry := entries[index]:
        text = ctypes.string_at(entry)
        if text.partition(b"=")[0].decode(errors="replace") not in variables:
            ctypes.memset(entry, 0, len(text))
        index += 1
    os.environ.clear()
    os.environ.update(variables)


def _drop_privileges() -> None:
    """Become nobody where this process is root, and gain no rights by any program from now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _serve(connection: Connection, begun: int, config: RewardConfig) -> None:
    """Grade batches. One byte into `begun` before each answer tells the router which one a worker that hangs or dies
    was grading."""
    if config.custom_reward_function is None:  # a custom function may need any amount of memory
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    else:
        connection.send_bytes(encode([LOADING, LOADING_SECONDS]))
        with contextlib.suppress(Exception):  # each answer has the reason as its error
            load_function(config.custom_reward_function)
        _drop_privileges()
        connection.send_bytes(encode([LOADING, config.timeout]))
    while True:
        try:
            batch = json.loads(connection.recv_bytes())
        except EOFError:
            break
        _grade(batch, connection, begun, config)
        connection.send_bytes(encode([END, _resident() > _RECYCLE]))
    programs.close()


def _grade(batch: list[Any], connection: Connection, begun: int, config: RewardConfig) -> None:
    """Grade a batch. Outcomes of quick answers are sent together."""
    waiting: list[bytes] = []
    flushed = time.perf_counter()

    def flush() -> None:
        nonlocal flushed
        if waiting:
            connection.send_bytes(b"[%d,%b]" % (GRADED, b",".join(waiting)))
            waiting.clear()
        flushed = time.perf_counter()

    def announce(seconds: float) -> None:
        flush()
        connection.send_bytes(encode([LOADING, seconds]))

    neighbours, own = list(batch), os.getpid()
    for answer in batch:
        os.write(begun, b".")
        start = time.perf_counter()
        reward = grade(*answer, grading=Grading(config, neighbours, announce))
        if os.getpid() != own:  # the scorer forked: only one of the two may speak
            os._exit(0)
        end = time.perf_counter()
        waiting.append(_outcome(reward, end - start))
        if end - flushed > _PATIENCE:
            flush()
    flush()


def _resident() -> int:
    """Bytes of memory in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _jsonable(value: Any) -> Any:
    """numpy scalars and arrays as lists and numbers, other mappings as dicts, bytes as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "items"):
        return dict(value)
    if isinstance(value, bytes):
        return value.decode()  # UnicodeDecodeError is a ValueError: the caller reports it
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(default=_jsonable, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """JSON bytes; raises TypeError or ValueError for what JSON has no form for."""
    return _ENCODER.encode(value).encode()


def _outcome(reward: Reward, seconds: float) -> bytes:
    """A reward as JSON; facts of a scorer that JSON has no form for become text."""
    facts = dict(reward.parts)
    try:
        return encode([reward.value, reward.correct, facts, reward.error, seconds])
    except Exception:  # of any kind: the facts are the scorer's
        facts = {_text(name): _plain(value) for name, value in facts.items()}
        return encode([reward.value, reward.correct, facts, reward.error, seconds])


def _plain(value: Any) -> Any:
    try:
        return json.loads(encode(value))
    except Exception:  # of any kind: the value is the scorer's
        return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # of any kind: the value is the scorer's
        return f"a {type(value).__name__}"
