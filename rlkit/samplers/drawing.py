"""Drawing tokens from logits by inverting the distribution at given random numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlkit.errors import RunStopped


@dataclass(frozen=True)
class Settings:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int


def draw(logits: Tensor, uniform: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Tokens (A,) and their log-probs (A,) from logits (A, V), by inverting the distribution at `uniform` (A,)."""
    logits = logits.float()
    if settings.temperature == 0:
        logprobs = logits.log_softmax(-1)
        token = logprobs.argmax(-1)
        return token, logprobs.gather(1, token[:, None])[:, 0]
    logits = truncated(logits if settings.temperature == 1 else logits / settings.temperature, settings)
    p = logits.softmax(-1)  # (A, V)
    cumulative = p.cumsum(-1)
    # A token of probability zero adds nothing to the sum, so the first sum above the draw is never its own.
    point = uniform.clamp(max=1 - 1e-6) * cumulative[:, -1]
    token = torch.searchsorted(cumulative, point[:, None], right=True)
    token.clamp_(
        max=logits.shape[-1] - 1
    )  # of probabilities that are no numbers, which `require_numbers` refuses
    return token[:, 0], p.gather(1, token)[:, 0].log()


def require_numbers(logprobs: np.ndarray) -> None:
    """Raise RunStopped where log-probs of drawn tokens are no numbers: nothing was drawn from a distribution."""
    if not np.isfinite(logprobs).all():
        raise RunStopped(
            "The model's probabilities are not finite: training has diverged (lower actor.optim.lr, or set "
            "actor.optim.clip_grad), float16 is too narrow for it (model.dtype), or its weights are damaged."
        )


def truncated(logits: Tensor, settings: Settings) -> Tensor:
    """Logits with everything outside top-k and the nucleus (Holtzman et al., arXiv 1904.09751) at -inf."""
    if 0 < settings.top_k < logits.shape[-1]:
        bound = logits.topk(settings.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < bound, -torch.inf)
    if settings.top_p < 1:
        ordered, order = logits.sort(descending=True)
        p = ordered.softmax(-1)
        outside = p.cumsum(-1) - p >= settings.top_p  # what comes before already fills the nucleus
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -torch.inf)
    return logits
