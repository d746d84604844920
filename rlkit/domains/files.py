"""Files of rows as a source: prepared Guru files, verl's data sets, one's own."""

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
        from rlkit.data.rows import to_task

        row = int(self._chosen()[index])
        return to_task(_rows(self.path, _versions[self.path])[row], f"{self.path}, row {row}")

    def suite(self) -> str:
        return Path(self.path).stem

    def _chosen(self) -> np.ndarray:
        return _chosen(self.path, _versions.setdefault(self.path, version(self.path)), self.data_sources)


@lru_cache(16)
def _rows(path: str, _: Version) -> Any:
    """Something with a length that gives the row at a place: parquet stays on disk, memory-mapped."""
    from rlkit.data import rows

    if Path(path).suffix != ".parquet":
        return [row for _, row in rows.read(path)]
    if rows.count(path) == 0:  # which also says what is wrong with a broken file
        return []
    import datasets

    try:
        return datasets.Dataset.from_parquet(path)
    except Exception as error:  # of pyarrow and of datasets, which have no class in common
        raise rows.broken(path, error.__cause__ or error) from None


@lru_cache(64)
def _chosen(path: str, at: Version, data_sources: tuple[str, ...]) -> np.ndarray:
    """Numbers of the rows that count."""
    table = _rows(path, at)
    if not data_sources:
        return np.arange(len(table))
    names = np.array(
        [row.get("data_source") for row in table] if isinstance(table, list) else table["data_source"][:]
    )
    for name in data_sources:
        if name not in names:
            known = sorted({str(n) for n in names})
            raise UserError(
                f"data.train file: {path} has no row of data_source {name!r}.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return np.flatnonzero(np.isin(names, data_sources))
