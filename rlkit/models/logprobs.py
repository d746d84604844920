"""Log-probabilities of chosen tokens from hidden states, without keeping all logits."""

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.kernels import EAGER

CHUNK = 2**26  # logits held at once: 256 MiB in float32


def logits_of(hidden: Tensor, weight: Tensor, temperature: float = 1.0) -> Tensor:
    """Logits (N, V) of states (N, d), divided by the temperature, in at least float32.

    The products are of 16 bits where the states are, but their sums are kept: rounding logits of 10 or 20 to
    bfloat16 would move log-probs by hundredths.
    """
    weight = weight.to(hidden.dtype)
    if hidden.dtype.itemsize == 2:
        if hidden.is_cuda and not torch.is_grad_enabled():
            logits = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
        else:
            logits = F.linear(hidden.float(), weight.float())
    else:
        logits = F.linear(hidden, weight)
    return logits if temperature == 1 else logits / temperature


class SelectedLogProbs(torch.autograd.Function):
    """Log-probs (N,) of `targets` (N,) under softmax(hidden · weightᵀ / temperature), and entropies (N,).

    Where all logits fit in CHUNK, their softmax is kept and the backward pass writes p − onehot once. Otherwise
    the logits are formed chunk by chunk: since the gradient to a state is the token's own gradient times a
    vector that the forward pass knows, that vector is kept instead (N, d); only the gradient to the weight
    forms the logits again. The entropy carries no gradient.
    """

    @staticmethod
    def forward(
        ctx, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0, softmax=EAGER.softmax
    ):
        rows = max(1, CHUNK // len(weight))
        whole, wanted = len(hidden) <= rows, any(ctx.needs_input_grad)
        selected, entropy, kept = [], [], []
        for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
            logits = logits_of(h, weight, temperature)  # (n, V)
            logprobs, entropies, p = softmax(logits, t, logits.dtype if whole else h.dtype)
            selected.append(logprobs)
            entropy.append(entropies)
            if wanted:
                kept.append(p if whole else direction(p, t, weight))
        if wanted:
            ctx.save_for_backward(hidden, weight, targets, torch.cat(kept))
            ctx.whole, ctx.rows, ctx.temperature = whole, rows, temperature
        selected, entropy = torch.cat(selected), torch.cat(entropy)
        ctx.mark_non_differentiable(entropy)
        return selected, entropy

    @staticmethod
    def backward(ctx, *grads: Tensor):
        hidden, weight, targets, kept = ctx.saved_tensors
        grad = grads[0] if ctx.temperature == 1 else grads[0] / ctx.temperature
        if ctx.whole:
            d = logit_gradient(kept, targets, grad).to(hidden.dtype)
            to_weight = (d.t() @ hidden).to(weight.dtype) if ctx.needs_input_grad[1] else None
            return d @ weight.to(hidden.dtype), to_weight, None, None, None
        to_weight = None
        if ctx.needs_input_grad[1]:
            to_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
            parts = zip(hidden.split(ctx.rows), targets.split(ctx.rows), grad.split(ctx.rows), strict=True)
            for h, t, g in parts:
                p = logits_of(h, weight, ctx.temperature).softmax(-1)
                to_weight += logit_gradient(p, t, g).to(h.dtype).t() @ h
            to_weight = to_weight.to(weight.dtype)
        return (kept * grad[:, None]).to(hidden.dtype), to_weight, None, None, None


def logit_gradient(p: Tensor, targets: Tensor, grad: Tensor) -> Tensor:
    """(onehot − p) · grad, (n, V)."""
    out = p * -grad[:, None]
    out[torch.arange(len(out), device=out.device), targets] += grad
    return out


def direction(p: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """(onehot − p) · weight, (n, d): the gradient of a log-prob to its state, before the temperature."""
    return weight[targets].float() - (p @ weight.to(p.dtype)).float()
