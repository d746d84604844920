"""What verl cannot do as the configuration asks, refused before anything begins."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from rlkit.config import Optimizer, RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import shape_of
from rlkit.training.checks import UNSPLITTABLE, check_algorithm

ONLY: Mapping[str, tuple[Any, str]] = {
    "model.lora_dropout": (0.0, "verl 0.9.1 trains adapters without dropout: set it to 0"),
    "data.drop_solved_above": (None, "verl's trainer draws every row again: leave it out"),
    "algorithm.truncated": ("end", "verl 0.9.1 does not mask a cut answer: use 'end'"),
    "algorithm.norm_adv_by_std_in_batch": (False, "verl 0.9.1 has no such advantages: set it to false"),
    "algorithm.filter_groups.enable": (False, "verl's V1 trainer replaces no groups: set it to false"),
    "critic.model.lora_rank": (None, "verl's critic is a whole model here: leave it out"),
    "rollout.interruption.enable": (False, "verl's rollouts force no words: set it to false"),
    "reward.overlong_buffer.enable": (False, "the router's processes see no lengths in a verl run: disable it"),
    "async_training.trigger_parameter_sync_step": (1, "verl's V1 trainer syncs weights at every step: use 1"),
    "trainer.early_stop.metric": (None, "verl's trainer does all steps: leave it out"),
    "trainer.keep_best": (None, "verl keeps its newest checkpoints: leave it out"),
    "trainer.resume_from_path": (None, "verl's checkpoints are of another kind: leave it out"),
    "trainer.tf32": (False, "verl has no key for it: use false, or model.dtype bfloat16"),
}  # fmt: skip
"""The one value that verl can have, and why."""

_VOCABULARY = "needs sums over the vocabulary that verl's V1 trainer does not pass on: use another estimator"
NEVER: Mapping[str, Mapping[str, str]] = {
    "algorithm.adv_estimator": {
        "remax": "needs the greedy baseline that verl's V1 trainer does not sample: use another estimator",
        "optimal_token_baseline": _VOCABULARY, "tir_optimal_token_baseline": _VOCABULARY,
        "turn_gae": "needs a value a turn, which verl's trainer does not have: use another estimator",
    },
    "actor.loss_agg_mode": {"prompt-mean-token-mean": "verl 0.9.1 does not have: use token-mean"},
    "trainer.device": {"cpu": "verl does not train on: use auto"},
}  # fmt: skip
"""Values that verl cannot have, and why."""


def check(config: RunConfig) -> None:
    """Refuse what verl cannot do. Raises UserError naming the field, the value and the fix."""
    check_algorithm(config)
    for path, (only, why) in ONLY.items():
        if (value := attrgetter(path)(config)) != only:
            raise UserError(f"{path} is {value!r}, but {why} (trainer.backend verl).")
    for path, whys in NEVER.items():
        if why := whys.get(value := attrgetter(path)(config)):
            raise UserError(f"{path} is {value!r}, which {why}, or trainer.backend local.")
    for sentence, wrong in _clashes(config):
        if wrong:
            raise UserError(sentence)


def _clashes(c: RunConfig) -> Iterator[tuple[str, bool]]:
    """Batches and heads that GPUs cannot share, losses that must not be divided and schedules that verl moves
    otherwise: a sentence each, and whether it is true."""
    gpus, tensor = c.trainer.nnodes * c.trainer.n_gpus_per_node, c.rollout.tensor_model_parallel_size
    sequences, mode = c.mini_batch_size * c.rollout.n, c.actor.policy_loss.loss_mode
    key, heads = f"rollout.tensor_model_parallel_size is {tensor}", _unshared_heads(c.model.path, tensor)
    yield (
        f"{key}, which does not divide the {gpus} GPUs of trainer.nnodes and trainer.n_gpus_per_node: use a divisor.",
        gpus % tensor > 0,
    )
    yield f"{key}, over which vLLM cannot divide the {heads} of {c.model.path!r}: use a divisor.", bool(heads)
    yield (
        f"An optimizer step has {sequences} sequences (actor.ppo_mini_batch_size or data.train_batch_size, times "
        f"rollout.n), which {gpus} GPUs cannot share evenly: change one of them.",
        sequences % gpus > 0,
    )
    yield (
        f"actor.policy_loss.loss_mode is {mode!r}, which chooses tokens within a micro-batch: over {gpus} GPUs the "
        "gradient would be another one. Use one GPU, or another loss.",
        mode in UNSPLITTABLE and gpus > 1,
    )
    steps = {"actor": c.actor.ppo_epochs * c.mini_batches}
    if c.algorithm.adv_estimator == "gae":
        steps["critic"] = c.critic.ppo_epochs
    for name, count in steps.items():
        optim: Optimizer = getattr(c, name).optim
        yield (
            f"{name}.optim has a schedule (lr_warmup_steps {optim.lr_warmup_steps}, lr_scheduler_type "
            f"{optim.lr_scheduler_type!r}) over {count} optimizer steps a step: verl moves the rate once a step, the "
            "local trainer once an optimizer step. Use a constant rate, or one optimizer step a step.",
            count > 1 and (optim.lr_warmup_steps > 0 or optim.lr_scheduler_type != "constant"),
        )


def _unshared_heads(path: str, gpus: int) -> str:
    """The attention heads that `gpus` cannot share; empty where they can, or where the model is not known here."""
    try:
        shape = shape_of(path)
    except UserError:
        return ""
    few, many = sorted((shape.kv_heads, gpus))  # a key head of fewer is copied
    if shape.heads % gpus:
        return f"{shape.heads} attention heads"
    return f"{shape.kv_heads} key heads" if many % few else ""
