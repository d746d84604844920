"""Figures for papers: one look, every figure with the table it drew and where that came from.

In: what `rlkit.read`, `rlkit.read_evals` and `rlkit.fit` return. Out: a `Drawing`, which a notebook shows and `save`
writes, the same bytes for the same input. All figures of a study are in catalogue.py, the look in labels_and_looks.py.
"""

from rlkit.figures.drawing import Drawing, latex_table, sources, table
from rlkit.figures.labels_and_looks import LABELS, WIDTHS, label_axes, look, looks, new_axes, short, styled, theme
from rlkit.figures.laws import law
from rlkit.figures.runs import before_after, learning_curves, metric_panels
from rlkit.measures.summary import curve_table

__all__ = [
    "LABELS", "WIDTHS", "Drawing", "before_after", "curve_table", "label_axes", "latex_table", "law",
    "learning_curves", "look", "looks", "metric_panels", "new_axes", "short", "sources", "styled", "table", "theme",
]  # fmt: skip
