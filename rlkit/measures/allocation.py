"""How a budget of rollouts is best split into rollouts a prompt, prompts a step and steps (arXiv 2603.12151)."""

from dataclasses import replace

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import LawFit, fit
from rlkit.laws.law import Law
from rlkit.laws.samples import resample_runs, with_draws
from rlkit.measures.tables import remember
from rlkit.seeds import generator

ROLLOUTS, PROMPTS = "rollout.n", "data.train_batch_size"


def at_budgets(evals: pd.DataFrame, df: pd.DataFrame, budgets: int = 6) -> pd.DataFrame:
    """pass@1 of each split of equal budgets, over problems that every evaluation of a run graded. A run with n rollouts
    a prompt and B prompts a step has spent n·B·step; between evaluations its pass@1 is taken as straight. Budgets are
    geometric over what all runs have spent. Returns one row a budget and split: budget, rollout.n, steps, pass@1, runs,
    data.train_batch_size, best (of its budget). A UserError for fewer than three rollout.n, or no budget in common."""
    runs, spent, rates = _rates(evals, df, budgets)
    table = pd.DataFrame(np.nanmean(rates, axis=2), index=runs.index, columns=spent).join(runs)
    table = table.melt([ROLLOUTS, PROMPTS], spent.tolist(), "budget", "rate")
    splits = table.groupby(["budget", ROLLOUTS, PROMPTS])["rate"]
    found = splits.agg(["mean", "size"]).reset_index().rename(columns={"mean": "pass@1", "size": "runs"})
    found = found.astype({"budget": float})
    found["steps"] = found["budget"] / (found[ROLLOUTS] * found[PROMPTS])
    found["best"] = found["pass@1"] == found.groupby("budget")["pass@1"].transform("max")
    return remember(found, evals, "cell")


def rollouts_law(
    evals: pd.DataFrame, df: pd.DataFrame, law: str | Law = "power", budgets: int = 6, bootstrap: int = 1000,
    seed: int = 0,
) -> LawFit:  # fmt: skip
    """A law n*(C) of the best rollouts a prompt in a budget of C rollouts, with intervals over seeds and problems. At
    each budget n* is the vertex of the parabola in ln n through the best n tried and its two neighbours, each with its
    best number of prompts; where the least or largest n is best, n* is that. Each resample (`resample_runs`) finds its
    own n*; without, intervals are profiles. A UserError as `at_budgets`, or where n* never moves."""
    runs, spent, rates = _rates(evals, df, budgets)
    cells = runs.groupby([ROLLOUTS, PROMPTS]).ngroup().to_numpy()
    best, edge = _best(runs, np.nanmean(rates, axis=2)[None])
    if np.ptp(best[0]) == 0:
        raise UserError(f"The best rollout.n is {best[0][0]:g} at every budget: add values of it for a law.")
    points = pd.DataFrame({"budget": spent, ROLLOUTS: best[0]})
    one: LawFit = fit(points, law, y=ROLLOUTS, x="budget", bootstrap=0, seed=seed)
    size = np.bincount(cells)
    notes = [f"The intervals are over {len(size)} splits' seeds and {rates.shape[2]} problems."]
    if edge.any():
        where = f"At {edge.sum()} of {len(spent)} budgets"
        notes.append(f"{where} the best n is the least or largest tried: add values of rollout.n.")
    if not bootstrap:
        return replace(one, notes=tuple(notes[1:]))
    draws = resample_runs(rates, cells, bootstrap, generator("measures", "rollouts", seed))
    return with_draws(one, _best(runs, draws)[0], bootstrap, max(len(runs) - len(size), 1) + 1, notes)


def _rates(evals: pd.DataFrame, df: pd.DataFrame, count: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Runs with their split, budgets (k,), and pass@1 (runs, k, problems), NaN where an evaluation lacks a problem."""
    runs = df.drop_duplicates("run").set_index("run")[[ROLLOUTS, PROMPTS]].astype(int).sort_index()
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
    n, prompts = runs[ROLLOUTS].to_numpy(), runs[PROMPTS].to_numpy()
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
