"""pass@k without bias, and intervals that resample prompts instead of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from rlkit.errors import UserError


class Interval(NamedTuple):
    """An estimate, the ends of its interval, and the number of prompts behind it."""

    value: float
    low: float
    high: float
    prompts: int


def pass_at_k(n: Any, c: Any, k: Any, *, undefined: Literal["refuse", "nan"] = "refuse") -> Any:
    """The chance that at least one of k samples is correct, from c correct among n: 1 - C(n-c, k)/C(n, k).

    Unbiased when the n samples are independent and n was fixed beforehand (Chen et al. 2021, arXiv
    2107.03374); stopping at the first success biases it. It is a number of one problem: average over problems
    afterwards.

    Args:
        n, c, k: integers or integer arrays that broadcast.
        undefined: what to do where k > n: refuse, or give NaN there.

    Raises:
        UserError: k > n (pass@k is not defined there), c > n, k < 1, negative or fractional counts.
    """
    from scipy.special import gammaln

    scalar = np.ndim(n) == np.ndim(c) == np.ndim(k) == 0
    n, c, k = np.broadcast_arrays(*(_counts(v, name) for v, name in ((n, "n"), (c, "c"), (k, "k"))))
    _refuse(c > n, f"c (correct) exceeds n (samples), e.g. {_first(c > n, c, n)}")
    _refuse(k < 1, "k is below 1")
    short = k > n
    if undefined == "refuse":
        _refuse(short, f"pass@k needs k samples or more, but k exceeds n (k, n = {_first(short, k, n)})")
    wrong = n - c
    possible = ~short & (k <= wrong)
    kk, m = np.where(possible, k, 0), np.where(possible, wrong, 1)
    all_wrong = np.exp(gammaln(m + 1) - gammaln(m - kk + 1) + gammaln(n - kk + 1) - gammaln(n + 1))
    value = np.where(short, np.nan, np.where(possible, 1 - all_wrong, 1.0))
    value = np.where(
        ~short & (c == 0), 0.0, np.where(~short & (k == 1) & (n > 0), c / np.maximum(n, 1), value)
    )
    return float(value) if scalar else value


def _counts(value: Any, name: str) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    bad = ~np.isfinite(array) | (array < 0) | (array != np.floor(array))
    _refuse(bad, f"{name} must be whole numbers from 0")
    return array


def _refuse(bad: np.ndarray, what: str) -> None:
    if np.any(bad):
        raise UserError(f"{what}; {int(np.sum(bad))} of {np.size(bad)} values.")


def _first(bad: np.ndarray, *arrays: np.ndarray) -> str:
    i = np.flatnonzero(bad.ravel())
    return ", ".join(f"{a.ravel()[i[0]]:g}" for a in arrays) if len(i) else ""


def bootstrap_mean(
    values: Sequence[float] | np.ndarray,
    prompts: Sequence[Any] | np.ndarray | None = None,
    *,
    rng: np.random.Generator,
    draws: int = 10_000,
    level: float = 0.95,
    average: Literal["macro", "micro"] = "macro",
) -> Interval:
    """The mean of per-sample outcomes with a percentile interval from resampling prompts.

    Samples of one prompt are alike, so prompts are drawn, each with all its samples. Randomness comes from
    `rng` and from nothing else.

    Args:
        values: one number a sample; missing ones (ungraded samples) are refused.
        prompts: what identifies the prompt of each sample; None when there is one sample a prompt.
        average: "macro" is the mean over prompts of each prompt's mean; "micro" the mean over samples. They
            differ where prompts have different numbers of samples.

    Raises:
        UserError: no values, missing values, lengths that differ.
    """
    x = np.asarray(values, dtype=float)
    if not x.size:
        raise UserError("There are no values to take the mean of: no sample was graded.")
    if not np.all(np.isfinite(x)):
        raise UserError(
            f"{int((~np.isfinite(x)).sum())} of {x.size} values are missing: leave ungraded samples out "
            "and count them."
        )
    codes = np.arange(x.size) if prompts is None else pd.factorize(np.asarray(prompts))[0]
    if len(codes) != x.size:
        raise UserError(f"{x.size} values but {len(codes)} prompts: give one prompt a value.")
    size = np.bincount(codes).astype(float)
    total = np.bincount(codes, x)
    if average == "macro":
        total, size = total / size, np.ones_like(size)
    numerator, denominator = resample_sums(np.column_stack([total, size]), rng, draws).T
    low, high = np.quantile(numerator / denominator, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(total.sum() / size.sum()), float(low), float(high), len(size))


def pass_rate(
    correct: Sequence[float] | np.ndarray,
    prompts: Sequence[Any] | np.ndarray | None = None,
    level: float = 0.95,
    average: Literal["macro", "micro"] = "macro",
) -> Interval:
    """The share of right samples with its interval, as a run, a table and a figure give it.

    The interval is the exact binomial one (Clopper-Pearson) of as many trials as have the variance that is seen between
    prompts (Korn and Graubard 1998); where all samples are right, or all wrong, of as many as prompts. It is never of
    no width, and no share has an end below that of none right.

    Args:
        correct: one share a sample, 0 to 1; missing ones (ungraded samples) are refused.
        prompts, average: as of `bootstrap_mean`.

    Raises:
        UserError: no values, or missing ones.
    """
    from scipy.stats import beta

    x = np.asarray(correct, dtype=float)
    if not x.size or not np.all(np.isfinite(x)):
        raise UserError(
            f"{int((~np.isfinite(x)).sum())} of {x.size} values are missing: leave ungraded samples out and count them."
        )
    codes = np.arange(x.size) if prompts is None else pd.factorize(np.asarray(prompts), sort=True)[0]
    size = np.bincount(codes).astype(float)
    total, count = np.bincount(codes, x), len(size)
    if average == "macro":
        total, size = total / size, np.ones(count)
    p = float(total.sum() / size.sum())
    # With a prompt that is all right and one that is all wrong added, there is variance where samples are all alike.
    total, size = np.append(total, [0.0, size.mean()]), np.append(size, [size.mean()] * 2)
    q = total.sum() / size.sum()
    trials = max(float(q * (1 - q) * size.sum() ** 2 / ((total - q * size) ** 2).sum()) - 2, 1.0)
    a, right, wrong = (1 - level) / 2, p * trials, (1 - p) * trials
    low = 0.0 if p <= 0 else float(beta.ppf(a, right, wrong + 1))
    high = 1.0 if p >= 1 else float(beta.ppf(1 - a, right + 1, wrong))
    reach = 1 - a ** (1 / count)  # the end where no prompt is right
    return Interval(p, min(low, 1 - reach), max(high, reach), count)


def resample_sums(rows: np.ndarray, rng: np.random.Generator, draws: int) -> np.ndarray:
    """(draws, m) sums over the rows (P, m) of each bootstrap resample of P rows."""
    count, parts = len(rows), []
    for first in range(0, draws, size := max(1, 2_000_000 // count)):  # bounds the memory of many prompts
        part = min(size, draws - first)
        chosen = rng.integers(count, size=(part, count)) + count * np.arange(part)[:, None]
        parts.append(np.bincount(chosen.ravel(), minlength=part * count).reshape(part, count) @ rows)
    return np.concatenate(parts)


def counts(evals: pd.DataFrame, by: str = "task_id") -> pd.DataFrame:
    """n (graded samples), c (correct ones) and ungraded of each problem, from one row a sample.

    Samples of different steps or runs must be selected beforehand. `evals` has a nullable column `correct`;
    samples that could not be graded are in neither n nor c.
    """
    table = pd.DataFrame(
        {by: evals[by], "n": evals["correct"].notna(), "c": evals["correct"].fillna(False).astype(bool)}
    )
    table["ungraded"] = ~table["n"]
    return table.groupby(by, sort=True).sum().astype(int).reset_index()
