"""Pictures of laws: the law through its points, residuals, rival forms, intervals, and the transfer between domains.

Each returns a `rlkit.figures.Drawing`: the figure and the table it drew. Nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from rlkit.errors import UserError
from rlkit.evaluation.passk import bootstrap_mean
from rlkit.figures.axes import LETTERED, NARROW, SHARES, label_axes, legend, log_ticks, name_rows, new_axes
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import LABELS, colours, domain_name, look, looks, short, styled
from rlkit.laws.compare import Comparison
from rlkit.laws.fitting import LawFit
from rlkit.laws.report import symbol
from rlkit.seeds import generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8


@contextmanager
def optional(what: str) -> Iterator[None]:
    """A part of an analysis that some studies have no data for: a UserError in it is printed and passed
    over."""
    try:
        yield
    except UserError as error:
        print(f"{what}: left out. {error}")


def curves(
    fit: LawFit,
    points: pd.DataFrame | None = None,
    count: int = 100,
    reach: float = 3.0,
    before: float = 1.0,
) -> tuple[str, pd.DataFrame]:
    """The column that varies along a curve, and a table of the law's columns on a grid of it.

    The other columns take the combinations of the fitted rows, at most eight, and of those of `points` that were held
    out; the grid extends `reach` times past the data and, where it is logarithmic, begins `before` times below.
    """
    names = {c: fit.table.names[c] for c in fit.law.columns}
    column = max(names, key=lambda c: len(np.unique(fit.table.columns[c])))
    along, x = names.pop(column), fit.table.columns[column]
    if points is not None:
        x = np.concatenate([x, points[along].to_numpy(float)])
    if _logged(fit, column):
        grid = pd.DataFrame({along: np.geomspace(x[x > 0].min() / before, x.max() * reach, count)})
    else:
        grid = pd.DataFrame({along: np.linspace(x.min(), x.max(), count)})
    if not names:
        return along, grid
    others = pd.DataFrame({name: fit.table.columns[c] for c, name in names.items()}).drop_duplicates()
    others = others.sort_values(list(others.columns))
    others = others.iloc[np.unique(np.linspace(0, len(others) - 1, MOST_LINES).astype(int))]
    if points is not None and "held_out" in points:
        held = points.loc[points["held_out"].astype(bool), list(names.values())].astype(float)
        others = pd.concat([others, held]).drop_duplicates().sort_values(list(others.columns))
    return along, others.merge(grid, how="cross")


def _logged(fit: LawFit, column: str) -> bool:
    """Whether a column of the law is drawn on a logarithmic axis."""
    return column not in fit.law.unlogged and bool((fit.table.columns[column] > 0).all())


def log_axes(ax: Axes, fit: LawFit, along: str | None = None) -> None:
    """Logarithmic axes where the law's columns and residuals are; `label_axes` then gives them ticks.

    Args:
        along: the table's column on the x axis; default that of the law's first column.
    """
    column = next((c for c, name in fit.table.names.items() if name == along), fit.law.columns[0])
    if _logged(fit, column):
        ax.set_xscale("log")
    if fit.space == "log":
        ax.set_yscale("log")


def law(
    fit: LawFit | dict[Any, LawFit],
    points: pd.DataFrame | None = None,
    by: str | None = None,
    venue: str = "neurips",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Drawing:
    """Any fitted law with its band through its points; held-out points are hollow.

    A law of one column has the prediction band, where a new run is expected; one of several columns a curve with its
    confidence band for each combination of the others; several groups a curve with its confidence band each.

    Args:
        points: rows with the law's columns and y; default those that were fitted. Rows with a
            true `held_out` are hollow.
        by: of a law of one column, the column of points that is told apart by colour.
        level: of the band.
        ax: a panel to draw on, for a law of one column.
    """
    if isinstance(fit, dict):
        return _groups(fit, venue, level)
    if points is None:
        names = fit.table.names
        points = pd.DataFrame({names[c]: v for c, v in fit.table.columns.items()} | {names["y"]: fit.table.y})
    points = points if "held_out" in points else points.assign(held_out=False)
    if len(fit.law.columns) > 1:
        return _several(fit, points, venue, level)
    by = by if by is not None or "model.path" not in points else "model.path"
    return _single(fit, points, by, venue, level, ax)


def _single(
    fit: LawFit, points: pd.DataFrame, by: str | None, venue: str, level: float, ax: Axes | None = None
) -> Drawing:
    """A law of one column: solid where it was fitted and dashed beyond, over a grey ground; what it foretells for each
    held-out x as a star with its interval, beside the hollow points that were observed."""
    along, grid = curves(fit, points, count=200, reach=1.5, before=1.25)
    y, held = fit.table.names["y"], points["held_out"].astype(bool)
    band = pd.concat([grid, fit.predict(grid, band="prediction", level=level)], axis=1)
    unseen = points.loc[held, [along]].drop_duplicates().sort_values(along).reset_index(drop=True)
    foretold = unseen.join(fit.predict(unseen, band="prediction", level=level)) if len(unseen) else unseen
    fitted = fit.table.columns[fit.law.columns[0]]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for inside, dash in ((True, "-"), (False, "--")):
            part = (
                band[(band[along] <= fitted.max()) == inside] if inside else band[band[along] >= fitted.max()]
            )
            ax.plot(part[along], part["prediction"], dash, color="0.2")
        ax.fill_between(band[along], band["low"], band["high"], color="0.85", lw=0)
        log_axes(ax, fit, along)
        _limits(ax, band, points, along, y)
        if len(unseen):
            ax.axvspan(fitted.max() * 1.0001, ax.get_xlim()[1], color="0.96", lw=0, zorder=0)
            error = [foretold["prediction"] - foretold["low"], foretold["high"] - foretold["prediction"]]
            star: Any = {
                "color": "0.2",
                "markersize": 8,
                "linestyle": "none",
                "elinewidth": 0.9,
                "capsize": 2,
            }
            ax.errorbar(
                foretold[along], foretold["prediction"], yerr=error, marker="*", **star, label="predicted"
            )
        told = _points(ax, points, along, y, by)
        label_axes(ax, along, y)
        _write_estimates(ax, fit, level)
        if told > 1 or len(unseen):
            legend(ax)
    parts = (points.assign(part="point"), band.assign(part="law"), foretold.assign(part="foretold"))
    return Drawing(fig, pd.concat(parts, ignore_index=True), sources(points, fit))


def _limits(ax: Axes, band: pd.DataFrame, points: pd.DataFrame, along: str, y: str) -> None:
    """The axes end where the band does, and where shares do."""
    ax.set_xlim(band[along].min(), band[along].max())
    low, high = (pd.concat([band[end], points[y]]).agg(how) for end, how in (("low", "min"), ("high", "max")))
    log = ax.get_yscale() == "log"
    if y in SHARES:  # a band that leaves what is possible, or goes far below all points, leaves the picture
        low, high = max(low, points[y].min() / 3 if log else 0.0), min(high, 1.0)
    if not np.isfinite([low, high]).all() or low >= high or (log and low <= 0):
        return
    room = (high / low) ** 0.04 if log else 0.04 * (high - low)
    ax.set_ylim(*((low / room, high * room) if log else (low - room, high + room)))


def _points(ax: Axes, points: pd.DataFrame, along: str, y: str, by: str | None) -> int:
    """Draw the points, hollow where they were held out; return how many names the legend has to tell apart. Where each
    name has an x of its own, the axis tells them apart, and the legend has one entry for all."""
    styles, held_out = looks(points, by) if by is not None else {}, points["held_out"].astype(bool)
    own_x = (
        by is None
        or points.groupby(by)[along].nunique().max() == 1 == points.groupby(along)[by].nunique().max()
    )
    drawn: list[str] = []
    for name, part in points.sort_values(along).groupby(by or "held_out", sort=False):
        style: Any = styles.get(name, {"marker": "o", "color": "0.2"})
        for held, dots in part.groupby(part["held_out"].astype(bool)):
            told = f"{name}, held out" if held else str(name)
            face = "white" if held else style["color"]
            marks: Any = {"color": style["color"], "markerfacecolor": face, "zorder": 3}
            marks["label"] = None if own_x else told
            ax.plot(dots[along], dots[y], style["marker"], **marks)
            drawn.append(told)
    if not own_x:
        return len(drawn)
    kinds = [name for name, there in (("fitted", ~held_out), ("held out", held_out)) if there.any()]
    for kind in kinds:
        ax.plot([], [], "o", color="0.4", markerfacecolor="0.4" if kind == "fitted" else "white", label=kind)
    return len(kinds)


def estimates(fit: LawFit, level: float = 0.95, plain: bool = False) -> list[str]:
    """Each parameter of a law with its interval; its symbol as mathtext, or its `plain` name."""
    ends = fit.interval(level)
    return [
        f"{name if plain else symbol(name)} = {value:.3g}"
        + (f" [{ends[name][0]:.3g}, {ends[name][1]:.3g}]" if name in ends else "")
        for name, value in fit.params.items()
    ]


def _write_estimates(ax: Axes, fit: LawFit, level: float) -> None:
    """The law and its estimates in the corner that a falling or rising curve leaves free; a small panel has no room."""
    if ax.get_figure().get_label() == LETTERED:  # type: ignore[union-attr]
        return
    falls = fit.table.y[np.argmax(fit.table.columns[fit.law.columns[0]])] < fit.table.y.max()
    place = {"x": 0.97, "y": 0.96, "va": "top"} if falls else {"x": 0.97, "y": 0.04, "va": "bottom"}
    text = "\n".join([fit.law.name.replace("_", " "), *estimates(fit, level)])
    ax.text(s=text, **place, ha="right", fontsize=7, transform=ax.transAxes, linespacing=1.3)


def _several(fit: LawFit, points: pd.DataFrame, venue: str, level: float) -> Drawing:
    along, grid = curves(fit, points)
    y, others = fit.table.names["y"], [c for c in grid.columns if c != along]
    band = pd.concat([grid, fit.predict(grid, band="confidence", level=level)], axis=1)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for i, (key, part) in enumerate(band.groupby(others)):
            key = np.asarray(key, dtype=float)
            style, label = look(i), ", ".join(map(short, key))
            ax.plot(part[along], part["prediction"], color=style["color"], linestyle=style["linestyle"])
            ax.fill_between(part[along], part["low"], part["high"], color=style["color"], alpha=0.15, lw=0)
            own = points[np.isclose(points[others].to_numpy(float), key).all(axis=1)]
            for held, dots in own.groupby(own["held_out"].astype(bool)):
                face = {"markerfacecolor": "white" if held else style["color"]}
                marks: Any = {"color": style["color"], "marker": style["marker"], "linestyle": "none", **face}
                ax.plot(dots[along], dots[y], **marks, label=f"{label}, held out" if held else label)
        log_axes(ax, fit, along)
        label_axes(ax, along, y)
        legend(ax, ", ".join(LABELS.get(name) or name for name in others))
    drawn = pd.concat([points.assign(part="point"), band.assign(part="law")], ignore_index=True)
    return Drawing(fig, drawn, sources(points, fit))


def _groups(fits: dict[Any, LawFit], venue: str, level: float) -> Drawing:
    drawn = []
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for i, (group, fit) in enumerate(fits.items()):
            if len(fit.law.columns) > 1:
                raise UserError(
                    f"Groups of the law {fit.law.name!r}, which has several columns, are drawn one by one."
                )
            style, (along, grid) = look(i), curves(fit)
            y, x = fit.table.names["y"], next(iter(fit.table.columns.values()))
            band = pd.concat([grid, fit.predict(grid, band="confidence", level=level)], axis=1)
            ax.plot(band[along], band["prediction"], color=style["color"], linestyle=style["linestyle"])
            ax.fill_between(band[along], band["low"], band["high"], color=style["color"], alpha=0.15, lw=0)
            ax.plot(x, fit.table.y, style["marker"], color=style["color"], label=str(group))
            log_axes(ax, fit, along)
            points = pd.DataFrame({along: x, y: fit.table.y, "part": "point"})
            drawn.append(pd.concat([points, band.assign(part="law")]).assign(group=group))
        label_axes(ax, along, y)
        legend(ax)
    return Drawing(
        fig, pd.concat(drawn, ignore_index=True), sources(fit={str(k): v for k, v in fits.items()})
    )


def residuals(fit: LawFit, venue: str = "neurips") -> Drawing:
    """Residuals in the fit's own space against its prediction, one colour a value of the law's first
    column."""
    name = fit.table.names[fit.law.columns[0]]
    predicted = fit.predict(pd.DataFrame({fit.table.names[c]: v for c, v in fit.table.columns.items()}))
    table = pd.DataFrame(
        {"predicted": predicted, "residual": fit.residuals, name: fit.table.columns[fit.law.columns[0]]}
    )
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.45)
        few = table[name].nunique() <= 10
        for value, style in looks(table, name).items() if few else [(np.nan, look(0))]:
            part = table[table[name] == value] if few else table
            dots: Any = style | {"linestyle": "none", "label": short(value) if few else None}
            ax.plot(part["predicted"], part["residual"], **dots)
        ax.axhline(0, color="0.4", linewidth=0.6)
        y = fit.table.names["y"]
        label_axes(
            ax,
            f"predicted {LABELS.get(y, y)}",
            "residual" if fit.space == "linear" else "residual of the logarithm",
        )
        if few:
            legend(ax, LABELS.get(name, name))
    return Drawing(fig, table, sources(fit=fit))


def forms(found: Comparison, venue: str = "neurips") -> Drawing:
    """Every compared law of one column, fitted without the tail and drawn through it with its 95 % confidence
    band, best first."""
    tests = {
        n: found.backtests[n] for n in found.table["law"] if len(found.backtests[n].fit.law.columns) == 1
    }
    if not tests:
        raise UserError("None of the compared laws has a single column to draw along.")
    drawn, collapsed = [], {name: _collapsed(test.fit) for name, test in tests.items()}
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for i, (name, test) in enumerate(tests.items()):
            along, grid = curves(test.fit, reach=1.0)
            top = max(test.held_out[along].max(), grid[along].max())
            grid = pd.DataFrame({along: np.geomspace(grid[along].min(), top, 100)})
            part = pd.concat([grid.assign(law=name), test.fit.predict(grid, band="confidence")], axis=1)
            line: Any = look(i) | {
                "marker": "",
                "label": f"{name.replace('_', ' ')}{collapsed[name] and f' ({collapsed[name]})'}, "
                f"tail error {test.rmse:.2g}",
            }
            ax.plot(part[along], part["prediction"], **line)
            ax.fill_between(part[along], part["low"], part["high"], color=line["color"], alpha=0.12, lw=0)
            drawn.append(part)
        ax.fill_between([], [], [], color="0.5", alpha=0.3, lw=0, label="95 % band of the curve")
        one = next(iter(tests.values()))
        y, column = one.fit.table.names["y"], one.fit.law.columns[0]
        along = one.fit.table.names[column]
        ax.plot(one.fit.table.columns[column], one.fit.table.y, "o", color="0.2", label="fitted")
        ax.plot(
            one.held_out[along], one.held_out[y], "o", color="0.2", markerfacecolor="none", label="held out"
        )
        ax.set_xscale("log")
        seen = np.concatenate([one.fit.table.y, one.held_out[y].to_numpy(float)])
        room = 0.5 * (seen.max() - seen.min())  # a band that explodes in the tail leaves the picture
        ax.set_ylim(max(seen.min() - room, ax.get_ylim()[0]), min(seen.max() + room, ax.get_ylim()[1]))
        label_axes(ax, along, y)
        legend(ax)
    caption = " ".join(
        f"The {name.replace('_', ' ')} law has the asymptote {why}, and is the law without one."
        for name, why in collapsed.items()
        if why
    )
    fits = {name.replace("_", " "): test.fit for name, test in tests.items()}
    return Drawing(fig, pd.concat(drawn, ignore_index=True), sources(fit=fits), caption)


def _collapsed(fit: LawFit) -> str:
    """That the law's asymptote went to zero, which leaves the law without one; empty where it did not."""
    name = fit.law.asymptote
    return f"{name} = 0" if name is not None and fit.at_bound.get(name) == 0 else ""


