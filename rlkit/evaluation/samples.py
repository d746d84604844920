"""Held-out evaluation: every sample is one row, aggregates come later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from rlkit.config import Evaluation
from rlkit.environments.rollout import Limits
from rlkit.evaluation.passk import Interval, pass_at_k, pass_rate
from rlkit.results.evals import eval_row
from rlkit.seeds import derive
from rlkit.types import Rollout, Sampler, Task


@dataclass(frozen=True)
class EvaluationResult:
    """Rows, one a sample (of a run with suites with a column suite, None for held-out tasks), and their summary:
    eval/pass@k over all held-out tasks, by data_source and by suite, shares that could not be graded, response lengths;
    and pass@1 with its interval, None where nothing could be graded."""

    rows: list[dict[str, Any]]
    metrics: dict[str, float]
    pass_at_1: Interval | None


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
        rows += [eval_row(r.task, i % section.n, _answer(r, policy)) | apart for i, r in enumerate(rollouts)]
    return summarise(rows, section.pass_at)


def _answer(rollout: Rollout, policy: Any) -> dict[str, Any]:
    reward = rollout.reward
    assert reward is not None  # graded above
    return {
        "correct": reward.correct, "value": reward.value, "error": reward.error, "tokens": int(rollout.mask.sum()),
        "finish_reason": rollout.finish_reason, "response": policy.decode(rollout.response_ids),
    }  # fmt: skip


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
        tasks: dict[str, list[bool]] = {}
        for r in part:
            if r["correct"] is not None:
                tasks.setdefault(r["task_id"], []).append(bool(r["correct"]))
        for k in pass_at:
            rates = [pass_at_k(len(right), sum(right), k) for right in tasks.values() if len(right) >= k]
            metrics[f"eval/pass@{k}{suffix}"] = float(np.mean(rates)) if rates else float("nan")
    graded = [r for r in held_out if r["correct"] is not None]
    interval = pass_rate([r["correct"] for r in graded], [r["task_id"] for r in graded]) if graded else None
    return EvaluationResult(rows, metrics, interval)


def _groups(rows: Sequence[dict[str, Any]], column: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of each value of a column, by "/value"."""
    values = sorted({r[column] for r in rows if r.get(column) is not None})
    return {f"/{value}": [r for r in rows if r[column] == value] for value in values}
