"""What a fit says of itself: text and JSON, with its information criteria; and names in LaTeX."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from rlkit.files import write_text
from rlkit.laws.diagnose import lack_of_fit, warnings
from rlkit.laws.estimate import Estimate
from rlkit.results.store import plain

CONVENTION = (
    "AIC = 2k - 2·ln L, BIC = k·ln n - 2·ln L, k free parameters of the law; AICc counts the noise, too"
)
KEPT = 200  # resamples in a record, from which a plan has its intervals
GREEK = ("alpha", "beta", "gamma", "delta", "tau")
LATEX = {c: f"\\{c}" for c in "%&#$_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"
}  # fmt: skip


class Criteria(NamedTuple):
    """ln likelihood, AIC, AICc (infinite for too few rows) and BIC; R² in residual space."""

    log_likelihood: float
    aic: float
    aicc: float
    bic: float
    r2: float


def criteria(fit: Estimate) -> Criteria:
    """Information criteria, comparable between laws fitted to the same rows with the same loss and space: of normal
    noise for ls, of the binomial, and NaN for robust losses, which have no likelihood of their own."""
    k, n, least, w = len(fit.law.free), len(fit.table), fit.objective, fit.table.weights
    y, r, log_l = fit.observed, fit.residuals, np.nan
    if fit.loss.name == "binomial":
        c, wrong = w * y, w - w * y
        choose = (special.gammaln(w + 1) - special.gammaln(c + 1) - special.gammaln(wrong + 1)).sum()
        log_l = float((special.xlogy(c, y) + special.xlogy(wrong, 1 - y)).sum() + choose - least)
    elif fit.loss.name == "ls":
        with np.errstate(divide="ignore"):  # an exact fit
            log_l = float(0.5 * np.log(w).sum() - 0.5 * n * (np.log(4 * np.pi * least / n) + 1))
    total = float((w * (y - np.average(y, weights=w)) ** 2).sum())
    r2 = 1 - float((w * r * r).sum()) / total if total > 0 else np.nan
    K = k + (fit.loss.name != "binomial")  # with the noise's scale
    aicc = 2 * K - 2 * log_l + 2 * K * (K + 1) / (n - K - 1) if n > K + 1 else np.inf
    return Criteria(log_l, 2 * k - 2 * log_l, aicc, k * np.log(n) - 2 * log_l, r2)


def summary(fit: Estimate, level: float = 0.95) -> str:
    """Text: what was fitted, estimates with intervals, criteria and warnings."""
    c, t, s, scheme = criteria(fit), fit.table, fit.starts, fit.scheme
    method, ends, y = "profile", fit.interval(level), t.names["y"]
    if scheme is not None and fit.draws is not None:
        method = f"{scheme.kind} bootstrap ({len(fit.draws)} draws, {scheme.units} units)"
    space = {"log": f"ln {y}", "linear": y, "loglog": f"ln(-ln {y})", "logit": f"logit {y}"}[fit.space]
    left = [(role, rule) for role in ("exclude", "holdout") for rule in t.record[role]]
    lines = [
        f"{fit.law.name}: {fit.law.source}",
        f"y = {y}; " + ", ".join(f"{k} = {v}" for k, v in t.names.items() if k != "y"),
        f"{len(t)} of {t.record['rows']} rows; loss {fit.loss.label}, summed, residuals in {space}",
        *(f"{role}: {rule['rule']} ({rule['rows']} rows)" for role, rule in left),
        f"objective {fit.objective:.9g}, which {s.agree} of {s.tried} starts reached",
        "",
        f"{'':>10} {'value':>12} {'stderr':>10} {f'{level:.0%} interval ({method})':>28}",
    ]
    for name, value in fit.params.items():
        error, interval = "pinned", ""
        if name in ends:
            error, interval = _number(fit.stderr[name]), f"[{', '.join(map(_number, ends[name]))}]"
        lines.append(f"{name:>10} {_number(value):>12} {error:>10} {interval:>28}".rstrip())
    lines += [
        "",
        f"R² {c.r2:.4f}; ln L {c.log_likelihood:.6g}, AIC {c.aic:.6g}, AICc {c.aicc:.6g}, BIC {c.bic:.6g}",
        CONVENTION,
    ]
    if test := lack_of_fit(fit):
        freedom = f"{test.cells} and {test.replicates} degrees of freedom"
        lines.append(f"lack of fit: F = {test.statistic:.3g} of {freedom}, p = {test.p:.2g}")
    found = warnings(fit)
    return "\n".join(lines + ([""] if found else []) + [f"! {text}" for text in found])


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.5g}"


def escaped(text: str) -> str:
    """The text in LaTeX."""
    return text.translate(str.maketrans(LATEX))


def symbol(name: str) -> str:
    """A parameter's name in LaTeX: C_mid is C with the subscript mid."""
    stem, _, index = name.partition("_")
    stem = rf"\{stem}" if stem in GREEK else stem
    return rf"${stem}_{{\mathrm{{{index}}}}}$" if index else f"${stem}$"


def to_latex(fit: Estimate, level: float = 0.95, note: str = "") -> str:
    """A booktabs table of the estimates and intervals, and under it a note in LaTeX."""
    ends, lines = fit.interval(level), [r"\begin{tabular}{lrr}", r"\toprule"]
    lines += [rf"parameter & value & {level * 100:g}\,\% interval \\", r"\midrule"]
    for name, value in fit.params.items():
        shown = f"[{', '.join(map(latex_number, ends[name]))}]" if name in ends else "pinned"
        lines.append(rf"{symbol(name)} & {latex_number(value)} & {shown} \\")
    below = rf"\multicolumn{{3}}{{l}}{{\scriptsize \parbox{{0.9\columnwidth}}{{{note}}}}} \\"
    return "\n".join([*lines, r"\bottomrule", *[below] * bool(note), r"\end{tabular}"])


def latex_number(value: float) -> str:
    """The number in LaTeX, with 3 significant digits."""
    digits, _, power = f"{value:#.3g}".replace("inf", r"\infty").partition("e")
    return rf"${digits.rstrip('.')}\times 10^{{{int(power)}}}$" if power else f"${digits.rstrip('.')}$"


def to_json(fit: Estimate, path: str | Path | None = None, level: float = 0.95) -> str:
    """Everything that decided the fit and everything it found as JSON text (numbers that are not finite are null), also
    written to `path`."""
    drawn, test = fit.resampled, lack_of_fit(fit)
    counts = drawn and {"draws": len(drawn.values), "lost": drawn.lost, "seed": fit.plan.seed}
    noise = np.std(fit.residuals / fit.sizes) * np.sqrt(len(fit.table) / fit.freedom)
    record = {
        "law": fit.law.name, "source": fit.law.source, "params": fit.params, "pinned": fit.law.pinned,
        "stderr": fit.stderr, "interval": {"level": level, **fit.interval(level)},
        "draws": drawn and drawn.values[:: -(-len(drawn.values) // KEPT)],
        "loss": {"name": fit.loss.name, "delta": fit.loss.delta, "residuals": fit.space},
        "objective": fit.objective, "starts": fit.starts._asdict(),
        "bootstrap": drawn and {**asdict(drawn.scheme), **(counts or {})},
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
