"""Figures of runs: learning curves, and metrics side by side."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from rlkit.errors import UserError
from rlkit.figures.axes import label_axes, legend, new_axes, outer_labels, wrapped
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import domain_name, looks, styled
from rlkit.measures.summary import pass_rates
from rlkit.measures.tables import curve_table

_FEW = 6  # runs whose own lines can be told apart behind the means


def learning_curves(
    df: pd.DataFrame,
    x: str = "step",
    metric: str = "eval/pass@1",
    by: str = "model.path",
    venue: str = "neurips",
    evals: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Drawing:
    """A metric along training: a thin line a run, a thick one for the mean over the seeds of each `by`.

    Args:
        df: from `rlkit.read`. x: "step", or a metric logged at the same steps ("compute/total_flops").
        evals: from `rlkit.read_evals`; pass@1 then has its 95 % interval, held-out problems resampled.
        ax: a panel to draw on.
    """
    table = curve_table(df, x, metric, by)
    mean = table.groupby([by, "step"], as_index=False)[list(dict.fromkeys((x, metric)))].mean()
    if evals is not None and metric == "eval/pass@1":
        rates = pass_rates(evals, [by, "step"])[[by, "step", "low", "high"]]
        mean = mean.merge(rates, how="left", on=[by, "step"])
    styles, log = looks(df, by), x.endswith("flops")
    shown = mean[mean[x] > 0] if log else mean  # the start has no place on a logarithmic axis
    if shown.empty:
        raise UserError(f"No run was evaluated after the start, so that there is no curve over {x}.")
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        ax.set_xscale("log" if log else "linear")
        for name in (n for n in styles if (shown[by] == n).any()):
            line, colour = shown[shown[by] == name], styles[name]["color"]
            if "low" in line:  # bands that lie on one another stay light
                alpha = min(0.2, 0.6 / len(styles))
                ax.fill_between(line[x], line["low"], line["high"], color=colour, alpha=alpha, lw=0)
            for _, run in table[(table[by] == name) & ((table[x] > 0) | (not log))].groupby("run"):
                ax.plot(run[x], run[metric], color=colour, alpha=0.35, linewidth=0.6)
            ax.plot(line[x], line[metric], **styles[name], markevery=max(1, len(line) // 10), label=str(name))
        label_axes(ax, x, metric)
        for _, row in mean[mean[x] <= 0].iterrows() if log else ():  # hollow at the left edge
            style: dict[str, Any] = styles[row[by]] | {"linestyle": "none", "markerfacecolor": "white"}
            ax.plot(0, row[metric], transform=ax.get_yaxis_transform(), clip_on=False, zorder=4, **style)
        legend(ax, ends=True)
    drawn = table if "low" not in mean else table.merge(mean[[by, "step", "low", "high"]], on=[by, "step"])
    return Drawing(fig, drawn, sources(df))


def metric_panels(
    df: pd.DataFrame, metrics: Sequence[str], by: str = "model.path", venue: str = "neurips", share: str = ""
) -> Drawing:
    """Several metrics side by side: thick the mean over the runs of each `by`, smoothed over a twentieth of the
    steps, faint the runs themselves where they are few. Metrics that were not logged are left out. `share`: the y axis
    that all panels have; the metrics are then their titles."""
    known = [m for m in metrics if (df["metric"] == m).any()]
    if not known:
        raise UserError(f"None of the metrics {', '.join(metrics)} was logged.")
    styles, tables = looks(df, by), []
    with styled():
        fig, axes = new_axes(venue, len(known), 0.4 if share else 0.36)
        for ax, metric in zip(axes, known, strict=True):
            table = curve_table(df, "step", metric, by)
            if share and ax is not axes[0]:  # so that heights can be compared
                ax.sharex(axes[0])
                ax.sharey(axes[0])
            for name, style in styles.items():
                part = table[table[by] == name].sort_values("step")
                for _, run in part.groupby("run") if table["run"].nunique() <= _FEW or share else ():
                    ax.plot(run["step"], run[metric], color=style["color"], linewidth=0.4, alpha=0.3)
                mean = part.groupby("step")[metric].mean()
                smooth = mean.rolling(max(1, len(mean) // 20), center=True, min_periods=1).mean()
                line: Any = style if len(mean) < 10 else style | {"marker": ""}
                ax.plot(smooth.index, smooth, **line, linewidth=1.1, label=str(name))
                table.loc[part.index, "smoothed"] = part["step"].map(smooth)
            label_axes(ax, "step", share or metric)
            ax.set_title(wrapped(domain_name(metric), ax, 0) if share else "")
            tables.append(table.melt([c for c in table if c != metric], metric, "metric", "value"))
        outer_labels(axes)
        if len(styles) > 1:
            legend(axes[0])
    return Drawing(fig, pd.concat(tables, ignore_index=True), sources(df))


def domain_curves(df: pd.DataFrame, by: str = "cell", venue: str = "neurips") -> Drawing:
    """pass@1 of each held-out domain and of each suite along training, a panel each."""
    rows = df[(df["metric"] == "eval/pass@1") & (df["data_source"] != "all")]
    rows = rows.assign(metric=rows["data_source"], data_source="all")
    return metric_panels(rows, sorted(set(rows["metric"])), by=by, venue=venue, share="eval/pass@1")
