"""Rows on disk: verl's columns in parquet or JSON, read into tasks and written from them, streamed.

A row that rlkit wrote has an `id`, and its ground truth and extra_info are JSON strings, so files of all
domains have one Arrow schema and concatenate. Other rows (Guru's in both variants, verl's own data sets)
hold them as they are or compressed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from rlkit.errors import UserError, did_you_mean
from rlkit.files import replacing
from rlkit.types import Task

DIFFICULTY = ("qwen2.5_7b_pass_rate", "qwen3_30b_pass_rate")
"""Guru's difficulty columns: the pass rates of two models."""

SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.string(),
        "id": pa.string(),
        **{name: pa.float64() for name in DIFFICULTY},
    }
)
BATCH = 256
REQUIRED = ("data_source", "prompt", "reward_model")


def read(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a .parquet, .json (a list) or .jsonl file as they are, with their numbers from 0.

    Raises:
        UserError: a missing, broken or unsupported file, or a line that is no JSON object.
    """
    path = _existing(path)
    readers = {".parquet": _parquet, ".json": _json, ".jsonl": _jsonl}
    if path.suffix not in readers:
        raise UserError(f"{path} is neither .parquet nor .json nor .jsonl: convert it first.")
    yield from enumerate(readers[path.suffix](path))


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.*")] if path.parent.is_dir() else []
        raise UserError(f"There is no file {path}.{did_you_mean(path.name, beside)}")
    return path


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is no whole parquet file ({error}): make or download it again.") from None


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, row {number}: no JSON ({error}).") from None
            yield _object(row, path, number)


def _json(path: Path) -> Iterator[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            f"{path} is no JSON ({error}); a file with one object a line is named .jsonl."
        ) from None
    if not isinstance(rows, list):
        raise UserError(f"{path} holds a {type(rows).__name__}, not a list of rows.")
    yield from (_object(row, path, number) for number, row in enumerate(rows))


def _object(row: Any, path: Path, number: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{path}, row {number}: a {type(row).__name__}, not an object with columns.")
    return row


def count(path: str | Path) -> int | None:
    """Rows of a parquet file, from its footer; None for other files."""
    path = _existing(path)
    if path.suffix != ".parquet":
        return None
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is no whole parquet file ({error}): make or download it again.") from None


def tasks(path: str | Path) -> Iterator[Task]:
    """The tasks of a file, in order (see `read` and `to_task`)."""
    for number, row in read(path):
        yield to_task(row, f"{path}, row {number}")


def to_task(row: Mapping[str, Any], where: str = "the row") -> Task:
    """The task of a row in any of the forms above; Guru's pass rates go into extra_info.

    Raises:
        UserError: a column that is missing or of the wrong type, with file, row and column.
    """
    problem = schema_problem(row)
    if problem:
        raise UserError(f"{where}: {problem}.")
    prompt = tuple({"role": m["role"], "content": m["content"]} for m in row["prompt"])
    try:
        truth, info = contents(row)
        info |= {name: row[name] for name in DIFFICULTY if row.get(name) is not None}
        return Task(row["data_source"], prompt, truth, row.get("ability") or "", info)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def contents(row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info, decoded. Raises ValueError when they cannot be."""
    from rlkit.rewards.truth import decode

    truth, info = row["reward_model"]["ground_truth"], row.get("extra_info")
    if is_own(row):
        return json.loads(truth), json.loads(row["extra_info"])
    if isinstance(info, str) and info:
        info = json.loads(info)
    info = decode({k: v for k, v in (info or {}).items() if v is not None})
    return decode(truth), json.loads(json.dumps(info, default=str))


def is_own(row: Mapping[str, Any]) -> bool:
    """Whether rlkit wrote the row."""
    return isinstance(row.get("id"), str) and isinstance(row.get("extra_info"), str)


def schema_problem(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a row's columns, in words; None when nothing is."""
    for name in REQUIRED:
        if row.get(name) is None:
            near = did_you_mean(name, [k for k in row if k not in REQUIRED])
            return f"column {name!r} is {'empty' if name in row else 'missing'}.{near}".rstrip(".")
    source, prompt, model, info = (
        row["data_source"],
        row["prompt"],
        row["reward_model"],
        row.get("extra_info"),
    )
    if not isinstance(source, str) or not source:
        return f"data_source is {source!r}, not a name"
    if not isinstance(prompt, list) or not prompt:
        return f"prompt is a {type(prompt).__name__}, not a list of messages with role and content"
    for message in prompt:
        good = isinstance(message, dict) and isinstance(message.get("role"), str)
        if not good or not isinstance(message.get("content"), str) or not message["content"].strip():
            return f"prompt holds {str(message)[:60]!r}, not a message with role and content"
    if not isinstance(model, dict) or model.get("ground_truth") in (None, "", [], {}):
        return "reward_model has no ground_truth"
    if info is not None and not isinstance(info, dict | str):
        return f"extra_info is a {type(info).__name__}, not a mapping"
    return None


def to_row(task: Task) -> dict[str, Any]:
    """The columns of SCHEMA."""
    return {**task.to_row(), **{name: task.extra_info.get(name) for name in DIFFICULTY}}


def write(path: str | Path, items: Iterable[Task], *, total: int | None = None, progress: bool = True) -> int:
    """Write tasks as a parquet file in SCHEMA, a few hundred in memory at a time; the number written.

    The file appears only when it is whole.
    """
    return write_parquet(path, (to_row(t) for t in items), SCHEMA, total=total, progress=progress)


def write_parquet(
    path: str | Path,
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema,
    *,
    total: int | None = None,
    progress: bool = True,
) -> int:
    """Write rows as a parquet file in batches, in one step at the end; the number written."""
    path, written, batch = Path(path), 0, []
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for row in tqdm(rows, desc=path.name, total=total, unit="row", disable=not progress):
            batch.append(row)
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
                written, batch = written + len(batch), []
        writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
    return written + len(batch)
