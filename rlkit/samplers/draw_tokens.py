"""Drawing tokens from logits by inverting the distribution at given random numbers."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlkit.errors import RunStopped

BELOW_ONE = 1 - 1e-6  # a draw of one would be above every sum
LARGE = 8_192  # words of a vocabulary that is summed in blocks
SMALLEST_BLOCK, LARGEST_BLOCK = 64, 512


class Settings(NamedTuple):
    """How tokens are drawn."""

    temperature: float
    top_p: float


def draw(logits: Tensor, uniform: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Tokens (A,) and their log-probs (A,) from logits (A, V), by inverting the distribution at `uniform` (A,)."""
    if settings.temperature == 0:
        logprobs = logits.log_softmax(-1, dtype=torch.float32)
        token = logprobs.argmax(-1)
        return token, logprobs.gather(1, token[:, None])[:, 0]
    logits = logits if settings.temperature == 1 else logits.float() / settings.temperature
    logits = logits if settings.top_p == 1 else nucleus(logits.float(), settings.top_p)
    p = logits.softmax(-1, dtype=torch.float32)  # (A, V); no copy of 16-bit logits, which are large
    token = _inverted(p, uniform.clamp(max=BELOW_ONE)[:, None])
    return token[:, 0], p.gather(1, token)[:, 0].log()


def _inverted(p: Tensor, uniform: Tensor) -> Tensor:
    """The tokens (A, 1) at which the running sum of p (A, V) comes above `uniform` (A, 1) of the whole: of a large
    vocabulary first the block of tokens, because a running sum takes several times as long as a sum."""
    size = math.gcd(p.shape[-1], LARGEST_BLOCK)  # tokens that are summed together
    if p.shape[-1] < LARGE or size < SMALLEST_BLOCK:
        sums = p.cumsum(-1)
        return _first_above(sums, uniform * sums[:, -1:])
    blocks = p.unflatten(-1, (-1, size))
    sums = blocks.sum(-1).cumsum(-1)  # (A, V / size)
    point = uniform * sums[:, -1:]
    block = _first_above(sums, point)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = blocks.gather(1, block[..., None].expand(-1, -1, size))[:, 0].cumsum(-1)  # (A, size)
    # Summed in another order, the block may end below the point.
    rest = torch.minimum(point - before, BELOW_ONE * inside[:, -1:])
    return block * size + _first_above(inside, rest)


def _first_above(sums: Tensor, point: Tensor) -> Tensor:
    """The places (A, 1) of the first of `sums` (A, n) above `point` (A, 1). A probability of zero adds nothing to the
    sum, so it is never its own; of probabilities that are no numbers, which `require_numbers` refuses, the last."""
    return torch.searchsorted(sums, point, right=True).clamp_(max=sums.shape[-1] - 1)


def require_numbers(logprobs: np.ndarray) -> None:
    """Raise RunStopped where log-probs of drawn tokens are no numbers: nothing was drawn from a distribution."""
    if not np.isfinite(logprobs).all():
        raise RunStopped(
            "The model's probabilities are not finite: training has diverged (lower actor.optim.lr, or set "
            "actor.optim.clip_grad), float16 is too narrow for it (model.dtype), or its weights are damaged."
        )


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Logits with everything outside the nucleus (Holtzman et al., arXiv 1904.09751) at -inf."""
    ordered, order = logits.sort(descending=True)
    p = ordered.softmax(-1)
    outside = p.cumsum(-1) - p >= top_p  # what comes before already fills the nucleus
    return logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -torch.inf)
