"""Each algorithm raises a reward that a random policy of the smallest size can find."""

import numpy as np
import pytest
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
ALGORITHMS = {
    "grpo": {},
    "dr. grpo": {
        "algorithm.norm_adv_by_std_in_grpo": False, "actor.loss_agg_mode": "seq-mean-token-sum-norm",
    },
    "ppo": {
        "algorithm.adv_estimator": "gae", "algorithm.lam": 0.95, "actor.ppo_mini_batch_size": 4,
        "critic.optim.lr": 1e-2,
    },
    "reinforce++": {"algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.use_kl_in_reward": True},
    "rloo": {"algorithm.adv_estimator": "rloo"},
    "remax": {"algorithm.adv_estimator": "remax"},
    "gspo": {"actor.policy_loss.loss_mode": "gspo", "actor.ppo_mini_batch_size": 4},
    "kl_cov": {"actor.policy_loss.loss_mode": "kl_cov"},
    "clip-higher with correction": {
        "actor.clip_ratio_high": 0.28, "actor.ppo_epochs": 2, "algorithm.rollout_correction": 2.0,
    },
    "lora": {"model.path": "ladder-100k", "model.lora_rank": 16, "model.lora_alpha": 64},
}  # fmt: skip


@pytest.fixture(scope="module")
def grader(tmp_path_factory):
    """The share of a response's characters that are letters."""
    path = tmp_path_factory.mktemp("grader") / "letters.py"
    path.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return sum(c.isalpha() and c.isascii() for c in solution_str) / max(1, len(solution_str))\n"
    )
    return f"{path}:compute_score"


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_the_reward_rises(name, grader, tmp_path):
    c = configured(BASE, **ALGORITHMS[name], reward__custom_reward_function=grader)
    rows = metrics_of(rlkit.train(c, root=tmp_path, progress=False))
    rewards = [row["critic/score/mean"] for row in rows if row["step"] > 0]
    assert len(rewards) == c.trainer.total_training_steps
    assert np.mean(rewards[-5:]) > np.mean(rewards[:3]) + 0.3, rewards[::5]
