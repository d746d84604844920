"""The critic beside a LoRA policy: an adapter of its own over one frozen base."""

from functools import partial
from typing import Any

import pytest
import tiny
import torch

from rlkit.compute import Ledger
from rlkit.errors import UserError
from rlkit.training.forward import Rows
from rlkit.training.loop import learn
from rlkit.training.update import Critic, Learning

LENGTHS = [1, 9, 2, 7, 3, 3, 8, 1]


BASE = {
    "model": {"path": "ladder-30k", "lora_rank": 4}, "algorithm": {"adv_estimator": "gae"},
    "data": {"train_batch_size": 4, "max_response_length": 12}, "rollout": {"n": 2},
}  # fmt: skip
config = partial(tiny.configured, BASE)


def moved(critic: Critic, seed: int = 3) -> Critic:
    """The critic with a head and an adapter that are no longer zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in critic.trained.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return critic


def values(critic: Critic) -> torch.Tensor:
    batch = tiny.batch(LENGTHS)
    return critic.predict(Rows.of(batch, torch.arange(len(batch))))


def bytes_of(*modules: torch.nn.Module) -> int:
    storages = {p.data_ptr(): p.numel() * p.element_size() for m in modules for p in m.parameters()}
    return sum(storages.values())


def test_one_base_serves_both_and_only_adapters_are_added():
    policy = tiny.adapted()
    critic = Critic(policy, config(), Ledger())
    base = sum(p.numel() * 4 for n, p in policy.named_parameters() if "lora_" not in n)
    adapter = sum(p.numel() * 4 for n, p in policy.named_parameters() if "lora_" in n)
    head = 4 * (tiny.SHAPE["hidden_size"] + 1)
    assert bytes_of(policy, critic.module) == base + 2 * adapter + head
    whole = Critic(policy, config(critic__model__lora_rank=0), Ledger())
    assert bytes_of(policy, whole.module) == 2 * base + adapter + head
    assert sum(p.numel() for p in whole.trained.values()) * 4 == base + head
    assert set(critic.trained) == {n for n in critic.trained if "lora_" in n or "head" in n}
    actor = Learning(config(), tiny.policy(policy), Ledger()).actor
    assert critic.shape.adapter_weights == actor.shape.adapter_weights


def test_values_are_those_of_a_separate_critic_with_the_same_adapter():
    policy = tiny.adapted()
    shared = moved(Critic(policy, config(), Ledger()))
    alone = Critic(tiny.adapted(), config(), Ledger())
    alone.load_state_dict(shared.state_dict())
    assert values(shared).abs().max() > 0.1
    torch.testing.assert_close(values(shared), values(alone), rtol=0, atol=0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():  # whatever the policy's adapter becomes
            if "lora_" in name:
                parameter.add_(1.0)
    torch.testing.assert_close(values(shared), values(alone), rtol=0, atol=0)


def test_a_whole_critic_is_the_same_function_before_anything_trains():
    policy = tiny.adapted()
    adapter = Critic(policy, config(), Ledger())
    whole = Critic(policy, config(critic__model__lora_rank=0), Ledger())
    with torch.no_grad():
        for critic in (adapter, whole):
            critic.head.weight.copy_(torch.linspace(-1, 1, tiny.SHAPE["hidden_size"])[None])
    torch.testing.assert_close(values(adapter), values(whole), atol=1e-5, rtol=1e-5)


def test_neither_gradient_touches_the_other_adapter_or_the_base():
    policy = tiny.adapted()
    critic = moved(Critic(policy, config(), Ledger()))
    values(critic).square().sum().backward()
    assert all(p.grad is None for p in policy.parameters())
    lora = {n: p for n, p in critic.trained.items() if "lora_" in n}
    assert lora and all(p.grad is not None and p.grad.abs().sum() > 0 for p in lora.values())
    critic.module.zero_grad()
    u = Learning(config(actor__optim__lr=0.1), tiny.policy(policy), Ledger())
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


def test_an_adapter_needs_a_frozen_base():
    with pytest.raises(UserError, match="critic.model.lora_rank is 8, but the policy trains all weights"):
        config(critic__model__lora_rank=8, model__lora_rank=0)


def test_a_checkpoint_holds_what_trains_and_not_the_base():
    saved = Critic(tiny.adapted(), config(), Ledger()).state_dict()["weights"]
    assert saved and all("lora_" in n or "head" in n for n in saved)


def test_the_critic_takes_a_step_for_every_mini_batch():
    c = config(actor__ppo_mini_batch_size=2, critic__ppo_epochs=3)
    u = Learning(c, tiny.policy(tiny.adapted()), Ledger())
    critic = u.critic
    assert critic is not None
    learn(u, tiny.batch(LENGTHS), step=1)
    assert critic.stepper.step_count == 2 * 3
    assert critic.stepper.total == c.trainer.total_training_steps * 2 * 3
