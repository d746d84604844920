"""Forward and backward passes over a small model, captured as CUDA graphs and replayed.

A pass over a small model is a thousand kernels of a few microseconds: launching them costs more than running them.
Captured, forward and backward are one launch each. Only the model is in the graphs; the loss, which reads numbers
back, runs between them as ever. A graph is bound to its shapes, so that prompts and responses are padded to a size
that grows with what comes, and padding is computed like tokens (`FullLayout`).

Not covered: LoRA with dropout, gradient checkpointing, groups of unequal size, and models so large that launches do
not matter; their passes run as they are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlkit.models.decoder import Decoder
from rlkit.models.layout import FullLayout
from rlkit.models.logprobs import SelectedLogProbs
from rlkit.models.shapes import width_bucket
from rlkit.training.forward import Rows, token_logprobs
from rlkit.types import Batch

STEP = 8  # tokens; the finest step in which prompts and responses are padded
MOST_WASTE = 2.0  # times the tokens of a pass's own padded size; beyond it a smaller pass is captured
MOST_CAPTURES = 32  # of a run: lengths that jump so much cost more to capture than to launch
FEWEST = 8  # prompts of a pass, below which cutting a batch into equal passes is given up


class PaddedPass(nn.Module):
    """Log-probs and entropies (B, T) of responses, padding included, by operations whose shapes and order depend on
    those of the arguments alone."""

    def __init__(self, decoder: Decoder, temperature: float, entropy_gradient: bool) -> None:
        super().__init__()
        self.model, self.decoder, self.temperature = decoder.base, decoder, temperature
        self.entropy_gradient = entropy_gradient

    def forward(self, prompts: Tensor, prompt_mask: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
        """Of prompts (P, S) with a bool mask, and responses (B, T), B / P to a prompt, side by side."""
        p, b = len(prompts), len(responses)
        index = torch.arange(p, device=prompts.device)[:, None].expand(p, b // p).flatten()
        layout = FullLayout(prompt_mask, index, torch.ones_like(responses, dtype=torch.bool))
        states = self.decoder.states(prompts, responses, layout)
        weight, targets, kernels = self.decoder.head_weight, layout.targets(responses), self.decoder.kernels
        logprobs, entropy = SelectedLogProbs.apply(
            states, weight, targets, self.temperature, kernels, self.entropy_gradient
        )
        return layout.board(logprobs), layout.board(entropy)


class CapturedPasses:
    """The update's passes over one policy; one shape is captured at a time.

    Args:
        decoder: the policy's forward pass, with gradients.
        temperature: the sampling temperature.
        entropy_gradient: whether a gradient flows through the entropies.
    """

    def __init__(self, decoder: Decoder, temperature: float, entropy_gradient: bool = False) -> None:
        self.decoder, self.temperature, self.entropy_gradient = decoder, temperature, entropy_gradient
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
            return token_logprobs(self.decoder, rows, self.temperature, self.entropy_gradient)
        own = width_bucket(s, STEP), width_bucket(t, STEP)
        size = max(own[0], self.size[0]), max(own[1], self.size[1])
        if p * size[0] + b * size[1] > MOST_WASTE * (p * own[0] + b * own[1]):
            size = own
        right, below = (0, size[0] - s), (0, size[1] - t)
        arguments = (
            F.pad(rows.prompt_ids, right),
            F.pad(rows.prompt_mask, right),
            F.pad(rows.response_ids, below),
        )
        if self.run is None or size != self.size:
            self.run, self.size = self._captured(arguments), size
        logprobs, entropy = (x[:, :t].where(rows.present, 0.0) for x in self.run(*arguments))
        return logprobs, entropy

    def _captured(self, arguments: tuple[Tensor, ...]) -> Callable[..., Any]:
        """A pass bound to the shapes of its arguments."""
        self.run = None  # its memory is free before the next takes as much
        self.captures += 1
        run = PaddedPass(self.decoder, self.temperature, self.entropy_gradient)
        if not self.capture:
            return run
        torch.cuda.empty_cache()
        # The parameters' gradients were first accumulated on the stream of the capture; the wait that torch warns of
        # is right, and short.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        return torch.cuda.make_graphed_callables(run, arguments, allow_unused_input=True)
