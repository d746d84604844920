"""The router: answers in, rewards out, graded in worker processes.

    with Router(config.reward) as router:
        rewards = router.grade([(task, response), ...])

Works the same from any thread; from an event loop use `grade_async`. Each worker has a thread here that
feeds it and enforces the deadline by killing it.
"""

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards.nursery import Nursery, Worker
from rlkit.rewards.wire import END, LOADING, encode
from rlkit.types import Reward, Task

T = TypeVar("T")

_GRACE = 0.7  # seconds after the deadline: scorers that watch the clock themselves finish first
_LONG = 3600.0  # seconds; no answer counts as longer
_CHUNK = 64  # most answers sent to a worker at once
_WORTH = 2e-3  # seconds of grading that a message to a worker should at least bring


class Call:
    """Rows that are being graded: their rewards and grading times, in order, as they come in."""

    def __init__(self, rows: int = 0) -> None:
        self.results: list[Reward | None] = [None] * rows
        self.seconds: list[float] = [0.0] * rows
        self._told: list[int] = []  # several threads append, which needs no lock as counting would
        self._changed = threading.Condition()

    def expect(self, rows: int) -> None:
        """So many more."""
        self.results += [None] * rows
        self.seconds += [0.0] * rows

    def finish(self, index: int, reward: Reward, seconds: float = 0.0) -> None:
        self.results[index], self.seconds[index] = reward, seconds
        self._told.append(index)
        if self._finished():
            with self._changed:
                self._changed.notify_all()

    def wait(self, progress: bool = False) -> list[Reward]:
        """All rewards, once they are there."""
        if progress:
            self._show()
        with self._changed:
            self._changed.wait_for(self._finished)
        return [reward for reward in self.results if reward is not None]

    def _finished(self) -> bool:
        return len(self._told) == len(self.results)

    def _show(self) -> None:
        from tqdm.auto import tqdm

        with tqdm(total=len(self.results), desc="grading", unit="answer") as bar:
            while bar.n < len(self.results):
                with self._changed:
                    self._changed.wait_for(self._finished, 0.2)
                bar.update(len(self._told) - bar.n)


class _Job:
    __slots__ = ("call", "index", "row")

    def __init__(self, call: Call, index: int, row: list[Any]) -> None:
        self.call, self.index, self.row = call, index, row

    def fail(self, reason: str) -> None:
        self.call.finish(self.index, Reward.failed(reason))


class Router:
    """Grades answers in worker processes; a context manager. It belongs to the process that made it: a forked one has
    none of its threads.

    Args:
        config: scorer, workers, deadline, sandbox; defaults to RewardConfig().
    """

    def __init__(self, config: RewardConfig | None = None) -> None:
        self.config = config or RewardConfig()
        if self.config.custom_reward_function and ":" not in self.config.custom_reward_function:
            raise UserError(
                f"reward.custom_reward_function is {self.config.custom_reward_function!r}: "
                "write module:function or file.py:function."
            )
        self._size = self.config.num_workers or min(os.cpu_count() or 1, 8)
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closed, self._owner = False, os.getpid()
        self._seconds: dict[str, float] = {}  # that an answer of a data source takes: the slow ones of late
        self._lanes: list[threading.Thread] = []
        self._nursery = Nursery(self.config.model_dump(mode="json"))
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
            while len(self._lanes) < self._size:
                lane = threading.Thread(target=self._lane, name="rlkit-reward", daemon=True)
                self._lanes.append(lane)
                lane.start()
            self._wake.notify()  # one wakes the next, if it leaves anything: eight that find nothing take their time

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

    def _lane(self) -> None:
        """The life of one worker's thread: take a batch, have it graded, replace the worker if need be."""
        worker: Worker | None = None
        while batch := self._take():
            try:
                worker = worker or self._nursery.spawn()
            except (RuntimeError, OSError, ValueError) as error:
                _fail(batch, f"No grading process can be started: {error}")
                continue
            if (left := self._serve(worker, batch)) is not None:
                self._put_back(left)
                worker.kill()
                worker = None
        if worker:
            worker.close()

    def _put_back(self, jobs: list[_Job]) -> None:
        with self._wake:
            if self._closed:
                _fail(jobs, "The router was closed.")
            self._jobs.extendleft(() if self._closed else reversed(jobs))
            self._wake.notify_all()

    def _serve(self, worker: Worker, batch: list[_Job]) -> list[_Job] | None:
        """Have a batch graded. None when the worker lives on, else the jobs that are still to be done:
        none of them if it has only grown too big."""
        batch, text = _encoded(batch)
        number, patience = 0, self.config.timeout
        try:
            worker.give(text)
            while True:
                kind, *outcomes = worker.receive(patience + _GRACE)
                if kind == END:
                    if number < len(batch):
                        raise ValueError("outcomes are missing")
                    return [] if outcomes[0] else None
                if kind == LOADING:  # a library, which takes none of the answer's time
                    [patience] = outcomes
                    continue
                patience = self.config.timeout
                for value, correct, parts, error, seconds in outcomes:
                    job, reward = batch[number], Reward(value, correct, parts, error)
                    self._learn(job.row[0], min(max(0.0, seconds), _LONG))
                    number += 1  # before it is told: whatever fails, no answer is told of twice
                    job.call.finish(job.index, reward, seconds)
        except TimeoutError:
            outcome = Reward.of(False, killed="deadline")
        except Exception:  # of any kind: a worker may send anything, and this thread must go on
            outcome = Reward.failed("The grading process died while it held this answer.")
        left = batch[number:]  # nothing, if it died behind its last outcome
        held = min(
            max(worker.held() - number, 0), len(left) - 1
        )  # those before it are graded, but not told of
        for job in left[held : held + 1]:  # as of now: until it is killed, a late worker may begin another
            job.call.finish(job.index, outcome, self.config.timeout)
        return left[:held] + left[held + 1 :] if left else []

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
            _fail(self._jobs, "The router was closed.")
            self._jobs.clear()
            self._wake.notify_all()
        atexit.unregister(self.close)
        self._nursery.close()

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parts(rows: Iterable[T]) -> Iterator[list[T]]:
    """Rows by as many as a worker takes at most."""
    left = iter(rows)
    while part := list(islice(left, _CHUNK)):
        yield part


def _fail(jobs: Iterable[_Job], reason: str) -> None:
    for job in jobs:
        job.fail(reason)


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


def score(
    data_source: str,
    response: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    scorer: str = "strict",
) -> Reward:
    """The reward of one answer, through a router that is started at the first call and then kept.

    An unknown data_source is an error that names the nearest known ones.
    """
    key = (os.getpid(), scorer)  # a forked child must not share its parent's workers
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Router(RewardConfig.model_validate({"scorer": scorer}))
    return _shared[key].grade_rows([(data_source, response, ground_truth, extra_info)])[0]
