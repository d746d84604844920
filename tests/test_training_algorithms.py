"""The adapter to verl: denominators, masks, groups, and estimators, of turns too, against enumeration."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import tiny
import torch
from cases import table

from rlkit.compute import Ledger
from rlkit.config import Optimizer, RunConfig
from rlkit.config.algorithm import ESTIMATORS
from rlkit.models.decoder import Decoder
from rlkit.training import algorithms
from rlkit.training.batches import mini_batches
from rlkit.training.checks import LOSSES as KNOWN_LOSSES
from rlkit.training.checks import NEEDS_OTHER_INPUTS, UNSPLITTABLE, check_algorithm, problems
from rlkit.training.loop import learn
from rlkit.training.optimizer import Stepper, learning_rate, schedule
from rlkit.training.update import Learning

SPLITTABLE = ["gspo", "cispo", "gpg", "sapo", "dppo_tv", "dppo_kl", "dro"]
MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
LENGTHS = [1, 9, 2, 7, 3, 3, 8, 1]


BASE = {
    "data": {"train_batch_size": 4, "max_response_length": 12}, "rollout": {"n": 2}, "model": {"path": "ladder-30k"},
}  # fmt: skip
config = partial(tiny.configured, BASE)


def learning(c: RunConfig, model=None, reference=None) -> Learning:
    made = Learning(c, tiny.policy(model or tiny.model()), Ledger())
    made.reference = reference
    return made


def keep_gradients(u: Learning, model) -> dict[str, torch.Tensor]:
    """Filled with the accumulated gradient of a mini-batch, instead of the optimizer's step."""
    kept = {}
    u.actor.stepper.step = lambda: (
        kept.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        or (torch.zeros(()), 0.0)
    )
    return kept


def gradient(batch=None, reference=None, **changes) -> dict[str, torch.Tensor]:
    """The accumulated gradient of one mini-batch, before the optimizer takes it."""
    model = tiny.model().double()  # float64: a wrong denominator is no rounding error
    u = learning(config(**changes), model, reference)
    kept = keep_gradients(u, model)
    learn(u, batch or tiny.batch(LENGTHS), step=1)
    assert kept and all(g.isfinite().all() for g in kept.values())
    return kept


@pytest.mark.parametrize(("loss", "mode", "terms"), [
    *(("vanilla", mode, {}) for mode in MODES), *((loss, "token-mean", {}) for loss in SPLITTABLE),
    ("vanilla", "token-mean", {"use_kl_loss": True, "kl_loss_coef": 0.5, "entropy_coeff": 0.1}),
])  # fmt: skip
def test_the_gradient_does_not_depend_on_the_micro_batch(loss, mode, terms):
    reference = Decoder(tiny.model(seed=7).double(), frozen=True) if terms else None
    actor = {"loss_agg_mode": mode, "policy_loss": {"loss_mode": loss, "dro_beta": 0.1}, **terms}
    one, *split = (gradient(reference=reference, actor=actor | {"ppo_micro_batch_size": size}) for size in (0, 1, 3))
    assert max(g.abs().max() for g in one.values()) > 1e-4
    for found in split:
        torch.testing.assert_close(found, one, atol=1e-6, rtol=0)


@pytest.mark.parametrize("loss", sorted(UNSPLITTABLE))
def test_a_loss_that_cannot_be_split_is_not_split_by_tokens(loss):
    small = {"actor__policy_loss__loss_mode": loss, "actor__micro_batch_tokens": 8}  # for two sequences
    check_algorithm(config(**small))
    whole = gradient(actor__policy_loss__loss_mode=loss)
    torch.testing.assert_close(gradient(**small), whole, atol=1e-6, rtol=0)


def test_a_fully_masked_sequence_changes_neither_loss_nor_gradient():
    plain = tiny.batch([3, 5, 2, 4])
    more = tiny.batch([3, 5, 2, 4, 5, 5])
    for name in ("response_ids", "rewards", "mask", "attention", "sampler_logprobs"):
        getattr(more, name)[:4] = getattr(plain, name)
    more.prompt_ids[:2] = plain.prompt_ids
    more.mask[4:] = 0
    more.rewards[4:] = 0
    for mode in MODES:
        a, b = (gradient(batch, actor__loss_agg_mode=mode) for batch in (plain, more))
        plain.old_logprobs = plain.advantages = more.advantages = None
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


LOSSES = sorted(set(algorithms.core().POLICY_LOSS_REGISTRY) - set(NEEDS_OTHER_INPUTS))


