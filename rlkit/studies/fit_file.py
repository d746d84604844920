"""`rlkit fit`: a table from anywhere, a law, and what it says."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from rlkit.errors import UserError, did_you_mean
from rlkit.files import write_text
from rlkit.laws.fitting import fit
from rlkit.laws.law import resolve
from rlkit.laws.table import as_rules, numbers
from rlkit.params import parse_overrides


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
    read, form = load_table(data), resolve(law)
    table = one_row_a_value(read, y)
    if table is not read and table["run"].nunique() > 1 and not {"group", "cluster"} & set(chosen):
        chosen["group"] = "run"
    x = {name: derived(table, column.strip()) for name, _, column in pairs}
    for name in form.columns:
        if name not in x and name not in table.columns:
            varied = [c for c in table.select_dtypes("number") if table[c].nunique() > 1]
            shown = ", ".join(map(str, varied[:12])) + (", …" if len(varied) > 12 else "")
            raise UserError(
                f"The law {law!r} has a column {name}, and the table has none of that name: say which of its columns "
                f"that is, --map {name}=COLUMN. Numbers that vary are in: {shown}."
            )
    used = dict.fromkeys((y, *(x.get(c, c) for c in form.columns)))
    gaps = [f"missing {c}" for c in used if c in table and table[c].isna().any()]
    chosen["exclude"] = as_rules(chosen.get("exclude")) + gaps
    result = fit(table, form, y=y, x=x or None, **chosen)
    fits = result if isinstance(result, dict) else {"": result}
    if out is not None:
        records = {str(name): json.loads(one.to_json()) for name, one in fits.items()}
        write_text(out, json.dumps(records if isinstance(result, dict) else records[""], indent=2) + "\n")
    if figure is not None:
        from rlkit import figures

        figure.parent.mkdir(parents=True, exist_ok=True)
        figures.law(result).figure.savefig(figure, dpi=200)
    return "\n\n".join((f"== {name} ==\n" if name else "") + one.summary() for name, one in fits.items())


def load_table(path: str | Path) -> pd.DataFrame:
    """A CSV, TSV, Parquet or JSON-lines file, or the final points of the runs in a results folder. The columns __MIN
    and __MAX of a W&B export, which repeat others, are dropped.

    Raises:
        UserError: no such file, a kind that is not read, or a folder without evaluated runs.
    """
    path = Path(path)
    if path.is_dir():
        from rlkit.measures.summary import final
        from rlkit.results.read import read

        return final(read(path)).reset_index(drop=True)
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    try:
        match path.suffix:
            case ".csv":
                table = _separated(path)
            case ".tsv":
                table = pd.read_csv(path, sep="\t", encoding="utf-8-sig")
            case ".parquet":
                table = pd.read_parquet(path)
            case ".jsonl":
                table = pd.read_json(path, lines=True)
            case _:
                known = ".csv, .tsv, .parquet, .jsonl, or a results folder"
                raise UserError(f"{path} is not read: give one of {known}.")
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    table.columns = [str(name).strip() for name in table.columns]
    return table.loc[:, [not name.endswith(("__MIN", "__MAX")) for name in table.columns]]


def _separated(path: Path) -> pd.DataFrame:
    """A file with commas or semicolons between its columns; where semicolons are, commas may be decimal ones."""
    with path.open(encoding="utf-8-sig") as file:
        head = [line for _, line in zip(range(50), file, strict=False)]
    if not head or head[0].count(";") <= head[0].count(","):
        return pd.read_csv(path, encoding="utf-8-sig")
    decimal = any(re.search(r"(^|;)\s*-?\d*,(\d{1,2}|\d{4,})\s*(;|$)", line) for line in head[1:])
    return pd.read_csv(path, sep=";", decimal="," if decimal else ".", encoding="utf-8-sig")


def one_row_a_value(table: pd.DataFrame, y: str) -> pd.DataFrame:
    """A wide table, with a column "run - y" for each run, as rows with the columns run and y; others stay as they
    are."""
    wide = [name for name in table.columns if name.endswith(f" - {y}")]
    if y in table.columns or not wide:
        return table
    long = table.melt([name for name in table.columns if " - " not in name], wide, "run", y)
    return long.assign(run=long["run"].str.removesuffix(f" - {y}")).dropna(subset=y, ignore_index=True)


def derived(table: pd.DataFrame, column: str) -> str:
    """The name of a column; "C / 6 / N" or "epochs * rows" is added to the table as a column of that name.

    Raises:
        UserError: a factor that is neither a number nor a column.
    """
    first, *rest = re.split(r"\s+([*/])\s+", column)
    if column not in table.columns and rest:
        value = _factor(table, first)
        for sign, text in zip(rest[::2], rest[1::2], strict=True):
            value = value * _factor(table, text) if sign == "*" else value / _factor(table, text)
        table[column] = value
    return column


def _factor(table: pd.DataFrame, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return numbers(table, text, "--map")
