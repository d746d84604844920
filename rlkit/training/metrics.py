"""What a step logs of its rollouts and advantages (update.py: of losses and gradients); W&B beside the store."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlkit.compute import Ledger
from rlkit.config import RunConfig
from rlkit.environments.rollout import rollout_metrics
from rlkit.results.machine import git_state, versions
from rlkit.samplers.rollouts import acts
from rlkit.types import Batch, Rollout

SAMPLES_KEPT = 8  # of a step, for reading
SUMS = {"actor/entropy", "actor/kl_ref", "policy/logprob_gap"}  # over the tokens of a pass
SHARES = {"actor/pg_loss", "actor/kl_loss"}  # of the mini-batch's losses


def update_summary(
    told: Mapping[str, Any], passes: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Metrics of an update: those `told`, losses, means over tokens and optimizer steps; a GPU is waited for once."""
    rows = [told, *passes, *steps]
    tensors = [value for row in rows for value in row.values() if isinstance(value, Tensor)]
    read = iter(torch.stack(tensors).tolist() if tensors else ())
    known, *numbers = [{k: next(read) if isinstance(v, Tensor) else v for k, v in r.items()} for r in rows]
    totals, weights = defaultdict[str, float](float), defaultdict[str, float](float)
    for each in numbers:
        tokens = each.pop("tokens", 1.0)  # an optimizer step counts once
        for name, value in each.items():
            mean = value / max(tokens, 1.0) if name in SUMS else value
            totals[name] += value if name in SHARES else mean * tokens
            weights[name] = max(1, len(steps)) if name in SHARES else weights[name] + tokens
    return known | {name: total / weights[name] for name, total in totals.items() if weights[name]}


def advantage_summary(batch: Batch) -> dict[str, Tensor]:
    """Mean reward of a sequence; mean, largest and smallest advantage of the sampled tokens."""
    assert batch.advantages is not None
    sampled = batch.advantages[batch.mask > 0]
    extremes = {f"critic/advantages/{k}": getattr(sampled, k)() for k in ("mean", "max", "min")}
    return {"critic/rewards/mean": batch.rewards.sum(-1).mean()} | extremes


def rollout_summary(rollouts: Sequence[Rollout], n: int) -> dict[str, float]:
    """Rewards (mean, by data_source), group statistics and response lengths of a step, errors left out; and what
    episodes came to."""
    graded = [r for r in rollouts if r.reward is not None and r.reward.error is None]
    episodes = [r for r in rollouts if acts(r.task)]
    acted = rollout_metrics(episodes) if episodes else {}
    if not graded:
        return acted
    table = np.array([r.reward.value if r.reward else None for r in rollouts], float).reshape(-1, n)  # (P, G)
    known = ~np.isnan(table)
    ranges = (np.where(known, table, -np.inf).max(1) - np.where(known, table, np.inf).min(1))[known.any(1)]
    values, lengths = table[known], np.array([np.count_nonzero(r.mask) for r in rollouts])
    metrics = {f"critic/score/{k}": getattr(values, k)() for k in ("mean", "max", "min")} | {
        "train/accuracy": np.mean([bool(r.reward.correct) for r in graded if r.reward]),
        "group/zero_variance": (ranges == 0).mean(),
        "response_length/mean": lengths.mean(),
        "response_length/max": lengths.max(),
        "response_length/clip_ratio": np.mean([r.finish_reason == "length" for r in rollouts]),
    }
    for source in sorted({r.task.data_source for r in graded}):
        own = [r.task.data_source == source for r in rollouts]
        metrics[f"score/{source}"] = table.flatten()[own & known.flatten()].mean()
    return acted | {name: float(value) for name, value in metrics.items()}


def run_summary(info: Mapping[str, Any], step: int, ledger: Ledger) -> dict[str, Any]:
    """Of a run so far, by its run.json: steps, its first and its last evaluation, FLOPs and seconds."""
    evaluations = info.get("evaluations", {})
    first, last = (pick(evaluations, key=int, default=None) for pick in (min, max))
    return {
        "steps": step, "first": evaluations.get(first), "last": evaluations.get(last),
        "flops": ledger.total, "seconds": ledger.seconds,
    }  # fmt: skip


class Tracker:
    """The W&B run of a run, where `trainer.logger` names wandb, under its id; offline without a key or a network. Of
    steps that a resumed run computes again, W&B drops those that it has."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._run: Any = None
        if "wandb" not in config.trainer.logger:
            return
        import wandb
        from wandb.errors import AuthenticationError, CommError

        options: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", "rlkit"), "id": config.id, "name": config.id, "resume": "allow",
            "group": config.study, "dir": str(folder),
            "tags": [config.study, Path(config.model.path).name[:64], config.algorithm.adv_estimator],
            "config": {**config.model_dump(mode="json"), "git": git_state(), "versions": versions()},
            "settings": wandb.Settings(init_timeout=30, silent=True),
        }  # fmt: skip
        signed_in = bool(os.environ.get("WANDB_API_KEY")) or wandb.api.api_key is not None
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if signed_in else "offline")
        try:
            self._run = wandb.init(mode=mode, **options)
        except (CommError, AuthenticationError):
            wandb.teardown()  # which still holds the run's id
            self._run = wandb.init(mode="offline", **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
