"""verl's replay buffer, asked more often, with groups that have lost all but one answer left out."""

from collections import Counter
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class ComparableGroups(ReplayBuffer):
    """Trains on groups of two answers or more.

    An answer that could not be graded is missing from its group. Where that leaves one answer, verl's group
    estimators would take its raw reward for its advantage (the mean of one value is the value itself, which
    they avoid by subtracting nothing), so it is dropped as well. Groups of one by design (`rollout.n` 1) stay.

    verl 0.9.1 looks whether a batch is whole every two seconds, which is most of a small model's step.
    """

    def __init__(self, *args: Any, poll_interval: float = 0.1, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=poll_interval, **kwargs)

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict]
    ) -> Any:
        if partition_id == "train" and self.sampler_kwargs.get("group_size", 1) > 1:
            sizes = Counter(key.split("_")[0] for key in partition_snapshot)
            lone = {uid for uid in selected_prompt_uids if sizes[uid] == 1}
            self._clear_groups(partition_id, lone)
            selected_prompt_uids = [uid for uid in selected_prompt_uids if uid not in lone]
            partition_snapshot = {k: tag for k, tag in partition_snapshot.items() if k.split("_")[0] not in lone}
        return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
