"""How cells compare: by their answers to the same held-out problems, and along their curves, by how steadily they learn
and what a level needs. Tables are of `rlkit.read_evals` (`evals`) and `rlkit.read` (`df`). Intervals are 95 %
percentiles that resample problems, each with all samples of a cell."""

import itertools
import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from rlkit.config.run import value_of
from rlkit.domains import sources as components
from rlkit.errors import UserError
from rlkit.evaluation import bootstrap_mean, pass_at_k, pass_rate, resample_sums
from rlkit.measures.summary import curve_table, first_at, graded_ends, in_order, pass_rates, remember
from rlkit.seeds import generator

DRAWS, PASSED = 4000, "eval/pass@1"


def marginal_returns(evals: pd.DataFrame, df: pd.DataFrame, x: str, by: str = "model.path") -> pd.DataFrame:
    """What each doubling of `x`, a key of the config, adds to final pass@1 between neighbouring values, paired by
    problem, in each value of `by`: one row a pair, with `by`, from, to, change, per_doubling with low and high,
    problems."""
    last, rows = graded_ends(evals)["after"], []
    last = last.assign(**{x: last["run"].map(df.groupby("run")[x].first())})
    for name, part in last.groupby(by):
        wide = part.pivot_table("correct", "task_id", x)
        values = sorted(set(part[x]))
        if values[0] <= 0:
            raise UserError(f"{x} is {values[0]:g} in some runs, of which there is no doubling: leave them out.")
        for a, b in itertools.pairwise(values):
            change = (wide[b] - wide[a]).dropna().to_numpy()
            mean = bootstrap_mean(change, rng=generator("marginal", str(name), str(a)), draws=DRAWS)
            per, low, high = np.array(mean[:3]) / np.log2(b / a)
            row = {by: name, "from": a, "to": b, "change": mean.value, "per_doubling": per, "low": low, "high": high}
            rows.append(row | {"problems": mean.prompts})
    if not rows:
        raise UserError(f"{x} has one value in these runs: there is nothing to compare; add values of it.")
    return remember(pd.DataFrame(rows), evals, by)


def at_compute(evals: pd.DataFrame, df: pd.DataFrame, compute: str) -> pd.DataFrame:
    """pass@1 of each cell at its last evaluation within the compute that all runs of its model have spent, by a metric
    that grows along training, e.g. "compute/total_flops". Returns one row a cell, smallest model first and best first
    within it: cell, model.path, pass@1, low, high, budget (the compute), step (of that evaluation; a range over seeds),
    steps (of the whole run), tasks, runs. A UserError where no model has two cells."""
    spent = curve_table(df, compute, PASSED, "cell")
    model = spent["run"].map(df.groupby("run")["model.path"].first())
    several = spent.groupby(model)["cell"].transform("nunique") > 1
    if not several.any():
        raise UserError("Equal compute is between cells of one model, and each model of this study has one.")
    spent, model = spent[several], model[several]
    budget = spent.groupby([model, "run"])[compute].max().groupby(level=0).min()
    within = spent[spent[compute] <= model.map(budget) * (1 + 1e-9)]
    chosen = evals[evals["step"] == evals["run"].map(within.groupby("run")["step"].max())]
    found = pass_rates(chosen.assign(when="within"), ["cell", "when"])
    found["step"] = [str(a) if a == b else f"{a}–{b}" for a, b in found[["steps_least", "steps"]].to_numpy()]
    found["budget"] = found["model.path"].map(budget)
    found["steps"] = found["cell"].map(spent.groupby("cell")["step"].max())
    found["size"] = found["model.path"].map(list(in_order(df)["model.path"]).index)
    table = found.sort_values(["size", "pass@1"], ascending=[True, False], ignore_index=True)
    columns = ["cell", "model.path", "pass@1", "low", "high", "budget", "step", "steps", "tasks", "runs"]
    return remember(table[columns], evals, "cell")


