"""Running a study's notebooks in processes of their own: one worker a core or GPU, largest runs first."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.notebook import parameters_of
from rlkit.progress import last_lines, run_state
from rlkit.provenance import hardware, usable_cores
from rlkit.report import Board
from rlkit.seeds import content_hash
from rlkit.store import read_json
from rlkit.studies import Plan, PlannedRun


@dataclass
class _Job:
    """A notebook being executed by a worker process."""

    process: subprocess.Popen[bytes]
    target: Path
    slot: int

    @property
    def log(self) -> Path:
        return self.target.with_suffix(".log")

    def last_lines(self) -> str:
        return last_lines(self.log) or f"the process ended with status {self.process.returncode}"

    def interrupt(self) -> None:
        """Ask the run to end at its next step border; a worker without a kernel yet has nothing to save."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            kernels = psutil.Process(self.process.pid).children()
            for process in kernels or [self.process]:
                process.send_signal(signal.SIGINT if kernels else signal.SIGTERM)

    def kill(self) -> None:
        import psutil

        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self.process.pid)
            for process in [*worker.children(recursive=True), worker]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


class Scheduler:
    """Executes the notebooks of one plan."""

    def __init__(self, plan: Plan, workers: int = 0) -> None:
        self.plan = plan
        self.gpus = _visible_gpus()
        self.workers = min(workers or len(self.gpus) or usable_cores(), len(plan.runs))
        self._running: dict[PlannedRun, _Job] = {}

    def train(self) -> dict[str, str]:
        """Execute the training notebook for every unfinished run; returns the failures' last lines.

        Raises:
            KeyboardInterrupt: after running runs have ended (at a checkpoint, or at once if repeated).
        """
        waiting = list(self.plan.to_do)
        failed: dict[str, str] = {}
        with Board(self.plan) as board, _terminate_as_interrupt():
            try:
                while waiting or self._running:
                    while waiting and len(self._running) < self.workers:
                        self._start(waiting.pop(self._next(waiting, list(self._running))), board)
                    time.sleep(0.2)
                    failed |= self._collect(board)
                    board.refresh()
            except KeyboardInterrupt:
                self._end(board)
                raise
        return failed

    def _collect(self, board: Board) -> dict[str, str]:
        """Take the runs that have ended off the list; returns the last lines of those that failed."""
        failed = {}
        for run, job in list(self._running.items()):
            if job.process.poll() is not None:
                del self._running[run]
                problem = self._problem(job)
                if problem is None and not self.plan.is_finished(run):
                    problem = "the run was stopped before its last step"
                if problem is not None:
                    failed[run.id] = problem
                board.ended(run, problem)
        return failed

    def analyse(self) -> dict[str, str]:
        """Execute the analysis notebook, unless nothing has changed since it last ran."""
        config = self.plan.config
        target = self.plan.folder / "notebooks" / Path(config.analysis.notebook).name
        parameters = self.plan.analysis
        stamp = self.plan.folder / "analysis" / "inputs.json"
        inputs = {"inputs": self._fingerprint(parameters)}
        if target.exists() and read_json(stamp) == inputs:
            return {}
        job = self._launch(config.analysis.notebook, target, parameters, slot=0, threads=usable_cores())
        with _terminate_as_interrupt():
            try:
                job.process.wait()
            except KeyboardInterrupt:
                job.kill()
                raise
        problem = self._problem(job)
        if problem is None:
            from rlkit.files import write_text

            write_text(stamp, json.dumps(inputs) + "\n")
        return {} if problem is None else {"analysis": problem}

    def _fingerprint(self, parameters: Mapping[str, Any]) -> str:
        """Changes when a run, the notebook or its parameters do."""
        runs = [read_json(self.plan.run_folder(run) / "run.json").get("updated") for run in self.plan.runs]
        source = Path(self.plan.config.analysis.notebook).read_text(encoding="utf-8")
        return content_hash(
            [[run.id, run.held_out] for run in self.plan.runs] + [runs, source, dict(parameters)]
        )

    def _next(self, waiting: list[PlannedRun], running: list[PlannedRun]) -> int:
        """The first run that would not wait for another's warm start; runs of one model share it."""
        warming = [run.config.model for run in running if run_state(self.plan.run_folder(run)).step is None]
        free = [i for i, run in enumerate(waiting) if run.config.model not in warming]
        return free[0] if free else 0

    def _start(self, run: PlannedRun, board: Board) -> None:
        slot = min(set(range(self.workers)) - {job.slot for job in self._running.values()})
        threads = max(1, usable_cores() // self.workers)
        overrides = {"trainer.num_threads": threads, **run.overrides}
        parameters: dict[str, Any] = {
            "config": str(self.plan.params),
            "overrides": overrides,
            "root": str(self.plan.root),
        }
        source, target = self.plan.config.notebook, self.plan.notebook(run)
        if "detached" in parameters_of(source):  # here the run is the worker's own: it ends with the study
            parameters["detached"] = False
        self._running[run] = self._launch(source, target, parameters, slot=slot, threads=threads)
        board.started(run)

    def _launch(
        self, source: str, target: Path, parameters: Mapping[str, Any], *, slot: int, threads: int
    ) -> _Job:
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        device = {"CUDA_VISIBLE_DEVICES": self.gpus[slot % len(self.gpus)]} if self.gpus else {}
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "rlkit.notebook", source, str(target), json.dumps(parameters)]
        with open(target.with_suffix(".log"), "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **limits, **device},
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others in order
            )
        return _Job(process, target, slot)

    def _problem(self, job: _Job) -> str | None:
        """The last lines of a failed job; None for one that succeeded, whose log is dropped."""
        if job.process.returncode == 0:
            job.log.unlink(missing_ok=True)
            return None
        return job.last_lines()

    def _end(self, board: Board) -> None:
        board.say(
            f"Ending {len(self._running)} runs at their next checkpoint; Ctrl-C again ends them at once."
        )
        for job in self._running.values():
            job.interrupt()
        try:
            for job in self._running.values():
                job.process.wait()
        except KeyboardInterrupt:
            for job in self._running.values():
                job.kill()


def _visible_gpus() -> list[str]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(i) for i in range(len(hardware()["gpus"]))]


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, as sent by batch systems, ends a study as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are the caller's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
