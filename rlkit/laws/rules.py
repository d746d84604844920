"""Rules that choose rows, in words that can stand in a YAML file and beside a fit: nothing is evaluated.

"C < 1.5e3"            a comparison: < <= > >= == !=
"5 highest loss"       or "5 lowest loss"
"missing loss"         rows in which the column has no value
{"model": ["7B"]}      rows whose column has one of the values
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError, did_you_mean

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


def column(df: pd.DataFrame, name: str, role: str) -> pd.Series:
    """df[name]; a UserError with the nearest names where there is none."""
    if name not in df.columns:
        known = ", ".join(map(str, df.columns[:12]))
        raise UserError(
            f"{role} is {name!r}, but there is no such "
            f"column.{did_you_mean(name, map(str, df.columns))} Columns: {known}."
        )
    return df[name]


def split(rule: Any) -> list[Any]:
    """One rule or several, as a list."""
    if rule is None:
        return []
    if isinstance(rule, (list, tuple)) and not (len(rule) and isinstance(rule[0], (bool, np.bool_))):
        return list(rule)
    return [rule]


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
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.ravel()):
        mask = mask.astype(bool)
    if mask.dtype != bool or mask.shape != (len(df),):
        raise UserError(
            f"{role} must give one true or false a row ({len(df)} rows), not {mask.dtype} of shape "
            f"{mask.shape}."
        )
    return mask


def describe(rule: Any) -> str:
    """The rule as text, for the record of a fit."""
    if isinstance(rule, str):
        return rule
    if isinstance(rule, Mapping):
        return ", ".join(f"{name} in {values!r}" for name, values in rule.items())
    return getattr(rule, "__name__", "a mask of rows")


def _read(df: pd.DataFrame, rule: str, role: str) -> np.ndarray:
    ranked = re.fullmatch(r"\s*(\d+)\s+(highest|lowest)\s+(.+?)\s*", rule)
    if ranked:
        values = column(df, ranked[3], role).to_numpy(dtype=float)
        order = np.argsort(-values if ranked[2] == "highest" else values, kind="stable")
        found = np.zeros(len(df), dtype=bool)
        found[order[: int(ranked[1])]] = True
        return found
    if absent := re.fullmatch(r"\s*missing\s+(.+?)\s*", rule):
        return column(df, absent[1], role).isna().to_numpy()
    compared = re.fullmatch(r"\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*", rule)
    if not compared:
        raise UserError(f"{role} is {rule!r}: write a comparison such as 'C < 1e18', or '5 highest loss'.")
    values, text = column(df, compared[1], role), compared[3].strip("'\"")
    if pd.api.types.is_bool_dtype(values):
        if text.lower() not in ("true", "false") or compared[2] not in ("==", "!="):
            raise UserError(
                f"{role} is {rule!r}, but column {compared[1]!r} is true or false: compare it with == true."
            )
        return COMPARISONS[compared[2]](values.to_numpy(), text.lower() == "true")
    if pd.api.types.is_numeric_dtype(values):
        try:
            return COMPARISONS[compared[2]](values.to_numpy(), float(text))
        except ValueError:
            raise UserError(
                f"{role} is {rule!r}, but {text!r} is not a number and column {compared[1]!r} is numeric."
            ) from None
    return COMPARISONS[compared[2]](values.astype(str).to_numpy(), text)
