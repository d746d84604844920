"""RunConfig: all sections together, what must agree between them, the run's id, and what tells runs apart in words.

A config is read from YAML plus dotted overrides (`actor.optim.lr=1e-4`); the hash of its content is the run's id: same
content, same run.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, model_validator

from rlkit.config.actor import Actor, Critic
from rlkit.config.algorithm import Algorithm
from rlkit.config.data import Data
from rlkit.config.evaluation import Evaluation
from rlkit.config.model import Model
from rlkit.config.reward import RewardConfig
from rlkit.config.rollout import RolloutConfig
from rlkit.config.trainer import AsyncTraining, Trainer
from rlkit.errors import UserError, did_you_mean
from rlkit.params import Section, override, read_yaml, refuse, validate
from rlkit.registry import load_plugins
from rlkit.seeds import content_hash

UNHASHED: dict[str, Any] = {
    "study": True, "rollout": {"tensor_model_parallel_size"}, "actor": {"optimizer_offload"},
    "trainer": {"logger", "num_threads", "resume_mode", "max_actor_ckpt_to_keep", "nnodes", "n_gpus_per_node",
                "stall_timeout", "keep_best"},
}  # fmt: skip
"""Keys that decide nothing but, by the number of threads, the last bits."""
NAMED_LATER = (
    "data.filter_overlong_prompts", "data.drop_solved_above", "data.apply_chat_template_kwargs", "rollout.interruption",
    "trainer.early_stop", "trainer.resume_from_path", "evaluation.suites", "algorithm.norm_adv_by_std_in_batch",
    "algorithm.filter_groups", "reward.overlong_buffer", "async_training.trigger_parameter_sync_step",
)  # fmt: skip
"""Keys that are hashed where they are set, so that runs made before there were such keys have the same id."""
OLDER = {
    "data.max_epochs": 0, "model.warm_start.target": 0.25, "model.warm_start.tolerance": 0.02,
    "reward.scorer": "strict", "reward.env_vars": [], "rollout.top_p": 1.0, "rollout.top_k": 0,
}  # fmt: skip
"""Keys that there are no more, with the value that configs of older runs have there, which ids still hold."""
NOT_COMPARED = ("study", "seed", *(f"trainer.{key}" for key in UNHASHED["trainer"]))
"""Dotted keys that make no different experiment: where a run is kept, its seed, and what decides no number."""
_CLEAR = ("model.path", "algorithm.adv_estimator")  # keys whose values say by themselves what they are


class RunConfig(Section):
    """One training run. `id` is the run's folder: a readable name and the hash of the content."""

    study: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Folder under outputs/ that the run belongs to."""
    seed: int = Field(0, ge=0)
    """Seed of data order, sampling and adapter initialisation."""
    model: Model = Model()
    data: Data = Field(default_factory=Data)
    algorithm: Algorithm = Algorithm()
    actor: Actor = Actor()
    critic: Critic = Critic()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    async_training: AsyncTraining = AsyncTraining()
    trainer: Trainer = Trainer()
    evaluation: Evaluation = Evaluation()
    plugins: tuple[str, ...] = ()
    """Python files of your own, from the project's folder, with sources, scorers, environments or algorithms. They
    are imported wherever the run is at work and run as you."""
    verl: dict[str, Any] = Field(default_factory=dict)
    """Overrides that go to verl's own configuration as they are, in a verl run: nested, or with dotted keys."""

    @property
    def id(self) -> str:
        """`<model>-<estimator>-s<seed>-<hash>`; what decides nothing but last bits (loggers, GPUs) is not hashed."""
        content = override(self.model_dump(mode="json", exclude=UNHASHED), OLDER)
        correction = self.algorithm.rollout_correction
        if correction.rollout_is != "sequence":
            cap = correction.rollout_is_threshold if correction.rollout_is else 0.0
            content["algorithm"]["rollout_correction"] = cap
        for section, key in (path.split(".") for path in NAMED_LATER):
            part = getattr(self, section)
            if getattr(part, key) == type(part).model_fields[key].get_default(call_default_factory=True):
                del content[section][key]
        content = {k: v for k, v in content.items() if v or k not in ("verl", "plugins", "async_training")}
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(self.model.path).name).lower()
        return f"{name}-{self.algorithm.adv_estimator}-s{self.seed}-{content_hash(content, 8)}"

    @property
    def mini_batch_size(self) -> int:
        """Prompts of an optimizer step."""
        return self.actor.ppo_mini_batch_size or self.data.train_batch_size

    @property
    def mini_batches(self) -> int:
        """Optimizer steps per epoch over a batch."""
        return self.data.train_batch_size // self.mini_batch_size

    @property
    def max_logprob_gap(self) -> float:
        """`rollout.max_logprob_gap`, or what it is where it is unset."""
        return self.rollout.max_logprob_gap or (0.05 if self.model.dtype == "bfloat16" else 0.02)

    @model_validator(mode="before")
    @classmethod
    def _plugins_and_start(cls, content: Any) -> Any:
        """Names that plugins bring are known before the sections that use them are read; a warm start whose seed is
        `run` has the run's; keys of OLDER are left out where they have its values."""
        if not isinstance(content, Mapping):
            return content
        content = override(content, {})
        for key, value in OLDER.items():
            *parents, last = key.split(".")
            section = reduce(lambda node, part: node.get(part) if isinstance(node, dict) else None, parents, content)
            if isinstance(section, dict) and section.get(last) == value:
                del section[last]
        files, model = content.get("plugins"), content.get("model")
        if isinstance(files, list | tuple) and all(isinstance(file, str) for file in files):
            load_plugins(files)
        start = model.get("warm_start") if isinstance(model, dict) else None
        if isinstance(start, dict) and start.get("seed") == "run":
            start["seed"] = content.get("seed", 0)
        return content

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        a, r, e, t, actor, buffer = (
            self.algorithm, self.rollout, self.evaluation, self.trainer, self.actor, self.reward.overlong_buffer
        )  # fmt: skip
        size, limit, cut = self.data.train_batch_size, self.data.max_response_length, r.interruption
        mini, loss, local = actor.ppo_mini_batch_size, actor.policy_loss.loss_mode, t.backend == "local"
        refuse(
            (a.needs.groups and r.n < 2,
             f"rollout.n is {r.n}, but {a.adv_estimator} compares samples of one prompt: use rollout.n >= 2"),
            (a.norm_adv_by_std_in_batch and not a.needs.groups,
             f"algorithm.norm_adv_by_std_in_batch is true, but {a.adv_estimator} compares no groups: set it to false, "
             "or use grpo or rloo"),
            (a.filter_groups.enable and (a.needs.greedy or r.n < 2),
             f"algorithm.filter_groups is enabled, but {a.adv_estimator} with rollout.n {r.n} has no groups of samples "
             "to look at: disable it, or use grpo with rollout.n >= 2"),
            (actor.loss_agg_mode == "prompt-mean-token-mean" and loss not in ("vanilla", "cispo", "gpg"),
             f"actor.loss_agg_mode is 'prompt-mean-token-mean', but {loss} weighs sequences itself: use vanilla, cispo "
             "or gpg"),
            (buffer.enable and buffer.len > limit,
             f"reward.overlong_buffer.len is {buffer.len}, above data.max_response_length {limit}: lower it"),
            (cut.enable and cut.reserve >= limit,
             f"rollout.interruption.reserve is {cut.reserve}, which leaves nothing of data.max_response_length "
             f"{limit}: lower it"),
            (cut.enable and not cut.phrase,
             "rollout.interruption.phrase is empty: give the words that end an answer's reasoning"),
            (mini and size % mini,
             f"data.train_batch_size is {size}, not a multiple of actor.ppo_mini_batch_size {mini}: use one of "
             f"{', '.join(str(k) for k in range(1, size + 1) if size % k == 0)}"),
            (max(e.pass_at) > e.n,
             f"evaluation.pass_at has k = {max(e.pass_at)}, above evaluation.n = {e.n}: raise n or drop that k"),
            (e.temperature == 0 and e.n > 1,
             f"evaluation.temperature is 0 (greedy), so evaluation.n = {e.n} samples would be equal: use n 1"),
            (self.critic.model.lora_rank and not self.model.lora_rank,
             f"critic.model.lora_rank is {self.critic.model.lora_rank}, but the policy trains all weights, so there is "
             "no frozen base to share: set model.lora_rank, or leave the critic's out"),
            *((local and value > 1, f"{key} is {value}, but the local trainer uses one: set trainer.backend to verl")
              for key, value in (
                  ("trainer.nnodes", t.nnodes), ("trainer.n_gpus_per_node", t.n_gpus_per_node),
                  ("rollout.tensor_model_parallel_size", r.tensor_model_parallel_size))),
            (local and self.verl, "verl holds overrides, but trainer.backend is 'local': set it to verl"),
        )  # fmt: skip
        return self


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The RunConfig of a YAML file, with overrides: `load("params/x.yaml", {"actor.optim.lr": 1e-4})`. A study's file
    gives the config that its runs share (its `run:` section), with the keys of one of its variants where `variant`
    names it.

    Raises:
        UserError: a missing or malformed file, unknown keys (with the nearest known ones), impossible values.
    """
    content, dotted = read_yaml(path), dict(overrides or {})
    if "run" in content and isinstance(content["run"], dict):
        if "variant" in dotted:
            variants, name = content.get("variants"), str(dotted.pop("variant"))
            known = {str(k): v or {} for k, v in variants.items()} if isinstance(variants, dict) else {}
            if not isinstance(known.get(name), dict):
                told = f"{did_you_mean(name, known)} It has: {', '.join(known) or 'none'}."
                raise UserError(f"{path} has no variant {name!r}.{told}")
            dotted = {**known[name], **dotted}
        content = {"study": content.get("study", Path(path).stem), **content["run"]}
    return validate(RunConfig, override(content, dotted), where=str(path))


def labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label for each run, of the fewest keys that tell all of them apart: `ladder-30k, optim.lr = 0.001`. Runs that
    differ in their seeds only have one; where nothing else differs it is the model's name. `configs`: dotted keys."""

    def groups(keys: Sequence[str]) -> int:
        return len({tuple(config.get(key) for key in keys) for config in configs})

    known = dict.fromkeys((*_CLEAR, *(key for config in configs for key in config)))
    chosen: list[str] = []
    for key in (key for key in known if key not in NOT_COMPARED):
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    for key in chosen[:-1]:  # one that later keys have made superfluous
        others = [other for other in chosen if other != key]
        chosen = others if groups(others) == groups(chosen) else chosen
    chosen = chosen or ["model.path"]
    names = [name_of(key) for key in chosen]
    told = {key: name if names.count(name) == 1 else key for key, name in zip(chosen, names, strict=True)}
    columns = [_texts(key, name, [c.get(key) for c in configs]) for key, name in told.items()]
    return [", ".join(words) for words in zip(*columns, strict=True)]


