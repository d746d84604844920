"""Pictures of laws: the law with its band through its points, and residuals. Nothing is fitted here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.mathtext import MathTextParser

from rlkit.errors import UserError
from rlkit.figures import labels_and_looks as paper_style
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.labels_and_looks import LABELS, label_axes, legend, look, looks, new_axes, short, styled
from rlkit.laws.fitting import LawFit
from rlkit.laws.law import Law
from rlkit.laws.report import symbol

MOST_VALUES = 8  # of a column, each of which has lines of its own


@contextmanager
def optional(what: str) -> Iterator[None]:
    """A part of an analysis that some studies have no data for: a UserError in it is printed and passed over."""
    try:
        yield
    except UserError as error:
        print(f"{what}: left out. {error}")


def estimates(fits: dict[Any, LawFit], name: str, by: str = "cell") -> pd.DataFrame:
    """One parameter of several fits, a row each: `by`, the parameter, and low and high, its 95 % interval."""
    rows = [(key, one.params[name], *one.interval()[name]) for key, one in fits.items()]
    return pd.DataFrame(rows, columns=[by, name, "low", "high"])


def curves(
    fit: LawFit, points: pd.DataFrame | None = None, count: int = 100, reach: float = 3.0, before: float = 1.0
) -> tuple[str, pd.DataFrame]:
    """The column that varies along a curve, and a table of the law's columns on a grid of it, which extends `reach`
    times past the data and, where it is logarithmic, begins `before` times below. The other columns take the
    combinations of `points`, by default the rows that were fitted: eight of them where a column has more values, and
    all that were held out."""
    rows, names = _marked(_fitted(fit) if points is None else points), [fit.table.names[c] for c in fit.law.columns]
    fitted = rows.loc[~rows["held_out"], names].astype(float)
    along = max(names, key=lambda name: fitted[name].nunique())
    x = rows[along].to_numpy(float)
    if along in paper_style.SHARES:
        grid = np.linspace(max(x.min() - 0.05, 0), min(x.max() + 0.05, 1), count)
    elif (fitted[along] > 0).all():
        grid = np.geomspace(x[x > 0].min() / before, x.max() * reach, count)
    else:
        grid = np.linspace(x.min(), x.max(), count)
    if not (others := [name for name in names if name != along]):
        return along, pd.DataFrame({along: grid})
    lines = fitted[others].drop_duplicates().sort_values(others)
    if lines.nunique().max() > MOST_VALUES:
        lines = lines.iloc[np.linspace(0, len(lines) - 1, MOST_VALUES).astype(int)]
    lines = pd.concat([lines, rows.loc[rows["held_out"], others].astype(float)])
    lines = lines.drop_duplicates().sort_values(others)
    return along, lines.merge(pd.DataFrame({along: grid}), how="cross")


def _log_axes(ax: Axes, x: pd.Series, fit: LawFit) -> None:
    """Logarithmic axes where all of x is positive and no share, and where the law's residuals are logarithmic."""
    if (x > 0).all() and x.name not in paper_style.SHARES:
        ax.set_xscale("log")
    if fit.problem.space == "log":
        ax.set_yscale("log")


def law(
    fit: LawFit | dict[Any, LawFit], points: pd.DataFrame | None = None, by: str | None = None,
    venue: str = "neurips", ax: Axes | None = None,
) -> Drawing:  # fmt: skip
    """Any fitted law with its 95 % band through its points; held-out points are hollow.

    A law of one column has the prediction band, where a new run is expected; one of several columns a curve with its
    confidence band for each combination of the others; several groups a curve with its confidence band each.

    `points` have the law's columns and y, by default those that were fitted; `by` is the column of them that is told
    apart by colour, and `ax` a panel to draw on, of a law of one column."""
    if isinstance(fit, LawFit) and len(fit.law.columns) == 1:
        points = _marked(_fitted(fit) if points is None else points)
        by = by if by is not None or "model.path" not in points else "model.path"
        return _single(fit, points, by, venue, ax)
    if ax is not None:
        raise UserError("A law of several columns or groups has a figure of its own.")
    if isinstance(fit, LawFit):
        points = _fitted(fit) if points is None else points
        return replace(_lines({"": fit}, {"": points}, venue, {}), sources=sources(points, fit))
    own = {group: points[points[by] == group] for group in fit} if points is not None and by else {}
    drawing = _lines(fit, own, venue, looks(points, by) if points is not None and by else {})
    told = f"The law: {next(iter(fit.values())).law.source}."
    return replace(drawing, sources=sources(points, fit), caption=told)