def differences(evals: pd.DataFrame) -> pd.DataFrame:
    """Final pass@1 of each value of a factor less that of its baseline, everything else of the cell being equal.
    Factors are `variant` and the keys of the grid; the baseline is the first value in the study's file, or named by
    `baselines`. Problems are paired: the interval over them is of these very runs; the one over seeds and problems, in
    which equal seeds are paired, too, is of other runs (docs/concepts/metrics.md). Returns one row a factor and cell of
    another value on the same problems, smallest model first: factor, cell, value, baseline, model.path, difference, low
    and high (over problems), low_seeds and high_seeds (over both; NaN of one seed), problems, seeds and baseline_seeds,
    spread (of seeds, a standard deviation), steps_least and steps (of both cells). A UserError where nothing has a
    baseline."""
    last = graded_ends(evals)["after"]
    cells = dict(list(last.groupby("cell")))
    known = last.groupby("cell")["factors"].first() if "factors" in last else pd.Series(dtype=object)
    # By key, its value and the baseline's; a run made by hand has none.
    factors = {str(name): json.loads(text) for name, text in known.dropna().items()}
    compared = [k for k, (_, base) in next(iter(factors.values()), {}).items() if base is not None]
    if not compared:
        what = "Differences are between variants or values of a grid, fewer than two here"
        raise UserError(f"{what}: add some, or name one of model.path under baselines.")
    at = {json.dumps({k: v for k, (v, _) in found.items()}): name for name, found in factors.items()}
    rows = []
    for key, name in itertools.product(compared, in_order(last, "cell")["cell"]):
        if key not in factors.get(name, {}):
            continue
        value, base = factors[name][key]
        beside = at.get(json.dumps({k: base if k == key else v for k, (v, _) in factors[name].items()}))
        if beside is None or value == base:
            continue
        one, other = cells[name], cells[beside]
        if not one["task_id"].isin(other["task_id"]).any():
            continue
        steps, pair = pd.concat([one["step"], other["step"]]), {"value": value, "baseline": base}
        told = {k: str(v) if key == "variant" else value_of(key, v) for k, v in pair.items()}
        row = {"factor": key, "cell": name, **told, "model.path": one["model.path"].iloc[0]}
        ends = {"steps_least": steps.min(), "steps": steps.max()}
        rows.append({**row, **_difference(one, other), **ends})
    if not rows:
        raise UserError(f"No cell was evaluated beside its baseline of {', '.join(compared)} on the same problems.")
    return remember(pd.DataFrame(rows), evals, "cell")


def _difference(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, float]:
    """The mean over problems of one cell's pass@1 less another's, with both intervals of `differences`."""
    wide = [cell.pivot_table("correct", "task_id", "seed") for cell in (one, other)]
    seeds = [list(table.columns) for table in wide]
    rates = pd.concat(wide, axis=1, join="inner").dropna().to_numpy()  # (problems, seeds of both cells)
    mine, others = np.split(rates, [len(seeds[0])], axis=1)
    rng = generator("differences", *(cell["cell"].iloc[0] for cell in (one, other)))
    mean = bootstrap_mean(mine.mean(axis=1) - others.mean(axis=1), rng=rng)
    low, high, spread = np.nan, np.nan, np.nan
    if min(map(len, seeds)) > 1:
        # Runs of the same seed share tasks and warm start: what those add to both is no difference.
        alike = seeds[0] == seeds[1]
        parts = [part.mean(axis=0) for part in ([mine - others] if alike else [mine, others])]
        spread = float(np.mean([part.var(ddof=1) for part in parts]) / (1 + alike)) ** 0.5
        terms = [(part.var(ddof=1) / len(part), len(part) - 1) for part in parts]
        terms.append((((mean.high - mean.low) / (2 * 1.96)) ** 2, mean.prompts - 1))
        variances, freedoms = np.array(terms).T
        if (total := variances.sum()) > 0:  # Welch 1947
            half = stats.t.ppf(0.975, total**2 / (variances**2 / freedoms).sum()) * total**0.5
            low, high = mean.value - half, mean.value + half
    over_both = {"low_seeds": low, "high_seeds": high, "problems": mean.prompts}
    counts = {"seeds": len(seeds[0]), "baseline_seeds": len(seeds[1]), "spread": spread}
    return {"difference": mean.value, "low": mean.low, "high": mean.high, **over_both, **counts}


def pass_at_k_ends(evals: pd.DataFrame) -> pd.DataFrame:
    """pass@k before and after training for k = 1, 2, 4 … up to a run's samples of a problem, the mean over runs: a row
    a cell, `when` and k, with value, low, high, problems. A UserError where none has graded problems twice."""
    tables = []
    for name, (ks, before, after) in _both_ends(evals).items():
        for when, curve in (("before", before), ("after", after)):
            found = pd.DataFrame([pass_rate(curve[:, i])._asdict() for i in range(len(ks))])
            found = found.rename(columns={"prompts": "problems"}).assign(k=ks)
            tables.append(found.assign(cell=name, when=when))
    return remember(pd.concat(tables, ignore_index=True), evals, "cell")


def crossing(evals: pd.DataFrame) -> pd.DataFrame:
    """The k from which the model before training solves more problems than the trained one (arXiv 2504.13837): one row
    a cell, with k (NaN: the curves do not cross up to the largest k), low and high over the resamples of
    problems that cross, crosses (their share), largest_k, gain_at_1 and gain_at_largest_k."""
    rows = []
    for name, (ks, before, after) in _both_ends(evals).items():
        gain = after - before
        draws = resample_sums(gain, generator("crossing", str(name)), DRAWS) / len(gain)
        crossings = np.array([_crossing(ks, draw) for draw in draws])
        known, mean = crossings[np.isfinite(crossings)], gain.mean(axis=0)
        low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
        row = {"cell": name, "k": _crossing(ks, mean), "low": low, "high": high, "crosses": len(known) / DRAWS}
        rows.append(row | {"largest_k": int(ks[-1]), "gain_at_1": mean[0], "gain_at_largest_k": mean[-1]})
    return pd.DataFrame(rows)


