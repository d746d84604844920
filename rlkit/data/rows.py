"""Rows on disk: verl's columns in parquet or JSON lines, streamed into tasks and written from them. In a row that rlkit
wrote, the ground truth and extra_info are JSON strings (`Task.to_row`), so files of all domains have one Arrow schema
and concatenate. Other rows (Guru's in both variants, verl's own data sets) hold them as they are or compressed."""

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
from rlkit.files import existing, replacing
from rlkit.types import Message, Task

WRITTEN = ("index", "split", "json")  # keys of the extra_info that rlkit writes
SCHEMA = pa.schema({
    "data_source": pa.string(), "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
    "ability": pa.string(), "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
    "extra_info": pa.struct(dict(zip(WRITTEN, (pa.int64(), pa.string(), pa.string()), strict=True))),
    "id": pa.string(),
})  # fmt: skip
BATCH = 256  # rows that are read and written together
REQUIRED = ("data_source", "prompt", "reward_model")
_PASS_RATES = ("qwen2.5_7b_pass_rate", "qwen3_30b_pass_rate")  # of two models, in Guru's rows


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a .parquet or .jsonl file as they are. Raises UserError: a missing, broken or unsupported file, or a
    line that is no JSON object."""
    path = existing(path)
    if path.suffix not in (".parquet", ".jsonl"):
        raise UserError(f"{path} is neither .parquet nor .jsonl (one JSON object a line): convert it first.")
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as table:
                for batch in table.iter_batches(BATCH):
                    yield from batch.to_pylist()
            return
        with path.open("rb") as file:
            for number, line in enumerate(line for line in file if line.strip()):
                yield _parsed(line, f"{path}, row {number}")
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # also text that is not UTF-8
        raise broken(path, error) from None


def broken(path: Path, error: BaseException) -> UserError:
    """What to say of a file that cannot be read."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"{path} is no whole {path.suffix[1:]} file ({said}): make or download it again.")


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
        if isinstance(row, dict):
            return row
        problem = f"a {type(row).__name__}, not an object with columns."
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text ({error.reason}): save the file as UTF-8."
    except (ValueError, RecursionError) as error:
        problem = f"no JSON ({error})."
    raise UserError(f"{where}: {problem}")


def tasks(path: str | Path) -> Iterator[Task]:
    """The tasks of a file, in order (see `read` and `to_task`)."""
    return (to_task(row, f"{path}, row {number}") for number, row in enumerate(read(path)))


def to_task(row: Mapping[str, Any], where: str = "the row") -> Task:
    """The task of a row in any of the forms above; Guru's pass rates go into extra_info, whose numbers that are not
    finite are None. `where` is file and row, for messages. Raises UserError: a column that is missing, of the wrong
    type or cannot be decoded."""
    try:
        for name in REQUIRED:
            if row.get(name) is None:
                near = did_you_mean(name, [k for k in row if k not in REQUIRED])
                raise ValueError(f"column {name!r} is {'empty' if name in row else 'missing'}.{near}")
        source, prompt, model = (row[name] for name in REQUIRED)
        if not _is_text(source):
            raise ValueError(f"data_source is {source!r}, not a name")
        messages = _messages(prompt)
        if not isinstance(model, dict) or model.get("ground_truth") in (None, "", [], {}):
            raise ValueError("reward_model has no ground_truth")
        truth, info = _decoded(row, model["ground_truth"], row.get("extra_info") or {})
    except ValueError as error:
        said = str(error)
        raise UserError(f"{where}: {said if said.endswith(('.', '?')) else said + '.'}") from None
    info |= {name: row[name] for name in _PASS_RATES if row.get(name) is not None}
    ability = row.get("ability")
    return Task(source, messages, truth, ability if isinstance(ability, str) else "", info)


def _messages(prompt: Any) -> tuple[Message, ...]:
    """The messages of a row. Raises ValueError where there are none."""
    stringified = "prompt is a message list turned into a string: take another copy of the rows"
    if isinstance(prompt, str):
        message = "[{'role': 'user', 'content': the text}]"
        plain = f"prompt is plain text, not a list of messages: make it {message}"
        raise ValueError(stringified if _is_stringified(prompt) else plain)
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"prompt is a {type(prompt).__name__}, not a list of messages with role and content")
    for message in prompt:
        if not isinstance(message, dict) or not all(_is_text(message.get(k)) for k in ("role", "content")):
            raise ValueError(f"prompt holds {str(message)[:60]!r}, not a message with role and content")
        if _is_stringified(message["content"]):
            raise ValueError(stringified)
    return tuple({"role": message["role"], "content": message["content"]} for message in prompt)


def _decoded(row: Mapping[str, Any], truth: Any, info: Any) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info. Raises ValueError: one cannot be decoded, or the truth is no JSON value."""
    from rlkit.domains.grading import decode

    if isinstance(info, dict) and set(info) == set(WRITTEN):
        info = info["json"]
    if isinstance(info, str):
        try:
            info = json.loads(info)
            truth = json.loads(truth) if isinstance(row.get("id"), str) else truth  # rlkit wrote the row
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"reward_model.ground_truth or extra_info is no JSON ({error})") from None
    elif isinstance(info, dict):
        truth, info = decode(truth), decode({k: v for k, v in info.items() if v is not None})
    if not isinstance(info, dict):
        raise ValueError(f"extra_info is a {type(info).__name__}, not a mapping")
    try:
        json.dumps(truth, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"reward_model.ground_truth is no JSON value ({error})") from None
    return truth, json.loads(json.dumps(info, default=str), parse_constant=lambda _: None)


def _is_stringified(text: str) -> bool:
    """Whether a text is a message list that was turned into a string, in Python's or JSON's form."""
    if not re.match(r"\s*(?:array\(\s*)?\[?\s*\{\s*['\"]\w+['\"]\s*:", text):
        return False
    return all(re.search(rf"['\"]{key}['\"]\s*:", text) for key in ("role", "content"))


def _is_text(value: Any) -> bool:
    """Whether a value is a text that a file can hold: JSON can spell half a surrogate pair."""
    return isinstance(value, str) and bool(value.strip()) and not re.search("[\ud800-\udfff]", value)


def from_verl(ground_truth: str, extra_info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info of a row that rlkit wrote, as scorers want them, in verl's processes."""
    return json.loads(ground_truth), json.loads(extra_info["json"])


def write(path: str | Path, items: Iterable[Task], *, split: str = "train", progress: bool = True) -> int:
    """Write tasks to a parquet file, few in memory at a time, which appears when it is whole; the number written."""
    path, written = Path(path), 0
    rows = (task.to_row(split) for task in tqdm(items, path.name, unit="row", disable=not progress))
    with replacing(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
            written += len(batch)
    return written
