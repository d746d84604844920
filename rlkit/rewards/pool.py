"""The router: `with Router(config.reward) as router: rewards = router.grade([(task, response), ...])`, from any thread;
from an event loop `await asyncio.to_thread(router.grade, answers)`. Each worker process has a thread here that sends it
batches of answers and kills it when an answer is late."""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NamedTuple

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.registry import plugin_versions, plugins_named
from rlkit.rewards.worker import ForkServer, Worker, encode, environment
from rlkit.types import Reward, Task

_LARGEST_BATCH = 64  # answers sent to a worker at once
_WORTH = 0.005  # seconds of grading for which a message to a worker pays

Row = tuple[str, Any, Any, Mapping[str, Any] | None]
"""data_source, response, ground_truth, extra_info"""
Outcome = tuple[Reward, float]
"""A reward and the seconds that it took."""


class Outcomes:
    """The outcomes of one call in the order of its rows. Reading one waits for it. Futures would hold the interpreter
    2.5 ms longer for 512 answers, a twentieth of a small model's step on a GPU."""

    def __init__(self, changed: threading.Condition) -> None:
        self.found, self._changed = list[Outcome | None](), changed

    def __getitem__(self, index: int) -> Outcome:
        if (outcome := self.found[index]) is None:
            with self._changed:
                while (outcome := self.found[index]) is None:
                    self._changed.wait()
        return outcome

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self.found)))


class _Job(NamedTuple):
    row: Row
    call: Outcomes
    index: int


_servers: dict[tuple[Any, ...], ForkServer] = {}  # by process (a forked one has its own), environment and plugins


