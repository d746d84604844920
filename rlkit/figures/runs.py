"""Figures of runs and cells: learning curves, metrics side by side, cells along a key, by domain, by k, by compute."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes

from rlkit.config.run import domain_name, name_of
from rlkit.errors import UserError
from rlkit.evaluation import bootstrap_mean
from rlkit.figures import labels_and_looks as paper_style
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.labels_and_looks import LABELS, label_axes, legend, looks, new_axes, short, styled
from rlkit.measures import summary
from rlkit.measures.summary import curve_table, graded_ends, pass_rates
from rlkit.seeds import generator

FEW = 6  # runs whose own lines can be told apart behind the means
HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}


def learning_curves(
    df: pd.DataFrame, x: str = "step", metric: str = "eval/pass@1", by: str = "model.path", venue: str = "neurips",
    evals: pd.DataFrame | None = None, ax: Axes | None = None,
) -> Drawing:  # fmt: skip
    """A metric along training: a thin line a run, a thick one for the mean over the seeds of each `by`.

    Args:
        df: from `rlkit.read`. x: "step", or a metric logged at the same steps. ax: a panel to draw on.
        evals: from `rlkit.read_evals`; pass@1 then has its 95 % interval, held-out problems resampled.
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
        if log and df["model.path"].nunique() > 1:  # what is best for the compute, whatever the size
            best = shown.sort_values(x)
            ax.plot(best[x], best[metric].cummax(), drawstyle="steps-post", color="0.85", linewidth=4, zorder=0.9)
        label_axes(ax, x, metric)
        for _, row in mean[mean[x] <= 0].iterrows() if log else ():  # hollow at the left edge
            place: Any = {"transform": ax.get_yaxis_transform(), "clip_on": False, "zorder": 4}
            ax.plot(0, row[metric], **styles[row[by]] | HOLLOW | place)
        legend(ax, ends=True)
    drawn = table if "low" not in mean else table.merge(mean[[by, "step", "low", "high"]], on=[by, "step"])
    return Drawing(fig, drawn, sources(df))