@pytest.mark.parametrize("loss", LOSSES)
def test_sequences_of_zero_advantage_are_skipped_without_changing_the_gradient(monkeypatch, loss):
    batch = tiny.batch(LENGTHS)
    batch.rewards[2:] = 0  # three of four groups have equal rewards
    changes = {"actor__policy_loss": {"loss_mode": loss, "dro_beta": 0.1}}
    skipped = gradient(batch, **changes)
    monkeypatch.setattr(algorithms, "ZERO_ADVANTAGE_IS_ZERO_GRADIENT", set())
    torch.testing.assert_close(skipped, gradient(batch, **changes), atol=1e-7, rtol=1e-6)


def advantages(batch, **algorithm):
    return algorithms.advantages(batch, config(algorithm=algorithm))


@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize(*table("grpo_groups"))
def test_grpo_is_verls_bit_by_bit_whatever_the_groups_look_like(group, by_std):
    generator = torch.Generator().manual_seed(len(group))
    batch = tiny.batch([3] * len(group))
    batch.prompt_index = torch.tensor(group)
    batch.rewards[:, 2] = torch.rand(len(group), generator=generator).round(decimals=1)
    verls = algorithms.core().compute_grpo_outcome_advantage
    expected, _ = verls(batch.rewards.clone(), batch.mask, np.array(group), norm_adv_by_std_in_grpo=by_std)
    found, returns = advantages(batch, norm_adv_by_std_in_grpo=by_std)
    assert torch.equal(found, expected * batch.mask) and torch.equal(returns, found)


def test_garbage_values_behind_the_mask_change_no_advantage():
    gae: dict = dict(adv_estimator="gae", gamma=0.9, lam=0.7)
    batch = tiny.batch([4, 2])
    batch.values = torch.rand(2, 4)
    clean = advantages(batch, **gae)[0]
    batch.values[1, 2:] = 100.0
    assert torch.equal(advantages(batch, **gae)[0], clean)


def test_remax_subtracts_the_greedy_reward():
    batch = tiny.batch([2, 2], group_size=2)
    batch.rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    batch.baselines = torch.tensor([0.25, 0.25])
    a, _ = advantages(batch, adv_estimator="remax")
    assert a[:, 0].tolist() == pytest.approx([0.75, -0.25])


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"gdpo", "tir_optimal_token_baseline"}))
def test_advantages_are_zero_exactly_where_nothing_was_sampled(name):
    batch = tiny.batch([4, 2, 3, 1])
    batch.mask[0, 1] = 0  # an observation
    batch.values = torch.rand(4, 4)
    batch.old_logprobs = batch.sampler_logprobs
    batch.baselines, batch.sum_pi_squared = torch.rand(4), torch.rand(4, 4)
    a, r = advantages(batch, adv_estimator=name)
    assert (a[batch.mask == 0] == 0).all() and (r[batch.mask == 0] == 0).all()
    assert torch.isfinite(a).all() and a.abs().max() > 0


def test_the_names_that_are_known_without_verl_are_those_that_it_registers():
    registries = algorithms.core().ADV_ESTIMATOR_REGISTRY, algorithms.core().POLICY_LOSS_REGISTRY
    registered = [{str(getattr(key, "value", key)) for key in registry} for registry in registries]
    assert registered[0].issuperset(ESTIMATORS) and registered[1].issuperset(KNOWN_LOSSES)


def test_the_expected_reinforce_gradient_equals_the_gradient_of_the_expected_reward():
    """All 25 two-token responses of a 5-token policy, weighted by their probability: the mean of the
    gradient estimates is the gradient of the expected reward, through prompts, masks and temperature."""
    temperature, reward_of = 1.3, lambda a, b: float(a == 2) + 0.5 * float(b == 4)
    c = config(rollout__temperature=temperature, actor__loss_agg_mode="token-sum", algorithm__adv_estimator="remax")
    responses = np.array(list(itertools.product(range(5), repeat=2)))
    prompt = np.array([1, 2, 3])
    model = tiny.model(vocab_size=5)
    logp = torch.stack([tiny.reference_logprobs(model, prompt, r, temperature).sum() for r in responses])
    rewards = torch.tensor([reward_of(*r) for r in responses])
    exact = torch.autograd.grad((logp.exp() * rewards).sum(), list(model.parameters()), allow_unused=True)

    batch = tiny.batch([2] * 25, group_size=25)
    batch.prompt_ids, batch.prompt_mask = torch.from_numpy(prompt)[None], torch.ones(1, 3, dtype=torch.bool)
    batch.response_ids, batch.baselines = torch.from_numpy(responses), torch.zeros(25)
    batch.rewards[:, 1] = rewards * logp.exp().detach()  # weights of the expectation
    model = tiny.model(vocab_size=5)
    u = learning(c, model)
    kept = keep_gradients(u, model)
    learn(u, batch, step=1)
    torch.testing.assert_close(list(kept.values()), [-e for e in exact], atol=1e-6, rtol=1e-4)


