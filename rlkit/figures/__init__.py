"""Figures for papers: one look, every figure with the table it drew and where that came from.

The functions read what `rlkit.read`, `rlkit.read_evals` and `rlkit.fit` return and give a `Drawing`, which a
notebook shows and `save` writes, the same bytes for the same input. Figures of an analysis are in
`rlkit.figures.laws`, all figures of a study in `rlkit.figures.study`.
"""

from rlkit.figures.axes import label_axes, legend, new_axes
from rlkit.figures.contrasts import before_after
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.laws import law
from rlkit.figures.runs import learning_curves, metric_panels
from rlkit.figures.tables import latex_table, table
from rlkit.figures.theme import LABELS, WIDTHS, look, looks, short, styled, theme
from rlkit.measures.tables import curve_table

__all__ = [
    "LABELS", "WIDTHS", "Drawing", "before_after", "curve_table", "label_axes", "latex_table", "law",
    "learning_curves", "legend", "look", "looks", "metric_panels", "new_axes", "short", "sources",
    "styled", "table", "theme",
]  # fmt: skip
