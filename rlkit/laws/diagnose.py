"""Warnings in words: what the data of a fit cannot show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats

from rlkit.laws.estimate import Estimate
from rlkit.laws.losses import Loss
from rlkit.laws.optimum import scaled_curvature
from rlkit.laws.solver import minimise


def warnings(fit: Estimate) -> list[str]:
    """One sentence a finding, most basic first: what was found, and after a colon what follows from it."""
    checks = (
        _design,
        _bounds,
        _misfit,
        _curved,
        _levels,
        _identified,
        _flat,
        _search,
        _noise,
        _draws,
        _runs,
        _study,
    )
    return [text for check in checks for text in check(fit)] + list(fit.notes)


def findings(sentences: Iterable[str]) -> list[str]:
    """What warnings have found, without what follows: for a caption or under a table."""
    return [text.partition(": ")[0].rstrip(".") + "." for text in sentences]


def in_words(text: str, words: Mapping[str, str | None]) -> str:
    """The text with columns in other words, those that look like names."""
    for name in (name for name in words if "_" in name or "/" in name):
        text = text.replace(name, words[name] or name)
    return text


class LackOfFit(NamedTuple):
    """The F test of a law against the means of its cells, its degrees of freedom and its p value."""

    statistic: float
    cells: int
    replicates: int
    p: float


def lack_of_fit(fit: Estimate) -> LackOfFit | None:
    """Whether the law misses the cells' means by more than replicates differ: F of the pure-error test.

    Rows with equal columns are replicates. Residuals are those of least squares in the fit's own space, with its
    weights. None where no cell has replicates, where there are no more cells than parameters, where rows of one
    run count several times (their errors are not independent), or for a likelihood law.
    """
    n, p = len(fit.table), int(fit.free.sum())
    if fit.law.target or fit.table.record["runs"] not in (None, n):
        return None
    cells = fit.table.cells()
    m = int(cells.max()) + 1
    if m <= p or n <= m:
        return None
    z, w = fit.z, fit.sizes**-2
    if fit.loss.name not in ("ls", "binomial"):
        z = minimise(fit.problem, z[None], fit.observed, w, [Loss("ls")], 1e-10).z[0]
    r = fit.observed - fit.problem.predict(z[None])[0]
    mean = np.bincount(cells, w * r) / np.bincount(cells, w)
    pure = float((w * (r - mean[cells]) ** 2).sum())
    missed = float((w * mean[cells] ** 2).sum())
    if pure <= 1e-20 * float((w * fit.observed**2).sum()):
        return None
    F = missed / (m - p) / (pure / (n - m))
    return LackOfFit(F, m - p, n - m, float(stats.f.sf(F, m - p, n - m)))


def _misfit(fit: Estimate) -> list[str]:
    test = lack_of_fit(fit)
    if test is None or test.p >= 0.05:
        return []
    return [
        f"The law {fit.law.name!r} is rejected by its own data (F = {test.statistic:.3g} of {test.cells} and "
        f"{test.replicates} degrees of freedom, p = {test.p:.2g}): it misses the means by more than replicates differ, "
        "so its intervals and predictions are not to be trusted; try another law."
    ]


def _design(fit: Estimate) -> list[str]:
    found, n = [], len(fit.table)
    if n < 5:
        found.append(
            f"Only {n} points for {int(fit.free.sum())} parameters: the fit nearly interpolates them, "
            "and no interval is to be trusted."
        )
    if fit.law.target:
        return found
    for c, values in fit.table.columns.items():
        name, distinct = fit.table.names[c], len(np.unique(values))
        if distinct < 3:
            found.append(
                f"Only {distinct} values of {name}: a straight line through them fits as well as any law "
                f"in {name}."
            )
        if c in fit.law.unlogged or not (values > 0).any():
            continue
        positive = values[values > 0]
        decades = np.log10(positive.max() / positive.min())
        if decades < 2:
            found.append(
                f"Only {decades:.1f} decades of {name}: with fewer than two, exponent and asymptote trade off "
                "against each other, and extrapolation rests on the form."
            )
    return found


def _bounds(fit: Estimate) -> list[str]:
    return [
        f"{name} is at its bound {bound:g}: the data would take it further, so its error is one-sided."
        for name, bound in fit.at_bound.items()
    ]


def _study(fit: Estimate) -> list[str]:
    """What the rows of a study say of themselves that the law's columns do not."""
    together = fit.table.record.get("cells_together", 1)
    unfinished = fit.table.record.get("unfinished", 0)
    names = ", ".join(fit.table.names[c] for c in fit.law.columns if c in fit.table.names)
    found = []
    if together > 1:
        found.append(
            f"Up to {together} cells share one value of {names}: the law does not see what tells them apart, so it "
            "describes their mixture (use group=, or a law with a column for it)."
        )
    if unfinished:
        found.append(
            f"{unfinished} of {len(fit.table)} rows are of runs that have not finished: their last evaluation stands "
            "for their end."
        )
    return found


