"""The laws of a study, each fitted in one place: its notebook prints them, and `rlkit figures` draws the same.

`df` and `evals` are of `rlkit.read` and `rlkit.read_evals`. A function returns a law with the points to draw beside it,
or several by name, and raises UserError where the study has too little for its law."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlkit.config.run import domain_name
from rlkit.errors import UserError
from rlkit.laws import LawFit, fit, fit_coverage, fit_pass_rates
from rlkit.laws.fitting import resample_runs, with_draws
from rlkit.measures.summary import curve_table, final, graded_ends, held_out_error, in_order, remember
from rlkit.seeds import generator

SIZE, UNIQUE, SHARE = "parameters_non_embedding", "data.train_max_samples", "data.sft_ratio"
COMPUTE, PASSED, BATCH, ROLLOUTS = "compute/total_flops", "eval/pass@1", "data.train_batch_size", "rollout.n"
FOR_TRAINING_LAW = 5  # evaluations after the start, for the four parameters of a sigmoid
FOR_LAW = 3  # values of its column that a law of one needs at least
Fitted = tuple[LawFit, pd.DataFrame]


def check_varied(df: pd.DataFrame, column: str, values: int = 2) -> None:
    """A UserError where a study has fewer values of a column."""
    found = df[column].nunique() if column in df else 0
    if found < values:
        raise UserError(f"This needs {values} values of {column}, and the study has {found}.")


def _errors(df: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """The held-out error at each evaluation after the start, with what laws need to know of its run."""
    curves = curve_table(df, "step", PASSED, by)
    facts = df.drop_duplicates("run")[["run", SIZE, "held_out", UNIQUE, BATCH]]
    curves = curves[curves["step"] > 0].merge(facts, on="run").assign(error=lambda t: 1 - t[PASSED])
    return remember(curves, df, by)


def models(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each model by its name, smallest first; of one model by ""."""
    paths = [path for path in in_order(table)["model.path"] if (table["model.path"] == path).any()]
    return {Path(str(p)).name * (len(paths) > 1): table[table["model.path"] == p] for p in paths}


