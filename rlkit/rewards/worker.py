"""The nursery process and the workers that it forks (children of rlkit.rewards.nursery).

A worker reads batches of answers, grades them one after another and sends the outcomes, those of quick answers
together. It notes in shared memory which answer it is grading, so the router always knows which one a worker that
died or hung was holding.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
import traceback
from typing import Any

from rlkit.config import RewardConfig
from rlkit.domains import scorers
from rlkit.rewards.grading import Grading, grade
from rlkit.rewards.sandbox import programs
from rlkit.rewards.wire import END, GRADED, HELD, LOADING, Channel, encode

_MEMORY = 4 << 30  # bytes of address space of a worker; a greedy answer gets a MemoryError
_RECYCLE = 1 << 30  # bytes resident after which the router replaces a worker
_PATIENCE = 1e-3  # seconds that outcomes of quick answers are collected before they are sent
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(descriptor: int) -> None:
    """Serve spawn and kill requests until the router's end of the control socket closes."""
    control = socket.socket(fileno=descriptor)
    _adopt_orphans()
    children: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 65536, 2)
        if not message:
            break
        request = json.loads(message)
        if request["op"] == "spawn":
            reply = _spawn(request, control, *descriptors)
            children.add(reply)
        else:
            reply = request["pid"]
            if reply in children:
                os.kill(reply, signal.SIGKILL)
                os.waitpid(reply, 0)
                children.discard(reply)
        children -= _reaped() or set()
        control.sendall(json.dumps(reply).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 2
    while _reaped() is not None and time.monotonic() < end:
        time.sleep(0.005)


def _spawn(request: dict[str, Any], control: socket.socket, descriptor: int, note: int) -> int:
    for module in ("rlkit.domains.math.compare", "pint", "langdetect"):
        with contextlib.suppress(Exception):  # one that is not installed is told of where it is asked for
            importlib.import_module(module)  # once here instead of in every worker that is forked from now on
    scorers.names()
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        os.close(note)
        return pid
    try:
        control.close()
        _die_with_parent(nursery)
        settings = RewardConfig.model_validate(request["settings"])
        serve(Channel(socket.socket(fileno=descriptor)), mmap.mmap(note, HELD), settings)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _adopt_orphans() -> None:
    """Sandboxes of a killed worker become children of the nursery, which then reaps them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _reaped() -> set[int] | None:
    """Processes that ended; None when there is none left."""
    gone: set[int] = set()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return gone or None
        if pid == 0:
            return gone
        gone.add(pid)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def serve(channel: Channel, note: mmap.mmap, settings: RewardConfig) -> None:
    """Grade batches until the router closes the socket."""
    if settings.custom_reward_function is None:  # a custom function may need any amount of memory
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    while True:
        try:
            batch = channel.receive()
        except EOFError:
            break
        _grade(batch, channel, note, settings)
        channel.send(encode([END, _resident() > _RECYCLE]))
    programs.close()


def _grade(batch: list[Any], channel: Channel, note: mmap.mmap, settings: RewardConfig) -> None:
    """Grade a batch. Outcomes of quick answers are sent together."""
    waiting: list[list[Any]] = []
    flushed = time.perf_counter()

    def flush() -> None:
        nonlocal flushed
        if waiting:
            channel.send(_encode(waiting))
            waiting.clear()
        flushed = time.perf_counter()

    def announce(seconds: float) -> None:
        flush()
        channel.send(encode([LOADING, seconds]))

    neighbours = list(batch)
    own = os.getpid()
    for index, answer in enumerate(batch):
        note[:HELD] = index.to_bytes(HELD, "big")
        start = time.perf_counter()
        reward = grade(*answer, Grading(settings, neighbours, announce))
        if os.getpid() != own:  # the scorer forked: only one of the two may speak
            os._exit(0)
        end = time.perf_counter()
        waiting.append([reward.value, reward.correct, dict(reward.parts), reward.error, end - start])
        if end - flushed > _PATIENCE:
            flush()
    flush()


def _encode(outcomes: list[list[Any]]) -> bytes:
    try:
        return encode([GRADED, *outcomes])
    except Exception:  # a scorer's odd facts, which must not cost the other answers theirs
        for outcome in outcomes:
            outcome[2] = {_text(name): v if _plain(v) else _text(v) for name, v in outcome[2].items()}
        return encode([GRADED, *outcomes])


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # of any kind: it is the scorer's
        return f"a {type(value).__name__}"


def _plain(value: Any) -> bool:
    try:
        encode(value)
        return True
    except Exception:  # of any kind: it is the scorer's
        return False


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
