"""The router: answers in, rewards out, graded in worker processes.

    with Router(config.reward) as router:
        rewards = router.grade([(task, response), ...])

Works the same from any thread; from an event loop use `grade_async`. Each worker process has a thread here that sends
it batches of answers and kills it when an answer is late. Workers are forked from a fork server, which has the scorers
imported, so that a killed one is replaced in milliseconds, whatever threads the trainer has.
"""

import asyncio
import atexit
import json
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import wait
from multiprocessing.forkserver import ForkServer, read_signed
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards.worker import END, LOADING, Start, encode, environment
from rlkit.types import Reward, Task

_GRACE = 0.7  # seconds after the deadline: scorers that watch the clock themselves finish first
_LONG = 3600.0  # seconds; no answer counts as longer
_CHUNK = 64  # most answers sent to a worker at once
_WORTH = 2e-3  # seconds of grading that a message to a worker should at least bring
_LARGEST = 1 << 30  # bytes of a message from a worker
_UNSENDABLE = "The row cannot be sent to a worker"


class Call:
    """Rows that are being graded: `results` and grading times in `seconds`, in order, as they come in."""

    def __init__(self) -> None:
        self.results: list[Reward | None] = []
        self.seconds: list[float] = []
        self._left = 0
        self._changed = threading.Condition()

    def expect(self, rows: int) -> int:
        """Make room for `rows` more. Returns the index of the first."""
        first = len(self.results)
        self.results += [None] * rows
        self.seconds += [0.0] * rows
        with self._changed:
            self._left += rows
        return first

    def finish(self, index: int, reward: Reward, seconds: float = 0.0) -> None:
        self.results[index], self.seconds[index] = reward, seconds
        with self._changed:
            self._left -= 1
            if not self._left:
                self._changed.notify_all()

    def wait(self, progress: bool = False) -> list[Reward]:
        """All rewards, once they are there."""
        if progress:
            self._show()
        with self._changed:
            self._changed.wait_for(lambda: not self._left)
        return [reward for reward in self.results if reward is not None]

    def _show(self) -> None:
        from tqdm.auto import tqdm

        with tqdm(total=len(self.results), desc="grading", unit="answer") as bar:
            while bar.n < len(self.results):
                with self._changed:
                    self._changed.wait_for(lambda: not self._left, 0.2)
                bar.update(len(self.results) - self._left - bar.n)


@dataclass(slots=True)
class _Job:
    """One row of a call."""

    call: Call
    index: int
    row: list[Any]
    deaths: int = 0

    def fail(self, reason: str) -> None:
        self.call.finish(self.index, Reward.failed(reason))


_servers: dict[int, ForkServer] = {}


def _server() -> ForkServer:
    """This process's fork server; a forked child must not use its parent's.

    It is one of our own and speaks for itself, because `get_context("forkserver").Process` runs the trainer's
    `__main__` again in each new worker: a script without a guard fails, and one that imports torch takes seconds. The
    server that multiprocessing shares may also be running already, without our modules.
    """
    server = ForkServer()
    server.set_forkserver_preload(["rlkit.rewards.preload"])
    return _servers.setdefault(os.getpid(), server)


