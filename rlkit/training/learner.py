"""A model in training: forward passes that fit the GPU's memory, gradients added up pass by pass, their FLOPs."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from rlkit.compute import Ledger, Shape, Work
from rlkit.config import Actor, Critic, RunConfig
from rlkit.errors import RunStopped
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels
from rlkit.models.loading import Policy
from rlkit.training.forward import CapturedPasses, Rows, token_logprobs
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch


class Learner:
    """A policy, a critic or a supervised model in training, whose FLOPs are counted as a `phase` of the ledger. Its
    forward passes have `size` sequences, or where that is 0 `tokens` tokens; they become smaller for good where the
    GPU's memory does not hold one. `limit` is the setting that bounds a sequence."""

    captured: CapturedPasses | None = None  # passes as CUDA graphs, where the model is so small that they pay
    limit = "data.max_response_length"

    def __init__(
        self, module: nn.Module, model: Any, config: RunConfig, section: Actor | Critic, ledger: Ledger, phase: str,
        kernels: Kernels = EAGER,
    ) -> None:  # fmt: skip
        """`module` trains: the `model` or what holds it beside a head; `section` has its optimizer and epochs."""
        self.decoder = Decoder(model, False, config.model.enable_gradient_checkpointing, kernels)
        self.shape, self.ledger, self.phase = Shape.of(model), ledger, phase
        actor, total = config.actor, config.trainer.total_training_steps * section.ppo_epochs
        self.stepper = Stepper(
            module, section.optim, self.shape.non_embedding, total * actor.mini_batches(config.data.train_batch_size),
            config.model.dtype, actor.optimizer_offload,
        )  # fmt: skip
        self.trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.size = actor.ppo_micro_batch_size
        self.tokens = actor.pass_tokens(on_gpu=self.decoder.device.type == "cuda")

    def parts(self, batch: Batch, rows: Tensor, whole: bool = False) -> Iterator[Rows]:
        """`rows` in order, cut into passes; in one with `whole`."""
        lengths = batch.attention[rows].sum(-1) + batch.prompt_mask.sum(-1)[batch.prompt_index[rows]]
        ends, total = [0], 0
        for i, length in enumerate(lengths.int().tolist()):
            full = i - ends[-1] == self.size if self.size else total and total + length > self.tokens
            if full and not whole:
                ends, total = [*ends, i], 0
            total += length
        return (Rows.of(batch, rows[a:b]) for a, b in pairwise([*ends, len(rows)]) if b > a)

    def state_dict(self) -> dict[str, Any]:
        """The weights that train, by name, and their optimizer."""
        return {"weights": self.trained, "stepper": self.stepper.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, parameter in self.trained.items():
            parameter.copy_(state["weights"][name])
        self.stepper.load_state_dict(state["stepper"])

    @torch.no_grad()
    def padded(self, batch: Batch, of: Callable[[Rows], Tensor], phase: str) -> Tensor:
        """(B, T) of what `of` gives (b, t) for each pass over the batch, without a gradient, counted as `phase`."""
        rows, result = torch.arange(len(batch), device=batch.mask.device), torch.zeros_like(batch.mask)

        def fill(part: Rows) -> None:
            values = of(part)
            result[part.rows, : values.shape[1]] = values.to(result.dtype)

        self._each(lambda: self.parts(batch, rows), fill, self.shape.forward, phase, batch, rows)
        return result

    def accumulate(
        self, batch: Batch, rows: Tensor, loss: Callable[[Rows], tuple[Tensor, Any]], *,
        needed: Tensor | None = None, whole: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Form the gradient of a loss over `rows` (b,) of a batch, pass by pass, for the next `stepper.step`. `loss` is
        a pass's share of the loss (a scalar; shares add up), and what is returned of it. Rows that are not `needed`
        are not computed; with `whole` there is one pass. Raises RunStopped where the smallest does not fit."""
        needed = rows if needed is None else needed

        def parts() -> Iterable[Rows]:
            if self.captured is not None and len(needed):
                captured = self.captured.parts(batch, rows, needed, self.tokens)
                if captured is not None and not (whole and len(captured) > 1):
                    return captured
            return list(self.parts(batch, needed, whole))

        def backward(part: Rows) -> Any:
            if part.counted is not None:
                self.stepper.keep_gradients()  # of the pass before
            value, result = loss(part)
            self.stepper.backward(value)
            return result

        flops = partial(self.shape.training, checkpointing=self.decoder.checkpointing)
        return self._each(parts, backward, flops, self.phase, batch, needed, whole)

    def _each(
        self, parts: Callable[[], Iterable[Rows]], work: Callable[[Rows], Any], flops: Callable[[Work], float],
        phase: str, batch: Batch, rows: Tensor, whole: bool = False,
    ) -> list[Any]:  # fmt: skip
        """What `work` returns of each of the `parts`, counted as `phase`; in halves where memory runs out."""
        while True:
            try:
                results = [(flops(part.work()), work(part)) for part in parts()]
                self.ledger.add(phase, sum(count for count, _ in results))
                return [result for _, result in results]
            except torch.cuda.OutOfMemoryError as error:
                reason = str(error).splitlines()[0]  # not the error, which keeps the failed pass in memory
            self.stepper.optimizer.zero_grad()
            captured, self.captured = self.captured is not None, None
            torch.cuda.empty_cache()
            if captured:
                continue
            if whole or next(self.parts(batch, rows)).rows.numel() == 1:
                reason = "the loss needs its mini-batch in one pass" if whole else reason
                raise RunStopped(
                    f"The GPU's memory does not hold the smallest forward pass of the update ({reason}): set "
                    f"model.enable_gradient_checkpointing, use model.lora_rank, or lower {self.limit}."
                )
            self.size, self.tokens = self.size // 2, self.tokens // 2  # at a size of 0 the tokens decide
            warnings.warn("The GPU's memory holds no such pass: going on with half of it.", stacklevel=2)


class SupervisedTrainer(Learner):
    """Minimises the weighted negative log-likelihood of given responses in `trainer.total_training_steps` steps."""

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        super().__init__(policy.model, policy.model, config, config.actor, Ledger(), "sft")
        self.stepper.step_count = 1  # a warm-up of 20 steps has 20 rates above 0

    def step(self, batch: Batch, weights: Tensor | None = None) -> float:
        """An optimizer step on a batch; its loss before, in nats per token with a weight in `weights` (B, T)."""
        weights = batch.mask if weights is None else weights
        total = float((weights > 0).sum())

        def loss(part: Rows) -> tuple[Tensor, Tensor]:
            logprobs, _ = token_logprobs(self.decoder, part)
            value = -(logprobs * part.cut(weights)).sum() / total
            return value, value.detach()

        rows = torch.arange(len(batch), device=batch.mask.device)
        value = sum(torch.stack(self.accumulate(batch, rows, loss)).tolist())
        self.stepper.step()
        return value

    def loss(self, batch: Batch, weights: Tensor) -> float:
        """The loss of `step`, without a step; it is not counted as "sft"."""
        logprobs = self.padded(batch, lambda part: token_logprobs(self.decoder, part)[0], "ref")
        return -float((logprobs * weights).sum()) / float((weights > 0).sum())
