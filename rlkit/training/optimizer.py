"""AdamW with the learning-rate rule by size, warm-up and schedule; float16's gradients are scaled."""

import math
from typing import Any

import torch

from rlkit.config import Optimizer

GROWTH = 400  # steps without overflow after which float16's gradients are scaled by twice as much, as in verl


def learning_rate(config: Optimizer, parameters: float) -> float:
    """The peak rate of a model with N non-embedding parameters: lr · (N / lr_reference_params)^lr_exponent."""
    return config.lr * (parameters / config.lr_reference_params) ** config.lr_exponent


def schedule(config: Optimizer, step: int, total: int) -> float:
    """Factor of the peak rate at step 1 … total: linear warm-up from 0, then constant or cosine, as in verl."""
    before, warmup = step - 1, config.lr_warmup_steps
    if before < warmup:
        return before / warmup
    if config.lr_scheduler_type == "constant":
        return 1.0
    progress = min(1.0, (before - warmup) / max(1, total - warmup))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Stepper:
    """AdamW over a model's trainable parameters. A gradient that is not finite is dropped, as in verl. Those of float16
    passes would vanish below 6e-8: the loss is scaled up, and the scale halved after an overflow (arXiv 1710.03740).
    `parameters` is N of the learning-rate rule; `offload` keeps a GPU's moments on the host between steps."""

    def __init__(
        self, model: torch.nn.Module, config: Optimizer, parameters: float, total: int, dtype: str = "float32",
        offload: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.total, self.step_count = config, total, 0
        self.peak = learning_rate(config, parameters)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer: Any = torch.optim.AdamW(
            self.parameters, lr=self.peak, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
        device = self.parameters[0].device.type
        self.scaler = torch.amp.GradScaler(device, growth_interval=GROWTH, enabled=dtype == "float16")
        self.scaler.scale(torch.zeros((), device=device))  # it has its scale from its first use on
        self.moments = HostMoments(self.optimizer) if offload and device == "cuda" else None

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a loss to those that the next step applies."""
        self.scaler.scale(loss).backward()

    def step(self) -> tuple[torch.Tensor, float]:
        """Apply the gradients; returns their norm before clipping, still on the device, and the learning rate."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)  # Adam's moments decay all the same
        self.step_count += 1
        rate = self.peak * schedule(self.config, self.step_count, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_grad or math.inf)
        if self.moments:
            self.moments.fetch()
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:  # torch's fused step asks it on the device, where nobody waits for the answer
            self.optimizer.found_inf = (~norm.isfinite()).float()
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.moments:
            self.moments.put_away()
        return norm, rate

    def scale(self) -> dict[str, float]:
        """`actor/loss_scale`, in float16 alone."""
        return {"actor/loss_scale": self.scaler.get_scale()} if self.scaler.is_enabled() else {}

    def keep_gradients(self) -> None:
        """Copy the gradients: a captured pass leaves them in buffers that its next replay writes."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()

    def state_dict(self) -> dict:
        state = {"optimizer": self.optimizer.state_dict(), "step_count": self.step_count}
        return state | {"scaler": self.scaler.state_dict()}  # empty but for float16

    def load_state_dict(self, state: dict) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:  # a run that goes on from another's checkpoint has its own
            group["betas"], group["weight_decay"] = self.config.betas, self.config.weight_decay
        if self.moments:
            self.moments.put_away()
        self.step_count = state["step_count"]
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])


class HostMoments:
    """An optimizer's moments in pinned memory of the host, and on the parameters' device during its step alone."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self._host = optimizer, dict[tuple[torch.Tensor, str], torch.Tensor]()

    def fetch(self) -> None:
        for parameter, name, moment in self._moments():
            self.optimizer.state[parameter][name] = moment.to(parameter.device, non_blocking=True)

    def put_away(self) -> None:
        """Copy the moments to the host and give their memory on the device back to torch's allocator."""
        pinned = torch.cuda.is_available()
        for parameter, name, moment in self._moments():
            if (host := self._host.get((parameter, name))) is None:
                host = self._host[parameter, name] = torch.empty_like(moment, device="cpu", pin_memory=pinned)
            self.optimizer.state[parameter][name] = host.copy_(moment, non_blocking=True)
        if pinned:
            torch.cuda.synchronize()  # before anything else takes the memory that is copied from

    def _moments(self) -> list[tuple[torch.Tensor, str, torch.Tensor]]:
        """(parameter, name, moment) of everything that is as large as its parameter."""
        states = [(p, name, v) for p, state in self.optimizer.state.items() for name, v in state.items()]
        return [(p, name, v) for p, name, v in states if isinstance(v, torch.Tensor) and v.dim()]