def metric_panels(
    df: pd.DataFrame, metrics: Sequence[str], by: str = "model.path", venue: str = "neurips", share: str = "",
    ax: Axes | None = None,
) -> Drawing:  # fmt: skip
    """Several metrics side by side: thick the mean over the runs of each `by`, smoothed over a twentieth of the
    steps, faint the runs themselves where they are few. Metrics that were not logged are left out. `share`: the y axis
    that all panels have; the metrics are then their titles. `ax`: a panel to draw one metric on."""
    known = [m for m in metrics if (df["metric"] == m).any()]
    if not known:
        raise UserError(f"None of the metrics {', '.join(metrics)} was logged.")
    styles, tables = looks(df, by), []
    with styled():
        fig, axes = new_axes(venue, len(known), 0.4 if share else 0.36, ax)
        for ax, metric in zip(axes, known, strict=True):
            table = curve_table(df, "step", metric, by)
            if share and ax is not axes[0]:  # so that heights can be compared
                ax.sharex(axes[0])
                ax.sharey(axes[0])
            for name, style in styles.items():
                part = table[table[by] == name].sort_values("step")
                for _, run in part.groupby("run") if table["run"].nunique() <= FEW or share else ():
                    ax.plot(run["step"], run[metric], color=style["color"], linewidth=0.4, alpha=0.3)
                mean = part.groupby("step")[metric].mean()
                smooth = mean.rolling(max(1, len(mean) // 20), center=True, min_periods=1).mean()
                line: Any = style if len(mean) < 10 else style | {"marker": ""}
                ax.plot(smooth.index, smooth, **line, linewidth=1.1, label=str(name))
                table.loc[part.index, "smoothed"] = part["step"].map(smooth)
            label_axes(ax, "step", share or metric)
            ax.set_title(paper_style.wrapped(domain_name(metric), ax, 0) if share else "")
            tables.append(table.melt([c for c in table if c != metric], metric, "metric", "value"))
        paper_style.outer_labels(axes, y=bool(share))
        if len(styles) > 1:
            legend(axes[0])
    return Drawing(fig, pd.concat(tables, ignore_index=True), sources(df))


def domain_curves(df: pd.DataFrame, by: str = "cell", venue: str = "neurips") -> Drawing:
    """pass@1 of each held-out domain and of each suite along training, a panel each."""
    rows = df[(df["metric"] == "eval/pass@1") & (df["data_source"] != "all")]
    if rows["data_source"].nunique() < 2:
        raise UserError("The study has one domain and no suite.")
    rows = rows.assign(metric=rows["data_source"], data_source="all")
    return metric_panels(rows, sorted(set(rows["metric"])), by=by, venue=venue, share="eval/pass@1")


def against(table: pd.DataFrame, x: str, y: str, by: str, venue: str = "neurips", log: bool = False) -> Drawing:
    """`y` with its interval (columns low and high) against `x`, a line for each `by`."""
    rows = table.dropna(subset=[x, y]).sort_values(x)
    if rows.empty:
        raise UserError(f"There is nothing to draw: no row has both {x} and {y}.")
    styles, ticks = looks(table, by), sorted(set(rows[x]))
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name, style in styles.items():
            part = rows[rows[by] == name]
            error = [part[y] - part["low"], part["high"] - part[y]]
            ax.errorbar(part[x], part[y], yerr=error, fmt="none", color=style["color"], elinewidth=0.8, capsize=2)
            ax.plot(part[x], part[y], **style, label=str(name))
        ax.set_xscale("log" if log else "linear")
        if log and len(ticks) <= 8:  # at the values themselves, while they are few
            ax.set_xticks(ticks, list(map(short, ticks)))
            ax.set_xticks([], minor=True)
        label_axes(ax, x, y)
        if len(styles) > 1:
            legend(ax, LABELS.get(by), ends=True)
    return Drawing(fig, rows, sources(table))


def needed(table: pd.DataFrame, x: str, venue: str = "neurips", ax: Axes | None = None) -> Drawing:
    """The level of pass@1 reached against its cost `x`, of a table of `rlkit.measures.comparisons.needed`, a line each
    cell; bars span its runs; a point is hollow where only some of them reach the level. `ax`: a panel to draw on."""
    rows = table.dropna(subset=x).sort_values("level")
    if rows["cell"].nunique() < 2:
        raise UserError(f"There is nothing to compare: fewer than two cells reach a level at a known {x}.")
    some = rows["reached"] < rows["runs"]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5, ax)
        for name, style in looks(rows, "cell").items():
            part = rows[rows["cell"] == name]
            ax.hlines(part["level"], part["low"], part["high"], color=style["color"], linewidth=0.8)
            ax.plot(part[x], part["level"], **style, label=str(name))
            ax.plot(part.loc[some, x], part.loc[some, "level"], **style | HOLLOW, zorder=3)
        if some.any():
            ax.plot([], [], marker="o", color="0.4", **HOLLOW, label="reached by some of the runs")
        label_axes(ax, x, "level")
        legend(ax, ends=not some.any())
    return Drawing(fig, rows, sources(table))


def frontier(table: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """pass@1 of each split of a table of `rlkit.measures.fits.at_budgets` against its rollouts a prompt, a colour
    a budget and a line a number of prompts a step."""
    names = {"data.train_batch_size": "prompts a step", "budget": "rollouts"}
    shown = table.rename(columns=names).assign(rollouts=table["budget"].map(short))
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        look: Any = {"hue": "rollouts", "style": "prompts a step", "markers": True, "palette": "crest"}
        seaborn.lineplot(shown, x="rollout.n", y="pass@1", ax=ax, errorbar=None, **look)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        label_axes(ax, "rollout.n", "pass@1")
        ax.legend(bbox_to_anchor=(1, 0.5), loc="center left")
    return Drawing(fig, table, sources(table))


def ranked(table: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """pass@1 of a table of `rlkit.measures.comparisons.at_compute` with its interval, a row each, in the table's order,
    with the step that it is from; the caption has each model's budget."""
    names = [f"{row['cell']}: step {row['step']} of {row['steps']}" for row in table.to_dict("records")]
    budgets = table.groupby("model.path", sort=False)["budget"].first()
    words = ", ".join(f"{short(most)} for {Path(str(model)).name}" for model, most in budgets.items())
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.05 * len(table))
        _dots(ax, table, "pass@1", thin=False, hollow=False)
        paper_style.name_rows(ax, names)
        label_axes(ax, "pass@1", "")
    return Drawing(fig, table, sources(table), f"The budget is {words}.")


def differences(table: pd.DataFrame, venue: str = "neurips") -> dict[str, Drawing]:
    """The differences of a table of `rlkit.measures.comparisons.differences`, a figure a factor, by its name (one
    factor: ""); with intervals over problems (thick) and, where there are seeds, over seeds and problems (thin)."""
    parts = {str(factor): rows for factor, rows in table.groupby("factor", sort=False)}
    made = {name_of(factor): _differences(rows, sources(table), venue) for factor, rows in parts.items()}
    return made if len(made) > 1 else {"": next(iter(made.values()))}


def _differences(table: pd.DataFrame, behind: dict[str, Any], venue: str) -> Drawing:
    baseline = table["baseline"].iloc[0]
    seeds, several = table[["seeds", "baseline_seeds"]].to_numpy(), table["low_seeds"].notna().any()
    count = " to ".join(map(str, sorted({seeds.min(), seeds.max()})))
    words = [
        f"The baseline is {baseline}. Seeds a cell: {count}.",
        "" if several else "One seed says nothing about others, so that there is no second interval.",
        *summary.seeds_to_show(table),
        summary.unequal_steps(table.assign(when="after")),
    ]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.16 + 0.05 * len(table))
        if several:
            over = table.assign(low=table["low_seeds"], high=table["high_seeds"])
            _dots(ax, over, "difference", thin=True, hollow=False)
            ax.hlines([], 0, 0, color="0.4", linewidth=0.8, label="95 % over seeds and problems")
        _dots(ax, table, "difference", thin=False, hollow=False)
        ax.hlines([], 0, 0, color="0.4", linewidth=3, alpha=0.5, label="95 % over problems")
        ax.axvline(0, color="0.4", linewidth=0.6)
        paper_style.name_rows(ax, list(table["cell"]))
        label_axes(ax, "difference of pass@1", "")
        legend(ax, f"difference from {baseline}")
    return Drawing(fig, table, behind, " ".join(filter(None, words)))


def _dots(ax: Axes, table: pd.DataFrame, value: str, thin: bool, hollow: bool) -> None:
    """A value with its interval for each row of a table, from the first place of the y axis on."""
    styles = looks(table, "cell")
    line: dict[str, Any] = {"linewidth": 0.8} if thin else {"linewidth": 3, "alpha": 0.5}
    for place, (_, row) in enumerate(table.iterrows()):
        style: dict[str, Any] = styles[row["cell"]] | (HOLLOW if hollow else {"linestyle": "none"})
        ax.hlines(place, row["low"], row["high"], color=style["color"], **line)
        ax.plot(row[value], place, **style)


def before_after(table: pd.DataFrame, venue: str = "neurips", value: str = "pass@1") -> Drawing:
    """A value before (hollow, thin) and after training (filled, thick) with its intervals, a row a cell, of a table of
    `rlkit.measures.summary.before_after`, whose caution of unequal steps the figure shows, or of another `value`."""
    ends = [table[table["when"] == when] for when in ("before", "after")]
    caution = summary.unequal_steps(table) if "steps" in table else ""
    held = ends[0]["held_out"] if "held_out" in table else [False] * len(ends[0])
    names = [cell + " (held\N{NO-BREAK SPACE}out)" * bool(out) for cell, out in zip(ends[0]["cell"], held, strict=True)]
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.05 * len(names))
        for rows, when, face in zip(ends, ("before", "after"), ("white", "0.4"), strict=True):
            _dots(ax, rows, value, thin=when == "before", hollow=when == "before")
            ax.plot([], [], "o", color="0.4", markerfacecolor=face, label=f"{when} training")
        paper_style.name_rows(ax, names)
        label_axes(ax, value, "")
        if caution:
            fig.suptitle(caution, x=0.01, ha="left", fontsize=7, wrap=True)
        legend(ax)
    return Drawing(fig, table, sources(table), caution)


