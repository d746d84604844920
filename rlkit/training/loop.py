"""The RL loop, top to bottom: sample, grade, learn, sync, evaluate, log, save."""

from pathlib import Path

import torch

from rlkit.config import RunConfig
from rlkit.results.store import Run
from rlkit.seeds import derive
from rlkit.training import algorithms
from rlkit.training.batches import batch_of, mini_batches
from rlkit.training.interrupt import Interrupt
from rlkit.training.metrics import advantage_summary, update_summary
from rlkit.training.run import TrainingRun
from rlkit.training.sampling import collect
from rlkit.training.update import Learning
from rlkit.types import Batch, Rollout


def train_here(config: RunConfig, root: Path, progress: bool) -> Run:
    """A run on this machine's device, the steps that are left, with evaluations and checkpoints; see `rlkit.train`."""
    trainer = config.trainer
    with Interrupt() as interrupt, TrainingRun.open(config, root, progress) as run:
        if run.step == 0:
            run.evaluate()
        interrupt.defer()
        while not run.finished:
            if interrupt.requested:
                run.save()
                return run.result("stopped")
            rl_step(run)
            if run.due(trainer.test_freq):
                run.evaluate()
            run.end_step()
            if run.due(trainer.save_freq):
                run.save()
        return run.result("finished")


def rl_step(run: TrainingRun) -> list[Rollout]:
    """One step, from tasks to a sampler with new weights; returns its rollouts."""
    run.begin_step()
    rollouts, baselines = collect(run)  # sampled and graded
    batch = batch_of(run, rollouts, baselines)  # less what cannot be compared
    if batch is not None:
        with run.timed("update_actor"):
            run.sampler.release()
            run.metrics |= learn(run.learning, batch, run.step)
    run.stale = True
    if not run.feed.ahead:
        run.sync()
    run.report(rollouts, learnt=batch is not None)  # a GPU copies weights meanwhile
    return rollouts


def learn(learning: Learning, batch: Batch, step: int) -> dict[str, float]:
    """One step's learning from a graded batch, whose derived fields it fills; returns its metrics."""
    c, critic, passes, steps = learning.config, learning.critic, [], []
    torch.manual_seed(derive("update", c.seed, step))  # dropout, and the tokens that clip_cov draws
    batch.old_logprobs = learning.old_logprobs(batch)
    batch.ref_logprobs = learning.ref_logprobs(batch)
    batch.values = critic.values(batch) if critic else None
    batch.rewards, told = learning.rewards_less_kl(batch)
    batch.sum_pi_squared = learning.sum_pi_squared(batch)
    batch.advantages, batch.returns = algorithms.advantages(batch, c)
    told |= advantage_summary(batch)
    if critic:
        told |= critic.update(batch, step)
    if not critic or step > c.critic.warmup_steps:
        for rows in mini_batches(batch, c, step, c.actor.ppo_epochs):
            passes += learning.accumulate(batch, rows)
            steps.append(learning.step())
    return update_summary(told, passes, steps)
