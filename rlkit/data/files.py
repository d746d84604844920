"""Files of rows as a source: Guru's files, verl's data sets, one's own."""

import json
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
        if not (count := len(self._chosen())):
            raise UserError(f"{self.path} has no rows: make it again, or leave it out.")
        return count

    def check(self) -> None:
        self.total()

    def task(self, index: int) -> Task:
        return self.tasks([index])[0]

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        from rlkit.data.rows import to_task

        numbers = self._chosen()[list(indices)].tolist()
        found = _read(_stored(self.path, _versions[self.path]), numbers)
        return [to_task(row, f"{self.path}, row {k}") for k, row in zip(numbers, found, strict=True)]

    def suite(self) -> str:
        return Path(self.path).stem

    def _chosen(self) -> np.ndarray:
        return _chosen(self.path, _versions.setdefault(self.path, version(self.path)), self.data_sources)


@lru_cache(16)
def _stored(path: str, _: Version) -> Any:
    """The rows of a file: memory-mapped Arrow of a parquet file, one text a row of a JSON file."""
    from rlkit.data import rows

    if Path(path).suffix != ".parquet":
        return [json.dumps(row) for row in rows.read(path)]
    import datasets
    import pyarrow.parquet as pq

    try:  # datasets cannot read a file without rows
        count = pq.read_metadata(path).num_rows
        found = datasets.Dataset.from_parquet(path) if count else datasets.Dataset.from_list([])
    except Exception as error:  # of pyarrow and of datasets, which have no class in common
        raise rows.broken(path, error.__cause__ or error) from None
    return found.with_format("arrow")  # type: ignore[union-attr]


def _read(stored: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    if isinstance(stored, list):
        return [json.loads(stored[k]) for k in numbers]
    return stored[numbers].to_pylist() if numbers else []


@lru_cache(64)
def _chosen(path: str, at: Version, data_sources: tuple[str, ...]) -> np.ndarray:
    """Numbers of the rows that count."""
    stored = _stored(path, at)
    if not data_sources:
        return np.arange(len(stored))
    if "data_source" in getattr(stored, "column_names", ()):
        stored = stored.select_columns("data_source")
    names = np.array([str(row.get("data_source")) for row in _read(stored, range(len(stored)))])
    for name in data_sources:
        if name not in names:
            known = sorted(set(names))
            raise UserError(
                f"data.train file: {path} has no row of data_source {name!r}.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return np.flatnonzero(np.isin(names, data_sources))
