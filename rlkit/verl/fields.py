"""Every leaf of RunConfig, and what becomes of it in a verl run: nothing is dropped silently.

`To` names the keys of verl 0.9.1 that a field sets, `By` who else takes care of it, `Refused` what verl cannot
do. A test holds that no leaf is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlkit.config import LINEAR, RewardConfig, RunConfig
from rlkit.samplers.choice import together


@dataclass(frozen=True)
class To:
    """Mapped: the value, or `value(it, config)`, under these keys."""

    keys: tuple[str, ...]
    value: Callable[[Any, RunConfig], Any] = lambda value, _: value


@dataclass(frozen=True)
class By:
    """Handled by rlkit, as the text says."""

    how: str


@dataclass(frozen=True)
class Refused:
    """Not for verl: a value other than `only` is a UserError that ends with `why`."""

    only: Any
    why: str


def to(*keys: str, value: Callable[[Any, RunConfig], Any] | None = None) -> To:
    """A field under one or more of verl's keys."""
    return To(keys) if value is None else To(keys, value)


ARR, ACTOR, ROLLOUT = "actor_rollout_ref.", "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
_DATA, _REWARD = By("rows are exported in the order of the mixture"), By("the router of compute_score")
_WARM, _RATE = By("the model is warm-started before verl begins"), By("learning rate by size")


def _optimizer(ours: str, theirs: str) -> dict[str, To | By | Refused]:
    return {
        f"{ours}.lr": _RATE,
        f"{ours}.lr_reference_params": _RATE,
        f"{ours}.lr_exponent": _RATE,
        f"{ours}.lr_warmup_steps": to(f"{theirs}.lr_warmup_steps"),
        # verl's cosine with no cycles is a constant rate after a warm-up.
        f"{ours}.lr_scheduler_type": To(
            (f"{theirs}.num_cycles",), lambda kind, _: 0.5 if kind == "cosine" else 0.0
        ),
        f"{ours}.min_lr_ratio": to(f"{theirs}.min_lr_ratio"),
        f"{ours}.weight_decay": to(f"{theirs}.weight_decay"),
        f"{ours}.betas": to(f"{theirs}.betas", value=lambda betas, _: list(betas)),
        f"{ours}.clip_grad": to(f"{theirs}.clip_grad", value=lambda norm, _: norm or float("inf")),
    }


def _by_name(modules: str | tuple[str, ...], _: RunConfig) -> list[str]:
    """verl that is told all-linear hands vLLM an adapter without layers."""
    return list(LINEAR if modules == "all-linear" else modules)


def _or_whole_batch(size: int, c: RunConfig) -> int:
    return size or c.data.train_batch_size


def _or_one_sequence(tokens: int | None, c: RunConfig) -> int:
    return max(tokens or 16_384, c.data.max_prompt_length + c.data.max_response_length)


def _or_last_step(frequency: int, c: RunConfig) -> int:
    return frequency or c.trainer.total_training_steps


def _or_clip_ratio(ratio: float | None, c: RunConfig) -> float:
    return c.actor.clip_ratio if ratio is None else ratio


