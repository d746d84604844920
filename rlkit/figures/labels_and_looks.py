"""One look for all figures: venues' widths, labels, axes, legends, and a colour, marker and line for each model."""

import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import matplotlib.style
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rlkit.errors import UserError, did_you_mean
from rlkit.measures.summary import in_order

STYLE = Path(__file__).with_name("style.mplstyle")

WIDTHS = {
    "neurips": 5.5, "iclr": 5.5, "colm": 5.5, "jmlr": 6.0, "tmlr": 6.5,
    "icml": 3.25, "icml-text": 6.75, "acl": 3.03, "acl-text": 6.3, "aaai": 3.3, "aaai-text": 7.0,
    "cvpr": 3.25, "cvpr-text": 6.875,
}  # fmt: skip
"""Inches of the text width, or of a column where the venue prints two (`-text` spans both): the style files of 2025."""

LABELS = {
    "step": "training steps",
    "compute/total_flops": "training FLOPs, all phases",
    "tokens/response": "response tokens",
    "compute/seconds": "training seconds",
    "training/environment_steps": "environment steps taken in training",
    "level": "held-out pass@1 reached",
    "budget": "budget, rollouts",
    "rollout.n": "rollouts a prompt",
    "pass@1": "held-out pass@1",
    "data.train_max_samples": "unique training tasks",
    "data.sft_ratio": "share with worked answers",
    "distinct": "share of distinct responses",
    "group/zero_variance": "groups of equal rewards",
    "actor/kl_loss": "KL, nats a token",
    "compute/train_6nt_flops": "training FLOPs, 6NT",
    "parameters_non_embedding": "non-embedding parameters",
    "eval/pass@1": "held-out pass@1",
    "error": "held-out error, 1\N{NO-BREAK SPACE}−\N{NO-BREAK SPACE}pass@1",
    "critic/score/mean": "training score",
    "response_length/mean": "response length, tokens",
    "actor/grad_norm": "gradient norm",
    "actor/entropy": "entropy, nats a token",
}

PALETTE = matplotlib.rc_params_from_file(STYLE)["axes.prop_cycle"].by_key()["color"]
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))

RAMPS = (
    (1e4, 3e4, 5e4, 6e4, 1e5, 1.5e5, 2e5, 3e5, 6e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8),
    (1.35e8, 3.6e8, 5e8, 6e8, 1.5e9, 1.7e9, 3e9, 4e9, 7e9, 8e9, 1.4e10, 3.2e10, 7.2e10),
)
"""Nominal sizes. Small models and large ones are rarely drawn together, so each range has a ramp of colours."""
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}

NARROW = 4.0  # inches below which a legend goes under the axes

SHARES = ("error", "pass@1", "eval/pass@1", "pass@k", "data.sft_ratio")
"""Columns that are shares: whatever a law or a band says, they lie between 0 and 1."""

LETTERED = "lettered"  # the label of a figure whose panels share one legend, which it draws itself


def theme() -> None:
    """Use the look of these figures for everything that this process draws with matplotlib."""
    matplotlib.style.use(STYLE)


def styled() -> AbstractContextManager[None]:
    """The look of these figures inside a `with` block only."""
    return matplotlib.style.context(STYLE)


def looks(df: pd.DataFrame, by: str = "model.path") -> dict[Any, dict[str, Any]]:
    """`color`, `marker` and `linestyle` of each value of `by` in the table, smallest model first.

    The colour of a model with a nominal size is that size's step on a ramp from light (small) to dark (large), the same
    in every figure of every study, and its line is solid. Where a study has variants, the colour of a cell is its
    variant's, the first of the study's file first, and marker and line are those of its size or of what else the grid
    varies; a grid over sizes has their colours. Other values take the looks in their order (by size, then by value)."""
    pairs = in_order(df, by)
    names, models = list(pairs[by]), list(pairs["model.path"]) if "model.path" in pairs else []
    if by == "parameters_non_embedding":
        styles = _of_sizes(names)
    elif len(set(models)) == len(names):  # variants may name sizes
        styles = _of_models(models)
    elif "variant_place" in pairs and pairs["variant"].nunique() > 1:
        styles = _of_variants(pairs, by)
    else:  # a grid over sizes has their colours, and markers and lines of what else it varies
        sized = dict(zip(dict.fromkeys(models), _of_models(list(dict.fromkeys(models))), strict=True))
        styles = [look(models[:i].count(models[i]) if models else i) for i in range(len(names))]
        if len(sized) > 1:
            both = zip(styles, models, strict=True)
            styles = [style | {"color": sized[model]["color"]} for style, model in both]
    present = set(df[by])
    return {name: style for name, style in zip(names, styles, strict=True) if name in present}


