"""What a run learns with: policy, reference and critic, and the parts of a step that `loop.learn` calls in order."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlkit.compute import Ledger
from rlkit.config import RunConfig
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels, kernels_for
from rlkit.models.loading import Policy, add_lora, base_of
from rlkit.models.logprobs import squared_probabilities
from rlkit.models.shapes import captures
from rlkit.seeds import derive
from rlkit.training import algorithms
from rlkit.training.batches import mini_batches
from rlkit.training.checks import UNSPLITTABLE
from rlkit.training.learner import CapturedPasses, Learner, Rows, token_logprobs
from rlkit.types import Batch


class Critic(Learner):
    """V(s) before each response token, from the state that the token is drawn from, by a `critic_model` and a head
    that starts at zero: the first advantages are the rewards."""

    def __init__(self, policy: Any, config: RunConfig, ledger: Ledger, kernels: Kernels = EAGER) -> None:
        rank = config.critic.model.lora_rank
        model = critic_model(policy, config, config.model.lora_rank if rank is None else rank)
        self.head = nn.Linear(base_of(model).config.hidden_size, 1, device=base_of(model).device)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)
        self.config, self.module = config, nn.ModuleDict({"model": model, "head": self.head})
        super().__init__(self.module, model, config, config.critic, ledger, "critic", kernels)
        self.shape = replace(self.shape, vocab=1)  # one value for a vocabulary

    def predict(self, rows: Rows) -> Tensor:
        """(b, t) values; zero where there is no token."""
        return rows.layout.padded(self.head(rows.states(self.decoder).float())[:, 0])

    def values(self, batch: Batch) -> Tensor:
        """(B, T) values of a batch."""
        return self.padded(batch, self.predict, "critic")

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """Fit the values to `batch.returns`, in the mini-batches of the policy's update; returns metrics."""
        targets, old = batch.returns, batch.values
        assert targets is not None and old is not None
        c, minis = self.config, list(mini_batches(batch, self.config, step, self.config.critic.ppo_epochs))
        losses, norm, rate = list[Tensor](), torch.zeros(()), 0.0
        for rows in minis:
            scale = algorithms.denominators(batch.mask[rows], c.actor, c.data.max_response_length)

            def loss(part: Rows, scale: dict[str, int] = scale) -> tuple[Tensor, Tensor]:
                value, _ = algorithms.core().compute_value_loss(
                    vpreds=self.predict(part), returns=part.cut(targets), values=part.cut(old), **scale,
                    response_mask=part.cut(batch.mask), cliprange_value=c.critic.cliprange_value,
                )  # fmt: skip
                return value, value.detach()

            losses += self.accumulate(batch, rows, loss)
            norm, rate = self.stepper.step()
        sampled = batch.mask > 0
        returns, values = targets[sampled], old[sampled]
        residual, variance = (returns - values).var(unbiased=False), returns.var(unbiased=False)
        residual, variance, *each = torch.stack([residual, variance, *losses]).tolist()
        explained = 1 - residual / variance if variance > 0 else float("nan")
        return {
            "critic/vf_loss": sum(each) / len(minis), "critic/grad_norm": norm, "critic/lr": rate,
            "critic/values/mean": values.mean(), "critic/returns/mean": returns.mean(),
            "critic/vf_explained_var": explained,
        }  # fmt: skip


