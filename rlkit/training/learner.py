"""A model in training: forward passes over sequences and the prompts they share, in sizes that fit the GPU's memory;
gradients added up pass by pass; their FLOPs.

`CapturedPasses` launches forward and backward of a small model as one CUDA graph each: without them a step of ladder-3m
took 98 ms on an H200 instead of 69. A graph is bound to its shapes, so that prompts and responses are padded to a size
that grows with what comes, and padding is computed like tokens (`Layout.full`).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlkit.compute import Ledger, Shape, Work
from rlkit.config import Actor, Critic, RunConfig
from rlkit.errors import RunStopped
from rlkit.models.attention import Layout, pad_right
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, Kernels
from rlkit.models.loading import Policy
from rlkit.models.logprobs import SelectedLogProbs
from rlkit.models.shapes import width_bucket
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch

STEP = 8  # tokens; the finest step in which prompts and responses are padded
MOST_WASTE = 2.0  # times the tokens of a pass's own padded size; beyond it a smaller pass is captured
MOST_CAPTURES = 32  # of a run: lengths that jump so much cost more to capture than to launch
FEWEST = 8  # prompts of a pass, below which cutting a batch into equal passes is given up


@dataclass(frozen=True)
class Rows:
    """Some sequences of a batch with the prompts that they use, trimmed to the longest, for one forward pass."""

    rows: Tensor  # (b,) positions in the batch
    prompt_ids: Tensor  # (p, s)
    response_ids: Tensor  # (b, t)
    layout: Layout  # where their tokens belong
    counted: Tensor | None = None  # (b, 1) 1 for the sequences that the loss and the FLOPs count; None is all

    @classmethod
    def of(cls, batch: Batch, rows: Tensor) -> "Rows":
        used, index = torch.unique(batch.prompt_index[rows], return_inverse=True)
        prompt_mask, present = batch.prompt_mask[used].bool(), batch.attention[rows].bool()
        s, t = int(prompt_mask.sum(-1).max()), int(present.sum(-1).max())
        layout = Layout(prompt_mask[:, :s], index, present[:, :t])
        return cls(rows, batch.prompt_ids[used, :s], batch.response_ids[rows, :t], layout)

    def cut(self, padded: Tensor) -> Tensor:
        """(b, t) of these rows from (B, T) of the batch."""
        return padded[self.rows, : self.response_ids.shape[1]]

    def states(self, decoder: Decoder) -> Tensor:
        """(N, d) the states from which the response tokens are predicted."""
        return decoder.states(self.prompt_ids, self.response_ids, self.layout)

    def work(self) -> Work:
        """Token counts of a forward pass over these rows, those that are not counted left out."""
        counted = slice(None) if self.counted is None else self.counted[:, 0] > 0
        of, lengths = (x[counted].tolist() for x in (self.layout.index, self.layout.present.sum(-1)))
        prompts = self.layout.lengths.tolist()
        pairs = [(prompts[i], t) for i, t in zip(of, lengths, strict=True)]
        return Work.of([prompts[i] for i in sorted(set(of))], pairs)


def token_logprobs(
    decoder: Decoder, rows: Rows, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (b, t) of response tokens at the sampling temperature, zero elsewhere."""
    states, targets = rows.states(decoder), rows.layout.targets(rows.response_ids)
    settings = temperature, decoder.kernels, entropy_gradient
    logprobs, entropy = SelectedLogProbs.apply(states, decoder.head_weight, targets, *settings)
    return rows.layout.padded(logprobs), rows.layout.padded(entropy)


def text_batch(
    prompts: Sequence[np.ndarray], responses: Sequence[np.ndarray], pad_id: int, device: torch.device | str = "cpu"
) -> Batch:  # fmt: skip
    """A Batch of given prompts and responses, unmasked, each response to its own prompt."""
    (prompt_ids, prompt_mask), (response_ids, present) = (pad_right(x, pad_id) for x in (prompts, responses))
    of, mask = torch.arange(len(responses)), present.float().to(device)
    return Batch(
        prompt_ids.to(device), prompt_mask.to(device), of.to(device), response_ids.to(device), mask=mask,
        attention=mask, rewards=torch.zeros_like(mask), sampler_logprobs=torch.zeros_like(mask),
    )  # fmt: skip


