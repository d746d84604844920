"""A model in training: its forward passes, its optimizer, and what they cost."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlkit.compute import Ledger, Shape
from rlkit.models.decoder import Decoder
from rlkit.training.captured import CapturedPasses
from rlkit.training.forward import Passes, Rows, too_large
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch


class Learner:
    """A policy, a critic or a supervised model in training.

    Args:
        decoder: the forward pass, with gradients.
        stepper: the optimizer of what trains.
        shape: what the FLOPs of a pass follow from.
        passes: how large a pass is.
        ledger: adds up FLOPs and optimizer steps.
        phase: of the ledger, that training belongs to.
        captured: passes as CUDA graphs, where the model is so small that they pay.
    """

    def __init__(
        self,
        decoder: Decoder,
        stepper: Stepper,
        shape: Shape,
        passes: Passes,
        ledger: Ledger,
        phase: str,
        captured: CapturedPasses | None = None,
    ) -> None:
        self.decoder, self.stepper, self.shape, self.passes = decoder, stepper, shape, passes
        self.ledger, self.phase, self.captured = ledger, phase, captured

    @torch.no_grad()
    def padded(self, batch: Batch, of: Callable[[Rows], Tensor], phase: str) -> Tensor:
        """(B, T) of what `of` gives (b, t) for each pass over the batch, without a gradient, counted as `phase`."""
        rows = torch.arange(len(batch), device=batch.mask.device)

        def work() -> tuple[Tensor, float]:
            result, flops = torch.zeros_like(batch.mask), 0.0
            for part in self.passes.parts(batch, rows):
                values = of(part)
                result[part.rows, : values.shape[1]] = values.to(result.dtype)
                flops += self.shape.forward(part.work())
            return result, flops

        result, flops = self.passes.retried(work, batch, rows)
        self.ledger.add(phase, flops)
        return result

    def accumulate(
        self,
        batch: Batch,
        rows: Tensor,
        loss: Callable[[Rows], tuple[Tensor, Any]],
        *,
        needed: Tensor | None = None,
        whole: bool = False,
    ) -> list[Any]:
        """Form the gradient of a loss over some rows of a batch, pass by pass, for the next `stepper.step`.

        Where the GPU's memory does not do, it starts again in passes of half the size, which have the same gradient.

        Args:
            rows: (b,) positions in the batch.
            loss: a pass's share of the loss (a scalar; shares add up), and anything else to hand back.
            needed: those of the rows whose loss can have a gradient; default all. Others are not computed.
            whole: the loss must not be split into passes.

        Returns:
            What `loss` handed back, of each pass.

        Raises:
            RunStopped: not even single sequences fit, or the loss cannot be split.
        """
        needed = rows if needed is None else needed

        def work() -> tuple[list[Any], float]:
            self.stepper.optimizer.zero_grad()  # of a try that did not fit
            results, flops, parts = [], 0.0, self._parts(batch, rows, needed, whole)
            for i, part in enumerate(parts):
                flops += self.shape.training(part.work(), self.decoder.checkpointing)
                value, result = loss(part)
                self.stepper.backward(value)
                results.append(result)
                if part.counted is not None and i + 1 < len(parts):
                    self.stepper.keep_gradients()
            return results, flops

        def freed() -> bool:
            self.stepper.optimizer.zero_grad()
            if self.captured is not None:
                self.captured = None
                torch.cuda.empty_cache()
                return True
            if whole:
                raise too_large("the loss needs its mini-batch in one pass", self.passes.limit)
            return False

        results, flops = self.passes.retried(work, batch, needed, freed)
        self.ledger.add(self.phase, flops)
        return results

    def _parts(self, batch: Batch, rows: Tensor, needed: Tensor, whole: bool) -> list[Rows]:
        if self.captured is not None and len(needed):
            captured = self.captured.parts(batch, rows, needed, self.passes.tokens)
            if captured is not None and not (whole and len(captured) > 1):
                return captured
        return list(self.passes.parts(batch, needed, whole))
