"""Warnings in words: what the data of a fit cannot show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from rlkit.laws.bootstrap import runaways
from rlkit.laws.estimate import Estimate
from rlkit.laws.solver import Loss, minimise

# lines in ln x, and their spaces
STRAIGHT = {"power": "log", "logarithmic": "linear", "logit_linear": "logit"}

RAN_AWAY = "at a bound or more than a million times away from the estimate"


class LackOfFit(NamedTuple):
    """The F test of a law against the means of its cells, its degrees of freedom and its p value."""

    statistic: float
    cells: int
    replicates: int
    p: float


def lack_of_fit(fit: Estimate) -> LackOfFit | None:
    """Whether the law misses the cells' means by more than replicates (rows with equal columns) differ: F of the
    pure-error test, by least squares in the fit's own space. None where no cell has replicates, where there are no more
    cells than parameters, or where rows of one run count several times (their errors are not independent)."""
    n, p = len(fit.table), len(fit.law.free)
    if fit.table.record["runs"] not in (None, n):
        return None
    cells = fit.table.cells()
    m = int(cells.max()) + 1
    if m <= p or n <= m:
        return None
    z, w = fit.z, fit.sizes**-2
    if fit.loss.robust:
        z = minimise(fit.problem, z[None], fit.observed, w, [Loss("ls")], 1e-10).z[0]
    r = fit.observed - fit.problem.predict(z[None])[0]
    mean = np.bincount(cells, w * r) / np.bincount(cells, w)
    pure = float((w * (r - mean[cells]) ** 2).sum())
    missed = float((w * mean[cells] ** 2).sum())
    if pure <= 1e-20 * float((w * fit.observed**2).sum()):
        return None
    F = missed / (m - p) / (pure / (n - m))
    return LackOfFit(F, m - p, n - m, float(stats.f.sf(F, m - p, n - m)))


def warnings(fit: Estimate) -> list[str]:
    """One sentence a finding, most basic first: what was found, and after a colon what follows from it."""
    checks = (_design, _misfit, _identified, _search, _draws, _runs, _study)
    return [text for check in checks for text in check(fit)] + list(fit.notes)


def findings(sentences: Iterable[str]) -> list[str]:
    """What warnings have found, without what follows: for a caption or under a table."""
    return [text.partition(": ")[0].rstrip(".") + "." for text in sentences]


def in_words(text: str, words: Mapping[str, str | None]) -> str:
    """The text with columns in other words, those that look like names."""
    for name in (name for name in words if "_" in name or "/" in name):
        text = text.replace(name, words[name] or name)
    return text


def _design(fit: Estimate) -> Iterator[str]:
    n = len(fit.table)
    if n < 5:
        yield f"Only {n} points for {len(fit.law.free)} parameters: no interval is to be trusted."
    for c, values in fit.table.columns.items():
        name, distinct, positive = fit.table.names[c], len(np.unique(values)), values[values > 0]
        if distinct < 3:
            yield f"Only {distinct} values of {name}: a straight line through them fits as well as any law in {name}."
        if c in fit.law.unlogged or not len(positive):
            continue
        if (decades := np.log10(positive.max() / positive.min())) < 2:
            told = "with fewer than two, exponent and asymptote trade off against each other"
            yield f"Only {decades:.1f} decades of {name}: {told}."


def _misfit(fit: Estimate) -> Iterator[str]:
    """The test of replicates; of a line in ln x whether its residuals are an arc; of `tan` whether sizes need levels of
    their own."""
    test, columns, names = lack_of_fit(fit), fit.table.columns, fit.table.names
    if test is not None and test.p < 0.05:
        F = f"F = {test.statistic:.3g} of {test.cells} and {test.replicates} degrees of freedom, p = {test.p:.2g}"
        told = "its intervals and predictions are not to be trusted; try another law"
        yield f"The law {fit.law.name!r} is rejected by its own data ({F}): {told}."
    if STRAIGHT.get(fit.law.name) == fit.space:
        x = np.log(columns["x"])
        x = (x - x.mean()) / x.std()
        _, p = _more_explained(fit, [x**0, x], [x**0, x, x**2])
        if p < 0.05:
            told = f"a {fit.law.name} law does not describe these values well, nor predict beyond them"
            yield f"Residuals curve along {names['x']} (p = {p:.2g} of a quadratic term in logarithms): {told}."
    if fit.law.name == "tan":
        size = np.unique(columns["N"], return_inverse=True)[1]
        x, N, m = np.log(columns["X"]), np.log(columns["N"]), int(size.max()) + 1
        F, p = _more_explained(fit, [x**0, N, x, x * N], [*np.eye(m)[:, size], x, x * N])
        if p < 0.01:
            told = f"fit rlkit.laws.tan_by_size({names['N']}), which predicts no other"
            yield f"E0 is no line of ln N for these {m} sizes (F = {F:.3g}): {told}."


def _more_explained(fit: Estimate, fewer: Sequence, more: Sequence) -> tuple[float, float]:
    """F and p of what more columns (n,) explain of the residuals than fewer; p is 1 where there are too few rows, or
    nothing is left to explain."""
    root, n = np.sqrt(fit.table.weights), len(fit.table)
    y, designs = fit.residuals * root, [np.column_stack(columns) * root[:, None] for columns in (fewer, more)]
    rest = [float(((y - X @ np.linalg.lstsq(X, y)[0]) ** 2).sum()) for X in designs]
    rank = [int(np.linalg.matrix_rank(X)) for X in designs]
    if n <= rank[1] or rank[0] == rank[1] or np.std(fit.residuals) < 1e-6 * fit.spread:
        return 0.0, 1.0
    F = (rest[0] - rest[1]) / (rank[1] - rank[0]) / (rest[1] / (n - rank[1]))
    return F, float(stats.f.sf(F, rank[1] - rank[0], n - rank[1]))


def _identified(fit: Estimate) -> Iterator[str]:
    """Parameters at a bound, and an asymptote that the data do not reach."""
    for name, bound in fit.at_bound.items():
        yield f"{name} is at its bound {bound:g}: the data would take it further, so its error is one-sided."
    if fit.law.identified_by is not None:
        middle, column = fit.law.identified_by
        reach, name = float(fit.table.columns[column].max() / fit.params[middle]), fit.table.names[column]
        if reach < 3:
            told = f"{name} reaches {reach:.2g} times {middle}, and at least 3 times is needed"
            yield f"The asymptote {fit.law.asymptote} is not identified: {told}."


def _search(fit: Estimate) -> Iterator[str]:
    s = fit.starts
    if s.overruled:
        walked = " and ".join(s.overruled)
        yield f"The starts agreed on a worse optimum than a walk along {walked} found: there may be better ones still."
    elif s.tried >= 4 and s.agree < 2:
        yield f"Only {s.agree} of {s.tried} starts reached the best objective: it may not be the global one."


def _draws(fit: Estimate) -> Iterator[str]:
    """Resamples that were lost, or that ended at a bound or at a runaway value."""
    if fit.resampled is None:
        return
    draws, _, lost = fit.resampled
    if lost > 0.05 * (total := len(draws) + lost):
        yield f"{lost} of {total} resamples could not be fitted and are left out of the intervals."
    for name, away in runaways(fit.law, draws, fit.params).items():
        if away.mean() > 0.05:
            where = "at a bound" if name in fit.law.linear else RAN_AWAY
            yield f"{away.sum()} of {len(away)} resamples have {name} {where}: the data do not bound it on that side."


def _runs(fit: Estimate) -> Iterator[str]:
    """Which variance the intervals leave out, from the clusters or the columns `run` and `seed`."""
    n, runs, scheme = len(fit.table), fit.table.record["runs"], fit.scheme
    clustered, why = scheme is not None and scheme.kind == "cluster", ""
    if fit.table.record["seeds"] == 1:
        why = ": there is one seed only"
    elif fit.table.cluster is not None and not clustered:
        why = ": clusters are named, and profiles count rows as independent (use bootstrap=1000)"
    elif runs is None and not clustered:
        why = " where several rows come from one run: rows count as independent (use cluster=, with several seeds)"
    elif runs != n and not clustered:
        counted = "one noise" if scheme is not None and scheme.kind == "autoregressive" else "independent"
        why = f": {n} rows of {runs} runs count as {counted} (use cluster='run' with several runs, block= with one)"
    if why:
        yield f"The intervals leave out run-to-run variance{why}."
    if scheme is not None and clustered and scheme.units < 8:
        freedom = f"t with {scheme.units - 1} degrees of freedom"
        yield f"The intervals rest on {scheme.units} clusters, for which they are widened ({freedom})."


def _study(fit: Estimate) -> Iterator[str]:
    """Whether the law's columns do not tell cells of a study apart, and whether its runs have finished."""
    if (together := fit.table.record.get("cells_together", 0)) > 1:
        names = ", ".join(fit.table.names[c] for c in fit.law.columns)
        told = (
            "the law describes their mixture (use group=, or a law with a column for what tells them apart)"
        )
        yield f"Up to {together} cells share one value of {names}: {told}."
    if unfinished := fit.table.record.get("unfinished"):
        rows = f"{unfinished} of {len(fit.table)} rows are of runs that have not finished"
        yield f"{rows}: their last evaluation stands for their end."
