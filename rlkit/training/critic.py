"""The value function of PPO: a scalar head on a copy of the policy, or on an adapter over its frozen base."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlkit.compute import Ledger, Shape
from rlkit.config import RunConfig
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels
from rlkit.models.loading import add_lora, base_of
from rlkit.seeds import derive
from rlkit.training import algorithms
from rlkit.training.batches import mini_batches
from rlkit.training.forward import Rows
from rlkit.training.learner import Learner
from rlkit.types import Batch


class Critic(nn.Module):
    """V(s) before each response token, from the state that the token is drawn from. Beside a LoRA policy it is an
    adapter of its own over the tensors that the policy has frozen; beside one that trains whole, or with
    critic.model.lora_rank 0, a float32 copy of the first weights. The head starts at zero: the first advantages are the
    rewards."""

    def __init__(self, model: Any, config: RunConfig, ledger: Ledger, kernels: Kernels = EAGER) -> None:
        super().__init__()
        rank = config.critic.model.lora_rank
        rank = config.model.lora_rank if rank is None else rank
        self.config, self.model = config, _adapted(model, config, rank) if rank else _copied(model, config)
        base = base_of(self.model)
        self.head = nn.Linear(base.config.hidden_size, 1, device=base.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        checkpointing = config.model.enable_gradient_checkpointing
        decoder = Decoder(self.model, checkpointing=checkpointing, kernels=kernels)
        shape = replace(Shape.of(self.model), vocab=1)  # one value for a vocabulary
        self.learner = Learner.of(self, decoder, shape, config, config.critic, ledger, "critic")

    def predict(self, rows: Rows) -> Tensor:
        """(b, t) values; zero where there is no token."""
        return rows.layout.padded(self.head(rows.states(self.learner.decoder).float())[:, 0])

    def values(self, batch: Batch) -> Tensor:
        """(B, T) values of a batch."""
        return self.learner.padded(batch, self.predict, "critic")

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """Fit the values to `batch.returns`, in the mini-batches of the policy's update; returns metrics."""
        assert batch.returns is not None and batch.values is not None
        minis = list(mini_batches(batch, self.config, step, self.config.critic.ppo_epochs))
        losses, norm, rate = list[Tensor](), torch.zeros(()), 0.0
        for rows in minis:
            losses += self.learner.accumulate(batch, rows, self._loss_of(batch, rows))
            norm, rate = self.learner.stepper.step()
        sampled = batch.mask > 0
        returns, values = batch.returns[sampled], batch.values[sampled]
        residual, variance = (returns - values).var(unbiased=False), returns.var(unbiased=False)
        residual, variance, *each = torch.stack([residual, variance, *losses]).tolist()
        return {
            "critic/vf_loss": sum(each) / len(minis),
            "critic/grad_norm": norm,
            "critic/lr": rate,
            "critic/values/mean": values.mean(),
            "critic/returns/mean": returns.mean(),
            "critic/vf_explained_var": 1 - residual / variance if variance > 0 else float("nan"),
        }

    def _loss_of(self, batch: Batch, rows: Tensor) -> Callable[[Rows], tuple[Tensor, Tensor]]:
        """The value loss of a mini-batch, pass by pass."""
        c = self.config
        scale = algorithms.denominators(batch.mask[rows], c.actor, c.data.max_response_length)

        def loss(part: Rows) -> tuple[Tensor, Tensor]:
            assert batch.returns is not None and batch.values is not None
            value = algorithms.value_loss(
                c.critic.cliprange_value, scale, vpreds=self.predict(part), returns=part.cut(batch.returns),
                values=part.cut(batch.values), response_mask=part.cut(batch.mask),
            )  # fmt: skip
            return value, value.detach()

        return loss

    def trained(self) -> dict[str, Tensor]:
        """The weights that train, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def trained_state(self) -> dict[str, Any]:
        """What a checkpoint holds: the weights that train, and their optimizer."""
        return {"weights": self.trained(), "stepper": self.learner.stepper.state_dict()}

    @torch.no_grad()
    def load_trained_state(self, state: dict[str, Any]) -> None:
        """Go on from what `trained_state` gave."""
        for name, parameter in self.trained().items():
            parameter.copy_(state["weights"][name])
        self.learner.stepper.load_state_dict(state["stepper"])


def _adapted(policy: Any, config: RunConfig, rank: int) -> Any:
    """A fresh adapter over the policy's own base tensors: modules are copied, weights are not."""
    base, section = base_of(policy), config.model.model_copy(update={"lora_rank": rank})
    model = _plain(copy.deepcopy(base, {id(p): p for p in base.parameters()}))
    return add_lora(model, section, derive("critic", config.seed)).eval()


def _copied(policy: Any, config: RunConfig) -> Any:
    """All of the policy's first weights in float32, to be trained whole."""
    model = _plain(copy.deepcopy(base_of(policy))).requires_grad_(True).float()
    model.compute_dtype = getattr(torch, config.model.dtype)
    return model


def _plain(model: Any) -> Any:
    """The model with plain layers in place of the adapters around them."""
    for name, module in list(model.named_modules()):
        if hasattr(module, "base_layer"):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module.base_layer)
    vars(model).pop("peft_config", None)  # peft's mark that it has been here
    return model
