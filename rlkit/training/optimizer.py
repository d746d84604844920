"""AdamW with the learning-rate rule by size, warm-up and schedule."""

import math

import torch

from rlkit.config import Optimizer


def learning_rate(config: Optimizer, parameters: float) -> float:
    """The peak rate of a model with N non-embedding parameters: lr · (N / lr_reference_params)^lr_exponent."""
    return config.lr * (parameters / config.lr_reference_params) ** config.lr_exponent


def schedule(config: Optimizer, step: int, total: int) -> float:
    """Factor of the peak rate at optimizer step 1 … total: linear warm-up, then constant or cosine."""
    if step <= config.lr_warmup_steps:
        return step / config.lr_warmup_steps
    if config.lr_scheduler_type == "constant":
        return 1.0
    progress = min(1.0, (step - config.lr_warmup_steps) / max(1, total - config.lr_warmup_steps))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Stepper:
    """One optimizer over a model's trainable parameters: scale the rate, clip, step, zero.

    Args:
        model: its parameters with requires_grad are trained.
        config: the optimizer's section.
        parameters: N for the learning-rate rule.
        total: optimizer steps of the whole run, for the schedule.
    """

    def __init__(self, model: torch.nn.Module, config: Optimizer, parameters: float, total: int) -> None:
        self.config, self.total, self.step_count = config, total, 0
        self.peak = learning_rate(config, parameters)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=self.peak, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )

    def step(self) -> tuple[float, float]:
        """Apply the accumulated gradients; returns (gradient norm before clipping, learning rate)."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)  # Adam's moments decay all the same
        self.step_count += 1
        rate = self.peak * schedule(self.config, self.step_count, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_grad or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm), rate

    def keep_gradients(self) -> None:
        """Copy the gradients: a captured pass leaves them in buffers that its next replay writes."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()

    def state_dict(self) -> dict:
        return {"optimizer": self.optimizer.state_dict(), "step_count": self.step_count}

    def load_state_dict(self, state: dict) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.step_count = state["step_count"]
