"""verl as a child process: started, watched, ended; nothing of it stays behind.

verl 0.9.1 was seen to wait for ever after one of its workers had failed, with a log that goes on growing. So
what is watched is progress (answers and metrics), not life. Its processes carry a mark in their environment,
by which they are found and ended however Ray has arranged them; other Ray clusters of the machine are left
alone.
"""

import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from rlkit.errors import RunStopped

MARK = "RLKIT_VERL_RUN"
TICK = 1.0  # seconds between looks
TERMINATION = 10.0  # seconds that processes get to end by themselves
REASONS = (
    (
        r"Total available GPUs .* less than total desired",
        "there are fewer free GPUs than trainer.nnodes × trainer.n_gpus_per_node",
    ),
    (
        r"CUDA out of memory|torch\.OutOfMemoryError|Free memory on device",
        "a worker ran out of GPU memory: lower actor.micro_batch_tokens or verl's "
        "actor_rollout_ref.rollout.gpu_memory_utilization, or use more GPUs",
    ),
    (
        r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory",
        "a worker ran out of the machine's memory",
    ),
    (r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device", "no GPU was found"),
    (
        r"ConnectionError: .*(ray|GCS)|Failed to (start|connect to).*(raylet|GCS)|RaySystemError|node has died",
        "Ray could not be started, or was lost",
    ),
    (
        r"No module named '?(transfer_queue|vllm)",
        "verl's trainer is not installed whole: pip install 'rlkit[gpu]'",
    ),
    (r"no materializable trajectories", "not one answer of a step could be graded"),
    (r"ActorDiedError|ActorUnavailableError|EngineDeadError|Engine core .*(died|failed)", "a worker died"),
)
"""What a log says, and what it means; the first that is found counts."""


def run(
    command: list[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    mark: str,
    look: Callable[[], Hashable],
    stall_timeout: float,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Run a command to its end, with its output in `log`.

    Args:
        mark: names the run; processes that carry it from an earlier attempt are ended first.
        look: called every second; its value changes as long as there is progress. It may raise.
        stop: whether the user wants it ended.

    Returns:
        True when the command succeeded, False when `stop` ended it.

    Raises:
        RunStopped: it failed, or made no progress for `stall_timeout` seconds: one sentence with the log's path.
    """
    end_marked(mark)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, MARK: mark},
            start_new_session=True,  # Ctrl-C reaches this process alone
            preexec_fn=_die_with_parent,
        )
    try:
        return _watch(child, log, look, stall_timeout, stop)
    finally:
        end_marked(mark)
        child.wait()


def _watch(
    child: "subprocess.Popen[bytes]",
    log: Path,
    look: Callable[[], Hashable],
    stall_timeout: float,
    stop: Callable[[], bool],
) -> bool:
    seen, since = look(), time.monotonic()
    while child.poll() is None:
        if stop():
            return False
        time.sleep(TICK)
        now = look()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > stall_timeout:
            raise RunStopped(
                f"verl made no progress for {stall_timeout:g} s (trainer.stall_timeout) and was ended"
                f"{_because(log)}. Run it again to continue from the last checkpoint. Log: {log}"
            )
    if child.returncode:
        raise RunStopped(f"verl ended with status {child.returncode}{_because(log)}. Log: {log}")
    return True


def _because(log: Path) -> str:
    """What the log says about a failure, as the end of a sentence."""
    text = log.read_text(errors="replace") if log.exists() else ""
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return f": {reason}"
    errors = re.findall(r"^(?:\S*\s)?((?:\w+\.)*\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    return f": {errors[-1].strip().rstrip('.')}" if errors else ""


def end_marked(mark: str) -> None:
    """End every process of this user that carries the mark, children and Ray's daemons alike."""
    found = list(_marked(mark))
    for process in found:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(found, timeout=TERMINATION if found else 0)
    for process in [*alive, *_marked(mark)]:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=TERMINATION if alive else 0)


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)


def _die_with_parent() -> None:
    """Linux: a launcher that is killed takes verl with it, and Ray's daemons follow their driver."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
