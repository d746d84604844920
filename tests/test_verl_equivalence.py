"""The same rollouts give the same advantages and losses in the local trainer and in verl's."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from cases import cases
from test_verl_config import composed
from transformers import AutoConfig

from rlkit.config import RunConfig
from rlkit.models.ladder import build_ladder_model, byte_tokenizer, ladder_config
from rlkit.training import algorithms
from rlkit.types import Batch

LENGTHS = [3, 5, 2, 4, 6, 1, 4, 3]


def config(**sections: Any) -> RunConfig:
    sections = {"rollout": {"n": 2}, "data": {"train_batch_size": 4, "max_response_length": 6}, **sections}
    return RunConfig.model_validate({**sections, "trainer": {"backend": "verl"}})


def rollouts(observed: bool = False) -> Batch:
    """A graded batch; `observed`: the second token of every longer response is an observation."""
    batch = tiny.batch(LENGTHS, group_size=2)
    generator = torch.Generator().manual_seed(1)

    def noise(scale: float) -> torch.Tensor:
        return torch.randn(batch.mask.shape, generator=generator) * scale

    if observed:
        batch.mask[torch.tensor(LENGTHS) > 2, 1] = 0
    batch.values = noise(1.0) * batch.attention
    batch.old_logprobs = (-1 - noise(0.3).abs()) * batch.mask
    batch.ref_logprobs = (batch.old_logprobs + noise(0.2)) * batch.mask
    return batch


def verl_advantages(batch: Batch, c: RunConfig) -> tuple[torch.Tensor, torch.Tensor]:
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    assert batch.values is not None
    tensors = {"token_level_rewards": batch.rewards, "response_mask": batch.mask, "values": batch.values}
    groups = np.array([str(g) for g in batch.prompt_index.tolist()], dtype=object)
    data = DataProto.from_dict(tensors, non_tensors={"uid": groups})
    a = composed(c).algorithm
    done = compute_advantage(
        data, adv_estimator=a.adv_estimator, gamma=a.gamma, lam=a.lam, num_repeat=c.rollout.n,
        norm_adv_by_std_in_grpo=a.norm_adv_by_std_in_grpo, config=a,
    )  # fmt: skip
    return done.batch["advantages"], done.batch["returns"]


@pytest.mark.parametrize("observed", [False, True], ids=["answers", "episodes"])
@pytest.mark.parametrize("algorithm", [row for (row,) in cases("verl_estimators")], ids=str)
def test_advantages(algorithm, observed):
    c, batch = config(algorithm=algorithm), rollouts(observed)
    ours, our_returns = algorithms.advantages(batch, c)
    theirs, their_returns = verl_advantages(batch, c)
    assert ours.abs().max() > 0.1
    torch.testing.assert_close(ours, theirs * batch.mask)  # verl multiplies by the mask in its losses
    torch.testing.assert_close(our_returns, their_returns * batch.mask)


def verl_loss(batch: Batch, logprobs: torch.Tensor, c: RunConfig) -> torch.Tensor:
    """verl's loss of a mini-batch, from the packed sequences that its trainer holds."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    def packed(tensor: torch.Tensor | None) -> torch.Tensor:
        assert tensor is not None
        rows = [row[:length] for row, length in zip(tensor, LENGTHS, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    prompt = batch.prompt_ids[batch.prompt_index]
    width = prompt.shape[1]
    fields = {
        "prompts": torch.nested.as_nested_tensor(list(prompt), layout=torch.jagged),
        "responses": packed(batch.response_ids),
        "response_mask": packed(batch.mask),
        "old_log_probs": packed(batch.old_logprobs),
        "ref_log_prob": packed(batch.ref_logprobs),
        "advantages": packed(batch.advantages),
    }
    data = TensorDict(fields, batch_size=[len(LENGTHS)])
    sizes = {"batch_num_tokens": int(batch.mask.sum()), "global_batch_size": len(LENGTHS)}
    tu.assign_non_tensor(data, dp_size=1, **sizes)
    shifted = [  # the log-prob of a token stands where the token before it is the input
        torch.cat([torch.zeros(width - 1), row[:length], torch.zeros(1)])
        for row, length in zip(logprobs, LENGTHS, strict=True)
    ]
    output = {"log_probs": torch.nested.as_nested_tensor(shifted, layout=torch.jagged)}
    loss, _ = ppo_loss(omega_conf_to_dataclass(composed(c).actor_rollout_ref.actor), output, data)
    return loss


def local_loss(batch: Batch, logprobs: torch.Tensor, c: RunConfig, parts: int) -> torch.Tensor:
    """The local trainer's, summed over `parts` micro-batches."""
    assert batch.old_logprobs is not None and batch.advantages is not None and batch.ref_logprobs is not None
    scale = algorithms.denominators(batch.mask, c.actor, c.data.max_response_length)
    total = torch.zeros(())
    for rows in torch.arange(len(LENGTHS)).chunk(parts):
        loss, _ = algorithms.policy_loss(
            c.actor, c.rollout.n, scale, log_prob=logprobs[rows], old_log_prob=batch.old_logprobs[rows],
            advantages=batch.advantages[rows], response_mask=batch.mask[rows], rollout_is_weights=None,
        )  # fmt: skip
        if c.actor.use_kl_loss:
            kl = algorithms.core().kl_penalty(logprobs[rows], batch.ref_logprobs[rows], c.actor.kl_loss_type)
            loss = loss + c.actor.kl_loss_coef * algorithms.aggregate(c.actor, scale, kl, batch.mask[rows])
        total = total + loss
    return total


@pytest.mark.parametrize("actor", [row for (row,) in cases("verl_losses")], ids=str)
def test_losses_and_gradients(actor):
    c, batch = config(actor=actor), rollouts()
    batch.advantages, _ = algorithms.advantages(batch, c)
    assert batch.old_logprobs is not None
    generator = torch.Generator().manual_seed(2)
    moved = batch.old_logprobs + 0.3 * torch.randn(batch.mask.shape, generator=generator) * batch.mask
    results = []
    local = (partial(local_loss, batch, c=c, parts=parts) for parts in (1, 4))
    for loss_of in (*local, partial(verl_loss, batch, c=c)):
        logprobs = moved.clone().requires_grad_()
        loss = loss_of(logprobs)
        loss.backward()
        assert logprobs.grad is not None
        results.append((loss.detach(), logprobs.grad * batch.mask))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-6, rtol=1e-5)
    assert results[0][1].abs().max() > 1e-4


def test_the_ladder_has_no_token_that_vllm_never_samples():
    assert ladder_config("ladder-10k").vocab_size == len(byte_tokenizer())


def test_verl_s_critic_starts_at_zero_without_flash_attn(tmp_path, monkeypatch):
    import verl.utils.model

    monkeypatch.setattr(verl.utils.model, "load_valuehead_model", verl.utils.model.load_valuehead_model)
    import rlkit.verl.worker_start as ours

    assert verl.utils.model.load_valuehead_model is ours.load_valuehead_model  # as in verl's own processes
    built: Any = build_ladder_model("ladder-10k", 0)
    built.save_pretrained(tmp_path)
    hf = AutoConfig.from_pretrained(tmp_path, attn_implementation="sdpa")
    hf.num_labels, hf.classifier_dropout = 1, 0.0  # as verl's engine sets them
    critic = ours.load_valuehead_model(str(tmp_path), torch.float32, hf, trust_remote_code=False)
    values = critic(torch.tensor([[1, 2, 3]])).logits
    assert values.shape == (1, 3, 1) and values.abs().max() == 0
    torch.testing.assert_close(critic.model.embed_tokens.weight, built.model.embed_tokens.weight)
