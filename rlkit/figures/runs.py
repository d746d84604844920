"""Figures of runs: learning curves, metrics side by side, before and after, and a law through the runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.figures.axes import (
    label_axes,
    label_ends,
    legend,
    name_rows,
    new_axes,
    note,
    outer_labels,
)
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import looks, styled
from rlkit.measures.tables import curve_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_FEW = 6  # runs whose own lines can be told apart behind the means


def learning_curves(
    df: "pd.DataFrame",
    x: str = "step",
    metric: str = "eval/pass@1",
    by: str = "model.path",
    venue: str = "neurips",
    evals: "pd.DataFrame | None" = None,
    ax: "Axes | None" = None,
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
        from rlkit.measures.summary import pass_rates

        mean = mean.merge(pass_rates(evals, by)[[by, "step", "low", "high"]], how="left", on=[by, "step"])
    styles = looks(df, by)
    log = x.endswith("flops")
    shown = mean[mean[x] > 0] if log else mean  # the start has no place on a logarithmic axis
    if shown.empty:
        raise UserError(f"No run was evaluated after the start, so that there is no curve over {x}.")
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        ax.set_xscale("log" if log else "linear")
        for name in (n for n in styles if (shown[by] == n).any()):
            line = shown[shown[by] == name]
            _band(ax, line, x, styles[name]["color"], len(styles))
            for _, run in table[(table[by] == name) & ((table[x] > 0) | (not log))].groupby("run"):
                ax.plot(run[x], run[metric], color=styles[name]["color"], alpha=0.35, linewidth=0.6)
            ax.plot(line[x], line[metric], **styles[name], markevery=max(1, len(line) // 10), label=str(name))
        label_axes(ax, x, metric)
        if log:
            _starts(ax, mean[mean[x] <= 0], metric, by, styles)
        label_ends(ax)
    drawn = table if "low" not in mean else table.merge(mean[[by, "step", "low", "high"]], on=[by, "step"])
    return Drawing(fig, drawn, sources(df))


def _band(ax: "Axes", line: "pd.DataFrame", x: str, colour: str, lines: int) -> None:
    """The interval of a curve, where there is one; bands that lie on one another stay light."""
    if "low" in line:
        ax.fill_between(line[x], line["low"], line["high"], color=colour, alpha=min(0.2, 0.6 / lines), lw=0)


def _starts(ax: "Axes", starts: "pd.DataFrame", metric: str, by: str, styles: dict[Any, Any]) -> None:
    """The value before training, hollow at the left edge: 0 has no place on a logarithmic axis."""
    edge = ax.get_yaxis_transform()
    for _, row in starts.iterrows():
        style: dict[str, Any] = styles[row[by]] | {"linestyle": "none", "markerfacecolor": "white"}
        ax.plot(0, row[metric], transform=edge, clip_on=False, zorder=4, **style)


def metric_panels(
    df: "pd.DataFrame",
    metrics: Sequence[str],
    x: str = "step",
    by: str = "model.path",
    venue: str = "neurips",
) -> Drawing:
    """Several metrics side by side: thick the mean over the runs of each `by`, smoothed over a twentieth of the
    steps, faint the runs themselves where they are few. Metrics that were not logged are left out."""
    import pandas as pd

    known = [m for m in metrics if (df["metric"] == m).any()]
    if not known:
        raise UserError(f"None of the metrics {', '.join(metrics)} was logged.")
    styles = looks(df, by)
    tables = []
    with styled():
        fig, axes = new_axes(venue, len(known), 0.36)
        for ax, metric in zip(axes, known, strict=True):
            table = curve_table(df, x, metric, by)
            single, few = len(table) == table["run"].nunique(), table["run"].nunique() <= _FEW
            for name in styles:
                part = table[table[by] == name].sort_values("step")
                line = {k: styles[name][k] for k in ("color", "linestyle")}
                for _, run in part.groupby("run") if few else ():
                    ax.plot(run[x], run[metric], color=line["color"], linewidth=0.4, alpha=0.25)
                mean = part.groupby("step")[list(dict.fromkeys((x, metric)))].mean()
                smooth = mean[metric].rolling(max(1, len(mean) // 20), center=True, min_periods=1).mean()
                line["marker"] = "." if single else ""  # a line of one point is nothing to see
                ax.plot(
                    mean[x] if x != "step" else mean.index, smooth, **line, linewidth=1.1, label=str(name)
                )
                table.loc[part.index, "smoothed"] = part["step"].map(smooth)
            label_axes(ax, x, metric)
            tables.append(table.melt([c for c in table if c != metric], metric, "metric", "value"))
        outer_labels(axes)
        if len(styles) > 1:
            legend(axes[0])
    return Drawing(fig, pd.concat(tables, ignore_index=True), sources(df))


def before_after(table: "pd.DataFrame", venue: str = "neurips", value: str = "pass@1") -> Drawing:
    """A value before (hollow) and after training (filled) with its intervals, a row a cell.

    Args:
        table: from `rlkit.measures.summary.before_after`, whose caution of unequal steps the figure then shows; or
            with its columns cell, when, low, high and another `value`.
    """
    from rlkit.measures.summary import unequal_steps

    cells = list(dict.fromkeys(table["cell"]))
    caution = unequal_steps(table) if "steps" in table else ""
    styles = looks(table, "cell")
    apart = 0.14  # of a row: the two intervals lie beside each other
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.05 * len(cells))
        for place, cell in enumerate(cells):
            both = table[table["cell"] == cell].set_index("when")
            ends = [place - apart, place + apart]
            ax.plot(both.loc[["before", "after"], value], ends, color="0.75", linewidth=0.8, zorder=1)
            for when, end, face in zip(
                ("before", "after"), ends, ("white", styles[cell]["color"]), strict=True
            ):
                row: Any = both.loc[when]
                error = [[row[value] - row["low"]], [row["high"] - row[value]]]
                ax.errorbar(
                    row[value], end, xerr=error, fmt=styles[cell]["marker"], color=styles[cell]["color"],
                    markerfacecolor=face, elinewidth=0.8, capsize=1.5,
                )  # fmt: skip
        for when, face in (("before", "white"), ("after", "0.4")):
            ax.plot([], [], "o", color="0.4", markerfacecolor=face, label=f"{when} training")
        held = dict(zip(table["cell"], table["held_out"], strict=True)) if "held_out" in table else {}
        name_rows(ax, [f"{c} (held\N{NO-BREAK SPACE}out)" if held.get(c) else str(c) for c in cells])
        label_axes(ax, value, "")
        ax.grid(axis="y", visible=False)
        note(ax, caution)
        legend(ax)
    return Drawing(fig, table, sources(table), caution)
