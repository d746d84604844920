"""What a study shows beyond final scores: stability, sample efficiency, returns of data, equal compute, differences of
variants, pass@k before and after, diversity.

Tables from `rlkit.read` (`df`) and `rlkit.read_evals` (`evals`). Intervals are 95 % percentile intervals that
resample held-out problems, each with all its samples of all seeds of its cell; what differs between seeds is
shown as their range, or by a second interval (`differences`). Figures of these tables are in
`rlkit.figures.contrasts`.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlkit.domains import sources as components
from rlkit.errors import UserError
from rlkit.evaluation.passk import bootstrap_mean, counts, pass_at_k, resample_sums
from rlkit.figures import curve_table, looks, sources
from rlkit.figures.efficiency import first_at
from rlkit.seeds import generator
from rlkit.summary import pass_rates

METRIC = "eval/pass@1"
DRAWS = 4000


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
    best = curves.groupby("run")[METRIC].cummax()
    runs = curves.assign(fall=best - curves[METRIC]).groupby([by, "run"])
    table = runs.agg(end=(METRIC, "last"), fall=("fall", "max")).reset_index()
    table = table.join(_spikes(df), on="run").join(_kept(df), on="run")
    found = table.groupby(by).agg(
        runs=("run", "size"),
        **{METRIC.removeprefix("eval/"): ("end", "mean")},
        spread=("end", "std"),
        largest_fall=("fall", "mean"),
        spikes=("spikes", "mean"),
        entropy_kept=("entropy_kept", "mean"),
    )
    return found.loc[list(looks(df, by))].reset_index()


def _spikes(df: pd.DataFrame) -> pd.Series:
    norms = df[df["metric"] == "actor/grad_norm"]
    median = norms.groupby("run")["value"].transform("median")
    return (norms["value"] > 5 * median).groupby(norms["run"]).mean().rename("spikes")


def _kept(df: pd.DataFrame) -> pd.Series:
    runs = df[df["metric"] == "actor/entropy"].sort_values("step").groupby("run")["value"]
    return (runs.last() / runs.first()).rename("entropy_kept")


def needed(
    df: pd.DataFrame,
    x: str,
    levels: Sequence[float] | int = 4,
    by: str = "cell",
    data_source: str = "all",
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
    for name in looks(df, by):
        own = table[table[by] == name]
        runs = [run for _, run in own.groupby("run")]
        same = table[table["run"].map(models).isin(own["run"].map(models))]
        for level in _levels(same, levels) if isinstance(levels, int) else levels:
            need = np.array([first_at(run[x].to_numpy(), run[METRIC].to_numpy(), level) for run in runs])
            found = need[np.isfinite(need)]
            ends = (found.mean(), found.min(), found.max()) if len(found) else (np.nan,) * 3
            rows.append(
                {by: name, "level": level, **dict(zip((x, "low", "high"), ends, strict=True)),
                 "reached": len(found), "runs": len(runs)}
            )  # fmt: skip
    if not rows:
        raise UserError(f"No run rises above where its model starts in {METRIC} of {data_source!r}.")
    return _from(df, by, pd.DataFrame(rows))


def _levels(curves: pd.DataFrame, count: int) -> list[float]:
    """`count` levels between the highest start of some runs and the best that one of them gets to; none where that is
    the start."""
    runs = curves.groupby("run")[METRIC]
    start, best = runs.first().max(), runs.max().max()
    return np.linspace(start, best, count + 2)[1:-1].tolist() if best > start else []


def needed_per_domain(df: pd.DataFrame, share: float = 0.5, by: str = "cell") -> pd.DataFrame:
    """How many tasks of each domain were shown until its held-out pass@1 had made `share` of the largest gain
    that any run made in it: the minimum data of a domain, alone and in mixtures.

    It is missing where no run gained more than twice the standard error that its held-out problems leave: such a level
    is reached by chance. Domains are those of sources that make one data_source each; tasks of files have no counter of
    their own.

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
        if best - start <= 2 * _chance(df, source, (start + best) / 2):
            found = found.assign(**{label: np.nan, "low": np.nan, "high": np.nan, "reached": 0})
        tables.append(found.rename(columns={label: "tasks"}).assign(data_source=source))
    if not tables:
        raise UserError("No held-out domain of these runs has a source of its own, whose tasks are counted.")
    return _from(df, by, pd.concat(tables, ignore_index=True))


def _chance(df: pd.DataFrame, source: str, rate: float) -> float:
    """The standard error of a difference of two pass@1 near `rate` on the held-out problems of a domain; 0 where their
    number is not known."""
    rows = df[(df["metric"] == METRIC) & (df["data_source"] == source)]
    problems = rows["tasks"].min() if "tasks" in rows else np.inf
    return float(np.sqrt(2 * rate * (1 - rate) / problems))


