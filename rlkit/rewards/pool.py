"""The router: answers in, rewards out, graded in worker processes.

    with Router(config.reward) as router:
        rewards = router.grade([(task, response), ...])

Works the same from any thread; from an event loop use `grade_async`. Each worker process has a thread here that feeds
it and enforces the deadline by killing it. Workers are forked from multiprocessing's fork server, which has the
scorers imported, so that a killed one is replaced in milliseconds, whatever threads the trainer has.
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
from contextlib import suppress
from itertools import islice
from multiprocessing import Pipe, forkserver
from multiprocessing.connection import wait
from typing import Any, TypeVar

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards.worker import END, LOADING, Start, encode, environment
from rlkit.types import Reward, Task

T = TypeVar("T")

_GRACE = 0.7  # seconds after the deadline: scorers that watch the clock themselves finish first
_LONG = 3600.0  # seconds; no answer counts as longer
_CHUNK = 64  # most answers sent to a worker at once
_WORTH = 2e-3  # seconds of grading that a message to a worker should at least bring
_LARGEST = 1 << 30  # bytes of a message from a worker


class Call:
    """Rows that are being graded: their rewards and grading times, in order, as they come in."""

    def __init__(self) -> None:
        self.results: list[Reward | None] = []
        self.seconds: list[float] = []
        self._finished: list[
            int
        ] = []  # indices; several threads append, which needs no lock as counting would
        self._changed = threading.Condition()

    def expect(self, rows: int) -> None:
        """Make room for `rows` more."""
        self.results += [None] * rows
        self.seconds += [0.0] * rows

    def finish(self, index: int, reward: Reward, seconds: float = 0.0) -> None:
        self.results[index], self.seconds[index] = reward, seconds
        self._finished.append(index)
        if self._complete():
            with self._changed:
                self._changed.notify_all()

    def wait(self, progress: bool = False) -> list[Reward]:
        """All rewards, once they are there."""
        if progress:
            self._show()
        with self._changed:
            self._changed.wait_for(self._complete)
        return [reward for reward in self.results if reward is not None]

    def _complete(self) -> bool:
        return len(self._finished) == len(self.results)

    def _show(self) -> None:
        from tqdm.auto import tqdm

        with tqdm(total=len(self.results), desc="grading", unit="answer") as bar:
            while bar.n < len(self.results):
                with self._changed:
                    self._changed.wait_for(self._complete, 0.2)
                bar.update(len(self._finished) - bar.n)


class _Job:
    """One row of a call."""

    __slots__ = ("call", "deaths", "index", "row")

    def __init__(self, call: Call, index: int, row: list[Any]) -> None:
        self.call, self.index, self.row, self.deaths = call, index, row, 0

    def fail(self, reason: str) -> None:
        self.call.finish(self.index, Reward.failed(reason))


class _ForkServer(forkserver.ForkServer):
    """A fork server of our own: the one that multiprocessing shares may be running already, without our modules."""

    def __init__(self) -> None:
        super().__init__()
        self.set_forkserver_preload(["rlkit.rewards.preload"])


_servers: dict[int, _ForkServer] = {}


def _server() -> _ForkServer:
    """This process's fork server; a forked child must not use its parent's."""
    return _servers.setdefault(os.getpid(), _ForkServer())


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
        try:
            self._status, self._alive = _connected([theirs.fileno(), begun])
            with open(self._alive, "wb", closefd=False) as pipe:
                pickle.dump({"sys_path": sys.path} | _folder(), pipe)
                pickle.dump(start, pipe)
            self._pid = forkserver.read_signed(self._status)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(begun)

    def give(self, batch: bytes) -> None:
        """Send a batch of answers."""
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


def _connected(descriptors: list[int]) -> tuple[int, int]:
    """A new process that has the descriptors: where its status is read, and where it reads from."""
    for pause in (0.1, 0.5, 2.0):
        try:
            return _server().connect_to_new_process(list(descriptors))
        except (
            OSError
        ):  # the fork server has died; once it can be seen to have, the next request starts another
            time.sleep(pause)
    return _server().connect_to_new_process(list(descriptors))


def _folder() -> dict[str, str]:
    try:
        return {"dir": os.getcwd()}
    except OSError:  # it was deleted
        return {}


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
        self._require_owner()
        call = Call()
        try:
            for part in _parts(rows):
                self._queue(part, call)
            return call.wait(progress)
        except BaseException:
            with self._wake:
                self._jobs = deque(job for job in self._jobs if job.call is not call)
            raise

    def submit(self, rows: Sequence[tuple[Any, ...] | str]) -> Call:
        """`grade_rows` without waiting: rows are graded while the caller goes on. A text in place of a
        row is the reason why there is none, and becomes its error.

        Raises:
            RuntimeError: the router is closed, or of another process.
        """
        self._require_owner()
        call = Call()
        self._queue(rows, call)
        return call

    def _require_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"This Router is of process {self._owner}, of which process {os.getpid()} is a fork: make a Router in "
                "the process that grades."
            )

    def _queue(self, rows: Sequence[tuple[Any, ...] | str], call: Call) -> None:
        """Append rows to a call."""
        jobs, first = [], len(call.results)
        call.expect(len(rows))
        for index, row in enumerate(rows, first):
            if isinstance(row, str):
                call.finish(index, Reward.failed(row))
                continue
            try:
                jobs.append(_Job(call, index, _checked(*row)))
            except (TypeError, ValueError) as error:
                call.finish(index, Reward.failed(_unsendable(error)))
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
        """Have a batch graded. None where the worker lives on, else the jobs that are still to be done (none where it
        has only grown too big)."""
        batch, text = _encoded(batch)
        done, patience = 0, self.config.timeout
        try:
            worker.give(text)
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
        """Settle the answer that a worker was grading when it was late (`outcome`) or died (None); the jobs to do
        again. Answers before it were graded, but their outcomes not sent."""
        left = batch[done:]
        if not left:  # it died after its last outcome
            return []
        held = left[min(max(begun - done, 1), len(left)) - 1]
        if outcome is None or begun <= done:
            held.deaths += 1
            if (
                held.deaths == 1
            ):  # the machine may have ended the worker; an answer that ends a second one did it
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


def _parts(rows: Iterable[T]) -> Iterator[list[T]]:
    """Rows by as many as a worker takes at most."""
    left = iter(rows)
    while part := list(islice(left, _CHUNK)):
        yield part


def _checked(data_source: Any, response: Any, ground_truth: Any, extra_info: Any) -> list[Any]:
    """The row as workers expect it."""
    if not isinstance(data_source, str) or not data_source:
        raise TypeError(f"data_source is {data_source!r}, not a name")
    if isinstance(response, bytes):
        response = response.decode()
    if not isinstance(response, str):
        raise TypeError(f"response is a {type(response).__name__}, not text")
    return [data_source, response, ground_truth, extra_info]


def _encoded(batch: list[_Job]) -> tuple[list[_Job], bytes]:
    """The batch as JSON, without the rows that have no JSON form: those become errors."""
    try:
        return batch, encode([job.row for job in batch])
    except (TypeError, ValueError, RecursionError):
        sendable = [job for job in batch if _sendable(job)]
        return sendable, encode([job.row for job in sendable])


def _sendable(job: _Job) -> bool:
    try:
        encode(job.row)
        return True
    except (TypeError, ValueError, RecursionError) as error:
        job.fail(_unsendable(error))
        return False


def _unsendable(error: Exception) -> str:
    return f"The row cannot be sent to a worker: {error}."


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
