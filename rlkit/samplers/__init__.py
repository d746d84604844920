"""Samplers: where responses come from. `torch` runs anywhere; both sides speak `rlkit.types.Sampler`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlkit.config import RunConfig
    from rlkit.models.loading import Policy
    from rlkit.types import Sampler


def make_sampler(policy: "Policy", config: "RunConfig") -> "Sampler":
    """The sampler that `rollout.name` asks for, holding the policy's weights.

    Raises UserError when it is not installed here.
    """
    from rlkit.errors import UserError
    from rlkit.samplers.torch import TorchSampler

    if config.rollout.name == "vllm":
        raise UserError("rollout.name is 'vllm', which this version does not run: use torch.")
    return TorchSampler(policy.model, policy.stop_ids, policy.pad_id, config.rollout.max_num_seqs)
