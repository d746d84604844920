"""Files of rows as a source: prepared Guru files, verl's data sets, one's own."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Task


@sources.register("file")
class File(Source):
    """The rows of a parquet or JSON file in verl's columns (see rlkit.data.rows); finite."""

    kind: Literal["file"] = "file"
    path: str
    """A .parquet, .json or .jsonl file."""
    data_sources: tuple[str, ...] = ()
    """Only rows of these; empty is all."""

    def total(self) -> int:
        return len(_chosen(self.path, self.data_sources))

    def check(self) -> None:
        from rlkit.data import rows

        rows.count(self.path)

    def task(self, index: int) -> Task:
        from rlkit.data.rows import to_task

        row = int(_chosen(self.path, self.data_sources)[index])
        return to_task(_rows(self.path)[row], f"{self.path}, row {row}")


@lru_cache(16)
def _rows(path: str) -> Any:
    """Something with a length that gives the row at a place: parquet stays on disk, memory-mapped."""
    from rlkit.data import rows

    if Path(path).suffix != ".parquet":
        return [row for _, row in rows.read(path)]
    rows.count(path)  # a missing or broken file, in one sentence
    import datasets

    return datasets.Dataset.from_parquet(path)


@lru_cache(64)
def _chosen(path: str, data_sources: tuple[str, ...]) -> np.ndarray:
    """Numbers of the rows that count."""
    table = _rows(path)
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
