"""What a fit says of itself: its tests and criteria, warnings in words, text, LaTeX and JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from rlkit.files import write_text
from rlkit.laws.intervals import runaways
from rlkit.laws.solver import Loss, minimise
from rlkit.results.store import plain

if TYPE_CHECKING:
    from rlkit.laws.fitting import LawFit

CONVENTION = "AIC = 2k - 2·ln L, BIC = k·ln n - 2·ln L, k free parameters; AICc counts the noise, too"
KEPT = 200  # resamples in a record, from which a plan has its intervals
RAN_AWAY = "at a bound or more than a million times away from the estimate"
GREEK = ("alpha", "beta", "gamma", "delta", "tau")
LATEX = {c: f"\\{c}" for c in "%&#$_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"
}  # fmt: skip


class LackOfFit(NamedTuple):
    """The F test of a law against the means of its cells, its degrees of freedom and its p value."""

    statistic: float
    cells: int
    replicates: int
    p: float

    def __str__(self) -> str:
        freedom = f"{self.cells} and {self.replicates} degrees of freedom"
        return f"F = {self.statistic:.3g} of {freedom}, p = {self.p:.2g}"


class Criteria(NamedTuple):
    """ln likelihood, AIC, AICc (infinite for too few rows) and BIC; R² in residual space."""

    log_likelihood: float
    aic: float
    aicc: float
    bic: float
    r2: float


def lack_of_fit(fit: "LawFit") -> LackOfFit | None:
    """Whether the law misses the cells' means by more than replicates (rows with equal columns) differ: F of the
    pure-error test, by least squares in the fit's own space. None where no cell has replicates, where there are no more
    cells than parameters, or where rows of one run count several times (their errors are not independent)."""
    n, p, cells = len(fit.table), len(fit.law.free), fit.table.cells()
    m = int(cells.max()) + 1
    if fit.table.record["runs"] not in (None, n) or m <= p or n <= m:
        return None
    z, w = fit.z[None], fit.sizes**-2
    if fit.loss.robust:
        z = minimise(fit.problem, z, fit.observed, w, Loss("ls"), 1e-10).z
    r = fit.observed - fit.problem.predict(z)[0]
    mean = np.bincount(cells, w * r) / np.bincount(cells, w)
    pure = float((w * (r - mean[cells]) ** 2).sum())
    if pure <= 1e-20 * float((w * fit.observed**2).sum()):
        return None
    F = float((w * mean[cells] ** 2).sum()) / (m - p) / (pure / (n - m))
    return LackOfFit(F, m - p, n - m, float(stats.f.sf(F, m - p, n - m)))


def criteria(fit: "LawFit") -> Criteria:
    """Information criteria, comparable between laws fitted to the same rows with the same loss and space: of normal
    noise for ls, NaN for huber, which has no likelihood of its own."""
    k, n, least, w = len(fit.law.free), len(fit.table), fit.objective, fit.table.weights
    y, r, log_l = fit.observed, fit.residuals, np.nan
    if not fit.loss.robust:
        with np.errstate(divide="ignore"):  # an exact fit
            log_l = float(0.5 * np.log(w).sum() - 0.5 * n * (np.log(4 * np.pi * least / n) + 1))
    total = float((w * (y - np.average(y, weights=w)) ** 2).sum())
    r2 = 1 - float((w * r * r).sum()) / total if total > 0 else np.nan
    K = k + 1  # with the noise's scale
    aicc = 2 * K - 2 * log_l + 2 * K * (K + 1) / (n - K - 1) if n > K + 1 else np.inf
    return Criteria(log_l, 2 * k - 2 * log_l, aicc, k * np.log(n) - 2 * log_l, r2)


def warnings(fit: "LawFit") -> list[str]:
    """One sentence a finding, most basic first: what was found, and after a colon what follows from it."""
    return [text for check in (_design, _misfit, _estimates, _runs) for text in check(fit)] + list(fit.notes)


def findings(sentences: Iterable[str], words: Mapping[str, str | None]) -> list[str]:
    """What warnings have found, without what follows, columns that look like names in other words: for a caption."""
    found = [text.partition(": ")[0].rstrip(".") + "." for text in sentences]
    for name in (name for name in words if "_" in name or "/" in name):
        found = [text.replace(name, words[name] or name) for text in found]
    return found


def _design(fit: "LawFit") -> Iterator[str]:
    if (n := len(fit.table)) < 5:
        yield f"Only {n} points for {len(fit.law.free)} parameters: no interval is to be trusted."
    for c, values in fit.table.columns.items():
        name, distinct, positive = fit.table.names[c], len(np.unique(values)), values[values > 0]
        if distinct < 3:
            yield f"Only {distinct} values of {name}: a straight line through them fits as well as any law in {name}."
        share = values.min() >= 0 and values.max() <= 1  # which has no decades
        if len(positive) and not share and (decades := np.log10(positive.max() / positive.min())) < 2:
            told = "with fewer than two, exponent and asymptote trade off against each other"
            yield f"Only {decades:.1f} decades of {name}: {told}."


def _misfit(fit: "LawFit") -> Iterator[str]:
    """The test of replicates; of a power law for an arc; of `tan` whether sizes need levels of their own."""
    test, columns, names = lack_of_fit(fit), fit.table.columns, fit.table.names
    if test is not None and test.p < 0.05:
        told = "its intervals and predictions are not to be trusted; try another law"
        yield f"The law {fit.law.name!r} is rejected by its own data ({test}): {told}."
    if fit.law.name == "power" and fit.problem.space == "log":  # a line in ln x
        x = np.log(columns["x"])
        x = (x - x.mean()) / x.std()
        _, p = _more_explained(fit, [x**0, x], [x**0, x, x**2])
        if p < 0.05:
            told = "a power law does not describe these values well, nor predict beyond them"
            yield f"Residuals curve along {names['x']} (p = {p:.2g} of a quadratic term in logarithms): {told}."
    if fit.law.name == "tan":
        size = np.unique(columns["N"], return_inverse=True)[1]
        x, N, m = np.log(columns["X"]), np.log(columns["N"]), int(size.max()) + 1
        F, p = _more_explained(fit, [x**0, N, x, x * N], [*np.eye(m)[:, size], x, x * N])
        if p < 0.01:
            what = f"E0 is no line of ln N for these {m} sizes (F = {F:.3g}), so that bands of others are too narrow"
            yield f"{what}: predict no other size."


def _more_explained(fit: "LawFit", fewer: Sequence, more: Sequence) -> tuple[float, float]:
    """F and p of what more columns (n,) explain of the residuals than fewer; p is 1 where that cannot be told."""
    root, n = np.sqrt(fit.table.weights), len(fit.table)
    y, designs = fit.residuals * root, [np.column_stack(columns) * root[:, None] for columns in (fewer, more)]
    rest = [float(((y - X @ np.linalg.lstsq(X, y)[0]) ** 2).sum()) for X in designs]
    rank = [int(np.linalg.matrix_rank(X)) for X in designs]
    if n <= rank[1] or rank[0] == rank[1] or np.std(fit.residuals) < 1e-6 * np.std(fit.observed):
        return 0.0, 1.0
    F = (rest[0] - rest[1]) / (rank[1] - rank[0]) / (rest[1] / (n - rank[1]))
    return F, float(stats.f.sf(F, rank[1] - rank[0], n - rank[1]))


def _estimates(fit: "LawFit") -> Iterator[str]:
    """Parameters at a bound, an asymptote out of reach, a doubtful optimum, resamples that were lost or ran away."""
    for name, bound in fit.at_bound.items():
        yield f"{name} is at its bound {bound:g}: the data would take it further, so its error is one-sided."
    influence = np.abs(fit.problem.jacobian(fit.z[None])[0]).max(axis=1) / np.std(fit.observed)
    if idle := [p for p in fit.law.free if influence[fit.law.parameters.index(p)] < 1e-6 and p not in fit.at_bound]:
        told = "neither value nor interval says anything"
        yield f"The prediction at the optimum does not depend on {', '.join(idle)}: {told}."
    if fit.law.identified_by is not None:
        asymptote, middle, column = fit.law.identified_by
        reach, name = float(fit.table.columns[column].max() / fit.params[middle]), fit.table.names[column]
        if reach < 3:
            told = f"{name} reaches {reach:.2g} times {middle}, and at least 3 times is needed"
            yield f"The asymptote {asymptote} is not identified: {told}."
    tried, agree, overruled = fit.starts
    if overruled:
        walked = " and ".join(overruled)
        yield f"The starts agreed on a worse optimum than a walk along {walked} found: there may be better ones still."
    elif tried >= 4 and agree < 2:
        yield f"Only {agree} of {tried} starts reached the best objective: it may not be the global one."
    if fit.resampled is None:
        return
    draws, lost = fit.resampled[:2]
    if lost > 0.05 * (total := len(draws) + lost):
        yield f"{lost} of {total} resamples could not be fitted and are left out of the intervals."
    for name, away in runaways(fit.law, draws, fit.params).items():
        if away.mean() > 0.05:
            where = "at a bound" if name in fit.law.linear else RAN_AWAY
            yield f"{away.sum()} of {len(away)} resamples have {name} {where}: the data do not bound it on that side."


def _runs(fit: "LawFit") -> Iterator[str]:
    """Which variance the intervals leave out; cells that the law does not tell apart; runs that have not finished."""
    n, record, drawn, why = len(fit.table), fit.table.record, fit.resampled, ""
    runs, kind = record["runs"], drawn.kind if drawn else "profile"
    clustered = "cluster" in kind
    if record["seeds"] == 1:
        why = ": there is one seed only"
    elif fit.table.cluster is not None and not clustered:
        why = ": clusters are named, and profiles count rows as independent (use bootstrap=1000)"
    elif runs is None and not clustered:
        why = " where several rows come from one run: rows count as independent (use cluster=, with several seeds)"
    elif runs != n and not clustered:
        counted = "one noise" if kind == "autoregressive" else "independent"
        why = f": {n} rows of {runs} runs count as {counted} (use cluster='run' with several runs, block= with one)"
    if why:
        yield f"The intervals leave out run-to-run variance{why}."
    if drawn and clustered and drawn.freedom < 7:
        freedom = f"t with {drawn.freedom:.2g} degrees of freedom"
        yield f"The intervals rest on {drawn.units} clusters, for which they are widened ({freedom})."
    if (together := record.get("cells_together", 0)) > 1:
        names = ", ".join(fit.table.names[c] for c in fit.law.columns)
        remedy = "use group=, or a law with a column for what tells them apart"
        yield f"Up to {together} cells share one value of {names}: the law describes their mixture ({remedy})."
    if unfinished := record.get("unfinished"):
        told = "their last evaluation stands for their end"
        yield f"{unfinished} of {n} rows are of runs that have not finished: {told}."


def summary(fit: "LawFit") -> str:
    """Text: what was fitted, estimates with intervals, criteria and warnings."""
    c, t, s, drawn, ends, y = criteria(fit), fit.table, fit.starts, fit.resampled, fit.interval(), fit.table.names["y"]
    loss = f"Huber, delta = {fit.loss.delta:g}" if fit.loss.robust else fit.loss.name
    method = f"{drawn.kind} bootstrap ({len(drawn.values)} draws, {drawn.units} units)" if drawn else "profile"
    spaces = {"log": f"ln {y}", "linear": y, "loglog": f"ln(-ln {y})", "logit": f"logit {y}"}
    lines = [
        f"{fit.law.name}: {fit.law.source}",
        f"y = {y}; " + ", ".join(f"{k} = {v}" for k, v in t.names.items() if k != "y"),
        f"{len(t)} of {t.record['rows']} rows; loss {loss}, summed, residuals in {spaces[fit.problem.space]}",
        *(f"{of}: {one['rule']} ({one['rows']} rows)" for of in ("exclude", "holdout") for one in t.record[of]),
        f"objective {fit.objective:.9g}, which {s.agree} of {s.tried} starts reached",
        "",
        f"{'':>10} {'value':>12} {'stderr':>10} {f'95% interval ({method})':>28}",
    ]
    for name, value in fit.params.items():
        error, interval = "pinned", ""
        if name in ends:
            error = f"{fit.stderr[name]:.5g}".replace("nan", "-")
            interval = "[{:.5g}, {:.5g}]".format(*ends[name])
        lines.append(f"{name:>10} {value:>12.5g} {error:>10} {interval:>28}".rstrip())
    told = f"ln L {c.log_likelihood:.6g}, AIC {c.aic:.6g}, AICc {c.aicc:.6g}, BIC {c.bic:.6g}"
    lines += ["", f"R² {c.r2:.4f}; {told}", CONVENTION]
    if test := lack_of_fit(fit):
        lines.append(f"lack of fit: {test}")
    found = warnings(fit)
    return "\n".join(lines + [""] * bool(found) + [f"! {text}" for text in found])


def escaped(text: str) -> str:
    """The text in LaTeX."""
    return text.translate(str.maketrans(LATEX))


def symbol(name: str) -> str:
    """A parameter's name in LaTeX: C_mid is C with the subscript mid."""
    stem, _, index = name.partition("_")
    stem = rf"\{stem}" if stem in GREEK else stem
    return rf"${stem}_{{\mathrm{{{index}}}}}$" if index else f"${stem}$"


