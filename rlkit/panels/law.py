"""The law explorer: a fitted law whose parameters can be moved, beside its data, and the optimum of a budget."""

import html
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.panels.controls import slider
from rlkit.panels.watching import button, show

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.figures import Drawing
    from rlkit.laws import LawFit

_WIDE = {"style": {"description_width": "8em"}, "layout": {"width": "32em"}, "continuous_update": False}


def law_explorer(source: "LawFit | str | Path", points: "pd.DataFrame | None" = None) -> "Explorer":
    """A law explorer for a notebook. Raises UserError where the study has no law.

    Args:
        source: a fit from `rlkit.fit`, or outputs/<study>, whose analysis fitted a law.
        points: rows to draw, held-out ones among them; default: those of the study, or those fitted.
    """
    if not isinstance(source, str | Path):
        return Explorer(source, points)
    from rlkit.figures.study import StudyData

    study = StudyData(Path(source))
    return Explorer(study.fit, study.points if points is None else points)


class Explorer:
    """Sliders (one for each free parameter of the `fit`, and of a law of model size and data one for the `budget` in
    FLOPs) above a sentence and a picture, for the parameters `values`. Shown by a notebook as the value of a cell."""

    def __init__(self, fit: "LawFit", points: "pd.DataFrame | None" = None) -> None:
        import ipywidgets as w
        from IPython.display import DisplayHandle

        self.fit, self.points, self.values = fit, points, dict(fit.params)
        self.sliders = {name: self._slider(name) for name in fit.law.free}
        columns = fit.table.columns
        self._data = next((c for c in ("D", "X", "E") if c in columns and "N" in columns), "")
        self.budget: Any = None
        if self._data:
            flops = 6 * columns["N"] * columns[self._data]
            look = {"description": "budget, FLOPs", "readout_format": ".2e", **_WIDE}
            self.budget = slider(10 * flops.max(), flops.min(), 1000 * flops.max(), 0.05, log=True, **look)
            self.budget.observe(lambda _: self.refresh(), "value")
        self.reset = button("Back to the fit", "undo", self._reset)
        self.text, self._shown, self._picture = w.HTML(), DisplayHandle(), DisplayHandle()
        moved = [*self.sliders.values(), *([self.budget] if self._data else [])]
        self.box = w.VBox([*moved, self.reset, self.text])

    def _slider(self, name: str) -> Any:
        """From a third to three times a positive estimate, within the parameter's bounds."""
        value, (low, high) = self.fit.params[name], self.fit.law.limits(name)
        look = {"description": name, "readout_format": ".4g", **_WIDE}
        near = (value / 3, 3 * value, 0.01) if value > 0 else (value - 1, value + 1, 0.02)
        made = slider(value, max(low, near[0]), min(high, near[1]), near[2], log=value > 0, **look)
        made.observe(lambda event: self._moved(name, event["new"]), "value")
        return made

    def _moved(self, name: str, value: float) -> None:
        fitted = self.fit.params[name]
        value = fitted if math.isclose(value, fitted, rel_tol=1e-9) else value  # a browser rounds
        if value != self.values[name]:
            self.values[name] = value
            self.refresh()

    def _reset(self) -> None:
        self.values = dict(self.fit.params)
        for name, moved in self.sliders.items():
            moved.value = self.values[name]
        self.refresh()

    @property
    def tried(self) -> "LawFit":
        """The law at the tried parameters, without intervals."""
        import numpy as np

        z = self.fit.law.to_z(np.array([[self.values[p] for p in self.fit.law.parameters]]))[0]
        return replace(self.fit, z=z, count=0, given=None, at_bound={})

    def optimum(self, budget: float) -> dict[str, Any]:
        """The best N and data for a budget in FLOPs (6 a parameter and token), at the tried parameters; with
        intervals while those are the fit's. Raises UserError for another law."""
        from rlkit.laws import allocate

        same = self.values == self.fit.params
        found = allocate(self.fit, budget) if same else allocate(self.fit.law, budget, params=self.values)
        return {str(key): value for key, value in found.iloc[0].items()}

    def drawing(self) -> "Drawing":
        """`rlkit.figures.law` of the fit, and dashed the law at the tried parameters where they are others."""
        from rlkit import figures
        from rlkit.figures.laws import curves

        made = figures.law(self.fit, self.points, venue="tmlr")
        if self.values == self.fit.params:
            return made
        along, grid = curves(self.fit, self.points)
        grid["tried"] = self.tried.predict(grid)
        others, ax = [c for c in grid if c not in (along, "tried")], made.figure.axes[0]
        for place, (_, part) in enumerate(grid.groupby(others) if others else [((), grid)]):
            colour = figures.look(place if others else 3)["color"]
            ax.plot(part[along], part["tried"], "--", color=colour)
        return replace(made, table=grid)

    def words(self) -> str:
        """The misfit (root mean square residual in the fit's own space), and the optimum of the budget."""
        from rlkit.figures import short

        tried, fitted = (float((fit.residuals**2).mean() ** 0.5) for fit in (self.tried, self.fit))
        text = f"RMS residual {tried:.4g} at these parameters, {fitted:.4g} at the fit"
        if not self._data:
            return text
        best, data = self.optimum(self.budget.value), self._data
        ends = f" [{short(best['N_low'])}, {short(best['N_high'])}]" if "N_low" in best else ""
        return (
            f"{text}. With {self.budget.value:.3g} FLOPs the best is N = {short(best['N'])}{ends}, {data} = "
            f"{short(best[data])} ({best[f'{data}/N']:.3g} a parameter), which gives {best['y']:.4g}."
        )

    def refresh(self) -> None:
        """Say and draw the law at the tried parameters."""
        try:
            self.text.value = html.escape(self.words())
        except UserError as problem:
            self.text.value = html.escape(str(problem))
        self._picture.update(self.drawing())

    def _ipython_display_(self) -> None:
        show(self.box, self._shown, self._picture)
        self.refresh()