def _curved(fit: Estimate) -> list[str]:
    """A straight line whose residuals are an arc: the t test of a quadratic term in ln x at 5 %.

    Regressed on 1, ln x and (ln x)², the residuals of a line in ln x give the quadratic term the t that y gives it,
    n - 3 degrees of freedom, whatever the loss. Rows count as independent. Laws that bend by themselves have the
    test of replicates.
    """
    straight = {"power": "log", "logarithmic": "linear", "logit_linear": "logit"}
    if straight.get(fit.law.name) != fit.space:
        return []
    x, r = np.log(fit.table.columns["x"]), fit.residuals
    if len(r) < 4 or len(np.unique(x)) < 3 or np.std(r) < 1e-6 * fit.spread:
        return []
    root = np.sqrt(fit.table.weights)
    design = np.vander((x - x.mean()) / x.std(), 3) * root[:, None]
    values, rest = np.linalg.lstsq(design, r * root, rcond=None)[:2]
    if not len(rest) or rest[0] <= 0:
        return []
    error = np.sqrt(rest[0] / (len(r) - 3) * np.linalg.inv(design.T @ design)[0, 0])
    p = 2 * float(stats.t.sf(abs(values[0]) / error, len(r) - 3))
    name = fit.table.names["x"]
    return [
        f"Residuals curve along {name} (p = {p:.2g} of a quadratic term in logarithms): a {fit.law.name} law does not "
        "describe these values well, and its predictions beyond them are not to be trusted."
    ] * bool(p < 0.05)


def _levels(fit: Estimate) -> list[str]:
    """Whether sizes need levels of their own where the law `tan` has a line of ln N: F of the sizes' mean residuals."""
    if fit.law.name != "tan":
        return []
    size = np.unique(fit.table.columns["N"], return_inverse=True)[1]
    m, n = int(size.max()) + 1, len(size)
    if m < 3 or n <= m + 2:
        return []
    # What levels of their own would explain, once the residuals' slopes along ln X and in ln N are taken out as well.
    x, N, r = np.log(fit.table.columns["X"]), np.log(fit.table.columns["N"]), fit.residuals
    shares = [np.ones(n), N, x, x * N]
    with_levels = [*np.eye(m)[:, size], x, x * N]
    rest = [float(np.linalg.lstsq(np.column_stack(c), r, rcond=None)[1].sum()) for c in (shares, with_levels)]
    if min(rest) <= 0:
        return []
    F = (rest[0] - rest[1]) / (m - 2) / (rest[1] / (n - m - 2))
    if stats.f.sf(F, m - 2, n - m - 2) >= 0.01:
        return []
    return [
        f"E0 is no line of ln N for these {m} sizes (F = {F:.3g}): fit rlkit.laws.tan_by_size({fit.table.names['N']}), "
        "which has an E0 for each size and predicts no other."
    ]


def _identified(fit: Estimate) -> list[str]:
    if fit.law.identified_by is None or fit.law.asymptote is None:
        return []
    middle, column = fit.law.identified_by
    reach = float(fit.table.columns[column].max() / fit.params[middle])
    name = fit.table.names[column]
    if reach < 0.3:
        return [
            f"The curve has not bent yet (max {name} is {reach:.2g} of {middle}): the sigmoid has "
            f"degenerated to a power law, and {fit.law.asymptote} and {middle} only set its slope."
        ]
    if reach < 3:
        return [
            f"The asymptote {fit.law.asymptote} is not identified: {name} reaches {reach:.2g} times "
            f"{middle}, and at least 3 times is needed."
        ]
    return []


def _flat(fit: Estimate) -> list[str]:
    found = []
    if fit.condition > 1e7:
        found.append(
            f"The objective is flat in one direction (condition number {fit.condition:.1e}): "
            f"{_direction(fit)} can move together with no visible change of fit."
        )
    error = fit.stderr
    for name in fit.law.free:
        value, low = fit.params[name], fit.law.limits(name)[0]
        if low == 0 and np.isfinite(error[name]) and error[name] > abs(value) and name == fit.law.asymptote:
            found.append(
                f"{name} = {value:.3g} cannot be told from zero (standard error {error[name]:.2g}): a "
                "law without it fits as well."
            )
    return found


