"""rlkit.fit: from a table to a LawFit; and laws of graded samples, whose intervals resample what is independent:
problems, and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from rlkit.errors import UserError
from rlkit.evaluation import pass_at_k, resample_sums
from rlkit.laws import intervals, report, table
from rlkit.laws.intervals import RESAMPLES, Draws
from rlkit.laws.law import Law, Space, resolve
from rlkit.laws.optimum import Optimum, search
from rlkit.laws.solver import Solution, make_loss, minimise, to_space
from rlkit.seeds import generator

Band = Literal["confidence", "prediction"]


@dataclass(frozen=True)
class LawFit(Optimum):
    """A fitted law: its optimum, its uncertainty and its predictions. It has `count` resamples of rows or residuals
    (`kind`) from a seed, or resamples that were drawn elsewhere (`given`); `notes` are warnings, too."""

    count: int = 0
    kind: str = "residual"
    seed: int = 0
    given: Draws | None = None
    notes: tuple[str, ...] = ()

    warnings = cached_property(report.warnings)
    lack_of_fit = property(report.lack_of_fit)
    criteria = property(report.criteria)
    summary = report.summary
    to_json = report.to_json
    to_latex = report.to_latex

    @cached_property
    def resampled(self) -> Draws | None:
        """The resamples (`intervals.resample`), drawn when first needed; None where none were asked for."""
        if self.given is not None or not self.count:
            return self.given
        return intervals.resample(self, self.kind, self.count, self.seed)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the estimates, of the draws or else Wald's, which are NaN at a bound."""
        with np.errstate(all="ignore"):
            if self.resampled is not None:
                sd = np.std(self.resampled.values, axis=0, ddof=1)
            else:
                sd = np.sqrt(np.diagonal(intervals.wald_covariance(self))) * self.law.from_z(self.z)[1]
                sd[[p in self.at_bound for p in self.law.parameters]] = np.nan
        return dict(zip(self.law.parameters, sd.tolist(), strict=True))

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Interval of each free parameter: percentiles of the resamples, stretched for small samples; without any the
        profile (of independent rows), where the objective, minimised over the other parameters, leaves its threshold;
        an end that is never reached is the parameter's bound or infinite. A UserError for a level outside (0, 1)."""
        if not 0 < level < 1:
            raise UserError(f"level is {level!r}, but an interval's level lies between 0 and 1, e.g. 0.95.")
        if (drawn := self.resampled) is None:
            return intervals.profiles(self, level)
        # Linear parameters may be at a bound, which is infinitely far away in z: theirs are natural units.
        law, natural = self.law, self.law.linearly
        draws = np.where(natural, drawn.values, law.to_z(drawn.values))
        center = np.where(natural, law.from_z(self.z)[0], self.z)
        ends = drawn.ends(draws, center, level)
        ends = np.where(natural, ends, law.from_z(ends)[0])
        limits = np.array([law.limits(name) for name in law.parameters]).T
        pairs = np.array([np.maximum(ends[0], limits[0]), np.minimum(ends[1], limits[1])]).T.tolist()
        return {p: (low, high) for p, (low, high) in zip(law.parameters, pairs, strict=True) if p in law.free}

    def predict(self, df: Any, band: Band | None = None, repeats: int = 1) -> Any:
        """Predictions for the rows of df (a table or a mapping), whose columns are named as those fitted: without a
        band a Series, with one a DataFrame of prediction, low and high (95 %). "confidence" is of the law itself,
        "prediction" of the mean of `repeats` new measurements, with the weights in df or the fit's median. Errors as
        `rlkit.fit`, and for another band."""
        if band not in (None, "confidence", "prediction"):
            raise UserError(f"band is {band!r}: use 'confidence' or 'prediction', or none.")
        df = pd.DataFrame(df)
        columns = {c: table.numbers(df, self.table.names[c], f"x[{c!r}]") for c in self.law.columns}
        problem, name = replace(self.problem, columns=columns), self.table.record["weights"]
        with np.errstate(all="ignore"):  # a degenerate law leaves the range of floats beyond its data
            center = problem.predict(self.z[None])[0]
            natural = to_space(center, problem.space, "linear")[0]
            value = pd.Series(natural, df.index, name=self.table.names["y"])
            if band is None:
                return value
            noise, known = np.zeros(len(df)), np.median(self.table.weights)
            e = self.residuals / self.sizes * np.sqrt(len(self.table) / self.freedom)
            if band == "prediction":
                known = table.numbers(df, name, "weights") if name in df.columns else known
                noise = np.broadcast_to(known, len(df)) ** -0.5
            if (drawn := self.resampled) is None:
                J = problem.jacobian(self.z[None])[0]
                variance = np.einsum("pm,pq,qm->m", J, intervals.wald_covariance(self), J)
                variance = variance + np.mean(e**2) * noise**2 / repeats
                half = stats.t.ppf((1 + 0.95) / 2, self.freedom) * np.sqrt(variance)
                ends = np.stack([center - half, center + half])
            else:
                draws = problem.predict(self.law.to_z(drawn.values))
                if noise.any():
                    rng = np.random.default_rng(self.seed)
                    draws = draws + rng.choice(e, size=(len(draws), repeats)).mean(axis=1)[:, None] * noise
                ends = drawn.ends(draws, center, 0.95)
            ends = to_space(ends, problem.space, "linear")[0]
        found = {"prediction": value, "low": np.minimum(*ends), "high": np.maximum(*ends)}
        return pd.DataFrame(found, index=df.index)

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v:.4g}" for k, v in self.params.items())
        return f"LawFit({self.law.name}: {values}; n={len(self.table)})"


