"""The file of a study: what it may hold, how it is read, and which of a configuration's keys change nothing."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, PositiveInt

from rlkit.config import RunConfig, Section, load
from rlkit.errors import UserError
from rlkit.params import override, read_yaml, validate

if TYPE_CHECKING:
    from rlkit.studies.plan import PlannedRun

Values = Annotated[list[Any], Field(min_length=1)]


class Analysis(Section):
    """The notebook that runs when all runs have ended; other keys are its parameters."""

    model_config = ConfigDict(extra="allow")

    notebook: str = "notebooks/analysis.ipynb"
    """Path from the project's folder."""


class StudyConfig(Section):
    """Everything a study file may hold."""

    study: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Folder under outputs/; default: the file's name."""
    notebook: str = "notebooks/train.ipynb"
    """The notebook that trains one run, executed once a run."""
    run: dict[str, Any]
    """The RunConfig that all runs share."""
    variants: dict[str, dict[str, Any]] = Field({})
    """Names to dotted keys of RunConfig that differ together: algorithms, mixtures, budgets."""
    grid: dict[str, Values] = Field({})
    """Dotted keys of RunConfig to the values they take; every combination, of every variant, is a cell."""
    seeds: list[int] = Field([0], min_length=1)
    """Seeds of the runs of each cell."""
    holdout: dict[str, Values] = Field({})
    """A cell that has one of these values under each of these keys (of the grid, `seed` or `variant`) is held
    out of every fit."""
    holdout_after: PositiveInt | None = None
    """Evaluations after this training step are held out of the laws along training."""
    baselines: dict[str, Any] = Field({})
    """With which value of a grid's key, or which `variant`, the others are compared in pairs; default the first of
    each, and no comparison of `model.path`."""
    analysis: Analysis = Analysis()


HOLD_DOTTED = {"grid": 1, "holdout": 1, "variants": 2}  # sections whose own keys, at this depth, are dotted


def read_study(path: Path, overrides: Mapping[str, Any]) -> StudyConfig:
    """A study's file with overrides under its dotted keys. A UserError where it is a run's or has unknown keys, or
    where grid, variants and held-out cells do not go together."""
    content: dict[str, Any] = {"study": path.stem, **read_yaml(path)}
    sections = [key for key in content if key in RunConfig.model_fields and key != "study"]
    if "run" not in content and sections:
        told = f"use rlkit run {path}, or put them under 'run:'"
        raise UserError(f"{path} holds the keys of a run ({', '.join(sections)}): {told}.")
    dotted: dict[str, Any] = {}
    for key, value in overrides.items():
        *parents, last = key.split(".", HOLD_DOTTED.get(key.partition(".")[0], 0))
        place = content if parents else dotted
        for name in parents:
            place[name] = dict(place.get(name) or {})
            place = place[name]
        place[last] = value
    config: StudyConfig = validate(StudyConfig, override(content, dotted), where=str(path))
    if "seed" in config.grid or "study" in config.grid:
        raise UserError(f"{path}: grid cannot hold 'seed' or 'study': list seeds under 'seeds'.")
    for name, changes in config.variants.items():
        if both := [key for key in changes if key in (*config.grid, "seed", "study")]:
            told = "which the grid or the seeds set too: drop one"
            raise UserError(f"{path}: variants.{name} sets {both}, {told}.")
    axes = {"seed": config.seeds, "variant": list(config.variants), **config.grid}
    baselines = {key: [value] for key, value in config.baselines.items()}
    named = (("holdout", config.holdout), ("baselines", baselines))
    for section, key, values in ((section, *item) for section, keys in named for item in keys.items()):
        if missing := [value for value in values if value not in axes.get(key, [])]:
            told = f"which the grid does not: it has {axes.get(key, [])}"
            raise UserError(f"{path}: {section}.{key} has {missing}, {told}.")
    return config


def load_one(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The RunConfig of one run: of a run's file, or of the cell of a study's file that overrides choose by the keys of
    its grid and, where it has variants, by `variant`; one that changes nothing need not be named. A UserError as of
    `rlkit.load`, and where a part of the cell is not chosen, but for overrides that name the study, as its runs' do."""
    config, content, given = load(path, overrides), read_yaml(path), overrides or {}
    if "run" not in content or "study" in given:
        return config
    study = read_study(Path(path), {})
    axes = {"variant": list(study.variants)} if study.variants and all(study.variants.values()) else {}
    axes |= study.grid
    if any(key not in given for key in axes):
        cell = {key: given.get(key, values[0]) for key, values in axes.items()}
        words = " ".join(shlex.quote(f"{key}={value}") for key, value in cell.items())
        one = f"for one, choose its cell, e.g. rlkit run {path} {words}, in Python by the overrides {cell}"
        told = f"rlkit study {path} trains all its runs; {one}"
        raise UserError(f"{path} is a study over {', '.join(axes)}: {told}.")
    return config


def _one_step(config: RunConfig, epochs: int) -> bool:
    """Whether each batch is one optimizer step, so that the policy is the one that sampled."""
    return epochs == 1 and config.actor.ppo_mini_batch_size in (0, config.data.train_batch_size)


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
        lambda c: not c.model.starts_warm, "the model has no warm start"),
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