def marginal_returns(evals: pd.DataFrame, df: pd.DataFrame, x: str, by: str | None = None) -> pd.DataFrame:
    """What each doubling of `x` adds to pass@1 at the end, between neighbouring values of it.

    The same held-out problems were asked at both, so problems are resampled with both answers.

    Args:
        x: a key of the config with positive numbers, e.g. "data.train_max_samples".
        by: compare within each value of this column of `evals`.

    Returns:
        One row a pair: `by`, from, to, change (of pass@1), per_doubling with low and high, problems.
    """
    last = _last(evals).assign(**{x: lambda t: t["run"].map(df.groupby("run")[x].first())})
    keys = [by] if by else []
    rates = last.groupby([*keys, x, "task_id"])["correct"].mean()
    rows = []
    for name, part in rates.groupby(level=0) if by else [(None, rates)]:
        values = sorted(set(part.index.get_level_values(x)))
        wide = part.droplevel(0).unstack(x) if by else part.unstack(x)
        for a, b in itertools.pairwise(values):
            change = (wide[b] - wide[a]).dropna().to_numpy(float)
            mean = bootstrap_mean(change, rng=generator("marginal", str(name), str(a)), draws=DRAWS)
            doublings = np.log2(b / a)
            rows.append(
                {**({by: name} if by else {}), "from": a, "to": b, "change": mean.value,
                 "per_doubling": mean.value / doublings, "low": mean.low / doublings,
                 "high": mean.high / doublings, "problems": mean.prompts}
            )  # fmt: skip
    if not rows:
        raise UserError(
            f"{x} has one value in these runs, so there is nothing to compare: add values to the grid."
        )
    return _from(evals, by or "cell", pd.DataFrame(rows))


def at_compute(evals: pd.DataFrame, df: pd.DataFrame, compute: str, by: str = "cell") -> pd.DataFrame:
    """pass@1 of each `by` at its last evaluation within the compute that all runs of its model have spent.

    The budget is a model's own: a larger one has hardly begun when a small one has spent all of its compute. How sizes
    compare at equal compute is what `rlkit.figures.efficiency.frontier` shows.

    Args:
        compute: a metric that grows along training, e.g. "compute/total_flops".
        by: what is compared; each value is of one model.

    Returns:
        One row a value of `by`, smallest model first and best first within it: model.path, pass@1, low, high, budget
        (the compute), step (of that evaluation, a range where the seeds' differ), steps (of the whole run), tasks and
        runs.

    Raises:
        UserError: no model has two values of `by`.
    """
    spent = curve_table(df, compute, METRIC, by)
    model = spent["run"].map(df.groupby("run")["model.path"].first())
    several = spent.groupby(model)[by].transform("nunique") > 1
    if not several.any():
        raise UserError("Equal compute is between cells of one model, and each model of this study has one.")
    spent, model = spent[several], model[several]
    budget = spent.groupby([model, "run"])[compute].max().groupby(level=0).min()
    within = spent[spent[compute] <= model.map(budget) * (1 + 1e-9)]
    chosen = evals[evals["step"] == evals["run"].map(within.groupby("run")["step"].max())]
    found = pass_rates(chosen.assign(at=chosen["step"], step=0), by).drop(columns="step")
    steps = chosen.groupby(by)["step"].agg(["min", "max"])
    words = {name: str(a) if a == b else f"{a}–{b}" for name, a, b in steps.itertuples()}
    order = list(looks(df))
    table = found.assign(
        budget=found["model.path"].map(budget),
        step=found[by].map(words),
        steps=found[by].map(spent.groupby(by)["step"].max()),
        size=found["model.path"].map(order.index),
    ).sort_values(["size", "pass@1"], ascending=[True, False], ignore_index=True)
    columns = [by, "model.path", "pass@1", "low", "high", "budget", "step", "steps", "tasks", "runs"]
    return _from(evals, by, table[columns])


