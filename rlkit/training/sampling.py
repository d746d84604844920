"""From tasks to graded rollouts: which tasks are drawn, responses sampled ahead of learning, and their rewards."""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlkit.config import RunConfig
from rlkit.data import TaskStream
from rlkit.data.held_out_tasks import MAX_REFUSED
from rlkit.errors import RunStopped, UserError
from rlkit.models.loading import Policy
from rlkit.rewards.grading import with_overlong_penalty
from rlkit.samplers.rollouts import acts, grade, sample
from rlkit.seeds import derive
from rlkit.training.batches import unequal
from rlkit.types import Reward, Rollout, Task

if TYPE_CHECKING:
    from rlkit.training.run import TrainingRun

Sampled = tuple[list[Rollout], list[Rollout]]  # group by group, and greedy ones for baselines


class Feed:
    """Where a run is in its stream of tasks.

    Attributes:
        drawn: tasks taken from the stream.
        rates: {task id: (right, graded)} of all answers so far, where `data.drop_solved_above` needs them.
        ahead: batches that were sampled at step `sampled_at` and are still to be learnt from.
        made: the stream's tasks of a step to come, by its number.
    """

    def __init__(self, config: RunConfig, stream: TaskStream) -> None:
        self.data, self.stream = config.data, stream
        self.drawn = self.sampled_at = 0
        self.rates: dict[str, tuple[int, int]] = {}
        self.ahead: list[Sampled] = []
        self.made: dict[int, list[Task]] = {}

    def make_next(self, policy: Policy) -> Iterator[bool]:
        """Make the tasks that the stream has next, a few at a time, then encode their prompts; True while there are
        more. What fails does so when they are asked for."""
        step = self.drawn // self.data.train_batch_size + 1
        with suppress(UserError):
            for tasks in [] if step in self.made else self.stream.making(step):
                self.made = {step: tasks} if tasks else self.made
                yield True
            policy.encode_all([task.prompt for task in self.made[step] if not acts(task)])

    def tasks(self) -> list[Task]:
        """The next `data.train_batch_size` unsolved tasks. Raises RunStopped where none is left."""
        chosen, refused, size = list[Task](), 0, self.data.train_batch_size
        while len(chosen) < size:
            step, place = divmod(self.drawn, size)
            batch = self.made.get(step + 1) or self.stream.batch(step + 1)
            for task in batch[place : place + size - len(chosen)]:
                refused = refused + 1 if self.rates and self.solved(task.id) else 0
                chosen += [] if refused else [task]
                self.drawn += 1
            if refused > 2 * len(self.rates) + MAX_REFUSED:
                raise RunStopped(
                    "All problems have pass rates of at least data.drop_solved_above = "
                    f"{self.data.drop_solved_above:g}: add harder ones, raise it, or do fewer steps."
                )
        return chosen

    def solved(self, task_id: str) -> bool:
        """Whether a problem is not drawn again."""
        right, graded = self.rates.get(task_id, (0, 0))
        return graded > 0 and right / graded >= (self.data.drop_solved_above or 2.0)

    def observe(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Count the answers of graded rollouts; how many problems are not drawn again."""
        if self.data.drop_solved_above is None:
            return {}
        for r in rollouts:
            if r.reward is not None and r.reward.correct is not None:
                right, graded = self.rates.get(r.task.id, (0, 0))
                self.rates[r.task.id] = right + r.reward.correct, graded + 1
        return {"data/solved": float(sum(map(self.solved, self.rates)))}

    def copy(self) -> "Feed":
        """This place, to come back to."""
        other = copy.copy(self)
        other.rates, other.ahead = dict(self.rates), list(self.ahead)
        return other

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: numbers, strings and tensors."""
        ahead = [[[packed(r) for r in part] for part in batch] for batch in self.ahead]
        return {"drawn": self.drawn, "sampled_at": self.sampled_at, "rates": dict(self.rates), "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn, self.sampled_at, self.rates = (state[key] for key in ("drawn", "sampled_at", "rates"))
        ahead = state["ahead"]
        self.ahead = [([unpacked(r) for r in part], [unpacked(r) for r in more]) for part, more in ahead]


def packed(rollout: Rollout) -> dict[str, Any]:
    """A rollout as tensors and JSON; an answer is graded again, whose grader may have failed."""
    state = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in vars(rollout).items()}
    kept = rollout.reward if acts(rollout.task) else None
    reward = kept and json.dumps(asdict(kept), default=float)
    task = json.dumps(asdict(rollout.task), default=float)
    return state | {"task": task, "reward": reward, "grading": None}


def unpacked(state: dict[str, Any]) -> Rollout:
    """The rollout that `packed` was given."""
    arrays = {k: v.cpu().numpy() for k, v in state.items() if isinstance(v, torch.Tensor)}
    task, reward = json.loads(state["task"]), state["reward"] and Reward(**json.loads(state["reward"]))
    task = Task(**task | {"prompt": tuple(task["prompt"])})
    return Rollout(**{**state, **arrays, "task": task, "reward": reward})


def collect(run: "TrainingRun") -> tuple[list[Rollout], list[float]]:
    """Graded rollouts of a step's tasks, group by group, and each group's greedy reward where the estimator asks for
    it. With `algorithm.filter_groups` batch after batch until P groups differ. Raises RunStopped where too few do."""
    c, groups, size = run.config, run.config.algorithm.filter_groups, run.config.data.train_batch_size
    rollouts, every = list[Rollout](), c.async_training.trigger_parameter_sync_step
    while True:
        if not run.feed.ahead:
            with run.timed("gen"):
                run.feed.ahead = _sampled_ahead(run, every)
        drawn, greedy = run.feed.ahead.pop(0)
        if every > 1:
            run.metrics["rollout/lag"] = run.step - run.feed.sampled_at
        baselines = _graded(run, drawn, greedy)
        run.metrics |= run.feed.observe(drawn)
        rollouts += drawn
        if not groups.enable:
            return rollouts, baselines
        found, of = sum(unequal(rollouts, c.rollout.n, groups.metric)), len(rollouts) // c.rollout.n
        run.metrics["train/num_gen_batches"] = sampled = of // size
        if found >= size:
            return rollouts, baselines
        if sampled == groups.max_num_gen_batches:
            raise RunStopped(
                f"At step {run.step}, {found} of {of} groups had unequal rewards after "
                f"algorithm.filter_groups.max_num_gen_batches = {sampled} batches, and {size} are needed: raise it, or "
                "change the difficulty of the tasks."
            )


def _sampled_ahead(run: "TrainingRun", every: int) -> list[Sampled]:
    """One batch for each step until the sampler gets new weights, after `every` steps, decoded together."""
    c, size, n = run.config, run.config.data.train_batch_size, run.config.rollout.n
    steps = min(every - (run.step - 1) % every, c.trainer.total_training_steps - run.step + 1)
    run.sync()
    run.feed.sampled_at = run.step
    tasks = [task for _ in range(steps) for task in run.feed.tasks()]
    drawn = _sampled(run, tasks, "rollout", n, c.rollout.temperature)
    greedy = _sampled(run, tasks, "greedy", 1, 0.0) if c.algorithm.needs.greedy else []
    starts = range(0, len(tasks), size)
    return [(drawn[i * n : (i + size) * n], greedy[i : i + size]) for i in starts]


def _sampled(run: "TrainingRun", tasks: Sequence[Task], purpose: str, n: int, temperature: float) -> list[Rollout]:
    """`n` rollouts of each task, counted."""
    c = run.config
    rollouts = sample(
        tasks, run.sampler, run.policy, router=run.router, n=n, seed=derive(purpose, c.seed, run.step),
        limits=run.limits(temperature), prompt_limit=c.data.max_prompt_length,
        meanwhile=run.feed.make_next(run.policy),
    )  # fmt: skip
    run.metrics["perf/total_num_tokens"] += run.ledger.sampled(run.learning.actor.shape, rollouts, n)
    return rollouts


def _graded(run: "TrainingRun", rollouts: list[Rollout], greedy: list[Rollout]) -> list[float]:
    """Set all rewards; those of the greedy responses. Where one cannot be graded, its group cannot be either."""
    section, limit, n = run.config.reward, run.config.data.max_response_length, run.config.rollout.n
    with run.timed("reward"):
        grade([*rollouts, *greedy], run.router, run.policy)
    for i, one in enumerate(greedy):
        if one.reward and one.reward.error is not None:
            for r in rollouts[i * n : (i + 1) * n]:
                r.reward = one.reward
    scores = (r.reward for r in rollouts if r.reward is not None and "acc" not in r.reward.parts)
    if section.custom_reward_function and any(reward.value not in (None, 0.0, 1.0) for reward in scores):
        run.warn(
            "reward.custom_reward_function gives scores other than 0 and 1 and does not say which answers are "
            "right: pass@k counts scores of at least 1. Return a dict with score and acc.",
            "undecided",
        )
    for r in (*rollouts, *greedy) if section.overlong_buffer.enable else ():
        if r.reward is not None and r.turn_rewards is None:
            r.reward = with_overlong_penalty(r.reward, len(r.response_ids), limit, section.overlong_buffer)
    return [float(r.reward.value or 0.0) if r.reward else 0.0 for r in greedy]
