"""Keys that change nothing: those that a configuration leaves without a use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.config import RunConfig
from rlkit.models.shapes import LADDER
from rlkit.results.read import flatten

if TYPE_CHECKING:
    from rlkit.studies.plan import PlannedRun


def _one_step(config: RunConfig, epochs: int) -> bool:
    """Whether each batch is one optimizer step, so that the policy is the one that sampled."""
    return epochs == 1 and config.actor.ppo_mini_batch_size in (0, config.data.train_batch_size)


def no_warm_start(config: RunConfig) -> bool:
    """Whether a run begins with the model as it is."""
    kind = config.model.warm_start.kind
    return kind == "none" or (kind == "fixed" and config.model.path not in LADDER)


RULES: dict[str, tuple[Callable[[RunConfig], Any], str]] = {
    "actor.clip_ratio actor.clip_ratio_low actor.clip_ratio_high actor.clip_ratio_c": (
        lambda c: _one_step(c, c.actor.ppo_epochs),
        "each batch is one optimizer step, at which the probability ratio is 1: set actor.ppo_mini_batch_size below "
        "data.train_batch_size, or actor.ppo_epochs above 1"),
    "critic algorithm.lam": (
        lambda c: not c.algorithm.needs.critic, "the estimator has no critic: use gae or turn_gae"),
    "critic.cliprange_value": (
        lambda c: _one_step(c, c.critic.ppo_epochs), "each batch is one step of the critic"),
    "algorithm.gamma": (lambda c: not c.algorithm.needs.gamma, "the estimator does not discount"),
    "algorithm.norm_adv_by_std_in_grpo": (
        lambda c: not c.algorithm.needs.std, "the estimator does not divide by a group's standard deviation"),
    "algorithm.kl_penalty algorithm.kl_ctrl": (
        lambda c: not c.algorithm.use_kl_in_reward, "no KL is in the reward: set algorithm.use_kl_in_reward"),
    "algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl": (
        lambda c: c.algorithm.kl_ctrl.type == "fixed",
        "the coefficient is fixed: set algorithm.kl_ctrl.type to adaptive"),
    "actor.kl_loss_coef actor.kl_loss_type": (
        lambda c: not c.actor.use_kl_loss, "no KL is in the loss: set actor.use_kl_loss"),
    "actor.loss_scale_factor": (
        lambda c: c.actor.loss_agg_mode != "seq-mean-token-sum-norm",
        "only actor.loss_agg_mode seq-mean-token-sum-norm divides by it"),
    "actor.policy_loss.clip_cov_ratio actor.policy_loss.clip_cov_lb actor.policy_loss.clip_cov_ub": (
        lambda c: c.actor.policy_loss.loss_mode != "clip_cov", "only the loss clip_cov has it"),
    "actor.policy_loss.kl_cov_ratio actor.policy_loss.ppo_kl_coef": (
        lambda c: c.actor.policy_loss.loss_mode != "kl_cov", "only the loss kl_cov has it"),
    "actor.policy_loss.dro_beta": (
        lambda c: c.actor.policy_loss.loss_mode != "dro", "only the loss dro has it"),
    "actor.optim.min_lr_ratio": (
        lambda c: c.actor.optim.lr_scheduler_type == "constant",
        "the rate is constant: set actor.optim.lr_scheduler_type to cosine"),
    "actor.optim.lr_reference_params": (
        lambda c: not c.actor.optim.lr_exponent,
        "the rate is the same for every size: set actor.optim.lr_exponent"),
    "model.lora_alpha model.lora_dropout model.target_modules": (
        lambda c: not c.model.lora_rank, "there is no adapter: set model.lora_rank"),
    "model.warm_start.steps model.warm_start.batch_size model.warm_start.lr model.warm_start.seed": (
        no_warm_start, "the model has no warm start"),
    "algorithm.filter_groups.metric algorithm.filter_groups.max_num_gen_batches": (
        lambda c: not c.algorithm.filter_groups.enable,
        "no groups are replaced: set algorithm.filter_groups.enable"),
    "rollout.interruption.reserve rollout.interruption.phrase": (
        lambda c: not c.rollout.interruption.enable,
        "no answers are interrupted: set rollout.interruption.enable"),
    "reward.overlong_buffer.len reward.overlong_buffer.penalty_factor": (
        lambda c: not c.reward.overlong_buffer.enable,
        "long answers lose no reward: set reward.overlong_buffer.enable"),
    "trainer.early_stop.patience": (
        lambda c: c.trainer.early_stop.metric is None, "no metric ends the run: set trainer.early_stop.metric"),
    "data.difficulty_field": (
        lambda c: c.data.order != "curriculum", "only data.order curriculum sorts by it"),
    "reward.judge_model": (lambda c: not c.reward.judge_url, "no judge is asked: set reward.judge_url"),
}  # fmt: skip
"""Dotted keys (a section stands for all of its keys) to when they do nothing, and why."""


def inert_keys(config: RunConfig, keys: Iterable[str]) -> dict[str, str]:
    """Those of the dotted keys that change nothing in a run, each with the reason and, where there is one, the fix."""
    found = {}
    for key in keys:
        for own, (unused, why) in RULES.items():
            if any(f"{key}.".startswith(f"{name}.") for name in own.split()) and unused(config):
                found.setdefault(key, why)
    return found


def set_keys(config: RunConfig) -> list[str]:
    """The dotted keys that a params file or an override has set."""
    return list(flatten(config.model_dump(exclude_unset=True)))


def inert_factors(runs: "Sequence[PlannedRun]") -> dict[str, str]:
    """What a study varies and no run of it uses: dotted key to reason."""
    keys = dict.fromkeys(key for run in runs for key in run.overrides)
    varied = [key for key in keys if len({repr(run.overrides.get(key, ...)) for run in runs}) > 1]
    reasons = [inert_keys(run.config, varied) for run in runs]
    return {key: reasons[0][key] for key in varied if all(key in reason for reason in reasons)}


def inert_sentences(reasons: Mapping[str, str]) -> list[str]:
    """A sentence for each of `inert_keys` or `inert_factors`; keys of one reason share theirs."""
    keys: dict[str, list[str]] = {}
    for key, why in reasons.items():
        keys.setdefault(why, []).append(key)
    return [f"Caution: {', '.join(own)} changes nothing here: {why}." for why, own in keys.items()]
