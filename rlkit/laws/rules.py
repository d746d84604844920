"""Rules that choose rows, in words that can stand in a YAML file and beside a fit: nothing is evaluated.

"C < 1.5e3"            a comparison: < <= > >= == !=
"5 highest loss"       or "5 lowest loss"
"missing loss"         rows in which the column has no value
{"model": ["7B"]}      rows whose column has one of the values
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError, did_you_mean

HELD_OUT = "held_out"  # a study's column; rows in which it is true are never fitted
COMPARISONS = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt
}  # fmt: skip


def column(df: pd.DataFrame, name: str, role: str) -> pd.Series:
    """df[name]; a UserError with the nearest names where there is none, or where several have that name."""
    if name not in df.columns:
        near, known = did_you_mean(name, map(str, df.columns)), ", ".join(map(str, df.columns[:12]))
        raise UserError(f"{role} is {name!r}, but there is no such column.{near} Columns: {known}.")
    if not isinstance(df[name], pd.Series):
        raise UserError(f"{role} is column {name!r}, of which the table has several: rename all but one.")
    return df[name]


def as_rules(chosen: Any) -> list[Any]:
    """One rule or several as a list, without the one for the column `held_out`, which holds always."""
    if chosen is None:
        return []
    several = isinstance(chosen, list | tuple) and not (chosen and isinstance(chosen[0], bool | np.bool_))
    rules = list(chosen) if several else [chosen]
    return [rule for rule in rules if not (isinstance(rule, dict) and rule == {HELD_OUT: [True]})]


def describe(rule: Any) -> str:
    """The rule as text, for the record of a fit."""
    if isinstance(rule, str):
        return rule
    if isinstance(rule, Mapping):
        return ", ".join(f"{name} in {values!r}" for name, values in rule.items())
    return getattr(rule, "__name__", "a mask of rows")


def matches(df: pd.DataFrame, rule: Any, role: str) -> np.ndarray:
    """(n,) bool: the rows that one rule chooses.

    Besides the forms above: a boolean mask as long as df (a Series is aligned by its index), or a function of df that
    returns one.

    Raises:
        UserError: a column that is not there, a rule that cannot be read, a mask of another length.
    """
    if isinstance(rule, str):
        return _read(df, rule, role)
    if isinstance(rule, Mapping):
        found = np.ones(len(df), dtype=bool)
        for name, values in rule.items():
            many = isinstance(values, Iterable) and not isinstance(values, str | bytes)
            found &= column(df, name, role).isin(list(values) if many else [values]).to_numpy()
        return found
    mask: Any = rule(df) if callable(rule) else rule
    if isinstance(mask, pd.Series) and df.index.is_unique and set(mask.index) == set(df.index):
        mask = mask.reindex(df.index)
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (len(df),):
        told = f"not {mask.dtype} of shape {mask.shape}"
        raise UserError(f"{role} must give one true or false a row ({len(df)} rows), {told}.")
    return mask


def _read(df: pd.DataFrame, rule: str, role: str) -> np.ndarray:
    if ranked := re.fullmatch(r"\s*(\d+)\s+(highest|lowest)\s+(.+?)\s*", rule):
        values = column(df, ranked[3], role).to_numpy(dtype=float)
        order = np.argsort(-values if ranked[2] == "highest" else values, kind="stable")
        return np.isin(np.arange(len(df)), order[: int(ranked[1])])
    if absent := re.fullmatch(r"\s*missing\s+(.+?)\s*", rule):
        return column(df, absent[1], role).isna().to_numpy()
    compared = re.fullmatch(r"\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*", rule)
    if not compared:
        raise UserError(f"{role} is {rule!r}: write a comparison such as 'C < 1e18', or '5 highest loss'.")
    values, sign, text = column(df, compared[1], role), compared[2], compared[3].strip("'\"")
    value: Any = text
    if pd.api.types.is_bool_dtype(values):
        if text.lower() not in ("true", "false") or sign not in ("==", "!="):
            told = f"but column {compared[1]!r} is true or false: compare it with == true"
            raise UserError(f"{role} is {rule!r}, {told}.")
        value = text.lower() == "true"
    elif pd.api.types.is_numeric_dtype(values):
        try:
            value = float(text)
        except ValueError:
            told = f"but {text!r} is not a number and column {compared[1]!r} is numeric"
            raise UserError(f"{role} is {rule!r}, {told}.") from None
    else:
        values = values.astype(str)
    return COMPARISONS[sign](values.to_numpy(), value)
