"""Each algorithm raises a reward that a random policy of the smallest size can find."""

import numpy as np
import pytest
from cases import cases
from tiny import configured, metrics_of

import rlkit

BASE = {
    "study": "learns",
    "model": {"path": "ladder-10k", "warm_start": {"kind": "none"}},
    "data": {"train": [{"kind": "arithmetic"}], "train_batch_size": 8, "max_response_length": 6},
    "rollout": {"n": 8},
    "actor": {"optim": {"lr": 1e-2}},
    "reward": {"num_workers": 1},
    "trainer": {"total_training_steps": 20, "test_freq": 0, "save_freq": 0, "num_threads": 1},
    "evaluation": {"size": 4, "n": 1},
}


@pytest.fixture(scope="module")
def grader(tmp_path_factory):
    """The share of a response's characters that are letters."""
    path = tmp_path_factory.mktemp("grader") / "letters.py"
    path.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return sum(c.isalpha() and c.isascii() for c in solution_str) / max(1, len(solution_str))\n"
    )
    return f"{path}:compute_score"


@pytest.mark.parametrize(("name", "changes"), cases("algorithms_that_learn"))
def test_the_reward_rises(name, changes, grader, tmp_path):
    c = configured(BASE, **changes, reward__custom_reward_function=grader)
    rows = metrics_of(rlkit.train(c, root=tmp_path, progress=False))
    rewards = [row["critic/score/mean"] for row in rows if row["step"] > 0]
    assert len(rewards) == c.trainer.total_training_steps
    assert np.mean(rewards[-5:]) > np.mean(rewards[:3]) + 0.3, rewards[::5]
