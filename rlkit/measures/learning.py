"""What training shows along its curves: how steadily runs learn, and how much of something a level of pass@1 needs.

Tables from `rlkit.read` (`df`). Ranges are over runs.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlkit.domains import sources as components
from rlkit.errors import UserError
from rlkit.measures.tables import curve_table, first_at, in_order, remember

METRIC = "eval/pass@1"


def stability(df: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """How steadily the runs of each `by` learn.

    Returns:
        One row a value of `by`, smallest model first: runs; pass@1 at the end (mean) and spread (standard
        deviation over runs, NaN for one); largest_fall: how far pass@1 fell below its best so far, the mean over
        runs of each one's worst;
        spikes: the share of steps with a gradient norm above five times the run's median; entropy_kept: last
        over first entropy a token.
    """
    curves = curve_table(df, "step", METRIC, by).sort_values("step")
    fall = curves.groupby("run")[METRIC].cummax() - curves[METRIC]
    runs = curves.assign(fall=fall).groupby([by, "run"]).agg(end=(METRIC, "last"), fall=("fall", "max"))
    norms = df[df["metric"] == "actor/grad_norm"].groupby("run")["value"]
    entropy = df[df["metric"] == "actor/entropy"].sort_values("step").groupby("run")["value"]
    table = runs.reset_index().set_index("run")
    table = table.assign(
        spikes=norms.agg(lambda v: (v > 5 * v.median()).mean()), entropy_kept=entropy.last() / entropy.first()
    )
    found = table.groupby(by).agg(
        runs=("end", "size"),
        **{METRIC.removeprefix("eval/"): ("end", "mean")},
        spread=("end", "std"),
        largest_fall=("fall", "mean"),
        spikes=("spikes", "mean"),
        entropy_kept=("entropy_kept", "mean"),
    )
    return found.loc[in_order(df, by)[by]].reset_index()


def needed(
    df: pd.DataFrame, x: str, levels: Sequence[float] | int = 4, by: str = "cell", data_source: str = "all"
) -> pd.DataFrame:
    """How much of `x` (tokens, tasks, FLOPs, steps) the runs of each `by` need to reach a level of pass@1.

    Between two evaluations the curve is taken as straight; a run that starts above a level needs 0.

    Args:
        x: "step", or a metric that grows along training, e.g. "tokens/response".
        levels: the levels, or how many for each model, evenly spaced over what its runs rise through: from where all of
            them have started to the best of one.
        data_source: pass@1 on this one instead of all.

    Returns:
        One row a value of `by`, smallest model first, and level: x (mean over the runs that reach it), low and
        high (their range), reached and runs (how many do, of how many). NaN where none does.

    Raises:
        UserError: pass@1 was not measured; levels were to be found, and no run rises above its model's start.
    """
    table = _along(df, x, by, data_source)
    models = df.groupby("run")["model.path"].first()
    rows = []
    for name in in_order(df, by)[by]:
        own = table[table[by] == name]
        same = table[table["run"].map(models).isin(own["run"].map(models))].groupby("run")[METRIC]
        wanted = levels
        if isinstance(levels, int):
            start, best = same.first().max(), same.max().max()
            wanted = np.linspace(start, best, levels + 2)[1:-1].tolist() if best > start else []
        for level in wanted:
            need = [
                first_at(run[x].to_numpy(), run[METRIC].to_numpy(), level) for _, run in own.groupby("run")
            ]
            found = np.array(need)[np.isfinite(need)]
            ends = (found.mean(), found.min(), found.max()) if len(found) else (np.nan,) * 3
            told = dict(zip((x, "low", "high"), ends, strict=True))
            rows.append({by: name, "level": level, **told, "reached": len(found), "runs": len(need)})
    if not rows:
        raise UserError(f"No run rises above where its model starts in {METRIC} of {data_source!r}.")
    return remember(pd.DataFrame(rows), df, by)


def needed_per_domain(
    df: pd.DataFrame, evals: pd.DataFrame, share: float = 0.5, by: str = "cell"
) -> pd.DataFrame:
    """How many tasks of each domain were shown until its held-out pass@1 had made `share` of the largest gain
    that any run made in it: the minimum data of a domain, alone and in mixtures.

    It is missing where no run gained more than twice the standard error that its held-out problems leave: such a level
    is reached by chance. Domains are those of sources that make one data_source each; tasks of files have no counter of
    their own.

    Args:
        evals: from `rlkit.read_evals`, which counts the problems.

    Returns:
        The columns of `needed` with data_source and tasks.

    Raises:
        UserError: no domain has a source of its own.
    """
    tables = []
    for label in sorted(set(df.loc[df["metric"].str.startswith("data/tasks/"), "metric"])):
        kind = label.removeprefix("data/tasks/")
        made = components[kind].makes if kind in components else ()
        if len(made) != 1 or made[0] not in set(df["data_source"]):
            continue
        source = made[0]
        curves = _along(df, "step", by, source).groupby("run")[METRIC]
        start, best = curves.first().mean(), curves.max().max()
        found = needed(df, label, [start + share * (best - start)], by, source)
        rate, problems = (start + best) / 2, evals.loc[evals["data_source"] == source, "task_id"].nunique()
        if best - start <= 2 * np.sqrt(2 * rate * (1 - rate) / max(problems, 1)):
            found = found.assign(**{label: np.nan, "low": np.nan, "high": np.nan, "reached": 0})
        tables.append(found.rename(columns={label: "tasks"}).assign(data_source=source))
    if not tables:
        raise UserError("No held-out domain of these runs has a source of its own, whose tasks are counted.")
    return remember(pd.concat(tables, ignore_index=True), df, by)


def _along(df: pd.DataFrame, x: str, by: str, data_source: str) -> pd.DataFrame:
    """One row a run and evaluation: `by`, run, step, x (0 at step 0), pass@1 on `data_source`."""
    rate = df[(df["metric"] == METRIC) & (df["data_source"] == data_source)]
    table = rate[[by, "run", "step"]].assign(**{METRIC: rate["value"]}).dropna()
    if table.empty:
        raise UserError(f"{METRIC} of {data_source!r} was not measured in any of these runs.")
    if x != "step":
        amount = df[(df["metric"] == x) & (df["data_source"] == "all")].set_index(["run", "step"])["value"]
        table = table.join(amount.rename(x), on=["run", "step"])
        table.loc[table["step"] == 0, x] = 0.0
    return table.dropna().sort_values([by, "run", "step"], ignore_index=True)