def test_truncated_importance_weights_are_capped_ratios():
    old, mask = torch.tensor([[0.0, -1.0, 5.0], [0.1, 0.2, 9.0]]), torch.tensor([[1.0, 1, 1], [1, 1, 0]])
    found = {}
    for level in ("token", "sequence"):
        correction = config(algorithm__rollout_correction={"rollout_is": level}).algorithm.rollout_correction
        found[level] = algorithms.importance_weights(old, torch.zeros(2, 3), mask, correction)
    assert found["token"] is not None and found["sequence"] is not None
    assert found["token"][0].tolist() == pytest.approx([1.0, np.exp(-1), 2.0])
    assert found["sequence"].tolist() == [pytest.approx([2.0] * 3), pytest.approx([np.exp(0.3)] * 3)]
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights as verls

    for level, weights in found.items():
        theirs, _ = verls(old, mask, level, 2.0)
        assert torch.equal(weights * mask, theirs * mask)
    capped = config(algorithm__rollout_correction=1.5).algorithm.rollout_correction
    assert (capped.rollout_is, capped.rollout_is_threshold) == ("token", 1.5)


@pytest.mark.parametrize("loss", ["vanilla", "cispo", "gpg"])
def test_the_mean_over_prompts_gives_each_prompt_the_same_weight(loss):
    parts = []
    for i in range(4):
        alone = tiny.batch(LENGTHS)
        alone.mask = alone.mask * (alone.prompt_index == i)[:, None]
        parts.append(gradient(alone, actor__policy_loss__loss_mode=loss))
    actor = {"policy_loss": {"loss_mode": loss}, "loss_agg_mode": "prompt-mean-token-mean"}
    for name, g in gradient(actor=actor | {"ppo_micro_batch_size": 3}).items():
        torch.testing.assert_close(g, sum(part[name] for part in parts) / 4, atol=1e-7, rtol=1e-6)


def test_advantages_are_divided_by_the_deviation_of_the_batch():
    batch = tiny.batch([2, 1, 3, 2])
    batch.rewards[:] = 0
    batch.rewards[:, 0] = torch.tensor([0.0, 1.0, 0.0, 10.0])
    a, _ = advantages(batch, norm_adv_by_std_in_batch=True)
    centred = torch.tensor([-0.5, 0.5, -5.0, 5.0])
    assert a[:, 0].tolist() == pytest.approx((centred / centred.std()).tolist(), abs=1e-5)


def test_ppo_epochs_and_mini_batches_take_their_steps_and_cover_every_group():
    c = config(actor__ppo_mini_batch_size=2, actor__ppo_epochs=3)
    u, batch = learning(c), tiny.batch(LENGTHS)
    seen = [rows.tolist() for rows in mini_batches(batch, c, step=1, epochs=3)]
    assert len(seen) == 6
    for epoch in range(3):
        assert sorted(seen[2 * epoch] + seen[2 * epoch + 1]) == list(range(8))
    metrics = learn(u, batch, step=1)
    assert u.ledger.optimizer_steps == 6 == u.actor.stepper.step_count
    assert metrics["actor/ppo_kl"] != 0  # later steps are off-policy


def test_learning_rates_follow_warm_up_schedule_and_size():
    rule = Optimizer(lr=1e-3, lr_reference_params=1e5, lr_exponent=-0.5)
    assert learning_rate(rule, 4e5) == pytest.approx(5e-4)
    cosine = Optimizer(lr=1e-3, lr_warmup_steps=2, lr_scheduler_type="cosine", min_lr_ratio=0.1)
    stepper = Stepper(torch.nn.Linear(1, 1), cosine, 1e5, total=10)
    rates = [stepper.step()[1] for _ in range(10)]
    expected = [0.0, 5e-4] + [1e-3 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * k / 8))) for k in range(8)]
    assert rates == pytest.approx(expected)
    assert schedule(Optimizer(lr_scheduler_type="cosine"), 1, 1) == 1.0  # a run of one step learns
    assert schedule(Optimizer(lr_warmup_steps=10), 10, 10) == 0.9  # warm-up as long as the run


