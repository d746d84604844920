"""Supervised training: warm starts, supervised steps of pretrained models, and episodes weighted by their rewards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlkit.compute import Ledger, Shape
from rlkit.config import Optimizer
from rlkit.models.decoder import Decoder
from rlkit.models.loading import Policy
from rlkit.training.forward import Passes, Rows, text_batch, token_logprobs
from rlkit.training.learner import Learner
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch, Task

PHASE = "sft"
"""Of the ledger."""


class SupervisedTrainer:
    """Minimises the negative log-likelihood of given responses, per token and weighted.

    Args:
        policy: whose trainable weights are trained.
        optim: AdamW's settings.
        steps: optimizer steps of the whole training, for the schedule.
        passes: how large a forward pass is.
        dtype: of the passes.
        checkpointing: keep only each layer's input for the backward pass.
    """

    def __init__(
        self,
        policy: Policy,
        optim: Optimizer,
        steps: int,
        passes: Passes,
        *,
        dtype: str = "float32",
        checkpointing: bool = False,
    ) -> None:
        self.policy, self.ledger, shape = policy, Ledger(), Shape.of(policy.model)
        decoder = Decoder(policy.model, checkpointing=checkpointing)
        stepper = Stepper(policy.model, optim, shape.non_embedding, steps, dtype)
        stepper.step_count = 1  # a warm-up of 20 steps has 20 rates above 0
        self.learner = Learner(decoder, stepper, shape, passes, self.ledger, PHASE)

    @property
    def flops(self) -> float:
        """FLOPs of all steps so far."""
        return self.ledger.flops[PHASE]

    def step(self, batch: Batch, weights: Tensor | None = None) -> float:
        """An optimizer step on a batch; returns its loss before it, in nats per token.

        Args:
            weights: (B, T) of the response tokens; those of weight 0 do not count. Default 1.
        """
        weights = batch.mask if weights is None else weights
        total = float((weights > 0).sum())
        rows = torch.arange(len(batch), device=batch.mask.device)

        def loss(part: Rows) -> tuple[Tensor, Tensor]:
            value = self._loss(part, weights) / total
            return value, value.detach()

        value = sum(map(float, self.learner.accumulate(batch, rows, loss)))
        self.learner.stepper.step()
        return value

    def loss(self, batch: Batch, weights: Tensor) -> float:
        """The loss of `step`, without a step."""
        weighted = self.logprobs(batch) * weights
        return -float(weighted.sum()) / float((weights > 0).sum())

    def logprobs(self, batch: Batch) -> Tensor:
        """(B, T) log-probs of the response tokens, zero where there is none; no part of the training's FLOPs."""
        decoder, before = self.learner.decoder, self.flops
        result = self.learner.padded(batch, lambda part: token_logprobs(decoder, part)[0], PHASE)
        self.ledger.flops[PHASE] = before
        return result

    def _loss(self, part: Rows, weights: Tensor) -> Tensor:
        logprobs, _ = token_logprobs(self.learner.decoder, part)
        return -(logprobs * part.cut(weights)).sum()

    def state_dict(self) -> dict[str, Any]:
        """Trainable weights, optimizer and FLOPs."""
        trained = {n: p.detach() for n, p in self.policy.model.named_parameters() if p.requires_grad}
        return {"weights": trained, "stepper": self.learner.stepper.state_dict(), "flops": self.flops}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        parameters = dict(self.policy.model.named_parameters())
        for name, value in state["weights"].items():
            parameters[name].copy_(value)
        self.learner.stepper.load_state_dict(state["stepper"])
        self.ledger.flops[PHASE] = state["flops"]


def worked_answer(task: Task) -> str:
    """What a correct response to this task says: its worked solution, or else the ground truth as text."""
    solution = task.extra_info.get("solution")
    return str(solution) if solution else str(task.ground_truth)


def worked_batch(policy: Policy, tasks: Sequence[Task], limit: int = 0) -> Batch | None:
    """Tasks with their worked answers, ended as the model ends its turns; None where none is left.

    Args:
        limit: tokens of a prompt with its answer; longer ones are left out. 0 is no limit.
    """
    stop = policy.tokenizer.eos_token_id
    prompts = [np.array(policy.encode(t.prompt)) for t in tasks]
    answers = [
        np.array([*policy.tokenizer.encode(worked_answer(t), add_special_tokens=False), stop]) for t in tasks
    ]
    pairs = [(p, a) for p, a in zip(prompts, answers, strict=True) if not limit or len(p) + len(a) <= limit]
    if not pairs:
        return None
    return text_batch([p for p, _ in pairs], [a for _, a in pairs], policy.pad_id, str(policy.device))
