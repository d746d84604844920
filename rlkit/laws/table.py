"""The rows a fit may see: columns mapped and checked, excluded and held-out rows gone before anything is
read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import rules
from rlkit.laws.law import Law, Space

HELD_OUT = "held_out"
HELD_OUT_RULE = {HELD_OUT: [True]}
UNFINISHED = ("running", "stopped", "failed")  # of a run's status


@dataclass(frozen=True)
class Table:
    """What is fitted: `columns` by the law's names and `y` in natural units, each (n,).

    `cluster` (n,) numbers the clusters that are resampled whole; `series` (n,) the time series within which
    blocks are drawn, `order` (n,) sorts rows by series and time. `rows` are the labels of the caller's rows,
    `record` what was left out and why, and of the columns `run`, `seed`, `cell` and `status` of a study, where there
    are such: how many values the first two have, how many cells share one value of the law's columns, and, of one row
    a run, how many are of runs that have not finished.
    """

    columns: dict[str, np.ndarray]
    y: np.ndarray
    weights: np.ndarray
    names: dict[str, str]
    rows: np.ndarray
    record: dict[str, Any]
    cluster: np.ndarray | None = None
    series: np.ndarray | None = None
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def cells(self) -> np.ndarray:
        """(n,) number of each row's distinct combination of columns."""
        return np.unique(np.column_stack(list(self.columns.values())), axis=0, return_inverse=True)[1].ravel()


def mapping(
    law: Law, x: Mapping[str, str] | str | None, names: Sequence[str] | None = None
) -> dict[str, str]:
    """The law's columns to the caller's; a lone name serves a law of one column."""
    wanted = [c for c in (names or law.columns) if c != law.target]
    if isinstance(x, str):
        if len(wanted) != 1:
            raise UserError(
                f"x is {x!r}, but the law {law.name!r} has the columns {', '.join(wanted)}: give x as a "
                "mapping of each."
            )
        return {wanted[0]: x}
    given = dict(x or {})
    for name in given:
        if name not in wanted:
            raise UserError(
                f"x maps {name!r}, which the law {law.name!r} does not have: its columns are "
                f"{', '.join(wanted)}."
            )
    return {name: given.get(name, name) for name in wanted}


def numbers(df: pd.DataFrame, name: str, role: str) -> np.ndarray:
    """A column as float64; missing and infinite values are a UserError that names the rows."""
    series = rules.column(df, name, role)
    try:
        values = series.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        raise UserError(f"{role} is column {name!r}, which is not numeric ({series.dtype}).") from None
    _refuse(df, ~np.isfinite(values), f"{role} (column {name!r}) is missing or infinite")
    return values


def _refuse(
    df: pd.DataFrame, bad: np.ndarray, what: str, remedy: str = "drop these rows or name them in exclude="
) -> None:
    if bad.any():
        labels = df.index[bad]
        shown = ", ".join(map(str, labels[:5])) + (", …" if len(labels) > 5 else "")
        raise UserError(f"{what} in {len(labels)} of {len(df)} rows ({shown}): {remedy}.")


def build(
    df: pd.DataFrame, law: Law, y: str, x: Mapping[str, str] | str | None, space: Space, **options
) -> Table:
    """Check everything and collect it; options are fit's weights, cluster, block, exclude and holdout.

    Raises:
        UserError: one sentence that names column and rows.
    """
    if not isinstance(df, pd.DataFrame) or not len(df):
        raise UserError("The data must be a pandas DataFrame with at least one row.")
    names = mapping(law, x)
    kept, record = _leave_out(df, options.get("exclude"), options.get("holdout"))
    values = numbers(kept, y, "y")
    columns = {c: numbers(kept, name, f"x[{c!r}]") for c, name in names.items()}
    _check_y(kept, values, y, space, law)
    _check_columns(kept, columns, names, law)
    if law.target:
        columns[law.target] = values
    else:
        remedy = "drop the copies, or add the column (seed, run) that tells them apart"
        _refuse(kept, _copies(kept), "The same row occurs more than once", remedy)
    if len(values) <= len(law.free):
        raise UserError(
            f"{len(values)} rows cannot determine the {len(law.free)} parameters of {law.name!r} "
            f"({', '.join(law.free)}): "
            "add data, or choose a law with fewer parameters."
        )
    for name in ("run", "seed"):
        record[f"{name}s"] = int(kept[name].nunique()) if name in kept.columns else None
    if "cell" in kept.columns:
        record["cells_together"] = int(kept.groupby(list(names.values()))["cell"].nunique().max())
    if "status" in kept.columns and record["runs"] == len(kept):
        record["unfinished"] = int(kept["status"].isin(UNFINISHED).sum())
    weights = _weights(kept, options.get("weights"))
    cluster = _cluster(kept, options.get("cluster"))
    series, order = _series(kept, options.get("block"), cluster)
    return Table(
        columns, values, weights, {**names, "y": y}, kept.index.to_numpy(), record, cluster, series, order
    )