def _those_that_fit(fit_one: Callable[[pd.DataFrame], Any], parts: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """What `fit_one` makes of each part, with a warning where it makes none; a UserError where it makes none of any."""
    found, problems = {}, []
    for name, part in parts.items():
        try:
            found[name] = fit_one(part)
        except UserError as error:
            problems.append(f"{name}: {error}".removeprefix(": "))
    if not found:
        raise UserError(" ".join(problems[:1]) or "No cell has a graded sample.")
    for problem in problems:
        warnings.warn(f"left out of the laws: {problem}", stacklevel=2)
    return found


def size_and_steps(df: pd.DataFrame) -> Fitted:
    """Error along training, of all sizes."""
    check_varied(df, SIZE, FOR_LAW)
    curves = _errors(df)
    if curves["step"].nunique() < FOR_LAW:
        raise UserError(f"The study was evaluated at fewer than {FOR_LAW} steps after the start.")
    options: Any = {"y": "error", "loss": "ls", "cluster": "run", "bootstrap": 200}
    return fit(curves, "tan", x={"N": SIZE, "X": "step"}, **options), curves


def unique_tasks(df: pd.DataFrame, evals: pd.DataFrame) -> dict[str, Fitted]:
    """Error at the end: of three sizes or more in size and unique training tasks, else of each model in its tasks."""
    check_varied(df, UNIQUE, FOR_LAW)
    law, x, parts = "power", UNIQUE, models(evals)
    if len(parts) >= FOR_LAW:
        law, x, parts = "chinchilla", {"N": SIZE, "D": UNIQUE}, {"": evals}
    points, options = final(df), {"x": x, "y": "error"}
    found = _those_that_fit(lambda part: fit_pass_rates(part, law, **options), parts)
    return {name: (one, points[points["run"].isin(parts[name]["run"])]) for name, one in found.items()}


def repeats(df: pd.DataFrame) -> dict[str, Fitted]:
    """Error along training in tasks shown and unique ones: of three sizes or more at once, else of each model. The
    points are those whose unique tasks were all shown: of before, each evaluation has a number of its own."""
    check_varied(df, UNIQUE)
    curves = _errors(df, "model.path")
    shown = curves["step"] * curves[BATCH]
    curves = curves.assign(**{"tasks shown": shown, "unique tasks": curves[UNIQUE].clip(upper=shown)})
    law, x, parts = "repeated_data", {"D": "tasks shown", "U": "unique tasks"}, models(curves)
    if len(parts) >= FOR_LAW:
        law, x, parts = "data_constrained", x | {"N": SIZE}, {"": curves}
    options: Any = {"x": x, "y": "error", "cluster": "run", "bootstrap": 200}
    whole = {name: part[part["tasks shown"] >= part[UNIQUE]] for name, part in parts.items()}
    found = _those_that_fit(lambda part: fit(part, law, **options), parts)
    return {name: (one, whole[name]) for name, one in found.items()}


def best_share(df: pd.DataFrame, evals: pd.DataFrame) -> Fitted:
    """Error at the end in the share of tasks with worked answers, with intervals over seeds and problems."""
    check_varied(df, SHARE, FOR_LAW)
    return fit_pass_rates(evals, "best_share", x=SHARE, y="error"), final(df)


def by_cell(df: pd.DataFrame, evals: pd.DataFrame) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """Error along training of each cell, with intervals over seeds and problems that are drawn for all at once."""
    check_varied(df, "cell")
    options: Any = {"x": "step", "y": "error", "along": True}
    seen = evals[~evals["held_out"].astype(bool)]
    parts = {str(cell): own for cell, own in seen.groupby("cell")}
    alone = _those_that_fit(lambda own: fit_pass_rates(own, "power", bootstrap=0, **options), parts)
    rest = evals[~evals["cell"].isin(parts.keys() - alone.keys())]
    group = "cell" if rest["cell"].nunique() > 1 else None
    found = fit_pass_rates(rest, "power", group=group, **options)
    laws: Any = found if group else dict.fromkeys(alone, found)
    return laws, _errors(df)


def by_domain(df: pd.DataFrame, evals: pd.DataFrame) -> dict[str, tuple[dict[str, dict[str, LawFit]], pd.DataFrame]]:
    """Error of each domain along training, by model: laws by domain and cell, and the rates of the first cell."""
    check_varied(evals, "data_source")
    fitted = evals[~evals["held_out"].astype(bool)].assign(domain=lambda t: t["data_source"].map(domain_name))
    rates = df[(df["metric"] == PASSED) & (df["data_source"] != "all") & (df["step"] > 0)]
    rates = rates.assign(error=1 - rates["value"], domain=rates["data_source"].map(domain_name))
    found = {}
    for name, part in models(fitted).items():
        cells = in_order(part, "cell")["cell"].tolist()
        options: Any = {"x": "step", "y": "error", "along": True, "group": "cell" if len(cells) > 1 else None}
        domains = {str(domain): own for domain, own in part.groupby("domain")}
        fits = _those_that_fit(lambda own, o=options: fit_pass_rates(own, "power", **o), domains)
        fits = fits if len(cells) > 1 else {domain: {cells[0]: one} for domain, one in fits.items()}
        found[name] = fits, rates[rates["cell"] == cells[0]]
    return found


def coverage(evals: pd.DataFrame) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """pass@k of each cell after training; the samples of all its seeds count together."""
    last = graded_ends(evals)["after"].groupby(["cell", "task_id"], observed=True)["correct"]
    counts = last.agg(n="count", c="sum").astype(int).reset_index("cell")
    cells = [cell for cell in in_order(evals, "cell")["cell"] if cell in set(counts["cell"])]
    found = _those_that_fit(fit_coverage, {str(cell): counts[counts["cell"] == cell] for cell in cells})
    curves = [pd.DataFrame({"cell": c, "k": one.table.columns["k"], "pass@k": one.table.y}) for c, one in found.items()]
    return found, remember(pd.concat(curves, ignore_index=True), evals, "cell")


def environment_steps(df: pd.DataFrame, evals: pd.DataFrame) -> LawFit:
    """Success in an environment in the steps taken there, with intervals over held-out problems."""
    name = "training/environment_steps"
    taken = df[(df["metric"] == name) & (df["value"] > 0)].set_index(["run", "step"])["value"]
    if taken.empty:
        raise UserError("No run of the study trained in an environment.")
    seen = evals.join(taken.rename("environment steps"), on=["run", "step"]).dropna(subset="environment steps")
    return fit_pass_rates(seen, "logit_linear", x="environment steps", along=True)


def along(
    df: pd.DataFrame, law: str = "sigmoid", compute: str = COMPUTE, after: int | None = None
) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """pass@1 after the start against compute, for each cell that is not held out, and its evaluations: those later than
    the step `after` are held out. Runs are resampled whole; the noise of a cell of one run is correlated in time."""
    seen = df[~df["held_out"].astype(bool)]
    curves = curve_table(seen, compute, PASSED, "cell").query("step > 0")
    curves = curves.assign(held_out=curves["step"] > (after or np.inf))
    if (found := curves[~curves["held_out"]].groupby("run").size().min()) < FOR_TRAINING_LAW:
        told = f"{FOR_TRAINING_LAW} evaluations after the start, and a run has {found}"
        raise UserError(f"This needs {told}: set a lower trainer.test_freq.")
    made, parts = {}, dict(list(curves.groupby("cell")))
    for cell in (cell for cell in in_order(seen, "cell")["cell"] if cell in parts):
        several = parts[cell]["run"].nunique() > 1  # of one design, of which no resample loses anything
        together: Any = {"cluster": "run", "resample": "case"} if several else {"block": "step"}
        made[cell] = fit(parts[cell], law, x=compute, y=PASSED, bootstrap=500, **together)
    return made, remember(curves, seen, "cell")


def foretold(found: dict[str, LawFit], curves: pd.DataFrame) -> pd.DataFrame:
    """What the laws of `along` foretell of each cell's last evaluation, beside what was observed, as
    `rlkit.measures.summary.held_out_error` has it; empty where the study holds no evaluation out."""
    held = curves[curves["held_out"]]
    last = held[held["step"] == held.groupby("run")["step"].transform("max")]
    parts = [held_out_error(found[str(cell)], part) for cell, part in last.groupby("cell")]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.assign(**{end: table[end].clip(0, 1) for end in ("low", "high") if end in table})


def at_budgets(evals: pd.DataFrame, df: pd.DataFrame, budgets: int = 6) -> pd.DataFrame:
    """pass@1 of each split of equal budgets, over problems that every evaluation of a run graded. A run with n rollouts
    a prompt and B prompts a step has spent n·B·step; between evaluations its pass@1 is taken as straight. Budgets are
    geometric over what all runs have spent. Returns one row a budget and split: budget, rollout.n, steps, pass@1, runs,
    data.train_batch_size, best (of its budget). A UserError for fewer than three rollout.n, or no budget in common."""
    runs, spent, rates = _rates(evals, df, budgets)
    table = pd.DataFrame(np.nanmean(rates, axis=2), index=runs.index, columns=spent).join(runs)
    table = table.melt([ROLLOUTS, BATCH], spent.tolist(), "budget", "rate")
    splits = table.groupby(["budget", ROLLOUTS, BATCH])["rate"]
    found = splits.agg(["mean", "size"]).reset_index().rename(columns={"mean": "pass@1", "size": "runs"})
    found = found.astype({"budget": float})
    found["steps"] = found["budget"] / (found[ROLLOUTS] * found[BATCH])
    found["best"] = found["pass@1"] == found.groupby("budget")["pass@1"].transform("max")
    return remember(found, evals, "cell")


def rollouts_law(evals: pd.DataFrame, df: pd.DataFrame, bootstrap: int = 1000) -> LawFit:
    """A power law n*(C) of the best rollouts a prompt in a budget of C rollouts, with intervals over seeds and
    problems. At each budget n* is the vertex of the parabola in ln n through the best n tried and its two neighbours,
    each with its best number of prompts; where the least or largest n is best, n* is that. Each resample
    (`resample_runs`) finds its own n*. A UserError as `at_budgets`, or where n* never moves."""
    runs, spent, rates = _rates(evals, df)
    cells = runs.groupby([ROLLOUTS, BATCH]).ngroup().to_numpy()
    best, edge = _best(runs, np.nanmean(rates, axis=2)[None])
    if np.ptp(best[0]) == 0:
        raise UserError(f"The best rollout.n is {best[0][0]:g} at every budget: add values of it for a law.")
    points = pd.DataFrame({"budget": spent, ROLLOUTS: best[0]})
    one: LawFit = fit(points, "power", y=ROLLOUTS, x="budget", bootstrap=0)
    size = np.bincount(cells)
    notes = [f"The intervals are over {len(size)} splits' seeds and {rates.shape[2]} problems."]
    if edge.any():
        where = f"At {edge.sum()} of {len(spent)} budgets"
        notes.append(f"{where} the best n is the least or largest tried: add values of rollout.n.")
    draws = resample_runs(rates, cells, bootstrap, generator("measures", "rollouts", 0))
    return with_draws(one, _best(runs, draws)[0], bootstrap, max(len(runs) - len(size), 1) + 1, notes)


def _rates(evals: pd.DataFrame, df: pd.DataFrame, count: int = 6) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Runs with their split, budgets (k,), and pass@1 (runs, k, problems), NaN where an evaluation lacks a problem."""
    runs = df.drop_duplicates("run").set_index("run")[[ROLLOUTS, BATCH]].astype(int).sort_index()
    if (several := runs[ROLLOUTS].nunique()) < 3:
        raise UserError(f"A best rollout.n needs three values of it or more, and these runs have {several}.")
    graded = evals[evals["correct"].notna()].assign(correct=lambda t: t["correct"].astype(float))
    wide = graded.pivot_table("correct", ["run", "step"], "task_id")
    curves = {run: wide.loc[run] for run in runs.index if run in wide.index}
    runs = runs.loc[list(curves)]
    spent = {run: part.index.to_numpy() * int(runs.loc[run].prod()) for run, part in curves.items()}
    low = max((s[s > 0].min() for s in spent.values() if s.any()), default=0.0)
    high = min((s.max() for s in spent.values()), default=0.0)
    if not 0 < low < high:
        raise UserError(f"Runs begin by {low:g} and end by {high:g} rollouts: they have no budget in common.")
    at = np.geomspace(low, high, count)
    rates = []
    for run, part in curves.items():
        weights = np.stack([np.interp(at, spent[run], unit) for unit in np.eye(len(part))], axis=1)
        rates.append(weights @ part.to_numpy())
    return runs, at, np.stack(rates)


def _best(runs: pd.DataFrame, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """n* (draws, k) of rates (draws, runs, k), and at which budgets (k,) that of the first draw is at an end."""
    n, prompts = runs[ROLLOUTS].to_numpy(), runs[BATCH].to_numpy()
    values, rows = np.unique(n), []
    for value in values:
        splits = [(n == value) & (prompts == count) for count in np.unique(prompts[n == value])]
        rows.append(np.max([rates[:, split].mean(axis=1) for split in splits], axis=0))
    best, x = np.stack(rows), np.log(values)  # (values, draws, k)
    top = best.argmax(axis=0)
    middle = np.clip(top, 1, len(x) - 2)
    x0, x1, x2 = (x[middle + i] for i in (-1, 0, 1))
    y0, y1, y2 = (np.take_along_axis(best, (middle + i)[None], axis=0)[0] for i in (-1, 0, 1))
    rise, fall = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = np.where(rise > fall, (fall - rise) / (x2 - x0), -np.inf)
    vertex = np.where(top == middle, (x0 + x1) / 2 - rise / (2 * bend), x[top])
    return np.exp(vertex), np.isin(top[0], (0, len(x) - 1))
