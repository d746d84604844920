"""A process beside a notebook's kernel, for work that would hold up its clicks: drawing, and all that needs torch.

A thread is not enough: it shares the interpreter's lock with the one that answers clicks, and where torch is loaded
a single garbage collection stops both for half a second.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from rlkit.studies.notebook import end_with_parent

_Result = TypeVar("_Result")
_lock = threading.Lock()
_pools: list[ProcessPoolExecutor] = []  # one, after the first call


def aside(function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a module's function in that process, with paths that mean the same, and wait for what it returns.

    The process begins with the first call, keeps what it has imported, and ends with this one; killed, it begins
    anew.

    Raises:
        whatever the function raises; BrokenProcessPool where it is killed again.
    """
    call = (_at, os.getcwd(), function, args)
    try:
        return _pool().submit(*call).result()
    except BrokenProcessPool:
        _pools.clear()
        return _pool().submit(*call).result()


def _pool() -> ProcessPoolExecutor:
    with _lock:
        if not _pools:
            _pools.append(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin))
        return _pools[0]


def _begin() -> None:
    """The kernel goes first, its interrupt is not for this process, and its end is."""
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _at(folder: str, function: Callable[..., _Result], args: tuple[Any, ...]) -> _Result:
    os.chdir(folder)
    return function(*args)
