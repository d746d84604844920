"""Credit by turn: against enumeration and verl's own estimator; cut episodes."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import configured, metrics_of

from rlkit.backends import train
from rlkit.training import algorithms
from rlkit.training.algorithms import turn_gae


def enumerated():
    """All episodes of a world of two binary turns under the even policy, with the exact gradient of the
    expected return in the six logits: of the first turn, and of the second after either first action."""
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    first, second = {0: 1.0, 1: -0.5}, {(0, 0): 0.0, (0, 1): 2.0, (1, 0): 4.0, (1, 1): -1.0}
    logprobs, episodes, expected = logits.log_softmax(-1), list(product((0, 1), repeat=2)), 0.0
    for a, b in episodes:
        expected = expected + (logprobs[0, a] + logprobs[1 + a, b]).exp() * (first[a] + second[a, b])
    assert isinstance(expected, torch.Tensor)
    (gradient,) = torch.autograd.grad(expected, logits, retain_graph=True)
    mask = torch.tensor([[1.0, 1, 0, 1]] * 4)  # the first turn has two tokens
    rewards = torch.tensor([[0, first[a], 0, second[a, b]] for a, b in episodes])
    values = torch.tensor([[1.875, 9.0, 9.0, 1.0 if a == 0 else 1.5] for a, b in episodes])
    values[:, 0] = 0.5 * (1.0 + 1.0) + 0.5 * (-0.5 + 1.5)  # of the start: rewards and what follows
    return SimpleNamespace(**locals())


def estimate(world, advantages):
    """The policy gradient that the advantages of turns give over all (equally likely) episodes."""
    terms = [
        0.25 * (advantages[i, 0] * world.logprobs[0, a] + advantages[i, 3] * world.logprobs[1 + a, b])
        for i, (a, b) in enumerate(world.episodes)
    ]
    return torch.autograd.grad(torch.stack(terms).sum(), world.logits, retain_graph=True)[0]


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_gae_over_turns_with_exact_values_points_along_the_exact_policy_gradient(lam):
    world = enumerated()
    advantages, targets = turn_gae(world.rewards, world.values, world.mask, 1.0, lam)
    ours, exact = estimate(world, advantages.double()).flatten(), world.gradient.flatten()
    assert torch.cosine_similarity(ours, exact, dim=0) == pytest.approx(1.0, abs=1e-6)
    if lam == 1.0:  # targets are the returns from each turn on, on all of its tokens
        assert targets[:, 0].tolist() == pytest.approx([1, 3, 3.5, -1.5])
        assert targets[:, 1].tolist() == targets[:, 0].tolist()
        assert targets[:, 3].tolist() == pytest.approx([0, 2, 4, -1])


def test_gae_over_turns_of_one_token_is_verls_gae():
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1.0, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0]])
    rewards, values = (torch.randn(2, 6, generator=generator) * mask for _ in range(2))
    ours = turn_gae(rewards, values, mask, 0.9, 0.8)
    verl = algorithms.core().get_adv_estimator_fn("gae")(rewards, values, mask, 0.9, 0.8)
    for mine, theirs in zip(ours, verl, strict=True):
        assert torch.allclose(mine * mask, theirs * mask, atol=1e-6)


CONTENT = {
    "model": {"path": "ladder-30k", "warm_start": {"kind": "none"}},
    "data": {
        "train": [{"kind": "environment", "environment": {"kind": "mathematics", "instructions": "brief"}}],
        "train_batch_size": 2, "max_response_length": 90,
    },
    "rollout": {"n": 3, "max_turn_length": 20},
    "trainer": {"total_training_steps": 2, "num_threads": 1, "test_freq": 0, "save_freq": 0},
    "evaluation": {"size": 2, "n": 1},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:step 1")
def test_a_run_credits_turns_and_counts_them(tmp_path):
    run = train(configured(CONTENT, algorithm__adv_estimator="turn_gae"), root=tmp_path, progress=False)
    last = metrics_of(run)[-1]
    assert run.status == "finished"
    assert last["training/turns"] == last["training/environment_steps"] >= 12
    assert last["environment/turns/max"] >= 2 and last["environment/truncated"] == 1.0
    # 0 where all earn the same: a random model's actions are invalid.
    assert np.isfinite(last["actor/grad_norm"])
