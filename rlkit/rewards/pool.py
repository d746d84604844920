"""The router: answers in, rewards out, graded in worker processes.

    with Router(config.reward) as router:
        rewards = router.grade([(task, response), ...])

Works the same from any thread; from an event loop, `await asyncio.to_thread(router.grade, answers)`. Each worker has a
thread here that sends it batches of answers and kills it when an answer is late.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards.worker import ForkServer, Worker, encode, environment
from rlkit.types import Reward, Task

_LARGEST_BATCH = 64  # answers sent to a worker at once

Row = tuple[str, Any, Any, Mapping[str, Any] | None]
"""data_source, response, ground_truth, extra_info"""
Graded = Future[tuple[Reward, float]]
"""A reward and the seconds that it took, once they are there."""


class _Job(NamedTuple):
    row: bytes
    future: Graded

    def end(self, reward: Reward, seconds: float = 0.0) -> None:
        self.future.set_result((reward, seconds))


@lru_cache
def _fork_server(
    process: int, folder: str, path: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> ForkServer:
    """The fork server of a process (a forked one must not use its parent's) for workers of one environment."""
    return ForkServer(path, dict(variables))


class Router:
    """Grades answers in worker processes; a context manager. It belongs to the process that made it: a forked one has
    none of its threads.

    Args:
        config: scorer, workers, deadline, sandbox; defaults to RewardConfig().

    Raises:
        UserError: no process can be started.
    """

    def __init__(self, config: RewardConfig | None = None) -> None:
        self.config = config or RewardConfig()
        self._size = self.config.num_workers or min(os.cpu_count() or 1, 8)
        self._owner, self._closed = os.getpid(), False
        self._jobs: deque[_Job] = deque()
        self._lock = threading.Lock()  # of the workers and of closing
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._threads = ThreadPoolExecutor(self._size, "rlkit-reward")
        variables = tuple(sorted(environment(self.config).items()))
        try:
            self._server = _fork_server(self._owner, os.getcwd(), tuple(sys.path), variables)
        except OSError as error:
            raise UserError(f"No grading process can be started: {error}.") from None

    def grade(self, answers: Iterable[tuple[Task, str]], progress: bool = False) -> list[Reward]:
        """The rewards of `answers`, in order. One bad answer never raises: it has an error. The first are graded
        while an iterator makes the next."""
        rows = ((task.data_source, text, task.ground_truth, task.extra_info) for task, text in answers)
        return self.grade_rows(rows, progress)

    def grade_rows(self, rows: Iterable[Row], progress: bool = False) -> list[Reward]:
        """`grade` for (data_source, response, ground_truth, extra_info) tuples."""
        from tqdm.auto import tqdm

        futures = self.submit(rows)
        done = as_completed(futures) if progress else ()
        for _ in tqdm(done, total=len(futures), desc="grading", unit="answer", disable=not progress):
            pass
        return [future.result()[0] for future in futures]

    def submit(self, rows: Iterable[Row | str]) -> list[Graded]:
        """`grade_rows` without waiting: rows are graded while the caller goes on. A text in place of a
        row is the reason why there is none, and becomes its error.

        Raises:
            RuntimeError: the router is closed, or of another process.
        """
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"This Router was made in process {self._owner}, and process {os.getpid()} is a fork of it: make a "
                "Router in the process that grades."
            )
        futures: list[Graded] = []
        left = iter(rows)
        try:
            while part := [_job(row) for row in islice(left, _LARGEST_BATCH)]:
                if self._closed:
                    raise RuntimeError("This Router is closed.")
                futures += [job.future for job in part]
                self._jobs.extend(job for job in part if not job.future.done())
                for _ in range(self._size):
                    self._threads.submit(self._grade_batches)
        except BaseException:  # of the iterator
            for future in futures:
                future.cancel()
            raise
        return futures

    def _grade_batches(self) -> None:
        """The work of one thread. Batches shrink towards the end, so that all threads end at about the same time."""
        while True:
            size = min(max(1, len(self._jobs) // (2 * self._size)), _LARGEST_BATCH)
            batch: deque[_Job] = deque()
            with suppress(IndexError):
                while len(batch) < size:
                    job = self._jobs.popleft()
                    if job.future.set_running_or_notify_cancel():
                        batch.append(job)
            if not batch:
                return
            self._grade_batch(batch)

    def _grade_batch(self, batch: deque[_Job]) -> None:
        """A worker that is late or dies is replaced; what it has not graded is sent again."""
        deaths = 0  # of workers that were grading the first answer
        while batch:
            try:
                worker = self._worker(new=deaths > 0)  # one that was idle may have died, too
            except (OSError, EOFError, ValueError, RuntimeError) as error:
                for job in batch:
                    job.end(Reward.failed(f"No grading process can be started: {error}."))
                return
            try:
                worker.send([job.row for job in batch])
                while batch:
                    reward, seconds = worker.outcome(self.config.timeout)
                    batch.popleft().end(reward, seconds)
                    deaths = 0
                if not worker.is_too_big():
                    self._idle.append(worker)
                    return
            except TimeoutError:
                batch.rotate(-worker.held())
                batch.popleft().end(Reward.of(False, killed="deadline"), self.config.timeout)
                deaths = 0
            except Exception:  # of any kind: a worker may send anything
                deaths = 1 if (held := worker.held()) else deaths + 1
                batch.rotate(-held)
                if deaths == 2:  # the machine may have ended the first; the second time it was the answer
                    died = Reward.failed("The grading process died while it held this answer, twice.")
                    own = self.config.custom_reward_function is not None
                    batch.popleft().end(
                        died if own else Reward.of(False, killed="death"), self.config.timeout
                    )
                    deaths = 0
            self._end(worker)

    def _worker(self, new: bool) -> Worker:
        """An idle worker, or a new one where there is none or it must be `new`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the router was closed")
            if self._idle and not new:
                return self._idle.pop()
        worker = Worker(self._server, self.config)
        with self._lock:
            self._workers.add(worker)
            if self._closed:
                worker.kill()
        try:
            worker.wait_until_ready()
        except BaseException:
            self._end(worker)
            raise
        return worker

    def _end(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()

    def close(self) -> None:
        """End the workers; answers that are still being graded become errors. Does nothing in a forked process."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        for job in self._jobs:
            job.end(Reward.failed("The router was closed."))
        self._jobs.clear()

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _job(row: Row | str) -> _Job:
    """A row as workers expect it; one that cannot be graded has its error already."""
    future: Graded = Future()
    if isinstance(row, str):
        future.set_result((Reward.failed(row), 0.0))
        return _Job(b"", future)
    try:
        data_source, response, _, _ = row
        if not isinstance(data_source, str) or not data_source:
            raise TypeError(f"data_source is {data_source!r}, not a name")
        if not isinstance(response, str):
            raise TypeError(f"response is a {type(response).__name__}, not text")
        return _Job(encode(row), future)
    except (TypeError, ValueError, RecursionError) as error:
        return _job(f"The row cannot be sent to a worker: {error}.")


@lru_cache
def _router(process: int, config: str) -> Router:
    return Router(RewardConfig.model_validate_json(config))


def shared_router(config: RewardConfig | None = None) -> Router:
    """A router of this process for a configuration, started at the first call and kept."""
    return _router(os.getpid(), (config or RewardConfig()).model_dump_json())


def score(
    data_source: str, response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Reward:
    """The reward of one answer, through a router that is started at the first call and then kept.

    An unknown data_source is an error that names the nearest known ones.
    """
    return shared_router().grade_rows([(data_source, response, ground_truth, extra_info)])[0]