def pass_at_k_ends(table: pd.DataFrame, venue: str = "neurips", ax: Axes | None = None) -> Drawing:
    """pass@k of a table of `rlkit.measures.comparisons.pass_at_k_ends` before training (dashed, hollow) and after
    (solid), with intervals; `ax` is a panel to draw on."""
    if table["k"].nunique() < 3:
        told = "says no more than pass@1: set evaluation.n to 4 or more"
        raise UserError(f"pass@k at fewer than three k {told}.")
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
        if fig.get_label() != paper_style.LETTERED:
            # As an artist, since a second legend takes the first's place.
            key: dict[str, Any] = {"color": "0.4", "marker": "o", **dashed}
            ax.add_artist(ax.legend(ax.plot([], [], **key), ["before training"], loc="lower right"))
        legend(ax, ends=True)
    return Drawing(fig, table, sources(table))


def transfer(evals: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """The change of pass@1 of each cell in each domain, with 95 % intervals over held-out problems."""
    keys, rows = ["cell", "data_source", "task_id"], []
    before, after = (part.groupby(keys)["correct"].mean() for part in graded_ends(evals).values())
    for (cell, source), part in (after - before).dropna().groupby(level=keys[:2]):  # type: ignore[misc]
        rng = generator("drawings", "transfer", 0, str(cell), str(source))
        mean = bootstrap_mean(part.to_numpy(), rng=rng)
        row = {"cell": cell, "data_source": source, "change of pass@1": mean.value}
        rows.append({**row, "low": mean.low, "high": mean.high, "tasks": mean.prompts})
    table = pd.DataFrame(rows)
    texts = [f"{r['change of pass@1']:+z.2f}\n[{r['low']:+z.2f}, {r['high']:+z.2f}]".replace("-", "−") for r in rows]
    wide = table.assign(text=texts).pivot(index="cell", columns="data_source")
    cells = [cell for cell in looks(evals, "cell") if cell in wide.index]
    changes, texts = wide["change of pass@1"].loc[cells], wide["text"].loc[cells]
    limit = max(float(table["change of pass@1"].abs().max()), 1e-9)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.12 + 0.08 * len(cells))
        column = fig.get_figwidth() < paper_style.NARROW  # where the numbers need the bar's room
        seaborn.heatmap(
            changes, annot=texts, fmt="", cmap="RdBu", vmin=-limit, vmax=limit, ax=ax, cbar=not column,
            cbar_kws={"label": "change of pass@1"}, annot_kws={"size": 7}, yticklabels=cells,
            xticklabels=[domain_name(name).replace(": ", "\n") for name in changes],
        )  # fmt: skip
        ax.tick_params(rotation=0)
        ax.set(xlabel="", ylabel="")
    return Drawing(fig, table, sources(evals))
