"""Figures for papers: one look, and every figure with the table it drew.

The functions read what `rlkit.read`, `rlkit.read_evals` and `rlkit.fit` return and give a `Drawing`, which
a notebook shows and `save` writes as PDF, PNG and CSV, the same bytes for the same input.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.files import replacing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rlkit.laws import LawFit

WIDTHS = {"neurips": 5.5, "iclr": 5.5, "icml": 3.25, "acl": 3.03, "tmlr": 6.5}
"""Inches of text width, or of a column where the venue prints two."""

LABELS = {
    "step": "optimizer rounds",
    "compute/total_flops": "training FLOPs, all phases",
    "compute/train_6nt_flops": "training FLOPs, 6NT",
    "parameters_non_embedding": "non-embedding parameters",
    "eval/pass@1": "held-out pass@1",
    "error": "held-out error, 1 − pass@1",
    "critic/score/mean": "training score",
    "response_length/mean": "response length, tokens",
    "actor/grad_norm": "gradient norm",
    "actor/entropy": "entropy, nats a token",
}

_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: text stays text, and venues' checks accept it
    "ps.fonttype": 42,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
}


@dataclass(frozen=True)
class Drawing:
    """A figure and the table that it drew."""

    figure: "Figure"
    table: "pd.DataFrame"

    def save(self, path: str | Path) -> list[Path]:
        """Write PDF, PNG and CSV (see `save`)."""
        return save(self.figure, path, self.table)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with styled():
            self.figure.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()


def theme() -> None:
    """Use the look of these figures for everything that this process draws with matplotlib."""
    import matplotlib

    matplotlib.rcParams.update(_rc())


def save(fig: "Figure", path: str | Path, data: "pd.DataFrame") -> list[Path]:
    """Write <path>.pdf, <path>.png and <path>.csv, each in one step; equal input gives equal bytes.

    Raises:
        UserError: the folder cannot be written.
    """
    path = Path(path)
    targets = [path.with_name(path.name + suffix) for suffix in (".pdf", ".png", ".csv")]
    dated = {"pdf": {"CreationDate": None}, "png": {"Software": None}}
    with styled():
        for target in targets[:2]:
            kind = target.suffix[1:]
            with replacing(target) as temporary:
                fig.savefig(temporary, format=kind, metadata=dated[kind])
    with replacing(targets[2]) as temporary:
        data.to_csv(temporary, index=False, lineterminator="\n")
    return targets


def colours(df: "pd.DataFrame", by: str = "model.path") -> dict[Any, Any]:
    """A colour for each value of `by`, smallest model first: the same in every figure of a study."""
    import seaborn

    size = "parameters_non_embedding"
    order = df.sort_values(size)[by] if size in df and df[size].notna().any() else df[by].sort_values()
    names = list(dict.fromkeys(order))
    return dict(zip(names, seaborn.color_palette("colorblind", len(names)), strict=True))


def learning_curves(
    df: "pd.DataFrame",
    x: str = "step",
    metric: str = "eval/pass@1",
    by: str = "model.path",
    venue: str = "neurips",
) -> Drawing:
    """A metric along training: a thin line a run, a thick one for the mean over the seeds of each `by`.

    Args:
        df: from `rlkit.read`. x: "step", or a metric logged at the same steps ("compute/total_flops").
    """
    table = curve_table(df, x, metric, by)
    palette = colours(df, by)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name in palette:
            part = table[table[by] == name]
            for _, run in part.groupby("run"):
                ax.plot(run[x], run[metric], color=palette[name], alpha=0.35, linewidth=0.6)
            mean = part.groupby("step")[[x, metric]].mean()
            ax.plot(mean[x], mean[metric], color=palette[name], label=str(name))
        label_axes(ax, x, metric)
        if x.endswith("flops"):  # logarithmic, with room for step 0
            ax.set_xscale("symlog", linthresh=table.loc[table[x] > 0, x].min())
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return Drawing(fig, table)


def metric_panels(
    df: "pd.DataFrame",
    metrics: Sequence[str],
    x: str = "step",
    by: str = "model.path",
    venue: str = "neurips",
) -> Drawing:
    """Several metrics side by side, a line a run. Metrics that were not logged are left out."""
    import pandas as pd

    known = [m for m in metrics if (df["metric"] == m).any()]
    if not known:
        raise UserError(f"None of the metrics {', '.join(metrics)} was logged.")
    palette = colours(df, by)
    tables = []
    with styled():
        fig, axes = new_axes(venue, len(known), 0.3)
        for ax, metric in zip(axes, known, strict=True):
            table = curve_table(df, x, metric, by)
            for (name, _), run in table.groupby([by, "run"], sort=False):
                ax.plot(run[x], run[metric], color=palette[name], linewidth=0.8)
            label_axes(ax, x, metric)
            tables.append(table.melt([c for c in table if c != metric], metric, "metric", "value"))
    return Drawing(fig, pd.concat(tables, ignore_index=True))


def before_after(table: "pd.DataFrame", venue: str = "neurips") -> Drawing:
    """pass@1 before and after training with its intervals, one pair of bars a cell.

    Args:
        table: from `rlkit.summary.before_after`.
    """
    import seaborn

    grey, blue = seaborn.color_palette("colorblind")[7], seaborn.color_palette("colorblind")[0]
    cells = list(dict.fromkeys(table["cell"]))
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.45)
        for offset, when, colour in ((-0.2, "before", grey), (0.2, "after", blue)):
            part = table[table["when"] == when].set_index("cell").loc[cells]
            error = [part["pass@1"] - part["low"], part["high"] - part["pass@1"]]
            places = [i + offset for i in range(len(cells))]
            ax.bar(places, part["pass@1"], width=0.38, color=colour, label=f"{when} training")
            ax.errorbar(
                places, part["pass@1"], yerr=error, fmt="none", ecolor="0.2", elinewidth=0.8, capsize=2
            )
        held = dict(zip(table["cell"], table["held_out"], strict=True))
        ax.set_xticks(range(len(cells)), [f"{c}\n(held out)" if held[c] else c for c in cells])
        label_axes(ax, "", "eval/pass@1")
        ax.set_ylim(0, 1)
        ax.legend(loc="upper left")
    return Drawing(fig, table)


def scaling_law(
    fit: "LawFit", table: "pd.DataFrame", by: str = "model.path", venue: str = "neurips", level: float = 0.95
) -> Drawing:
    """A law of one column with its band, its points, and the held-out points that it never saw.

    Args:
        fit: from `rlkit.fit`, with one column.
        table: its points, with the law's columns, `held_out` (bool) and `by` for colours.
        level: of the prediction band: where a new run of that size is expected.
    """
    import numpy as np
    import pandas as pd
    from matplotlib.ticker import ScalarFormatter

    x, y = fit.table.names[fit.law.columns[0]], fit.table.names["y"]
    grid = pd.DataFrame({x: np.geomspace(table[x].min() / 1.5, table[x].max() * 1.5, 200)})
    band = pd.concat([grid, fit.predict(grid, band="prediction", level=level)], axis=1)
    palette = colours(table, by)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        ax.plot(band[x], band["prediction"], color="0.2", label=fit.law.name.replace("_", " "))
        ax.fill_between(
            band[x], band["low"], band["high"], color="0.85", label=f"{level:.0%} prediction band", lw=0
        )
        for name, part in table.groupby(by, sort=False):
            held = bool(part["held_out"].iloc[0])
            label = f"{name}, held out" if held else str(name)
            face = "none" if held else palette[name]
            ax.plot(part[x], part[y], "o", color=palette[name], markerfacecolor=face, label=label)
        label_axes(ax, x, y)
        ax.set_xscale("log")
        if fit.space == "log":
            ax.set_yscale("log")
            if table[y].max() < 10 * table[y].min():  # too short for powers of ten
                ax.yaxis.set_major_formatter(ScalarFormatter())
                ax.yaxis.set_minor_formatter(ScalarFormatter())
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    drawn = pd.concat([table.assign(part="point"), band.assign(part="law")], ignore_index=True)
    return Drawing(fig, drawn)


def curve_table(df: "pd.DataFrame", x: str, metric: str, by: str) -> "pd.DataFrame":
    """One row a run and step: `by`, run, seed, step, x, metric."""
    whole = df[df["data_source"] == "all"]
    wanted = [metric] if x == "step" else [metric, x]
    for name in wanted:
        if not (whole["metric"] == name).any():
            raise UserError(f"The metric {name!r} was not logged by any of these runs.")
    keys = list(dict.fromkeys([by, "run", "seed", "step"]))
    wide = (
        whole[whole["metric"].isin(wanted)].pivot_table("value", keys, "metric", observed=True).reset_index()
    )
    wide.columns.name = None
    return wide.dropna(subset=wanted).reset_index(drop=True)


def new_axes(venue: str, columns: int, aspect: float) -> "tuple[Figure, list[Axes]]":
    """A figure of the venue's width; it is not pyplot's, so nothing has to be closed."""
    from matplotlib.figure import Figure

    if venue not in WIDTHS:
        raise UserError(f"venue is {venue!r}: use one of {', '.join(WIDTHS)}.")
    fig = Figure(figsize=(WIDTHS[venue], WIDTHS[venue] * aspect))
    return fig, list(fig.subplots(1, columns, squeeze=False)[0])


def label_axes(ax: "Axes", x: str, y: str) -> None:
    ax.set_xlabel(LABELS.get(x, x))
    ax.set_ylabel(LABELS.get(y, y))


def _rc() -> Any:
    import seaborn
    from cycler import cycler

    return {**_STYLE, "axes.prop_cycle": cycler(color=list(seaborn.color_palette("colorblind")))}


@contextmanager
def styled() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_rc()):
        yield
