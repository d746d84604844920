"""Grading of rollouts: who is asked, how often, and what every rollout gets."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlkit.config import RunConfig
from rlkit.environments.rollout import Limits
from rlkit.models.loading import load_policy
from rlkit.samplers.rollouts import grade, sample
from rlkit.samplers.torch import TorchSampler
from rlkit.types import Reward, Rollout, Task


class Recorder:
    """A router that numbers its answers, and what it was asked."""

    def __init__(self, custom: str | None = None) -> None:
        self.config, self.asked = SimpleNamespace(custom_reward_function=custom), []

    def grade(self, answers) -> list[Reward]:
        before = len(self.asked)
        self.asked += [(task.id, text) for task, text in answers]
        return [Reward(float(i), True) for i in range(len(self.asked) - before)]


POLICY: Any = SimpleNamespace(decode_all=lambda rows: ["".join(chr(i) for i in row) for row in rows])


def rollout(task: Task, text: str, printed: str = "") -> Rollout:
    """A response of `text`, before it `printed` by an environment."""
    ids, mask = np.array([ord(c) for c in printed + text]), np.array([0] * len(printed) + [1] * len(text))
    return Rollout(task, np.array([1]), ids, mask, np.zeros(len(ids), np.float32), "stop")


@pytest.mark.parametrize(("custom", "asked"), [
    (None, [("a", "12"), ("a", "7"), ("b", "12")]),
    ("judge.py:score", [("a", "12"), ("a", "7"), ("a", "12"), ("b", "12"), ("b", "12")]),
])  # fmt: skip
def test_equal_answers_to_a_task_are_graded_once_unless_by_a_users_function(custom, asked):
    a, b = Task.ask("arithmetic", "a", "12"), Task.ask("arithmetic", "b", "12")
    tasks = {a.id: "a", b.id: "b"}
    rollouts = [rollout(a, "12"), rollout(a, "7"), rollout(a, "12"), rollout(b, "12"), rollout(b, "12", "x")]
    router: Any = Recorder(custom)
    grade(rollouts, router, POLICY)
    assert [(tasks[task], text) for task, text in router.asked] == asked
    values = [r.reward.value for r in rollouts if r.reward]
    assert values == ([0.0, 1.0, 2.0, 3.0, 4.0] if custom else [0.0, 1.0, 0.0, 2.0, 2.0])


def test_what_has_a_reward_keeps_it():
    task = Task.ask("arithmetic", "a", "12")
    graded = rollout(task, "12")
    graded.reward = Reward(0.5, True)
    router: Any = Recorder()
    grade([graded], router, POLICY)
    assert graded.reward.value == 0.5 and router.asked == []


def test_a_task_that_stands_twice_in_a_batch_is_answered_twice():
    policy = load_policy(RunConfig.model_validate({"model": {"path": "ladder-10k"}}).model)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    one, other = (
        Task.ask("arithmetic", text, "12") for text in ("3 + 9", "4 + 8")
    )  # as a user's source may keep them
    tasks, limits = [one, other, one], Limits(12)
    rollouts = sample(tasks, sampler, policy, n=2, seed=0, limits=limits, prompt_limit=64)
    assert [r.task for r in rollouts] == [task for task in tasks for _ in range(2)]
    assert len({id(r) for r in rollouts}) == 6