def fit(
    df: pd.DataFrame, law: str | Law, *, y: str, x: Mapping[str, str] | str | None = None, group: str | None = None,
    loss: str | None = None, delta: float | None = None, log: bool | None = None, weights: str | None = None,
    bootstrap: int | None = None, resample: Literal["case", "residual"] | None = None,
    cluster: str | Sequence[str] | None = None, block: str | None = None, seed: int = 0,
    exclude: Any = None, holdout: Any = None,
) -> Any:  # fmt: skip
    """Fit a law to the rows of a table: a LawFit, or a dict of group to LawFit. A UserError names column and rows.

    Args:
        law: a name (see `rlkit.laws.laws`) or a Law.
        y: column of the measured quantity. x: the law's columns to the table's; a lone name for a one-column law.
        group: column; a separate fit for each of its values.
        loss: ls (the default), or huber (the default where there is a delta). The objective is the sum over rows.
        delta: of huber, in units of the residual; 1e-3 where none is given.
        log: residuals in ln y (True) or y (False); the default is the law's own space.
        weights: column, e.g. the number of samples behind each row: inverse variances, up to a factor.
        bootstrap: number of resamples; by default 1,000, drawn when first needed, and with 0 intervals are profiles.
        resample: residuals ("residual", the default of ls) or rows ("case", that of huber).
        cluster: column(s) of what is independent (run, seed, prompt): residuals or rows of whole clusters.
        block: the column of time, for rows of one run: noise is a first-order autoregression like the residuals.
        exclude, holdout: rules for rows that are not fitted (rlkit.laws.table); rows with a true `held_out` never are.
    """
    form, target = resolve(law), make_loss(loss, delta)
    count = RESAMPLES if bootstrap is None else bootstrap
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UserError(f"bootstrap is {bootstrap!r}: give the number of resamples, 0 or more.")
    if block is not None and (cluster is not None or not isinstance(block, str)):
        told = "give the column that holds time, of one run; of several runs, cluster= alone"
        raise UserError(f"block is {block!r}, with cluster {cluster!r}: {told}.")
    plan = {"count": count, "kind": resample or ("case" if target.robust else "residual"), "seed": seed}
    space: Space = form.space if log is None else "linear"
    if log:
        space = "loglog" if form.space == "loglog" else "log"
    kept, _, record = table.leave_out(df, exclude, holdout)
    options = {"weights": weights, "cluster": cluster, "block": block}

    def one(part: pd.DataFrame, notes: Sequence[str] = ()) -> LawFit:
        rows = table.build(part, form, y, x, space, record, options)
        made = LawFit(**vars(search(rows, form, target, space)), **plan, notes=tuple(notes))
        if bootstrap:
            _ = made.resampled  # what is wrong with the resamples that were asked for is said now
        return made

    if group is None:
        return one(kept)
    values = table.column(df, group, "group")
    if values.nunique() < 2:
        raise UserError(f"group {group!r} has {values.nunique()} value in {len(df)} rows: leave group out.")
    notes = []
    if missing := int(kept[group].isna().sum()):
        notes.append(f"{missing} of {len(kept)} rows have no value of {group} and are in no fit.")
    if left := sorted(map(str, set(values.dropna()) - set(kept[group]))):
        notes.append(f"No row of {group} {', '.join(left)} may be fitted: all are held out or excluded.")
    fits = {}
    for name, part in kept.groupby(group, sort=True):
        try:
            fits[name] = one(part, notes)
        except UserError as error:
            raise UserError(f"In group {name!r}: {error}") from None
    return fits


def fit_coverage(df: pd.DataFrame, ks: Sequence[int] | None = None, bootstrap: int = 2000, seed: int = 0) -> LawFit:
    """Fit the coverage law -ln pass@k = a·k^-b to pass@k averaged over problems, by least squares in ln(-ln pass@k).
    Points of a curve share samples, so problems are resampled. df: one row a problem, with its samples n and the
    correct ones c; ks: default 1, 2, 5, 10 … up to the smallest n. Points of 0 or 1 are left out, resamples with one
    are lost."""
    counts, correct = (table.column(df, name, name).to_numpy() for name in ("n", "c"))
    round_ones = [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= counts.min()]
    grid = np.asarray(round_ones if ks is None else list(ks))
    values = pass_at_k(counts[:, None], correct[:, None], grid[None, :])
    mean = values.mean(axis=0)
    usable = (mean > 0) & (mean < 1)
    if usable.sum() < 3:
        told = f"pass@k lies strictly between 0 and 1 at {usable.sum()} of {len(grid)} k"
        raise UserError(f"{told}, and the law needs 3: raise evaluation.n, or give other ks.")
    curve = pd.DataFrame({"k": grid[usable], "pass@k": mean[usable]})
    one: LawFit = fit(curve, "coverage", y="pass@k", x="k", bootstrap=0, seed=seed)
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
    targets, weights = to_space(values, "linear", one.problem.space)[0], one.table.weights[None]
    start = np.repeat(one.z[None], len(values), axis=0)
    solved = minimise(one.problem, start, targets, weights, one.loss, 1e-12)
    # An estimate at a bound has no slope there, so that a draw may have to start elsewhere.
    pool, first = intervals.known_optima(one), np.arange(min(8, len(values)))
    again = intervals.refit(replace(one.problem, central=False), one.loss, pool, one.z, targets, weights, first)
    better = np.flatnonzero(again.objective < solved.objective * (1 - 1e-6))
    solved.put(better, Solution(*(part[better] for part in again)))
    usable = np.isfinite(solved.objective)
    draws = Draws(one.law.from_z(solved.z[usable])[0], asked - int(usable.sum()), "cluster", units, units - 1)
    return replace(one, given=draws, notes=tuple(notes))
