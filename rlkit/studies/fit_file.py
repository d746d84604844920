"""`rlkit fit`: a table from anywhere, a law, and what it says."""

import inspect
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from rlkit.errors import UserError, did_you_mean
from rlkit.files import write_text
from rlkit.laws.fitting import fit
from rlkit.laws.law import resolve
from rlkit.laws.report import escaped
from rlkit.laws.table import as_rules
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
    """Fit, write what was asked for, and return the summary. `columns` are "name=column" pairs, the law's and the
    table's; `options` "key=value" pairs for `fit`, values read as YAML. A UserError for one that it lacks."""
    if bad := [item for item in columns if "=" not in item]:
        raise UserError(f"--map is {bad[0]!r}: write NAME=COLUMN, e.g. --map N=parameters.")
    x = {name: column.strip() for name, _, column in (item.partition("=") for item in columns)}
    chosen: dict[str, Any] = parse_overrides(options)
    known = [p for p in inspect.signature(fit).parameters if p not in ("df", "law", "y", "x")]
    for key in (key for key in chosen if key not in known):
        raise UserError(f"Unknown option {key!r}.{did_you_mean(key, known)} Options: {', '.join(known)}.")
    table, form = load_table(data), resolve(law)
    shown = ", ".join(table.columns[:12])
    if wide := [name for name in table.columns if name.endswith(f" - {y}") and y not in table.columns]:
        long = table.melt([name for name in table.columns if " - " not in name], wide, "run", y)
        table = long.assign(run=long["run"].str.removesuffix(f" - {y}")).dropna(subset=y, ignore_index=True)
        if table["run"].nunique() > 1 and not {"group", "cluster"} & set(chosen):
            chosen["group"] = "run"
    used = dict.fromkeys((y, *(x.get(c, c) for c in form.columns)))
    if lost := [name for name in form.columns if x.get(name, name) not in table]:
        told = f"{form.name} needs {lost[0]!r}, and {data} has no column {x.get(lost[0], lost[0])!r}"
        raise UserError(f"{told}: name one with --map {lost[0]}=COLUMN. Columns: {shown}.")
    if y not in table:
        near = did_you_mean(y, map(str, table))
        raise UserError(f"--y is {y!r}, and {data} has no such column.{near} Columns: {shown}.")
    gaps = [f"missing {c}" for c in used if c in table and table[c].isna().any()]
    chosen["exclude"] = as_rules(chosen.get("exclude")) + gaps
    result = fit(table, form, y=y, x=x or None, **chosen)
    fits = result if isinstance(result, dict) else {"": result}
    if out is not None:
        records = {str(name): json.loads(one.to_json()) for name, one in fits.items()}
        tables = (escaped(str(name)) + "\n\n" * bool(name) + one.to_latex() for name, one in fits.items())
        text = "\n\n".join(tables) if out.suffix == ".tex" else json.dumps(records.get("", records), indent=2)
        write_text(out, text + "\n")
    if figure is not None:
        from rlkit import figures

        figure.parent.mkdir(parents=True, exist_ok=True)
        figures.law(result).figure.savefig(figure, dpi=200)
    return "\n\n".join((f"== {name} ==\n" if name else "") + one.summary() for name, one in fits.items())


def load_table(path: str | Path) -> pd.DataFrame:
    """A CSV, TSV, Parquet or JSON-lines file, or the final points of the runs in a results folder. The columns __MIN
    and __MAX of a W&B export, which repeat others, are dropped. Raises UserError for what cannot be read."""
    path = Path(path)
    if path.is_dir():
        from rlkit.measures.summary import final
        from rlkit.results.read import read

        return final(read(path)).reset_index(drop=True)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": _separated, ".tsv": partial(pd.read_csv, sep="\t", encoding="utf-8-sig"),
        ".parquet": pd.read_parquet, ".jsonl": partial(pd.read_json, lines=True),
    }  # fmt: skip
    known = f"{', '.join(readers)}, or a results folder"
    if not path.is_file():
        near = did_you_mean(path.name, [other.name for other in path.parent.glob("*.*")])
        raise UserError(f"There is no file {path}.{near or f' Give one of {known}.'}")
    if path.suffix not in readers:
        raise UserError(f"{path} is not read: give one of {known}.")
    try:
        table = readers[path.suffix](path)
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    table.columns = [str(name).strip() for name in table.columns]
    return table.loc[:, [not name.endswith(("__MIN", "__MAX")) for name in table.columns]]


def _separated(path: Path) -> pd.DataFrame:
    """A file with commas or semicolons between its columns; where semicolons are, commas may be decimal ones."""
    first, *lines = path.read_text(encoding="utf-8-sig").splitlines() or [""]
    if first.count(";") <= first.count(","):
        return pd.read_csv(path, encoding="utf-8-sig")
    decimal = any(re.search(r"(^|;)\s*-?(0,\d+|\d*,(\d{1,2}|\d{4,}))\s*(;|$)", line) for line in lines[:50])
    return pd.read_csv(path, sep=";", decimal="," if decimal else ".", encoding="utf-8-sig")
