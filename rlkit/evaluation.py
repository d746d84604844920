"""Evaluation: how good a policy is on tasks that it was not trained on.

Every sample is one row, aggregates come later: pass@k without bias, and intervals that resample prompts instead of
samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln
from scipy.stats import beta

from rlkit.config import Evaluation
from rlkit.environments.rollout import Limits
from rlkit.errors import UserError
from rlkit.results.store import RunStore, eval_row
from rlkit.seeds import derive
from rlkit.types import Sampler, Task

Average = Literal["macro", "micro"]


class Interval(NamedTuple):
    """An estimate, the ends of its interval, and the number of prompts behind it."""

    value: float
    low: float
    high: float
    prompts: int


def pass_at_k(n: Any, c: Any, k: Any) -> Any:
    """The chance that at least one of k samples is correct, from c correct among n: 1 - C(n-c, k)/C(n, k).

    Unbiased when the n samples are independent and n was fixed beforehand (Chen et al. 2021, arXiv 2107.03374);
    stopping at the first success biases it. It is a number of one problem: average over problems afterwards. n, c and k
    are integers or integer arrays that broadcast. Raises UserError: k > n (pass@k is not defined there), c > n, k < 1,
    negative or fractional counts."""
    n, c, k = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (n, c, k)))
    for name, value in (("n", n), ("c", c), ("k", k)):
        whole = np.isfinite(value) & (value >= 0) & (value == np.floor(value))
        _refuse(~whole, f"{name} must be whole numbers from 0", value)
    _refuse(c > n, "c (correct) exceeds n (samples)", c, n)
    _refuse(k < 1, "k is below 1", k)
    _refuse(k > n, "pass@k needs k samples or more, but k exceeds n", k, n)
    possible = k <= n - c
    kk, wrong = np.where(possible, k, 0), np.where(possible, n - c, 1)
    all_wrong = np.exp(gammaln(wrong + 1) - gammaln(wrong - kk + 1) + gammaln(n - kk + 1) - gammaln(n + 1))
    # the first two to the last bit
    value = np.select([c == 0, k == 1, possible], [0.0, c / n, 1 - all_wrong], 1.0)
    return value if value.ndim else float(value)


def _refuse(bad: np.ndarray, what: str, *values: np.ndarray) -> None:
    if bad.any():
        first = ", ".join(f"{value[bad][0]:g}" for value in values)
        raise UserError(f"{what} (first: {first}); {bad.sum()} of {bad.size} values.")


def bootstrap_mean(
    values: Sequence[float] | np.ndarray, prompts: Sequence[Any] | np.ndarray | None = None, *,
    rng: np.random.Generator, draws: int = 10_000, average: Average = "macro",
) -> Interval:  # fmt: skip
    """The mean of per-sample outcomes with a 95 % percentile interval from resampling prompts: samples of one prompt
    are alike, so prompts are drawn, each with all its samples. `values`: one a sample; `prompts`: what identifies the
    prompt of each (None: one sample a prompt); average "macro" is the mean over prompts of each prompt's mean, "micro"
    that over samples. Raises UserError: no values, missing ones (ungraded samples), lengths that differ."""
    total, size = _by_prompt(values, prompts, average, sort=False)
    numerator, denominator = resample_sums(np.column_stack([total, size]), rng, draws).T
    low, high = np.quantile(numerator / denominator, [0.025, 0.975])
    return Interval(float(total.sum() / size.sum()), float(low), float(high), len(size))


def pass_rate(
    correct: Sequence[float] | np.ndarray, prompts: Sequence[Any] | np.ndarray | None = None, average: Average = "macro"
) -> Interval:
    """The share of right samples with its interval of 95 %, as a run, a table and a figure give it.

    The interval is the exact binomial one (Clopper-Pearson) of as many trials as have the variance that is seen between
    prompts (Korn and Graubard 1998); where all samples are right, or all wrong, of as many as prompts. It is never of
    no width, and no share has an end below that of none right. `correct` is one share a sample, 0 to 1; other arguments
    and errors are those of `bootstrap_mean`."""
    total, size = _by_prompt(correct, prompts, average, sort=True)
    p, count = float(total.sum() / size.sum()), len(size)
    # With a prompt that is all right and one that is all wrong added, there is variance where samples are all alike.
    total, size = np.append(total, [0.0, size.mean()]), np.append(size, [size.mean()] * 2)
    q = total.sum() / size.sum()
    trials = max(float(q * (1 - q) * size.sum() ** 2 / ((total - q * size) ** 2).sum()) - 2, 1.0)
    a, right, wrong = (1 - 0.95) / 2, p * trials, (1 - p) * trials
    low = 0.0 if p <= 0 else float(beta.ppf(a, right, wrong + 1))
    high = 1.0 if p >= 1 else float(beta.ppf(1 - a, right + 1, wrong))
    reach = 1 - a ** (1 / count)  # the end where no prompt is right
    return Interval(p, min(low, 1 - reach), max(high, reach), count)


def _by_prompt(values: Any, prompts: Any, average: Average, sort: bool) -> tuple[np.ndarray, np.ndarray]:
    """(prompts,) sums of the values and (prompts,) weights, in the order of the prompts' first samples, or sorted."""
    x = np.asarray(values, dtype=float)
    if not x.size:
        raise UserError("There are no values to take the mean of: no sample was graded.")
    if missing := int((~np.isfinite(x)).sum()):
        raise UserError(f"{missing} of {x.size} values are missing: leave out and count ungraded samples.")
    codes = np.arange(x.size) if prompts is None else pd.factorize(np.asarray(prompts), sort=sort)[0]
    if len(codes) != x.size:
        raise UserError(f"{x.size} values but {len(codes)} prompts: give one prompt a value.")
    size, total = np.bincount(codes).astype(float), np.bincount(codes, x)
    return (total / size, np.ones_like(size)) if average == "macro" else (total, size)