class Learning:
    """The policy in training (`actor`), its critic and KL controller, and its `reference`, which is None where no KL to
    it is asked for: a copy of the first weights, or the same decoder with the adapter switched off."""

    def __init__(self, config: RunConfig, policy: Policy, ledger: Ledger) -> None:
        model: Any = policy.model
        self.config, self.model, self.ledger = config, model, ledger
        self.kl = algorithms.core().get_kl_controller(config.algorithm.kl_ctrl)
        size, on_gpu = sum(p.numel() for p in model.parameters()), policy.device.type == "cuda"
        kernels = kernels_for(config, on_gpu, size)
        self.actor = Learner(model, model, config, config.actor, ledger, "update", kernels)
        self.critic = Critic(model, config, ledger, kernels) if config.algorithm.needs.critic else None
        self.reference, self.without_adapter = None, getattr(model, "disable_adapter", nullcontext)
        if config.actor.use_kl_loss or config.algorithm.use_kl_in_reward:
            adapted = hasattr(model, "disable_adapter")
            self.reference = self.actor.decoder if adapted else Decoder(model, frozen=True, kernels=kernels)
        self.settings = config.rollout.temperature, bool(config.actor.entropy_coeff)
        if captures(config, on_gpu, size):
            self.actor.captured = CapturedPasses(self.actor.decoder, *self.settings)

    def old_logprobs(self, batch: Batch) -> Tensor | None:
        """(B, T) log-probs of the policy that sampled; None where the update's only forward pass has them."""
        c = self.config
        several = c.mini_batches > 1 or c.actor.ppo_epochs > 1
        asked = several or c.algorithm.use_kl_in_reward or c.algorithm.needs.sum_pi_squared
        return self._logprobs(batch, self.actor.decoder, "old_log_prob") if asked else None

    def ref_logprobs(self, batch: Batch) -> Tensor | None:
        """(B, T) log-probs of the reference policy, where there is one."""
        if self.reference is None:
            return None
        with self.without_adapter():
            return self._logprobs(batch, self.reference, "ref")

    def _logprobs(self, batch: Batch, decoder: Decoder, phase: str) -> Tensor:
        return self.actor.padded(batch, lambda part: token_logprobs(decoder, part, *self.settings)[0], phase)

    def sum_pi_squared(self, batch: Batch) -> Tensor | None:
        """(B, T) squared probabilities summed over the vocabulary, where the estimator asks for them."""
        if not self.config.algorithm.needs.sum_pi_squared:
            return None
        decoder, temperature = self.actor.decoder, self.config.rollout.temperature

        def squares(part: Rows) -> Tensor:
            found = squared_probabilities(part.states(decoder), decoder.head_weight, temperature)
            return part.layout.padded(found)

        return self.actor.padded(batch, squares, "old_log_prob")

    def rewards_less_kl(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Token rewards (B, T) less the KL penalty, if any, and its metrics; the mean is over sequences, as in verl."""
        if not self.config.algorithm.use_kl_in_reward:
            return batch.rewards, {}
        assert batch.old_logprobs is not None and batch.ref_logprobs is not None
        kl = algorithms.core().kl_penalty(batch.old_logprobs, batch.ref_logprobs, self.config.algorithm.kl_penalty)
        kl, coefficient = kl * batch.mask, float(self.kl.value)
        mean = float((kl.sum(-1) / (batch.mask.sum(-1) + 1e-8)).mean())
        self.kl.update(current_kl=mean, n_steps=len(batch))
        metrics = {"actor/reward_kl_penalty": mean, "actor/reward_kl_penalty_coeff": coefficient}
        return batch.rewards - coefficient * kl, metrics

    def accumulate(self, batch: Batch, rows: Tensor) -> list[dict[str, Any]]:
        """Form the policy's gradient of a mini-batch, the `rows` of the batch; numbers of each pass."""
        actor, dropout = self.config.actor, bool(self.config.model.lora_dropout)
        scale = algorithms.denominators(batch.mask[rows], actor, self.config.data.max_response_length)
        weights = torch.ones_like(batch.mask[:, :1])
        if actor.loss_agg_mode == "prompt-mean-token-mean":
            weights[rows] = algorithms.prompt_weights(batch.mask[rows], batch.prompt_index[rows])
        if dropout:  # all that a mode changes here; setting it visits every module
            self.model.train()
        numbers = self.actor.accumulate(
            batch, rows, lambda part: self._loss(batch, part, scale, weights),
            needed=self._needed(batch, rows), whole=actor.policy_loss.loss_mode in UNSPLITTABLE,
        )  # fmt: skip
        if dropout:
            self.model.eval()
        return numbers

    def step(self) -> dict[str, Any]:
        """An optimizer step of the policy; the gradient's norm, on its device, and the learning rate."""
        norm, rate = self.actor.stepper.step()
        self.ledger.optimizer_steps += 1
        return {"actor/grad_norm": norm, "actor/lr": rate} | self.actor.stepper.scale()

    def _needed(self, batch: Batch, rows: Tensor) -> Tensor:
        """Rows whose loss can have a gradient: of zero advantage none, without other terms. Denominators count all."""
        actor = self.config.actor
        always = actor.use_kl_loss or actor.entropy_coeff or self.critic is not None
        if always or actor.policy_loss.loss_mode not in algorithms.ZERO_ADVANTAGE_IS_ZERO_GRADIENT:
            return rows
        assert batch.advantages is not None
        return rows[(batch.advantages[rows] != 0).any(-1)]

    def _loss(self, batch: Batch, part: Rows, scale: dict[str, int], weights: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """A pass's share of the loss, in which tokens of a sequence count by `weights` (B, 1); and its numbers."""
        c, actor, weight = self.config, self.config.actor, weights[part.rows]
        mask, sampled = part.cut(batch.mask), part.cut(batch.sampler_logprobs)
        if part.counted is not None and self.actor.captured is not None:
            mask = mask * part.counted
            logprobs, entropy = self.actor.captured(part)
        else:
            logprobs, entropy = token_logprobs(self.actor.decoder, part, *self.settings)
        old = logprobs.detach() if batch.old_logprobs is None else part.cut(batch.old_logprobs)
        assert batch.advantages is not None
        loss, numbers = algorithms.policy_loss(
            actor, c.rollout.n, scale, log_prob=logprobs, old_log_prob=old,
            advantages=part.cut(batch.advantages) * weight, response_mask=mask,
            rollout_is_weights=algorithms.importance_weights(old, sampled, mask, c.algorithm.rollout_correction),
        )  # fmt: skip
        numbers |= {"tokens": mask.sum(), "actor/pg_loss": loss.detach()}
        if actor.entropy_coeff:
            loss = loss - actor.entropy_coeff * algorithms.aggregate(actor, scale, entropy * weight, mask)
        by_token = {"actor/entropy": entropy.detach(), "policy/logprob_gap": (old - sampled).abs()}
        if batch.ref_logprobs is not None:
            ref = part.cut(batch.ref_logprobs)
            by_token["actor/kl_ref"] = logprobs.detach() - ref  # k1: unbiased, not clamped
            if actor.use_kl_loss:
                kl = algorithms.core().kl_penalty(logprobs, ref, actor.kl_loss_type) * weight
                kl = algorithms.aggregate(actor, scale, kl, mask)
                numbers["actor/kl_loss"] = kl.detach()
                loss = loss + actor.kl_loss_coef * kl
        return loss, numbers | {name: (values * mask).sum() for name, values in by_token.items()}

    @property
    def optimizer_steps(self) -> int:
        """Steps that the policy's and the critic's optimizer have taken."""
        return self.actor.stepper.step_count + (self.critic.stepper.step_count if self.critic else 0)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds beside the policy's weights: optimizers, KL coefficient, critic."""
        policy = {"actor": self.actor.stepper.state_dict(), "kl_coef": float(self.kl.value)}
        return {"updater": policy, "critic": self.critic and self.critic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.stepper.load_state_dict(state["updater"]["actor"])
        self.kl.value = state["updater"]["kl_coef"]
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])


def critic_model(policy: Any, config: RunConfig, rank: int) -> Any:
    """A fresh adapter of this rank over the policy's own base tensors, of which modules are copied and weights are not;
    with rank 0 all of the policy's first weights in float32, to be trained whole."""
    shared = {id(p): p for p in base_of(policy).parameters()} if rank else {}
    model = copy.deepcopy(policy, shared)
    model = model.unload() if hasattr(model, "peft_config") else model
    if rank:
        section = config.model.model_copy(update={"lora_rank": rank})
        return add_lora(model, section, derive("critic", config.seed)).eval()
    model = model.requires_grad_(True).float()
    model.compute_dtype = getattr(torch, config.model.dtype)
    return model
