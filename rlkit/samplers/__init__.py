"""Samplers: where responses come from. All speak `rlkit.types.Sampler`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler


def make_sampler(policy: "Policy", config: "RunConfig") -> "Sampler":
    """The sampler that `rollout.name` asks for, holding the policy's weights."""
    from rlkit.samplers.torch import TorchSampler

    return TorchSampler(policy.model, policy.stop_ids, policy.pad_id, config.rollout.max_num_seqs)
