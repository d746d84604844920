"""Drawing tokens from logits by inverting the distribution at given random numbers."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlkit.errors import RunStopped

BELOW_ONE = 1 - 1e-6  # a draw of one would be above every sum


class Settings(NamedTuple):
    """How tokens are drawn."""

    temperature: float
    top_p: float
    max_tokens: int


def draw(logits: Tensor, uniform: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Tokens (A,) and their log-probs (A,) from logits (A, V): the first tokens at which the running sum of
    probabilities comes above `uniform` (A,) of the whole. A token of probability zero is never drawn."""
    logits = logits.float()
    if settings.temperature == 0:
        logprobs = logits.log_softmax(-1)
        token = logprobs.argmax(-1)
        return token, logprobs.gather(1, token[:, None])[:, 0]
    logits = logits if settings.temperature == 1 else logits / settings.temperature
    p = (logits if settings.top_p == 1 else nucleus(logits, settings.top_p)).softmax(-1)  # (A, V)
    sums = p.cumsum(-1)
    point = uniform.clamp(max=BELOW_ONE)[:, None] * sums[:, -1:]
    # of probabilities that are no numbers, which `require_numbers` refuses, the last
    token = torch.searchsorted(sums, point, right=True).clamp_(max=p.shape[-1] - 1)
    return token[:, 0], p.gather(1, token)[:, 0].log()


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