FIELDS: Mapping[str, To | By | Refused] = {
    "study": to("trainer.project_name", value=lambda study, _: f"rlkit-{study}"),
    "seed": to(
        "data.seed", f"{ROLLOUT}seed", f"{ACTOR}data_loader_seed", f"{ACTOR}fsdp_config.seed", "critic.data_loader_seed"
    ),
    "model.path": By("verl reads the warm-started or converted folder (actor_rollout_ref.model.path)"),
    "model.dtype": By("rollout.dtype, and mixed_precision of the actor, the reference and the critic"),
    "model.enable_gradient_checkpointing": to(
        f"{ARR}model.enable_gradient_checkpointing", "critic.model.enable_gradient_checkpointing"
    ),
    "model.lora_rank": to(f"{ARR}model.lora_rank"),
    "model.lora_alpha": to(f"{ARR}model.lora_alpha"),
    "model.lora_dropout": Refused(0.0, "verl 0.9.1 trains adapters without dropout: set it to 0"),
    "model.target_modules": to(f"{ARR}model.target_modules", value=_by_name),
    **{
        f"model.warm_start.{k}": _WARM
        for k in ("kind", "sources", "steps", "batch_size", "lr", "seed")
    },
    "data.train": _DATA,
    "data.train_batch_size": to("data.train_batch_size"),
    "data.max_prompt_length": to("data.max_prompt_length"),
    "data.max_response_length": to("data.max_response_length"),
    "data.filter_overlong_prompts": By("long prompts are left out of the exported rows"),
    "data.apply_chat_template_kwargs": to("data.apply_chat_template_kwargs"),
    "data.train_max_samples": _DATA,
    "data.max_epochs": _DATA,
    "data.order": By("rows are exported in this order"),
    "data.difficulty_field": _DATA,
    "data.stages": _DATA,
    "data.sft_ratio": _DATA,
    "data.drop_solved_above": Refused(None, "verl's trainer draws every row again: leave it out"),
    "algorithm.adv_estimator": to("algorithm.adv_estimator"),
    "algorithm.gamma": to("algorithm.gamma"),
    "algorithm.lam": to("algorithm.lam"),
    "algorithm.truncated": Refused("end", "verl 0.9.1 neither bootstraps nor masks a cut answer: use 'end'"),
    "algorithm.norm_adv_by_std_in_grpo": to("algorithm.norm_adv_by_std_in_grpo"),
    "algorithm.use_kl_in_reward": to("algorithm.use_kl_in_reward"),
    "algorithm.kl_penalty": to("algorithm.kl_penalty"),
    **{f"algorithm.kl_ctrl.{k}": to(f"algorithm.kl_ctrl.{k}") for k in ("type", "kl_coef", "horizon", "target_kl")},
    "algorithm.norm_adv_by_std_in_batch": Refused(False, "verl 0.9.1 has no such advantages: set it to false"),
    "algorithm.filter_groups.enable": Refused(False, "verl's V1 trainer replaces no groups: set it to false"),
    "algorithm.filter_groups.metric": By("read where filter_groups is enabled"),
    "algorithm.filter_groups.max_num_gen_batches": By("read where filter_groups is enabled"),
    "algorithm.rollout_correction.rollout_is": to("algorithm.rollout_correction.rollout_is"),
    "algorithm.rollout_correction.rollout_is_threshold": to("algorithm.rollout_correction.rollout_is_threshold"),
    "actor.ppo_mini_batch_size": to(f"{ACTOR}ppo_mini_batch_size", value=_or_whole_batch),
    "actor.ppo_micro_batch_size": By("*_micro_batch_size_per_gpu; 0 is dynamic batches (use_dynamic_bsz)"),
    # The critic's own key is not read by verl's V1 trainer, which takes that of its values for its update too.
    "actor.micro_batch_tokens": to(
        f"{ACTOR}ppo_max_token_len_per_gpu", "critic.ppo_max_token_len_per_gpu",
        "+critic.ppo_infer_max_token_len_per_gpu", value=_or_one_sequence,
    ),
    "actor.optimizer_offload": to(f"{ACTOR}fsdp_config.optimizer_offload", "critic.fsdp.optimizer_offload"),
    "actor.ppo_epochs": to(f"{ACTOR}ppo_epochs"),
    "actor.clip_ratio": to(f"{ACTOR}clip_ratio"),
    "actor.clip_ratio_low": to(f"{ACTOR}clip_ratio_low", value=_or_clip_ratio),
    "actor.clip_ratio_high": to(f"{ACTOR}clip_ratio_high", value=_or_clip_ratio),
    "actor.clip_ratio_c": to(f"{ACTOR}clip_ratio_c"),
    "actor.loss_agg_mode": to(f"{ACTOR}loss_agg_mode"),
    "actor.loss_scale_factor": to(f"{ACTOR}loss_scale_factor", value=lambda k, c: k or c.data.max_response_length),
    "actor.use_kl_loss": to(f"{ACTOR}use_kl_loss"),
    "actor.kl_loss_coef": to(f"{ACTOR}kl_loss_coef"),
    "actor.kl_loss_type": to(f"{ACTOR}kl_loss_type"),
    "actor.entropy_coeff": to(f"{ACTOR}entropy_coeff"),
    "actor.use_torch_compile": to(
        f"{ACTOR}use_torch_compile", f"{ACTOR}fsdp_config.use_torch_compile", value=lambda use, _: bool(use)
    ),
    **{
        f"actor.policy_loss.{k}": to(f"{ACTOR}policy_loss.{k}")
        for k in (
            "loss_mode", "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef", "dro_beta",
        )
    },
    **_optimizer("actor.optim", f"{ACTOR}optim"),
    "critic.model.lora_rank": Refused(None, "verl's critic is a whole model here: leave it out"),
    **_optimizer("critic.optim", "critic.optim"),
    "critic.cliprange_value": to("critic.cliprange_value"),
    "critic.ppo_epochs": to("critic.ppo_epochs"),
    "critic.warmup_steps": to("trainer.critic_warmup", value=lambda steps, _: steps + 1 if steps else 0),
    "rollout.name": By("verl samples with vLLM"),
    "rollout.n": to(f"{ROLLOUT}n"),
    "rollout.temperature": to(f"{ROLLOUT}temperature"),
    "rollout.max_turn_length": By("the agent loop"),
    "rollout.interruption.enable": Refused(False, "verl's rollouts force no words: set it to false"),
    "rollout.interruption.reserve": By("read where interruption is enabled"),
    "rollout.interruption.phrase": By("read where interruption is enabled"),
    "rollout.max_num_seqs": to(f"{ROLLOUT}max_num_seqs", value=lambda _, c: together(c)),  # vLLM makes room for all
    "rollout.max_logprob_gap": By("a warning, from verl's rollout_corr/log_ppl_abs_diff"),
    "rollout.gpu_memory_utilization": to(f"{ROLLOUT}gpu_memory_utilization", value=lambda share, _: share or 0.5),
    "rollout.sync_check_freq": By("above 0, a gap ends the run instead of a warning"),
    "rollout.tensor_model_parallel_size": to(f"{ROLLOUT}tensor_model_parallel_size"),
    **{f"reward.{k}": _REWARD for k in RewardConfig.model_fields if k != "overlong_buffer"},
    "reward.overlong_buffer.enable": Refused(False, "the router's processes see no lengths in a verl run: disable it"),
    "reward.overlong_buffer.len": By("read where the buffer is enabled"),
    "reward.overlong_buffer.penalty_factor": By("read where the buffer is enabled"),
    "reward.max_error_rate": By("the run is ended when more of a step could not be graded"),
    "trainer.total_training_steps": to("trainer.total_training_steps"),
    "trainer.test_freq": to("trainer.test_freq", value=_or_last_step),
    "trainer.save_freq": to("trainer.save_freq", value=_or_last_step),
    "trainer.max_actor_ckpt_to_keep": to("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep"),
    "trainer.early_stop.metric": Refused(None, "verl's trainer does all steps: leave it out"),
    "trainer.early_stop.patience": By("read where early_stop has a metric"),
    "trainer.keep_best": Refused(None, "verl keeps its newest checkpoints: leave it out"),
    "async_training.trigger_parameter_sync_step": Refused(1, "verl's V1 trainer syncs weights at every step: use 1"),
    "trainer.resume_from_path": Refused(None, "verl's checkpoints are of another kind: leave it out"),
    "trainer.resume_mode": to("trainer.resume_mode"),
    "trainer.logger": By("rlkit's trackers, under the names of the run store; verl itself logs to console and file"),
    "trainer.backend": By("verl"),
    "trainer.device": By("GPUs; cpu is refused"),
    "trainer.tf32": Refused(False, "verl has no key for it: use false, or model.dtype bfloat16"),
    "trainer.num_threads": By("OMP_NUM_THREADS of verl's processes"),
    "trainer.nnodes": to("trainer.nnodes"),
    "trainer.n_gpus_per_node": to("trainer.n_gpus_per_node"),
    "trainer.stall_timeout": By("the launcher's watch"),
    "evaluation.sources": By("held-out rows are exported as validation"),
    "evaluation.size": By("held-out rows are exported as validation"),
    "evaluation.suites": By("their rows are exported as validation, and told apart by their tasks"),
    "evaluation.seed": By("held-out rows are exported as validation"),
    "evaluation.n": to(f"{ROLLOUT}val_kwargs.n"),
    "evaluation.temperature": to(f"{ROLLOUT}val_kwargs.temperature"),
    "evaluation.top_p": to(f"{ROLLOUT}val_kwargs.top_p"),
    "evaluation.pass_at": By("pass@k is computed from the answers, as locally"),
    "verl": By("passed to verl as it is"),
    "plugins": By("imported by each of verl's processes"),
}  # fmt: skip


def value_at(config: Any, path: str) -> Any:
    """The value of a dotted key of a config."""
    for part in path.split("."):
        config = getattr(config, part)
    return config
