"""What a run learns with: the policy in training, its reference, its critic, and the parts of a step's learning that
`loop.learn` calls in order."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlkit.compute import Ledger, Shape
from rlkit.config import RunConfig
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels, kernels_for
from rlkit.models.loading import Policy
from rlkit.models.logprobs import squared_probabilities
from rlkit.models.shapes import captures
from rlkit.training import algorithms
from rlkit.training.captured import CapturedPasses
from rlkit.training.critic import Critic
from rlkit.training.forward import Passes, Rows, token_logprobs
from rlkit.training.learner import Learner
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch


@dataclass
class Measured:
    """Numbers of one pass, still on their device.

    Attributes:
        tokens: sampled tokens that it counts.
        sums: summed over those tokens.
        means: averaged over them, as verl's losses return.
        shares: shares of losses, already divided by the mini-batch's denominators.
    """

    tokens: Tensor
    sums: dict[str, Tensor]
    means: dict[str, float]
    shares: dict[str, Tensor]


@dataclass
class Metrics:
    """Metrics of an update: token-weighted means over its passes, and losses whose shares add up."""

    passes: list[Measured] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def result(self) -> dict[str, float]:
        """Means over tokens and over optimizer steps; waits for the device."""
        sums, weights, shares = dict[str, float](), dict[str, float](), dict[str, float]()

        def add(means: dict[str, Any], weight: float) -> None:
            for name, value in means.items():
                sums[name] = sums.get(name, 0.0) + float(value) * weight
                weights[name] = weights.get(name, 0.0) + weight

        for measured in self.passes:
            tokens = float(measured.tokens)
            for name, share in measured.shares.items():
                shares[name] = shares.get(name, 0.0) + float(share)
            own = {name: float(total) / max(tokens, 1.0) for name, total in measured.sums.items()}
            add(measured.means | own, tokens)
        for step in self.steps:
            add(step, 1.0)
        means = {name: total / weights[name] for name, total in sums.items() if weights[name]}
        return means | {name: total / max(1, len(self.steps)) for name, total in shares.items()}


class Learning:
    """The policy in training (`actor`), its reference, critic and KL controller.

    Args:
        model: the policy.
        reference: context in which the policy is the reference (its adapter switched off), or a second decoder;
            None where no KL to a reference is asked for.
    """

    def __init__(
        self,
        config: RunConfig,
        model: torch.nn.Module,
        reference: Decoder | Callable[[], AbstractContextManager] | None,
        critic: Critic | None,
        ledger: Ledger,
        kernels: Kernels = EAGER,
    ) -> None:
        self.config, self.model, self.reference, self.critic = config, model, reference, critic
        self.ledger = ledger
        checkpointing, actor = config.model.enable_gradient_checkpointing, config.actor
        decoder, shape = Decoder(model, checkpointing=checkpointing, kernels=kernels), Shape.of(model)
        minis = actor.mini_batches(config.data.train_batch_size)
        steps = config.trainer.total_training_steps * actor.ppo_epochs * minis
        small = captures(config, decoder.device.type == "cuda", sum(p.numel() for p in model.parameters()))
        self.actor = Learner(
            decoder, Stepper.of(model, config, actor.optim, shape.non_embedding, steps), shape,
            Passes(actor.ppo_micro_batch_size, actor.pass_tokens(decoder.device.type == "cuda")), ledger, "update",
            CapturedPasses(decoder, config.rollout.temperature, bool(actor.entropy_coeff)) if small else None,
        )  # fmt: skip
        self.kl = algorithms.KLController(config)

    def old_logprobs(self, batch: Batch) -> Tensor | None:
        """(B, T) log-probs of the policy that sampled; None where they are those of the update's own forward pass,
        which is so with one optimizer step per batch."""
        c = self.config
        several = c.actor.mini_batches(c.data.train_batch_size) > 1 or c.actor.ppo_epochs > 1
        if several or c.algorithm.use_kl_in_reward or c.algorithm.needs.sum_pi_squared:
            return self._logprobs(batch, self.actor.decoder, "old_log_prob")
        return None

    def ref_logprobs(self, batch: Batch) -> Tensor | None:
        """(B, T) log-probs of the reference policy, where there is one."""
        if self.reference is None:
            return None
        if isinstance(self.reference, Decoder):
            return self._logprobs(batch, self.reference, "ref")
        with self.reference():
            return self._logprobs(batch, self.actor.decoder, "ref")

    def _logprobs(self, batch: Batch, decoder: Decoder, phase: str) -> Tensor:
        temperature = self.config.rollout.temperature
        return self.actor.padded(batch, lambda part: token_logprobs(decoder, part, temperature)[0], phase)

    def sum_pi_squared(self, batch: Batch) -> Tensor | None:
        """(B, T) squared probabilities summed over the vocabulary, where the estimator asks for them."""
        decoder, temperature = self.actor.decoder, self.config.rollout.temperature

        def squares(part: Rows) -> Tensor:
            return part.unpacked(
                squared_probabilities(part.states(decoder), decoder.head_weight, temperature)
            )

        if not self.config.algorithm.needs.sum_pi_squared:
            return None
        return self.actor.padded(batch, squares, "old_log_prob")

    def rewards_less_kl(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Token rewards (B, T) less the KL penalty where `algorithm.use_kl_in_reward` asks for it, and its metrics.

        The mean KL is verl's: over the tokens of each sequence first, then over sequences.
        """
        if not self.config.algorithm.use_kl_in_reward:
            return batch.rewards, {}
        assert batch.old_logprobs is not None and batch.ref_logprobs is not None
        kl = (
            algorithms.kl(self.config.algorithm.kl_penalty, batch.old_logprobs, batch.ref_logprobs)
            * batch.mask
        )
        mean = float((kl.sum(-1) / (batch.mask.sum(-1) + 1e-8)).mean())
        metrics = {"actor/reward_kl_penalty": mean, "actor/reward_kl_penalty_coeff": self.kl.value}
        rewards = batch.rewards - self.kl.value * kl
        self.kl.update(mean, len(batch))
        return rewards, metrics

    def accumulate(self, batch: Batch, rows: Tensor) -> list[Measured]:
        """Form the policy's gradient of a mini-batch, the `rows` of the batch."""
        actor, dropout = self.config.actor, bool(self.config.model.lora_dropout)
        scale = algorithms.Scale.of(batch.mask[rows], actor, self.config.data.max_response_length)
        weights = torch.ones_like(batch.mask[:, :1])
        if actor.loss_agg_mode == "prompt-mean-token-mean":
            weights[rows] = algorithms.prompt_weights(batch.mask[rows], batch.prompt_index[rows])
        whole = actor.policy_loss.loss_mode in algorithms.UNSPLITTABLE
        if dropout:  # all that a mode changes here; setting it visits every module
            self.model.train()
        measured = self.actor.accumulate(
            batch, rows, lambda part: self._loss(batch, part, scale, weights),
            needed=self._needed(batch, rows), whole=whole,
        )  # fmt: skip
        if dropout:
            self.model.eval()
        return measured

    def step(self) -> dict[str, Any]:
        """An optimizer step of the policy; the gradient's norm, on its device, and the learning rate."""
        norm, rate = self.actor.stepper.step()
        self.ledger.optimizer_steps += 1
        return {"actor/grad_norm": norm, "actor/lr": rate} | self.actor.stepper.scale()

    def _needed(self, batch: Batch, rows: Tensor) -> Tensor:
        """The rows whose loss can have a gradient: sequences of zero advantage have none, unless a KL or an
        entropy term or the loss itself gives them one. Denominators still count all rows."""
        actor = self.config.actor
        always = actor.use_kl_loss or actor.entropy_coeff or self.critic is not None
        if always or actor.policy_loss.loss_mode not in algorithms.ZERO_ADVANTAGE_IS_ZERO_GRADIENT:
            return rows
        assert batch.advantages is not None
        return rows[(batch.advantages[rows] != 0).any(-1)]

    def _loss(
        self, batch: Batch, part: Rows, scale: algorithms.Scale, weights: Tensor
    ) -> tuple[Tensor, Measured]:
        """A pass's share of the loss: policy gradient, entropy bonus and KL to the reference; `weights` (B, 1) of the
        tokens of each sequence."""
        c, actor = self.config, self.config.actor
        mask, sampled = part.cut(batch.mask), part.cut(batch.sampler_logprobs)
        if part.counted is not None and self.actor.captured is not None:
            mask = mask * part.counted
            logprobs, entropy = self.actor.captured(part)
        else:
            bonus = bool(actor.entropy_coeff)
            logprobs, entropy = token_logprobs(self.actor.decoder, part, c.rollout.temperature, bonus)
        old = logprobs.detach() if batch.old_logprobs is None else part.cut(batch.old_logprobs)
        assert batch.advantages is not None
        weight = weights[part.rows]
        loss, means = algorithms.policy_loss(
            actor, c.rollout.n, scale, logprobs=logprobs, old_logprobs=old,
            advantages=part.cut(batch.advantages) * weight, mask=mask,
            correction=algorithms.importance_weights(old, sampled, mask, c.algorithm.rollout_correction),
        )  # fmt: skip
        shares = {"actor/pg_loss": loss.detach()}
        if actor.entropy_coeff:
            loss = loss - actor.entropy_coeff * algorithms.aggregate(actor, scale, entropy * weight, mask)
        summed = {"actor/entropy": entropy.detach(), "policy/logprob_gap": (old - sampled).abs()}
        if batch.ref_logprobs is not None:
            ref = part.cut(batch.ref_logprobs)
            summed["actor/kl_ref"] = logprobs.detach() - ref  # k1: unbiased, not clamped
            if actor.use_kl_loss:
                kl = algorithms.kl(actor.kl_loss_type, logprobs, ref) * weight
                kl = algorithms.aggregate(actor, scale, kl, mask)
                shares["actor/kl_loss"] = kl.detach()
                loss = loss + actor.kl_loss_coef * kl
        sums = {name: (values * mask).sum() for name, values in summed.items()}
        return loss, Measured(mask.sum(), sums, means, shares)

    @property
    def compiled(self) -> bool:
        """Whether the passes' kernels are."""
        return self.actor.decoder.kernels is not EAGER

    @property
    def optimizer_steps(self) -> int:
        """Steps that the policy's and the critic's optimizer have taken."""
        critic = self.critic.learner.stepper.step_count if self.critic else 0
        return self.actor.stepper.step_count + critic

    def state_dict(self) -> dict:
        return {"actor": self.actor.stepper.state_dict(), "kl_coef": self.kl.value}

    def load_state_dict(self, state: dict) -> None:
        self.actor.stepper.load_state_dict(state["actor"])
        self.kl.value = state["kl_coef"]


def make_learning(policy: Policy, config: RunConfig, ledger: Ledger) -> Learning:
    """What trains a policy, with the reference and the critic that the config needs."""
    model: Any = policy.model
    kernels = kernels_for(config, policy.device.type == "cuda", sum(p.numel() for p in model.parameters()))
    reference = None
    if config.actor.use_kl_loss or config.algorithm.use_kl_in_reward:
        adapted = hasattr(model, "disable_adapter")
        reference = model.disable_adapter if adapted else Decoder(model, frozen=True, kernels=kernels)
    critic = Critic(model, config, ledger, kernels) if config.algorithm.needs.critic else None
    return Learning(config, model, reference, critic, ledger, kernels)