class Router(AbstractContextManager["Router"]):
    """Grades answers in worker processes, as a RewardConfig says. It belongs to the process that made it: a forked one
    has none of its threads. Raises UserError where no process can be started."""

    def __init__(self, config: RewardConfig | None = None) -> None:
        self.config = config or RewardConfig()
        self._size = self.config.num_workers or min(os.cpu_count() or 1, 8)
        self._owner, self._closed = os.getpid(), False
        self._changed = threading.Condition()  # its lock is that of all below
        self._jobs: deque[_Job] = deque()
        self._busy = 0  # threads that are grading
        self._answers, self._seconds = 1.0, 0.05  # of late, and that they took
        self._workers: dict[int, Worker] = {}  # by the thread that uses it
        self._threads = ThreadPoolExecutor(self._size, "rlkit-reward")
        variables = environment(self.config)
        try:
            plugins = plugin_versions(plugins_named())  # a server has those of its start
            key = (self._owner, os.getcwd(), *sys.path, *sorted(variables.items()), *plugins.values())
            self._server = _servers[key] = _servers.get(key) or ForkServer(sys.path, variables)
        except OSError as error:
            raise UserError(f"No grading process can be started: {error}.") from None

    def grade(self, answers: Iterable[tuple[Task, str]], progress: bool = False) -> list[Reward]:
        """The rewards of `answers`, in order. One bad answer never raises: it has an error."""
        rows = ((task.data_source, text, task.ground_truth, task.extra_info) for task, text in answers)
        return self.grade_rows(rows, progress)

    def grade_rows(self, rows: Iterable[Row], progress: bool = False) -> list[Reward]:
        """`grade` for (data_source, response, ground_truth, extra_info) tuples."""
        from tqdm.auto import tqdm

        found = self.submit(rows)
        shown = tqdm(found, desc="grading", unit="answer", total=len(found.found), disable=not progress)
        return [reward for reward, _ in shown]

    def submit(self, rows: Iterable[Row]) -> Outcomes:
        """`grade_rows` without waiting: rows are graded while the caller goes on. Raises RuntimeError where the router
        is closed, or of another process."""
        if os.getpid() != self._owner:
            fork = f"process {os.getpid()} is a fork of it: make a Router in the process that grades"
            raise RuntimeError(f"This Router was made in process {self._owner}, and {fork}.")
        call = Outcomes(self._changed)
        jobs = [_Job(row, call, i) for i, row in enumerate(rows)]
        with self._changed:
            if self._closed:
                raise RuntimeError("This Router is closed.")
            self._jobs.extend(jobs)
            call.found += [None] * len(jobs)
            more = min(self._size - self._busy, -(-len(self._jobs) // self._batch_size()))
            self._busy += more
        for _ in range(more):
            self._threads.submit(self._work)
        return call

    def _batch_size(self) -> int:
        """Batches shrink towards the end, so that all threads end at about the same time, unless answers are quick."""
        share = len(self._jobs) // (2 * self._size)
        return min(max(1, share, int(_WORTH * self._answers / self._seconds)), _LARGEST_BATCH)

    def _work(self) -> None:
        """Grade batches as long as there are answers."""
        while True:
            with self._changed:
                batch = [self._jobs.popleft() for _ in range(min(self._batch_size(), len(self._jobs)))]
                if not batch:
                    self._busy -= 1
                    return
            self._grade(batch)

    def _grade(self, batch: list[_Job]) -> None:
        """A worker that is late or dies is replaced; what it has not graded is sent again."""
        deaths = starts = 0  # of workers that were grading the first answer; that failed
        while True:
            batch, message = self._encoded(batch)
            if not batch:
                return
            try:
                worker = self._worker()
            except Exception as error:  # of any kind: a custom function may end it
                self._end_worker()
                if (starts := starts + 1) == 2:  # the fork server may have died
                    return self._fail(batch, f"No grading process can be started: {error}.")
                continue
            try:
                worker.send(message, len(batch))
                while batch:
                    outcomes = worker.outcomes()
                    deaths = 0 if outcomes else deaths
                    self._settle(batch[: len(outcomes)], outcomes)
                    del batch[: len(outcomes)]
            except Exception as error:  # of any kind: a worker may send anything
                held = worker.held()
                self._end_worker()
                batch = batch[held:] + batch[:held]
                deaths = 1 if held else deaths + 1
                late = isinstance(error, TimeoutError)
                if late or deaths == 2:
                    reward = Reward.of(False, killed="deadline" if late else "death")
                    # Only a crash is the answer's: the machine may have ended both workers.
                    crashed = worker.crashed and self.config.custom_reward_function is None
                    if not late and not crashed:
                        reward = Reward(error="The grading process died while it held this answer, twice.")
                    self._settle([batch.pop(0)], [(reward, self.config.timeout if late else 0.0)])
                    deaths = 0

    def _settle(self, jobs: Sequence[_Job], outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.call.found[job.index] = outcome
            self._answers = 0.9 * self._answers + len(jobs)
            self._seconds = 0.9 * self._seconds + sum(max(1e-7, seconds) for _, seconds in outcomes)
            self._changed.notify_all()

    def _fail(self, jobs: Sequence[_Job], reason: str) -> None:
        self._settle(jobs, [(Reward(error=reason), 0.0)] * len(jobs))

    def _encoded(self, batch: list[_Job]) -> tuple[list[_Job], bytes]:
        """The answers that JSON has a form for, and it; the others become errors."""
        try:
            return batch, encode([job.row for job in batch])
        except Exception as error:  # of any kind: the values are the caller's
            if len(batch) == 1:
                self._fail(batch, f"The row cannot be sent to a worker: {error}.")
                return [], b""
            return self._encoded([job for job in batch if self._encoded([job])[0]])

    def _worker(self) -> Worker:
        """This thread's worker, started if it has none."""
        if worker := self._workers.get(threading.get_ident()):
            return worker
        worker = Worker(self._server, self.config)
        with self._changed:
            self._workers[threading.get_ident()] = worker
            if self._closed:
                raise RuntimeError("the router was closed")
        worker.outcomes()
        return worker

    def _end_worker(self) -> None:
        if worker := self._workers.pop(threading.get_ident(), None):
            worker.close()

    def close(self) -> None:
        """End the workers; answers that are still being graded become errors. Does nothing in a forked process."""
        if os.getpid() != self._owner:
            return
        with self._changed:
            self._closed = True
            for worker in [*self._workers.values()]:
                worker.kill()
            left, self._jobs = self._jobs, deque()
        self._threads.shutdown()
        self._fail([*left], "The router was closed.")
        while self._workers:
            self._workers.popitem()[1].close()

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache
def shared_router(config: RewardConfig) -> Router:
    """A router of this process for a configuration, started at the first call and kept."""
    return Router(config)


os.register_at_fork(after_in_child=shared_router.cache_clear)


def score(data_source: str, response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None) -> Reward:
    """The reward of one answer, through a router that is started at the first call and then kept. An unknown
    data_source is an error that names the nearest known ones."""
    return shared_router(RewardConfig()).grade_rows([(data_source, response, ground_truth, extra_info)])[0]  # type: ignore[arg-type]  # frozen, so it has a hash
