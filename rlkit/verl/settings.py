"""RunConfig as verl's settings, and the files and the environment of its processes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.config import Optimizer, RunConfig
from rlkit.models.shapes import decodes_eagerly
from rlkit.registry import PLUGINS
from rlkit.verl.fields import ACTOR, MODEL, ROLLOUT, mapped

LOCAL_CPUS = 32
"""What Ray is told on one machine: its CPUs are a count of places, and verl waits for ever where they are few."""


@dataclass(frozen=True)
class Files:
    """What a verl run reads and writes, all in `folder` (`<run>/verl`, absolute, as Ray's workers need it) but the
    model (a Hugging Face folder or hub id); `attempt` is the folder of this attempt's log, metrics and answers."""

    folder: Path
    model: str
    attempt: Path

    @classmethod
    def of(cls, run: Path, model: str, attempt: int = 1) -> "Files":
        """The files of one attempt of the run in folder `run`."""
        folder = run.absolute() / "verl"
        return cls(folder, model, folder / f"attempt-{attempt}")

    @property
    def answers(self) -> Path:
        """Folder of the answers log."""
        return self.attempt / "answers"

    @property
    def checkpoints(self) -> Path:
        """verl's own, sharded ones."""
        return self.folder / "checkpoints"

    @property
    def loops(self) -> Path:
        """The agent loop's options."""
        return self.folder / "agent_loops.yaml"


def settings(config: RunConfig, files: Files) -> dict[str, Any]:
    """verl's dotted keys and the values they get; a key with a leading + is new in verl's configuration."""
    return mapped(config) | _computed(config) | _fixed(config, files)


def _computed(config: RunConfig) -> dict[str, Any]:
    """Values that come from more than one field."""
    from rlkit.training.checks import UNSPLITTABLE

    micro = config.actor.ppo_micro_batch_size
    if config.actor.policy_loss.loss_mode in UNSPLITTABLE:
        micro = config.mini_batch_size * config.rollout.n
    passes = (
        f"{ACTOR}ppo_micro_batch_size_per_gpu", f"{ROLLOUT}log_prob_micro_batch_size_per_gpu",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", "critic.ppo_micro_batch_size_per_gpu",
    )  # fmt: skip
    # weights, and sums over GPUs, are float32
    short = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[config.model.dtype]
    precision = {"param_dtype": short, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    trained = (f"{ACTOR}fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")
    return {
        f"{ACTOR}use_dynamic_bsz": micro == 0,
        **(dict.fromkeys(passes, micro) if micro else {}),
        f"{ROLLOUT}dtype": config.model.dtype,
        f"{ROLLOUT}enforce_eager": decodes_eagerly(config),
        **{f"+{part}.mixed_precision": precision for part in trained},
        **_rate(config, f"{ACTOR}optim", config.actor.optim),
        **_rate(config, "critic.optim", config.critic.optim),
        f"{ROLLOUT}val_kwargs.do_sample": config.evaluation.temperature > 0,
        f"{ROLLOUT}max_model_len": config.data.max_prompt_length + config.data.max_response_length,
        "critic.loss_agg_mode": "token-mean",
        "trainer.experiment_name": config.id,
    }


def _rate(config: RunConfig, section: str, optim: Optimizer) -> dict[str, Any]:
    from rlkit.training.optimizer import learning_rate
    from rlkit.verl.models import describe

    size = describe(config)[0].non_embedding if optim.lr_exponent else optim.lr_reference_params
    return {f"{section}.lr": learning_rate(optim, size), f"{section}.lr_scheduler_type": "cosine"}


def _fixed(config: RunConfig, files: Files) -> dict[str, Any]:
    """What every verl run of ours has."""
    nodes, ray, reward = config.trainer.nnodes, "ray_kwargs.ray_init.", "reward.custom_reward_function."
    own = {} if on_cluster(config) else {f"{ray}num_cpus": LOCAL_CPUS, f"+{ray}address": "local"}
    models = {}
    for model in (MODEL, "critic.model."):
        models |= {
            f"{model}path": files.model,
            f"{model}use_remove_padding": False,  # needs flash-attn, which is no dependency
            f"+{model}override_config.attn_implementation": "sdpa",
        }
    return models | own | {
        "data.train_files": str(files.folder / "train.parquet"),
        "data.val_files": str(files.folder / "test.parquet"),
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        f"{MODEL}use_fused_kernels": True,  # without flash-attn, verl loops over tokens in Python otherwise
        f"{ACTOR}strategy": "fsdp2",
        "critic.strategy": "fsdp2",
        f"{ROLLOUT}name": "vllm",
        f"{ROLLOUT}load_format": "safetensors" if config.model.lora_rank else "dummy",
        f"{ROLLOUT}agent.default_agent_loop": "rlkit",
        f"{ROLLOUT}agent.agent_loop_config_path": str(files.loops),
        f"{ROLLOUT}agent.num_workers": min(8 * nodes, config.data.train_batch_size),
        "reward.num_workers": nodes,
        f"{reward}path": "pkg://rlkit.verl.reward",
        f"{reward}name": "compute_score",
        f"+{reward}reward_kwargs.config": config.reward.model_dump(mode="json"),
        f"+{reward}reward_kwargs.answers": str(files.answers),
        "trainer.v1.sampler.custom_sampler.path": "pkg://rlkit.verl.replay",
        "trainer.v1.sampler.custom_sampler.name": "ComparableGroups",
        "+trainer.v1.sampler.sampler_kwargs.group_size": config.rollout.n,
        "trainer.logger": ["console", "file"],
        "trainer.total_epochs": 1,
        "trainer.val_before_train": True,
        "trainer.default_local_dir": str(files.checkpoints),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": nodes,
        f"+{ray}include_dashboard": False,
        f"+{ray}runtime_env.env_vars": environment(config, files),
    }  # fmt: skip


def on_cluster(config: RunConfig) -> bool:
    """Whether Ray is running already. Otherwise verl starts one of its own, whatever else runs on the machine."""
    return config.trainer.nnodes > 1 or bool(os.environ.get("RAY_ADDRESS"))


def environment(config: RunConfig, files: Files) -> dict[str, str]:
    """Environment variables of verl's processes, on all machines."""
    source, mine = str(Path(__file__).resolve().parents[2]), os.environ
    found = {
        "VERL_FILE_LOGGER_PATH": str(files.attempt / "metrics.jsonl"),
        "PYTHONPATH": os.pathsep.join(filter(None, [source, mine.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",  # the log is followed
        "RAY_USAGE_STATS_ENABLED": mine.get("RAY_USAGE_STATS_ENABLED", "0"),
        "VLLM_NO_USAGE_STATS": mine.get("VLLM_NO_USAGE_STATS", "1"),
    }
    if Path(files.model).is_dir():  # a hub that cannot be reached is not waited for
        found["HF_HUB_OFFLINE"] = "1"
    modules = [mine.get("VERL_USE_EXTERNAL_MODULES")]
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
