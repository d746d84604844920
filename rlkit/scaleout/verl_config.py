"""RunConfig as verl's own configuration: the exact command, composed and validated by verl before it runs."""

import copy
import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.config import Optimizer, RunConfig
from rlkit.errors import UserError, did_you_mean
from rlkit.scaleout.fields import ACTOR, ARR, FIELDS, ROLLOUT, Refused, To, value_at

LOCAL_CPUS = 32
"""What Ray is told on one machine: its CPUs are a count of places, and verl waits for ever where they are few."""
_PRECISION = (
    f"+{ACTOR}fsdp_config.mixed_precision", f"+{ARR}ref.fsdp_config.mixed_precision", "+critic.fsdp.mixed_precision",
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z/][\w/.-]*")
UNSUPPORTED = {
    "remax": "the greedy baseline that verl's V1 trainer does not sample",
    "optimal_token_baseline": "sums over the vocabulary that verl's V1 trainer does not pass on",
    "tir_optimal_token_baseline": "sums over the vocabulary that verl's V1 trainer does not pass on",
    "turn_gae": "a value a turn, which verl's trainer does not have",
    "turn_returns": "a reward a turn, of which verl's trainer sees the sum only",
    "gigpo": "a reward a turn, of which verl's trainer sees the sum only",
}


