"""Warnings in words: what the data of a fit cannot show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlkit.laws.result import LawFit


def warnings(fit: LawFit) -> list[str]:
    """One sentence a finding, most basic first: what was found, and after a colon what follows from it."""
    checks = (_design, _bounds, _curved, _identified, _flat, _search, _noise, _runs, _study)
    return [text for check in checks for text in check(fit)] + list(fit.notes)


def findings(sentences: Iterable[str]) -> list[str]:
    """What warnings have found, without what follows, and columns in words: for a caption or under a table."""
    from rlkit.figures.theme import LABELS

    found = [text.partition(": ")[0].rstrip(".") + "." for text in sentences]
    for name in (name for name in LABELS if "_" in name or "/" in name):
        found = [text.replace(name, LABELS[name] or name) for text in found]
    return found


def _design(fit: LawFit) -> list[str]:
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
        positive = values[values > 0]
        decades = np.log10(positive.max() / positive.min()) if len(positive) else 0.0
        if decades < 2 and c not in ("r", "D_other", "d", "k"):
            found.append(
                f"Only {decades:.1f} decades of {name}: with fewer than two, exponent and asymptote trade off "
                "against each other, and extrapolation rests on the form."
            )
    return found


def _bounds(fit: LawFit) -> list[str]:
    return [
        f"{name} is at its bound {bound:g}: the data would take it further, so its error is one-sided."
        for name, bound in fit.at_bound.items()
    ]


def _study(fit: LawFit) -> list[str]:
    """What the rows of a study say of themselves that the law's columns do not."""
    together = fit.table.record.get("cells_together", 1)
    unfinished = fit.table.record.get("unfinished", 0)
    names = ", ".join(fit.table.names[c] for c in fit.law.columns)
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


def _curved(fit: LawFit) -> list[str]:
    """A straight line in logarithms whose residuals are an arc: the t test of a quadratic term at 5 %.

    Regressed on 1, ln x and (ln x)², the residuals of a power law give the quadratic term the t that ln y gives it,
    n - 3 degrees of freedom, whatever the loss. Rows count as independent. Other laws bend by themselves and are not
    tested.
    """
    if fit.law.name != "power" or fit.space != "log":
        return []
    x, r = np.log(fit.table.columns["x"]), fit.residuals
    if len(r) < 4 or len(np.unique(x)) < 3 or np.std(r) < 1e-6 * fit.spread:
        return []
    import statsmodels.api as sm

    weights: Any = fit.table.weights
    scaled = (x - x.mean()) / x.std()
    p = sm.WLS(r, np.vander(scaled, 3), weights=weights).fit().pvalues[0]
    name = fit.table.names["x"]
    return [
        f"Residuals curve along {name} (p = {p:.2g} of a quadratic term in logarithms): a power law does not "
        "describe these values well, and what it foretells beyond them is not to be trusted."
    ] * bool(p < 0.05)


def _identified(fit: LawFit) -> list[str]:
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


def _flat(fit: LawFit) -> list[str]:
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


def _direction(fit: LawFit) -> str:
    from rlkit.laws.fitting import scaled_curvature

    values, vectors = np.linalg.eigh(
        scaled_curvature(fit.problem, fit.z, fit.loss, fit.observed, fit.table.weights, fit.free)
    )
    heavy = np.abs(vectors[:, np.argmin(values)])
    names = [p for p, f in zip(fit.law.parameters, fit.free, strict=True) if f]
    return " and ".join(n for n, h in zip(names, heavy, strict=True) if h > 0.3 * heavy.max())


def _search(fit: LawFit) -> list[str]:
    s = fit.starts
    if s.tried >= 4 and s.agree < 2:
        return [
            f"Only {s.agree} of {s.tried} starts reached the best objective: it may not be the global one."
        ]
    return []


def _noise(fit: LawFit) -> list[str]:
    found = []
    if fit.loss.name == "huber" and len(fit.table) > 5:
        outside = float(np.mean(np.abs(fit.residuals) > fit.loss.delta))
        if outside > 0.6:
            found.append(
                f"{outside:.0%} of the residuals exceed delta = {fit.loss.delta:g}: this is nearly "
                "least absolute deviations, which wastes a third of the data when noise is normal; a "
                f"delta near {_mad(fit):.2g} would not."
            )
    if fit.draws is not None and fit.scheme and fit.lost > 0.05 * (len(fit.draws) + fit.lost):
        why = "no optimum" if fit.scheme.draws_noise else "too few distinct points, or no optimum"
        found.append(
            f"{fit.lost} of {len(fit.draws) + fit.lost} resamples could not be fitted ({why}) and are left out of the "
            "intervals."
        )
    return found


def _mad(fit: LawFit) -> float:
    return float(2 * 1.4826 * np.median(np.abs(fit.residuals)))


def _runs(fit: LawFit) -> list[str]:
    """Which variance the intervals leave out, from the clusters or the columns `run` and `seed`."""
    if fit.law.target:
        return []
    n, runs, seeds = len(fit.table), fit.table.record["runs"], fit.table.record["seeds"]
    clustered = fit.scheme if fit.scheme is not None and "cluster" in fit.scheme.kind else None
    found = []
    if seeds == 1:
        found.append("The intervals leave out run-to-run variance: there is one seed only.")
    elif not clustered and runs is None:
        found.append(
            "The intervals leave out run-to-run variance where several rows come from one run: rows count as "
            "independent and no cluster is named (use cluster=, with several seeds)."
        )
    elif not clustered and runs != n:
        found.append(
            f"The intervals leave out run-to-run variance: {n} rows of {runs} runs count as independent (use "
            "cluster='run', with several seeds)."
        )
    if clustered and clustered.units < 8:
        found.append(
            f"The intervals rest on {clustered.units} clusters; they are widened for that (t with "
            f"{clustered.units - 1} degrees of freedom), and few of their values can be trusted to the "
            "second digit."
        )
    return found
