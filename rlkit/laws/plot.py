"""The picture of one fit: points, law, confidence band, held-out points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from rlkit.laws.result import LawFit

MOST_LINES = 8


def curves(fit: LawFit, points: int = 100, reach: float = 3.0) -> tuple[str, pd.DataFrame]:
    """The column that varies along a curve, and a table of the law on a grid of it.

    The other columns take their observed combinations, at most eight of them; the grid extends `reach` times
    past the data.
    """
    names = {c: fit.table.names[c] for c in fit.law.columns if c != fit.law.target}
    along = max(names, key=lambda c: len(np.unique(fit.table.columns[c])))
    x = fit.table.columns[along]
    low = x[x > 0].min()
    grid = (
        np.geomspace(low, x.max() * reach, points)
        if along not in ("r", "d")
        else np.linspace(low, x.max(), points)
    )
    others = pd.DataFrame({names[c]: fit.table.columns[c] for c in names if c != along}).drop_duplicates()
    if others.shape[1] == 0:
        return names[along], pd.DataFrame({names[along]: grid})
    others = others.sort_values(list(others.columns))
    others = others.iloc[np.unique(np.linspace(0, len(others) - 1, MOST_LINES).astype(int))]
    return names[along], others.merge(pd.DataFrame({names[along]: grid}), how="cross")


def plot(fit: LawFit, ax: Any, holdout: pd.DataFrame | None, level: float) -> Any:
    """Draw on `ax`, or on new axes; logarithmic where the law's columns and residuals are."""
    import matplotlib.pyplot as plt

    if fit.law.predictor is not None:
        return _plot_likelihood(fit, ax, level)
    ax = ax if ax is not None else plt.subplots()[1]
    along, grid = curves(fit)
    band = fit.predict(grid, band="confidence", level=level)
    table = pd.concat([grid, band], axis=1)
    keys = [c for c in grid.columns if c != along]
    groups = table.groupby(keys) if keys else [((), table)]
    for key, part in groups:
        label = ", ".join(f"{k} = {v:.3g}" for k, v in zip(keys, key, strict=True)) or fit.law.name
        (line,) = ax.plot(part[along], part["prediction"], label=label)
        ax.fill_between(
            part[along], part["low"], part["high"], alpha=0.2, color=line.get_color(), linewidth=0
        )
    column = next(c for c, name in fit.table.names.items() if name == along)
    ax.plot(fit.table.columns[column], fit.table.y, "o", color="0.2", markersize=3, label="fitted")
    if holdout is not None:
        ax.plot(
            holdout[along],
            holdout[fit.table.names["y"]],
            "o",
            color="0.2",
            markerfacecolor="none",
            label="held out",
        )
    if column not in ("r", "d"):
        ax.set_xscale("log")
    if fit.space == "log":
        ax.set_yscale("log")
    ax.set_xlabel(along)
    ax.set_ylabel(fit.table.names["y"])
    ax.legend()
    return ax


def _plot_likelihood(fit: LawFit, ax: Any, level: float) -> Any:
    """pass@k predicted by a likelihood over problems."""
    import matplotlib.pyplot as plt

    ax = ax if ax is not None else plt.subplots()[1]
    k = np.unique(np.geomspace(1, fit.table.columns["n"].max(), 100).round())
    if fit.draws is None:
        ax.plot(k, fit.predict({"k": k}), label=fit.law.name)
    else:
        band = fit.predict({"k": k}, band="confidence", level=level)
        ax.plot(k, band["prediction"], label=fit.law.name)
        ax.fill_between(k, band["low"], band["high"], alpha=0.2, linewidth=0)
    ax.set_xscale("log")
    ax.set_xlabel("k")
    ax.set_ylabel("pass@k")
    ax.legend()
    return ax
