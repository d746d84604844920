"""Axes of a venue's width, their labels and limits, and where a legend has room."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from rlkit.figures.theme import LABELS, short, width_of

NARROW = 4.0  # inches below which a legend goes under the axes

SHARES = ("error", "pass@1", "eval/pass@1", "pass@k")
"""Columns that are shares: whatever a law or a band says, they lie between 0 and 1."""

LETTERED = "lettered"  # the label of a figure whose panels share one legend, which it draws itself


def new_axes(venue: str, panels: int, aspect: float, ax: Axes | None = None) -> tuple[Figure, list[Axes]]:
    """A figure of the venue's exact width with one row of panels, or more where they would be too narrow. It is not
    pyplot's, so nothing has to be closed.

    Args:
        aspect: height of a row over the figure's width. ax: draw on this panel of another figure instead.
    """
    if ax is not None:
        figure: Any = ax.figure
        return figure, [ax]
    width = width_of(venue)
    columns = min(panels, max(1, int(width // 1.3)))
    rows = -(-panels // columns)
    if width < NARROW:
        aspect = max(aspect, 0.75 if panels == 1 else 0.5)
    fig = Figure(figsize=(width, rows * max(width * aspect, 0.9)))
    axes = list(fig.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[panels:]:
        spare.remove()
    return fig, axes[:panels]


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Axis labels in words, for columns that have some; one that is longer than its axis is wrapped. An axis of a share
    ends where shares do, and there are three ticks or more to read values from; scales are to be set before."""
    sides = (
        (x, ax.xaxis, ax.set_xlim, 0.4),
        (y, ax.yaxis, ax.set_ylim, 0.16),
    )  # inches that a tick's label takes
    for direction, (name, axis, limit, inches) in enumerate(sides):
        low, high = axis.get_view_interval()
        if name in SHARES and (low < -0.02 or high > 1.02):  # with room for a marker at the end
            limit(max(low, -0.02), min(high, 1.02))
        axis.set_label_text(wrapped(LABELS.get(name, name), ax, direction))
        labels = max(3, min(6, int(_room(ax, direction) / inches)))
        if isinstance(axis.get_major_locator(), ticker.LogLocator):
            _log_ticks(axis, labels)
        elif type(axis.get_major_locator()) is ticker.AutoLocator:
            axis.set_major_locator(ticker.MaxNLocator(labels, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
            if max(map(abs, axis.get_view_interval())) >= 10_000:
                axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))


def _log_ticks(axis: Axis, room: int) -> None:
    """Ticks, all with labels, for what a logarithmic axis of base 10 shows, however little: powers of ten where they
    are three, else 1 and 3, or 1, 2 and 5 of each, else two powers of ten or round numbers, and no more than `room`."""
    if getattr(axis.get_transform(), "base", 0) != 10:
        return
    low, high = sorted(axis.get_view_interval())
    locators = [ticker.LogLocator(10, subs, numticks=room) for subs in ((1,), (1, 3), (1, 2, 5))]
    locators.append(ticker.MaxNLocator(room, steps=[1, 2, 5, 10]))
    choices = [[t for t in locator.tick_values(low, high) if low <= t <= high] for locator in locators]
    fallback = choices[0] if len(choices[0]) > 1 else choices[-1]
    ticks = next((found for found in choices[:-1] if 3 <= len(found) <= room), fallback)
    plain = room < 4 or (ticks[-1] < 1e9 and ticks[-1] <= 300 * ticks[0])
    power = ticker.LogFormatterSciNotation(minor_thresholds=(float("inf"), float("inf")))
    power.set_axis(axis)
    axis.set_ticks(ticks, [short(tick) if plain else power(tick) for tick in ticks])
    axis.set_minor_formatter(ticker.NullFormatter())


def outer_labels(axes: Sequence[Axes]) -> None:
    """Panels of one x axis name it once a column, below; panels that share their y axis name it once a row, left."""
    grid: Any = axes[0].get_gridspec()
    for place, ax in enumerate(axes):
        if place < len(axes) - grid.ncols:
            ax.set_xlabel("")
        if place % grid.ncols and ax.get_shared_y_axes().joined(ax, axes[0]):
            ax.set_ylabel("")


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """A row for each name, the first at the top. One longer than half the figure is wrapped, in rows as much higher."""
    fig: Any = ax.figure
    width, height = fig.get_size_inches()
    # An inch holds 19.
    shown = [textwrap.fill(name, int(width / 2 * 19), break_long_words=False) for name in names]
    lines = max(name.count("\n") for name in shown)
    fig.set_size_inches(width, height + 0.14 * lines * len(names))
    ax.set_yticks(range(len(names)), shown, linespacing=0.95)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def wrapped(text: str, ax: Axes, direction: int) -> str:
    """A text on as many lines as it needs beside an axis: 0 is the x axis (and a panel's title), 1 the y axis."""
    letters = max(16, int(_room(ax, direction) * 17))  # an inch holds 17 at 9 points
    return textwrap.fill(text, letters, break_on_hyphens=False, break_long_words=False)


def _room(ax: Axes, direction: int) -> float:
    """About how many inches an axis has: its panel without tick labels and the other axis's label."""
    fig, grid = ax.figure, ax.get_gridspec()
    panels = 1 if grid is None else grid.get_geometry()[1 - direction]
    return fig.get_size_inches()[direction] / panels - 0.7  # type: ignore[union-attr]


def legend(ax: Axes, title: str | None = None, ends: bool = False) -> None:
    """The legend beside the axes of a figure that is high enough for it; under them, in small type and with room of its
    own, in a narrow column or a figure of several panels. `ends`: of curves, beside the axes in the order in which they
    end and in their colours."""
    fig: Any = ax.figure
    if fig.get_label() == LETTERED:
        return
    width, height = fig.get_size_inches()
    handles: Any
    handles, labels = ax.get_legend_handles_labels()
    beside: Any = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    if ends and len(labels) < 12:
        curves = sorted(zip(handles, labels, strict=True), key=lambda curve: -curve[0].get_ydata()[-1])
        small: Any = {"fontsize": 7 if width < NARROW else 8, "handlelength": 1.2, "handletextpad": 0.4}
        ax.legend(*zip(*curves, strict=True), **beside, **small, labelcolor="linecolor", borderpad=0)
    elif width < NARROW or len(fig.axes) > 1:
        legend_below(fig, handles, labels, title)
    else:
        fig.set_size_inches(width, max(height, 0.3 + 0.165 * (len(labels) + (title is not None))))
        ax.legend(title=title, **beside)


def legend_below(fig: Any, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """A legend under the figure, in small type and as even rows as it takes; the figure grows by its height."""
    width, height = fig.get_size_inches()
    points = 7 if width < NARROW else 8
    longest = (0.48 * max(map(len, labels), default=0) + 4) * points / 72  # inches, with its mark and a gap
    rows = -(-len(labels) // max(1, int(width / longest)))
    fig.set_size_inches(width, height + 1.45 * points / 72 * (rows + (title is not None)))
    fig.legend(
        handles, labels, title=title, loc="outside lower center", ncols=max(-(-len(labels) // max(rows, 1)), 1),
        fontsize=points, title_fontsize=points, handlelength=2.2, handletextpad=0.5, columnspacing=1.2,
        labelspacing=0.25,
    )  # fmt: skip
