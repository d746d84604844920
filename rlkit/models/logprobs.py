"""Log-probabilities of chosen tokens from hidden states, without keeping all logits."""

import torch
from torch import Tensor

from rlkit.models.kernels import EAGER, TINY, Kernels
from rlkit.models.shapes import CHUNK


def logits_of(hidden: Tensor, weight: Tensor, temperature: float = 1.0) -> Tensor:
    """Logits (N, V) of states (N, d), in at least float32: bfloat16 would move log-probs by hundredths."""
    logits = product(hidden, weight.to(hidden.dtype).t())
    return logits if temperature == 1 else logits / temperature


def product(a: Tensor, b: Tensor) -> Tensor:
    """a (n, k) · b (k, m) in at least float32: of 16-bit factors the sums are not rounded."""
    if a.dtype.itemsize > 2:
        return a @ b
    if a.is_cuda and not torch.is_grad_enabled():
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


@torch.no_grad()
def squared_probabilities(hidden: Tensor, weight: Tensor, temperature: float = 1.0) -> Tensor:
    """(N,) the sum over the vocabulary of squared probabilities, for states (N, d)."""
    parts = hidden.split(max(1, CHUNK // len(weight)))
    return torch.cat([logits_of(h, weight, temperature).softmax(-1).square().sum(-1) for h in parts])


class SelectedLogProbs(torch.autograd.Function):
    """Log-probs (N,) of `targets` (N,) under softmax(hidden · weightᵀ / temperature), and entropies (N,).

    Where all logits fit in CHUNK, their softmax is kept. Otherwise logits are formed chunk by chunk, and the vectors
    (N, d) are kept by which gradients of log-probs and entropies reach the states; only the gradient to the weight
    forms the logits again. With `entropy_gradient` a gradient flows through the entropies too.
    """

    @staticmethod
    def forward(
        ctx, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0,
        kernels: Kernels = EAGER, entropy_gradient: bool = False,
    ):  # fmt: skip
        rows, wanted = max(1, CHUNK // len(weight)), any(ctx.needs_input_grad)
        whole = len(hidden) <= rows
        selected, entropy, kept, of_entropy = [], [], [], []
        for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
            logits, rest = logits_of(h, weight, temperature), None  # (n, V)
            if whole or entropy_gradient:
                logprobs, entropies, p = kernels.softmax(logits, t)
            else:
                logprobs, entropies, p, rest = kernels.others(logits, t, h.dtype)
            selected.append(logprobs)
            entropy.append(entropies)
            if not wanted:
                continue
            if whole:
                kept.append(p)
            elif rest is None:
                kept.append(to_states(logit_gradient(p, t, torch.ones_like(logprobs), True), weight, h.dtype))
                of_entropy.append(to_states(entropy_gradient_of(p, entropies), weight, h.dtype))
            else:  # (onehot − p) · weight, from how far the others' mean weight is from the token's own
                kept.append((weight[t].float() - product(p, weight.to(p.dtype))) * rest[:, None])
        selected, entropy = torch.cat(selected), torch.cat(entropy)
        if wanted:
            vectors = torch.cat(of_entropy) if of_entropy else None
            ctx.save_for_backward(hidden, weight, targets, torch.cat(kept), entropy, vectors)
            ctx.whole, ctx.rows, ctx.temperature = whole, rows, temperature
        ctx.entropy_gradient = entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return selected, entropy

    @staticmethod
    def backward(ctx, *grads: Tensor):
        hidden, weight, targets, kept, entropy, vectors = ctx.saved_tensors
        grad, bonus = (g if g is None or ctx.temperature == 1 else g / ctx.temperature for g in grads)
        bonus = bonus if ctx.entropy_gradient else None

        def of_logits(p: Tensor, rows: slice) -> Tensor:
            """(n, V) from the probabilities of some rows."""
            d = logit_gradient(p, targets[rows], grad[rows], hidden.dtype.itemsize == 2)
            if bonus is not None:
                d.addcmul_(entropy_gradient_of(p, entropy[rows]), bonus[rows, None])
            return d

        to_weight = None
        if ctx.whole:
            d = of_logits(kept, slice(None))
            if ctx.needs_input_grad[1]:
                to_weight = (d.to(hidden.dtype).t() @ hidden).to(weight.dtype)
            return (d @ weight.to(d.dtype)).to(hidden.dtype), to_weight, None, None, None, None
        if ctx.needs_input_grad[1]:
            to_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
            for start in range(0, len(hidden), ctx.rows):
                rows = slice(start, start + ctx.rows)
                p = logits_of(hidden[rows], weight, ctx.temperature).softmax(-1)
                to_weight += of_logits(p, rows).to(hidden.dtype).t() @ hidden[rows]
            to_weight = to_weight.to(weight.dtype)
        to_hidden = kept * grad[:, None]
        if bonus is not None:
            to_hidden += vectors * bonus[:, None]
        return to_hidden.to(hidden.dtype), to_weight, None, None, None, None


def logit_gradient(p: Tensor, targets: Tensor, grad: Tensor, by_sum: bool) -> Tensor:
    """(onehot − p) · grad, (n, V); `by_sum`: 1 − p of the target is the sum of the others, exact for a likely one."""
    out, at = p * -grad[:, None], targets[:, None]
    if not by_sum:
        return out.scatter_add_(1, at, grad[:, None])
    out.scatter_(1, at, 0.0)  # a scatter can be captured in a CUDA graph, an indexed write of a number cannot
    return out.scatter_(1, at, -out.sum(-1, keepdim=True))


def entropy_gradient_of(p: Tensor, entropy: Tensor) -> Tensor:
    """−p (log p + H), (n, V): the gradient of entropies H (n,) to the logits."""
    return torch.special.entr(p).addcmul_(p, entropy[:, None], value=-1)


def to_states(d: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """d (n, V) · weight (V, d), by a product of `dtype`. Rows that go into 16 bits are scaled to a largest entry of 1:
    the gradient of a confident token would vanish in float16."""
    if dtype.itemsize > 2:
        return d @ weight.to(dtype)
    largest = d.abs().amax(-1, keepdim=True).clamp_min(TINY)
    return product((d / largest).to(dtype), weight.to(dtype)) * largest