def of_domains(found: dict[str, dict[str, LawFit]], rates: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """The laws of one cell, that of `rates`, by domain (`rlkit.measures.fits.by_domain`)."""
    shown = {domain: cells[rates["cell"].iloc[0]] for domain, cells in found.items()}
    return law(shown, rates, by="domain", venue=venue)


def _fitted(fit: LawFit) -> pd.DataFrame:
    """The rows that a law was fitted to, under their own names."""
    names = fit.table.names
    return pd.DataFrame({names[c]: v for c, v in fit.table.columns.items()} | {names["y"]: fit.table.y})


def _marked(points: pd.DataFrame) -> pd.DataFrame:
    """The points with a column that says which were held out."""
    return points.assign(held_out=points["held_out"].astype(bool) if "held_out" in points else False)


def _lines(
    fits: dict[Any, LawFit], points: dict[Any, pd.DataFrame], venue: str, known: dict[Any, dict[str, Any]]
) -> Drawing:
    """A curve with its confidence band for each group or, of one law of several columns, for each combination of the
    columns that do not vary along it; through the points of each group, by default those that were fitted. `known`:
    the looks of groups."""
    lines: list[tuple[str, tuple[Any, ...], pd.DataFrame, pd.DataFrame]] = []
    tables, several = [], "" not in fits
    for group, fit in fits.items():
        if several and len(fit.law.columns) > 1:
            raise UserError(f"Groups of the law {fit.law.name!r} of several columns are drawn one by one.")
        own = _marked(points.get(group, _fitted(fit))).assign(group=group)
        along, grid = curves(fit, own)
        band = grid.join(fit.predict(grid, band="confidence"))
        y, others = fit.table.names["y"], [str(c) for c in grid if c != along]
        if y in paper_style.SHARES:
            band[["low", "high"]] = band[["low", "high"]].clip(0, 1)
        parts: Any = band.groupby(others) if others else [((), band)]
        for key, part in parts:
            same: Any = np.isclose(own[others].to_numpy(float), np.asarray(key, float)).all(axis=1)
            lines.append((", ".join(map(short, key)) or str(group), key, part, own[same]))
        tables += [own.assign(part="point"), band.assign(part="law", group=group)]
    colours, rest = looks(band, others[0]) if others else {}, sorted({key[1:] for _, key, _, _ in lines})
    panels = list(colours) if len(colours) < len(lines) and others else []
    if panels:
        styles = [look(rest.index(key[1:])) | {"color": colours[key[0]]["color"]} for _, key, _, _ in lines]
    elif others:
        styles = [colours[key[0]] for _, key, _, _ in lines]
    else:
        styles = [known.get(group, look(i)) for i, group in enumerate(fits)]
    with styled():
        fig, axes = new_axes(venue, len(panels) or 1, 0.5)
        for style, (label, key, band, own) in zip(styles, lines, strict=True):
            ax, colour = axes[panels.index(key[0]) if panels else 0], style["color"]
            alpha = min(0.15, 0.6 * len(axes) / len(lines))
            ax.plot(band[along], band["prediction"], color=colour, linestyle=style["linestyle"])
            ax.fill_between(band[along], band["low"], band["high"], color=colour, alpha=alpha, lw=0)
            for held, part in own.groupby("held_out"):
                marks: Any = style | {"linestyle": "none", "markerfacecolor": "white" if held else colour}
                twice = panels or (held and several)  # a group's name stands once
                ax.plot(part[along], part[y], **marks, label="_" if twice else label + ", held out" * bool(held))
        for place, ax in enumerate(axes):
            ax.set_title(short(panels[place]) if panels else "")
            ax.sharex(axes[0])
            ax.sharey(axes[0])
            _log_axes(ax, band[along], fit)
            label_axes(ax, along, y)
        for i, key in enumerate(rest if panels else ()):
            grey: Any = look(i) | {"color": "0.4", "label": ", ".join(map(short, key))}
            axes[0].plot([], [], **grey)
        paper_style.outer_labels(axes)
        words = [LABELS.get(name, name) for name in others]
        title = f"panels: {words[0]}; lines: {', '.join(words[1:])}" if panels else ", ".join(words)
        legend(axes[0], title or None, ends=not panels)
    return Drawing(fig, pd.concat(tables, ignore_index=True))


def _single(fit: LawFit, points: pd.DataFrame, by: str | None, venue: str, ax: Axes | None) -> Drawing:
    """A law of one column: solid where it was fitted and dashed beyond, over a grey ground; what it foretells for each
    held-out x as a star with its interval, beside the hollow points that were observed."""
    along, grid = curves(fit, points, count=200, reach=1.5, before=1.25)
    y, edge = fit.table.names["y"], fit.table.columns[fit.law.columns[0]].max()
    band = grid.join(fit.predict(grid, band="prediction"))
    told = points.loc[points["held_out"], [along]].drop_duplicates().sort_values(along, ignore_index=True)
    told = told.join(fit.predict(told, band="prediction")) if len(told) else told
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for part, dash in ((band[band[along] <= edge], "-"), (band[band[along] >= edge], "--")):
            ax.plot(part[along], part["prediction"], dash, color="0.2")
        ax.fill_between(band[along], band["low"], band["high"], color="0.85", lw=0)
        _log_axes(ax, band[along], fit)
        ax.set_xlim(band[along].min(), band[along].max())
        low, high = min(band["low"].min(), points[y].min()), max(band["high"].max(), points[y].max())
        if y in paper_style.SHARES:
            low, high = max(low, points[y].min() / 3), min(high, 1.0)  # where points are and shares can be
        if 0 < low < high < np.inf:
            ax.set_ylim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
        if len(told):
            ax.axvspan(edge * 1.0001, ax.get_xlim()[1], color="0.96", lw=0, zorder=0)
            error = [told["prediction"] - told["low"], told["high"] - told["prediction"]]
            star: Any = {"fmt": "*", "color": "0.2", "markersize": 8, "elinewidth": 0.9, "capsize": 2}
            ax.errorbar(told[along], told["prediction"], yerr=error, **star, label="predicted")
        _points(ax, points, along, y, by)
        label_axes(ax, along, y)
        if fig.get_label() != paper_style.LETTERED:  # a small panel has no room
            _write_estimates(ax, fit, band["prediction"].iloc[-1] < band["prediction"].iloc[0])
        if len(ax.get_legend_handles_labels()[1]) > 1:
            legend(ax)
    parts = (points.assign(part="point"), band.assign(part="law"), told.assign(part="foretold"))
    return Drawing(fig, pd.concat(parts, ignore_index=True), sources(points, fit))


def _points(ax: Axes, points: pd.DataFrame, along: str, y: str, by: str | None) -> None:
    """Draw the points, hollow where held out, with one entry of the legend for all where each name has its own x."""
    names, pairs = points[by or "held_out"], points[[by or "held_out", along]].drop_duplicates()
    styles = looks(points, by) if by else {key: {"marker": "o", "color": "0.2"} for key in names}
    own_x = not by or not (pairs[by].duplicated().any() or pairs[along].duplicated().any())
    for (name, held), dots in points.groupby([names.rename("name"), "held_out"], sort=False):
        words = f"{name}, held out" if held else str(name)
        marks: Any = styles[name] | {"linestyle": "none", "label": None if own_x else words}
        marks |= {"markerfacecolor": "white"} if held else {}
        ax.plot(dots[along], dots[y], **marks, zorder=3)
    for held, face, words in ((False, "0.4", "fitted"), (True, "white", "held out")):
        if own_x and (points["held_out"] == held).any():
            ax.plot([], [], "o", color="0.4", markerfacecolor=face, label=words)


def _write_estimates(ax: Axes, fit: LawFit, falls: bool) -> None:
    """The law and its estimates in the corner at the left that a falling or rising curve leaves free."""
    place = {"y": 0.04, "va": "bottom"} if falls else {"y": 0.96, "va": "top"}
    lines, ends = [equation(fit.law)], fit.interval()
    for name, value in fit.params.items():
        span = f" [{ends[name][0]:.3g}, {ends[name][1]:.3g}]" if name in ends else ""
        lines.append(f"{symbol(name)} = {value:.3g}{span}")
    text = "\n".join(lines)
    ax.text(0.03, s=text, **place, fontsize=7, transform=ax.transAxes, linespacing=1.3)


def residuals(fit: LawFit, venue: str = "neurips") -> Drawing:
    """Residuals in the fit's own space against its prediction, one look a value of the law's first column."""
    rows, y, name = _fitted(fit), fit.table.names["y"], fit.table.names[fit.law.columns[0]]
    table = pd.DataFrame({"predicted": fit.predict(rows), "residual": fit.residuals, name: rows[name]})
    few = table[name].nunique() <= 10
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.45)
        styles: dict[Any, Any] = looks(table, name) if few else {None: look(0)}
        for value, style in styles.items():
            part = table[table[name] == value] if few else table
            dots: Any = style | {"linestyle": "none", "label": short(value) if few else None}
            ax.plot(part["predicted"], part["residual"], **dots)
        ax.axhline(0, color="0.4", linewidth=0.6)
        of = {"log": " of the logarithm", "logit": " of the logit"}.get(fit.problem.space, "")
        label_axes(ax, f"predicted {LABELS.get(y, y)}", f"residual{of}")
        if few:
            legend(ax, LABELS.get(name, name))
    return Drawing(fig, table, sources(fit=fit))


def equation(law: Law) -> str:
    """The formula that begins a law's docstring, for matplotlib; the law's name where none begins it."""
    formula, name = re.split(r" \((?=[A-Z][a-z])|[:;,] ", law.source)[0], law.name.replace("_", " ")

    def word(found: re.Match[str]) -> str:
        sign, text = found[1], found[2] or found[3]
        function = text in ("ln", "logit", "exp", "pass")
        text = re.sub(r"^([A-Za-z])(\d+)$", r"\1_{\2}", symbol(text).strip("$"))
        text = rf"\mathrm{{{text}}}\," if function else text
        return f"^{{{sign[1:]}{text}}}" if sign else text

    text = re.sub(r"(\^-?)(\w+)|([A-Za-z]\w*)", word, formula.replace("·", r"\,"))
    with suppress(ValueError):
        MathTextParser("agg").parse(f"${text}$")
        return f"${text}$" if "=" in formula else name
    return name
