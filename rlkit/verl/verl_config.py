"""RunConfig as verl's settings: dotted keys with their values, and the environment of its processes."""

import os
from pathlib import Path
from typing import Any

from rlkit.config import Optimizer, RunConfig
from rlkit.registry import PLUGINS
from rlkit.verl.composing import flatten
from rlkit.verl.fields import ACTOR, ARR, FIELDS, ROLLOUT, To, value_at
from rlkit.verl.layout import Files

LOCAL_CPUS = 32
"""What Ray is told on one machine: its CPUs are a count of places, and verl waits for ever where they are few."""
SHORT_RUN = 10_000
"""Decoding passes (steps × response length) below which vLLM runs eagerly: capturing CUDA graphs costs tens of
seconds at every start and saves milliseconds a pass. An estimate."""
_PRECISION = (
    f"+{ACTOR}fsdp_config.mixed_precision", f"+{ARR}ref.fsdp_config.mixed_precision", "+critic.fsdp.mixed_precision",
)  # fmt: skip


def settings(config: RunConfig, files: Files) -> dict[str, Any]:
    """verl's dotted keys and the values they get; a key with a leading + is new in verl's configuration."""
    found = {"algorithm.adv_estimator": config.algorithm.adv_estimator}
    for path, rule in FIELDS.items():
        if isinstance(rule, To):
            found |= dict.fromkeys(rule.keys, rule.value(value_at(config, path), config))
    return found | _computed(config) | _fixed(config, files) | flatten(config.verl)


def _computed(config: RunConfig) -> dict[str, Any]:
    """Values that come from more than one field."""
    micro, n = config.actor.ppo_micro_batch_size, config.rollout.n
    if config.actor.policy_loss.loss_mode in _unsplittable():
        micro = (config.actor.ppo_mini_batch_size or config.data.train_batch_size) * n
    keys = (
        f"{ACTOR}ppo_micro_batch_size_per_gpu", f"{ROLLOUT}log_prob_micro_batch_size_per_gpu",
        f"{ARR}ref.log_prob_micro_batch_size_per_gpu", "critic.ppo_micro_batch_size_per_gpu",
    )  # fmt: skip
    return {
        f"{ACTOR}use_dynamic_bsz": micro == 0,
        **(dict.fromkeys(keys, micro) if micro else {}),
        f"{ROLLOUT}dtype": config.model.dtype,
        f"{ROLLOUT}enforce_eager": config.trainer.total_training_steps * config.data.max_response_length
        < SHORT_RUN,
        **dict.fromkeys(_PRECISION, _precision(config.model.dtype)),
        **{f"{ACTOR}optim.{k}": v for k, v in _rate(config, config.actor.optim).items()},
        **{f"critic.optim.{k}": v for k, v in _rate(config, config.critic.optim).items()},
        f"{ROLLOUT}val_kwargs.do_sample": config.evaluation.temperature > 0,
        f"{ROLLOUT}max_model_len": config.data.max_prompt_length + config.data.max_response_length,
        "critic.ppo_mini_batch_size": config.actor.ppo_mini_batch_size or config.data.train_batch_size,
        "critic.loss_agg_mode": "token-mean",
        "trainer.experiment_name": config.id,
    }


