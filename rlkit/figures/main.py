"""The main figure of a study: up to six lettered panels at text width, with one legend."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit.errors import UserError
from rlkit.figures import contrasts, laws, runs
from rlkit.figures.axes import LETTERED, legend_below
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import WIDTHS, looks, styled
from rlkit.measures import comparisons, learning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rlkit.figures.study import StudyData

LEAST, MOST = 3, 6  # panels
SMALL: Any = {
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.markersize": 3,
    "lines.linewidth": 1,
}


def _curves(x: str, metric: str = "eval/pass@1") -> "Callable[[StudyData, Axes], Drawing]":
    return lambda s, ax: runs.learning_curves(s.metrics, x, metric, by="cell", evals=s.evals, ax=ax)


def _law(study: "StudyData", ax: "Axes") -> Drawing:
    if len(study.fit.law.columns) > 1:
        raise UserError("A law of several columns has a figure of its own.")
    found = laws.law(study.fit, study.points, by="cell", ax=ax)
    return replace(
        found,
        caption=f"{study.fit.law.name.replace('_', ' ')}: {', '.join(laws.estimates(study.fit, plain=True))}",
    )


def _efficiency(study: "StudyData", ax: "Axes") -> Drawing:
    need = learning.needed(study.metrics, "tokens/response", levels=5)
    return contrasts.against(need, "level", "tokens/response", by="cell", ax=ax)


PANELS: "dict[str, Callable[[StudyData, Axes], Drawing]]" = {
    "held-out pass@1 along training, with 95 % intervals over problems": _curves("step"),
    "the same against compute": _curves("compute/total_flops"),
    "the law with its 95 % prediction band; hollow and beyond: held out": _law,
    "response tokens to reach a level, hollow where not all runs do": _efficiency,
    "pass@k before (dashed) and after training": lambda s, ax: contrasts.pass_at_k_ends(
        comparisons.pass_at_k_ends(s.evals), ax=ax
    ),
    "score of the training samples": _curves("step", "critic/score/mean"),
    "entropy of the policy": _curves("step", "actor/entropy"),
}
"""What a panel shows, in the order of letters; the first six that the study has data for are drawn."""


def main(study: "StudyData", venue: str = "neurips") -> Drawing:
    """The panels that a study has data for, at the venue's text width.

    Raises:
        UserError: the study has data for fewer than three.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width = WIDTHS.get(f"{venue}-text", WIDTHS[venue])
    drawn: list[tuple[str, Drawing]] = []
    with styled(), matplotlib.rc_context(SMALL):
        fig = Figure(figsize=(width, 0.62 * width), label=LETTERED)
        axes = list(fig.subplots(2, 3).flat)
        for words, draw in PANELS.items():
            if len(drawn) == MOST:
                break
            ax = axes[len(drawn)]
            try:
                drawn.append((words, draw(study, ax)))
            except UserError:
                ax.clear()
                continue
            ax.set_title(f"({'abcdef'[len(drawn) - 1]})", loc="left", fontweight="bold")
        if len(drawn) < LEAST:
            raise UserError(f"The main figure needs data for {LEAST} panels, and the study has {len(drawn)}.")
        for ax in axes[len(drawn) :]:
            ax.remove()
        styles = looks(study.metrics, "cell")
        if len(styles) > 1:
            legend_below(fig, [Line2D([], [], **style) for style in styles.values()], list(map(str, styles)))
    words = ". ".join(
        f"({'abcdef'[i]}) {text}{f' ({one.caption})' if one.caption else ''}"
        for i, (text, one) in enumerate(drawn)
    )
    tables = [one.table.assign(panel="abcdef"[i]) for i, (_, one) in enumerate(drawn)]
    found = {k: v for _, one in drawn for k, v in one.sources.items()}
    return Drawing(fig, pd.concat(tables, ignore_index=True), found | sources(study.metrics), f"{words}.")
