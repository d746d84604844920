"""The law explorer: a fitted law whose parameters can be moved, beside its data, and the optimum of a budget."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.panels.live import Output, Worker

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.figures import Drawing
    from rlkit.laws import LawFit


def law_explorer(source: "LawFit | str | Path", points: "pd.DataFrame | None" = None) -> "Explorer":
    """A law explorer for a notebook.

    Args:
        source: a fit from `rlkit.fit`, or outputs/<study>, whose analysis fitted a law.
        points: rows to draw, held-out ones among them; default: those of the study, or those fitted.

    Raises:
        UserError: the study has no law.
    """
    if isinstance(source, str | Path):
        from rlkit.figures.study import StudyData

        study = StudyData(Path(source))
        return Explorer(Exploration(study.fit, study.points if points is None else points))
    return Explorer(Exploration(source, points))


class Exploration:
    """A fitted law and other values of its parameters.

    Attributes:
        fit: the fit; it is not changed.
        points: its rows, and perhaps held-out ones.
        values: the parameters that are tried.
    """

    def __init__(self, fit: "LawFit", points: "pd.DataFrame | None" = None) -> None:
        import pandas as pd

        self.fit = fit
        named = {fit.table.names[c]: v for c, v in fit.table.columns.items()} | {
            fit.table.names["y"]: fit.table.y
        }
        self.points = pd.DataFrame(named) if points is None else points
        self.values = dict(fit.params)

    @property
    def moved(self) -> "LawFit":
        """The law at the tried parameters, without intervals."""
        import numpy as np

        from rlkit.laws.bootstrap import Plan

        z = self.fit.law.to_z(np.array([[self.values[p] for p in self.fit.law.parameters]]))[0]
        return replace(self.fit, z=z, plan=Plan(), given=None, at_bound={})

    def range_of(self, name: str) -> tuple[float, float]:
        """What a slider offers: twice the interval and at least a third to either side, within the parameter's
        bounds."""
        value, (low, high) = self.fit.params[name], self.fit.interval()[name]
        bounds = self.fit.law.limits(name)
        low, high = (e if math.isfinite(e) else value * f for e, f in ((low, 0.1), (high, 10.0)))
        low, high = min(low, value - abs(value) / 6), max(high, value + abs(value) / 6)
        least = max(2 * low - value, bounds[0])
        if least <= 0 < value:
            least = max(value / 30, bounds[0] if bounds[0] > 0 else 0.0)
        most = min(2 * high - value, bounds[1])
        return least, most if most > least else least + abs(value) + 1e-9

    def misfit(self) -> tuple[float, float]:
        """Root mean square residual at the tried parameters and at the fit's, in the fit's own space."""
        return tuple(float((f.residuals**2).mean() ** 0.5) for f in (self.moved, self.fit))  # type: ignore[return-value]

    @property
    def has_optimum(self) -> bool:
        """It is a law of model size and data."""
        columns = self.fit.law.columns
        return "N" in columns and any(c in columns for c in ("D", "X", "E"))

    def optimum(self, budget: float) -> dict[str, float]:
        """The best N and data for a budget in FLOPs (6 a parameter and token), at the tried parameters; with
        intervals while those are the fit's.

        Raises:
            UserError: not a law of N and data.
        """
        from rlkit.laws import allocate

        same = self.values == self.fit.params
        found = allocate(self.fit, budget) if same else allocate(self.fit.law, budget, params=self.values)
        row: dict[str, Any] = {str(k): v for k, v in found.iloc[0].items()}
        return {key: float(value) for key, value in row.items()}

    def budgets(self) -> tuple[float, float]:
        """A range of budgets: from the smallest run to a thousand times the largest."""
        columns = self.fit.table.columns
        data = next(columns[c] for c in ("D", "X", "E") if c in columns)
        flops = 6 * columns["N"] * data
        return float(flops.min()), float(flops.max() * 1000)

    def drawing(self, venue: str = "tmlr") -> "Drawing":
        """Data, the fit with its band, and the law at the tried parameters (dashed)."""
        import numpy as np
        import pandas as pd

        from rlkit import figures
        from rlkit.figures.laws import curves

        along, grid = curves(self.fit)
        y, others = self.fit.table.names["y"], [c for c in grid.columns if c != along]
        band = pd.concat([grid, self.fit.predict(grid, band="confidence")], axis=1)
        band["tried"] = self.moved.predict(grid)
        with figures.styled():
            fig, (ax,) = figures.new_axes(venue, 1, 0.4)
            for i, (key, part) in enumerate(band.groupby(others) if others else [((), band)]):
                style = figures.look(i)
                name = ", ".join(
                    map(figures.short, np.asarray(key, dtype=float))
                ) or self.fit.law.name.replace("_", " ")
                ax.plot(part[along], part["prediction"], color=style["color"], label=name)
                ax.fill_between(
                    part[along], part["low"], part["high"], color=style["color"], alpha=0.15, lw=0
                )
                tried = {"color": style["color"] if others else figures.look(3)["color"], "linestyle": "--"}
                ax.plot(part[along], part["tried"], **tried, label=None if i else "tried")
            held = self.points.get("held_out", pd.Series(False, self.points.index)).astype(bool)
            ax.plot(
                self.points.loc[~held, along], self.points.loc[~held, y], "o", color="0.2", label="fitted"
            )
            if held.any():
                hollow: Any = {"color": "0.2", "markerfacecolor": "white", "label": "held out"}
                ax.plot(self.points.loc[held, along], self.points.loc[held, y], "o", **hollow)
            figures.log_axes(ax, self.fit, along)
            figures.label_axes(ax, along, y)
            figures.legend(ax, ", ".join(figures.LABELS.get(name, name) for name in others) or None)
        return figures.Drawing(fig, band, figures.sources(self.points, self.fit))

    def words(self, budget: float | None = None) -> str:
        """The misfit, and the optimum of a budget."""
        tried, fitted = self.misfit()
        text = f"RMS residual {tried:.4g} at these parameters, {fitted:.4g} at the fit"
        if budget is None or not self.has_optimum:
            return text
        from rlkit.figures import short

        best = self.optimum(budget)
        data = next(c for c in ("D", "X", "E") if c in best)
        ends = f" [{short(best['N_low'])}, {short(best['N_high'])}]" if "N_low" in best else ""
        return (
            f"{text}. With {budget:.3g} FLOPs the best is N = {short(best['N'])}{ends}, {data} = {short(best[data])} "
            f"({best[f'{data}/N']:.3g} a parameter), which gives {best['y']:.4g}."
        )


def around(value: float, low: float, high: float, step: float) -> tuple[float, float]:
    """Ends of a slider within `low` and `high` from which whole steps lead to `value`: a browser rounds to those."""
    return value - step * math.floor((value - low) / step), value + step * math.floor((high - value) / step)


class Explorer:
    """Sliders above a picture and a sentence. Shown by a notebook as the value of a cell.

    Attributes:
        exploration: what the sliders have set.
        sliders: one for each free parameter.
    """

    def __init__(self, exploration: Exploration) -> None:
        import ipywidgets as w

        self.exploration = exploration
        self.sliders = {name: self._slider(name) for name in exploration.fit.law.free}
        self.budget: Any = None
        rows: list[Any] = list(self.sliders.values())
        if exploration.has_optimum:
            low, high = (math.log10(end) for end in exploration.budgets())
            self.budget = w.FloatLogSlider(
                value=10**high / 100, base=10, min=low, max=high, step=0.05, description="budget, FLOPs",
                readout_format=".2e", style={"description_width": "8em"}, layout=w.Layout(width="32em"),
            )  # fmt: skip
            self.budget.observe(lambda _: self._changed(None, None), "value")
            rows.append(self.budget)
        self.reset = w.Button(description="Back to the fit", icon="undo")
        self.reset.on_click(self._reset)
        self.text = w.HTML()
        self.box = w.VBox([*rows, self.reset, self.text])
        self._picture, self._worker = Output(), Worker(self._draw, self._failed)

    def _slider(self, name: str) -> Any:
        import ipywidgets as w

        (low, high), value = self.exploration.range_of(name), self.exploration.values[name]
        look: dict[str, Any] = {
            "value": value, "description": name, "readout_format": ".4g", "style": {"description_width": "8em"},
            "layout": w.Layout(width="32em"),
        }  # fmt: skip
        if low > 0 and high > 20 * low:
            ends = around(math.log10(value), math.log10(low), math.log10(high), 0.01)
            slider = w.FloatLogSlider(base=10, min=ends[0], max=ends[1], step=0.01, **look)
        else:
            step = (high - low) / 200
            low, high = around(value, low, high, step)
            slider = w.FloatSlider(min=low, max=high, step=step, **look)
        slider.observe(lambda event: self._changed(name, event["new"]), "value")
        return slider

    def _changed(self, name: str | None, value: float | None) -> None:
        if name is not None and value is not None:
            fitted = self.exploration.fit.params[name]
            same = math.isclose(value, fitted, rel_tol=1e-9)  # a browser adds steps up
            self.exploration.values[name] = fitted if same else value
        self._say()
        self._worker.wake()

    def _reset(self, _: Any) -> None:
        for name, slider in self.sliders.items():
            slider.value = self.exploration.fit.params[name]
        self._say()
        self._worker.wake()

    def _say(self) -> None:
        import html

        try:
            self.text.value = html.escape(self.exploration.words(self.budget and self.budget.value))
        except UserError as problem:
            self.text.value = html.escape(str(problem))

    def _draw(self) -> bool:
        self._picture.picture(self.exploration.drawing().png(120), repr(self))
        return False

    def _failed(self, problem: Exception) -> None:
        self.text.value = f"not drawn: {type(problem).__name__}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)
        self._picture.show()
        self._say()
        self._draw()
        self._worker.start()

    def __repr__(self) -> str:
        values = ", ".join(f"{name} = {value:.4g}" for name, value in self.exploration.values.items())
        return f"<{self.exploration.fit.law.name} law: {values}>"
