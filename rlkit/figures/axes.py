"""Axes of a venue's width, their labels and limits, and where a legend has room."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlkit.errors import UserError
from rlkit.figures.theme import FONT, LABELS, WIDTHS, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

NARROW = 4.0  # inches below which a legend goes under the axes

SHARES = ("error", "pass@1", "eval/pass@1", "pass@k")
"""Columns that are shares: whatever a law or a band says, they lie between 0 and 1."""


LETTERED = "lettered"  # the label of a figure whose panels share one legend, which it draws itself


def new_axes(venue: str, panels: int, aspect: float, ax: "Axes | None" = None) -> "tuple[Figure, list[Axes]]":
    """A figure of the venue's exact width with one row of panels, or more where they would be too narrow.

    It is not pyplot's, so nothing has to be closed.

    Args:
        aspect: height of a row over the figure's width; a single narrow panel is at least 0.75.
        ax: draw on this panel of another figure instead.
    """
    from matplotlib.figure import Figure

    if ax is not None:
        figure: Any = ax.get_figure()
        return figure, [ax]
    if venue not in WIDTHS:
        raise UserError(f"venue is {venue!r}: use one of {', '.join(WIDTHS)}.")
    width = WIDTHS[venue]
    columns = min(panels, max(1, int(width // 1.3)))
    rows = -(-panels // columns)
    if width < NARROW:
        aspect = max(aspect, 0.75 if panels == 1 else 0.5)
    height = rows * max(width * aspect, 0.9)
    fig = Figure(figsize=(width, height))
    axes = list(fig.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[panels:]:
        spare.remove()
    return fig, axes[:panels]


def label_axes(ax: "Axes", x: str, y: str) -> None:
    """Axis labels in words, for columns that have some; one that is longer than its axis is wrapped. An axis of a share
    ends where shares do, and a logarithmic one has ticks to read values from; scales are to be set before."""
    for name, limits, limit in ((x, ax.get_xlim, ax.set_xlim), (y, ax.get_ylim, ax.set_ylim)):
        low, high = limits() if name in SHARES else (0.0, 1.0)
        if low < -0.02 or high > 1.02:  # with room for a marker at the end
            limit(max(low, -0.02), min(high, 1.02))
    ax.set_xlabel(wrapped(LABELS.get(x, x), ax, 0))
    ax.set_ylabel(wrapped(LABELS.get(y, y), ax, 1))
    for axis, room in ((ax.xaxis, _room(ax, 0) / 0.4), (ax.yaxis, _room(ax, 1) / 0.16)):
        log_ticks(axis, max(3, min(6, int(room))))
        _linear_ticks(axis, max(3, min(6, int(room))))


def _linear_ticks(axis: "Axis", room: int) -> None:
    """Three round numbers or more on a linear axis, thousands as 10k; axes with ticks of their own keep them."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, MaxNLocator

    if type(axis.get_major_locator()) is not AutoLocator:
        return
    axis.set_major_locator(MaxNLocator(room, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    if max(map(abs, axis.get_view_interval())) >= 10_000:
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def share_scales(axes: "Sequence[Axes]") -> None:
    """One pair of scales for all panels, so that heights can be compared across them."""
    for ax in axes[1:]:
        ax.sharex(axes[0])
        ax.sharey(axes[0])


def outer_labels(axes: "Sequence[Axes]") -> None:
    """Panels of one x axis name it once a column, below; panels that share their y axis name it once a row, left."""
    grid: Any = axes[0].get_subplotspec()
    columns = grid.get_gridspec().ncols
    for place, ax in enumerate(axes):
        if place + columns < len(axes):
            ax.set_xlabel("")
        if place % columns and ax.get_shared_y_axes().joined(ax, axes[0]):
            ax.set_ylabel("")


def log_ticks(axis: "Axis", room: int = 6) -> None:
    """Ticks, all with labels, for what a logarithmic axis shows, however little: powers of ten where they are three,
    else 1 and 3, or 1, 2 and 5 of each, else two powers of ten or the round numbers of a linear axis. Axes with ticks
    of their own keep them.

    Args:
        room: for how many labels there is room.
    """
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter

    if not isinstance(axis.get_major_locator(), LogLocator) or getattr(axis.get_transform(), "base", 0) != 10:
        return
    low, high = sorted(axis.get_view_interval())
    powers = (LogLocator(10, subs, numticks=room) for subs in ((1,), (1, 3), (1, 2, 5)))
    locators = [*powers, MaxNLocator(room, steps=[1, 2, 5, 10])]
    choices = [[t for t in locator.tick_values(low, high) if low <= t <= high] for locator in locators]
    fallback = choices[0] if len(choices[0]) > 1 else choices[-1]
    ticks = next((found for found in choices[:-1] if 3 <= len(found) <= max(room, 3)), fallback)
    ticks = ticks[:: -(-len(ticks) // room)] if room < 3 else ticks
    power = LogFormatterSciNotation(minor_thresholds=(float("inf"), float("inf")))
    power.set_axis(axis)
    plain = room < 4 or (ticks[-1] < 1e9 and ticks[-1] <= 300 * ticks[0])
    axis.set_ticks(ticks, [short(tick) if plain else power(tick) for tick in ticks])
    axis.set_minor_formatter(NullFormatter())


def name_rows(ax: "Axes", names: Sequence[str]) -> None:
    """A row for each name, the first at the top. One longer than half the figure is wrapped, in rows as much higher."""
    fig: Any = ax.get_figure()
    width, height = fig.get_size_inches()
    letters = int(width / 2 * 19)  # an inch holds 19 at 8 points
    shown = [
        "\n".join(textwrap.fill(line, letters, break_long_words=False) for line in name.split("\n"))
        for name in names
    ]
    lines = max(new.count("\n") - old.count("\n") for new, old in zip(shown, names, strict=True))
    fig.set_size_inches(width, height + 0.14 * lines * len(names))
    ax.set_yticks(range(len(names)), shown, linespacing=0.95)
    ax.set_ylim(len(names) - 0.5, -0.5)


def note(ax: "Axes", sentence: str) -> None:
    """A sentence in small type over the axes, from the figure's left edge, that readers must not miss."""
    fig: Any = ax.get_figure()
    if sentence:
        letters = int(fig.get_size_inches()[0] * 20)  # an inch holds 20 and more at 7 points
        fig.suptitle(textwrap.fill(sentence, letters), x=0.01, ha="left", fontsize=7)


def wrapped(text: str, ax: "Axes", direction: int) -> str:
    """A text on as many lines as it needs beside an axis: 0 is the x axis (and a panel's title), 1 the y axis."""
    letters = max(16, int(_room(ax, direction) * 17))  # an inch holds 17 at 9 points
    return textwrap.fill(text, letters, break_on_hyphens=False, break_long_words=False)


def _room(ax: "Axes", direction: int) -> float:
    """About how many inches an axis has: its panel without tick labels and the other axis's label."""
    fig: Any = ax.get_figure()
    grid = ax.get_subplotspec()
    panels = 1 if grid is None else grid.get_gridspec().get_geometry()[1 - direction]
    return fig.get_size_inches()[direction] / panels - 0.7


def legend(ax: "Axes", title: str | None = None) -> None:
    """The legend beside the axes of a figure that is high enough for it; under them, in small type and with room of its
    own, in a narrow column or a figure of several panels."""
    fig: Any = ax.get_figure()
    if fig.get_label() == LETTERED:
        return
    width, height = fig.get_size_inches()
    handles, labels = ax.get_legend_handles_labels()
    if width >= NARROW and len(fig.axes) == 1:
        entries = len(labels) + (title is not None)
        fig.set_size_inches(width, max(height, 0.3 + 0.165 * entries))
        ax.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5))
        return
    legend_below(fig, handles, labels, title)


def legend_below(fig: Any, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """A legend under the figure, in small type and as even rows as it takes; the figure grows by its height."""
    width, height = fig.get_size_inches()
    points = 7 if width < NARROW else 8
    gap, line = 1.2 * points / 72, 1.45 * points / 72  # inches between columns, and of a row
    longest = max((_inches(label, points) for label in labels), default=1) + 2.8 * points / 72
    columns = max(1, min(len(labels), int((width - 0.1 + gap) / (longest + gap))))
    rows = -(-len(labels) // columns)
    columns = -(-len(labels) // rows)  # as even as the rows allow
    fig.set_size_inches(width, height + line * (rows + (title is not None)))
    fig.legend(
        handles, labels, title=title, loc="outside lower center", ncols=columns, fontsize=points,
        title_fontsize=points, handlelength=2.2, handletextpad=0.5, columnspacing=1.2, labelspacing=0.25,
    )  # fmt: skip


def label_ends(ax: "Axes") -> None:
    """Each labelled line's name beside its last point, in its colour, as far apart as the type needs; a legend instead
    where names are longer than a third of the figure or more than fit above each other. Limits are to be set before."""
    fig: Any = ax.get_figure()
    if fig.get_label() == LETTERED:
        return
    width, height = fig.get_size_inches()
    lines = [
        line for line in ax.lines if not str(line.get_label()).startswith("_") and np.size(line.get_xdata())
    ]
    points = 7 if width < NARROW else 8
    line_height = 1.15 * points / 72 / max(height - 0.6, 0.3)  # as a share of the axis
    longest = max((_inches(str(line.get_label()), points) for line in lines), default=0)
    if not lines or longest > width / 3 or len(lines) * line_height > 1:
        legend(ax)
        return
    to_axes = ax.transScale + ax.transLimits
    ends = [
        float(to_axes.transform([float(np.asarray(d, float)[-1]) for d in line.get_data()])[1])
        for line in lines
    ]
    for line, place in zip(lines, _apart(ends, line_height), strict=True):
        ax.annotate(
            str(line.get_label()), (1, place), xytext=(4, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", fontsize=points, color=line.get_color(), annotation_clip=False,
        )  # fmt: skip


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The places moved as little as makes neighbours at least `gap` apart, between 0 and 1."""
    order = np.argsort(places, kind="stable")
    index = np.arange(len(places))
    wanted = np.asarray(places, float)[order] - gap * index
    blocks: list[list[float]] = []  # of equal offset: their mean, how many
    for value in wanted:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, count), (last, more) = blocks[-2], blocks[-1]
            blocks[-2:] = [[(mean * count + last * more) / (count + more), count + more]]
    offset = np.concatenate([np.full(int(count), mean) for mean, count in blocks])
    moved = np.clip(offset, 0, max(0, 1 - gap * (len(places) - 1))) + gap * index
    found = np.empty(len(places))
    found[order] = moved
    return [float(place) for place in found]


def _inches(text: str, points: float) -> float:
    """How wide a text is."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family=FONT)
    return TextPath((0, 0), text, size=points, prop=font).get_extents().width / 72 if text.strip() else 0.0
