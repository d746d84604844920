"""`rlkit fit`: a table from anywhere, a law, and what it says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pandas as pd

from rlkit.errors import UserError, did_you_mean
from rlkit.laws.fitting import fit
from rlkit.laws.law import Law, resolve
from rlkit.laws.table import numbers
from rlkit.params import parse_overrides

READERS = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".parquet": pd.read_parquet,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
}


def load_table(path: str | Path) -> pd.DataFrame:
    """A CSV, TSV, Parquet or JSON-lines file, or the final points of the runs in a results folder.

    Raises:
        UserError: no such file, a kind that is not read, or a folder without evaluated runs.
    """
    path = Path(path)
    if path.is_dir():
        from rlkit.results import read
        from rlkit.summary import final

        return final(read(path)).reset_index(drop=True)
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    if path.suffix not in READERS:
        raise UserError(f"{path} is not read: give one of {', '.join(READERS)}, or a results folder.")
    try:
        return READERS[path.suffix](path)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None


def derived(table: pd.DataFrame, column: str) -> str:
    """The name of a column; "C / 6 / N" or "epochs * rows" is added to the table as a column of that name.

    Raises:
        UserError: a factor that is neither a number nor a column.
    """
    if column in table.columns:
        return column
    parts = re.split(r"\s+([*/])\s+", column)
    if len(parts) > 1:
        value = _factor(table, parts[0])
        for sign, factor in zip(parts[1::2], parts[2::2], strict=True):
            value = value * _factor(table, factor) if sign == "*" else value / _factor(table, factor)
        table[column] = value
    return column


def _factor(table: pd.DataFrame, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return numbers(table, text, "--map")


def _check_mapped(law: Law, x: dict[str, str], table: pd.DataFrame) -> None:
    for name in law.columns:
        if name != law.target and name not in x and name not in table.columns:
            varied = [c for c in table.select_dtypes("number") if table[c].nunique() > 1]
            shown = ", ".join(map(str, varied[:12])) + (", …" if len(varied) > 12 else "")
            raise UserError(
                f"The law {law.name!r} has a column {name}, and the table has none of that name: say which of its "
                f"columns that is, --map {name}=COLUMN. Numbers that vary are in: {shown}."
            )


def fit_file(
    data: Path,
    law: str,
    y: str,
    columns: list[str],
    options: list[str],
    out: Path | None,
    figure: Path | None,
) -> str:
    """Fit, write what was asked for, and return the summary.

    Args:
        columns: "name=column" pairs, the law's columns to the table's.
        options: "key=value" pairs for `fit`; values are read as YAML.

    Raises:
        UserError: a pair that is none, an option that `fit` does not have; otherwise as `fit`.
    """
    pairs = [item.partition("=") for item in columns]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise UserError(f"--map is {bad[0]!r}: write NAME=COLUMN, e.g. --map N=parameters.")
    chosen: dict[str, Any] = parse_overrides(options)
    known = [p for p in inspect.signature(fit).parameters if p not in ("df", "law", "y", "x")]
    for key in chosen:
        if key not in known:
            raise UserError(f"Unknown option {key!r}.{did_you_mean(key, known)} Options: {', '.join(known)}.")
    table = load_table(data)
    x = {name: derived(table, column.strip()) for name, _, column in pairs}
    _check_mapped(resolve(law), x, table)
    result = fit(table, law, y=y, x=x or None, **chosen)
    if out is not None:
        result.to_json(out)
    if figure is not None:
        import matplotlib

        matplotlib.use("Agg")
        figure.parent.mkdir(parents=True, exist_ok=True)
        result.plot().figure.savefig(figure)
    return result.summary()
