"""Pictures of training rows: class balance, prompt lengths, and the mixture over the steps of a run."""

from typing import TYPE_CHECKING

from rlkit.data.guru import domain
from rlkit.data.stream import TaskStream
from rlkit.figures import Drawing, styled

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.data.linter import Report


def balance(counts: "pd.DataFrame") -> Drawing:
    """Bars: rows of each data_source, of a table with the columns data_source and rows."""
    from matplotlib.figure import Figure

    ordered = counts.sort_values("rows")
    with styled():
        figure = Figure(figsize=(5.5, 0.6 + 0.2 * len(ordered)))
        axes = figure.subplots()
        axes.barh(ordered["data_source"], ordered["rows"], color="#4878a8")
        axes.set_xlabel("rows")
    return Drawing(figure, ordered)


def lengths(report: "Report") -> Drawing:
    """Histograms of prompt length, one line a domain."""
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure

    table = pd.DataFrame({"domain": [domain(s) for s in report.sources], "length": report.lengths})
    with styled():
        figure = Figure(figsize=(5.5, 2.4))
        axes = figure.subplots()
        if len(table):
            edges = np.geomspace(max(1, table["length"].min()), table["length"].max() + 1, 40)
            for name, part in table.groupby("domain"):
                axes.hist(part["length"], edges, histtype="step", label=str(name))
            axes.set_xscale("log")
            axes.legend()
        axes.set(xlabel=f"{report.length_unit} a prompt", ylabel="rows")
    return Drawing(figure, table)


def exposure(stream: TaskStream) -> Drawing:
    """Areas: tasks of each source in each step of the run (not for an adaptive order)."""
    import matplotlib
    import pandas as pd
    from matplotlib.figure import Figure

    steps = range(1, stream.config.trainer.total_training_steps + 1)
    shown = pd.DataFrame([stream.exposure(step) for step in steps], index=steps).filter(like="data/tasks/")
    shown.columns = shown.columns.str.removeprefix("data/tasks/")
    table = shown.diff().fillna(shown)
    with styled():
        figure = Figure(figsize=(5.5, 2.6))
        axes = figure.subplots()
        colours = matplotlib.colormaps["tab20"].colors[: table.shape[1]]  # type: ignore[attr-defined]
        axes.stackplot(list(steps), table.T, labels=list(table.columns), colors=colours, step="mid")
        axes.set(xlabel="step", ylabel="tasks of each source")
        figure.legend(loc="outside right center")
    return Drawing(figure, table.rename_axis("step").reset_index())