def test_float16_steps_by_scaled_gradients_and_none_steps_by_those_that_overflow():
    def trained(dtype: str, scales: list[float]) -> tuple[torch.Tensor, list[float], Stepper]:
        """The weight, and the loss's scale after each step; an infinite factor overflows."""
        torch.manual_seed(0)
        layer, seen = torch.nn.Linear(3, 1, bias=False), []
        stepper = Stepper(layer, Optimizer(lr=0.1, clip_grad=0.5), 1e5, 10, dtype)
        for factor in scales:
            stepper.backward(layer(torch.ones(2, 3)).square().mean() * factor)
            stepper.step()
            seen.append(stepper.scale().get("actor/loss_scale", 1.0))
        return layer.weight.detach(), seen, stepper

    plain, ones, _ = trained("float32", [1e-3, 2e-3])
    dropped, _, _ = trained("float32", [1e-3, math.inf, 2e-3])
    assert torch.equal(dropped, plain)  # a gradient that is not finite is no step, in any precision
    scaled, seen, stepper = trained("float16", [1e-3, math.inf, 2e-3])
    torch.testing.assert_close(scaled, plain)  # as if the second step had not been
    assert (ones, seen) == ([1.0, 1.0], [2.0**16, 2.0**15, 2.0**15])
    other = trained("float16", [1e-3])[2]
    other.load_state_dict(stepper.state_dict())
    assert other.scale() == stepper.scale() == {"actor/loss_scale": 2.0**15}


@pytest.mark.parametrize(*table("gradients_told"))
def test_gradients_that_train_nothing_are_told(metrics, words):
    told = [sentence for _, sentence in problems(metrics, config(), 1)]
    assert [words in sentence for sentence in told] == [True] if words else told == []


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_adapters_dropout_is_on_in_the_update_alone(monkeypatch, dropout):
    model, modes = tiny.adapted(), []
    u = learning(config(model__lora_rank=4, model__lora_dropout=dropout), model)
    backward = u.actor.stepper.backward
    monkeypatch.setattr(u.actor.stepper, "backward", lambda loss: modes.append(model.training) or backward(loss))
    learn(u, tiny.batch(LENGTHS), step=1)
    assert modes and all(mode is (dropout > 0) for mode in modes) and not model.training


def test_old_configs_are_read():
    older = {"rollout__top_p": 1.0, "rollout__top_k": 0, "data__max_epochs": 0}
    assert config(**older, reward__scorer="strict", reward__env_vars=[]).id == config().id
    assert config(algorithm__rollout_correction=0.0).id == config().id
    given = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    assert config(algorithm__rollout_correction=2.0).id == config(algorithm__rollout_correction=given).id


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_gae_over_turns_with_exact_values_points_along_the_exact_policy_gradient(lam):
    """Over all episodes of a world of two binary turns under the even policy, of the expected return in six logits: of
    the first turn, and of the second after either first action."""
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    first, second = {0: 1.0, 1: -0.5}, {(0, 0): 0.0, (0, 1): 2.0, (1, 0): 4.0, (1, 1): -1.0}
    logprobs, episodes = logits.log_softmax(-1), list(itertools.product((0, 1), repeat=2))
    chances = torch.stack([(logprobs[0, a] + logprobs[1 + a, b]).exp() for a, b in episodes])
    earned = torch.tensor([first[a] + second[a, b] for a, b in episodes])
    (exact,) = torch.autograd.grad((chances * earned).sum(), logits, retain_graph=True)
    mask = torch.tensor([[1.0, 1, 0, 1]] * 4)  # the first turn has two tokens
    rewards = torch.tensor([[0, first[a], 0, second[a, b]] for a, b in episodes])
    values = torch.tensor([[1.875, 9.0, 9.0, 1.0 if a == 0 else 1.5] for a, b in episodes])
    values[:, 0] = 0.5 * (1.0 + 1.0) + 0.5 * (-0.5 + 1.5)  # of the start: rewards and what follows
    advantages, targets = algorithms.turn_gae(rewards, values, mask, 1.0, lam)
    terms = [
        0.25 * (advantages[i, 0].double() * logprobs[0, a] + advantages[i, 3].double() * logprobs[1 + a, b])
        for i, (a, b) in enumerate(episodes)
    ]
    (ours,) = torch.autograd.grad(torch.stack(terms).sum(), logits)
    assert torch.cosine_similarity(ours.flatten(), exact.flatten(), dim=0) == pytest.approx(1.0, abs=1e-6)
    if lam == 1.0:  # targets are the returns from each turn on, on all of its tokens
        assert targets[:, 0].tolist() == pytest.approx([1, 3, 3.5, -1.5])
        assert targets[:, 1].tolist() == targets[:, 0].tolist()
        assert targets[:, 3].tolist() == pytest.approx([0, 2, 4, -1])


def test_gae_over_turns_of_one_token_is_verls_gae():
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1.0, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0]])
    rewards, values = (torch.randn(2, 6, generator=generator) * mask for _ in range(2))
    ours = algorithms.turn_gae(rewards, values, mask, 0.9, 0.8)
    verl = algorithms.core().get_adv_estimator_fn("gae")(rewards, values, mask, 0.9, 0.8)
    for mine, theirs in zip(ours, verl, strict=True):
        assert torch.allclose(mine * mask, theirs * mask, atol=1e-6)