def _copies(df: pd.DataFrame) -> np.ndarray:
    """(n,) bool: rows that equal another in every column that can be compared."""
    plain = [
        c
        for c in df.columns
        if df[c].dtype != object or not df[c].map(lambda v: isinstance(v, (list, dict, np.ndarray))).any()
    ]
    return df[plain].duplicated(keep=False).to_numpy()


def _leave_out(df: pd.DataFrame, exclude: object, holdout: object) -> tuple[pd.DataFrame, dict[str, Any]]:
    record: dict[str, Any] = {"rows": len(df)}
    gone = np.zeros(len(df), dtype=bool)
    withheld = [rule for rule in rules.split(holdout) if not isinstance(rule, dict) or rule != HELD_OUT_RULE]
    withheld += [HELD_OUT_RULE] if HELD_OUT in df.columns else []
    for role, chosen in (("exclude", rules.split(exclude)), ("holdout", withheld)):
        entries = []
        for one in chosen:
            found = rules.matches(df, one, role)
            if not found.any() and one is not HELD_OUT_RULE:
                raise UserError(
                    f"{role} {rules.describe(one)!r} matches no row: check the column's values or drop "
                    "the rule."
                )
            entries.append({"rule": rules.describe(one), "rows": int(found.sum())})
            gone |= found
        record[role] = entries
    if gone.all():
        raise UserError(f"exclude and holdout leave none of the {len(df)} rows to fit.")
    return df.loc[~gone], record


def _check_y(df: pd.DataFrame, y: np.ndarray, name: str, space: Space, law: Law) -> None:
    column = f"y (column {name!r})"
    if law.target:
        _refuse(df, y < 0, f"{column} is negative")
        return
    if space == "log":
        _refuse(
            df,
            y <= 0,
            f"{column} is zero or negative, which has no logarithm,",
            "exclude= them, or fit with log=False",
        )
    if space == "loglog":
        _refuse(
            df,
            (y <= 0) | (y >= 1),
            f"{column} is not strictly between 0 and 1",
            "exclude= them, or fit with log=False",
        )
    if np.ptp(y) == 0:
        raise UserError(f"{column} is {y[0]:g} in all {len(y)} rows: there is nothing to fit.")


def _check_columns(
    df: pd.DataFrame, columns: dict[str, np.ndarray], names: Mapping[str, str], law: Law
) -> None:
    for c, values in columns.items():
        if law.name in ("transfer", "mixture", "overoptimization_bon", "overoptimization_rl"):
            _refuse(df, values < 0, f"x[{c!r}] (column {names[c]!r}) is negative")
        else:
            _refuse(
                df,
                values <= 0,
                f"x[{c!r}] (column {names[c]!r}) is zero or negative, which has no logarithm,",
            )
        if np.ptp(values) == 0 and law.target is None:
            raise UserError(
                f"{names[c]} is {values[0]:g} in all {len(values)} rows: its effect cannot be fitted."
            )
    if {"c", "n"} <= set(law.columns):
        return
    if {"D", "U"} <= set(columns):
        _refuse(
            df,
            columns["U"] > columns["D"] * (1 + 1e-9),
            "U (unique data) exceeds D (data seen)",
            "U is at most D",
        )


def _weights(df: pd.DataFrame, weights: str | Sequence[float] | None) -> np.ndarray:
    if weights is None:
        return np.ones(len(df))
    if isinstance(weights, str):
        values = numbers(df, weights, "weights")
    elif isinstance(weights, pd.Series):
        values = weights.reindex(df.index).to_numpy(dtype=float)
    else:
        raise UserError("weights must be the name of a column or a Series with the index of the data.")
    _refuse(df, ~(values > 0), "weights are not positive")
    return values


def _cluster(df: pd.DataFrame, cluster: str | Sequence[str] | None) -> np.ndarray | None:
    if cluster is None:
        return None
    by = [cluster] if isinstance(cluster, str) else list(cluster)
    for name in by:
        _refuse(
            df, rules.column(df, name, "cluster").isna().to_numpy(), f"cluster (column {name!r}) is missing"
        )
    codes = df.groupby(by, sort=True).ngroup().to_numpy()
    if codes.max() == 0:
        raise UserError(
            f"cluster {cluster!r} has one value in the {len(df)} rows, so clusters cannot be resampled: "
            "leave it out."
        )
    return codes


def _series(
    df: pd.DataFrame, block: int | str | None, cluster: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    if block is None:
        return None, None
    series = np.zeros(len(df), dtype=int) if cluster is None else cluster
    if isinstance(block, str):
        time = numbers(df, block, "block")
    elif isinstance(block, int) and block > 0:
        time = np.arange(len(df), dtype=float)
    else:
        raise UserError(
            f"block is {block!r}: give a length in rows (an integer above 0) or the column that holds time."
        )
    return series, np.lexsort((time, series))
