"""Padded passes, which a GPU captures, compute what packed ones do. Here they run as they are."""

from dataclasses import replace

import pytest
import tiny
import torch
from test_training_algorithms import LENGTHS, config, learning

from rlkit.models.decoder import Decoder
from rlkit.training import forward
from rlkit.training.forward import CapturedPasses, Rows, token_logprobs
from rlkit.training.loop import learn


def batch(lengths=LENGTHS, group_size=2):
    """Prompts of unequal length as well."""
    made = tiny.batch(lengths, group_size)
    made.prompt_mask[0, 3:] = False
    made.prompt_mask[2, 1:] = False
    return made


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_log_probs_entropies_and_gradients_are_those_of_a_packed_pass(family):
    model = tiny.model(family).double()
    decoder, rows = Decoder(model), Rows.of(batch(), torch.arange(8))
    passes = CapturedPasses(decoder, 0.7)
    results = []
    for pass_over in (passes, passes, lambda r: token_logprobs(decoder, r, 0.7)):
        model.zero_grad()
        logprobs, entropy = pass_over(rows)
        (logprobs * torch.arange(logprobs.numel()).view_as(logprobs)).sum().backward()
        results.append((logprobs.detach(), entropy, *(p.grad for p in model.parameters())))
    assert passes.captures == 1  # the first pass ran packed, the second padded
    torch.testing.assert_close(results[1], results[0], atol=1e-10, rtol=1e-8)
    torch.testing.assert_close(results[2], results[0], atol=1e-12, rtol=1e-12)
    assert not results[1][0][rows.layout.present.logical_not()].any()


def test_a_batch_is_cut_into_equal_passes_of_whole_groups_or_not_at_all(monkeypatch):
    monkeypatch.setattr(forward, "FEWEST", 2)
    passes, whole = CapturedPasses(Decoder(tiny.model()), 1.0), batch()
    rows = torch.arange(8)
    longest = whole.prompt_ids.shape[1] + 2 * whole.response_ids.shape[1]
    cut = passes.parts(whole, rows, rows[:4], 3 * longest)
    assert cut is not None and [p.rows.tolist() for p in cut] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cut[0].counted is not None and cut[0].counted.all()
    assert cut[1].counted is not None and not cut[1].counted.any()
    assert passes.parts(whole, rows, rows, longest) is None  # too small to be worth it
    assert passes.parts(whole, rows[1:], rows, 10**9) is None  # groups of unequal size
    assert passes.parts(whole, torch.tensor([0, 2, 1, 3]), rows, 10**9) is None  # not side by side
    several = passes.parts(whole, torch.tensor([2, 3, 6, 7]), rows, 10**9)
    assert several is not None and several[0].layout.index.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("changes", [
    {}, {"actor__loss_agg_mode": "seq-mean-token-mean"}, {"actor__use_kl_loss": True}, {"actor__ppo_epochs": 2},
    {"actor__micro_batch_tokens": 60},
])  # fmt: skip
def test_an_update_by_captured_passes_is_the_update(monkeypatch, changes):
    monkeypatch.setattr(forward, "FEWEST", 2)
    results = []
    for use in (False, True):
        model, made = tiny.model().double(), batch()
        made.rewards[2:4] = 0.25  # no advantages: skipped by one, computed for nothing by the other
        made.rewards[2:4] *= made.mask[2:4].cumsum(-1) == 1
        u = learning(config(**changes), model, Decoder(tiny.model(seed=1).double(), frozen=True))
        passes = CapturedPasses(u.actor.decoder, u.config.rollout.temperature)
        if use:
            u.actor.captured = passes
            passes.counts = (2, 4) if "actor__micro_batch_tokens" in changes else (4, 8)
        metrics = [learn(u, replace(made), step) for step in (1, 2)][-1]
        results.append((metrics, u.ledger.flops["update"], [p.detach() for p in model.parameters()]))
        assert passes.captures == use
    (plain, flops, weights), (padded, counted, same) = results
    assert padded == pytest.approx(plain, rel=1e-6, abs=1e-9)
    # There prompts meet fewer of their samples.
    assert counted == flops or "actor__micro_batch_tokens" in changes
    torch.testing.assert_close(same, weights, atol=1e-10, rtol=1e-8)
