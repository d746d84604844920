"""Tables of a DataFrame, values with their intervals: for a notebook, and as booktabs LaTeX for a paper."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlkit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

Ends = tuple[str, str]


def table(frame: "pd.DataFrame", *columns: str, digits: int = 3) -> "Styler":
    """A table as a notebook shows it: a value with its interval in one cell, `0.099 [0.081, 0.117]`, no index, numbers
    below 10 to `digits` decimals (columns of whole ones to none), missing ones a dash.

    Args:
        frame: low and high are the ends of the interval of the column left of them; low_x and high_x are of the same
            number and shown as a column `x`.
        columns: these only, in this order, without the ends; default all.
    """
    numbers = {c for c in frame if frame[c].dtype.kind in "iuf"}
    shown = frame.astype(object)
    for column in numbers:
        shown[column] = _words(frame[column], digits)
    order = [str(column) for column in frame]
    for low in [column for column in order if column.startswith("low")]:
        value = order[order.index("low") - 1]
        name, high = value if low == "low" else low.removeprefix("low_"), low.replace("low", "high", 1)
        values, known = _words(frame[value], digits), frame[low].notna()
        parts = zip(values, shown[low], shown[high], known, strict=True)
        shown[name] = [f"{v} [{a}, {b}]" if k else v if name == value else "–" for v, a, b, k in parts]
        numbers.add(name)
        columns += (name,) if columns and name not in columns else ()
    shown = shown[[c for c in columns or shown if not str(c).startswith(("low", "high"))]]
    style = shown.style.hide(axis="index").format(escape="html", na_rep="–")
    left: Any = {"text-align": "left", "white-space": "pre-wrap"}
    right: Any = {"text-align": "right"}
    return style.set_properties(**left).set_properties(subset=[c for c in shown if c in numbers], **right)


def _words(values: "pd.Series", digits: int) -> list[str]:
    """Numbers of one column, with as many decimals each as its size asks for."""
    known = values[np.isfinite(values.astype(float))]
    whole = bool((known == known.round()).all())

    def word(value: float) -> str:
        if not math.isfinite(value):
            return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
        decimals = 0 if whole else max(0, digits - max(0, math.floor(math.log10(abs(value) or 1))))
        if value and abs(value) < 10**-digits and not whole:
            return f"{value:.{digits - 1}e}"
        return f"{value:,.{decimals}f}"

    return [word(float(value)) for value in values]


def latex_table(
    table: "pd.DataFrame",
    intervals: Mapping[str, Ends] | None = None,
    *,
    digits: int = 3,
    caption: str | None = None,
    label: str | None = None,
    note: str = "",
) -> str:
    """A booktabs tabular, inside a table environment when there is a caption. Needs the package booktabs.

    Args:
        table: a column each; text is escaped, numbers have `digits` decimals (whole ones none), missing
            ones are a dash.
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
    hidden = {end for pair in ends.values() for end in pair}
    numbers = {c for c in table if c in ends or table[c].dtype.kind in "iuf"}
    shown = table.astype(object).drop(columns=list(hidden))
    for column in numbers - hidden:
        shown[column] = [_number(value, digits) for value in table[column]]
    for column, (low, high) in ends.items():
        pairs = zip(shown[column], table[low], table[high], strict=True)
        shown[column] = [v if v == "--" else f"{v} {_interval(a, b, digits)}" for v, a, b in pairs]
    texts = [c for c in shown if c not in numbers]
    style = shown.style.hide(axis="index").format_index(escape="latex", axis="columns")
    style = style.format(subset=texts, escape="latex", na_rep="--")
    text = style.to_latex(
        hrules=True,
        column_format="".join("r" if c in numbers else "l" for c in shown),
        caption=caption,
        label=label,
        position="t" if caption else None,
        position_float="centering" if caption else None,
    )
    if not note:
        return text
    line = rf"\multicolumn{{{len(shown.columns)}}}{{l}}{{\scriptsize {note}}} \\"
    return text.replace("\\end{tabular}", f"{line}\n\\end{{tabular}}")


def _interval(low: float, high: float, digits: int) -> str:
    return rf"{{\scriptsize [{_number(low, digits)}, {_number(high, digits)}]}}"


def _number(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "--" if math.isnan(value) else r"$\infty$" if value > 0 else r"$-\infty$"
    if float(value).is_integer() and abs(value) >= 1:
        text = f"{int(value):,}".replace(",", r"\,")
    else:
        text = f"{value:.{digits}f}" if abs(value) >= 10**-digits or not value else f"{value:.{digits - 1}e}"
    return f"${text}$" if text.startswith("-") else text
