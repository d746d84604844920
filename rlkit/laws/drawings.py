"""Figures of an analysis beyond curves and the law: residuals, forms, intervals, collapse, frontier, pass@k,
transfer.

Each returns a `rlkit.figures.Drawing`: the figure and the table it drew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.figures import LABELS, Drawing, colours, curve_table, label_axes, new_axes, styled
from rlkit.laws.compare import Comparison
from rlkit.laws.plot import curves
from rlkit.laws.result import LawFit
from rlkit.seeds import generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}


@contextmanager
def optional(what: str) -> Iterator[None]:
    """A part of an analysis that some studies have no data for: a UserError in it is printed and passed
    over."""
    try:
        yield
    except UserError as error:
        print(f"{what}: left out. {error}")


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
        for value, part in table.groupby(name) if few else [("", table)]:
            ax.plot(part["predicted"], part["residual"], "o", label=f"{value:.3g}" if few else None)
        ax.axhline(0, color="0.4", linewidth=0.6)
        y = fit.table.names["y"]
        label_axes(
            ax,
            f"predicted {LABELS.get(y, y)}",
            "residual" if fit.space == "linear" else "residual of the logarithm",
        )
        if few:
            ax.legend(title=LABELS.get(name, name), **SIDE)
    return Drawing(fig, table)


def forms(found: Comparison, venue: str = "neurips") -> Drawing:
    """Every compared law of one column, fitted without the tail and drawn through it, best first."""
    tests = {
        n: found.backtests[n] for n in found.table["law"] if len(found.backtests[n].fit.law.columns) == 1
    }
    if not tests:
        raise UserError("None of the compared laws has a single column to draw along.")
    drawn = []
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name, test in tests.items():
            along, grid = curves(test.fit, reach=1.0)
            top = max(test.held_out[along].max(), grid[along].max())
            grid = pd.DataFrame({along: np.geomspace(grid[along].min(), top, 100)})
            part = grid.assign(law=name, prediction=test.fit.predict(grid))
            ax.plot(
                part[along], part["prediction"], label=f"{name.replace('_', ' ')}, tail error {test.rmse:.2g}"
            )
            drawn.append(part)
        one = next(iter(tests.values()))
        y, column = one.fit.table.names["y"], one.fit.law.columns[0]
        along = one.fit.table.names[column]
        ax.plot(one.fit.table.columns[column], one.fit.table.y, "o", color="0.2", label="fitted")
        ax.plot(
            one.held_out[along], one.held_out[y], "o", color="0.2", markerfacecolor="none", label="held out"
        )
        ax.set_xscale("log")
        label_axes(ax, along, y)
        ax.legend(**SIDE)
    return Drawing(fig, pd.concat(drawn, ignore_index=True))


def intervals(fits: Mapping[Any, LawFit], level: float = 0.95, venue: str = "neurips") -> Drawing:
    """Estimates with their intervals, a panel a parameter and a row a fit (groups, forms, cuts).

    Ends beyond thirty times the largest estimate, open ones among them, leave the panel.
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
            low, high = (part[end].clip(-1e300, 1e300) for end in ("low", "high"))
            error = np.maximum([part["value"] - low, high - part["value"]], 0)
            ax.errorbar(part["value"], place, xerr=error, fmt="o", elinewidth=0.8, capsize=2)
            size = part["value"].abs().max()
            ax.set_xlim(max(low.min(), -30 * size) - 0.05 * size, min(high.max(), 30 * size) + 0.05 * size)
            ax.set_yticks(range(len(labels)), labels if ax is axes[0] else [""] * len(labels))
            ax.set_ylim(-0.5, len(labels) - 0.5)
            ax.set_title(name)
    return Drawing(fig, table)


def collapse(
    df: pd.DataFrame, x: str, metric: str = "eval/pass@1", by: str = "cell", venue: str = "neurips"
) -> Drawing:
    """Learning curves as shares of their own end: those of a family with one shape fall on one curve.

    Args:
        df: from `rlkit.read`. x: a metric that grows along training, e.g. compute.

    Raises:
        UserError: no run changes the metric between its first and last evaluation.
    """
    table = curve_table(df, x, metric, by).sort_values("step")
    runs = table.groupby("run")
    first, last = runs[metric].transform("first"), runs[metric].transform("last")
    progress = (table[metric] - first) / (last - first)
    table = table.assign(share=table[x] / runs[x].transform("max"), progress=progress)
    table = table[np.isfinite(table["progress"]) & ((last - first).abs() > 1e-9)]
    if table.empty:
        raise UserError(f"No run changes {metric} between its first and last evaluation.")
    palette = colours(df, by)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name, part in table.groupby(by, sort=False):
            mean = part.groupby("step")[["share", "progress"]].mean()
            ax.plot(mean["share"], mean["progress"], "o-", color=palette[name], label=str(name))
        label_axes(
            ax,
            f"share of a run's {LABELS.get(x, x)}",
            f"share of its change of {LABELS.get(metric, metric)}",
        )
        ax.legend(**SIDE)
    return Drawing(fig, table)


