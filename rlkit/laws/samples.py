"""Laws of graded samples, whose intervals resample what is independent: problems, and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.evaluation.passk import pass_at_k, resample_sums
from rlkit.laws.fitting import LawFit, fit
from rlkit.laws.intervals import RESAMPLES, Draws
from rlkit.laws.law import Law
from rlkit.laws.solver import minimise, to_space
from rlkit.laws.table import column
from rlkit.seeds import generator


def fit_coverage(
    df: pd.DataFrame, *, n: str = "n", c: str = "c", ks: Sequence[int] | None = None, bootstrap: int = 2000,
    seed: int = 0,
) -> LawFit:  # fmt: skip
    """Fit the coverage law -ln pass@k = a·k^-b to pass@k averaged over problems, by least squares in ln(-ln pass@k).
    Points of a curve share samples, so problems are resampled. df: one row a problem; n, c: its samples and correct
    ones; ks: default 1, 2, 5, 10 … up to the smallest n. Points of 0 or 1 are left out, resamples with one are lost."""
    counts, correct = (column(df, name, role).to_numpy() for name, role in ((n, "n"), (c, "c")))
    round_ones = [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= counts.min()]
    grid = np.asarray(round_ones if ks is None else list(ks))
    values = pass_at_k(counts[:, None], correct[:, None], grid[None, :])
    mean = values.mean(axis=0)
    usable = (mean > 0) & (mean < 1)
    if usable.sum() < 3:
        told = f"pass@k lies strictly between 0 and 1 at {usable.sum()} of {len(grid)} k"
        raise UserError(f"{told}, and the law needs 3: raise evaluation.n, or give other ks.")
    curve = pd.DataFrame({"k": grid[usable], "pass@k": mean[usable]})
    one: LawFit = fit(curve, "coverage", y="pass@k", x="k", loss="ls", bootstrap=0, seed=seed)
    if not bootstrap:
        return one
    means = resample_sums(values[:, usable], generator("laws", "coverage", seed), bootstrap) / len(values)
    means = means[((means > 0) & (means < 1)).all(axis=1)]
    note = f"The intervals resample {len(values)} problems; they allow for other problems, not for other k."
    return with_draws(one, means, bootstrap, len(values), [note])


def fit_pass_rates(
    evals: pd.DataFrame, law: str | Law, *, x: Mapping[str, str] | str, y: Literal["pass@1", "error"] = "pass@1",
    along: bool = False, group: str | None = None, bootstrap: int = RESAMPLES, seed: int = 0, **options: Any,
) -> Any:  # fmt: skip
    """Fit a law to the runs of a study at their last evaluation, with intervals over seeds and problems: a LawFit, or
    a dict of one for each value of `group`. Problems and seeds are drawn for all groups at once, so that draws of the
    same place can be compared, and seeds of a group differ as those of all groups do. A UserError where no sample was
    graded, or where the runs of a cell were evaluated at different steps; otherwise as `rlkit.fit`.

    Args:
        evals: from `rlkit.read_evals`: one row a sample, with run, cell, step, task_id, correct and the law's columns.
        y: the share of right samples, or one less it ("error").
        along: fit every evaluation after the start, rather than the last one.
        bootstrap: resamples (`resample_runs`); 0 leaves the intervals to the profile. options: those of `rlkit.fit`.
    """
    last, keys = evals["run"].map(evals.groupby("run")["step"].max()), ["run", "step"]
    chosen = evals[evals["step"] > 0] if along else evals[evals["step"] == last]
    graded = chosen[chosen["correct"].notna()].assign(correct=lambda t: t["correct"].astype(float))
    if graded.empty:
        raise UserError("No sample of these runs was graded at its last evaluation: nothing can be fitted.")
    if "cell" not in graded or graded["cell"].isna().all():
        graded = graded.assign(cell=graded["run"])  # made by hand
    wide = graded.pivot_table("correct", keys, "task_id")
    wide = wide if y == "pass@1" else 1 - wide
    points = graded.drop(columns=["task_id", "correct"]).groupby(keys).first().loc[wide.index]
    points = points.assign(**{y: wide.mean(axis=1)}).reset_index()
    found = fit(points, law, y=y, x=x, group=group, bootstrap=0, seed=seed, **options)
    fits: dict[Any, LawFit] = found if group else {None: found}
    used = points.loc[np.concatenate([one.table.rows for one in fits.values()])].sort_index()
    run, place = pd.factorize(used["run"])[0], used.groupby("run").cumcount()
    if along and (used.groupby(["cell", place])["step"].nunique() > 1).any():
        raise UserError("Runs of one cell were evaluated at different steps, so that seeds cannot be drawn.")
    cells = pd.factorize(used.loc[place == 0, "cell"])[0]
    size, problems = np.bincount(cells), wide.shape[1]
    notes = [f"The intervals are over {len(size)} cells' seeds and {problems} problems."] * bool(bootstrap)
    if (single := int((size == 1).sum())) and not (group and size.max() > 1):
        notes.append(f"{single} of {len(size)} cells have one seed: what differs there is left out.")
    fits = {name: replace(one, notes=(*one.notes, *notes)) for name, one in fits.items()}
    if bootstrap:
        rates = np.full((len(cells), int(place.max()) + 1, problems), np.nan)
        rates[run, place] = wide.to_numpy()[used.index]
        rng = generator("laws", "pass rates", seed)
        drawn = resample_runs(rates, cells, bootstrap, rng, together=group is not None)[:, run, place]
        values = pd.DataFrame(np.clip(drawn.T, 1e-6, 1 - 1e-6), used.index)
        units = len(cells) - len(size) + 1 if size.max() > 1 else problems
        for name, one in fits.items():
            own = values.loc[one.table.rows].to_numpy().T
            fits[name] = with_draws(one, own, bootstrap, units, one.notes)
    return fits if group else fits[None]


def resample_runs(
    rates: np.ndarray, cells: np.ndarray, count: int, rng: np.random.Generator, together: bool = False
) -> np.ndarray:
    """(count, runs, k) means over problems of resampled `rates` (runs, k, problems; NaN: not graded): problems are
    drawn for all runs, then runs of each of `cells` (runs,), whose deviations sqrt(m/(m - 1)) inflates for m runs.
    `together`: deviations are drawn from the runs of all cells, for cells of few."""
    of_cell, size, problems = np.eye(cells.max() + 1)[cells], np.bincount(cells), rates.shape[2]
    drawn = rng.multinomial(problems, np.full(problems, 1 / problems), count)
    total, seen = (np.tensordot(drawn, a, (1, 2)) for a in (np.nan_to_num(rates), 1.0 - np.isnan(rates)))
    values = total / np.maximum(seen, 1.0)
    mean = np.einsum("brk,rc->bck", values, of_cell / size)[:, cells]
    inflate = np.sqrt(size / np.maximum(size - 1, 1))[cells][:, None]
    off = inflate * (values - mean)
    pools = [np.flatnonzero(size[cells] > 1 if together and size.max() > 1 else cells == c) for c in cells]
    picked = np.stack([rng.choice(pool, count) for pool in pools], axis=1)
    return mean + np.take_along_axis(off, picked[:, :, None], axis=1)


def with_draws(one: LawFit, values: np.ndarray, asked: int, units: int, notes: Sequence[str]) -> LawFit:
    """The fit with resamples from values (B, n) of y, of so many independent units; others of `asked` are lost."""
    targets = to_space(values, "linear", one.problem.space)[0]
    start, losses = np.repeat(one.z[None], len(values), axis=0), one.loss.path(one.spread, near=True)
    solved = minimise(one.problem, start, targets, one.table.weights, losses, 1e-12)
    usable = np.isfinite(solved.objective)
    draws = Draws(one.law.from_z(solved.z[usable])[0], asked - int(usable.sum()), "cluster", units, units - 1)
    return replace(one, given=draws, notes=tuple(notes))