def _direction(fit: Estimate) -> str:
    values, vectors = np.linalg.eigh(
        scaled_curvature(fit.problem, fit.z, fit.loss, fit.observed, fit.table.weights, fit.free)
    )
    heavy = np.abs(vectors[:, np.argmin(values)])
    names = [p for p, f in zip(fit.law.parameters, fit.free, strict=True) if f]
    return " and ".join(n for n, h in zip(names, heavy, strict=True) if h > 0.3 * heavy.max())


def _search(fit: Estimate) -> list[str]:
    s = fit.starts
    if s.overruled:
        return [
            f"The starts had agreed on a worse optimum than a walk along {' and '.join(s.overruled)} found: there may "
            "be better ones still."
        ]
    if s.tried >= 4 and s.agree < 2:
        return [
            f"Only {s.agree} of {s.tried} starts reached the best objective: it may not be the global one."
        ]
    return []


def _noise(fit: Estimate) -> list[str]:
    found = []
    if fit.loss.name == "huber" and len(fit.table) > 5:
        outside = float(np.mean(np.abs(fit.residuals) > fit.loss.delta))
        if outside > 0.6:
            found.append(
                f"{outside:.0%} of the residuals exceed delta = {fit.loss.delta:g}: this is nearly "
                "least absolute deviations, which wastes a third of the data when noise is normal; a "
                f"delta near {_mad(fit):.2g} would not."
            )
    return found


def _draws(fit: Estimate) -> list[str]:
    """Resamples that were lost, or that ended at a bound or at a runaway value."""
    if fit.draws is None or fit.scheme is None:
        return []
    found, total = [], len(fit.draws) + fit.lost
    if fit.lost > 0.05 * total:
        why = "no optimum" if fit.scheme.draws_noise else "too few distinct points, or no optimum"
        found.append(
            f"{fit.lost} of {total} resamples could not be fitted ({why}) and are left out of the intervals."
        )
    estimate = fit.params
    for j, name in enumerate(fit.law.parameters):
        low, high = fit.law.limits(name)
        values, unit = (
            fit.draws[:, j],
            abs(estimate[name]) or float(np.median(np.abs(fit.draws[:, j]))) or 1.0,
        )
        if name in fit.law.pinned:
            continue
        if name in fit.law.linear:
            away = (values - low < 1e-6 * unit) | (high - values < 1e-6 * unit)
            where = "at a bound"
        else:
            away = np.abs(values - (low if np.isfinite(low) else 0.0)) > 1e6 * unit
            away |= (values - low < 1e-6 * unit) | (high - values < 1e-6 * unit)
            where = "at a bound or more than a million times away from the estimate"
        if away.mean() > 0.05:
            found.append(
                f"{away.sum()} of {len(values)} resamples have {name} {where}: the data do not bound it on that side."
            )
    return found


def _mad(fit: Estimate) -> float:
    return float(2 * 1.4826 * np.median(np.abs(fit.residuals)))


def _runs(fit: Estimate) -> list[str]:
    """Which variance the intervals leave out, from the clusters or the columns `run` and `seed`."""
    if fit.law.target:
        return []
    n, runs, seeds = len(fit.table), fit.table.record["runs"], fit.table.record["seeds"]
    clustered = fit.scheme if fit.scheme is not None and "cluster" in fit.scheme.kind else None
    found = []
    if seeds == 1:
        found.append("The intervals leave out run-to-run variance: there is one seed only.")
    elif not clustered and fit.table.cluster is not None:
        found.append(
            "The intervals leave out run-to-run variance: clusters are named, and profiles count rows as independent "
            "(use bootstrap=1000, or method='wald')."
        )
    elif not clustered and runs is None:
        found.append(
            "The intervals leave out run-to-run variance where several rows come from one run: rows count as "
            "independent and no cluster is named (use cluster=, with several seeds)."
        )
    elif not clustered and runs != n:
        counted = (
            "one noise" if fit.scheme is not None and fit.scheme.kind == "autoregressive" else "independent"
        )
        found.append(
            f"The intervals leave out run-to-run variance: {n} rows of {runs} runs count as {counted} (use "
            "cluster='run', with several seeds)."
        )
    if clustered and clustered.units < 8:
        found.append(
            f"The intervals rest on {clustered.units} clusters; they are widened for that (t with "
            f"{clustered.units - 1} degrees of freedom), and few of their values can be trusted to the "
            "second digit."
        )
    return found