def _of_models(models: Sequence[Any]) -> list[dict[str, Any]]:
    """The looks of models: steps of the ramp where all names have a size, else by their order."""
    names = [str(model).rsplit("/", 1)[-1].lower() for model in models]
    found = [re.search(r"(\d+(?:\.\d+)?)([kmb])(?![a-z0-9])", name) for name in names]
    sizes = [float(size[1]) * UNITS[size[2]] for size in found if size]
    return _of_sizes(sizes) if len(sizes) == len(models) else list(map(look, range(len(models))))


def _of_sizes(sizes: Sequence[float]) -> list[dict[str, Any]]:
    """The looks of numbers of parameters, the nearest step of a ramp; a second one of a step has another marker."""
    steps = [(i / (len(ramp) - 1), size) for ramp in RAMPS for i, size in enumerate(ramp)]
    places, found = [], []
    for size in sizes:
        place = min(range(len(steps)), key=lambda i: abs(math.log(steps[i][1] / max(size, 1))))
        colour = to_hex(matplotlib.colormaps["plasma"](0.78 * (1 - steps[place][0])))  # no palest fifth
        marker = MARKERS[(place + places.count(place)) % len(MARKERS)]
        found.append({"color": colour, "marker": marker, "linestyle": "-"})
        places.append(place)
    return found


def _of_variants(pairs: pd.DataFrame, by: str) -> list[dict[str, Any]]:
    """The colour of each row's variant, with the marker and line of what it has beside that."""
    named = zip(pairs[by].astype(str), pairs["variant"].astype(str), strict=True)
    beside = [name.removeprefix(variant) for name, variant in named]
    colours = [look(int(place)) for place in pairs["variant_place"]]
    if len(set(beside)) == 1:
        return colours
    models = dict(zip(beside, pairs["model.path"], strict=True))
    unique = len(set(models.values())) == len(models)
    told = _of_models(list(models.values())) if unique else map(look, range(len(models)))
    styles = dict(zip(models, told, strict=True))
    return [styles[name] | {"color": one["color"]} for name, one in zip(beside, colours, strict=True)]


def look(place: int) -> dict[str, Any]:
    """The look of a place in the order: colour, marker and line have cycles of different lengths."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }


def width_of(venue: str) -> float:
    """Inches of a venue's text or column. Raises UserError for an unknown one."""
    if venue not in WIDTHS:
        raise UserError(f"venue is {venue!r}.{did_you_mean(venue, WIDTHS)} Use one of {', '.join(WIDTHS)}.")
    return WIDTHS[venue]


def short(value: float) -> str:
    """A number for a legend: 107k, 1.5M, 0.0003; a whole one of four digits, as an axis has it: 1024."""
    if abs(value) < 1000 or (value == int(value) and abs(value) < 10_000):
        return f"{value:.4g}" if value == int(value) else f"{value:.3g}"
    return ticker.EngFormatter(sep="", useMathText=False)(float(f"{value:.3g}"))