def intervals(fits: Mapping[Any, LawFit], level: float = 0.95, venue: str = "neurips") -> Drawing:
    """Estimates with their intervals, a panel a parameter and a row a fit (groups, forms, cuts).

    Ends beyond three times the largest estimate, open ones among them, leave the panel with an arrow. Where positive
    estimates or their upper ends differ by more than ten times, the panel is logarithmic and reaches ten times beyond
    the estimates, up and down.
    """
    rows = []
    for label, fit in fits.items():
        for name, (low, high) in fit.interval(level).items():
            rows.append(
                {"fit": str(label), "parameter": name, "value": fit.params[name], "low": low, "high": high}
            )
    table = pd.DataFrame(rows)
    names, labels = list(dict.fromkeys(table["parameter"])), list(dict.fromkeys(table["fit"]))
    with styled():
        fig, axes = new_axes(venue, len(names), 0.12 + 0.05 * len(labels))
        for ax, name in zip(axes, names, strict=True):
            part = table[table["parameter"] == name].reset_index(drop=True)
            place = [labels.index(label) for label in part["fit"]]
            value = part["value"]
            least, size = value.min(), value.abs().max() or 1.0
            if least > 0 and (size > 10 * least or part["high"].max() > 10 * size):
                ax.set_xscale("log")
                start, end = least / 10, 10 * size
            else:
                start, end = -3 * size, 3 * size
            low, high = part["low"].clip(lower=start), part["high"].clip(upper=end)
            error = np.maximum([value - low, high - value], 0)
            color = ax.errorbar(value, place, xerr=error, fmt="o", elinewidth=0.8, capsize=2)[0].get_color()
            # matplotlib's own limits leave out the bar on the other side of an arrow.
            for ends, beyond, arrow in ((low, part["low"] < start, "<"), (high, part["high"] > end, ">")):
                ax.plot(ends[beyond], np.array(place)[beyond], arrow, color=color, ms=4)
            ax.margins(x=0.12)
            grid: Any = ax.get_subplotspec()
            name_rows(ax, labels if grid.is_first_col() else [""] * len(labels))
            if ax.get_xscale() == "log":
                log_ticks(ax.xaxis, 2)
            else:
                ax.xaxis.set_major_locator(MaxNLocator(3))
            ax.set_title(symbol(name))
    return Drawing(fig, table, sources(fit=fits))