def frontier(
    df: pd.DataFrame,
    compute: str,
    metric: str = "eval/pass@1",
    size: str = "parameters_non_embedding",
    levels: int = 6,
    venue: str = "neurips",
) -> Drawing:
    """Iso-performance: the compute at which each size first reaches a level; the lowest point of a line is
    the best size.

    Args:
        df: from `rlkit.read`. levels: how many, evenly spaced over what at least two sizes reach.

    Raises:
        UserError: fewer than two sizes, or no level that two of them reach.
    """
    table = curve_table(df.dropna(subset=size), compute, metric, size)
    table = table[table[compute] > 0]
    mean = table.groupby([size, "step"], as_index=False)[[compute, metric]].mean()
    reached = mean.groupby(size)[metric].max().sort_values()
    if len(reached) < 2:
        raise UserError(f"A frontier needs two sizes or more, and column {size!r} has {len(reached)}.")
    rows = []
    for level in np.linspace(mean.groupby(size)[metric].min().min(), reached.iloc[-2], levels + 1)[1:]:
        for value, part in mean.sort_values("step").groupby(size):
            best = np.maximum.accumulate(part[metric].to_numpy())
            if best[-1] >= level > best[0]:
                need = np.exp(np.interp(level, best, np.log(part[compute].to_numpy())))
                rows.append({metric: float(level), size: value, compute: float(need)})
    found = pd.DataFrame(rows, columns=[metric, size, compute])
    if found.empty:
        raise UserError(f"No level of {metric} is passed by any size between its first and last evaluation.")
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for level, part in found.groupby(metric):
            ax.plot(part[size], part[compute], "o-", label=f"{level:.3f}")
        ax.set_xscale("log")
        ax.set_yscale("log")
        label_axes(ax, size, compute)
        ax.legend(title=LABELS.get(metric, metric), **SIDE)
    return Drawing(fig, found)


def pass_at_k(
    evals: pd.DataFrame, ks: Sequence[int] | None = None, venue: str = "neurips", seed: int = 0
) -> Drawing:
    """pass@k of every cell at its runs' last evaluation, with intervals that resample problems.

    Samples of all seeds of a cell are pooled by problem. k goes up to the smallest number of graded samples.

    Args:
        evals: from `rlkit.read_evals`, with a column `cell`.
    """
    from rlkit.evaluation.passk import counts, pass_at_k_curve

    last = evals[evals["step"] == evals["run"].map(evals.groupby("run")["step"].max())]
    palette, tables = colours(last, "cell"), []
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for cell in palette:
            table = counts(last[last["cell"] == cell]).query("n > 0")
            most = int(table["n"].min())
            chosen = [k for k in (ks or [2**i for i in range(20)]) if k <= most]
            rng = generator("drawings", "pass@k", seed, str(cell))
            curve = pass_at_k_curve(table["n"].to_numpy(), table["c"].to_numpy(), chosen, rng=rng)
            ax.plot(curve["k"], curve["value"], "o-", color=palette[cell], label=str(cell))
            ax.fill_between(
                curve["k"], curve["low"], curve["high"], color=palette[cell], alpha=0.15, linewidth=0
            )
            tables.append(curve.assign(cell=cell))
        ax.set_xscale("log", base=2)
        label_axes(ax, "k", "pass@k")
        ax.legend(**SIDE)
    return Drawing(fig, pd.concat(tables, ignore_index=True))


def transfer(evals: pd.DataFrame, venue: str = "neurips") -> Drawing:
    """How much training in each cell changed pass@1 in each domain: the transfer matrix of a mixture
    study."""
    graded = evals[evals["correct"].notna()].assign(correct=lambda d: d["correct"].astype(float))
    ends = evals.groupby("run")["step"].agg(["min", "max"])
    keys = ["cell", "data_source"]
    before, after = (
        graded[graded["step"] == graded["run"].map(ends[end])].groupby(keys)["correct"].mean()
        for end in ("min", "max")
    )
    table = (after - before).rename("change of pass@1").reset_index()
    matrix = table.pivot(index="cell", columns="data_source", values="change of pass@1")
    matrix = matrix.reindex(list(dict.fromkeys(colours(evals, "cell"))))
    limit = max(float(matrix.abs().max().max()), 1e-9)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.1 + 0.06 * len(matrix))
        image = ax.imshow(matrix.to_numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        _annotate(ax, matrix, limit)
        ax.set_xticks(range(matrix.shape[1]), matrix.columns)
        ax.set_yticks(range(len(matrix)), matrix.index)
        fig.colorbar(image, label="change of pass@1")
    return Drawing(fig, table)


def _annotate(ax: Axes, matrix: pd.DataFrame, limit: float) -> None:
    for i, row in enumerate(matrix.to_numpy()):
        for j, value in enumerate(row):
            if np.isfinite(value):
                shade = "white" if abs(value) > 0.6 * limit else "black"
                ax.text(j, i, f"{value:+.3f}", ha="center", va="center", color=shade)
