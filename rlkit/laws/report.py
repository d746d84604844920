"""What a fit says of itself: text and JSON, with its information criteria; and names in LaTeX."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from rlkit.laws.diagnose import lack_of_fit, warnings
from rlkit.laws.estimate import Estimate
from rlkit.results.store import plain

CONVENTION = (
    "AIC = 2k - 2·ln L, BIC = k·ln n - 2·ln L; k counts the law's free parameters, not the "
    "noise scale (as statsmodels), which AICc = 2K - 2·ln L + 2K(K + 1)/(n - K - 1) does, K = k + 1"
)
KEPT = 200  # resamples in a record, from which a plan has its intervals
GREEK = ("alpha", "beta", "gamma", "delta", "tau")
LATEX = {c: f"\\{c}" for c in "%&#$_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"
}  # fmt: skip


class Criteria(NamedTuple):
    """ln likelihood, AIC, AICc (infinite for too few rows) and BIC under the loss's own noise model; R² in residual
    space."""

    log_likelihood: float
    aic: float
    aicc: float
    bic: float
    noise: str
    r2: float


def criteria(fit: Estimate) -> Criteria:
    """Information criteria; comparable between laws fitted to the same rows with the same loss and space.

    ls: normal noise. lad: Laplace. huber: density proportional to exp(-rho/s). All with the scale at its
    maximum-likelihood value, weights as inverse variances.
    """
    log_l, noise = _log_likelihood(fit)
    k, n = len(fit.law.free), len(fit.table)
    y, r, w = fit.observed, fit.residuals, fit.table.weights
    total = float((w * (y - np.average(y, weights=w)) ** 2).sum())
    r2 = 1 - float((w * r * r).sum()) / total if total > 0 else np.nan
    K = k + (fit.loss.name != "binomial")  # with the noise's scale
    aicc = 2 * K - 2 * log_l + 2 * K * (K + 1) / (n - K - 1) if n > K + 1 else np.inf
    return Criteria(log_l, 2 * k - 2 * log_l, aicc, k * np.log(n) - 2 * log_l, noise, r2)


def _log_likelihood(fit: Estimate) -> tuple[float, str]:
    n, loss, w, least = len(fit.table), fit.loss, fit.table.weights, fit.objective
    half_log_w = 0.5 * float(np.log(w).sum())
    if loss.name == "binomial":
        c, wrong = w * fit.table.y, w - w * fit.table.y
        saturated = special.xlogy(c, fit.table.y).sum() + special.xlogy(wrong, 1 - fit.table.y).sum()
        choose = (special.gammaln(w + 1) - special.gammaln(c + 1) - special.gammaln(wrong + 1)).sum()
        return float(saturated + choose - least), "binomial"
    if least <= 0:
        return np.inf, "none (exact fit)"
    if loss.name == "ls":
        return -0.5 * n * (np.log(4 * np.pi * least / n) + 1) + half_log_w, "normal"
    if loss.name == "lad":
        return -n * np.log(2 * least / n) - n + 2 * half_log_w, "Laplace"

    def negative(log_s: float) -> float:
        s = np.exp(log_s)
        core = np.sqrt(2 * np.pi * s) * special.erf(loss.delta / np.sqrt(2 * s))
        tail = 2 * s / loss.delta * np.exp(-(loss.delta**2) / (2 * s))
        return least / s + n * np.log(core + tail)

    guess = np.log(least / n)
    best = optimize.minimize_scalar(negative, bounds=(guess - 8, guess + 8), method="bounded")
    return -float(best.fun), "Huber density"


def summary(fit: Estimate, level: float) -> str:
    """The report that `print(fit.summary())` shows."""
    c, t, s, scheme = criteria(fit), fit.table, fit.starts, fit.scheme
    method, ends, y = "profile", fit.interval(level), t.names["y"]
    if scheme is not None and fit.draws is not None:
        method = f"{scheme.kind} bootstrap ({len(fit.draws)} draws, {scheme.units} units)"
    space = {"log": f"ln {y}", "linear": y, "loglog": f"ln(-ln {y})", "logit": f"logit {y}"}[fit.space]
    left_out = [
        f"{role}: {e['rule']} ({e['rows']} rows)" for role in ("exclude", "holdout") for e in t.record[role]
    ]
    lines = [
        f"{fit.law.name}: {fit.law.source}",
        f"y = {y}; " + ", ".join(f"{k} = {v}" for k, v in t.names.items() if k != "y"),
        f"{len(t)} of {t.record['rows']} rows; loss {fit.loss.label}, summed, residuals in {space}",
        *left_out,
        f"objective {fit.objective:.9g}, which {s.agree} of {s.tried} starts reached; condition {fit.condition:.1e}",
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
        f"R² {c.r2:.4f}; ln L {c.log_likelihood:.6g} ({c.noise} noise), AIC {c.aic:.6g}, AICc {c.aicc:.6g}, "
        f"BIC {c.bic:.6g}",
        CONVENTION,
    ]
    if test := lack_of_fit(fit):
        lines.append(
            f"lack of fit: F = {test.statistic:.3g} of {test.cells} and {test.replicates} degrees of freedom, p = "
            f"{test.p:.2g}"
        )
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


def record(fit: Estimate, level: float) -> dict[str, Any]:
    """Everything that decided the fit and everything it found, as JSON values; numbers that are not finite are None."""
    drawn, test = fit.resampled, lack_of_fit(fit)
    bootstrap = drawn and {
        **asdict(drawn.scheme), "draws": len(drawn.values), "lost": drawn.lost, "seed": fit.plan.seed
    }  # fmt: skip
    noise = np.std(fit.residuals / fit.sizes) * np.sqrt(len(fit.table) / fit.freedom)
    return plain(
        {
            "law": fit.law.name,
            "source": fit.law.source,
            "params": fit.params,
            "pinned": fit.law.pinned,
            "stderr": fit.stderr,
            "interval": {"level": level, **fit.interval(level)},
            "draws": drawn and drawn.values[:: -(-len(drawn.values) // KEPT)],
            "loss": {"name": fit.loss.name, "delta": fit.loss.delta, "residuals": fit.space},
            "objective": fit.objective,
            "condition": fit.condition,
            "starts": fit.starts._asdict(),
            "bootstrap": bootstrap,
            "n": len(fit.table),
            "residual_sd": noise,
            "columns": fit.table.names,
            "seen": {c: [v.min(), v.max()] for c, v in fit.table.columns.items()},
            "left_out": fit.table.record,
            "criteria": criteria(fit)._asdict() | {"convention": CONVENTION},
            "lack_of_fit": test and test._asdict(),
            "warnings": warnings(fit),
            "versions": {p: version(p) for p in ("rlkit", "numpy", "scipy")},
        }
    )
