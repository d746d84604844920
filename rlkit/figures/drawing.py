"""A figure with the table it drew and where that came from, written as PDF, SVG, PNG, CSV and JSON."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from rlkit.figures.paper import LABELS, styled
from rlkit.files import replacing, write_text
from rlkit.laws import LawFit
from rlkit.laws.report import escaped, findings
from rlkit.measures.summary import held_out_error, outside
from rlkit.measures.tables import runs_behind
from rlkit.results.provenance import git_state
from rlkit.results.store import plain

# Dates and the like would make each file differ from the one before.
_METADATA: dict[str, dict[str, Any]] = {
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


def sources(
    df: pd.DataFrame | None = None, fit: LawFit | Mapping[Any, LawFit] | None = None
) -> dict[str, Any]:
    """Where numbers come from, as JSON values: of the runs behind `df` (from `rlkit.read` or `rlkit.read_evals`, or a
    table of `rlkit.measures`) `runs_behind`, and for a law (or several by name) its estimates, what it was fitted to,
    its warnings and, where the rows are runs, what it predicted for the cells that were held out."""
    found: dict[str, Any] = {} if df is None else {"runs": runs_behind(df)}
    if fit is None:
        return found
    fits = fit if isinstance(fit, Mapping) else {"": fit}
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
