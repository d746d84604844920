"""Proof that the sampler holds the trainer's weights: both price the same tokens of fixed prompts."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlkit.config import RunConfig
from rlkit.errors import RunStopped
from rlkit.models.decoder import Decoder
from rlkit.models.loading import Policy, adapted_weights
from rlkit.samplers.rollouts import ENVIRONMENT, prompt_ids
from rlkit.seeds import derive
from rlkit.training.forward import Rows, text_batch, token_logprobs
from rlkit.types import Sampler, Task

PROMPTS, TOKENS = 16, 32
PART = 2**24  # numbers that are hashed at once
MIX = (-7046029254386353131, -4658895280553007687)  # odd factors of 64 bits: each place has one of its own
EDGES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the histogram of |Δ log p|; the last bin is open


class SyncProbe:
    """Samples fixed prompts and compares the sampler's log-probs with the trainer's, after a sync.

    Args:
        tasks: where the prompts come from; the first that are answered in one turn are used.
    """

    def __init__(self, config: RunConfig, policy: Policy, tasks: Sequence[Task]) -> None:
        self.config, self.policy = config, policy
        single = [t for t in tasks if not t.data_source.startswith(ENVIRONMENT)][:PROMPTS]
        self.prompts = prompt_ids(single, policy, config.data.max_prompt_length)

    def check(self, sampler: Sampler, step: int) -> dict[str, Any]:
        """{step, mean, max, histogram, weights}: |Δ log p| a token in nats, and a hash of what trains.

        Raises:
            RunStopped: the mean is above rollout.max_logprob_gap: the sampler has other weights.
        """
        c = self.config
        groups = sampler.sample(
            self.prompts, 1, seed=derive("probe", c.seed), temperature=c.rollout.temperature,
            max_tokens=min(TOKENS, c.data.max_response_length),
        )  # fmt: skip
        sampler.release()  # a large engine fills the card, where the trainer's pass needs a part
        samples = [group[0] for group in groups]
        device = self.policy.device
        batch = text_batch(self.prompts, [s.ids for s in samples], self.policy.pad_id, str(device))
        rows = Rows.of(batch, torch.arange(len(samples), device=device))
        with torch.no_grad():
            ours, _ = token_logprobs(Decoder(self.policy.model), rows, c.rollout.temperature)
        gaps = np.abs(
            ours[rows.present].float().cpu().numpy() - np.concatenate([s.logprobs for s in samples])
        )
        result = {
            "step": step,
            "mean": float(gaps.mean()),
            "max": float(gaps.max()),
            "edges": EDGES,
            "histogram": np.histogram(gaps, [*EDGES, np.inf])[0].tolist(),
            "weights": weights_hash(self.policy.model),
        }
        if not result["mean"] <= c.max_logprob_gap:  # a NaN is no agreement
            raise RunStopped(
                f"At step {step} the sampler and the trainer differ by {result['mean']:.3g} nats a token on the probe "
                f"(most: {result['max']:.3g}), above rollout.max_logprob_gap = {c.max_logprob_gap:g}: the "
                "sampler does not hold the trainer's weights, or computes them in another precision."
            )
        return result


def weights_hash(model: torch.nn.Module) -> str:
    """A hash (16 hex digits) of the bits of the weights that train, which stay on their device."""
    digest = hashlib.sha256()
    for name, weight in adapted_weights(model):
        digest.update(f"{name} {tuple(weight.shape)} {bits_sum(weight.detach())}".encode())
    return digest.hexdigest()[:16]


def bits_sum(tensor: torch.Tensor) -> int:
    """The sum, modulo 2^64, of the bits of each number times an odd factor that its place has: one read of the tensor,
    and the same on every device."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits, total = tensor.contiguous().view(-1).view(kinds[tensor.element_size()]), 0
    for start in range(0, len(bits), PART):
        part = bits[start : start + PART].long()
        place = torch.arange(start, start + len(part), device=part.device)
        place = (place * MIX[0]) ^ (place >> 7)
        total += int(((part ^ (part << 17)) * (place * MIX[1] | 1)).sum())
    return total % 2**64
