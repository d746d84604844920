"""The run store: the only writer of results (rlkit.results.read reads them).

    outputs/<study>/runs/<run id>/
        config.yaml     the run's RunConfig, complete: `rlkit run …/config.yaml` repeats the run
        run.json        status, versions, git commit, hardware, and whatever the trainer adds
        metrics.jsonl   one line a step
        evals.parquet   one row a sample of every evaluation, here or on verl
        samples.jsonl   some training samples, for reading
        checkpoints/

All but the .jsonl logs are replaced in one step; a line of those that a crash cut is skipped, and dropped on resume.
"""

import json
import os
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, SupportsFloat

import pandas as pd
import yaml
from filelock import FileLock, Timeout
from pydantic_core import to_jsonable_python

from rlkit.config import RunConfig
from rlkit.errors import RunStopped, UserError
from rlkit.files import disk_errors, read_json, replacing, require_space, write_text
from rlkit.results.machine import git_state, hardware, versions
from rlkit.types import Task

BEST = "best"  # folder of the checkpoint that trainer.keep_best keeps
LOGS = ("metrics.jsonl", "samples.jsonl")
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError, ArithmeticError)
"""What a damaged file of a run may raise when it is read; a UserError is a ValueError."""
_LOG_SPACE = 20_000_000  # bytes that must be free to begin; checkpoints are the trainer's to add
ANSWER = {
    "correct": "boolean",  # null where the answer could not be graded
    "value": "Float64", "error": "string", "tokens": "Int64", "finish_reason": "string", "response": "string",
}  # fmt: skip
"""Columns of an answer in evals.parquet, with their types, beside those that say which step, task and sample it is of.
A new one gets its type here, and its value in rlkit.evaluation and, of a run on verl, rlkit.verl.compute_score."""
_TYPES = {"step": "int64", "task_id": "string", "data_source": "string", "sample": "int64"} | ANSWER


@dataclass(frozen=True)
class Run:
    """A run and where it stands: status "finished", or "stopped" (call `train` again to continue); summary has steps,
    pass@1 with intervals at the first and last evaluation, FLOPs, seconds, parameters."""

    id: str
    folder: Path
    status: str
    summary: dict[str, Any] = field(default_factory=dict)