class PaddedPass(nn.Module):
    """Log-probs and entropies (B, T) of responses, padding included, by operations that the shapes alone decide."""

    def __init__(self, decoder: Decoder, temperature: float, entropy_gradient: bool) -> None:
        super().__init__()
        self.model, self.decoder, self.settings = decoder.base, decoder, (temperature, entropy_gradient)

    def forward(self, prompts: Tensor, prompt_mask: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
        """Of prompts (P, S) with a bool mask, and responses (B, T), B / P to a prompt, side by side."""
        p, b = len(prompts), len(responses)
        index = torch.arange(p, device=prompts.device)[:, None].expand(p, b // p).flatten()
        layout = Layout(prompt_mask, index, torch.ones_like(responses, dtype=torch.bool), full=True)
        return token_logprobs(self.decoder, Rows(index, prompts, responses, layout), *self.settings)


class CapturedPasses:
    """The update's passes over one policy at the sampling temperature; one shape is captured at a time."""

    def __init__(self, decoder: Decoder, temperature: float, entropy_gradient: bool = False) -> None:
        self.decoder, self.settings = decoder, (temperature, entropy_gradient)
        self.capture = decoder.device.type == "cuda"  # elsewhere the same pass runs as it is, as tests do
        self.counts: tuple[int, int] = (0, 0)  # prompts and responses of the last pass
        self.size: tuple[int, int] = (0, 0)  # tokens of its prompts and responses, padded
        self.run: Callable[..., Any] | None = None
        self.captures = 0

    def parts(self, batch: Batch, rows: Tensor, needed: Tensor, tokens: int) -> list[Rows] | None:
        """`rows` as passes over equally many groups of one size, at most `tokens` tokens each; None where groups
        differ. All of them are computed, so that shapes stay; those that are `needed` are counted."""
        index = batch.prompt_index[rows].cpu().numpy()
        prompts, counts = np.unique(index, return_counts=True)
        group = int(counts[0])
        if not np.array_equal(index, np.repeat(prompts, group)):
            return None
        longest = batch.prompt_ids.shape[1] + group * batch.response_ids.shape[1]
        count = max(1, -(-len(prompts) * longest // tokens))
        while len(prompts) % count:
            count += 1
        if count > 1 and len(prompts) // count < FEWEST:
            return None
        counted = torch.zeros_like(batch.mask[:, :1]).index_fill_(0, needed, 1.0)
        return [replace(Rows.of(batch, part), counted=counted[part]) for part in rows.chunk(count)]

    def __call__(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """`token_logprobs` of one of `parts`: as it is the first time, captured the second, replayed from then on."""
        (p, s), (b, t) = rows.prompt_ids.shape, rows.response_ids.shape
        if (p, b) != self.counts or self.captures == MOST_CAPTURES:
            self.counts, self.size, self.run = (p, b), (0, 0), None
            return token_logprobs(self.decoder, rows, *self.settings)
        own = width_bucket(s, STEP), width_bucket(t, STEP)
        size = max(own[0], self.size[0]), max(own[1], self.size[1])
        if p * size[0] + b * size[1] > MOST_WASTE * (p * own[0] + b * own[1]):
            size = own
        right, below = (0, size[0] - s), (0, size[1] - t)
        prompts = (F.pad(x, right) for x in (rows.prompt_ids, rows.layout.prompt_mask))
        arguments = *prompts, F.pad(rows.response_ids, below)
        if self.run is None or size != self.size:
            self.run, self.size = self._captured(arguments), size
        logprobs, entropy = (x[:, :t].where(rows.layout.present, 0.0) for x in self.run(*arguments))
        return logprobs, entropy

    def _captured(self, arguments: tuple[Tensor, ...]) -> Callable[..., Any]:
        """A pass bound to the shapes of its arguments."""
        self.run = None  # its memory is free before the next takes as much
        self.captures += 1
        run = PaddedPass(self.decoder, *self.settings)
        if not self.capture:
            return run
        torch.cuda.empty_cache()
        # The parameters' gradients were first accumulated on the stream of the capture; the wait that torch warns of
        # is right, and short.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        return torch.cuda.make_graphed_callables(run, arguments, allow_unused_input=True)


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
            module, section.optim, self.shape.non_embedding, total * config.mini_batches,
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

    def step(self, batch: Batch, weights: Tensor) -> float:
        """An optimizer step on a batch; its loss before, in nats per token with a weight in `weights` (B, T)."""
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
