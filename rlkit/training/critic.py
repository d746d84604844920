"""The value function of PPO: a copy of the policy's first weights with a scalar head."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from rlkit.compute import Ledger, Shape
from rlkit.config import RunConfig
from rlkit.models.decoder import Decoder
from rlkit.training import algorithms
from rlkit.training.forward import Rows, micro_batches
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch


class Critic(nn.Module):
    """V(s) before each response token, predicted from the state the token is drawn from.

    All of the copy trains, whatever trains in the policy. The head starts at zero, so that the first
    advantages are the rewards themselves.
    """

    def __init__(self, model: Any, config: RunConfig) -> None:
        super().__init__()
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.config = config
        self.model = copy.deepcopy(base).requires_grad_(True).float()
        self.model.compute_dtype = getattr(torch, config.model.dtype)
        for module in [m for m in self.model.modules() if hasattr(m, "base_layer")]:
            _replace(self.model, module)
        width = self.model.config.hidden_size
        self.head = nn.Linear(width, 1, device=base.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.shape = Shape.of(self.model)
        total = config.trainer.total_training_steps * config.critic.ppo_epochs
        self.stepper = Stepper(self, config.critic.optim, self.shape.non_embedding, total)

    def predict(self, rows: Rows) -> Tensor:
        """(b, t) values; zero where there is no token."""
        return rows.spread(self.head(rows.states(Decoder(self.model)).float())[:, 0])

    @torch.no_grad()
    def values(self, batch: Batch, ledger: Ledger) -> Tensor:
        """(B, T) values of a batch."""
        result = torch.zeros_like(batch.mask)
        for part in self._parts(batch):
            result[part.rows, : part.width] = self.predict(part)
            ledger.add("critic", self.shape.forward(part.work()))
        return result

    def update(self, batch: Batch, ledger: Ledger) -> dict[str, float]:
        """Fit the values to `batch.returns`; one optimizer step an epoch."""
        assert batch.returns is not None and batch.values is not None
        section = self.config.critic
        scale = algorithms.Scale.of(batch.mask, self.config.actor, self.config.data.max_response_length)
        losses, norm, rate = 0.0, 0.0, 0.0
        for _ in range(section.ppo_epochs):
            for part in self._parts(batch):
                rows, width = part.rows, part.width
                loss, _ = algorithms.value_loss(
                    self.predict(part), batch.returns[rows, :width], batch.values[rows, :width],
                    batch.mask[rows, :width], section.cliprange_value, scale,
                )  # fmt: skip
                loss.backward()
                losses += float(loss.detach()) / section.ppo_epochs
                ledger.add("critic", self.shape.training(part.work()))
            norm, rate = self.stepper.step()
        sampled = batch.mask > 0
        returns, values = batch.returns[sampled], batch.values[sampled]
        residual = float((returns - values).var(unbiased=False))
        spread_ = float(returns.var(unbiased=False))
        return {
            "critic/vf_loss": losses,
            "critic/grad_norm": norm,
            "critic/lr": rate,
            "critic/values/mean": float(values.mean()),
            "critic/returns/mean": float(returns.mean()),
            "critic/vf_explained_var": 1 - residual / spread_ if spread_ > 0 else float("nan"),
        }

    def _parts(self, batch: Batch):
        rows = torch.arange(len(batch), device=batch.mask.device)
        return micro_batches(
            batch, rows, self.config.actor.ppo_micro_batch_size, self.config.actor.micro_batch_tokens
        )


def _replace(model: nn.Module, module: nn.Module) -> None:
    """Put the plain layer back in place of an adapter around it."""
    name = next(n for n, m in model.named_modules() if m is module)
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module.base_layer)
