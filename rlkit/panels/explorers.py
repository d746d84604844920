"""Explorers of results: a fitted law whose parameters can be moved beside its data; and samples, prompts with their
expected answers and responses, right and wrong in colour."""

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as w
import numpy as np
import pandas as pd
from IPython.display import DisplayHandle, Pretty
from pandas.io.formats.style import Styler

from rlkit import figures
from rlkit.config import load
from rlkit.data import held_out
from rlkit.errors import UserError
from rlkit.figures import Drawing
from rlkit.figures.laws import curves
from rlkit.figures.study import StudyData
from rlkit.laws import LawFit
from rlkit.panels.ablation import slider
from rlkit.panels.launching import show
from rlkit.results.read import read_evals, run_folders
from rlkit.results.store import read_jsonl

_WIDE = {"style": {"description_width": "8em"}, "layout": {"width": "32em"}, "continuous_update": False}
ANY = "any"
PAGE = 5  # prompts a page
_LONG = 4000  # characters of a text that are shown


def law_explorer(source: LawFit | str | Path) -> "Explorer":
    """A law explorer for a notebook, of a fit from `rlkit.fit`, or of outputs/<study>, whose analysis fitted a law.
    Raises UserError where the study has no law."""
    if not isinstance(source, str | Path):
        return Explorer(source)
    study = StudyData(Path(source))
    return Explorer(study.fit, study.points)


class Explorer:
    """Sliders, one a free parameter of the `fit`, above a sentence and a picture; shown as the value of a cell."""

    def __init__(self, fit: LawFit, points: pd.DataFrame | None = None) -> None:
        self.fit, self.points = fit, points
        self.sliders = {name: self._slider(name) for name in fit.law.free}
        self.reset = w.Button(description="Back to the fit", icon="undo")
        self.reset.on_click(self._reset)
        self.text, self._shown, self._picture = w.HTML(), DisplayHandle(), DisplayHandle()
        self.box = w.VBox([*self.sliders.values(), self.reset, self.text])

    def _slider(self, name: str) -> Any:
        """From a third to three times a positive estimate, within the parameter's bounds."""
        value, (low, high) = self.fit.params[name], self.fit.law.limits(name)
        look = {"description": name, "readout_format": ".4g", **_WIDE}
        near = (value / 3, 3 * value, 0.01) if value > 0 else (value - 1, value + 1, 0.02)
        made = slider(value, max(low, near[0]), min(high, near[1]), near[2], log=value > 0, **look)
        made.observe(lambda _: self.refresh(), "value")
        return made

    @property
    def values(self) -> dict[str, float]:
        """The parameters at which the sliders stand, those of the fit for a slider that a browser rounds."""
        fitted, moved = self.fit.params, {name: one.value for name, one in self.sliders.items()}
        return fitted | {k: v for k, v in moved.items() if not math.isclose(v, fitted[k], rel_tol=1e-9)}

    def _reset(self, _: Any) -> None:
        for name, moved in self.sliders.items():
            moved.value = self.fit.params[name]

    @property
    def tried(self) -> LawFit:
        """The law at the tried parameters, without intervals."""
        z = self.fit.law.to_z(np.array([[self.values[p] for p in self.fit.law.parameters]]))[0]
        return replace(self.fit, z=z, count=0, given=None, at_bound={})

    def drawing(self) -> Drawing:
        """`rlkit.figures.law` of the fit, and dashed the law at the tried parameters where they are others."""
        made = figures.law(self.fit, self.points, venue="tmlr")
        if self.values == self.fit.params:
            return made
        along, grid = curves(self.fit, self.points)
        grid["tried"] = self.tried.predict(grid)
        others, axes = [c for c in grid if c not in (along, "tried")], made.figure.axes
        panels = sorted(set(grid[others[0]])) if len(axes) > 1 else []
        for place, (key, part) in enumerate(grid.groupby(others) if others else [((), grid)]):
            colour = figures.look(place if others else 3)["color"]
            axes[panels.index(key[0]) if panels else 0].plot(part[along], part["tried"], "--", color=colour)
        return replace(made, table=grid)

    def words(self) -> str:
        """The misfit: root mean square residual in the fit's own space."""
        tried, fitted = (float((fit.residuals**2).mean() ** 0.5) for fit in (self.tried, self.fit))
        return f"RMS residual {tried:.4g} at these parameters, {fitted:.4g} at the fit"

    def refresh(self) -> None:
        """Say and draw the law at the tried parameters."""
        self.text.value = self.words()
        self._picture.update(self.drawing())

    def _ipython_display_(self) -> None:
        show(self.box, self._shown, self._picture)
        self.refresh()


def sample_browser(path: str | Path) -> "Browser":
    """A browser of the samples of a run's folder, outputs/<study> or outputs. Raises UserError without samples."""
    return Browser(read_samples(path))


