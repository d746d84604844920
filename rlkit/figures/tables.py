"""Tables of a DataFrame, values with their intervals: for a notebook, and as booktabs LaTeX for a paper."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlkit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


def table(frame: "pd.DataFrame", *columns: str) -> "Styler":
    """A table as a notebook shows it: a value with its interval in one cell, `0.099 [0.081, 0.117]`, no index, numbers
    below 10 to three decimals (columns of whole ones to none), missing ones a dash.

    Args:
        frame: low and high are the ends of the interval of the column left of them; low_x and high_x are of the same
            number and shown as a column `x`.
        columns: these only, in this order, without the ends; default all.
    """
    order, intervals = [str(column) for column in frame], {}
    for low in [column for column in order if column.startswith("low")]:
        value = order[order.index("low") - 1]
        name = value if low == "low" else low.removeprefix("low_")
        if name != value:  # the same number, where it has such an interval
            frame = frame.assign(**{name: frame[value].where(frame[low].notna())})
        intervals[name] = (low, low.replace("low", "high", 1))
        columns += (name,) if columns and name not in columns else ()
    shown, numbers = _in_words(frame, intervals)
    shown = shown[[c for c in columns or shown]]
    style = shown.style.hide(axis="index").format(escape="html", na_rep="–")
    left: Any = {"text-align": "left", "white-space": "pre-wrap"}
    right: Any = {"text-align": "right"}
    return style.set_properties(**left).set_properties(subset=[c for c in shown if c in numbers], **right)


def latex_table(
    table: "pd.DataFrame", intervals: Mapping[str, tuple[str, str]] | None = None, note: str = ""
) -> str:
    """A booktabs tabular. Needs the package booktabs.

    Args:
        table: a column each; text is escaped, numbers are as in `rlkit.figures.table`, missing ones a dash.
        intervals: for a column the columns with the ends of its interval, which is set behind the value in
            small type instead of in columns of its own.
        note: LaTeX under the table, in small type.

    Raises:
        UserError: an interval names a column that the table lacks.
    """
    ends = dict(intervals or {})
    for column in (*ends, *(end for pair in ends.values() for end in pair)):
        if column not in table:
            raise UserError(
                f"intervals names {column!r}, which is no column: the table has {', '.join(map(str, table))}."
            )
    shown, numbers = _in_words(table, ends, latex=True)
    style = shown.style.hide(axis="index").format_index(escape="latex", axis="columns")
    style = style.format(subset=[c for c in shown if c not in numbers], escape="latex", na_rep="--")
    sides = "".join("r" if c in numbers else "l" for c in shown)
    text = style.to_latex(hrules=True, column_format=sides)
    if not note:
        return text
    line = rf"\multicolumn{{{len(shown.columns)}}}{{l}}{{\scriptsize {note}}} \\"
    return text.replace("\\end{tabular}", f"{line}\n\\end{{tabular}}")


def _in_words(
    frame: "pd.DataFrame", intervals: Mapping[str, tuple[str, str]], latex: bool = False
) -> "tuple[pd.DataFrame, set[Any]]":
    """The table with its numbers in words and intervals behind their values, and which columns had numbers."""
    numbers = {c for c in frame if c in intervals or frame[c].dtype.kind in "iuf"}
    shown = frame.astype(object)
    for column in numbers:
        shown[column] = _words(frame[column], latex)
    for column, (low, high) in intervals.items():
        values = zip(shown[column], *(_words(frame[end], latex) for end in (low, high)), strict=True)
        known = frame[column].notna() & (frame[low].notna() | frame[high].notna())
        form = r"{0} {{\scriptsize [{1}, {2}]}}" if latex else "{0} [{1}, {2}]"
        shown[column] = [form.format(*v) if k else v[0] for v, k in zip(values, known, strict=True)]
    hidden = {end for pair in intervals.values() for end in pair}
    return shown.drop(columns=list(hidden)), numbers - hidden


def _words(values: "pd.Series", latex: bool) -> list[str]:
    """Numbers of one column, with as many decimals each as its size asks for."""
    values = values.astype(float)
    known = values[np.isfinite(values)]
    whole = bool((known == known.round()).all())
    dash, infinite, space = ("--", r"$\infty$", r"\,") if latex else ("–", "∞", ",")

    def word(value: float) -> str:
        size = abs(value)
        if math.isnan(value):
            return dash
        if math.isinf(value):
            text = infinite
        elif 0 < size < 0.001 and not whole:
            text = f"{size:.2e}"
        else:
            decimals = 0 if whole else max(0, 3 - max(0, math.floor(math.log10(size or 1))))
            text = f"{size:,.{decimals}f}".replace(",", space)
        if value >= 0:
            return text
        return f"${'-' + text.strip('$')}$" if latex else f"-{text}"

    return [word(value) for value in values]