def differences(evals: pd.DataFrame) -> pd.DataFrame:
    """Final pass@1 of each variant less that of the first one of the study's file, for each model and every other value
    of the grid.

    The same held-out problems were asked of both, so they are paired: an interval over problems resamples each with its
    answers of all seeds of both cells. It says what other problems would give of these very runs. The interval over
    seeds and problems resamples both, the seeds within each cell: what other runs would give, too. Of two seeds it
    knows little (docs/concepts/metrics.md).

    Returns:
        One row a cell of another variant, smallest model first, then in the order of the file: cell, variant, baseline,
        model.path, difference, low and high (over problems), low_seeds and high_seeds (over seeds and problems; NaN
        where a cell has one seed), problems, seeds and baseline_seeds, steps_least and steps (of the least and the most
        trained run of both cells).

    Raises:
        UserError: the study has no variants; none was evaluated beside the first one.
    """
    if "variant" not in evals or evals["variant"].nunique() < 2:
        raise UserError("Differences are between variants, and the study has fewer than two.")
    last = _last(evals)
    cells = {name: part for name, part in last.groupby("cell")}
    first = {_beside(part): part for part in cells.values() if not part["variant_place"].iloc[0]}
    rows = []
    for name in looks(last, "cell"):
        one, other = cells[name], first.get(_beside(cells[name]))
        if other is None or not one["variant_place"].iloc[0]:
            continue
        steps = pd.concat([one["step"], other["step"]])
        rows.append(
            {"cell": name, "variant": one["variant"].iloc[0], "baseline": other["variant"].iloc[0],
             "model.path": one["model.path"].iloc[0], **_difference(one, other),
             "steps_least": steps.min(), "steps": steps.max()}
        )  # fmt: skip
    if not rows:
        raise UserError("No other variant was evaluated beside the first one of the study's file.")
    return _from(evals, "cell", pd.DataFrame(rows))


def _beside(part: pd.DataFrame) -> str:
    """What a cell's name has beside its variant: the values of the grid."""
    return part["cell"].iloc[0].removeprefix(part["variant"].iloc[0])


def _difference(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, float]:
    """The mean over problems of one cell's pass@1 less another's, with both intervals of `differences`."""
    wide = [cell.pivot_table("correct", "task_id", "run") for cell in (one, other)]
    runs = [table.shape[1] for table in wide]
    rates = pd.concat(wide, axis=1, join="inner").dropna().to_numpy()  # (problems, runs of both cells)
    mine, others = np.split(rates, [runs[0]], axis=1)
    rng = generator("differences", *(cell["cell"].iloc[0] for cell in (one, other)))
    mean = bootstrap_mean(mine.mean(axis=1) - others.mean(axis=1), rng=rng)
    ends = np.array([np.nan, np.nan])
    if min(runs) > 1:
        drawn = resample_sums(rates, rng, DRAWS) / len(rates)
        again = [rng.multinomial(n, np.full(n, 1 / n), DRAWS) / n for n in runs]
        ends = np.quantile((drawn * np.hstack([again[0], -again[1]])).sum(axis=1), [0.025, 0.975])
    return {
        "difference": mean.value, "low": mean.low, "high": mean.high, "low_seeds": ends[0], "high_seeds": ends[1],
        "problems": mean.prompts, "seeds": runs[0], "baseline_seeds": runs[1],
    }  # fmt: skip


