"""The main figure of a study: up to six lettered panels at text width, with one legend."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit.errors import UserError
from rlkit.figures import contrasts, laws, runs
from rlkit.figures.axes import LETTERED, legend_below
from rlkit.figures.catalogue import COMPUTE, figure
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import WIDTHS, looks, styled
from rlkit.measures import comparisons, learning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rlkit.figures.study import StudyData

LEAST, LETTERS = 3, "abcdef"
SMALL: Any = {"axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "lines.markersize": 3,
              "lines.linewidth": 1}  # fmt: skip


def _curves(x: str, metric: str = "eval/pass@1") -> "Callable[[StudyData, Axes], Drawing]":
    return lambda s, ax: runs.learning_curves(s.metrics, x, metric, by="cell", evals=s.evals, ax=ax)


def _law(study: "StudyData", ax: "Axes") -> Drawing:
    if len(study.fit.law.columns) > 1:
        raise UserError("A law of several columns has a figure of its own.")
    return laws.law(study.fit, study.points, by="cell", ax=ax)


def _efficiency(study: "StudyData", ax: "Axes") -> Drawing:
    need = learning.needed(study.metrics, "tokens/response", levels=5)
    return contrasts.against(need, "level", "tokens/response", by="cell", ax=ax)


PANELS: "dict[str, Callable[[StudyData, Axes], Drawing]]" = {
    "held-out pass@1 along training, with 95 % intervals over problems": _curves("step"),
    "the same against compute": _curves(COMPUTE),
    "the law with its 95 % prediction band; hollow and beyond: held out": _law,
    "response tokens to reach a level, hollow where not all runs do": _efficiency,
    "pass@k before (dashed) and after training": lambda s, ax: contrasts.pass_at_k_ends(
        comparisons.pass_at_k_ends(s.evals), ax=ax
    ),
    "score of the training samples": _curves("step", "critic/score/mean"),
    "entropy of the policy": _curves("step", "actor/entropy"),
}
"""What a panel shows, in the order of letters; the first six that the study has data for are drawn."""


@figure
def main(study: "StudyData", venue: str) -> Drawing:
    """What the study found, at text width."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width, drawn = WIDTHS.get(f"{venue}-text", WIDTHS[venue]), {}
    with styled(), matplotlib.rc_context(SMALL):
        fig = Figure(figsize=(width, 0.62 * width), label=LETTERED)
        axes = list(fig.subplots(2, 3).flat)
        for words, draw in PANELS.items():
            if len(drawn) < len(axes):
                ax = axes[len(drawn)]
                try:
                    drawn[words] = draw(study, ax)
                    ax.set_title(f"({LETTERS[len(drawn) - 1]})", loc="left", fontweight="bold")
                except UserError:
                    ax.clear()
        if len(drawn) < LEAST:
            raise UserError(f"The main figure needs data for {LEAST} panels, and the study has {len(drawn)}.")
        for ax in axes[len(drawn) :]:
            ax.remove()
        styles = looks(study.metrics, "cell")
        if len(styles) > 1:
            legend_below(fig, [Line2D([], [], **style) for style in styles.values()], list(map(str, styles)))
    words = ". ".join(f"({letter}) {text}" for letter, text in zip(LETTERS, drawn, strict=False))
    tables = [one.table.assign(panel=letter) for letter, one in zip(LETTERS, drawn.values(), strict=False)]
    found = {k: v for one in drawn.values() for k, v in one.sources.items()}
    return Drawing(fig, pd.concat(tables, ignore_index=True), found | sources(study.metrics), f"{words}.")
