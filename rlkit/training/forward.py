"""Log-probabilities of given tokens under a policy, in micro-batches that share prompts."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rlkit.compute import Work
from rlkit.errors import RunStopped
from rlkit.models.decoder import Decoder
from rlkit.models.layout import Layout
from rlkit.models.logprobs import SelectedLogProbs
from rlkit.samplers.torch import pad_right
from rlkit.types import Batch

T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """Some sequences of a batch with the prompts that they use, ready for one forward pass.

    Attributes:
        rows: (b,) positions in the batch.
        prompt_ids, prompt_mask: (p, s) the prompts in use, trimmed to the longest.
        index: (b,) prompt of each sequence.
        response_ids, present: (b, t) tokens and where there are any, trimmed to the longest.
        counted: (b, 1) 1 for the sequences that the loss and the FLOPs count; None is all.
    """

    rows: Tensor
    prompt_ids: Tensor
    prompt_mask: Tensor
    index: Tensor
    response_ids: Tensor
    present: Tensor
    counted: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, rows: Tensor) -> "Rows":
        used, index = torch.unique(batch.prompt_index[rows], return_inverse=True)
        prompt_mask, present = batch.prompt_mask[used].bool(), batch.attention[rows].bool()
        s, t = int(prompt_mask.sum(-1).max()), int(present.sum(-1).max())
        prompts = batch.prompt_ids[used, :s]
        return cls(rows, prompts, prompt_mask[:, :s], index, batch.response_ids[rows, :t], present[:, :t])

    @property
    def width(self) -> int:
        """t, the longest response among these rows."""
        return self.response_ids.shape[1]

    def cut(self, padded: Tensor) -> Tensor:
        """(b, t) of these rows from (B, T) of the batch."""
        return padded[self.rows, : self.width]

    @cached_property
    def layout(self) -> Layout:
        """Where the packed tokens of the pass belong."""
        return Layout(self.prompt_mask, self.index, self.present)

    @property
    def targets(self) -> Tensor:
        """(N,) the response tokens in the order of `Decoder.states`."""
        return self.layout.targets(self.response_ids)

    def states(self, decoder: Decoder) -> Tensor:
        """(N, d) the states from which the response tokens are predicted."""
        return decoder.states(self.prompt_ids, self.response_ids, self.layout)

    def unpacked(self, values: Tensor) -> Tensor:
        """Values (N,) in the order of `targets` as (b, t), zero where there is no token."""
        return self.layout.board(values)

    def work(self) -> Work:
        """Token counts of a forward pass over these rows, those that are not counted left out."""
        prompts, index, lengths = self.prompt_mask.sum(-1).tolist(), self.index, self.present.sum(-1)
        if self.counted is not None:
            chosen = self.counted[:, 0] > 0
            index, lengths = index[chosen], lengths[chosen]
        of = index.tolist()
        used = [prompts[i] for i in sorted(set(of))]
        return Work.of(used, [(prompts[i], t) for i, t in zip(of, lengths.tolist(), strict=True)])


def micro_batches(batch: Batch, rows: Tensor, size: int, tokens: int) -> Iterator[Rows]:
    """`rows` in order, cut into forward passes of at most `size` sequences, or of `tokens` tokens if size is 0.

    Sequences of a group stand next to each other, so that they meet their prompt in one pass.
    """
    if size:
        for start in range(0, len(rows), size):
            yield Rows.of(batch, rows[start : start + size])
        return
    lengths = batch.attention[rows].sum(-1) + batch.prompt_mask.sum(-1)[batch.prompt_index[rows]]
    ends, total = [0], 0
    for i, length in enumerate(lengths.int().tolist()):
        if total and total + length > tokens:
            ends, total = [*ends, i], 0
        total += length
    for start, end in pairwise([*ends, len(rows)]):
        if end > start:
            yield Rows.of(batch, rows[start:end])


@dataclass
class Passes:
    """How large a model's forward passes are: `size` sequences, or where it is 0 `tokens` tokens. They become smaller
    for the rest of the run where the GPU's memory does not hold one. `limit` is the setting that bounds a sequence, to
    be named where not even one fits."""

    size: int
    tokens: int
    limit: str = "data.max_response_length"

    def parts(self, batch: Batch, rows: Tensor, whole: bool = False) -> Iterator[Rows]:
        """`rows` in passes; `whole` has them in one."""
        return micro_batches(batch, rows, len(batch) if whole else self.size, self.tokens)

    def retried(
        self, work: Callable[[], T], batch: Batch, rows: Tensor, freed: Callable[[], bool] = lambda: False
    ) -> T:
        """What `work` returns, which makes passes over `rows`: where memory runs out it starts again, in halves.

        Args:
            freed: called before; whether it could free something else, so that another try is worth it.

        Raises:
            RunStopped: not even single sequences fit.
        """
        while True:
            try:
                return work()
            except torch.cuda.OutOfMemoryError as error:
                reason = str(error).splitlines()[0]  # not the error, which keeps the failed pass in memory
            torch.cuda.empty_cache()
            if freed():
                continue
            if next(self.parts(batch, rows)).rows.numel() == 1:
                raise too_large(reason, self.limit)
            self.size //= 2  # at 0 the tokens decide
            self.tokens //= 2
            warnings.warn(
                "The GPU's memory does not hold a forward pass: going on with half of it.", stacklevel=2
            )


def too_large(reason: str, limit: str = Passes.limit) -> RunStopped:
    """The end of a run whose smallest forward pass does not fit."""
    return RunStopped(
        f"The GPU's memory does not hold the smallest forward pass of the update ({reason}): set "
        f"model.enable_gradient_checkpointing, use model.lora_rank, or lower {limit}."
    )


def token_logprobs(
    decoder: Decoder, rows: Rows, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (b, t) of the response tokens; zero where there is no token.

    Logits are computed at real tokens only and divided by the sampling temperature, as the sampler does.
    The entropy carries a gradient where `entropy_gradient` asks for it.
    """
    states, weight, kernels = rows.states(decoder), decoder.head_weight, decoder.kernels
    logprobs, entropy = SelectedLogProbs.apply(
        states, weight, rows.targets, temperature, kernels, entropy_gradient
    )
    return rows.unpacked(logprobs), rows.unpacked(entropy)


def text_batch(
    prompts: list[np.ndarray], responses: list[np.ndarray], pad_id: int, device: str = "cpu"
) -> Batch:
    """A Batch of given prompts and responses (one each), all response tokens unmasked, without rewards."""
    prompt_ids, prompt_mask = pad_right(prompts, pad_id)
    response_ids, present = pad_right(responses, pad_id)
    mask = present.float().to(device)
    return Batch(
        prompt_ids=prompt_ids.to(device),
        prompt_mask=prompt_mask.to(device),
        prompt_index=torch.arange(len(prompts), device=device),
        response_ids=response_ids.to(device),
        mask=mask,
        attention=mask,
        rewards=torch.zeros_like(mask),
        sampler_logprobs=torch.zeros_like(mask),
        group=np.arange(len(prompts)),
    )
