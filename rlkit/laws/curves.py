"""Laws of samples: pass@k from counts, and pass rates of runs, with intervals that resample problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.evaluation.passk import pass_at_k, resample_sums
from rlkit.laws.bootstrap import Draws, Scheme
from rlkit.laws.fitting import LawFit, fit
from rlkit.laws.law import Law
from rlkit.laws.rules import column
from rlkit.laws.solver import minimise, to_space
from rlkit.seeds import generator


def fit_coverage(
    df: pd.DataFrame,
    *,
    n: str = "n",
    c: str = "c",
    ks: Sequence[int] | None = None,
    bootstrap: int = 2000,
    seed: int = 0,
) -> LawFit:
    """Fit the coverage law -ln pass@k = a·k^-b to pass@k averaged over problems, by least squares in ln(-ln pass@k).

    The points of a pass@k curve share their samples, so intervals that treat them as independent mean nothing;
    problems are what is independent, and they are resampled.

    Args:
        df: one row a problem. n, c: columns with its samples and correct ones.
        ks: the k of the curve; default 1, 2, 5, 10, … up to the smallest n. Points at which pass@k is 0 or 1
            have no place on the law and are left out.
        bootstrap: resamples of problems; those with a pass@k of 0 or 1 at a used k are left out and counted.

    Raises:
        UserError: counts that are wrong, k above the smallest n, fewer than three usable k.
    """
    counts, correct = column(df, n, "n").to_numpy(), column(df, c, "c").to_numpy()
    if ks is None:
        steps = [m * 10**e for e in range(8) for m in (1, 2, 5)]
        ks = [k for k in steps if k <= counts.min()]
    grid = np.asarray(list(ks))
    values = pass_at_k(counts[:, None], correct[:, None], grid[None, :])
    mean = values.mean(axis=0)
    usable = (mean > 0) & (mean < 1)
    if usable.sum() < 3:
        raise UserError(
            f"pass@k lies strictly between 0 and 1 at {usable.sum()} of {len(grid)} k: give more values "
            "in ks."
        )
    curve = pd.DataFrame({"k": grid[usable], "pass@k": mean[usable]})
    one: LawFit = fit(curve, "coverage", y="pass@k", x="k", loss="ls", bootstrap=0)
    if not bootstrap:
        return one
    means = resample_sums(values[:, usable], generator("laws", "coverage", seed), bootstrap) / len(values)
    means = means[((means > 0) & (means < 1)).all(axis=1)]
    y = to_space(means, "linear", "loglog")[0]
    solved = minimise(
        one.problem, np.repeat(one.z[None], len(y), axis=0), y, one.table.weights, [one.loss], 1e-12
    )
    draws = Draws(one.law.from_z(solved.z)[0], Scheme("cluster", len(values)), bootstrap - len(y))
    note = (
        f"The intervals resample {len(values)} problems; another sample of problems, not of k, is "
        "what they allow for."
    )
    return replace(one, given=draws, plan=one.plan._replace(seed=seed), notes=(note,))


def fit_pass_rates(
    evals: pd.DataFrame,
    law: str | Law,
    *,
    x: Mapping[str, str] | str,
    y: Literal["pass@1", "error"] = "pass@1",
    bootstrap: int = 1000,
    seed: int = 0,
    **options: Any,
) -> LawFit:
    """Fit a law to the runs of a study at their last evaluation, with intervals over seeds and problems.

    The problems are the same for all runs, so each resample draws problems once for all of them, and then, within each
    cell, runs; their deviations from the cell's mean are inflated by sqrt(m/(m - 1)) for m runs.

    Args:
        evals: from `rlkit.read_evals`: one row a sample, with run, cell, step, task_id, correct and the law's columns.
        y: the share of right samples, or one less it ("error").
        options: those of `rlkit.fit` but for its bootstrap.

    Raises:
        UserError: no graded sample; otherwise as `rlkit.fit`.
    """
    last = evals[evals["step"] == evals["run"].map(evals.groupby("run")["step"].max())]
    graded = last[last["correct"].notna()].assign(correct=lambda t: t["correct"].astype(float))
    if graded.empty:
        raise UserError(
            "No sample of these runs was graded at its last evaluation: there is no pass rate to fit."
        )
    wide = graded.pivot_table("correct", "run", "task_id")
    wide = wide if y == "pass@1" else 1 - wide
    points = (
        graded.groupby("run").first().drop(columns=["task_id", "correct"]).assign(**{y: wide.mean(axis=1)})
    )
    one: LawFit = fit(points.reset_index(), law, y=y, x=x, bootstrap=0, **options)
    runs = points.index[one.table.rows]
    cells = pd.factorize(points.loc[runs, "cell"])[0]
    of_cell, size = np.eye(cells.max() + 1)[cells], np.bincount(cells)
    rng = generator("laws", "pass rates", seed)
    rates, seen = wide.loc[runs].fillna(0.0).to_numpy(), wide.loc[runs].notna().to_numpy(float)
    drawn = rng.multinomial(rates.shape[1], np.full(rates.shape[1], 1 / rates.shape[1]), bootstrap)
    values = (drawn @ rates.T) / np.maximum(drawn @ seen.T, 1.0)
    mean = (values @ of_cell / size)[:, cells]
    members = [np.flatnonzero(cells == c) for c in range(len(size))]
    picked = np.stack([rng.choice(members[c], bootstrap) for c in cells], axis=1)
    inflate = np.sqrt(size / np.maximum(size - 1, 1))[cells]
    values = mean + inflate * (np.take_along_axis(values, picked, axis=1) - mean)
    targets = to_space(np.clip(values, 1e-6, 1 - 1e-6), "linear", one.problem.space)[0]
    losses = one.loss.refit(one.spread)
    solved = minimise(
        one.problem, np.repeat(one.z[None], bootstrap, axis=0), targets, one.table.weights, losses, 1e-10
    )
    usable = np.isfinite(solved.objective)
    scheme = Scheme("cluster", max(len(runs) - len(size), 1) + 1)
    draws = Draws(one.law.from_z(solved.z[usable])[0], scheme, int((~usable).sum()))
    notes = [f"The intervals are over {len(size)} cells' seeds and {rates.shape[1]} problems."]
    if single := int((size == 1).sum()):
        notes.append(
            f"{single} of {len(size)} cells have one seed: what differs between seeds is left out there."
        )
    return replace(one, given=draws, plan=one.plan._replace(seed=seed), notes=tuple(notes))
