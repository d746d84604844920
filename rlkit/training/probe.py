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
    """SHA-256 (16 hex digits) of the weights that train."""
    digest = hashlib.sha256()
    for name, weight in adapted_weights(model):
        digest.update(name.encode())
        digest.update(weight.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