def read_samples(path: str | Path) -> pd.DataFrame:
    """The logged training samples and all evaluated samples of the runs under a path.

    Returns:
        A row a sample, later steps first, samples of a problem together: run, kind (training or evaluation), step,
        task_id, data_source, prompt, ground_truth, response, value, outcome (correct, wrong, not graded), error,
        finish_reason. Prompt and truth are missing where a run's data files are no longer there.

    Raises UserError: there are no runs, or none has logged a sample.
    """
    tasks, parts = {}, []
    for folder in run_folders(path):
        rows = pd.DataFrame(read_jsonl(folder / "samples.jsonl"))
        parts.append(rows.assign(kind="training", run=folder.name))
        with suppress(UserError):  # a data file that has moved
            tasks |= {task.id: task for task in held_out(load(folder / "config.yaml"))}
    if len(evals := read_evals(path)):
        asked = {name: (task.prompt[-1]["content"], task.ground_truth) for name, task in tasks.items()}
        both = [asked.get(name, (None, None)) for name in evals["task_id"]]
        evals[["prompt", "ground_truth"]] = pd.DataFrame(both, evals.index, dtype=object)
        parts.append(evals.assign(kind="evaluation"))
    parts = [part.astype(object) for part in parts if len(part)]
    if not parts:
        raise UserError(f"No run under {path} has logged a sample yet.")
    found = pd.concat(parts, ignore_index=True)
    names = {True: "correct", False: "wrong"}
    found["outcome"] = found["correct"].map(names, na_action="ignore").fillna("not graded")
    return found.sort_values(["step", "run", "task_id"], ascending=[False, True, True], kind="stable")


def page(rows: pd.DataFrame, number: int = 0) -> Styler:
    """The samples of some prompts, rows from `read_samples`, as a table; the page's number counts from 0. Every text of
    a model is escaped, long ones are cut."""
    keys = ["step", "run", "task_id"]
    places = rows.groupby(keys, sort=False).ngroup()
    shown = rows[(places >= number * PAGE) & (places < (number + 1) * PAGE)]
    again = shown.duplicated(keys)
    about = ["step", "data_source", "prompt", "expected"]
    shown = shown.rename(columns={"ground_truth": "expected"}).assign(reward=pd.to_numeric(shown["value"]))
    for column in ("prompt", "expected", "response"):
        texts = shown[column].astype(object).where(shown[column].notna(), "–").astype(str)
        shown[column] = texts.str.slice(0, _LONG)
    shown[about] = shown[about].astype(object).mask(again, "")
    shown["outcome"] += shown["error"].map(": {}".format, na_action="ignore").fillna("")
    several = ["run"] if rows["run"].nunique() > 1 else []
    table = figures.table(shown, *several, *about, "response", "outcome", "reward", "finish_reason")
    colours = {"correct": figures.look(0)["color"], "wrong": figures.look(1)["color"]}
    table = table.map(lambda outcome: f"color: {colours.get(str(outcome), '#555')}", subset=["outcome"])
    return table.set_caption(f"{len(rows)} samples of {places.nunique()} prompts")


class Browser:
    """Filters (a drop-down for each of run, kind, step, data_source and outcome) above a page of a table from
    `read_samples`, whose `number` counts from 0. Shown by a notebook as the value of a cell."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table, self.number, self._shown, self._page = table, 0, DisplayHandle(), DisplayHandle()
        self.filters: dict[str, w.Dropdown] = {}
        for name in ("run", "kind", "step", "data_source", "outcome"):
            options = [ANY, *map(str, sorted(table[name].unique()))]
            self.filters[name] = w.Dropdown(options=options, description=name, layout={"width": "20em"})
            self.filters[name].observe(lambda _: self.show(0), "value")
        self.previous = w.Button(description="‹", tooltip="previous page", layout={"width": "3em"})
        self.previous.on_click(lambda _: self.show(self.number - 1))
        self.next = w.Button(description="›", tooltip="next page", layout={"width": "3em"})
        self.next.on_click(lambda _: self.show(self.number + 1))
        self.of = w.Label()
        grid = w.GridBox([*self.filters.values()], layout={"grid_template_columns": "repeat(3, 21em)"})
        self.box = w.VBox([grid, w.HBox([self.previous, self.of, self.next])])

    @property
    def rows(self) -> pd.DataFrame:
        """The samples that the filters leave."""
        rows = self.table
        for name, chosen in self.filters.items():
            if chosen.value != ANY:
                rows = rows[rows[name].astype(str) == chosen.value]
        return rows

    def show(self, number: int) -> None:
        """Show a page, counted from 0."""
        rows, self.number = self.rows, number
        pages = -(-len(rows.drop_duplicates(["step", "run", "task_id"])) // PAGE)
        self.of.value = f"page {number + 1} of {max(1, pages)}"
        self.previous.disabled, self.next.disabled = number == 0, number + 1 >= pages
        self._page.update(page(rows, number) if pages else Pretty("No sample is like this."))

    def _ipython_display_(self) -> None:
        show(self.box, self._shown, self._page)
        self.show(0)
