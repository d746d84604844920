"""Figures that set the cells of a study against each other: along a key, a row each, by domain, by k, by compute."""

from pathlib import Path
from typing import Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes

from rlkit.errors import UserError
from rlkit.evaluation.passk import bootstrap_mean
from rlkit.figures.axes import LETTERED, NARROW, label_axes, legend, name_rows, new_axes
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import LABELS, domain_name, looks, short, styled
from rlkit.measures.summary import few_seeds, seeds_to_show, unequal_steps
from rlkit.measures.tables import graded_ends
from rlkit.results.labels import name_of
from rlkit.seeds import generator

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}


def against(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    venue: str = "neurips",
    log: bool = False,
    ax: Axes | None = None,
) -> Drawing:
    """`y` with its interval against `x`, a line for each `by`; hollow where some runs of it only are behind the point.

    Args:
        table: columns x, y, low and high, as the tables of `rlkit.measures`, and the counts reached
            and runs of `rlkit.measures.learning.needed`.
        log: a logarithmic x axis. ax: a panel to draw on.
    """
    rows = table.dropna(subset=[x, y]).sort_values(x)
    if rows.empty:
        raise UserError(f"There is nothing to draw: no row has both {x} and {y}.")
    styles = looks(table, by)
    some = rows["reached"] < rows["runs"] if "reached" in rows else rows[x].isna()
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for name, style in styles.items():
            part = rows[rows[by] == name]
            error = [part[y] - part["low"], part["high"] - part[y]]
            ax.errorbar(part[x], part[y], yerr=error, **style, elinewidth=0.8, capsize=2, label=str(name))
            ax.plot(part.loc[some, x], part.loc[some, y], **style | HOLLOW, zorder=3)
        if some.any():
            ax.errorbar([], [], marker="o", color="0.4", **HOLLOW, label="reached by some of the runs")
        ticks = sorted(set(rows[x]))
        if log:
            ax.set_xscale("log")
        if log and len(ticks) <= 8:  # at the values themselves, while they are few
            ax.set_xticks(ticks, list(map(short, ticks)))
            ax.set_xticks([], minor=True)
        label_axes(ax, x, y)
        if len(styles) > 1 or some.any():
            legend(ax, LABELS.get(by))
    return Drawing(fig, rows, sources(table))


def ranked(table: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """pass@1 of a table of `rlkit.measures.comparisons.at_compute` with its interval, a row each, in the table's order,
    with the step that it is from; the caption has each model's budget."""
    names = [f"{row['cell']}: step {row['step']} of {row['steps']}" for row in table.to_dict("records")]
    budgets = table.groupby("model.path", sort=False)["budget"].first()
    words = ", ".join(f"{short(most)} for {Path(str(model)).name}" for model, most in budgets.items())
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.05 * len(table))
        _rows(ax, table, "pass@1", names)
    return Drawing(fig, table, sources(table), f"The budget is {words}.")


def differences(table: pd.DataFrame, venue: str = "neurips") -> dict[str, Drawing]:
    """The differences of a table of `rlkit.measures.comparisons.differences`, a figure a factor, by its name (one
    factor: ""); with intervals over problems (thick) and, where there are seeds, over seeds and problems (thin)."""
    made = {}
    for factor, rows in table.groupby("factor", sort=False):
        rows.attrs = table.attrs
        made[name_of(str(factor))] = _differences(rows, venue)
    return made if len(made) > 1 else {"": next(iter(made.values()))}


def _differences(table: pd.DataFrame, venue: str) -> Drawing:
    baseline, few, styles = table["baseline"].iloc[0], few_seeds(table), looks(table, "cell")
    seeds, several = table[["seeds", "baseline_seeds"]].to_numpy(), table["low_seeds"].notna().any()
    count = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    words = [
        f"The baseline is {baseline}. Seeds a cell: {count}.",
        f"Intervals over seeds and problems{few}.".replace(", which", "") if few else "",
        "" if several else "One seed says nothing about others, so that there is no second interval.",
        *seeds_to_show(table),
        unequal_steps(table.assign(when="after")),
    ]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.16 + 0.05 * len(table))
        _rows(ax, table, "difference", list(table["cell"]))
        if several:
            colours = [styles[cell]["color"] for cell in table["cell"]]
            seeds_too = (range(len(table)), table["low_seeds"], table["high_seeds"])
            ax.hlines(*seeds_too, color=colours, linewidth=0.8)
            ax.hlines([], 0, 0, color="0.4", linewidth=0.8, label="95 % over seeds and problems")
        ax.hlines([], 0, 0, color="0.4", linewidth=3, alpha=0.5, label="95 % over problems")
        ax.axvline(0, color="0.4", linewidth=0.6)
        ax.set_xlabel("difference of pass@1")
        legend(ax, f"difference from {baseline}")
    return Drawing(fig, table, sources(table), " ".join(filter(None, words)))


def _rows(ax: Axes, table: pd.DataFrame, value: str, names: list[str]) -> None:
    """A value with its interval (thick) in a row for each cell, from the top."""
    styles = looks(table, "cell")
    for place, (_, row) in enumerate(table.iterrows()):
        style: dict[str, Any] = styles[row["cell"]] | {"linestyle": "none"}
        ax.hlines(place, row["low"], row["high"], color=style["color"], linewidth=3, alpha=0.5)
        ax.plot(row[value], place, **style)
    name_rows(ax, names)
    label_axes(ax, value, "")