def new_axes(venue: str, panels: int, aspect: float, ax: Axes | None = None) -> tuple[Figure, list[Axes]]:
    """A figure, none of pyplot's, of the venue's exact width with one row of panels, or more where they would be too
    narrow; `aspect` is the height of a row over that width. `ax`: draw on this panel of another figure instead."""
    if ax is not None:
        return ax.figure, [ax]  # type: ignore[return-value]
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
    ends where shares do, and large numbers are short; scales are to be set before."""
    sides = ((x, ax.xaxis, ax.set_xlim), (y, ax.yaxis, ax.set_ylim))
    for direction, (name, axis, limit) in enumerate(sides):
        low, high = axis.get_view_interval()
        if name in SHARES and (low < -0.02 or high > 1.02):  # with room for a marker at the end
            limit(max(low, -0.02), min(high, 1.02))
        axis.set_label_text(wrapped(LABELS.get(name, name), ax, direction))
        locator, scale = axis.get_major_locator(), getattr(axis.get_transform(), "base", 0)
        if isinstance(locator, ticker.LogLocator):
            if scale == 10 and high <= 300 * max(low, 1e7):  # else powers of ten, as they are
                decades, room = math.log10(high / low), axis.get_tick_space()
                subs = (1, 2, 5) if room > 6 * decades else (1, 3) if room > 2 * decades else (1,)
                few = ticker.MaxNLocator(max(2, 2 * room // 3), steps=[1, 2, 5, 10])
                axis.set_major_locator(few if decades < 0.6 else ticker.LogLocator(subs=subs))
                power = ticker.LogFormatterSciNotation(minor_thresholds=(math.inf, math.inf))
                axis.set_major_formatter((lambda value, _: short(value)) if high < 1e12 else power)
                axis.set_minor_formatter(ticker.NullFormatter())
        elif type(locator) is ticker.AutoLocator:
            locator.set_params(min_n_ticks=3)
            if max(abs(low), abs(high)) >= 10_000:
                axis.set_major_formatter(lambda value, _: short(value))


def outer_labels(axes: Sequence[Axes], y: bool = True) -> None:
    """Leave the labels of axes that are alike to the panels below and, of `y`, at the left."""
    columns: Any = axes[0].get_gridspec().ncols  # type: ignore[union-attr]
    for place, ax in enumerate(axes):
        if place < len(axes) - columns:
            ax.set_xlabel("")
        if y and place % columns:
            ax.set_ylabel("")


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """A row for each name, the first at the top. One longer than half the figure is wrapped, in rows as much higher."""
    fig: Any = ax.figure
    width, height = fig.get_size_inches()
    shown = [textwrap.fill(name, int(width / 2 * 19), break_long_words=False) for name in names]
    lines = max(name.count("\n") for name in shown)
    fig.set_size_inches(width, height + 0.14 * lines * len(names))
    ax.set_yticks(range(len(names)), shown, linespacing=0.95)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def wrapped(text: str, ax: Axes, direction: int) -> str:
    """A text on as many lines as it needs beside an axis: 0 is the x axis (and a panel's title), 1 the y axis."""
    letters = max(16, int(ax.bbox.size[direction] / ax.figure.dpi * 15))  # an inch holds 15 at 9 points
    return textwrap.fill(text, letters, break_on_hyphens=False, break_long_words=False)


def legend(ax: Axes, title: str | None = None, ends: bool = False) -> None:
    """The legend beside the axes of a figure, which is made high enough; under them in a narrow column or a figure of
    several panels. `ends`: of curves, beside the axes in the order and colour of their ends."""
    fig: Any = ax.figure
    if fig.get_label() == LETTERED:
        return
    width, height = fig.get_size_inches()
    handles, labels = cast(tuple[list[Any], list[str]], ax.get_legend_handles_labels())
    beside: Any = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    if ends and len(labels) < 12:
        curves = sorted(zip(handles, labels, strict=True), key=lambda curve: -curve[0].get_ydata()[-1])
        small: Any = {"fontsize": 7 if width < NARROW else 8, "handlelength": 1.2, "labelcolor": "markeredgecolor"}
        ax.legend(*zip(*curves, strict=True), title=title and wrapped(title, ax, 1), **beside, **small)
    elif width < NARROW or len(fig.axes) > 1:
        legend_below(fig, handles, labels, title)
    else:
        made = ax.legend(title=title, **beside)
        fig.set_size_inches(width, max(height, made.get_window_extent().height / fig.dpi))


def legend_below(fig: Any, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """A legend under the figure, as even rows as it takes; the figure grows by its height."""
    (width, height), points = fig.get_size_inches(), 7
    longest = (0.48 * max(map(len, labels), default=0) + 4) * points / 72  # inches, with its mark and a gap
    rows = math.ceil(len(labels) / max(1, int(width / longest)))
    columns = math.ceil(len(labels) / max(rows, 1))
    place: Any = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.2, "labelspacing": 0.25}
    made = fig.legend(handles, labels, title=title, fontsize=points, title_fontsize=points, **place)
    fig.set_size_inches(width, height + made.get_window_extent().height / fig.dpi)
