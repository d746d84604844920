"""A figure with the table it drew and where that came from, written as PDF, SVG, PNG, CSV and JSON; tables as LaTeX."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from rlkit.errors import UserError
from rlkit.figures.labels_and_looks import LABELS, styled
from rlkit.files import replacing, write_text
from rlkit.laws import LawFit
from rlkit.laws.report import escaped, findings
from rlkit.measures.summary import held_out_error, outside, runs_behind
from rlkit.results.machine import git_state
from rlkit.results.store import plain

_METADATA: dict[str, dict[str, Any]] = {  # without dates: equal input gives equal bytes
    "pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None},
}  # fmt: skip
_OF_LAW = ("law", "source", "params", "interval", "loss", "bootstrap", "n", "columns", "left_out", "warnings")


@dataclass(frozen=True)
class Drawing:
    """A figure, the table that it drew, its sources (see `sources`), and what its caption has to say."""

    figure: Figure
    table: pd.DataFrame
    sources: dict[str, Any] = field(default_factory=dict)
    caption: str = ""

    def save(self, path: str | Path) -> list[Path]:
        """Write <path>.pdf, .svg, .png, .csv (what was drawn) and .json (where it came from), each in one step; equal
        input gives equal bytes. A UserError where the folder cannot be written."""
        path = Path(path)
        files = {kind: path.with_name(f"{path.name}.{kind}") for kind in (*_METADATA, "csv", "json")}
        for kind, metadata in _METADATA.items():
            with styled(), replacing(files[kind]) as temporary:
                self.figure.savefig(temporary, format=kind, metadata=metadata)
        write_text(files["csv"], self.table.to_csv(index=False, lineterminator="\n"))
        content = {
            "figure": path.name,
            "caption": self.caption,
            "width_in": float(self.figure.get_size_inches()[0]),
            "drawn_with": {"rlkit": version("rlkit"), "matplotlib": version("matplotlib"), **git_state()},
            **self.sources,
        }
        write_text(files["json"], json.dumps(plain(content), indent=1, allow_nan=False) + "\n")
        return list(files.values())

    def to_latex(self, file: str, wide: bool = False) -> str:
        """A figure environment (`wide`: over both columns) of a PDF as the paper finds it, with the caption and the
        label `fig:<name>`; needs graphicx."""
        environment = "figure*" if wide else "figure"
        return (
            f"\\begin{{{environment}}}\n\\centering\n\\includegraphics{{{file}}}\n"
            f"\\caption{{{escaped(self.caption)}}}\n\\label{{fig:{Path(file).stem}}}\n\\end{{{environment}}}\n"
        )

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with styled():
            self.figure.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()


def sources(df: pd.DataFrame | None = None, fit: LawFit | dict[Any, LawFit] | None = None) -> dict[str, Any]:
    """Where numbers come from, as JSON values: of the runs behind `df` (from `rlkit.read` or `rlkit.read_evals`, or a
    table of `rlkit.measures`) `runs_behind`, and for a law (or several by name) its estimates, what it was fitted to,
    its warnings and, where the rows are runs, what it predicted for the cells that were held out."""
    found: dict[str, Any] = {} if df is None else {"runs": runs_behind(df)}
    if fit is None:
        return found
    fits = fit if isinstance(fit, dict) else {"": fit}
    records = {str(name): json.loads(one.to_json()) for name, one in fits.items()}
    laws = {name: {k: record[k] for k in _OF_LAW if k in record} for name, record in records.items()}
    found["law"] = laws if len(laws) > 1 else next(iter(laws.values()))
    if df is not None and {"run", "cell", "held_out"} <= set(df) and df["run"].is_unique and "" in fits:
        found["law"]["held_out"] = plain(held_out_error(fits[""], df).to_dict("records"))
    return found


def cautions(sources: Mapping[str, Any]) -> str:
    """What a reader of a figure with a law must not miss, in short: held-out cells outside their interval, and what the
    law's warnings have found (of several, which of them)."""
    laws = sources.get("law") or {}
    several = laws if "law" not in laws else {"": laws}
    found: dict[str, list[str]] = {}
    for name, law in several.items():
        for text in (*outside(law.get("held_out", ())), *findings(law["warnings"], LABELS)):
            text = text if len(several) == 1 else f"{text.partition(' (')[0].rstrip('.')}."
            found.setdefault(text, []).append(name)
    of = {text: "" if len(n) == len(several) else f" ({'; '.join(n)})" for text, n in found.items()}
    return " ".join(["Caution:", *(f"{text[:-1]}{which}." for text, which in of.items())]) if of else ""


def table(frame: pd.DataFrame, *columns: str) -> Styler:
    """A table as a notebook shows it: a value with its interval in one cell, `0.099 [0.081, 0.117]`, no index, numbers
    below 10 to three decimals (columns of whole ones to none), missing ones a dash. In `frame`, low and high are the
    ends of the interval of the column left of them; low_x and high_x are of the same number and shown as a column `x`.
    `columns`: these only, in this order, without the ends."""
    frame = frame.reset_index(drop=True)
    order, intervals = [str(column) for column in frame], {}
    for low in [column for column in order if column == "low" or column.startswith("low_")]:
        value = order[order.index("low") - 1]
        name = value if low == "low" else low.removeprefix("low_")
        if name != value:  # the same number, where it has such an interval
            frame = frame.assign(**{name: frame[value].where(frame[low].notna())})
        intervals[name] = (low, low.replace("low", "high", 1))
        columns += (name,) if columns and name not in columns else ()
    shown, numbers = _in_words(frame, intervals, columns)
    style = shown.style.hide(axis="index").format(escape="html", na_rep="–")
    left: Any = {"text-align": "left", "white-space": "pre-wrap"}
    right: Any = {"text-align": "right"}
    return style.set_properties(**left).set_properties(subset=numbers, **right)


def latex_table(
    table: pd.DataFrame,
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
            known = ", ".join(map(str, table))
            raise UserError(f"intervals names {column!r}, which is no column: the table has {known}.")
    shown, numbers = _in_words(table, ends, columns, latex=True)
    style = shown.style.hide(axis="index").format_index(escape="latex", axis="columns")
    style.format(subset=[c for c in shown if c not in numbers], escape="latex", na_rep="--")
    text = style.to_latex(hrules=True, column_format="".join("r" if c in numbers else "l" for c in shown))
    if not note:
        return text
    line = rf"\multicolumn{{{len(shown.columns)}}}{{l}}{{\scriptsize {note}}} \\"
    return text.replace("\\end{tabular}", f"{line}\n\\end{{tabular}}")


def _in_words(
    frame: pd.DataFrame, intervals: Mapping[str, tuple[str, str]], columns: Sequence[str], latex: bool = False
) -> tuple[pd.DataFrame, list[Any]]:
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


def _words(values: pd.Series, latex: bool) -> list[str]:
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
