"""Numbers of an update that stay on their device until its work is done, and the metrics that they become."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Metrics:
    """Metrics of an update: token-weighted means over micro-batches, and losses whose shares add up.

    A micro-batch's loss is already divided by the denominators of its mini-batch, so shares are summed, and
    the sum is divided by the number of optimizer steps.

    Attributes:
        measured: what adds numbers that are still on their device; read last, because reading waits for the device.
    """

    sums: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    measured: "list[Measured]" = field(default_factory=list)

    def mean(self, metrics: dict[str, float], weight: float) -> None:
        """Add means of a part that weighs `weight`."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value) * weight
            self.weights[name] = self.weights.get(name, 0.0) + weight

    def share(self, name: str, loss: Tensor) -> None:
        """Add a micro-batch's share of a loss."""
        self.shares[name] = self.shares.get(name, 0.0) + float(loss)

    def result(self) -> dict[str, float]:
        for add in self.measured:
            add(self)
        self.measured.clear()
        means = {name: total / self.weights[name] for name, total in self.sums.items() if self.weights[name]}
        return means | {name: total / max(1, self.steps) for name, total in self.shares.items()}


Measured = Callable[[Metrics], None]
"""Adds numbers that are still on their device to the metrics."""
