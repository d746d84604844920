"""What training shows along its curves (of `rlkit.read`, `df`): how steadily runs learn, and what a level needs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlkit.domains import sources as components
from rlkit.errors import UserError
from rlkit.measures.summary import curve_table, first_at, in_order, remember

METRIC = "eval/pass@1"


def stability(df: pd.DataFrame) -> pd.DataFrame:
    """How steadily the runs of each cell learn: one row a cell, smallest model first, with runs; pass@1 at the
    end (mean) and spread (standard deviation); largest_fall (of pass@1 below its best so far, mean); spikes (share of
    steps with a gradient norm above five times the run's median); entropy_kept (last over first entropy a token)."""
    curves = curve_table(df, "step", METRIC, "cell").sort_values("step")
    fall = curves.groupby("run")[METRIC].cummax() - curves[METRIC]
    runs = curves.assign(fall=fall).groupby(["cell", "run"]).agg(end=(METRIC, "last"), fall=("fall", "max"))
    norms = df[df["metric"] == "actor/grad_norm"].groupby("run")["value"]
    entropy = df[df["metric"] == "actor/entropy"].sort_values("step").groupby("run")["value"]
    spikes, kept = norms.agg(lambda v: (v > 5 * v.median()).mean()), entropy.last() / entropy.first()
    table = runs.reset_index().set_index("run").assign(spikes=spikes, entropy_kept=kept)
    ends = {"runs": ("end", "size"), "pass@1": ("end", "mean"), "spread": ("end", "std")}
    means = {"largest_fall": ("fall", "mean"), **{c: (c, "mean") for c in ("spikes", "entropy_kept")}}
    return table.groupby("cell").agg(**ends, **means).loc[in_order(df, "cell")["cell"]].reset_index()


def needed(df: pd.DataFrame, x: str, levels: Sequence[float] | int = 4) -> pd.DataFrame:
    """How much of `x` ("step", or a metric that grows along training) the runs of each cell need to reach a level of
    pass@1. `levels` may be how many for each model, evenly spaced over what its runs rise through. Returns one row a
    cell, smallest model first, and level: x (mean over runs that reach it; 0 of one that starts above it; NaN
    where none does), low and high (their range), reached and runs (how many do, of all)."""
    table = curve_table(df, "step", METRIC, "cell")
    if x != "step":
        amount = df[(df["metric"] == x) & (df["data_source"] == "all")].set_index(["run", "step"])["value"]
        table = table.join(amount.rename(x), on=["run", "step"])
        table[x] = table[x].where(table["step"] > 0, 0.0)
    table = table.dropna(subset=x).sort_values(["cell", "run", "step"])
    models = df.groupby("run")["model.path"].first()
    rows = []
    for name in in_order(df, "cell")["cell"]:
        own = table[table["cell"] == name]
        same = table[table["run"].map(models).isin(own["run"].map(models))].groupby("run")[METRIC]
        if not isinstance(levels, int):
            wanted = levels
        else:
            start, best = same.first().max(), same.max().max()
            wanted = np.linspace(start, best, levels + 2)[1:-1].tolist() if best > start else []
        for level in wanted:
            curves = (run[[x, METRIC]].to_numpy() for _, run in own.groupby("run"))
            need = pd.Series([first_at(curve[:, 0], curve[:, 1], level) for curve in curves], dtype=float)
            told = {x: need.mean(), "low": need.min(), "high": need.max(), "reached": need.count()}
            rows.append({"cell": name, "level": level, **told, "runs": len(need)})
    if not rows:
        raise UserError(f"No run rises above where its model starts in {METRIC}.")
    return remember(pd.DataFrame(rows), df, "cell")


def needed_per_domain(df: pd.DataFrame, evals: pd.DataFrame) -> pd.DataFrame:
    """How many tasks of each domain were shown until its held-out pass@1 had made half of the largest gain that any
    run made in it: the minimum data of a domain, alone and in mixtures; missing where no run gained more than twice the
    standard error that the domain's held-out problems (in `evals`) leave. Domains are those of sources that make one
    data_source each, not of files. Returns the columns of `needed`, data_source and tasks."""
    tables, rates = [], df[df["metric"] == METRIC]
    problems = evals.groupby("data_source")["task_id"].nunique()
    for label in sorted(name for name in df["metric"].unique() if name.startswith("data/tasks/")):
        kind = label.removeprefix("data/tasks/")
        source, *others = components[kind].makes if kind in components else (None, None)
        rate = rates[rates["data_source"] == source].sort_values("step")
        if others or rate.empty:
            continue
        start, best = rate.groupby("run")["value"].first().mean(), rate["value"].max()
        own = pd.concat([df[df["metric"] == label], rate.assign(data_source="all")])
        middle = (start + best) / 2
        found = needed(own, label, [middle])
        if best - start <= 2 * np.sqrt(2 * middle * (1 - middle) / problems[source]):
            found = found.assign(**{label: np.nan, "low": np.nan, "high": np.nan, "reached": 0})
        tables.append(found.rename(columns={label: "tasks"}).assign(data_source=source))
    if not tables:
        raise UserError("No held-out domain of these runs has a source of its own, whose tasks are counted.")
    return remember(pd.concat(tables, ignore_index=True), df, "cell")
