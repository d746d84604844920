"""Tables of a DataFrame, values with their intervals: for a notebook, and as booktabs LaTeX for a paper."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlkit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


def table(frame: "pd.DataFrame", *columns: str) -> "Styler":
    """A table as a notebook shows it: a value with its interval in one cell, `0.099 [0.081, 0.117]`, no index, numbers
    below 10 to three decimals (columns of whole ones to none), missing ones a dash. In `frame`, low and high are the
    ends of the interval of the column left of them; low_x and high_x are of the same number and shown as a column `x`.
    `columns`: these only, in this order, without the ends."""
    order, intervals = [str(column) for column in frame], {}
    for low in [column for column in order if column.startswith("low")]:
        value = order[order.index("low") - 1]
        name = value if low == "low" else low.removeprefix("low_")
        if name != value:  # the same number, where it has such an interval
            frame = frame.assign(**{name: frame[value].where(frame[low].notna())})
        intervals[name] = (low, low.replace("low", "high", 1))
        columns += (name,) if columns and name not in columns else ()
    shown, numbers = _in_words(frame, intervals, columns)
    style = shown.style.hide(axis="index").format(escape="html", na_rep="–")
    style.set_properties(**{"text-align": "left", "white-space": "pre-wrap"})
    return style.set_properties(subset=numbers, **{"text-align": "right"})


def latex_table(
    table: "pd.DataFrame",
    intervals: Mapping[str, tuple[str, str]] | None = None,
    note: str = "",
    columns: Sequence[str] = (),
) -> str:
    """A booktabs tabular; text is escaped, numbers are as in `rlkit.figures.table`. A UserError where an interval names
    a column that the table lacks.

    Args:
        intervals: for a column those with the ends of its interval, which is set behind the value in small type.
        note: LaTeX under the table, in small type. columns: these only, in this order, without the ends.
    """
    ends = dict(intervals or {})
    for column in (*ends, *(end for pair in ends.values() for end in pair)):
        if column not in table:
            raise UserError(
                f"intervals names {column!r}, which is no column: the table has {', '.join(map(str, table))}."
            )
    shown, numbers = _in_words(table, ends, columns, latex=True)
    style = shown.style.hide(axis="index").format_index(escape="latex", axis="columns")
    style.format(subset=[c for c in shown if c not in numbers], escape="latex", na_rep="--")
    text = style.to_latex(hrules=True, column_format="".join("r" if c in numbers else "l" for c in shown))
    if not note:
        return text
    line = rf"\multicolumn{{{len(shown.columns)}}}{{l}}{{\scriptsize {note}}} \\"
    return text.replace("\\end{tabular}", f"{line}\n\\end{{tabular}}")


def _in_words(
    frame: "pd.DataFrame",
    intervals: Mapping[str, tuple[str, str]],
    columns: Sequence[str],
    latex: bool = False,
) -> "tuple[pd.DataFrame, list[Any]]":
    """The table with its numbers in words and intervals behind their values, and which columns had numbers."""
    ends = [end for pair in intervals.values() for end in pair]
    numbers = {*intervals, *ends, *(c for c in frame if frame[c].dtype.kind in "iuf")}
    shown = frame.astype(object).assign(**{str(c): _words(frame[c], latex) for c in numbers})
    form = r"{} {{\scriptsize [{}, {}]}}" if latex else "{} [{}, {}]"
    for column, pair in intervals.items():
        known = frame[column].notna() & frame[list(pair)].notna().any(axis=1)
        cells = zip(shown[[column, *pair]].to_numpy(), known, strict=True)
        shown[column] = [form.format(*cell) if is_known else cell[0] for cell, is_known in cells]
    chosen = list(columns) or [c for c in shown if c not in ends]
    return shown[chosen], [c for c in chosen if c in numbers]


def _words(values: "pd.Series", latex: bool) -> list[str]:
    """Numbers of one column, with as many decimals each as its size asks for."""
    values = values.astype(float)
    known = values[np.isfinite(values)]
    whole = bool((known == known.round()).all())

    def word(value: float) -> str:
        decimals = 0 if whole else max(0, 3 - int(math.log10(max(1.0, min(abs(value), 1e9)))))
        text = f"{value:.2e}" if 0 < abs(value) < 0.001 and not whole else f"{value:z,.{decimals}f}"
        text = text.replace("nan", "–").replace("inf", "∞")
        if not latex:
            return text
        text = text.replace(",", r"\,").replace("–", "--").replace("∞", r"\infty")
        return f"${text}$" if value < 0 or math.isinf(value) else text

    return [word(value) for value in values]