def pass_at_k_ends(table: pd.DataFrame, venue: str = "neurips", ax: Axes | None = None) -> Drawing:
    """pass@k of a table of `rlkit.measures.comparisons.pass_at_k_ends` before training (dashed, hollow) and after
    (solid), with intervals; `ax` is a panel to draw on."""
    if table["k"].nunique() < 3:
        raise UserError(
            "pass@k at fewer than three k says no more than pass@1: set evaluation.n to 4 or more."
        )
    styles, dashed = looks(table, "cell"), {"linestyle": "--", "markerfacecolor": "white"}
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for (name, when), part in table.groupby(["cell", "when"], sort=False):
            before, style = when == "before", styles[name]
            line: dict[str, Any] = style | (dashed if before else {"linestyle": "-"})
            ax.plot(part["k"], part["value"], **line, label=None if before else str(name))
            ax.fill_between(part["k"], part["low"], part["high"], color=style["color"], alpha=0.12, lw=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        label_axes(ax, "k", "pass@k")
        if fig.get_label() != LETTERED:  # as an artist, since a second legend takes the first's place
            key: dict[str, Any] = {"color": "0.4", "marker": "o", **dashed}
            ax.add_artist(ax.legend(ax.plot([], [], **key), ["before training"], loc="lower right"))
        legend(ax, ends=True)
    return Drawing(fig, table, sources(table))


def before_after(table: pd.DataFrame, venue: str = "neurips", value: str = "pass@1") -> Drawing:
    """A value before (hollow) and after training (filled) with its intervals, a row a cell, of a table of
    `rlkit.measures.summary.before_after`, whose caution of unequal steps the figure shows, or of another `value`."""
    cells = list(dict.fromkeys(table["cell"]))
    caution = unequal_steps(table) if "steps" in table else ""
    styles = looks(table, "cell")
    places = {"before": -0.14, "after": 0.14}  # of a row: the two intervals lie beside each other
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.05 * len(cells))
        for place, cell in enumerate(cells):
            both, style = table[table["cell"] == cell].set_index("when"), styles[cell]
            ends = [place + apart for apart in places.values()]
            ax.plot(both.loc[list(places), value], ends, color="0.75", linewidth=0.8, zorder=1)
            for end, when in zip(ends, places, strict=True):
                low, middle, high = both.loc[when, ["low", value, "high"]]
                ax.errorbar(
                    middle, end, xerr=[[middle - low], [high - middle]], fmt=style["marker"], color=style["color"],
                    markerfacecolor=style["color"] if when == "after" else "white", elinewidth=0.8, capsize=1.5,
                )  # fmt: skip
        for when, face in (("before", "white"), ("after", "0.4")):
            ax.plot([], [], "o", color="0.4", markerfacecolor=face, label=f"{when} training")
        held = dict(zip(table["cell"], table["held_out"], strict=True)) if "held_out" in table else {}
        name_rows(ax, [f"{c} (held\N{NO-BREAK SPACE}out)" if held.get(c) else str(c) for c in cells])
        label_axes(ax, value, "")
        if caution:
            fig.suptitle(caution, x=0.01, ha="left", fontsize=7, wrap=True)
        legend(ax)
    return Drawing(fig, table, sources(table), caution)


def transfer(evals: pd.DataFrame, venue: str = "neurips", seed: int = 0) -> Drawing:
    """How much training in each cell changed pass@1 in each domain, with 95 % intervals that resample held-out
    problems, each with its answers before and after."""
    keys, rows = ["cell", "data_source", "task_id"], []
    before, after = (part.groupby(keys)["correct"].mean() for part in graded_ends(evals).values())
    for (cell, source), part in (after - before).dropna().groupby(level=keys[:2]):  # type: ignore[misc]
        mean = bootstrap_mean(
            part.to_numpy(), rng=generator("drawings", "transfer", seed, str(cell), str(source))
        )
        row = {"cell": cell, "data_source": source, "change of pass@1": mean.value}
        rows.append({**row, "low": mean.low, "high": mean.high, "tasks": mean.prompts})
    table = pd.DataFrame(rows)
    texts = [f"{r['change of pass@1']:+.3f}\n[{r['low']:+.3f}, {r['high']:+.3f}]" for r in rows]
    wide = table.assign(text=texts).pivot(index="cell", columns="data_source")
    cells = [cell for cell in looks(evals, "cell") if cell in wide.index]
    changes, texts = wide["change of pass@1"].loc[cells], wide["text"].loc[cells]
    limit = max(float(table["change of pass@1"].abs().max()), 1e-9)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.08 * len(cells))
        column = fig.get_size_inches()[0] < NARROW  # where the numbers need the bar's room
        seaborn.heatmap(
            changes, annot=texts, fmt="", cmap="RdBu", vmin=-limit, vmax=limit, ax=ax, cbar=not column,
            cbar_kws={"label": "change of pass@1"}, annot_kws={"size": 7}, yticklabels=cells,
            xticklabels=[domain_name(name).replace(": ", "\n") for name in changes],
        )  # fmt: skip
        ax.tick_params(rotation=0)
        ax.set(xlabel="", ylabel="")
    return Drawing(fig, table, sources(evals))
