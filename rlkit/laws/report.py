"""What a fit says of itself: text, LaTeX and JSON, with its information criteria."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from rlkit.files import write_text
from rlkit.laws.diagnose import findings, in_words, lack_of_fit, warnings
from rlkit.laws.estimate import Estimate

CONVENTION = (
    "AIC = 2k - 2·ln L, BIC = k·ln n - 2·ln L; k counts the law's free parameters, not the "
    "noise scale (as statsmodels), which AICc = 2K - 2·ln L + 2K(K + 1)/(n - K - 1) does, K = k + 1"
)


_GREEK = ("alpha", "beta", "gamma", "delta", "tau")


class Criteria(NamedTuple):
    """ln likelihood, AIC, AICc (infinite for too few rows) and BIC under the loss's own noise model; R² in residual
    space."""

    log_likelihood: float
    aic: float
    aicc: float
    bic: float
    noise: str
    r2: float
    r2_within: float | None


def criteria(fit: Estimate) -> Criteria:
    """Information criteria; comparable between laws fitted to the same rows with the same loss and space.

    ls: normal noise. lad, quantile: (asymmetric) Laplace. huber: density proportional to exp(-rho/s). All with the
    scale at its maximum-likelihood value, weights as inverse variances.
    """
    log_l, noise = _log_likelihood(fit)
    k, n = int(fit.free.sum()), len(fit.table)
    y, r, w = fit.observed, fit.residuals, fit.table.weights
    total = float((w * (y - np.average(y, weights=w)) ** 2).sum())
    r2 = 1 - float((w * r * r).sum()) / total if total > 0 and not fit.law.target else np.nan
    K = k + (fit.loss.name not in ("likelihood", "binomial"))  # with the noise's scale
    aicc = 2 * K - 2 * log_l + 2 * K * (K + 1) / (n - K - 1) if n > K + 1 else np.inf
    return Criteria(log_l, 2 * k - 2 * log_l, aicc, k * np.log(n) - 2 * log_l, noise, r2, _within(fit))


def _within(fit: Estimate) -> float | None:
    """R² about the means of groups: rows that share the law's first column, or the clusters of a one-column
    law."""
    if fit.law.target:
        return None
    first = fit.table.columns[fit.law.columns[0]]
    groups = np.unique(first, return_inverse=True)[1] if len(fit.law.columns) > 1 else fit.table.cluster
    if groups is None or len(np.unique(groups)) == len(groups):
        return None
    w, y = fit.table.weights, fit.observed
    mean = np.bincount(groups, w * y) / np.maximum(np.bincount(groups, w), 1e-300)
    total = float((w * (y - mean[groups]) ** 2).sum())
    return 1 - float((w * fit.residuals**2).sum()) / total if total > 0 else None


def _log_likelihood(fit: Estimate) -> tuple[float, str]:
    n, loss, w = len(fit.table), fit.loss, fit.table.weights
    half_log_w = 0.5 * float(np.log(w).sum())
    if loss.name == "likelihood":
        return -fit.objective, "the law's own"
    if loss.name == "binomial":
        y = fit.table.y
        c = w * y
        saturated = special.xlogy(c, y).sum() + special.xlogy(w - c, 1 - y).sum()
        choose = (special.gammaln(w + 1) - special.gammaln(c + 1) - special.gammaln(w - c + 1)).sum()
        return float(saturated + choose - fit.objective), "binomial"
    if fit.objective <= 0:
        return np.inf, "none (exact fit)"
    if loss.name == "ls":
        rss = 2 * fit.objective
        return -0.5 * n * (np.log(2 * np.pi * rss / n) + 1) + half_log_w, "normal"
    if loss.name in ("lad", "quantile"):
        check = fit.objective / (2 if loss.name == "lad" else 1)
        return n * np.log(loss.tau * (1 - loss.tau) / (check / n)) - n + 2 * half_log_w, "Laplace"

    def negative(log_s: float) -> float:
        s = np.exp(log_s)
        core = np.sqrt(2 * np.pi * s) * special.erf(loss.delta / np.sqrt(2 * s))
        tail = 2 * s / loss.delta * np.exp(-(loss.delta**2) / (2 * s))
        return fit.objective / s + n * np.log(core + tail)

    guess = np.log(fit.objective / n)
    best = optimize.minimize_scalar(negative, bounds=(guess - 8, guess + 8), method="bounded")
    return -float(best.fun), "Huber density"


def _number(value: float) -> str:
    if value is None or np.isnan(value):
        return "-"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.5g}"


def summary(fit: Estimate, level: float) -> str:
    """The report that `print(fit.summary())` shows."""
    c, t, s = criteria(fit), fit.table, fit.starts
    method = (
        "profile"
        if fit.scheme is None
        else (
            f"{fit.scheme.kind} bootstrap ({0 if fit.draws is None else len(fit.draws)} draws, "
            f"{fit.scheme.units} units)"
        )
    )
    lines = [
        f"{fit.law.name}: {fit.law.source}",
        f"y = {t.names['y']}; " + ", ".join(f"{k} = {v}" for k, v in t.names.items() if k != "y"),
        f"{len(t)} of {t.record['rows']} rows; loss {fit.loss.label}, summed, residuals in {_space(fit)}",
    ]
    for role in ("exclude", "holdout"):
        lines += [f"{role}: {e['rule']} ({e['rows']} rows)" for e in t.record[role]]  # type: ignore[union-attr]
    lines += [
        f"objective {fit.objective:.9g}; largest relative slope {fit.gradient:.1e}; condition "
        f"{fit.condition:.1e}",
        f"starts: {s.agree} of {s.tried} within 1e-6 of the best objective (worst is {s.worst:.3g} times it)",
        "",
        f"{'':>10} {'value':>12} {'stderr':>10} {f'{level:.0%} interval ({method})':>28}   spread over "
        "agreeing starts",
    ]
    ends = fit.interval(level)
    for name, value in fit.params.items():
        if name in fit.law.pinned:
            lines.append(f"{name:>10} {_number(value):>12} {'pinned':>10}")
            continue
        low, high = ends[name]
        spread = s.spread[name]
        lines.append(
            f"{name:>10} {_number(value):>12} {_number(fit.stderr[name]):>10} "
            f"{f'[{_number(low)}, {_number(high)}]':>28}   {_number(spread[1] - spread[0])}"
        )
    lines += ["", *_correlations(fit)]
    within = "" if c.r2_within is None else f", within groups {c.r2_within:.4f}"
    lines += [
        f"R² {c.r2:.4f}{within}; ln L {c.log_likelihood:.6g} ({c.noise} noise), AIC {c.aic:.6g}, AICc {c.aicc:.6g}, "
        f"BIC {c.bic:.6g}",
        CONVENTION,
    ]
    if test := lack_of_fit(fit):
        lines.append(
            f"lack of fit: F = {test.statistic:.3g} of {test.cells} and {test.replicates} degrees of freedom, p = "
            f"{test.p:.2g}"
        )
    found = warnings(fit)
    lines += ["", *(f"! {text}" for text in found)] if found else []
    return "\n".join(lines)


def _space(fit: Estimate) -> str:
    y = fit.table.names["y"]
    return {"log": f"ln {y}", "linear": y, "loglog": f"ln(-ln {y})", "logit": f"logit {y}"}[fit.space]


def _correlations(fit: Estimate) -> list[str]:
    r, names = fit.correlation, fit.law.parameters
    free = np.flatnonzero(fit.free)
    pairs = [(abs(r[i, j]), f"{names[i]}, {names[j]} {r[i, j]:+.3f}") for i in free for j in free if j < i]
    strong = [text for size, text in sorted(pairs, reverse=True) if size > 0.1]
    return [f"correlations above 0.1: {'; '.join(strong)}"] if strong else []


_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "%&#$_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
    }
)


def escaped(text: str) -> str:
    """The text in LaTeX."""
    return text.translate(_LATEX)


def to_latex(
    fit: Estimate, level: float, notes: Sequence[str] = (), words: Mapping[str, str | None] | None = None
) -> str:
    """A table environment's tabular, numbers with 3 significant digits, and below it in small type the notes and what
    the warnings have found, with columns as `words` has them; needs booktabs."""
    columns = ", ".join(fit.table.names[c] for c in fit.law.columns if c in fit.table.names)
    law = fit.law.name.replace("_", " ")
    title = f"{law} law: {fit.table.names['y']} against {columns}".replace("_", r"\_")
    rows = [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        rf"\multicolumn{{3}}{{l}}{{\footnotesize {title}}} \\",
        r"\midrule",
        rf"parameter & value & {level * 100:g}\,\% interval \\",
        r"\midrule",
    ]
    ends = fit.interval(level)
    for name, value in fit.params.items():
        interval = [_latex_number(end) for end in ends.get(name, ())]
        shown = "pinned" if name in fit.law.pinned else f"[{', '.join(interval)}]"
        rows.append(rf"{symbol(name)} & {_latex_number(value)} & {shown} \\")
    rows.append(r"\bottomrule")
    for text in (*notes, *(in_words(text, words or {}) for text in findings(warnings(fit)))):
        lines = textwrap.wrap(text, 52)  # narrower than any venue's column
        rows += [rf"\multicolumn{{3}}{{l}}{{\scriptsize {escaped(line)}}} \\" for line in lines]
    return "\n".join([*rows, r"\end{tabular}"])


def symbol(name: str) -> str:
    """A parameter's name in LaTeX: alpha_N is α with the subscript N."""
    stem, _, index = name.partition("_")
    stem = rf"\{stem}" if stem in _GREEK else stem
    return rf"${stem}_{{\mathrm{{{index}}}}}$" if index else f"${stem}$"