def in_words(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences, dotted keys to old and new value, in words: `optim.lr = 0.001, rollout.n = 16`; `base` for none."""
    words = [f"{name_of(key)} = {short(new)}" for key, (_, new) in changed.items()]
    shown = ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    return shown or "base"


def name_of(key: str) -> str:
    """The last part of a dotted key; with the one before where it says little alone."""
    parts = key.split(".")
    if key == "model.path":
        return "model"
    return ".".join(parts[-2:]) if parts[-1].isdigit() or parts[-1] in ("n", "lr", "weight") else parts[-1]


def value_of(key: str, value: Any) -> str:
    """A value behind its key's name, `clip_ratio_high = 0.4`; alone where the value says what it is."""
    return str(value) if key in _CLEAR else f"{name_of(key)} = {short(value)}"


def domain_name(data_source: str) -> str:
    """A data_source in words: `simulation__string_trace` is "simulation: string trace"."""
    return data_source.replace("__", ": ", 1).replace("_", " ")


def short(value: Any) -> str:
    """A value of a configuration in few letters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _texts(key: str, name: str, values: Sequence[Any]) -> list[str]:
    """The values with the key's name, short where that keeps them apart."""
    texts = [PurePath(str(v)).name if key == "model.path" else short(v) for v in values]
    if len(set(texts)) < len(set(values)):
        texts = list(map(str, values))
    return texts if key in _CLEAR else [f"{name} = {text}" for text in texts]
