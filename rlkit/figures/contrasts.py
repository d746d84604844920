"""Figures that set the cells of a study against each other: along a key, ranked, by domain, by k."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.figures.axes import (
    LETTERED,
    label_axes,
    label_ends,
    legend,
    name_rows,
    new_axes,
    outer_labels,
    share_scales,
    wrapped,
)
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import LABELS, domain_name, look, looks, short, styled
from rlkit.results.labels import name_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}


def against(
    table: "pd.DataFrame",
    x: str,
    y: str,
    by: str | None = None,
    venue: str = "neurips",
    log: bool = False,
    zero: bool = False,
    ax: "Axes | None" = None,
) -> Drawing:
    """`y` with its interval against `x`, a line for each `by`; hollow where some runs of it only are behind the point.

    Args:
        table: columns x, y, low and high, as the tables of `rlkit.measures`, and the counts reached
            and runs of `rlkit.measures.learning.needed`.
        log: a logarithmic x axis. zero: a line at y = 0. ax: a panel to draw on.
    """
    rows = table.dropna(subset=[x, y]).sort_values(x)
    if rows.empty:
        raise UserError(f"There is nothing to draw: no row has both {x} and {y}.")
    styles = _looks(table, by) if by else {"": look(0)}
    some = rows["reached"] < rows["runs"] if "reached" in rows else rows[x].isna()
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for name in styles:
            part = rows[rows[by] == name] if by else rows
            error = [part[y] - part["low"], part["high"] - part[y]]
            ax.errorbar(
                part[x], part[y], yerr=error, **styles[name], elinewidth=0.8, capsize=2, label=str(name)
            )
            few: dict[str, Any] = styles[name] | HOLLOW
            part = part[some[part.index]]
            ax.plot(part[x], part[y], **few, zorder=3)
        if some.any():
            ax.errorbar([], [], marker="o", color="0.4", **HOLLOW, label="reached by some of the runs")
        if log:
            ax.set_xscale("log")
            _ticks_at(ax, sorted(set(rows[x])))
        if zero:
            ax.axhline(0, color="0.4", linewidth=0.6)
        label_axes(ax, x, y)
        if len(styles) > 1 or some.any():
            legend(ax, LABELS.get(by or ""))
    return Drawing(fig, rows, sources(table))


def ranked(table: "pd.DataFrame", value: str = "pass@1", by: str = "cell", venue: str = "neurips") -> Drawing:
    """A value with its interval, a row each, in the table's order, with the step that it is from; the caption has each
    model's budget.

    Args:
        table: from `rlkit.measures.comparisons.at_compute`.
    """
    names = [f"{row[by]}\nstep {row['step']} of {row['steps']}" for _, row in table.iterrows()]
    budgets = table.groupby("model.path", sort=False)["budget"].first()
    words = ", ".join(f"{short(most)} for {Path(str(model)).name}" for model, most in budgets.items())
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.065 * len(table))
        styles = _looks(table, by)
        for place, (_, row) in enumerate(table.iterrows()):
            error = [[row[value] - row["low"]], [row["high"] - row[value]]]
            style: dict[str, Any] = styles[row[by]] | {"linestyle": "none"}
            ax.errorbar(row[value], place, xerr=error, **style, elinewidth=0.8, capsize=2)
        _rows(ax, names, value)
    return Drawing(fig, table, sources(table), f"The budget is {words}.")


def differences(table: "pd.DataFrame", venue: str = "neurips") -> dict[str, Drawing]:
    """The difference from the baseline of each factor, a figure each, by the factor's name (one factor: ""); with its
    interval over problems (thick) and, where both cells have seeds, that over seeds and problems (thin).

    Args:
        table: from `rlkit.measures.comparisons.differences`.
    """
    factors = {factor: rows for factor, rows in table.groupby("factor", sort=False)}
    for rows in factors.values():
        rows.attrs = table.attrs
    return {
        name_of(str(key)) if len(factors) > 1 else "": _differences(rows, venue)
        for key, rows in factors.items()
    }


def _differences(table: "pd.DataFrame", venue: str) -> Drawing:
    from rlkit.measures.summary import few_seeds, unequal_steps

    styles = _looks(table, "cell")
    baseline = table["baseline"].iloc[0]
    seeds = table[["seeds", "baseline_seeds"]].to_numpy()
    count = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    several = table["low_seeds"].notna().any()
    words = [
        f"The baseline is {baseline}. Seeds a cell: {count}.",
        f"Intervals over seeds and problems{few_seeds(table)}.".replace(", which", "")
        if few_seeds(table)
        else "",
        "" if several else "One seed says nothing about others, so that there is no second interval.",
        unequal_steps(table.assign(when="after")),
    ]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.16 + 0.05 * len(table))
        for place, (_, row) in enumerate(table.iterrows()):
            style: dict[str, Any] = styles[row["cell"]] | {"linestyle": "none"}
            ax.hlines(place, row["low"], row["high"], color=style["color"], linewidth=3, alpha=0.5)
            ax.hlines(place, row["low_seeds"], row["high_seeds"], color=style["color"], linewidth=0.8)
            ax.plot(row["difference"], place, **style)
        ax.hlines([], 0, 0, color="0.4", linewidth=3, alpha=0.5, label="95 % over problems")
        if several:
            ax.hlines([], 0, 0, color="0.4", linewidth=0.8, label="95 % over seeds and problems")
        ax.axvline(0, color="0.4", linewidth=0.6)
        _rows(ax, list(table["cell"]), "difference of pass@1")
        legend(ax, f"difference from {baseline}")
    return Drawing(fig, table, sources(table), " ".join(filter(None, words)))


def _rows(ax: "Axes", names: list[str], value: str) -> None:
    """A row each from the top, and what is along them."""
    name_rows(ax, names)
    label_axes(ax, value, "")
    ax.grid(axis="y", visible=False)


def domain_curves(df: "pd.DataFrame", by: str = "cell", venue: str = "neurips", x: str = "step") -> Drawing:
    """pass@1 of each held-out domain and of each suite along training, a panel each: thick the mean over
    seeds, thin the runs."""
    rows = df[(df["metric"] == "eval/pass@1") & (df["data_source"] != "all")]
    if rows.empty:
        raise UserError("These runs have no pass@1 by domain: they have not been evaluated.")
    domains = sorted(set(rows["data_source"]))
    styles = looks(rows, by)
    with styled():
        fig, axes = new_axes(venue, len(domains), 0.4)
        share_scales(axes)
        for ax, domain in zip(axes, domains, strict=True):
            for name in styles:
                part = rows[(rows["data_source"] == domain) & (rows[by] == name)]
                for _, run in part.groupby("run"):
                    ax.plot(run[x], run["value"], color=styles[name]["color"], alpha=0.35, linewidth=0.5)
                mean = part.groupby(x)["value"].mean()
                ax.plot(mean.index, mean, **styles[name], label=str(name))
            ax.set_title(wrapped(domain_name(domain), ax, 0))
            label_axes(ax, x, "eval/pass@1")
        outer_labels(axes)
        if len(styles) > 1:
            legend(axes[0])
    keep = [by, "run", "seed", "step", "data_source", "value"]
    return Drawing(fig, rows[[c for c in dict.fromkeys(keep) if c in rows]], sources(df))


def pass_at_k_ends(
    table: "pd.DataFrame", by: str = "cell", venue: str = "neurips", ax: "Axes | None" = None
) -> Drawing:
    """pass@k before training (dashed, hollow) and after (solid), with intervals.

    Args:
        table: from `rlkit.measures.comparisons.pass_at_k_ends`. ax: a panel to draw on.
    """
    if table["k"].nunique() < 3:
        raise UserError(
            "pass@k at fewer than three k says no more than pass@1: set evaluation.n to 4 or more."
        )
    styles = _looks(table, by)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for (name, when), part in table.groupby([by, "when"], sort=False):
            style: dict[str, Any] = styles[name] | {"linestyle": "--" if when == "before" else "-"}
            style["markerfacecolor"] = "white" if when == "before" else style["color"]
            ax.plot(part["k"], part["value"], **style, label=None if when == "before" else str(name))
            ax.fill_between(part["k"], part["low"], part["high"], color=style["color"], alpha=0.12, lw=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        label_axes(ax, "k", "pass@k")
        label_ends(ax)
        if fig.get_label() != LETTERED:
            key: dict[str, Any] = {
                "color": "0.4",
                "linestyle": "--",
                "marker": "o",
                "markerfacecolor": "white",
            }
            ax.legend(ax.plot([], [], **key), ["before training"], loc="upper left")
    return Drawing(fig, table, sources(table))


def _looks(table: "pd.DataFrame", by: str) -> dict[Any, dict[str, Any]]:
    """Those of the runs behind the table, which remembers them, in their order."""
    present = set(table[by])
    return {name: style for name, style in looks(table, by).items() if name in present}


def _ticks_at(ax: "Axes", values: list[float]) -> None:
    """Ticks at the values themselves, while they are few."""
    from matplotlib.ticker import NullLocator

    if len(values) <= 8:
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(values, [f"{value:g}" for value in values])
