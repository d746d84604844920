"""Log-probabilities of given tokens under a policy, in micro-batches that share prompts."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlkit.compute import Work
from rlkit.models.decoder import Decoder, SelectedLogProbs
from rlkit.samplers.torch import pad_right
from rlkit.types import Batch


@dataclass(frozen=True)
class Rows:
    """Some sequences of a batch with the prompts that they use, ready for one forward pass.

    Attributes:
        rows: (b,) positions in the batch.
        prompt_ids, prompt_mask: (p, s) the prompts in use, trimmed to the longest.
        index: (b,) prompt of each sequence.
        response_ids, present: (b, t) tokens and where there are any, trimmed to the longest.
    """

    rows: Tensor
    prompt_ids: Tensor
    prompt_mask: Tensor
    index: Tensor
    response_ids: Tensor
    present: Tensor

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

    def work(self) -> Work:
        """Token counts of a forward pass over these rows."""
        prompts, lengths = self.prompt_mask.sum(-1).tolist(), self.present.sum(-1).tolist()
        return Work.of(prompts, [(prompts[i], t) for i, t in zip(self.index.tolist(), lengths, strict=True)])


def micro_batches(batch: Batch, rows: Tensor, size: int, tokens: int) -> Iterator[Rows]:
    """`rows` in order, cut into forward passes of at most `size` sequences, or of `tokens` tokens if size is 0.

    Sequences of a group stand next to each other, so that they meet their prompt in one pass.
    """
    if len(rows) == 0:
        return
    if size == 0:
        lengths = batch.attention[rows].sum(-1) + batch.prompt_mask.sum(-1)[batch.prompt_index[rows]]
        size = max(1, int(tokens / float(lengths.max().clamp(min=1))))
    for start in range(0, len(rows), size):
        yield Rows.of(batch, rows[start : start + size])


def token_logprobs(decoder: Decoder, rows: Rows, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (b, t) of the response tokens; zero where there is no token.

    Logits are computed at real tokens only and divided by the sampling temperature, as the sampler does.
    The entropy carries no gradient.
    """
    hidden = decoder.hidden(rows.prompt_ids, rows.prompt_mask, rows.index, rows.response_ids)  # (b, t, d)
    real = hidden[rows.present]  # (tokens, d)
    logits = decoder.head(real)  # (tokens, V)
    if temperature != 1.0:
        logits = logits / temperature
    logprobs, entropy = SelectedLogProbs.apply(logits, rows.response_ids[rows.present])
    return spread(logprobs, rows.present), spread(entropy, rows.present)


def spread(values: Tensor, present: Tensor) -> Tensor:
    """Values of real tokens (tokens,) as (b, t), zero elsewhere."""
    return values.new_zeros(present.shape).masked_scatter(present, values)


def entropy_with_gradient(decoder: Decoder, rows: Rows, temperature: float) -> Tensor:
    """Entropies (b, t) for an entropy bonus: one more pass whose gradient goes through the whole softmax."""
    hidden = decoder.hidden(rows.prompt_ids, rows.prompt_mask, rows.index, rows.response_ids)
    logprobs = (decoder.head(hidden[rows.present]).float() / temperature).log_softmax(-1)
    return spread(-(logprobs.exp() * logprobs).sum(-1), rows.present)


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