@dataclass(frozen=True)
class Files:
    """What a verl run reads and writes, all under its folder `<run>/verl` but the model.

    Attributes:
        folder: `<run>/verl`.
        model: a Hugging Face folder or hub id.
        answers: the answers log of this attempt.
    """

    folder: Path
    model: str
    answers: Path

    @classmethod
    def of(cls, run: Path, model: str, attempt: int = 1) -> "Files":
        """The files of one attempt of the run in folder `run`; paths are absolute, as Ray's workers need."""
        folder = run.absolute() / "verl"
        return cls(folder, model, folder / f"attempt-{attempt}" / "answers")

    @property
    def attempt(self) -> Path:
        return self.answers.parent

    @property
    def checkpoints(self) -> Path:
        """verl's own, sharded ones."""
        return self.folder / "checkpoints"

    @property
    def loops(self) -> Path:
        """The agent loop's options."""
        return self.folder / "agent_loops.yaml"


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
    if config.data.order == "adaptive":
        raise UserError(
            "data.order is 'adaptive', which depends on the run: verl reads rows in an order that is fixed before."
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
    correction = config.algorithm.rollout_correction
    return {
        f"{ACTOR}use_dynamic_bsz": micro == 0,
        **(dict.fromkeys(keys, micro) if micro else {}),
        f"{ROLLOUT}dtype": config.model.dtype,
        **dict.fromkeys(_PRECISION, _precision(config.model.dtype)),
        **{f"{ACTOR}optim.{k}": v for k, v in _rate(config, config.actor.optim).items()},
        **{f"critic.optim.{k}": v for k, v in _rate(config, config.critic.optim).items()},
        f"{ROLLOUT}val_kwargs.do_sample": config.evaluation.temperature > 0,
        f"{ROLLOUT}max_model_len": config.data.max_prompt_length + config.data.max_response_length,
        "algorithm.rollout_correction.rollout_is": "token" if correction else None,
        **({"algorithm.rollout_correction.rollout_is_threshold": correction} if correction else {}),
        "critic.ppo_mini_batch_size": config.data.train_batch_size,
        "critic.loss_agg_mode": "token-mean",
        "trainer.experiment_name": config.id,
    }


def _precision(dtype: str) -> dict[str, str]:
    """Of the forward and backward pass; the weights that the optimizer moves are float32 (model_dtype), and so
    are sums over GPUs."""
    return {
        "param_dtype": "fp32" if dtype == "float32" else "bf16",
        "reduce_dtype": "fp32",
        "buffer_dtype": "fp32",
    }


def _unsplittable() -> set[str]:
    from rlkit.training.algorithms import UNSPLITTABLE

    return UNSPLITTABLE


def _rate(config: RunConfig, optim: Optimizer) -> dict[str, Any]:
    from rlkit.scaleout.models import describe
    from rlkit.training.optimizer import learning_rate

    size = describe(config)[0].non_embedding if optim.lr_exponent else optim.lr_reference_params
    return {"lr": learning_rate(optim, size), "lr_scheduler_type": "cosine", "zero_indexed_step": False}


def _fixed(config: RunConfig, files: Files) -> dict[str, Any]:
    """What every verl run of ours has."""
    local = config.trainer.nnodes == 1
    return {
        "data.train_files": str(files.folder / "train.parquet"),
        "data.val_files": str(files.folder / "test.parquet"),
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        f"{ARR}model.path": files.model,
        "critic.model.path": files.model,
        f"{ARR}model.use_remove_padding": False,  # needs flash-attn, which is no dependency
        "critic.model.use_remove_padding": False,
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
        "reward.custom_reward_function.path": "pkg://rlkit.scaleout.reward",
        "reward.custom_reward_function.name": "compute_score",
        "+reward.custom_reward_function.reward_kwargs.config": config.reward.model_dump(mode="json"),
        "+reward.custom_reward_function.reward_kwargs.answers": str(files.answers),
        "trainer.v1.sampler.custom_sampler.path": "pkg://rlkit.scaleout.replay",
        "trainer.v1.sampler.custom_sampler.name": "ComparableGroups",
        "+trainer.v1.sampler.sampler_kwargs.group_size": config.rollout.n,
        "trainer.logger": ["console", "file"],
        "trainer.total_epochs": 1,
        "trainer.val_before_train": True,
        "trainer.default_local_dir": str(files.checkpoints),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": config.trainer.nnodes,
        **({"ray_kwargs.ray_init.num_cpus": LOCAL_CPUS} if local else {}),
        "+ray_kwargs.ray_init.include_dashboard": False,
    }


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys; an empty section and a list are values."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def arguments(found: Mapping[str, Any]) -> list[str]:
    """Settings as Hydra's command-line overrides."""
    return [f"{key}={_literal(value)}" for key, value in found.items()]


def _literal(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_literal, value)) + "]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in ("null", "true", "false", "inf", "nan"):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def command(found: Mapping[str, Any]) -> list[str]:
    """The command that trains."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *arguments(found)]


def compose(found: Mapping[str, Any]) -> Any:
    """verl's complete configuration, composed from its own files and validated by it.

    Raises:
        UserError: a key that verl does not have, or a combination that it refuses; with verl's own words.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            composed = hydra_compose("ppo_trainer", overrides=arguments(found))
    except HydraException as error:
        raise UserError(f"verl refuses an override: {_first_line(error)}{_nearest(found)}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no critic where none is asked for
        critic = need_critic(composed)
    try:
        with tempfile.TemporaryDirectory() as folder:
            checked = _with_a_model(composed, Path(folder)) if critic else composed
            validate_config(checked, use_reference_policy=need_reference_policy(checked), use_critic=critic)
        OmegaConf.resolve(composed)
    except (AssertionError, ValueError, HydraException, OmegaConfBaseException) as error:
        raise UserError(f"verl refuses this configuration: {_first_line(error)}") from None
    return composed


def _with_a_model(composed: Any, folder: Path) -> Any:
    """A copy whose critic reads some model: verl loads its configuration to check the critic's, and a dry run
    has not made the run's own yet."""
    from omegaconf import open_dict

    from rlkit.models.ladder import ladder_config
    from rlkit.models.tokenizer import byte_tokenizer

    if Path(composed.critic.model.path).is_dir():
        return composed
    some = ladder_config("ladder-10k")
    some.architectures = ["Qwen2ForCausalLM"]
    some.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    checked = copy.deepcopy(composed)
    with open_dict(checked):
        checked.critic.model.path = str(folder)
    return checked


def as_yaml(composed: Any) -> str:
    """A composed configuration, complete."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(composed)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _nearest(found: Mapping[str, Any]) -> str:
    """The known keys next to one that is not known."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        base = OmegaConf.to_container(hydra_compose("ppo_trainer"), resolve=False)
    assert isinstance(base, dict)
    known = flatten({str(k): v for k, v in base.items()})
    sections = {key.rsplit(".", i)[0] for key in known for i in range(key.count(".") + 1)}
    for key in found:
        if not key.startswith(("+", "~")) and key not in known and key not in sections:
            return f"{did_you_mean(key, known)} A leading + adds a new key."
    return ""
