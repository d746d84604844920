"""What verl cannot do of a RunConfig: refused by name before anything begins."""

from rlkit.config import Optimizer, RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import shape_of
from rlkit.verl.fields import FIELDS, Refused, value_at

UNSUPPORTED = {
    "remax": "the greedy baseline that verl's V1 trainer does not sample",
    "optimal_token_baseline": "sums over the vocabulary that verl's V1 trainer does not pass on",
    "tir_optimal_token_baseline": "sums over the vocabulary that verl's V1 trainer does not pass on",
    "turn_gae": "a value a turn, which verl's trainer does not have",
    "turn_returns": "a reward a turn, of which verl's trainer sees the sum only",
    "gigpo": "a reward a turn, of which verl's trainer sees the sum only",
}


def check(config: RunConfig) -> None:
    """Refuse what verl cannot do. Raises UserError naming the field, the value and the fix."""
    from rlkit.training import algorithms

    algorithms.check(config)
    for path, rule in FIELDS.items():
        if isinstance(rule, Refused) and (value := value_at(config, path)) != rule.only:
            raise UserError(f"{path} is {value!r}, but {rule.why} (trainer.backend verl).")
    a, t = config.algorithm, config.trainer
    if a.adv_estimator in UNSUPPORTED:
        raise UserError(
            f"algorithm.adv_estimator is {a.adv_estimator!r}, which needs {UNSUPPORTED[a.adv_estimator]}: "
            "use another estimator, or trainer.backend local."
        )
    if config.actor.loss_agg_mode == "prompt-mean-token-mean":
        raise UserError(
            "actor.loss_agg_mode is 'prompt-mean-token-mean', which verl 0.9.1 does not have: use token-mean, or "
            "trainer.backend local."
        )
    if t.device == "cpu":
        raise UserError(
            "trainer.device is 'cpu', but verl trains on GPUs: use auto, or trainer.backend local."
        )
    _check_splits(config)
    _check_schedules(config)


def _check_splits(config: RunConfig) -> None:
    """Batches that do not divide over the GPUs, and losses that must not be divided."""
    from rlkit.training.algorithms import UNSPLITTABLE

    t, n = config.trainer, config.rollout.n
    gpus, tensor = t.nnodes * t.n_gpus_per_node, config.rollout.tensor_model_parallel_size
    if gpus % tensor:
        raise UserError(
            f"rollout.tensor_model_parallel_size is {tensor}, which does not divide the {gpus} GPUs of "
            "trainer.nnodes and trainer.n_gpus_per_node: use a divisor."
        )
    if tensor > 1 and (heads := _unshared_heads(config, tensor)):
        raise UserError(
            f"rollout.tensor_model_parallel_size is {tensor}, over which vLLM cannot divide the {heads} of "
            f"{config.model.path!r}: use a divisor."
        )
    mini = (config.actor.ppo_mini_batch_size or config.data.train_batch_size) * n
    if mini % gpus:
        raise UserError(
            f"An optimizer step has {mini} sequences (actor.ppo_mini_batch_size or data.train_batch_size, times "
            f"rollout.n), which {gpus} GPUs cannot share evenly: change one of them."
        )
    mode = config.actor.policy_loss.loss_mode
    if mode in UNSPLITTABLE and gpus > 1:
        raise UserError(
            f"actor.policy_loss.loss_mode is {mode!r}, which chooses tokens within a micro-batch: over {gpus} GPUs "
            "the gradient would be another one. Use one GPU, or another loss."
        )


def _unshared_heads(config: RunConfig, gpus: int) -> str:
    """The attention heads that `gpus` cannot share; empty where they can, or where the model is not known here."""
    try:
        shape = shape_of(config.model.path)
    except UserError:
        return ""
    if shape.heads % gpus:
        return f"{shape.heads} attention heads"
    few, many = sorted((shape.kv_heads, gpus))  # a key head of fewer is copied
    return f"{shape.kv_heads} key heads" if many % few else ""


def _check_schedules(config: RunConfig) -> None:
    mini = config.actor.ppo_mini_batch_size or config.data.train_batch_size
    updates = {
        "actor": config.actor.ppo_epochs * config.data.train_batch_size // mini,
        "critic": config.critic.ppo_epochs,
    }
    for name, count in updates.items():
        optim: Optimizer = value_at(config, name).optim
        varies = optim.lr_warmup_steps > 0 or optim.lr_scheduler_type != "constant"
        if count > 1 and varies and (name == "actor" or config.algorithm.adv_estimator == "gae"):
            raise UserError(
                f"{name}.optim has a schedule (lr_warmup_steps {optim.lr_warmup_steps}, lr_scheduler_type "
                f"{optim.lr_scheduler_type!r}) over {count} optimizer steps a step: verl moves the rate once a "
                "step, the local trainer once an optimizer step. Use a constant rate, or one optimizer step a step."
            )
