"""Grading of rollouts: who is asked, how often, and what every rollout gets."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlkit.config import Model
from rlkit.environments.rollout import Limits
from rlkit.models.loading import load_policy
from rlkit.samplers.cache import FixedCache
from rlkit.samplers.rollouts import grade, sample
from rlkit.samplers.torch import TorchSampler
from rlkit.types import Reward, Rollout, Sample, Task


class Recorder:
    """A router that numbers its answers, and what it was asked: ground truths and texts."""

    def __init__(self, custom: str | None = None) -> None:
        self.config, self.asked = SimpleNamespace(custom_reward_function=custom), []

    def submit(self, rows) -> list[tuple[Reward, float]]:
        before = len(self.asked)
        self.asked += [(truth, text) for _, text, truth, _ in rows]
        return [(Reward(float(i), True), 0.0) for i in range(before, len(self.asked))]


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
    a, b = Task.ask("arithmetic", "1+1", "a"), Task.ask("arithmetic", "2+2", "b")
    rollouts = [rollout(a, "12"), rollout(a, "7"), rollout(a, "12"), rollout(b, "12"), rollout(b, "12", "x")]
    router: Any = Recorder(custom)
    (graded := rollout(a, "8")).reward = Reward(0.5, True)  # what has a reward keeps it
    grade([*rollouts, graded], router, POLICY)
    assert router.asked == asked and graded.reward == Reward(0.5, True)
    values = [r.reward.value for r in rollouts if r.reward]
    assert values == ([0.0, 1.0, 2.0, 3.0, 4.0] if custom else [0.0, 1.0, 0.0, 2.0, 2.0])


def test_answers_are_graded_while_others_are_sampled_and_each_once(monkeypatch):
    monkeypatch.setattr(FixedCache, "every", 2)
    monkeypatch.setattr("rlkit.models.shapes.FEWEST_ROWS", 4)
    policy, asked = load_policy(Model(path="ladder-10k")), []
    router: Any = Recorder("own.py:score")
    sampler = TorchSampler(policy.model, range(0, 262, 9), policy.pad_id, max_num_seqs=12)
    tasks = [Task.ask("arithmetic", f"{k} + 9", str(k)) for k in range(3)]
    tasks.append(tasks[0])  # as a user's source may keep it
    options: Any = dict(n=6, seed=0, limits=Limits(30), prompt_limit=64, router=router)
    run = sampler.decoder.run
    monkeypatch.setattr(sampler.decoder, "run", lambda *a: (asked.append(len(router.asked)), run(*a))[1])
    plain = sample(tasks, sampler, policy, **options)
    assert set(asked) == {0}  # the sampler of the CPU tells of none before the last
    assert len(router.asked) == 24
    sampler.fixed = True
    asked.clear()
    router.asked.clear()
    rollouts = sample(tasks, sampler, policy, **options)
    assert 0 < asked[-1] < 24 and len(set(asked)) > 4
    grade(rollouts, router, policy)
    texts = policy.decode_all([r.response_ids for r in rollouts])
    for rollout, text in zip(rollouts, texts, strict=True):
        assert rollout.reward is not None and rollout.reward.value is not None
        assert router.asked[int(rollout.reward.value)] == (rollout.task.ground_truth, text)
    assert len(router.asked) == 24 == len({id(r) for r in rollouts})
    assert [r.task for r in rollouts] == [task for task in tasks for _ in range(6)]
    assert [r.response_ids.tolist() for r in rollouts] == [r.response_ids.tolist() for r in plain]
    told = list[Any]()
    sampler.sample([np.array([1, 2])], 6, seed=0, max_tokens=6, on_finished=told.append)
    # After steps 2 and 4 of none, while more are computed; then of what step 4 ended, and at last of the others.
    assert [len(ended) for ended in told] == [0, 0, 1, 5]


def test_a_response_that_is_sampled_anew_is_graded_as_it_is_in_the_end():
    """A batch that the GPU's memory did not hold is decoded again, in parts."""

    class Sampler:
        def sample(self, prompts, n, *, on_finished, **_):
            on_finished([(0, np.array([49])), (1, np.array([50]))])
            return [[Sample(np.array([i]), np.zeros(1, np.float32), "stop") for i in (49, 51)]]

    policy: Any = SimpleNamespace(**vars(POLICY), encode_all=lambda chats: [[1] for _ in chats])
    router: Any = Recorder()
    sampler: Any = Sampler()
    task = Task.ask("arithmetic", "1+1", "a")
    rollouts = sample([task], sampler, policy, n=2, seed=0, limits=Limits(3), prompt_limit=9, router=router)
    grade(rollouts, router, policy)
    assert [r.reward.value for r in rollouts if r.reward] == [0.0, 2.0]
    assert router.asked == [("a", "1"), ("a", "2"), ("a", "3")]
