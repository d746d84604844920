"""Rows on disk: verl's columns in parquet or JSON, streamed into tasks and written from them.

A row that rlkit wrote has an `id`, and its ground truth and extra_info are JSON strings (`Task.to_row`), so files of
all domains have one Arrow schema and concatenate. Other rows (Guru's in both variants, verl's own data sets) hold them
as they are or compressed.
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

WRITTEN = ("index", "split", "json")
"""Keys of the extra_info that rlkit writes."""
SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(dict(zip(WRITTEN, (pa.int64(), pa.string(), pa.string()), strict=True))),
        "id": pa.string(),
    }
)
BATCH = 256
"""Rows that are read and written together."""
REQUIRED = ("data_source", "prompt", "reward_model")
_PASS_RATES = ("qwen2.5_7b_pass_rate", "qwen3_30b_pass_rate")  # of two models, in Guru's rows
_STRINGIFIED = "prompt is a message list turned into a string: take another copy of the rows"


def existing(path: str | Path) -> Path:
    """The path of a file that is there. Raises UserError, with the nearest name, where it is not."""
    path = Path(path)
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.*")] if path.parent.is_dir() else []
        raise UserError(f"There is no file {path}.{did_you_mean(path.name, beside)}")
    return path


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a .parquet, .json (a list) or .jsonl file as they are.

    Raises:
        UserError: a missing, broken or unsupported file, or a line that is no JSON object.
    """
    path = existing(path)
    if path.suffix not in (".parquet", ".json", ".jsonl"):
        raise UserError(f"{path} is neither .parquet nor .json nor .jsonl: convert it first.")
    try:
        yield from _parquet(path) if path.suffix == ".parquet" else _json(path)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                yield from batch.to_pylist()
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
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON ({error}){hint}.") from None


def tasks(path: str | Path) -> Iterator[Task]:
    """The tasks of a file, in order (see `read` and `to_task`)."""
    return (to_task(row, f"{path}, row {number}") for number, row in enumerate(read(path)))


def to_task(row: Mapping[str, Any], where: str = "the row") -> Task:
    """The task of a row in any of the forms above; Guru's pass rates go into extra_info, whose numbers that are not
    finite are None.

    Args:
        where: file and row, for messages.

    Raises:
        UserError: a column that is missing, of the wrong type or cannot be decoded.
    """
    try:
        if said := _wrong_column(row):
            raise ValueError(said)
        truth, info = _decoded(row)
    except ValueError as error:
        said = str(error)
        raise UserError(f"{where}: {said if said.endswith('?') else said.rstrip('.') + '.'}") from None
    info |= {name: row[name] for name in _PASS_RATES if row.get(name) is not None}
    prompt = tuple({"role": m["role"], "content": m["content"]} for m in row["prompt"])
    ability = row.get("ability")
    return Task(row["data_source"], prompt, truth, ability if isinstance(ability, str) else "", info)


def _wrong_column(row: Mapping[str, Any]) -> str:
    """What is wrong with a row's columns, if anything."""
    for name in REQUIRED:
        if row.get(name) is None:
            near = did_you_mean(name, [k for k in row if k not in REQUIRED])
            return f"column {name!r} is {'empty' if name in row else 'missing'}.{near}"
    source, prompt, model, info = (row.get(k) for k in (*REQUIRED, "extra_info"))
    if not _is_text(source):
        return f"data_source is {source!r}, not a name"
    if isinstance(prompt, str):
        if is_stringified(prompt):
            return _STRINGIFIED
        return "prompt is plain text, not a list of messages: make it [{'role': 'user', 'content': the text}]"
    if not isinstance(prompt, list) or not prompt:
        return f"prompt is a {type(prompt).__name__}, not a list of messages with role and content"
    for message in prompt:
        if not isinstance(message, dict) or not all(_is_text(message.get(k)) for k in ("role", "content")):
            return f"prompt holds {str(message)[:60]!r}, not a message with role and content"
        if is_stringified(message["content"]):
            return _STRINGIFIED
    if not isinstance(model, dict) or model.get("ground_truth") in (None, "", [], {}):
        return "reward_model has no ground_truth"
    if info is not None and not isinstance(info, dict | str):
        return f"extra_info is a {type(info).__name__}, not a mapping"
    return ""


def _decoded(row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info. Raises ValueError: one cannot be decoded, or the truth is no JSON value."""
    from rlkit.domains.grading import decode

    truth, info = row["reward_model"]["ground_truth"], row.get("extra_info") or {}
    if isinstance(info, dict) and set(info) == set(WRITTEN):
        info = info["json"]
    own = isinstance(row.get("id"), str) and isinstance(info, str)  # rlkit wrote the row
    if isinstance(info, str):
        info = _from_json(info, "extra_info")
    if own:
        truth = _from_json(truth, "reward_model.ground_truth")
    elif isinstance(info, dict):
        truth, info = decode(truth), decode({k: v for k, v in info.items() if v is not None})
    if not isinstance(info, dict):
        raise ValueError(f"extra_info holds a {type(info).__name__}, not a mapping")
    try:
        json.dumps(truth, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"reward_model.ground_truth is no JSON value ({error})") from None
    return truth, json.loads(json.dumps(info, default=str), parse_constant=lambda _: None)


def _from_json(text: Any, column: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{column} is no JSON ({error})") from None


def is_stringified(text: str) -> bool:
    """Whether a text is a message list that was turned into a string, in Python's or JSON's form."""
    if not re.match(r"\s*(?:array\(\s*)?\[?\s*\{\s*['\"]\w+['\"]\s*:", text):
        return False
    return all(re.search(rf"['\"]{key}['\"]\s*:", text) for key in ("role", "content"))


def _is_text(value: Any) -> bool:
    """Whether a value is a text that a file can hold: JSON can spell half a surrogate pair."""
    return isinstance(value, str) and bool(value.strip()) and not re.search("[\ud800-\udfff]", value)


def from_verl(ground_truth: str, extra_info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info of a row that rlkit wrote, as scorers want them, in verl's reward function; what verl
    adds to extra_info at run time is kept."""
    added = {k: v for k, v in extra_info.items() if k not in WRITTEN}
    return json.loads(ground_truth), {**json.loads(extra_info["json"]), **added}


def write(
    path: str | Path,
    items: Iterable[Task],
    *,
    split: str = "train",
    total: int | None = None,
    progress: bool = True,
) -> int:
    """Write tasks as a parquet file, few in memory at a time; the number written. The file appears only when it is
    whole."""
    path, written = Path(path), 0
    rows = (task.to_row(split) for task in tqdm(items, path.name, total, unit="row", disable=not progress))
    with replacing(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
            written += len(batch)
    return written