def pass_at_k_ends(evals: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """pass@k before and after training for k = 1, 2, 4 … up to a run's samples of a problem, the mean over runs.

    Returns:
        One row a value of `by`, `when` ("before", "after") and k: value, low, high, problems.
    """
    tables = []
    for name, (ks, before, after) in _both_ends(evals, by).items():
        for when, curve in (("before", before), ("after", after)):
            means = resample_sums(curve, generator("pass@k", str(name), when), DRAWS) / len(curve)
            low, high = np.quantile(means, [0.025, 0.975], axis=0)
            tables.append(
                pd.DataFrame({by: name, "when": when, "k": ks, "value": curve.mean(axis=0), "low": low, "high": high,
                              "problems": len(curve)})
            )  # fmt: skip
    return _from(evals, by, pd.concat(tables, ignore_index=True))


def crossing(evals: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """The k from which the model before training solves more problems than the trained one (arXiv 2504.13837).

    pass@k is taken as straight between powers of two on a logarithmic axis. Problems are resampled with both
    curves.

    Returns:
        One row a value of `by`: k (NaN: the curves do not cross up to the largest k), low and high over the
        resamples that cross, crosses (their share), largest_k, gain_at_1 and gain_at_largest_k.
    """
    rows = []
    for name, (ks, before, after) in _both_ends(evals, by).items():
        gain = after - before
        draws = resample_sums(gain, generator("crossing", str(name)), DRAWS) / len(gain)
        crossings = np.array([_crossing(ks, draw) for draw in draws])
        found = crossings[np.isfinite(crossings)]
        low, high = np.quantile(found, [0.025, 0.975]) if len(found) else (np.nan, np.nan)
        mean = gain.mean(axis=0)
        rows.append(
            {by: name, "k": _crossing(ks, mean), "low": low, "high": high, "crosses": len(found) / DRAWS,
             "largest_k": int(ks[-1]), "gain_at_1": mean[0], "gain_at_largest_k": mean[-1]}
        )  # fmt: skip
    return pd.DataFrame(rows)


def diversity(evals: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """How different the samples of one problem are, before and after training.

    Returns:
        One row a value of `by`, smallest model first, and `when`: distinct (different responses over samples of a
        run's problem, the mean over problems) with low and high, solved (share of problems with a correct sample),
        samples a problem.
    """
    rows = []
    ends = {"before": _first_step(evals), "after": _last(evals)}
    for name in looks(evals, by):
        for when, part in ends.items():
            group = part[part[by] == name]
            problems = group.groupby(["run", "task_id"])
            share = (problems["response"].nunique() / problems.size()).reset_index(name="share")
            rng = generator("diversity", str(name), when)
            mean = bootstrap_mean(
                share["share"].to_numpy(), share["task_id"].to_numpy(), rng=rng, draws=DRAWS
            )
            rows.append(
                {by: name, "when": when, "distinct": mean.value, "low": mean.low, "high": mean.high,
                 "solved": float(problems["correct"].max().mean()), "samples": float(problems.size().mean())}
            )  # fmt: skip
    return _from(evals, by, pd.DataFrame(rows))


def _from(df: pd.DataFrame, by: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table, which remembers the runs behind it and the look of each `by` for its figure."""
    table.attrs |= {"sources": sources(df)["runs"], "looks": looks(df, by)}
    return table


def _along(df: pd.DataFrame, x: str, by: str, data_source: str) -> pd.DataFrame:
    """One row a run and evaluation: `by`, run, step, x (0 at step 0), pass@1 on `data_source`."""
    keys = [by, "run", "step"]
    rate = df[(df["metric"] == METRIC) & (df["data_source"] == data_source)]
    table = rate[keys].assign(**{METRIC: rate["value"]}).dropna()
    if table.empty:
        raise UserError(f"{METRIC} of {data_source!r} was not measured in any of these runs.")
    if x != "step":
        amount = df[(df["metric"] == x) & (df["data_source"] == "all")].set_index(["run", "step"])["value"]
        table = table.join(amount.rename(x), on=["run", "step"])
        table.loc[table["step"] == 0, x] = 0.0
    return table.dropna().sort_values([by, "run", "step"], ignore_index=True)


def _graded(evals: pd.DataFrame, end: str) -> pd.DataFrame:
    chosen = evals[evals["step"] == evals["run"].map(evals.groupby("run")["step"].agg(end))]
    return chosen[chosen["correct"].notna()].assign(correct=lambda t: t["correct"].astype(float))


def _last(evals: pd.DataFrame) -> pd.DataFrame:
    return _graded(evals, "max")


def _first_step(evals: pd.DataFrame) -> pd.DataFrame:
    return _graded(evals, "min")


def _both_ends(evals: pd.DataFrame, by: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each `by`: the k that every problem of every run has samples for, and (problems, k) pass@k before and
    after, the mean over its runs, of the problems measured at both ends."""
    ends = {}
    for name in looks(evals, by):
        part = evals[evals[by] == name]
        tables = [_counted(_first_step(part)), _counted(_last(part))]
        shared = tables[0].index.intersection(tables[1].index)
        least = min(int(table.loc[shared, "n"].min()) for table in tables)
        ks = 2 ** np.arange(int(np.log2(least)) + 1)
        before, after = (_mean_curve(table.loc[shared], ks) for table in tables)
        ends[str(name)] = ks, before, after
    return ends


def _counted(part: pd.DataFrame) -> pd.DataFrame:
    """Samples n and correct ones c of each problem of each run."""
    tables = [counts(run).assign(run=name) for name, run in part.groupby("run")]
    return pd.concat(tables).query("n > 0").set_index(["run", "task_id"])


def _mean_curve(table: pd.DataFrame, ks: np.ndarray) -> np.ndarray:
    """(problems, k) pass@k, the mean over runs."""
    values = pass_at_k(table["n"].to_numpy()[:, None], table["c"].to_numpy()[:, None], ks[None])
    return pd.DataFrame(values, table.index).groupby(level="task_id").mean().to_numpy()


def _crossing(ks: np.ndarray, gain: np.ndarray) -> float:
    """The first k beyond which a gain that was positive is a loss; NaN when it never is."""
    lost = np.flatnonzero((gain < 0) & (np.maximum.accumulate(gain) > 0))
    if not len(lost):
        return np.nan
    i = int(lost[0])
    share = gain[i - 1] / (gain[i - 1] - gain[i])
    return float(2 ** (np.log2(ks[i - 1]) + share * np.log2(ks[i] / ks[i - 1])))