class RunStore:
    """The folder of one run, opened for writing by one process at a time; `info` is what run.json holds."""

    @classmethod
    @contextmanager
    def open(cls, config: RunConfig, root: str | Path, stopped: str = "stopped") -> Iterator["RunStore"]:
        """Make or reopen the run's folder and lock it; a UserError where another process has it, or it cannot be. What
        is raised within the block is told in run.json; the status of a RunStopped is `stopped`."""
        folder = Path(root) / config.study / "runs" / config.id
        require_space(folder, _LOG_SPACE)
        lock = FileLock(folder / ".lock", timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            owner = read_json(folder / "run.json").get("process", {})
            where = f"pid {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown host')}"
            told = f"The run {config.id} is open in another process ({where}): wait for it, or end it."
            raise UserError(told) from None
        try:
            store = cls(folder, config)
            try:
                yield store
            except BaseException as error:
                asked = isinstance(error, KeyboardInterrupt)  # then there is nothing to explain
                status = "stopped" if asked else stopped if isinstance(error, RunStopped) else "failed"
                with suppress(UserError):  # of a full disk, which may be what ended the run
                    store.update(status=status, reason=None if asked else str(error) or type(error).__name__)
                raise
        finally:
            lock.release()

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.checkpoints, self.info = folder, folder / "checkpoints", read_json(folder / "run.json")
        self._warned = set[str]()  # kinds
        write_text(self.folder / "config.yaml", config_yaml(config))
        process = _process(os.getpid())
        attempts = [*self.info.get("attempts", []), {**process, **git_state()}]
        # of the numbers to come
        self._makes = {"git": git_state(), "versions": versions(), "hardware": hardware()}
        self.update(
            id=config.id, study=config.study, seed=config.seed, status="running", process=process,
            attempts=attempts, **({} if "git" in self.info else self._makes),
        )  # fmt: skip

    def update(self, **fields: Any) -> None:
        """Set top-level fields of run.json; numbers of numpy or torch become plain ones."""
        self.info.update(fields, updated=_now())
        write_text(self.folder / "run.json", json.dumps(plain(self.info), indent=1, allow_nan=False) + "\n")

    def pin(self, **fields: Any) -> None:
        """`update` of fields that every attempt must have alike; a UserError where one was another before."""
        for name, value in fields.items():
            if (before := self.info.get(name, value)) != value:
                told = f"{name} {before!r}, which is {value!r} now: its numbers would be a mixture"
                other = "begin another run (another study, or delete the folder)"
                raise UserError(f"{self.folder} was begun with {told}. Restore what has changed, or {other}.")
        self.update(**fields)

    def warn(self, kind: str, sentence: str) -> None:
        """A warning, given once a kind and attempt; run.json keeps the first of each."""
        if kind not in self._warned:
            self._warned.add(kind)
            self.update(warnings={kind: sentence, **self.info.get("warnings", {})})
            warnings.warn(sentence, stacklevel=4)

    def log(self, step: int, metrics: Mapping[str, SupportsFloat | None]) -> None:
        """Append one line to metrics.jsonl; a number that is not finite is stored as null: missing."""
        if any(self.info[name] != value for name, value in self._makes.items()):  # of an earlier attempt
            self.update(**self._makes)
        numbers = {name: None if value is None else float(value) for name, value in metrics.items()}
        self._append("metrics.jsonl", [{"step": step, "time": datetime.now(UTC).timestamp(), **numbers}])

    def log_samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append training samples to samples.jsonl."""
        self._append("samples.jsonl", [{"step": step, **row} for row in rows])

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows)
        with disk_errors(self.folder / name), open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(lines)

    def log_evals(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add one evaluation to evals.parquet, in place of one of the same step: rows of `eval_row`, with further
        columns or none."""
        new = pd.DataFrame([{"step": step, **plain(row)} for row in rows]).astype(_TYPES)
        old = self._evals()
        self._replace_evals(new if old is None else pd.concat([old[old["step"] != step], new], ignore_index=True))

    def truncate(self, step: int) -> None:
        """Drop what was logged after `step`, which a resumed run logs again, once, and a line that a crash cut: each
        attempt begins with it."""
        for path in (self.folder / name for name in LOGS):
            if path.exists():
                kept = [row for row in read_jsonl(path) if row["step"] <= step]
                write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        if (evals := self._evals()) is not None:
            self._replace_evals(evals[evals["step"] <= step])
        evaluations = self.info.get("evaluations", {})
        self.update(evaluations={k: v for k, v in evaluations.items() if int(k) <= step})

    def _evals(self) -> pd.DataFrame | None:
        path = self.folder / "evals.parquet"
        return pd.read_parquet(path) if path.exists() else None

    def _replace_evals(self, table: pd.DataFrame) -> None:
        with replacing(self.folder / "evals.parquet") as temporary:
            table.to_parquet(temporary, index=False)


def eval_row(task: Task, sample: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a task's answer number `sample`: of `answer` the keys of ANSWER, null where it lacks one."""
    asked = {"task_id": task.id, "data_source": task.data_source, "sample": sample}
    return asked | {name: answer.get(name) for name in ANSWER}


def prepare(folder: Path, config: RunConfig) -> None:
    """Make the folder of a run that another process is about to open, with its config."""
    require_space(folder, _LOG_SPACE)
    write_text(folder / "config.yaml", config_yaml(config))


def announce(folder: Path, pid: int, status: str) -> None:
    """Write which process is about to open a run, and `status`; opening it replaces both."""
    info = read_json(folder / "run.json") | {"status": status, "process": _process(pid), "updated": _now()}
    write_text(folder / "run.json", json.dumps(info, indent=1) + "\n")


def say_stopped(folder: Path) -> None:
    """Say that a run was stopped which this process opened, and a signal kept from saying how it ended."""
    info = read_json(folder / "run.json")
    if info.get("status") == "running" and info.get("process", {}).get("pid") == os.getpid():
        announce(folder, os.getpid(), "stopped")


def config_yaml(config: RunConfig) -> str:
    """The complete config as YAML; loading it gives an equal config with the same id."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of the run in `folder`, as `config_yaml` wrote it; a UserError where it is none."""
    path = folder / "config.yaml"
    try:  # libyaml takes a tenth of the time of the params files' reader
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot read {path}: {str(error).splitlines()[0]}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a mapping of keys to values, not a {type(content).__name__}.")
    return content


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a log; a line that a crash cut is skipped."""
    if path.exists():
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from parse_lines(file)


def parse_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Those lines of a log that are whole."""
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and "step" in row:
            yield row


def plain(value: Any) -> Any:
    """`value` in JSON's types: arrays as lists, scalars of numpy and torch as numbers, NaN as None."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=lambda other: other.tolist())


def _process(pid: int) -> dict[str, Any]:
    return {"pid": pid, "host": socket.gethostname(), "started": _now()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