def _precision(dtype: str) -> dict[str, str]:
    """Of the forward and backward pass; the weights that the optimizer moves are float32 (model_dtype), and so
    are sums over GPUs."""
    return {
        "param_dtype": {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[dtype],
        "reduce_dtype": "fp32",
        "buffer_dtype": "fp32",
    }


def _unsplittable() -> set[str]:
    from rlkit.training.algorithms import UNSPLITTABLE

    return UNSPLITTABLE


def _rate(config: RunConfig, optim: Optimizer) -> dict[str, Any]:
    from rlkit.training.optimizer import learning_rate
    from rlkit.verl.models import describe

    size = describe(config)[0].non_embedding if optim.lr_exponent else optim.lr_reference_params
    return {"lr": learning_rate(optim, size), "lr_scheduler_type": "cosine"}


def _fixed(config: RunConfig, files: Files) -> dict[str, Any]:
    """What every verl run of ours has."""
    ray = "ray_kwargs.ray_init."
    own = {f"{ray}num_cpus": LOCAL_CPUS, f"+{ray}address": "local"}
    return {
        "data.train_files": str(files.folder / "train.parquet"),
        "data.val_files": str(files.folder / "test.parquet"),
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        f"{ARR}model.path": files.model,
        "critic.model.path": files.model,
        f"{ARR}model.use_remove_padding": False,  # needs flash-attn, which is no dependency
        "critic.model.use_remove_padding": False,
        f"{ARR}model.use_fused_kernels": True,  # without flash-attn, verl loops over tokens in Python otherwise
        f"+{ARR}model.override_config.attn_implementation": "sdpa",
        "+critic.model.override_config.attn_implementation": "sdpa",
        f"{ACTOR}strategy": "fsdp2",
        "critic.strategy": "fsdp2",
        f"{ROLLOUT}name": "vllm",
        f"{ROLLOUT}load_format": "safetensors" if config.model.lora_rank else "dummy",
        f"{ROLLOUT}agent.default_agent_loop": "rlkit",
        f"{ROLLOUT}agent.agent_loop_config_path": str(files.loops),
        f"{ROLLOUT}agent.num_workers": min(8 * config.trainer.nnodes, config.data.train_batch_size),
        "reward.num_workers": config.trainer.nnodes,
        "reward.custom_reward_function.path": "pkg://rlkit.verl.reward",
        "reward.custom_reward_function.name": "compute_score",
        "+reward.custom_reward_function.reward_kwargs.config": config.reward.model_dump(mode="json"),
        "+reward.custom_reward_function.reward_kwargs.answers": str(files.answers),
        "trainer.v1.sampler.custom_sampler.path": "pkg://rlkit.verl.replay",
        "trainer.v1.sampler.custom_sampler.name": "ComparableGroups",
        "+trainer.v1.sampler.sampler_kwargs.group_size": config.rollout.n,
        "trainer.logger": ["console", "file"],
        "trainer.total_epochs": 1,
        "trainer.val_before_train": True,
        "trainer.default_local_dir": str(files.checkpoints),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": config.trainer.nnodes,
        **({} if on_cluster(config) else own),
        f"+{ray}include_dashboard": False,
        f"+{ray}runtime_env.env_vars": environment(config, files),
    }


def on_cluster(config: RunConfig) -> bool:
    """Whether Ray is running already. Otherwise verl starts one of its own, whatever else runs on the machine."""
    return config.trainer.nnodes > 1 or bool(os.environ.get("RAY_ADDRESS"))


def environment(config: RunConfig, files: Files) -> dict[str, str]:
    """Environment variables of verl's processes, on all machines."""
    found = {
        "VERL_FILE_LOGGER_PATH": str(files.attempt / "metrics.jsonl"),
        "PYTHONPATH": os.pathsep.join(filter(None, [_source(), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",  # the log is followed
        "RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0"),
        "VLLM_NO_USAGE_STATS": os.environ.get("VLLM_NO_USAGE_STATS", "1"),
    }
    if Path(files.model).is_dir():  # a hub that cannot be reached is not waited for
        found["HF_HUB_OFFLINE"] = "1"
    modules = [os.environ.get("VERL_USE_EXTERNAL_MODULES")]
    if config.algorithm.adv_estimator == "gae":
        modules.append("rlkit.verl.value_head")
    if config.plugins:
        found[PLUGINS] = os.pathsep.join(str(Path(file).expanduser().resolve()) for file in config.plugins)
        modules.append("rlkit.verl.plugins")
    if any(modules):
        found["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, modules))
    if config.trainer.num_threads:
        found["OMP_NUM_THREADS"] = str(config.trainer.num_threads)
    return found


def _source() -> str:
    """The folder from which rlkit is imported, for Ray's workers."""
    return str(Path(__file__).resolve().parents[2])
