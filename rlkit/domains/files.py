"""Files of rows as a source: prepared Guru files, verl's data sets, one's own."""

import json
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Task

Version = tuple[int, int]

_versions: dict[str, Version] = {}
"""Of each file, what it was when its rows were last counted: a run that has begun goes on with those rows."""


def version(path: str) -> Version:
    """Time of the last change (ns) and size: another one is another content."""
    from rlkit.data import rows

    found = rows.existing(path).stat()
    return found.st_mtime_ns, found.st_size


@sources.register("file")
class File(Source):
    """The rows of a parquet or JSON file in verl's columns (see rlkit.data.rows); finite."""

    kind: Literal["file"] = "file"
    path: str
    """A .parquet, .json or .jsonl file."""
    data_sources: tuple[str, ...] = ()
    """Only rows of these; empty is all."""

    def total(self) -> int:
        _versions[self.path] = version(self.path)
        return len(self._chosen())

    def check(self) -> None:
        from rlkit.data import rows

        rows.count(self.path)

    def task(self, index: int) -> Task:
        return self.tasks([index])[0]

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        from rlkit.data.rows import to_task

        numbers = self._chosen()[list(indices)].tolist()
        found = _table(self.path, _versions[self.path]).read(numbers)
        return [to_task(row, f"{self.path}, row {k}") for k, row in zip(numbers, found, strict=True)]

    def suite(self) -> str:
        return Path(self.path).stem

    def _chosen(self) -> np.ndarray:
        return _chosen(self.path, _versions.setdefault(self.path, version(self.path)), self.data_sources)


class _Parquet:
    """Rows of a parquet file: on disk, memory-mapped."""

    def __init__(self, path: str) -> None:
        import datasets

        from rlkit.data import rows

        try:  # datasets cannot read a file without rows; its footer also says what is wrong with a broken one
            found = (
                datasets.Dataset.from_parquet(path) if rows.count(path) else datasets.Dataset.from_list([])
            )
        except UserError:
            raise
        except Exception as error:  # of pyarrow and of datasets, which have no class in common
            raise rows.broken(path, error.__cause__ or error) from None
        self._table: Any = found.with_format("arrow")  # type: ignore[union-attr]

    def __len__(self) -> int:
        return len(self._table)

    def read(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return self._table[numbers].to_pylist() if numbers else []

    def data_sources(self) -> np.ndarray:
        names = self._table.data
        return np.array(
            names.column("data_source").to_pylist() if "data_source" in names.column_names else []
        )


class _Json:
    """Rows of a JSON file: as one text, of which a row is a part, since objects take many times the memory."""

    def __init__(self, path: str) -> None:
        from rlkit.data import rows

        self._text, self._ends, self._names = bytearray(), array("q", [0]), list[Any]()
        for _, row in rows.read(path):
            self._text += json.dumps(row).encode()
            self._ends.append(len(self._text))
            self._names.append(sys.intern(str(row.get("data_source"))))

    def __len__(self) -> int:
        return len(self._names)

    def read(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [json.loads(self._text[self._ends[k] : self._ends[k + 1]]) for k in numbers]

    def data_sources(self) -> np.ndarray:
        return np.array(self._names)


@lru_cache(16)
def _table(path: str, _: Version) -> _Parquet | _Json:
    return _Parquet(path) if Path(path).suffix == ".parquet" else _Json(path)


@lru_cache(64)
def _chosen(path: str, at: Version, data_sources: tuple[str, ...]) -> np.ndarray:
    """Numbers of the rows that count."""
    table = _table(path, at)
    if not data_sources:
        return np.arange(len(table))
    names = table.data_sources()
    for name in data_sources:
        if name not in names:
            known = sorted({str(n) for n in names})
            raise UserError(
                f"data.train file: {path} has no row of data_source {name!r}.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return np.flatnonzero(np.isin(names, data_sources))
