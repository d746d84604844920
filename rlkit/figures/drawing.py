"""A figure with the table it drew and where that came from, written as PDF, SVG, PNG, CSV and JSON."""

import hashlib
import io
import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.figures.theme import styled
from rlkit.files import replacing, write_text
from rlkit.provenance import git_state
from rlkit.store import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from rlkit.laws import LawFit

# Dates and the like would make each file differ from the one before.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "%&#$_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
    }
)
_FACTS = (
    "study", "seed", "cell", "held_out", "model.path", "status", "commit", "dirty", "data_hash",
    "held_out_hash", "scorer", "scorer_version",
)  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """A figure, the table that it drew, its sources (see `sources`), and what its caption has to say."""

    figure: "Figure"
    table: "pd.DataFrame"
    sources: dict[str, Any] = field(default_factory=dict)
    caption: str = ""

    def save(self, path: str | Path) -> list[Path]:
        """Write <path>.pdf, .svg, .png, .csv (what was drawn) and .json (where it came from), each in one
        step; equal input gives equal bytes.

        Raises:
            UserError: the folder cannot be written.
        """
        path = Path(path)
        targets = [path.with_name(f"{path.name}.{kind}") for kind in (*_METADATA, "csv", "json")]
        *pictures, table, record = targets
        with styled():
            for target, (kind, metadata) in zip(pictures, _METADATA.items(), strict=True):
                with replacing(target) as temporary:
                    self.figure.savefig(temporary, format=kind, metadata=metadata)
        text = self.table.to_csv(index=False, lineterminator="\n")
        write_text(table, text)
        content = {
            "figure": path.name,
            "caption": self.caption,
            "width_in": float(self.figure.get_size_inches()[0]),
            "table": {"rows": len(self.table), "sha256": hashlib.sha256(text.encode()).hexdigest()},
            "drawn_with": {
                "rlkit": version("rlkit"),
                "matplotlib": version("matplotlib"),
                **git_state(),
            },
            **self.sources,
        }
        write_text(record, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")
        return targets

    def to_latex(self, file: str, wide: bool = False) -> str:
        """A figure environment with the caption and the label `fig:<name>`; needs graphicx.

        Args:
            file: the PDF, as the paper finds it.
            wide: over both columns.
        """
        environment = "figure*" if wide else "figure"
        return (
            f"\\begin{{{environment}}}\n\\centering\n\\includegraphics{{{file}}}\n"
            f"\\caption{{{self.caption.translate(_LATEX)}}}\n\\label{{fig:{Path(file).stem}}}\n\\end{{{environment}}}\n"
        )

    def png(self, dpi: int = 150) -> bytes:
        """The picture as a notebook shows it."""
        buffer = io.BytesIO()
        with styled():
            self.figure.savefig(buffer, format="png", dpi=dpi)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()


def sources(df: "pd.DataFrame | None" = None, fit: "LawFit | None" = None) -> dict[str, Any]:
    """Where numbers come from, as JSON values: for each run its seed, commit, hashes of its data and of its
    held-out tasks and its scorer's version, and for a law its estimates and what it was fitted to.

    Args:
        df: from `rlkit.read` or `rlkit.read_evals`, or a table of `rlkit.summary` (which remember theirs in
            `attrs`).
    """
    found: dict[str, Any] = {} if df is None else {"runs": _runs(df)}
    if fit is not None:
        record = json.loads(fit.to_json())
        wanted = ("law", "source", "params", "interval", "loss", "bootstrap", "n", "columns", "left_out")
        found["law"] = {key: record[key] for key in wanted if key in record}
    return found


def _runs(df: "pd.DataFrame") -> list[dict[str, Any]]:
    if "sources" in df.attrs:
        return df.attrs["sources"]
    if "run" not in df:
        return []
    facts = df[["run", *(name for name in _FACTS if name in df)]]
    rows = facts.drop_duplicates("run").sort_values("run").astype(object)
    return [plain(row[row.notna()].to_dict()) for _, row in rows.iterrows()]
