"""What compute buys: the frontier of sizes, and learning curves that collapse onto one another."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from rlkit.errors import UserError
from rlkit.figures.axes import label_axes, legend, new_axes
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import LABELS, look, looks, short, styled
from rlkit.measures.tables import curve_table, first_at

HARDLY = 0.1  # of the largest change of a run
SEEDS = 3  # of a cell, for a mean whose shape is not that of its noise


def collapse(
    df: pd.DataFrame, x: str, metric: str = "eval/pass@1", by: str = "cell", venue: str = "neurips"
) -> Drawing:
    """Learning curves as shares of their own end: those of a family with one shape fall on one curve.

    Runs that change by less than HARDLY of what the others do have no shape of their own, only noise many times as
    high: they are left out, and the caption says how many.

    Args:
        df: from `rlkit.read`. x: a metric that grows along training, e.g. compute.

    Raises:
        UserError: no run changes the metric between its first and last evaluation; a cell has fewer than SEEDS runs,
            whose mean still shows the noise of its runs.
    """
    table = curve_table(df, x, metric, by).sort_values("step")
    if (fewest := table.groupby(by)["run"].nunique().min()) < SEEDS:
        raise UserError(f"This needs {SEEDS} seeds a cell, and a cell has {fewest}.")
    runs = table.groupby("run")
    first, last = runs[metric].transform("first"), runs[metric].transform("last")
    change = (last - first).abs()
    table = table.assign(
        share=table[x] / runs[x].transform("max"), progress=(table[metric] - first) / (last - first)
    )
    table = table[np.isfinite(table["progress"]) & (change > max(1e-9, HARDLY * change.max()))]
    if table.empty:
        raise UserError(f"No run changes {metric} between its first and last evaluation.")
    flat = runs.ngroups - table["run"].nunique()
    caption = f"{flat} of {runs.ngroups} runs, which hardly change, are left out." if flat else ""
    styles = looks(df, by)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name in (n for n in styles if (table[by] == n).any()):
            part = table[table[by] == name]
            for _, run in part.groupby("run"):
                ax.plot(run["share"], run["progress"], color=styles[name]["color"], alpha=0.35, linewidth=0.6)
            mean = part.groupby("step")[["share", "progress"]].mean()
            ax.plot(mean["share"], mean["progress"], **styles[name], label=str(name))
        label_axes(
            ax,
            f"share of a run's {LABELS.get(x, x)}",
            f"share of its change of {LABELS.get(metric, metric)}",
        )
        legend(ax)
    return Drawing(fig, table, sources(df), caption)


def frontier(
    df: pd.DataFrame,
    compute: str,
    metric: str = "eval/pass@1",
    size: str = "parameters_non_embedding",
    levels: int = 5,
    venue: str = "neurips",
) -> Drawing:
    """Iso-performance: a grey line joins the compute at which each size first reaches one level, each size in its
    model's own look; the lowest point of a line is the best size. Points are of the mean over a size's runs, bars span
    the runs that reach the level.

    Args:
        df: from `rlkit.read`. levels: how many, evenly spaced over what at least two sizes rise to.

    Raises:
        UserError: fewer than two sizes, or no level that two of them rise to.
    """
    table = curve_table(df.dropna(subset=size), compute, metric, size)
    table = table[table[compute] > 0].sort_values("step")
    mean = table.groupby([size, "step"], as_index=False)[[compute, metric]].mean()
    ends = mean.groupby(size)[metric].agg(["min", "max"])
    if len(ends) < 2:
        raise UserError(f"A frontier needs two sizes or more, and column {size!r} has {len(ends)}.")
    tops = ends["max"].sort_values()
    rows = []
    for level in np.linspace(ends["min"].min(), tops.iloc[-2], levels + 1)[1:]:
        reached = [
            _reached(table[table[size] == value], mean[mean[size] == value], compute, metric, level)
            for value in ends.index
        ]
        found = [{metric: level, size: v, **r} for v, r in zip(ends.index, reached, strict=True) if r]
        rows += found if len(found) > 1 else []
    if not rows:
        raise UserError(
            f"No level of {metric} is one that two sizes rise to: each begins where the one before it ends."
        )
    found = pd.DataFrame(rows)
    styles = looks(df.dropna(subset=size), size)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for place, (level, part) in enumerate(found.groupby(metric)):
            line = {"color": str(0.25 + 0.1 * place), "linestyle": look(place)["linestyle"], "linewidth": 0.9}
            ax.plot(
                part[size], part[compute], **line, zorder=1, label=f"{LABELS.get(metric, metric)} {level:.3f}"
            )
        for value, part in found.groupby(size):
            style: Any = styles[value] | {"linestyle": "none"}
            error = [part[compute] - part["low"], part["high"] - part[compute]]
            ax.errorbar(part[size], part[compute], yerr=error, **style, elinewidth=0.6, capsize=1.5)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ticks = sorted(set(found[size]))
        ax.set_xticks(ticks, list(map(short, ticks)))
        ax.xaxis.set_minor_locator(NullLocator())
        label_axes(ax, size, compute)
        legend(ax)
    return Drawing(fig, found, sources(df))


def _reached(
    runs: pd.DataFrame, mean: pd.DataFrame, compute: str, metric: str, level: float
) -> dict[str, float] | None:
    """The compute at which the mean over a size's runs reaches a level, and the least and most of the runs that do."""
    need = _compute_at(mean, compute, metric, level)
    if need is None:
        return None
    single = [_compute_at(run, compute, metric, level) for _, run in runs.groupby("run")]
    ends = [need, *(value for value in single if value is not None)]
    return {compute: need, "low": min(ends), "high": max(ends)}


def _compute_at(curve: pd.DataFrame, compute: str, metric: str, level: float) -> float | None:
    """The compute at which a curve first reaches a level; None when it starts above or never does."""
    values = curve[metric].to_numpy(float)
    if not values.max() >= level > values[0]:
        return None
    return float(np.exp(first_at(np.log(curve[compute].to_numpy(float)), values, level)))