class _Worker:
    """One worker process, as the router sees it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, start: Start) -> None:
        self._connection, theirs = Pipe()
        self._begun, begun = os.pipe()
        os.set_blocking(self._begun, False)
        self._status = self._alive = -1
        self._lock = threading.Lock()
        preparation: dict[str, Any] = {"sys_path": sys.path}
        with suppress(OSError):  # the folder was deleted
            preparation["dir"] = os.getcwd()
        try:
            self._status, self._alive = _new_process([theirs.fileno(), begun])
            with open(self._alive, "wb", closefd=False) as pipe:
                pickle.dump(preparation, pipe)
                pickle.dump(start, pipe)
            self._pid = read_signed(self._status)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(begun)

    def send(self, batch: bytes) -> None:
        self.answers_begun()
        self._connection.send_bytes(batch)

    def receive(self, seconds: float) -> Any:
        """The next message. Raises TimeoutError when there is none within `seconds`, EOFError when it died."""
        if not self._connection.poll(seconds):
            raise TimeoutError
        return json.loads(self._connection.recv_bytes(_LARGEST))

    def answers_begun(self) -> int:
        """How many answers it has begun to grade since this was last asked."""
        with suppress(BlockingIOError):
            return len(os.read(self._begun, 65536))
        return 0

    def kill(self) -> None:
        """End it at once. From any thread; the worker's own thread then calls `close`."""
        with self._lock:
            if self._alive >= 0 and not wait([self._status], 0):
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, wait until it is gone, and release what is held for it."""
        if self._alive >= 0:
            self.kill()
            wait([self._status], 5)
        self._connection.close()
        with self._lock:
            for descriptor in (self._alive, self._status, self._begun):
                if descriptor >= 0:
                    os.close(descriptor)
            self._alive = self._status = self._begun = -1


def _new_process(descriptors: list[int]) -> tuple[int, int]:
    """Fork a process that has the descriptors: where its status is read, and where it reads from."""
    for pause in (0.1, 0.5, 2.0):
        with suppress(OSError):
            return _server().connect_to_new_process(list(descriptors))
        time.sleep(
            pause
        )  # until a fork server that has died is seen to have: the next request starts another
    return _server().connect_to_new_process(list(descriptors))


class Router:
    """Grades answers in worker processes; a context manager. It belongs to the process that made it: a forked one has
    none of its threads.

    Args:
        config: scorer, workers, deadline, sandbox; defaults to RewardConfig().

    Raises:
        UserError: no process can be started, or custom_reward_function is no module:function.
    """

    def __init__(self, config: RewardConfig | None = None) -> None:
        self.config = config or RewardConfig()
        if self.config.custom_reward_function and ":" not in self.config.custom_reward_function:
            raise UserError(
                f"reward.custom_reward_function is {self.config.custom_reward_function!r}: "
                "write module:function or file.py:function."
            )
        self._size = self.config.num_workers or min(os.cpu_count() or 1, 8)
        self._start = Start(self.config, environment(self.config))
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closed, self._owner = False, os.getpid()
        self._seconds: dict[str, float] = {}  # what an answer of a data source has lately taken
        self._threads: list[threading.Thread] = []
        self._workers: set[_Worker] = set()
        try:
            _server().ensure_running()
        except OSError as error:
            raise UserError(
                f"No grading process can be started with temporary files in {tempfile.gettempdir()}: {error}. Set "
                "TMPDIR to a short path of a folder that can be written, e.g. /tmp."
            ) from None
        atexit.register(self.close)

    def grade(self, answers: Iterable[tuple[Task, str]], progress: bool = False) -> list[Reward]:
        """The rewards of `answers`, in order. One bad answer never raises: it has an error. The first are graded
        while an iterator makes the next."""
        rows = ((task.data_source, text, task.ground_truth, task.extra_info) for task, text in answers)
        return self.grade_rows(rows, progress)

    async def grade_async(self, answers: Sequence[tuple[Task, str]]) -> list[Reward]:
        """`grade` for an event loop, which goes on running meanwhile."""
        return await asyncio.to_thread(self.grade, answers)

    def grade_rows(
        self, rows: Iterable[tuple[str, Any, Any, Mapping[str, Any] | None]], progress: bool = False
    ) -> list[Reward]:
        """`grade` for (data_source, response, ground_truth, extra_info) tuples."""
        call = self.submit(rows)
        with self._dropped_on_error(call):
            return call.wait(progress)

    def submit(self, rows: Iterable[tuple[Any, ...] | str]) -> Call:
        """`grade_rows` without waiting: rows are graded while the caller goes on. A text in place of a
        row is the reason why there is none, and becomes its error.

        Raises:
            RuntimeError: the router is closed, or of another process.
        """
        self._require_owner()
        call, left = Call(), iter(rows)
        with self._dropped_on_error(call):
            while part := list(islice(left, _CHUNK)):
                self._queue(part, call)
        return call

    @contextmanager
    def _dropped_on_error(self, call: Call) -> Iterator[None]:
        """Take the call's rows from the queue where the block raises."""
        try:
            yield
        except BaseException:
            with self._wake:
                self._jobs = deque(job for job in self._jobs if job.call is not call)
            raise

    def _require_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"This Router was made in process {self._owner}, and process {os.getpid()} is a fork of it: make a "
                "Router in the process that grades."
            )

    def _queue(self, rows: Sequence[tuple[Any, ...] | str], call: Call) -> None:
        """Append rows to a call."""
        jobs = []
        for index, row in enumerate(rows, call.expect(len(rows))):
            if isinstance(row, str):
                call.finish(index, Reward.failed(row))
                continue
            try:
                jobs.append(_Job(call, index, _checked(*row)))
            except (TypeError, ValueError) as error:
                call.finish(index, Reward.failed(f"{_UNSENDABLE}: {error}."))
        with self._wake:
            if self._closed:
                raise RuntimeError("This Router is closed.")
            self._jobs.extend(jobs)
            while len(self._threads) < self._size:
                thread = threading.Thread(target=self._feed, name="rlkit-reward", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._wake.notify()  # a thread that leaves jobs wakes the next; waking all of them at once is slower

    def _take(self) -> list[_Job]:
        """The next batch for one worker, or nothing once the router is closed. Batches shrink towards
        the end of the queue, so that all workers finish at about the same time, unless the next answers
        are so quick that sending them takes longer."""
        with self._wake:
            self._wake.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            share, batch, total = max(1, len(self._jobs) // (2 * self._size)), [], 0.0
            while self._jobs and len(batch) < _CHUNK:
                total += self._seconds.get(self._jobs[0].row[0], 1.0)
                if len(batch) >= share and total > _WORTH:
                    break
                batch.append(self._jobs.popleft())
            if self._jobs:
                self._wake.notify()
            return batch

    def _feed(self) -> None:
        """One worker's thread: take a batch, have it graded, replace the worker where it was lost."""
        worker: _Worker | None = None
        while batch := self._take():
            try:
                worker = worker or self._started()
            except (OSError, EOFError, ValueError) as error:
                for job in batch:
                    job.fail(f"No grading process can be started: {error}")
                continue
            if (left := self._graded(worker, batch)) is not None:
                self._put_back(left)
                self._end(worker)
                worker = None
        if worker:
            self._end(worker)

    def _started(self) -> _Worker:
        worker = _Worker(self._start)
        with self._wake:
            self._workers.add(worker)
            if self._closed:
                worker.kill()
        return worker

    def _end(self, worker: _Worker) -> None:
        with self._wake:
            self._workers.discard(worker)
        worker.close()

    def _put_back(self, jobs: list[_Job]) -> None:
        with self._wake:
            if not self._closed:
                self._jobs.extendleft(reversed(jobs))
                self._wake.notify_all()
                return
        for job in jobs:
            job.fail("The router was closed.")

    def _graded(self, worker: _Worker, batch: list[_Job]) -> list[_Job] | None:
        """Have a batch graded. Returns None if the worker can go on, else the jobs that are still to be done, for
        another worker (none where this one has only grown too big)."""
        batch, text = _encoded(batch)
        done, patience = 0, self.config.timeout
        try:
            worker.send(text)
            while True:
                kind, *content = worker.receive(patience + _GRACE)
                if kind == END:
                    if done < len(batch):
                        raise ValueError("outcomes are missing")
                    return [] if content[0] else None
                if kind == LOADING:
                    [patience] = content
                    continue
                patience = self.config.timeout
                for value, correct, parts, error, seconds in content:
                    job, reward = batch[done], Reward(value, correct, parts, error)
                    self._learn(job.row[0], min(max(0.0, seconds), _LONG))
                    done += 1  # first: whatever fails from here on, no answer gets two outcomes
                    job.call.finish(job.index, reward, seconds)
        except TimeoutError:
            outcome = Reward.of(False, killed="deadline")
        except Exception:  # of any kind: a worker may send anything, and this thread must go on
            outcome = None
        return self._interrupted(batch, done, worker.answers_begun(), outcome)

    def _interrupted(self, batch: list[_Job], done: int, begun: int, outcome: Reward | None) -> list[_Job]:
        """Settle the answer that a worker was grading when it was late (`outcome`) or died (None). Returns the jobs to
        do again, those before it included: they were graded, but their outcomes not sent."""
        left = batch[done:]
        if not left:  # it died after its last outcome
            return []
        held = left[min(max(begun - done, 1), len(left)) - 1]
        if outcome is None or begun <= done:
            held.deaths += 1
            if held.deaths == 1:  # the machine may have ended the worker; a second time it was the answer
                return left
            wrong = begun > done and not self.config.custom_reward_function
            reason = "The grading process died while it held this answer, twice."
            outcome = Reward.of(False, killed="death") if wrong else Reward.failed(reason)
        held.call.finish(held.index, outcome, self.config.timeout)
        return [job for job in left if job is not held]

    def _learn(self, data_source: str, seconds: float) -> None:
        """A slow answer counts at once and for a while: many of its kind in one batch would leave the other
        workers idle."""
        known = self._seconds.get(data_source, seconds)
        self._seconds[data_source] = max(seconds, known + (seconds - known) / 16)

    def close(self) -> None:
        """End the workers; answers that are still being graded become errors. Does nothing in a forked process."""
        if os.getpid() != self._owner:  # which may have got the lock as another thread held it
            return
        with self._wake:
            if self._closed:
                return
            self._closed = True
            jobs, workers = list(self._jobs), list(self._workers)
            self._jobs.clear()
            self._wake.notify_all()
        atexit.unregister(self.close)
        for job in jobs:
            job.fail("The router was closed.")
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(data_source: Any, response: Any, ground_truth: Any, extra_info: Any) -> list[Any]:
    """The row as workers expect it. Raises TypeError or ValueError where it is none."""
    if not isinstance(data_source, str) or not data_source:
        raise TypeError(f"data_source is {data_source!r}, not a name")
    if isinstance(response, bytes):
        response = response.decode()
    if not isinstance(response, str):
        raise TypeError(f"response is a {type(response).__name__}, not text")
    return [data_source, response, ground_truth, extra_info]


def _encoded(batch: list[_Job]) -> tuple[list[_Job], bytes]:
    """The batch as JSON, all at once because that is quicker. Rows that have no JSON form are left out: errors."""
    try:
        return batch, encode([job.row for job in batch])
    except (TypeError, ValueError, RecursionError) as error:
        if len(batch) == 1:
            batch[0].fail(f"{_UNSENDABLE}: {error}.")
            return [], encode([])
    kept = [job for job in batch if _encoded([job])[0]]
    return kept, encode([job.row for job in kept])


_shared: dict[tuple[int, str], Router] = {}
_shared_lock = threading.Lock()


def shared_router(config: RewardConfig | None = None) -> Router:
    """A router of this process for a configuration, started at the first call and kept."""
    config = config or RewardConfig()
    key = (os.getpid(), config.model_dump_json())  # a forked child must not share its parent's workers
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Router(config)
        return _shared[key]


def score(
    data_source: str, response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Reward:
    """The reward of one answer, through a router that is started at the first call and then kept.

    An unknown data_source is an error that names the nearest known ones.
    """
    return shared_router().grade_rows([(data_source, response, ground_truth, extra_info)])[0]
