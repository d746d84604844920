"""The rows a fit may see: held-out and excluded rows gone before anything is read, columns mapped and checked.

Rows are chosen by rules: "C < 1e18" compares a column of numbers; {"model": ["7B"], "loss": None} chooses rows in which
each column has one of its values (None: has none); a mask has one true or false a row. No text is evaluated.
"""

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError, did_you_mean
from rlkit.laws.law import SHARE, Law, Space

HELD_OUT = "held_out"  # a study's column; rows in which it is true are never fitted
UNFINISHED = ("running", "stopped", "failed")  # of a run's status
COMPARISON = re.compile(r"\s*(.+?)\s*(<=|>=|<|>)\s*(.+?)\s*")
COMPARED = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
WRITTEN = re.compile(r"([-+]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([%KMBT]?)")
UNITS = {"": 1.0, "%": 0.01, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Table:
    """What is fitted: `columns` (n,) by the law's names, `y` and `weights` (n,).

    Attributes:
        names: the caller's column behind each of the law's, and y. rows: labels of the caller's rows.
        record: rows, and rules that left some out; how many `runs` and `seeds`; `cells_together`, the most cells at one
            value of the law's columns; `unfinished`, rows of runs that have not finished; the options as given.
        cluster: (n,) number of the cluster that is resampled whole. order: (n,) sorts rows by time.
    """

    columns: dict[str, np.ndarray]
    y: np.ndarray
    weights: np.ndarray
    names: dict[str, str]
    rows: np.ndarray
    record: dict[str, Any]
    cluster: np.ndarray | None = None
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def cells(self) -> np.ndarray:
        """(n,) number of each row's distinct combination of columns."""
        return np.unique(np.column_stack(list(self.columns.values())), axis=0, return_inverse=True)[1].ravel()


def column(df: pd.DataFrame, name: str, role: str) -> pd.Series:
    """df[name]; a UserError with the nearest names where there is none, or where several have that name."""
    if name not in df.columns:
        near, known = did_you_mean(name, map(str, df.columns)), ", ".join(map(str, df.columns[:12]))
        raise UserError(f"{role} is {name!r}, but there is no such column.{near} Columns: {known}.")
    if not isinstance(df[name], pd.Series):
        raise UserError(f"{role} is column {name!r}, of which the table has several: rename all but one.")
    return df[name]


def as_rules(chosen: Any) -> list[Any]:
    """One rule or several as a list."""
    several = isinstance(chosen, list | tuple) and not (chosen and isinstance(chosen[0], bool | np.bool_))
    return list(chosen) if several else [] if chosen is None else [chosen]


def matches(df: pd.DataFrame, rule: Any, role: str) -> np.ndarray:
    """(n,) bool: the rows that one rule chooses (a Series as a mask is aligned by its index). A UserError for a column
    that is not there, or what is no rule."""
    if isinstance(rule, Mapping):
        found = np.ones(len(df), dtype=bool)
        for name, values in rule.items():
            wanted = list(values) if pd.api.types.is_list_like(values) else [values]
            chosen = column(df, name, role)
            found &= (chosen.isin(wanted) | (None in wanted) & chosen.isna()).to_numpy(dtype=bool)
        return found
    if isinstance(rule, str) and (told := COMPARISON.fullmatch(rule)):
        values = column(df, told[1], role)
        try:
            return COMPARED[told[2]](values.to_numpy(dtype=float), float(told[3]))
        except ValueError:
            raise UserError(f"{role} is {rule!r}: compare a column of numbers with a number.") from None
    if isinstance(rule, pd.Series) and df.index.is_unique and set(rule.index) == set(df.index):
        rule = rule.reindex(df.index)
    mask = np.asarray(rule)
    if mask.dtype != bool or mask.shape != (len(df),):
        given = repr(rule) if isinstance(rule, str) else f"{mask.dtype} of shape {mask.shape}"
        told = f"give 'C < 1e18', {{column: values}}, or one true or false a row ({len(df)} rows)"
        raise UserError(f"{role} is {given}: {told}.")
    return mask


def choose(df: pd.DataFrame, rules: Any, role: str) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The rows (n,) that one rule or several choose, and how many each does; a UserError for one that chooses none."""
    gone, record = np.zeros(len(df), dtype=bool), []
    for rule in as_rules(rules):
        found, words = matches(df, rule, role), rule if isinstance(rule, str) else "a mask of rows"
        if isinstance(rule, Mapping):
            words = ", ".join(f"{name} in {values!r}" for name, values in rule.items())
        if not found.any():
            raise UserError(f"{role} {words!r} matches no row: check its values or drop it.")
        record.append({"rule": words, "rows": int(found.sum())})
        gone |= found
    return gone, record


def leave_out(df: pd.DataFrame, exclude: Any, holdout: Any) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """The rows that may be fitted, those held out, and the record of all others; a UserError where none may be fitted,
    where `held_out` is not true or false, or where df is no table."""
    if not isinstance(df, pd.DataFrame) or not len(df):
        raise UserError("The data must be a pandas DataFrame with at least one row.")
    excluded, record = choose(df, exclude, "exclude")
    held, tail = choose(df, holdout, "holdout")
    if HELD_OUT in df.columns:
        known = df[HELD_OUT].map(lambda v: not isinstance(v, str) and not pd.isna(v) and v in (0, 1))
        _refuse(df, ~known.to_numpy(dtype=bool), f"{HELD_OUT} is neither true nor false", "write true or false")
        frozen = df[HELD_OUT].to_numpy(dtype=bool)
        tail.append({"rule": f"{HELD_OUT} in [True]", "rows": int(frozen.sum())})
        held = held | frozen
    if (held | excluded).all():
        raise UserError(f"exclude and holdout leave none of the {len(df)} rows to fit.")
    return df.loc[~(held | excluded)], df.loc[held & ~excluded], {"rows": len(df), "exclude": record, "holdout": tail}


def number(text: Any) -> float:
    """A number as tables write them: 0.6B, 68.3% (a share), 600,000,000; NaN for an empty cell; else a ValueError."""
    if not isinstance(text, str):
        return float("nan") if text is None or text is pd.NA else float(text)
    if text.strip().lower() in ("", "nan", "na", "null", "none", "-"):
        return float("nan")
    found = WRITTEN.fullmatch(text.strip().upper())
    if not found or not any(c.isdigit() for c in found[1]):
        return float(text)
    return float(found[1].replace(",", "")) * UNITS[found[2]]


def numbers(df: pd.DataFrame, name: str, role: str) -> np.ndarray:
    """A column as float64; missing and infinite values are a UserError that names the rows."""
    series = column(df, name, role)
    try:
        if pd.api.types.is_numeric_dtype(series):
            values = series.to_numpy(dtype=float, na_value=np.nan)
        else:
            values = np.array([number(value) for value in series], dtype=float)
    except (TypeError, ValueError):
        raise UserError(f"{role} is column {name!r}, which is not numeric ({series.dtype}).") from None
    _refuse(df, ~np.isfinite(values), f"{role} (column {name!r}) is missing or infinite")
    return values


def build(
    kept: pd.DataFrame, law: Law, y: str, x: Mapping[str, str] | str | None, space: Space,
    record: dict[str, Any], options: dict[str, Any],
) -> Table:  # fmt: skip
    """The columns of the rows `kept`, checked; a UserError names column and rows. `record` is that of `leave_out`,
    options are weights, cluster and block of `rlkit.fit`, as the other arguments."""
    known = f"the law {law.name!r} has the columns {', '.join(law.columns)}"
    if isinstance(x, str) and len(law.columns) != 1:
        raise UserError(f"x is {x!r}, but {known}: give x as a mapping of each.")
    given = {law.columns[0]: x} if isinstance(x, str) else x or {}
    if foreign := [name for name in given if name not in law.columns]:
        raise UserError(f"x maps {foreign[0]!r}, and {known}: leave it out.")
    names = {name: given.get(name, name) for name in law.columns}
    values = numbers(kept, y, "y")
    columns = {c: numbers(kept, name, f"x[{c!r}]") for c, name in names.items()}
    _check(kept, values, columns, {**names, "y": y}, space, law)
    if len(values) <= len(law.free):
        told = f"the {len(law.free)} parameters of {law.name!r}: add data, or choose a law with fewer"
        raise UserError(f"{len(values)} rows cannot determine {told}.")
    record = record | {f"{c}s": kept[c].nunique() if c in kept else None for c in ("run", "seed")} | options
    if "cell" in kept:
        record["cells_together"] = int(kept.groupby(list(names.values()))["cell"].nunique().max())
    if "status" in kept and record["runs"] == len(kept):
        record["unfinished"] = int(kept["status"].isin(UNFINISHED).sum())
    weights, cluster, order = np.ones(len(kept)), None, None
    if (name := options["weights"]) is not None:
        weights = numbers(kept, name, "weights")
        _refuse(kept, ~(weights > 0), "weights are not positive")
    if (by := options["cluster"]) is not None:
        several = [by] if isinstance(by, str) else list(by)
        for name in several:
            absent = column(kept, name, "cluster").isna().to_numpy()
            _refuse(kept, absent, f"cluster (column {name!r}) is missing")
        cluster = kept.groupby(several, sort=True).ngroup().to_numpy()
        if cluster.max() == 0:
            raise UserError(f"cluster {by!r} has one value in the {len(kept)} rows: leave it out.")
    if (time := options["block"]) is not None:
        order = np.argsort(numbers(kept, time, "block"), kind="stable")
    return Table(columns, values, weights, {**names, "y": y}, kept.index.to_numpy(), record, cluster, order)


def _refuse(
    df: pd.DataFrame, bad: np.ndarray, what: str, remedy: str = "drop these rows or name them in exclude="
) -> None:
    if bad.any():
        labels = df.index[bad]
        shown = ", ".join(map(str, labels[:5])) + (", …" if len(labels) > 5 else "")
        raise UserError(f"{what} in {len(labels)} of {len(df)} rows ({shown}): {remedy}.")


def _check(
    df: pd.DataFrame, y: np.ndarray, columns: dict[str, np.ndarray], names: Mapping[str, str], space: Space, law: Law
) -> None:  # fmt: skip
    """Refuse y outside its space, columns without variation, values at which no parameters are finite, double rows."""
    what, remedy = f"y (column {names['y']!r})", "exclude= them, or fit with log=False"
    if space == "log":
        _refuse(df, y <= 0, f"{what} is zero or negative, which has no logarithm,", remedy)
    if space == "loglog":
        _refuse(df, (y <= 0) | (y >= 1), f"{what} is not strictly between 0 and 1", remedy)
    of_shares = law.returns in ("loglog", "logit") or any(law.limits(p) == SHARE for p in law.linear)
    if of_shares and y.max() > 1:
        told = f"but the law {law.name!r} takes shares of 0 to 1: divide percent by 100"
        raise UserError(f"{what} reaches {y.max():.4g}, {told}.")
    if np.ptp(y) == 0:
        raise UserError(f"{what} is {y[0]:g} in all {len(y)} rows: there is nothing to fit.")
    usual = {k: np.full(len(v), np.abs(v[v != 0]).mean() if v.any() else 1.0) for k, v in columns.items()}
    points = law.from_z(np.array([[0.0], [1.0], [-1.0]]) * np.ones(len(law.parameters)))[0]
    for c, values in columns.items():
        if np.ptp(values) == 0:
            raise UserError(f"{names[c]} is {values[0]:g} in all {len(values)} rows: it cannot be fitted.")
        finite = np.isfinite(law({**usual, c: values}, points)).all(axis=0)
        what = f"x[{c!r}] (column {names[c]!r}) is zero or negative, which has no logarithm,"
        _refuse(df, (values <= 0) & ~finite, what)
    if {"D", "U"} <= set(columns):
        over = columns["U"] > columns["D"] * (1 + 1e-9)
        _refuse(df, over, "U (unique data) exceeds D (data seen)", "U is at most D")
    objects = df.loc[:, df.dtypes == "object"].map(lambda v: isinstance(v, list | dict | np.ndarray))
    copies = df.drop(columns=objects.columns[objects.any()]).duplicated(keep=False).to_numpy()
    remedy = "drop the copies, or add the column (seed, run) that tells them apart"
    _refuse(df, copies, "The same row occurs more than once", remedy)
