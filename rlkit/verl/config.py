"""verl's configuration from ours: what becomes of every key of RunConfig. Nothing is dropped silently.

A key goes to verl's key of the same name in the section that corresponds (SECTIONS), unless it is an exception: `To`
other keys or another value, handled by rlkit (a text that says how), or refused before anything begins
(rlkit.verl.checks). `compose` adds what comes from several keys, and what every verl run of ours has.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import StringIO
from operator import attrgetter
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from omegaconf import OmegaConf

from rlkit.config import LINEAR, Optimizer, RunConfig
from rlkit.config.rollout import VERLS_SHARE
from rlkit.errors import UserError, did_you_mean
from rlkit.models.shapes import decodes_eagerly
from rlkit.params import field_paths
from rlkit.samplers.choice import together
from rlkit.training.checks import UNSPLITTABLE
from rlkit.training.optimizer import learning_rate
from rlkit.verl.checks import ONLY
from rlkit.verl.processes import LOCAL_CPUS, Files, environment, on_cluster
from rlkit.verl.weights import describe

MODEL, ACTOR, ROLLOUT = (f"actor_rollout_ref.{section}." for section in ("model", "actor", "rollout"))
SECTIONS = {
    "data": "data.", "algorithm": "algorithm.", "critic": "critic.", "trainer": "trainer.", "model": MODEL,
    "actor": ACTOR, "rollout": ROLLOUT, "evaluation": f"{ROLLOUT}val_kwargs.",
}  # fmt: skip


@dataclass(frozen=True)
class To:
    """These keys of verl, with the value or with `value(it, config)`; a leading + is a key that verl's files lack."""

    keys: tuple[str, ...]
    value: Callable[[Any, RunConfig], Any] = lambda value, _: value


def _optimizer(ours: str, theirs: str) -> dict[str, To | str]:
    rate = f"{ours}.lr", f"{ours}.lr_reference_params", f"{ours}.lr_exponent"
    return {
        **dict.fromkeys(rate, "the learning rate is computed from the size of the model"),
        # verl's cosine with no cycles is a constant rate after a warm-up
        f"{ours}.lr_scheduler_type": To((f"{theirs}.num_cycles",), lambda v, _: 0.5 if v == "cosine" else 0.0),
        f"{ours}.clip_grad": To((f"{theirs}.clip_grad",), lambda norm, _: norm or float("inf")),
    }  # fmt: skip


_ROWS = "rows are exported, in the order of the mixture"
_IF_ENABLED = "read where it is enabled, which is refused"

EXCEPTIONS: Mapping[str, To | str] = {
    "study": To(("trainer.project_name",), lambda study, _: f"rlkit-{study}"),
    "seed": To((
        "data.seed", f"{ROLLOUT}seed", f"{ACTOR}data_loader_seed", f"{ACTOR}fsdp_config.seed",
        "critic.data_loader_seed",
    )),
    "verl": "passed to verl as it is",
    "plugins": "imported by each of verl's processes",
    "model.path": "verl reads the warm-started or converted folder",
    "model.dtype": "rollout.dtype, and mixed_precision of the actor, the reference and the critic",
    "model.warm_start": "the model is warm-started before verl begins",
    "model.enable_gradient_checkpointing": To((
        f"{MODEL}enable_gradient_checkpointing", "critic.model.enable_gradient_checkpointing",
    )),
    # told all-linear, verl hands vLLM an adapter without layers
    "model.target_modules": To((f"{MODEL}target_modules",), lambda v, _: LINEAR if v == "all-linear" else v),
    "data.train": _ROWS, "data.filter_overlong_prompts": _ROWS, "data.train_max_samples": _ROWS, "data.order": _ROWS,
    "data.difficulty_field": _ROWS, "data.stages": _ROWS, "data.sft_ratio": _ROWS,
    "algorithm.filter_groups": _IF_ENABLED, "rollout.interruption": _IF_ENABLED, "trainer.early_stop": _IF_ENABLED,
    "actor.ppo_mini_batch_size": To((f"{ACTOR}ppo_mini_batch_size", "critic.ppo_mini_batch_size"),
                                    lambda size, c: size or c.data.train_batch_size),
    "actor.ppo_micro_batch_size": "*_micro_batch_size_per_gpu; 0 is dynamic batches (use_dynamic_bsz)",
    # verl's V1 trainer sizes the critic's update by the tokens of its inference
    "actor.micro_batch_tokens": To(
        (f"{ACTOR}ppo_max_token_len_per_gpu", "critic.ppo_max_token_len_per_gpu",
         "+critic.ppo_infer_max_token_len_per_gpu"),
        lambda tokens, c: max(tokens or 16_384, c.data.max_prompt_length + c.data.max_response_length),
    ),
    "actor.optimizer_offload": To((f"{ACTOR}fsdp_config.optimizer_offload", "critic.fsdp.optimizer_offload")),
    **{f"actor.{key}": To((f"{ACTOR}{key}",), lambda ratio, c: c.actor.clip_ratio if ratio is None else ratio)
       for key in ("clip_ratio_low", "clip_ratio_high")},
    "actor.loss_scale_factor": To((f"{ACTOR}loss_scale_factor",), lambda k, c: k or c.data.max_response_length),
    "actor.use_torch_compile": To((f"{ACTOR}use_torch_compile", f"{ACTOR}fsdp_config.use_torch_compile"),
                                  lambda use, _: bool(use)),
    **_optimizer("actor.optim", f"{ACTOR}optim"),
    **_optimizer("critic.optim", "critic.optim"),
    # the first step that verl trains the policy in, not the last that it does not
    "critic.warmup_steps": To(("trainer.critic_warmup",), lambda steps, _: steps + 1 if steps else 0),
    "rollout.name": "verl samples with vLLM",
    "rollout.max_turn_length": "the agent loop",
    "rollout.max_logprob_gap": "a warning, from verl's rollout_corr/log_ppl_abs_diff",
    "rollout.sync_check_freq": "above 0, a gap ends the run instead of a warning",
    # vLLM reserves room for all of them
    "rollout.max_num_seqs": To((f"{ROLLOUT}max_num_seqs",), lambda _, c: together(c)),
    "rollout.gpu_memory_utilization": To((f"{ROLLOUT}gpu_memory_utilization",), lambda share, _: share or VERLS_SHARE),
    "reward": "the router of compute_score",
    "evaluation.sources": _ROWS, "evaluation.size": _ROWS, "evaluation.suites": _ROWS, "evaluation.seed": _ROWS,
    "evaluation.pass_at": "pass@k is computed from the answers, as locally",
    # 0 is the last step alone, in verl none
    **{f"trainer.{key}": To((f"trainer.{key}",), lambda every, c: every or c.trainer.total_training_steps)
       for key in ("test_freq", "save_freq")},
    "trainer.max_actor_ckpt_to_keep": To(("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep")),
    "trainer.logger": "rlkit's trackers, under the names of the run store; verl itself logs to console and file",
    "trainer.backend": "verl",
    "trainer.device": "GPUs",
    "trainer.num_threads": "OMP_NUM_THREADS of verl's processes",
    "trainer.stall_timeout": "how long processes.run waits for progress",
}  # fmt: skip


