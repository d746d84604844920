"""From graded rollouts to a training batch: drop what cannot be compared, place rewards, pad, summarise."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rlkit.config import RunConfig
from rlkit.errors import RunStopped
from rlkit.rewards import grading_metrics
from rlkit.seeds import derive
from rlkit.training.learner import text_batch
from rlkit.types import Batch, Rollout

if TYPE_CHECKING:
    from rlkit.training.run import TrainingRun


def batch_of(run: "TrainingRun", rollouts: list[Rollout], baselines: list[float]) -> Batch | None:
    """What a step trains on: the rollouts that can be compared, padded. None where there are none."""
    c, n, groups = run.config, run.config.rollout.n, run.config.algorithm.filter_groups
    kept, counts = comparable(rollouts, n, c.reward.max_error_rate, run.step)
    run.metrics |= counts | grading_metrics([r.reward for r in rollouts])
    if groups.enable:
        differing = [g for g, differs in enumerate(unequal(rollouts, n, groups.metric)) if differs]
        kept = [i for i in kept if i // n in differing[: c.data.train_batch_size]]
    batch = collate(
        [rollouts[i] for i in kept], [i // n for i in kept], run.policy.pad_id, run.device,
        cut=c.algorithm.truncated, baselines=baselines or None,
    ) if kept else None  # fmt: skip
    tokens = int(batch.mask.sum()) if batch else 0
    if batch and tokens >= c.algorithm.needs.tokens:
        return batch
    run.warn(f"{tokens} tokens of comparable answers were left to train on; nothing was learnt from them.")
    return None


def comparable(
    rollouts: Sequence[Rollout], n: int, max_error_rate: float, step: int
) -> tuple[list[int], dict[str, float]]:
    """Positions of the rollouts that train, and counts of those left out: where the grader failed (it is no zero), or
    one alone is left of a group. Raises RunStopped where more than `max_error_rate` could not be graded."""
    graded = [i for i, r in enumerate(rollouts) if r.reward is not None and r.reward.error is None]
    errors = [r.reward.error for r in rollouts if r.reward is not None and r.reward.error is not None]
    rate = 1 - len(graded) / len(rollouts)
    if rate > max_error_rate:
        reason, count = Counter(errors).most_common(1)[0]
        raise RunStopped(
            f"At step {step}, {len(errors)} of {len(rollouts)} answers could not be graded, more than "
            f"reward.max_error_rate = {max_error_rate:g} allows. The most common reason ({count} times): {reason}"
        )
    sizes = Counter(i // n for i in graded)
    kept = [i for i in graded if n == 1 or sizes[i // n] >= 2]
    return kept, {
        "reward/error_rate": rate,
        "group/dropped": len(rollouts) // n - len({i // n for i in kept}),
        "group/dropped_samples": len(rollouts) - len(kept),
    }


def unequal(rollouts: Sequence[Rollout], n: int, metric: str) -> list[bool]:
    """Whether the graded answers of each group of `n` differ: with `metric` "acc" in being right, else in rewards."""
    name = "correct" if metric == "acc" else "value"  # both None where an answer was not graded
    values = [getattr(r.reward, name, None) for r in rollouts]
    return [len(set(values[i : i + n]) - {None}) > 1 for i in range(0, len(values), n)]


def collate(
    rollouts: Sequence[Rollout], groups: Sequence[int], pad_id: int, device: torch.device | str, *,
    cut: str = "end", baselines: Sequence[float] | None = None,
) -> Batch:  # fmt: skip
    """A padded Batch of graded rollouts; sequences of one group share the row of their prompt. The reward lies on the
    last sampled token, or of each turn on its last one. With `cut` (`algorithm.truncated`) "mask", cut answers count
    as not sampled, and still in their group's mean; `baselines` are the rewards of all groups' greedy responses."""
    _, firsts, index = np.unique(groups, return_index=True, return_inverse=True)
    prompts, responses = [rollouts[i].prompt_ids for i in firsts], [r.response_ids for r in rollouts]
    batch = text_batch(prompts, responses, pad_id)
    there = batch.attention.numpy() > 0
    mask, logprobs = np.zeros(there.shape, np.float32), np.zeros(there.shape, np.float32)
    mask[there] = np.concatenate([r.mask for r in rollouts])
    logprobs[there] = np.concatenate([r.logprobs for r in rollouts])
    rewards = _token_rewards(rollouts, mask)
    if cut == "mask":
        # of episodes: by their steps
        ends = [(r.reward.parts if r.reward else {}).get("truncated") for r in rollouts]
        mask[[r.finish_reason == "length" or bool(end) for r, end in zip(rollouts, ends, strict=True)]] = 0
    batch.mask, batch.rewards = torch.from_numpy(mask), torch.from_numpy(rewards)
    batch.sampler_logprobs, batch.prompt_index = torch.from_numpy(logprobs), torch.from_numpy(index)
    batch.baselines = None if baselines is None else torch.tensor([baselines[g] for g in groups])
    moved = {name: x.to(device) for name, x in vars(batch).items() if isinstance(x, Tensor)}
    return replace(batch, **moved)


def _token_rewards(rollouts: Sequence[Rollout], mask: np.ndarray) -> np.ndarray:
    """(B, T) rewards by token, of the mask (B, T) of what the policy sampled."""
    values = [r.reward.value if r.reward else None for r in rollouts]
    if None in values:
        raise ValueError("a rollout that was not graded has no reward to train on")
    rewards = np.zeros_like(mask)
    rewards[np.arange(len(mask)), mask.shape[1] - 1 - mask[:, ::-1].argmax(1)] = values
    for row, rollout in enumerate(rollouts):
        if rollout.turn_rewards is not None:
            sampled = np.flatnonzero(rollout.mask)
            ends = sampled[np.append(np.diff(sampled) > 1, True)]
            if len(ends) != len(rollout.turn_rewards):
                raise ValueError(f"{len(rollout.turn_rewards)} turn rewards for {len(ends)} turns")
            rewards[row] = 0
            rewards[row, ends] = rollout.turn_rewards
    return rewards


def mini_batches(batch: Batch, config: RunConfig, step: int, epochs: int) -> Iterator[Tensor]:
    """Rows (b,) of each optimizer step: whole groups, shuffled anew in every epoch."""
    count, device = config.mini_batches, batch.mask.device
    for epoch in range(epochs):
        if count == 1:
            yield torch.arange(len(batch), device=device)
            continue
        groups = torch.unique(batch.prompt_index)
        order = torch.Generator().manual_seed(derive("mini-batch", config.seed, step, epoch))
        shuffled = groups[torch.randperm(len(groups), generator=order).to(device)]
        for chosen in shuffled.chunk(count):
            yield torch.isin(batch.prompt_index, chosen).nonzero()[:, 0]