def resample_sums(rows: np.ndarray, rng: np.random.Generator, draws: int) -> np.ndarray:
    """(draws, m) sums over the rows (P, m) of each bootstrap resample of P rows."""
    count, parts = len(rows), []
    for first in range(0, draws, size := max(1, 2_000_000 // count)):  # bounds the memory of many prompts
        part = min(size, draws - first)
        chosen = rng.integers(count, size=(part, count)) + count * np.arange(part)[:, None]
        parts.append(np.bincount(chosen.ravel(), minlength=part * count).reshape(part, count) @ rows)
    return np.concatenate(parts)


@dataclass(frozen=True)
class EvaluationResult:
    """Rows, one a sample (of a run with suites with a column suite, None for held-out tasks), and their summary:
    eval/pass@k over all held-out tasks, by data_source and by suite, shares that could not be graded, response lengths;
    and pass@1 with its interval, None where nothing could be graded."""

    rows: list[dict[str, Any]]
    metrics: dict[str, float]
    pass_at_1: Interval | None

    def keep(self, store: RunStore, step: int) -> None:
        """Write it as that of a step: the rows, and pass@1 in run.json."""
        store.log_evals(step, self.rows)
        if self.pass_at_1:
            summary = dict(zip(("pass@1", "low", "high", "tasks"), self.pass_at_1, strict=True))
            store.update(evaluations=store.info.get("evaluations", {}) | {str(step): summary})


def measure(
    policy: Any, sampler: Sampler, router: Any, tasks: Sequence[Task], section: Evaluation, *, limits: Limits,
    seed: int, suites: Mapping[str, Sequence[Task]] = MappingProxyType({}),
) -> EvaluationResult:  # fmt: skip
    """`evaluate` with everything at hand: what a run calls at each evaluation step. The rows of `suites`, by name,
    have a column `suite`, and are in no number of the held-out tasks."""
    from rlkit.samplers.rollouts import grade, sample

    rows: list[dict[str, Any]] = []
    options = {"router": router, "n": section.n, "limits": limits, "prompt_limit": 1_000_000}
    for suite, chosen in [(None, tasks), *suites.items()]:
        stream = derive("eval", seed) if suite is None else derive("eval", seed, suite)
        rollouts = sample(chosen, sampler, policy, seed=stream, **options)
        grade(rollouts, router, policy)
        apart = {"suite": suite} if suites else {}
        for i, r in enumerate(rollouts):
            assert r.reward is not None  # graded above
            answer = {  # the columns of rlkit.results.store.ANSWER
                "correct": r.reward.correct, "value": r.reward.value, "error": r.reward.error,
                "tokens": int(r.mask.sum()), "finish_reason": r.finish_reason,
                "response": policy.decode(r.response_ids),
            }  # fmt: skip
            rows.append(eval_row(r.task, i % section.n, answer) | apart)
    return summarise(rows, section.pass_at)


def summarise(rows: list[dict[str, Any]], pass_at: Sequence[int]) -> EvaluationResult:
    """Metrics of evaluation rows. Samples that could not be graded are in no pass rate; a task left with
    fewer than k graded samples is in no pass@k."""
    held_out, suites = [r for r in rows if r.get("suite") is None], _groups(rows, "suite")
    metrics = {
        "eval/response_length/mean": float(np.mean([r["tokens"] for r in held_out])),
        "eval/response_length/clip_ratio": float(np.mean([r["finish_reason"] == "length" for r in held_out])),
    }
    for suffix, part in {"": held_out, **suites}.items():
        metrics[f"eval/error_rate{suffix}"] = float(np.mean([r["error"] is not None for r in part]))
    for suffix, part in {"": held_out, **_groups(held_out, "data_source"), **suites}.items():
        graded = Counter(r["task_id"] for r in part if r["correct"] is not None)
        right = Counter(r["task_id"] for r in part if r["correct"])
        for k in pass_at:
            rates = [pass_at_k(n, right[task], k) for task, n in graded.items() if n >= k]
            metrics[f"eval/pass@{k}{suffix}"] = float(np.mean(rates)) if rates else float("nan")
    known = [r for r in held_out if r["correct"] is not None]
    interval = pass_rate([r["correct"] for r in known], [r["task_id"] for r in known]) if known else None
    return EvaluationResult(rows, metrics, interval)


def _groups(rows: Sequence[dict[str, Any]], column: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of each value of a column, by "/value"."""
    values = sorted({r[column] for r in rows if r.get(column) is not None})
    return {f"/{value}": [r for r in rows if r[column] == value] for value in values}