def latex_number(value: float) -> str:
    """The number in LaTeX, with 3 significant digits."""
    digits, _, power = f"{value:#.3g}".replace("inf", r"\infty").partition("e")
    return rf"${digits.rstrip('.')}\times 10^{{{int(power)}}}$" if power else f"${digits.rstrip('.')}$"


def to_latex(fit: "LawFit", note: str = "") -> str:
    """A booktabs table of the estimates and intervals, and under it a note in LaTeX."""
    ends, lines = fit.interval(), [r"\begin{tabular}{lrr}", r"\toprule"]
    lines += [r"parameter & value & 95\,\% interval \\", r"\midrule"]
    for name, value in fit.params.items():
        shown = f"[{', '.join(map(latex_number, ends[name]))}]" if name in ends else "pinned"
        lines.append(rf"{symbol(name)} & {latex_number(value)} & {shown} \\")
    below = rf"\multicolumn{{3}}{{l}}{{\scriptsize \parbox{{0.9\columnwidth}}{{{note}}}}} \\"
    return "\n".join([*lines, r"\bottomrule", *[below] * bool(note), r"\end{tabular}"])


def to_json(fit: "LawFit", path: str | Path | None = None) -> str:
    """All that decided the fit and all it found as JSON text (null: not finite), also written to `path`."""
    drawn, test = fit.resampled, lack_of_fit(fit)
    counts = drawn and {**drawn._asdict(), "draws": len(drawn.values), "seed": fit.seed}
    noise = np.std(fit.residuals / fit.sizes) * np.sqrt(len(fit.table) / fit.freedom)
    record = {
        "law": fit.law.name, "source": fit.law.source, "params": fit.params, "pinned": fit.law.pinned,
        "stderr": fit.stderr, "interval": {"level": 0.95, **fit.interval()},
        "draws": drawn and drawn.values[:: -(-len(drawn.values) // KEPT)],
        "loss": {"name": fit.loss.name, "delta": fit.loss.delta, "residuals": fit.problem.space},
        "objective": fit.objective, "starts": fit.starts._asdict(),
        "bootstrap": counts and {k: v for k, v in counts.items() if k != "values"},
        "n": len(fit.table), "residual_sd": noise, "columns": fit.table.names,
        "seen": {c: [v.min(), v.max()] for c, v in fit.table.columns.items()}, "left_out": fit.table.record,
        "criteria": criteria(fit)._asdict() | {"convention": CONVENTION},
        "lack_of_fit": test and test._asdict(), "warnings": warnings(fit),
        "versions": {p: version(p) for p in ("rlkit", "numpy", "scipy")},
    }  # fmt: skip
    text = json.dumps(plain(record), indent=2, allow_nan=False)
    if path is not None:
        write_text(Path(path), text + "\n")
    return text
