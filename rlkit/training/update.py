"""One update: old and reference log-probs, KL in the reward, advantages, and optimizer steps."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from rlkit.compute import Ledger, Shape
from rlkit.config import RunConfig
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels, kernels_for
from rlkit.models.loading import Policy
from rlkit.models.logprobs import squared_probabilities
from rlkit.seeds import derive
from rlkit.sizing.devices import card
from rlkit.sizing.run import sized
from rlkit.sizing.shapes import from_config
from rlkit.training import algorithms
from rlkit.training.captured import CapturedPasses
from rlkit.training.critic import Critic
from rlkit.training.forward import (
    Passes,
    Rows,
    micro_batches,
    token_logprobs,
    too_large,
)
from rlkit.training.measured import Measured, Metrics
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch


class Updater:
    """Turns a graded batch into optimizer steps on the policy (and on the critic of `gae`).

    Args:
        decoder: the policy's forward pass, with gradients.
        reference: context in which the decoder is the reference policy (adapter switched off), or a second
            decoder; None where no KL to a reference is asked for.
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
        self.config, self.model, self.reference, self.critic, self.ledger = (
            config,
            model,
            reference,
            critic,
            ledger,
        )
        self.decoder = Decoder(
            model,
            checkpointing=config.model.enable_gradient_checkpointing,
            kernels=kernels,
        )
        self.shape = Shape.of(model)
        on_gpu, parameters = self.decoder.device.type == "cuda", sum(p.numel() for p in model.parameters())
        captures = config.captures(on_gpu, parameters)
        bonus = bool(config.actor.entropy_coeff)
        self.captured = CapturedPasses(self.decoder, config.rollout.temperature, bonus) if captures else None
        self.passes = Passes(config.actor.ppo_micro_batch_size, config.actor.tokens_a_pass)
        steps = config.trainer.total_training_steps * config.actor.ppo_epochs * self._mini_batches()
        self.stepper = Stepper(model, config.actor.optim, self.shape.non_embedding, steps, config.model.dtype)
        self.controller = algorithms.KLController(config)

    @property
    def compiled(self) -> bool:
        """Whether the passes' kernels are."""
        return self.decoder.kernels is not EAGER

    def _mini_batches(self) -> int:
        mini = self.config.actor.ppo_mini_batch_size
        return self.config.data.train_batch_size // mini if mini else 1

    def update(
        self, batch: Batch, step: int, baselines: Tensor | None = None
    ) -> Callable[[], dict[str, float]]:
        """All of one step's learning from a graded batch; fills the batch's derived fields.

        Args:
            baselines: (B,) rewards of greedy responses (remax).

        Returns:
            What reads the metrics, once. A GPU may still be at work, which reading them waits for.
        """
        torch.manual_seed(derive("update", self.config.seed, step))  # dropout and clip_cov's choice
        metrics = self._prepare(batch)
        arguments = {"baselines": baselines, "sum_pi_squared": self._sum_pi_squared(batch)}
        batch.advantages, batch.returns = algorithms.advantages(batch, self.config, **arguments)
        sampled = batch.mask > 0
        metrics["critic/advantages/mean"] = float(batch.advantages[sampled].mean())
        metrics["critic/advantages/max"] = float(batch.advantages[sampled].max())
        metrics["critic/advantages/min"] = float(batch.advantages[sampled].min())
        if self.critic is not None:
            metrics |= self.critic.update(batch, self.ledger)
            if step <= self.config.critic.warmup_steps:
                return lambda: metrics
        policy = self._update_policy(batch, step)
        return lambda: metrics | policy.result()

    def _prepare(self, batch: Batch) -> dict[str, float]:
        """Old log-probs, reference log-probs, values, and token rewards less the KL penalty."""
        c, metrics = self.config, {}
        if self._needs_old(c):
            batch.old_logprobs = self._logprobs(batch, self.decoder, "old_log_prob")
        if self.reference is not None:
            batch.ref_logprobs = self._reference_logprobs(batch)
        if self.critic is not None:
            batch.values = self.critic.values(batch, self.ledger)
        metrics["critic/rewards/mean"] = float(batch.rewards.sum(-1).mean())
        if c.algorithm.use_kl_in_reward:
            assert batch.old_logprobs is not None and batch.ref_logprobs is not None
            penalty = (
                algorithms.kl(c.algorithm.kl_penalty, batch.old_logprobs, batch.ref_logprobs) * batch.mask
            )
            mean = float(penalty.sum() / batch.mask.sum())
            batch.rewards = batch.rewards - self.controller.value * penalty
            metrics |= {
                "actor/reward_kl_penalty": mean,
                "actor/reward_kl_penalty_coeff": self.controller.value,
            }
            metrics["critic/rewards/mean"] = float(batch.rewards.sum(-1).mean())
            self.controller.update(mean, len(batch))
        return metrics

    def _needs_old(self, c: RunConfig) -> bool:
        """Whether the behaviour policy's log-probs need a pass of their own: with one optimizer step a batch,
        they are those of the update's own forward pass."""
        several = self._mini_batches() > 1 or c.actor.ppo_epochs > 1
        return (
            several
            or c.algorithm.use_kl_in_reward
            or c.algorithm.adv_estimator in algorithms.OPTIMAL_BASELINE
        )

    def _reference_logprobs(self, batch: Batch) -> Tensor:
        if isinstance(self.reference, Decoder):
            return self._logprobs(batch, self.reference, "ref")
        with self.reference() if self.reference else nullcontext():
            return self._logprobs(batch, self.decoder, "ref")

    def _logprobs(self, batch: Batch, decoder: Decoder, phase: str) -> Tensor:
        """(B, T) log-probs of every response token."""

        def logprobs(part: Rows) -> Tensor:
            return token_logprobs(decoder, part, self.config.rollout.temperature)[0]

        return self._board(batch, logprobs, phase)

    def _sum_pi_squared(self, batch: Batch) -> Tensor | None:
        """(B, T) sum over the vocabulary of squared probabilities, where the estimator asks for it."""

        def squares(part: Rows) -> Tensor:
            states, temperature = part.states(self.decoder), self.config.rollout.temperature
            return part.spread(squared_probabilities(states, self.decoder.head_weight, temperature))

        if self.config.algorithm.adv_estimator not in algorithms.OPTIMAL_BASELINE:
            return None
        return self._board(batch, squares, "old_log_prob")

    def _board(self, batch: Batch, of: Callable[[Rows], Tensor], phase: str) -> Tensor:
        """(B, T) of what a pass gives for its part of the batch, without a gradient, counted as `phase`."""
        result, flops = self.passes.board(batch, of, self.shape)
        self.ledger.add(phase, flops)
        return result

    def _update_policy(self, batch: Batch, step: int) -> Metrics:
        actor, metrics = self.config.actor, Metrics()
        if self.config.model.lora_dropout:  # all that a mode changes here; setting it visits every module
            self.model.train()
        for epoch in range(actor.ppo_epochs):
            for mini in self._mini_rows(batch, step, epoch):
                scale = algorithms.Scale.of(batch.mask[mini], actor, self.config.data.max_response_length)
                metrics.measured += self._gradient(batch, mini, scale)
                metrics.measured.append(self._step())
                metrics.steps += 1
        if self.config.model.lora_dropout:
            self.model.eval()
        self.ledger.optimizer_steps += metrics.steps
        return metrics

    def _step(self) -> Measured:
        """An optimizer step."""
        norm, rate = self.stepper.step()
        facts = {"actor/lr": rate} | self.stepper.scale()
        return lambda metrics: metrics.mean({"actor/grad_norm": float(norm)} | facts, 1.0)

    def _gradient(self, batch: Batch, rows: Tensor, scale: algorithms.Scale) -> list[Measured]:
        """Accumulate a mini-batch's gradient. Where the GPU's memory does not do, the mini-batch starts again
        in forward passes of half the size, which have the same gradient.

        Raises:
            RunStopped: not even single sequences fit, or the loss cannot be split.
        """
        needed = self._with_gradient(batch, rows)
        flops, measured = self.passes.retried(
            lambda: self._backward_all(batch, rows, needed, scale), batch, needed, self._freed
        )
        self.ledger.add("update", flops)
        return measured

    def _backward_all(
        self, batch: Batch, rows: Tensor, needed: Tensor, scale: algorithms.Scale
    ) -> tuple[float, list[Measured]]:
        """Forward and backward passes over a mini-batch: the FLOPs of the sequences `needed`, and what was measured.

        Captured passes compute all `rows`, so that their shape stays; what is not needed gets no gradient there, and
        is not counted, so that a run's compute does not depend on where it ran.
        """
        parts = (
            self.captured.parts(batch, rows, self.passes.tokens) if self.captured and len(needed) else None
        )
        whole = self.config.actor.policy_loss.loss_mode in algorithms.UNSPLITTABLE
        if parts is None or (whole and len(parts) > 1):
            flops, measured = 0.0, []
            for part in self._parts(batch, needed):
                measured.append(self._backward(batch, part, scale))
                flops += self.shape.training(part.work())
            return flops, measured
        counted = torch.zeros_like(batch.mask[:, :1]).index_fill_(0, needed, 1.0)
        flops = self.shape.training(Rows.of(batch, needed).work())  # read before the GPU is busy
        measured = []
        for i, part in enumerate(parts):
            measured.append(self._backward(batch, part, scale, counted))
            if i + 1 < len(parts):
                self.stepper.keep_gradients()
        return flops, measured

    def _freed(self) -> bool:
        """After a pass that did not fit: its gradients go, and for the rest of the run what was captured.

        Raises:
            RunStopped: the loss cannot be split into smaller passes.
        """
        self.model.zero_grad()
        if self.captured is not None:
            self.captured = None
            torch.cuda.empty_cache()
            return True
        if self.config.actor.policy_loss.loss_mode in algorithms.UNSPLITTABLE:
            raise too_large(f"{self.config.actor.policy_loss.loss_mode} needs a mini-batch in one")
        return False

    def _mini_rows(self, batch: Batch, step: int, epoch: int) -> Iterator[Tensor]:
        """Rows of each optimizer step: whole groups, shuffled anew every epoch."""
        device = batch.mask.device
        if self._mini_batches() == 1:
            yield torch.arange(len(batch), device=device)
            return
        groups = torch.unique(batch.prompt_index)
        order = torch.Generator().manual_seed(derive("mini-batch", self.config.seed, step, epoch))
        shuffled = groups[torch.randperm(len(groups), generator=order).to(device)]
        for chosen in shuffled.chunk(self._mini_batches()):
            yield torch.isin(batch.prompt_index, chosen).nonzero()[:, 0]

    def _with_gradient(self, batch: Batch, rows: Tensor) -> Tensor:
        """The rows whose loss can have a gradient: sequences of zero advantage have none, unless a KL or an
        entropy term or the loss itself gives them one. Denominators still count all rows."""
        actor = self.config.actor
        always = actor.use_kl_loss or actor.entropy_coeff or self.critic is not None
        if always or actor.policy_loss.loss_mode not in algorithms.ZERO_ADVANTAGE_IS_ZERO_GRADIENT:
            return rows
        assert batch.advantages is not None
        return rows[(batch.advantages[rows] != 0).any(-1)]

    def _parts(self, batch: Batch, rows: Tensor) -> Iterator[Rows]:
        """The passes of a loss over `rows`: one, where it cannot be split."""
        if self.config.actor.policy_loss.loss_mode in algorithms.UNSPLITTABLE:
            return micro_batches(batch, rows, len(batch), 0)
        return self.passes.parts(batch, rows)

    def _backward(
        self,
        batch: Batch,
        part: Rows,
        scale: algorithms.Scale,
        counted: Tensor | None = None,
    ) -> Measured:
        """Accumulate the gradient of one micro-batch: of all its sequences, or by a captured pass of those where
        `counted` (B, 1) is 1. Returns what adds its numbers to the metrics."""
        assert batch.advantages is not None
        c, actor = self.config, self.config.actor
        rows, width = part.rows, part.width
        mask, sampled = batch.mask[rows, :width], batch.sampler_logprobs[rows, :width]
        if counted is not None and self.captured is not None:
            mask = mask * counted[rows]
            logprobs, entropy = self.captured(part)
        else:
            bonus = bool(actor.entropy_coeff)
            logprobs, entropy = token_logprobs(self.decoder, part, c.rollout.temperature, bonus)  # (b, t)
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs[rows, :width]
        cap = c.algorithm.rollout_correction
        loss, verl_metrics = algorithms.policy_loss(
            actor, c.rollout.n, scale, logprobs=logprobs, old_logprobs=old,
            advantages=batch.advantages[rows, :width], mask=mask,
            correction=algorithms.importance_weights(old, sampled, cap) if cap else None,
        )  # fmt: skip
        shares = {"actor/pg_loss": loss}
        if actor.entropy_coeff:
            loss = loss - actor.entropy_coeff * algorithms.aggregate(actor, scale, entropy, mask)
        ref = None if batch.ref_logprobs is None else batch.ref_logprobs[rows, :width]
        if ref is not None and actor.use_kl_loss:
            penalty = algorithms.aggregate(
                actor, scale, algorithms.kl(actor.kl_loss_type, logprobs, ref), mask
            )
            shares["actor/kl_loss"] = penalty
            loss = loss + actor.kl_loss_coef * penalty
        self.stepper.backward(loss)
        summed = {"actor/entropy": entropy.detach(), "policy/logprob_gap": (old - sampled).abs()}
        if ref is not None:
            summed["actor/kl_ref"] = logprobs.detach() - ref  # k1: unbiased, not clamped
        total, sums = mask.sum(), {name: (values * mask).sum() for name, values in summed.items()}
        shares = {name: share.detach() for name, share in shares.items()}

        def add(metrics: Metrics) -> None:
            tokens = float(total)
            for name, share in shares.items():
                metrics.share(name, share)
            means = {name: float(value) / max(tokens, 1.0) for name, value in sums.items()}
            metrics.mean(verl_metrics | means, tokens)

        return add

    def state_dict(self) -> dict:
        return {"actor": self.stepper.state_dict(), "kl_coef": self.controller.value}

    def load_state_dict(self, state: dict) -> None:
        self.stepper.load_state_dict(state["actor"])
        self.controller.value = state["kl_coef"]


def make_updater(policy: Policy, config: RunConfig, ledger: Ledger) -> Updater:
    """What trains a policy, with the reference and the critic that the config needs."""
    model: Any = policy.model
    on_gpu, parameters = policy.device.type == "cuda", sum(p.numel() for p in model.parameters())
    if on_gpu:
        config = sized(config, from_config(policy.base.config.to_dict()), card(policy.device), on_gpu)
    kernels = kernels_for(config, on_gpu, parameters)
    reference, critic = None, None
    if config.actor.use_kl_loss or config.algorithm.use_kl_in_reward:
        adapted = hasattr(model, "disable_adapter")
        reference = (
            model.disable_adapter if adapted else Decoder(copy.deepcopy(model), frozen=True, kernels=kernels)
        )
    if config.algorithm.adv_estimator in algorithms.NEEDS_CRITIC:
        critic = Critic(model, config, kernels)
    return Updater(config, model, reference, critic, ledger, kernels)
