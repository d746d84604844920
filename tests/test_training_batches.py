"""What trains and what is left out; where rewards lie; what a step reports, here and to W&B."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from cases import table

from rlkit.config import RunConfig
from rlkit.errors import RunStopped, UserError
from rlkit.training.batches import collate, comparable, unequal
from rlkit.training.checks import preflight
from rlkit.training.metrics import rollout_summary
from rlkit.types import Reward, Rollout, Task

FAILED = Reward(error="the worker was killed")


def rollout(reward: Reward, length: int = 3, mask=None, turn_rewards=None, prompt=(1, 2)) -> Rollout:
    mask = np.ones(length, np.int64) if mask is None else np.array(mask)
    return Rollout(
        Task.ask("toy", "q", "a"), np.array(prompt), np.arange(len(mask)), mask,
        -np.ones(len(mask), np.float32), "stop", turn_rewards=turn_rewards, reward=reward,
    )  # fmt: skip


@pytest.mark.parametrize(*table("rollouts_comparable"))
def test_a_failed_grader_is_no_wrong_answer_and_a_lone_one_of_a_group_is_not_trained_on(answers, n, most, kept, counts):
    """1 is right, 0 wrong and x not graded."""
    rewards = {"1": Reward.of(True), "0": Reward.of(False), "x": FAILED}
    found, told = comparable([rollout(rewards[a]) for a in answers], n=n, max_error_rate=most, step=1)
    assert found == kept and counts.items() <= told.items()


def test_the_run_stops_when_too_much_cannot_be_graded():
    rollouts = [rollout(Reward.of(True))] * 9 + [rollout(FAILED)]
    said = r"step 3, 1 of 10 answers .*max_error_rate = 0.05 .*the worker was killed"
    with pytest.raises(RunStopped, match=said):
        comparable(rollouts, n=10, max_error_rate=0.05, step=3)


def rewards(*rollouts) -> list[list[float]]:
    return collate(rollouts, range(len(rollouts)), 0, "cpu").rewards.tolist()


def test_rewards_lie_on_the_last_sampled_token_or_on_that_of_each_turn():
    one, two = rollout(Reward.of(True, 0.5)), rollout(Reward.of(True), mask=[1, 1, 0, 0])
    assert rewards(one, two) == [[0, 0, 0.5, 0], [0, 1, 0, 0]]
    with pytest.raises(ValueError, match="not graded"):
        rewards(one, rollout(FAILED))
    r = rollout(Reward.of(True, 3.0), mask=[1, 1, 0, 0, 1, 0, 1, 1], turn_rewards=[0.5, 1.0, 1.5])
    assert rewards(r, rollout(Reward.of(True)))[0] == [0, 0.5, 0, 0, 1.0, 0, 0, 1.5]
    with pytest.raises(ValueError, match="2 turn rewards for 3 turns"):
        rewards(rollout(Reward.of(True), mask=[1, 0, 1, 0, 1], turn_rewards=[1.0, 1.0]))


def test_a_cut_answer_is_compared_with_and_not_trained_on():
    cut = rollout(Reward.of(False))
    cut.finish_reason = "length"
    batch = collate([rollout(Reward.of(True)), cut], [0, 0], 0, "cpu", cut="mask")
    assert batch.mask.sum(-1).tolist() == [3, 0] and batch.rewards.sum(-1).tolist() == [1, 0]
    assert collate([cut], [0], 0, "cpu").mask.sum() == 3


def test_groups_that_differ_are_told_by_answers_or_by_rewards():
    close = Reward.of(False, 0.1), Reward.of(False, 0.2)
    rollouts = [rollout(r) for r in (*close, Reward.of(True), FAILED, Reward.of(True), Reward.of(False))]
    assert unequal(rollouts, 2, "acc") == [False, False, True]
    assert unequal(rollouts, 2, "score") == [True, False, True]


def test_a_batch_shares_prompts_within_groups_and_pads_on_the_right():
    rollouts = [
        rollout(Reward.of(True), 3, prompt=(1, 2)), rollout(Reward.of(False), 1, prompt=(1, 2)),
        rollout(Reward.of(False), 2, prompt=(7, 8, 9)), rollout(Reward.of(True), 3, prompt=(7, 8, 9)),
    ]  # fmt: skip
    batch = collate(rollouts, [4, 4, 6, 6], pad_id=99, device=torch.device("cpu"))
    assert batch.prompt_ids.tolist() == [[1, 2, 99], [7, 8, 9]]
    assert batch.prompt_mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.prompt_index.tolist() == [0, 0, 1, 1]
    assert batch.response_ids.tolist() == [[0, 1, 2], [0, 99, 99], [0, 1, 99], [0, 1, 2]]
    assert batch.mask.sum(-1).tolist() == [3, 1, 2, 3]
    assert batch.rewards.sum(-1).tolist() == [1, 0, 0, 1]
    assert batch.rewards[3].tolist() == [0, 0, 1]


def test_a_step_reports_groups_lengths_and_domains():
    rollouts = [rollout(Reward.of(c), k) for c, k in ((True, 1), (True, 2), (False, 3), (True, 4))]
    rollouts[3].finish_reason = "length"
    rollouts += [rollout(r, 2) for r in (*map(Reward.of, (True, True)), FAILED, FAILED)]
    summary = rollout_summary(rollouts, n=2)
    assert summary["group/zero_variance"] == 2 / 3  # where anything was graded
    assert summary["response_length/mean"] == 2.25
    assert summary["response_length/clip_ratio"] == 0.125
    assert summary["score/toy"] == summary["critic/score/mean"] == 5 / 6


TRACK = """
import sys, pathlib
from rlkit.config import RunConfig
from rlkit.training.metrics import Tracker
trackers = Tracker(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}), pathlib.Path(sys.argv[1]))
for step in (12345, 23456, 34567):
    trackers.log(step, {"critic/score/mean": step / 10})
trackers.close()
"""
NO_NETWORK = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}


@pytest.mark.parametrize("env", [
    pytest.param({}, id="no key"),
    pytest.param(NO_NETWORK, id="no network", marks=pytest.mark.slow(reason="W&B tries for half a minute")),
])  # fmt: skip
def test_without_a_key_or_a_network_it_is_offline_and_asks_nothing(tmp_path, env):
    """In a process without a key or a terminal."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    kept |= {"HOME": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path), "NETRC": str(tmp_path / "none"), **env}
    done = subprocess.run(
        [sys.executable, "-c", TRACK, str(tmp_path)], env=kept, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(1)" not in done.stdout and "Enter your choice" not in done.stdout + done.stderr
    (written,) = tmp_path.glob(f"wandb/offline-run-*/run-{RunConfig.model_validate({}).id}.wandb")
    content = written.read_bytes()
    assert content.count(b"critic/score/mean") >= 3
    assert 0 < content.find(b"12345") < content.find(b"23456") < content.find(b"34567")


def test_a_run_that_names_wandb_without_it_says_what_to_install_before_it_begins(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'rlkit\[wandb\]'"):
        preflight(RunConfig.model_validate({"trainer": {"logger": ["wandb"]}}))