def _latex_number(value: float) -> str:
    if np.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    digits, _, power = f"{value:#.3g}".partition("e")
    digits = digits.rstrip(".")
    return rf"${digits}\times 10^{{{int(power)}}}$" if power else f"${digits}$"


def record(fit: Estimate, level: float) -> dict[str, Any]:
    """Everything that decided the fit and everything it found, as JSON values; infinite ends are None."""
    c, s = criteria(fit), fit.starts

    def plain(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    ends = fit.interval(level)
    return {
        "law": fit.law.name,
        "source": fit.law.source,
        "params": fit.params,
        "pinned": dict(fit.law.pinned),
        "stderr": {k: plain(v) for k, v in fit.stderr.items()},
        "interval": {"level": level, **{k: [plain(a), plain(b)] for k, (a, b) in ends.items()}},
        "loss": {"name": fit.loss.name, "delta": fit.loss.delta, "tau": fit.loss.tau, "residuals": fit.space},
        "objective": fit.objective,
        "gradient": plain(fit.gradient),
        "condition": plain(fit.condition),
        "starts": {
            "tried": s.tried,
            "agree": s.agree,
            "worst": plain(s.worst),
            "spread": {k: list(v) for k, v in s.spread.items()},
        },
        "bootstrap": None
        if fit.scheme is None
        else {
            **vars(fit.scheme),
            "draws": 0 if fit.draws is None else len(fit.draws),
            "lost": fit.lost,
            "seed": fit.plan.seed,
        },
        "n": len(fit.table),
        "residual_sd": plain(
            float(np.std(fit.residuals / fit.sizes)) * np.sqrt(len(fit.table) / fit.freedom)
        ),
        "columns": fit.table.names,
        "seen": {c: [float(v.min()), float(v.max())] for c, v in fit.table.columns.items()},
        "left_out": fit.table.record,
        "criteria": {k: plain(v) if isinstance(v, float) else v for k, v in c._asdict().items()}
        | {"convention": CONVENTION},
        "lack_of_fit": None if (test := lack_of_fit(fit)) is None else test._asdict(),
        "warnings": warnings(fit),
        "versions": {p: version(p) for p in ("rlkit", "numpy", "scipy")},
    }


def to_json(fit: Estimate, path: str | Path | None, level: float) -> str:
    return write(record(fit, level), path)


def write(content: dict[str, Any], path: str | Path | None) -> str:
    """JSON text; written through a temporary file in the same folder when there is a path."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if path is not None:
        write_text(Path(path), text + "\n")
    return text