def transfer(evals: pd.DataFrame, venue: str = "neurips", seed: int = 0) -> Drawing:
    """How much training in each cell changed pass@1 in each domain: the transfer matrix of a mixture study.

    Each change has its 95 % interval, from resampling held-out problems, each with its answers before and
    after.
    """
    graded = evals[evals["correct"].notna()].assign(correct=lambda d: d["correct"].astype(float))
    ends = evals.groupby("run")["step"].agg(["min", "max"])
    keys = ["cell", "data_source", "task_id"]
    before, after = (
        graded[graded["step"] == graded["run"].map(ends[end])].groupby(keys)["correct"].mean()
        for end in ("min", "max")
    )
    change, rows = (after - before).dropna(), []
    for key, part in change.groupby(level=["cell", "data_source"]):
        cell, source = key  # type: ignore[misc]
        rng = generator("drawings", "transfer", seed, str(cell), str(source))
        value, low, high, tasks = bootstrap_mean(part.to_numpy(), rng=rng)
        row = {"cell": cell, "data_source": source, "change of pass@1": value, "low": low, "high": high}
        rows.append({**row, "tasks": tasks})
    table = pd.DataFrame(rows)
    order = [cell for cell in colours(evals, "cell") if (table["cell"] == cell).any()]
    places = {name: i for i, name in enumerate(order)}
    domains = {name: j for j, name in enumerate(sorted(set(table["data_source"])))}
    limit = max(float(table["change of pass@1"].abs().max()), 1e-9)
    matrix = np.full((len(places), len(domains)), np.nan)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.08 * len(places))
        for row in rows:
            i, j, value = places[row["cell"]], domains[row["data_source"]], row["change of pass@1"]
            matrix[i, j] = value
            shade = "white" if abs(value) > 0.6 * limit else "black"
            text = f"{value:+.3f}\n[{row['low']:+.3f}, {row['high']:+.3f}]"
            ax.text(j, i, text, ha="center", va="center", color=shade, fontsize=7)
        image = ax.imshow(matrix, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        ax.set_xticks(range(len(domains)), [domain_name(name).replace(": ", "\n") for name in domains])
        name_rows(ax, list(places))
        ax.grid(visible=False)
        if fig.get_size_inches()[0] >= NARROW:  # in a column the numbers need its room
            fig.colorbar(image, label="change of pass@1")
    return Drawing(fig, table, sources(evals))
