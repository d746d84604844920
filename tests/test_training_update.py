"""Updates of policy and critic: padded passes, which a GPU captures and which run here as they are, compute what
packed ones do; a critic beside a LoRA policy is an adapter of its own over one frozen base."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import tiny
import torch
from cases import table
from test_training_algorithms import LENGTHS, config, learning

from rlkit.compute import Ledger
from rlkit.models.decoder import Decoder
from rlkit.training import learner
from rlkit.training.learner import CapturedPasses, Rows
from rlkit.training.loop import learn
from rlkit.training.update import Critic, Learning


def batch(lengths=LENGTHS, group_size=2):
    """Prompts of unequal length as well."""
    made = tiny.batch(lengths, group_size)
    made.prompt_mask[0, 3:] = False
    made.prompt_mask[2, 1:] = False
    return made


def test_a_batch_is_cut_into_equal_passes_of_whole_groups_or_not_at_all(monkeypatch):
    monkeypatch.setattr(learner, "FEWEST", 2)
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


@pytest.mark.parametrize(*table("updates_captured"))
def test_an_update_by_captured_passes_is_the_update(monkeypatch, family, changes):
    monkeypatch.setattr(learner, "FEWEST", 2)
    results = []
    for use in (False, True):
        model, made = tiny.model(family).double(), batch()
        made.rewards[2:4] = 0.25  # no advantages: skipped by one, computed for nothing by the other
        made.rewards[2:4] *= made.mask[2:4].cumsum(-1) == 1
        u = learning(config(**changes), model, Decoder(tiny.model(family, 1).double(), frozen=True))
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


adapters = partial(config, model__lora_rank=4, algorithm__adv_estimator="gae")


def moved(critic: Critic, seed: int = 3) -> Critic:
    """The critic with a head and an adapter that are no longer zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in critic.trained.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return critic


def values(critic: Critic) -> torch.Tensor:
    return critic.predict(Rows.of(tiny.batch(LENGTHS), torch.arange(len(LENGTHS))))


def bytes_of(*modules: torch.nn.Module) -> int:
    storages = {p.data_ptr(): p.numel() * p.element_size() for m in modules for p in m.parameters()}
    return sum(storages.values())


def test_one_base_serves_both_only_adapters_are_added_and_a_whole_critic_begins_as_the_same_function():
    policy = tiny.adapted()
    critic = Critic(policy, adapters(), Ledger())
    base = sum(p.numel() * 4 for n, p in policy.named_parameters() if "lora_" not in n)
    adapter = sum(p.numel() * 4 for n, p in policy.named_parameters() if "lora_" in n)
    head = 4 * (tiny.SHAPE["hidden_size"] + 1)
    assert bytes_of(policy, critic.module) == base + 2 * adapter + head
    whole = Critic(policy, adapters(critic__model__lora_rank=0), Ledger())
    assert bytes_of(policy, whole.module) == 2 * base + adapter + head
    assert sum(p.numel() for p in whole.trained.values()) * 4 == base + head
    saved = critic.state_dict()["weights"]  # and not the base
    assert saved.keys() == critic.trained.keys() and all("lora_" in n or "head" in n for n in saved)
    actor = Learning(adapters(), tiny.policy(policy), Ledger()).actor
    assert critic.shape.adapter_weights == actor.shape.adapter_weights
    with torch.no_grad():
        for one in (critic, whole):
            one.head.weight.copy_(torch.linspace(-1, 1, tiny.SHAPE["hidden_size"])[None])
    torch.testing.assert_close(values(critic), values(whole), atol=1e-5, rtol=1e-5)


def test_values_are_those_of_a_separate_critic_with_the_same_adapter():
    policy = tiny.adapted()
    shared = moved(Critic(policy, adapters(), Ledger()))
    alone = Critic(tiny.adapted(), adapters(), Ledger())
    alone.load_state_dict(shared.state_dict())
    assert values(shared).abs().max() > 0.1
    torch.testing.assert_close(values(shared), values(alone), rtol=0, atol=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():  # whatever the policy's adapter becomes
            if "lora_" in name:
                parameter.add_(1.0)
    torch.testing.assert_close(values(shared), values(alone), rtol=0, atol=0)


def test_neither_gradient_touches_the_other_adapter_or_the_base():
    policy = tiny.adapted()
    critic = moved(Critic(policy, adapters(), Ledger()))
    values(critic).square().sum().backward()
    assert all(p.grad is None for p in policy.parameters())
    lora = {n: p for n, p in critic.trained.items() if "lora_" in n}
    assert lora and all(p.grad is not None and p.grad.abs().sum() > 0 for p in lora.values())
    critic.module.zero_grad()
    u = Learning(adapters(actor__optim__lr=0.1), tiny.policy(policy), Ledger())
    u.critic = critic
    before: dict[str, Any] = {n: p.clone() for n, p in policy.named_parameters()}
    batch = tiny.batch(LENGTHS)
    batch.advantages = batch.returns = torch.ones_like(batch.mask)
    u.accumulate(batch, torch.arange(len(batch)))
    u.step()
    assert all(p.grad is None for p in critic.module.parameters())
    now = dict(policy.named_parameters())
    changed = {n for n in now if not torch.equal(now[n], before[n])}
    assert changed and all("lora_" in n for n in changed)


def test_the_critic_takes_a_step_for_every_mini_batch():
    c = adapters(actor__ppo_mini_batch_size=2, critic__ppo_epochs=3)
    u = Learning(c, tiny.policy(tiny.adapted()), Ledger())
    critic = u.critic
    assert critic is not None
    learn(u, tiny.batch(LENGTHS), step=1)
    assert critic.stepper.step_count == 2 * 3
    assert critic.stepper.total == c.trainer.total_training_steps * 2 * 3