def diversity(evals: pd.DataFrame) -> pd.DataFrame:
    """How different the samples of one problem are, before and after training: one row a cell and `when`, with
    distinct (share of different responses), low and high, solved (share of problems solved), samples a problem."""
    rows, both = [], graded_ends(evals)
    for name, (when, part) in itertools.product(in_order(evals, "cell")["cell"], both.items()):
        problems = part[part["cell"] == name].groupby(["run", "task_id"])
        right, size = problems["correct"], problems.size()
        share, rng = problems["response"].nunique() / size, generator("diversity", str(name), when)
        tasks = share.index.get_level_values("task_id").to_numpy()
        mean = bootstrap_mean(share.to_numpy(), tasks, rng=rng, draws=DRAWS)
        row = {"cell": name, "when": when, "distinct": mean.value, "low": mean.low, "high": mean.high}
        rows.append(row | {"solved": float(right.max().mean()), "samples": float(size.mean())})
    return remember(pd.DataFrame(rows), evals, "cell")


def _both_ends(evals: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each cell: k, and (problems, k) pass@k before and after, the mean over its runs, of the problems measured at
    both ends. The largest k is the largest that nine tenths of the problems have samples for; others are left out."""
    found, parts = {}, graded_ends(evals).values()
    for name in in_order(evals, "cell")["cell"]:
        keyed = [part[part["cell"] == name].groupby(["run", "task_id"])["correct"] for part in parts]
        table = pd.concat([part.agg(["size", "sum"]) for part in keyed], axis=1, join="inner")
        if table.empty:
            continue
        counts, problems = table.to_numpy(int), table.index
        samples = counts[:, [0, 2]].min(axis=1)
        ks = 2 ** np.arange(int(np.log2(np.sort(samples)[len(samples) // 10])) + 1)
        enough = samples >= ks[-1]
        curves = (pass_at_k(counts[enough, i, None], counts[enough, i + 1, None], ks[None]) for i in (0, 2))
        tables = (pd.DataFrame(curve, problems[enough]).groupby(level="task_id").mean() for curve in curves)
        found[str(name)] = ks, *(table.to_numpy() for table in tables)
    if not found:
        raise UserError("No cell of these runs has a graded sample both before and after training.")
    return found


def _crossing(ks: np.ndarray, gain: np.ndarray) -> float:
    """The first k beyond which a gain that was positive is a loss; NaN when it never is."""
    lost = np.flatnonzero((gain < 0) & (np.maximum.accumulate(gain) > 0))
    if not len(lost):
        return np.nan
    i = int(lost[0])
    share = gain[i - 1] / (gain[i - 1] - gain[i])
    return float(2 ** (np.log2(ks[i - 1]) + share * np.log2(ks[i] / ks[i - 1])))


def stability(df: pd.DataFrame) -> pd.DataFrame:
    """How steadily the runs of each cell learn: one row a cell, smallest model first, with runs; pass@1 at the
    end (mean) and spread (standard deviation); largest_fall (of pass@1 below its best so far, mean); spikes (share of
    steps with a gradient norm above five times the run's median); entropy_kept (last over first entropy a token)."""
    curves = curve_table(df, "step", PASSED, "cell").sort_values("step")
    fall = curves.groupby("run")[PASSED].cummax() - curves[PASSED]
    runs = curves.assign(fall=fall).groupby(["cell", "run"]).agg(end=(PASSED, "last"), fall=("fall", "max"))
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
    table = curve_table(df, "step", PASSED, "cell")
    if x != "step":
        amount = df[(df["metric"] == x) & (df["data_source"] == "all")].set_index(["run", "step"])["value"]
        table = table.join(amount.rename(x), on=["run", "step"])
        table[x] = table[x].where(table["step"] > 0, 0.0)
    table = table.dropna(subset=x).sort_values(["cell", "run", "step"])
    models = df.groupby("run")["model.path"].first()
    rows = []
    for name in in_order(df, "cell")["cell"]:
        own = table[table["cell"] == name]
        same = table[table["run"].map(models).isin(own["run"].map(models))].groupby("run")[PASSED]
        if not isinstance(levels, int):
            wanted = levels
        else:
            start, best = same.first().max(), same.max().max()
            wanted = np.linspace(start, best, levels + 2)[1:-1].tolist() if best > start else []
        for level in wanted:
            curves = (run[[x, PASSED]].to_numpy() for _, run in own.groupby("run"))
            need = pd.Series([first_at(curve[:, 0], curve[:, 1], level) for curve in curves], dtype=float)
            told = {x: need.mean(), "low": need.min(), "high": need.max(), "reached": need.count()}
            rows.append({"cell": name, "level": level, **told, "runs": len(need)})
    if not rows:
        raise UserError(f"No run rises above where its model starts in {PASSED}.")
    return remember(pd.DataFrame(rows), df, "cell")


def needed_per_domain(df: pd.DataFrame, evals: pd.DataFrame) -> pd.DataFrame:
    """How many tasks of each domain were shown until its held-out pass@1 had made half of the largest gain that any
    run made in it: the minimum data of a domain, alone and in mixtures; missing where no run gained more than twice the
    standard error that the domain's held-out problems (in `evals`) leave. Domains are those of sources that make one
    data_source each, not of files. Returns the columns of `needed`, data_source and tasks."""
    tables, rates = [], df[df["metric"] == PASSED]
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
