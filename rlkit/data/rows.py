"""Rows on disk: verl's columns in parquet or JSON, read into tasks and written from them, streamed.

A row that rlkit wrote has an `id`, and its ground truth and extra_info are JSON strings, so files of all
domains have one Arrow schema and concatenate. Other rows (Guru's in both variants, verl's own data sets)
hold them as they are or compressed.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
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
_LIST = re.compile(r"\s*(?:array\(\s*)?\[?\s*\{\s*['\"]\w+['\"]\s*:")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
SUFFIXES = (".parquet", ".json", ".jsonl")
REQUIRED = ("data_source", "prompt", "reward_model")


def read(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a .parquet, .json (a list) or .jsonl file as they are, with their numbers from 0.

    Raises:
        UserError: a missing, broken or unsupported file, or a line that is no JSON object.
    """
    path = existing(path)
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path} is neither .parquet nor .json nor .jsonl: convert it first.")
    try:
        yield from enumerate(_parquet(path) if path.suffix == ".parquet" else _json(path))
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None


def existing(path: str | Path) -> Path:
    """The path of a file that is there. Raises UserError, with the nearest name, where it is not."""
    path = Path(path)
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.*")] if path.parent.is_dir() else []
        raise UserError(f"There is no file {path}.{did_you_mean(path.name, beside)}")
    return path


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                for row in batch.to_pylist():
                    yield row
                    number += 1
            if number != file.metadata.num_rows:
                raise OSError(f"{number} rows of the {file.metadata.num_rows} that it says it has")
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # also text that is not UTF-8
        raise broken(path, error) from None


def broken(path: str | Path, error: BaseException) -> UserError:
    """What to say of a parquet file that pyarrow or datasets cannot read."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"{path} is no whole parquet file ({said}): make or download it again.")


def _json(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        if path.suffix == ".jsonl":
            lines = (line for line in file if line.strip())
            content = (_parsed(line, f"{path}, row {number}") for number, line in enumerate(lines))
        else:
            content = _parsed(file.read(), str(path), "; a file with one object a line is named .jsonl")
            if not isinstance(content, list):
                raise UserError(f"{path} holds a {type(content).__name__}, not a list of rows.")
        for number, row in enumerate(content):
            if not isinstance(row, dict):
                raise UserError(f"{path}, row {number}: a {type(row).__name__}, not an object with columns.")
            yield row


def _parsed(data: bytes, where: str, hint: str = "") -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 text ({error.reason}): save the file as UTF-8.") from None
    except RecursionError:
        raise UserError(f"{where}: its JSON is nested too deeply to be read.") from None
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error}){hint}.") from None


def count(path: str | Path) -> int | None:
    """Rows of a parquet file, from its footer; None for other files."""
    path = existing(path)
    if path.suffix != ".parquet":
        return None
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise broken(path, error) from None


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
        raise UserError(f"{where}: {problem}{'' if problem.endswith('?') else '.'}")
    prompt = tuple({"role": m["role"], "content": m["content"]} for m in row["prompt"])
    try:
        truth, info = contents(row)
    except ValueError as error:
        raise UserError(f"{where}: {str(error).rstrip('.')}.") from None
    info |= {name: row[name] for name in DIFFICULTY if row.get(name) is not None}
    ability = row.get("ability")
    return Task(row["data_source"], prompt, truth, ability if isinstance(ability, str) else "", info)


def contents(row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info, decoded; numbers of extra_info that are not finite are None.

    Raises:
        ValueError: one of them cannot be decoded, or the truth is no JSON value.
    """
    from rlkit.rewards.grading import decode

    truth, info = row["reward_model"]["ground_truth"], row.get("extra_info") or {}
    if isinstance(info, str):
        info = _from_json(info, "extra_info")
    if is_own(row):
        truth = _from_json(truth, "reward_model.ground_truth")
    elif isinstance(info, dict):
        truth, info = decode(truth), decode({k: v for k, v in info.items() if v is not None})
    if not isinstance(info, dict):
        raise ValueError(f"extra_info holds a {type(info).__name__}, not a mapping")
    try:
        json.dumps(truth, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"reward_model.ground_truth is no JSON value ({error})") from None
    try:
        info = json.loads(json.dumps(info, default=str), parse_constant=lambda _: None)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"extra_info has no JSON form ({error})") from None
    return truth, info


def _from_json(text: Any, column: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{column} is nested too deeply to be read") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{column} is no JSON ({error})") from None


def is_own(row: Mapping[str, Any]) -> bool:
    """Whether rlkit wrote the row."""
    return isinstance(row.get("id"), str) and isinstance(row.get("extra_info"), str)


def schema_problem(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a row's columns, in words; None when nothing is."""
    for name in REQUIRED:
        if row.get(name) is None:
            near = did_you_mean(name, [k for k in row if k not in REQUIRED])
            return f"column {name!r} is {'empty' if name in row else 'missing'}.{near}".rstrip(".")
    source, prompt, model = row["data_source"], row["prompt"], row["reward_model"]
    if not _is_text(source):
        return f"data_source is {source!r}, not a name"
    if isinstance(prompt, str) and is_stringified(prompt):
        return "prompt is a message list turned into a string"
    if isinstance(prompt, str):
        return "prompt is plain text, not a list of messages: make it [{'role': 'user', 'content': the text}]"
    if not isinstance(prompt, list) or not prompt:
        return f"prompt is a {type(prompt).__name__}, not a list of messages with role and content"
    for message in prompt:
        fields = [message.get(k) for k in ("role", "content")] if isinstance(message, dict) else [None]
        if not all(map(_is_text, fields)):
            return f"prompt holds {str(message)[:60]!r}, not a message with role and content"
    if not isinstance(model, dict) or model.get("ground_truth") in (None, "", [], {}):
        return "reward_model has no ground_truth"
    info = row.get("extra_info")
    if info is not None and not isinstance(info, dict | str):
        return f"extra_info is a {type(info).__name__}, not a mapping"
    return None


def is_stringified(text: str) -> bool:
    """Whether a text is a message list that was turned into a string, in Python's or JSON's form."""
    return bool(_LIST.match(text)) and all(
        re.search(rf"['\"]{k}['\"]\s*:", text) for k in ("role", "content")
    )


def _is_text(value: Any) -> bool:
    """Whether it is text that can be written: half a surrogate pair, which JSON can spell, cannot."""
    return isinstance(value, str) and bool(value.strip()) and not _HALF_PAIR.search(value)


def to_row(task: Task) -> dict[str, Any]:
    """The columns of SCHEMA."""
    return {**task.to_row(), **{name: task.extra_info.get(name) for name in DIFFICULTY}}


def write(path: str | Path, items: Iterable[Task], *, total: int | None = None, progress: bool = True) -> int:
    """Write tasks as a parquet file in SCHEMA; the number written."""
    return write_rows(path, map(to_row, items), SCHEMA, total=total, progress=progress)


def write_rows(
    path: str | Path,
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema | None = None,
    *,
    total: int | None = None,
    progress: bool = True,
) -> int:
    """Write rows as a parquet file, a few hundred in memory at a time, or without a schema as JSON lines; the number
    written. The file appears only when it is whole."""
    path, written = Path(path), 0
    items = iter(tqdm(rows, desc=path.name, total=total, unit="row", disable=not progress))
    with replacing(path) as temporary:
        if schema is None:
            with temporary.open("w", encoding="utf-8") as file:
                for row in items:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    written += 1
            return written
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            while batch := list(islice(items, BATCH)):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
                written += len(batch)
    return written