def rule_of(path: str) -> To | str:
    """What becomes of a leaf: an exception for it or for a section that holds it, or verl's key of the same name."""
    if path in ONLY:
        return ONLY[path][1]
    for holder in (path, *(path.rsplit(".", i)[0] for i in range(1, path.count(".") + 1))):
        if holder in EXCEPTIONS:
            return EXCEPTIONS[holder]
    section, _, rest = path.partition(".")
    return To((SECTIONS[section] + rest,))


def mapped(config: RunConfig) -> dict[str, Any]:
    """verl's keys that single fields of a config set, with their values."""
    paths = field_paths(RunConfig)
    found: dict[str, Any] = {}
    for path in (p for p in paths if not any(q.startswith(f"{p}.") for q in paths)):
        if isinstance(rule := rule_of(path), To):
            value = rule.value(attrgetter(path)(config), config)
            found |= dict.fromkeys(rule.keys, list(value) if isinstance(value, tuple) else value)
    return found


def _computed(config: RunConfig) -> dict[str, Any]:
    """Values that come from more than one field."""
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
        f"{reward}path": "pkg://rlkit.verl.compute_score",
        f"{reward}name": "compute_score",
        f"+{reward}reward_kwargs.config": config.reward.model_dump(mode="json"),
        f"+{reward}reward_kwargs.answers": str(files.answers),
        "trainer.v1.sampler.custom_sampler.path": "pkg://rlkit.verl.replay_buffer",
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


def compose(config: RunConfig, files: Files, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The configuration that `verl.trainer.main_ppo` reads, without interpolations; `changes` are verl's dotted keys,
    before those of the config's own section `verl`. Raises UserError for a key that verl does not have, or a
    combination that it refuses; with verl's own words."""
    tree = deepcopy(_defaults())
    known = mapped(config) | _computed(config) | _fixed(config, files)
    for key, value in (known | dict(changes or {})).items():
        _put(tree, key, escaped(value))
    for key, value in _flat(config.verl):
        _put(tree, key, value)
    composed = OmegaConf.create(tree)
    try:
        _validate(composed)
        resolved = OmegaConf.to_container(composed, resolve=True)
    except Exception as error:  # whatever verl raises on whatever the section `verl` holds
        words = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"verl refuses this configuration: {words[:300]}") from None
    return escaped(resolved)


@cache
def _defaults() -> dict[str, Any]:
    """verl's own files, composed."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        found: Any = OmegaConf.to_container(hydra_compose("ppo_trainer"), resolve=False)
    return found


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested sections; an empty section and a list are values."""
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key. As in Hydra, a leading + or ++ adds a new one and ~ deletes one."""
    add, (*sections, leaf) = key.startswith("+"), key.lstrip("+~").split(".")
    section: Any = tree
    for name in sections:
        new: Any = {} if add else None
        section = section.setdefault(name, new) if isinstance(section, dict) else None
    if not isinstance(section, dict) or not (add or leaf in section):
        near = did_you_mean(key, [name for name, _ in _flat(_defaults())])
        raise UserError(f"verl has no key {key!r}.{near} A leading + adds a new one.")
    if key.startswith("~"):
        del section[leaf]
    elif isinstance(value, dict) and isinstance(section.get(leaf), dict):
        section[leaf] |= value
    else:
        section[leaf] = value


def escaped(value: Any) -> Any:
    """A value whose texts OmegaConf does not interpolate."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple) else value


def _validate(composed: Any) -> None:
    """verl's own checks, on a copy, but for those that need what is not here: of an adapter they ask vLLM, which need
    not be installed (no adapter, then), and of a critic they load its model (its batches are the actor's)."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import validate_config

    checked = deepcopy(composed)
    with redirect_stdout(StringIO()):
        if find_spec("vllm") is None:
            checked.actor_rollout_ref.model.lora_rank = 0
        validate_config(checked, use_reference_policy=need_reference_policy(checked), use_critic=False)
