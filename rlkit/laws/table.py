"""The rows a fit may see: columns mapped and checked, excluded and held-out rows gone before anything is
read."""

from __future__ import annotations

import re
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
    """What is fitted.

    Attributes:
        columns: (n,) each, by the law's names. y: (n,) in natural units. weights: (n,).
        names: the caller's column behind each of the law's, and y.
        rows: labels of the caller's rows.
        record: what was left out and why; `runs` and `seeds`, how many there are; `cells_together`, how many cells of
            a study share one value of the law's columns; `unfinished`, how many rows are of runs that have not ended;
            `cluster`, `block` and `weights` as they were given.
        weighted: the caller's column of weights.
        cluster: (n,) number of the cluster that is resampled whole.
        series: (n,) number of the time series within which noise is correlated. order: (n,) sorts rows by series and
            time.
    """

    columns: dict[str, np.ndarray]
    y: np.ndarray
    weights: np.ndarray
    names: dict[str, str]
    rows: np.ndarray
    record: dict[str, Any]
    weighted: str | None = None
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


_SUFFIX = {"": 1.0, "%": 0.01, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_WRITTEN = re.compile(r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([%KMBT]?)")


def number(text: Any) -> float:
    """A number as tables write them: 0.6B, 68.3% (a share, 0.683), 600,000,000; NaN for an empty cell.

    Raises:
        ValueError: it is none of these.
    """
    if not isinstance(text, str):
        return float("nan") if text is None or text is pd.NA else float(text)
    if text.strip().lower() in ("", "nan", "na", "null", "none", "-"):
        return float("nan")
    found = _WRITTEN.fullmatch(text.strip().upper())
    if not found or not any(c.isdigit() for c in found[1]):
        return float(text)
    return float(found[1].replace(",", "")) * _SUFFIX[found[2]]


def numbers(df: pd.DataFrame, name: str, role: str) -> np.ndarray:
    """A column as float64; missing and infinite values are a UserError that names the rows."""
    series = rules.column(df, name, role)
    if not isinstance(series, pd.Series):
        raise UserError(
            f"{role} is column {name!r}, of which the table has {series.shape[1]}: rename all but one."
        )
    try:
        if pd.api.types.is_numeric_dtype(series):
            values = series.to_numpy(dtype=float, na_value=np.nan)
        else:
            values = np.array([number(value) for value in series], dtype=float)
    except (TypeError, ValueError):
        raise UserError(f"{role} is column {name!r}, which is not numeric ({series.dtype}).") from None
    remedy = f"drop these rows or name them in exclude=, e.g. 'missing {name}'"
    _refuse(df, ~np.isfinite(values), f"{role} (column {name!r}) is missing or infinite", remedy)
    return values


def _refuse(
    df: pd.DataFrame, bad: np.ndarray, what: str, remedy: str = "drop these rows or name them in exclude="
) -> None:
    if bad.any():
        labels = df.index[bad]
        shown = ", ".join(map(str, labels[:5])) + (", …" if len(labels) > 5 else "")
        raise UserError(f"{what} in {len(labels)} of {len(df)} rows ({shown}): {remedy}.")


def build(
    kept: pd.DataFrame,
    law: Law,
    y: str,
    x: Mapping[str, str] | str | None,
    space: Space,
    record: dict[str, Any],
    weights: str | pd.Series | None = None,
    cluster: str | Sequence[str] | None = None,
    block: int | str | None = None,
) -> Table:
    """Check the rows that are fitted and collect their columns.

    Args:
        kept, record: from `leave_out`. The other arguments are those of `rlkit.fit`.

    Raises:
        UserError: one sentence that names column and rows.
    """
    names, record = mapping(law, x), dict(record)
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
    clusters = _cluster(kept, cluster)
    weighted = weights if isinstance(weights, str) else None
    record |= {"cluster": cluster, "block": block, "weights": weighted}
    return Table(
        columns, values, _weights(kept, weights), {**names, "y": y}, kept.index.to_numpy(), record,
        weighted, clusters, *_series(kept, block, clusters),
    )  # fmt: skip


def _copies(df: pd.DataFrame) -> np.ndarray:
    """(n,) bool: rows that equal another in every column that can be compared."""
    plain = [
        c
        for c in df.columns
        if df[c].dtype != object or not df[c].map(lambda v: isinstance(v, (list, dict, np.ndarray))).any()
    ]
    return df[plain].duplicated(keep=False).to_numpy()


def held_out(df: pd.DataFrame, holdout: Any) -> np.ndarray:
    """(n,) bool: the rows that a study's column `held_out` or the rules hold out.

    Raises:
        UserError: a column `held_out` that is not true or false in every row; otherwise as `rules.matches`.
    """
    held = np.zeros(len(df), dtype=bool)
    for rule in rules.split(holdout):
        if not (isinstance(rule, dict) and rule == HELD_OUT_RULE):
            held |= rules.matches(df, rule, "holdout")
    return held | frozen(df)


def frozen(df: pd.DataFrame) -> np.ndarray:
    """(n,) bool: the rows that a study held out, in its column `held_out`."""
    if HELD_OUT not in df.columns:
        return np.zeros(len(df), dtype=bool)
    values = df[HELD_OUT]
    known = values.map(lambda v: isinstance(v, bool | np.bool_ | int | np.integer | float) and v in (0, 1))
    remedy = "write true or false, so that no held-out row is fitted by mistake"
    _refuse(df, ~known.to_numpy(dtype=bool), f"{HELD_OUT} is neither true nor false", remedy)
    return values.to_numpy(dtype=bool, copy=True)


def leave_out(df: pd.DataFrame, exclude: Any, holdout: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows that may be fitted, and the record of the others.

    Raises:
        UserError: no table, a rule that matches no row, no row left; otherwise as `rules.matches`.
    """
    if not isinstance(df, pd.DataFrame) or not len(df):
        raise UserError("The data must be a pandas DataFrame with at least one row.")
    record: dict[str, Any] = {"rows": len(df), "exclude": [], "holdout": []}
    gone = frozen(df)
    for role, chosen in (("exclude", exclude), ("holdout", holdout)):
        for one in rules.split(chosen):
            if isinstance(one, dict) and one == HELD_OUT_RULE:
                continue
            found = rules.matches(df, one, role)
            if not found.any():
                raise UserError(
                    f"{role} {rules.describe(one)!r} matches no row: check the column's values or drop "
                    "the rule."
                )
            record[role].append({"rule": rules.describe(one), "rows": int(found.sum())})
            gone |= found
    if HELD_OUT in df.columns:
        record["holdout"].append({"rule": rules.describe(HELD_OUT_RULE), "rows": int(frozen(df).sum())})
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
    if law.of_shares and y.max() > 1:
        raise UserError(
            f"{column} reaches {y.max():.4g}, but the law {law.name!r} takes shares of 0 to 1: divide "
            f"{'percent' if y.max() <= 100 else 'it'} by {'100' if y.max() <= 100 else 'its maximum'}."
        )
    if np.ptp(y) == 0:
        raise UserError(f"{column} is {y[0]:g} in all {len(y)} rows: there is nothing to fit.")


def _check_columns(
    df: pd.DataFrame, columns: dict[str, np.ndarray], names: Mapping[str, str], law: Law
) -> None:
    """Refuse columns without variation, and values at which the law is not finite whatever its parameters."""
    for c, values in columns.items():
        if np.ptp(values) == 0 and law.target is None:
            raise UserError(
                f"{names[c]} is {values[0]:g} in all {len(values)} rows: its effect cannot be fitted."
            )
        low = values <= 0
        if law.target or not low.any():
            continue
        usual = {k: np.full(len(v), np.abs(v[v != 0]).mean() if v.any() else 1.0) for k, v in columns.items()}
        with np.errstate(all="ignore"):
            points = law.from_z(np.array([[0.0], [1.0], [-1.0]]) * np.ones(len(law.parameters)))[0]
            finite = np.isfinite(law({**usual, c: values}, points)).all(axis=0)
        what = f"x[{c!r}] (column {names[c]!r}) is zero or negative, which has no logarithm,"
        _refuse(df, low & ~finite, what)
    if {"D", "U"} <= set(columns):
        _refuse(
            df,
            columns["U"] > columns["D"] * (1 + 1e-9),
            "U (unique data) exceeds D (data seen)",
            "U is at most D",
        )


def _weights(df: pd.DataFrame, weights: str | pd.Series | None) -> np.ndarray:
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
