"""What ends or spoils a run: what can be told before anything is trained, and what a step's metrics tell."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from rlkit.config import RunConfig
from rlkit.config.algorithm import ESTIMATORS
from rlkit.config.model import is_ladder
from rlkit.data import TaskStream, held_out
from rlkit.errors import RunStopped, UserError, did_you_mean
from rlkit.models.shapes import WINDOW, at_hand, config_json
from rlkit.rewards import scorer_of

UNDECIDED = 0.05  # share of answers that no scorer decided, above which the verdicts depend on the machine
CLIPPED = 0.3  # share of cut responses above which the policy learns from cut answers
UNSPLITTABLE = {"geo_mean", "kl_cov", "clip_cov"}
NEEDS_OTHER_INPUTS = {
    "gdpo": "one reward a dimension, which the router does not return",
    "bypass_mode": "verl's rollout-correction section; use algorithm.rollout_correction instead",
}
OTHER_NAMES = {
    "ppo": " PPO is 'gae' with a critic.",
    "dr_grpo": " Dr. GRPO is 'grpo' with algorithm.norm_adv_by_std_in_grpo false and actor.loss_agg_mode "
    "seq-mean-token-sum-norm.",
    "dapo": " DAPO's wider upper clip and token-level loss are 'grpo' with actor.clip_ratio_high and "
    "actor.loss_agg_mode token-mean.",
}
LOSSES = {*UNSPLITTABLE, "cispo", "dppo_kl", "dppo_tv", "dro", "gpg", "gspo", "sapo", "vanilla"}
"""Names that need no look at verl's registry, which takes seconds; plugins register more."""


def preflight(config: RunConfig) -> None:
    """Make what needs no weights: tasks and reward function. Raises UserError where the run would end at once."""
    if "wandb" in config.trainer.logger and find_spec("wandb") is None:
        raise UserError("trainer.logger names wandb, which is not installed: pip install 'rlkit[wandb]'.")
    if config.trainer.backend == "local":
        check_algorithm(config)
    for source in (*config.data.train, *(config.evaluation.sources or ()), *config.evaluation.suites):
        source.total()
    scorer_of(config.reward)
    warn_of_defaults(config)
    made, path = config, config.model.path
    if not at_hand(path):  # its tokenizer is at the hub, so that prompts are not filtered yet
        made = config.model_copy(update={"data": config.data.model_copy(update={"filter_overlong_prompts": False})})
    tests = held_out(made)
    stream = TaskStream(made, tests)
    stream.batch(1)
    check_metrics(config, {task.data_source for task in tests} | set(stream.suites))
    if at_hand(path):
        own = {"max_position_embeddings": WINDOW} if is_ladder(path) else config_json(path)
        check_window(config, own.get("max_position_embeddings"))
        stream.check_prompts(tests)


def check_algorithm(config: RunConfig) -> None:
    """Refuse what cannot be computed by a UserError: unknown names, losses that micro-batches must not split."""
    estimator, mode, actor = config.algorithm.adv_estimator, config.actor.policy_loss.loss_mode, config.actor
    for field, name, known, registry in (
        ("algorithm.adv_estimator", estimator, ESTIMATORS, "ADV_ESTIMATOR_REGISTRY"),
        ("actor.policy_loss.loss_mode", mode, LOSSES, "POLICY_LOSS_REGISTRY"),
    ):
        if name in NEEDS_OTHER_INPUTS:
            raise UserError(f"{field} is {name!r}, which needs {NEEDS_OTHER_INPUTS[name]}.")
        if name in known:
            continue
        from rlkit.training.algorithms import core

        registered = {str(getattr(key, "value", key)) for key in getattr(core(), registry)}
        if name not in registered:
            near = OTHER_NAMES.get(name.lower()) or did_you_mean(name, registered)
            raise UserError(f"{field} is {name!r}.{near} verl registers {', '.join(sorted(registered))}.")
    mini = config.mini_batch_size * config.rollout.n
    if mode in UNSPLITTABLE and 0 < actor.ppo_micro_batch_size < mini:
        raise UserError(
            f"actor.ppo_micro_batch_size is {actor.ppo_micro_batch_size}, but {mode} chooses tokens within a "
            f"micro-batch, so splitting changes the gradient: leave it 0 or use {mini}."
        )
    if mode == "dro" and actor.policy_loss.dro_beta is None:
        raise UserError("actor.policy_loss.loss_mode is 'dro': set actor.policy_loss.dro_beta (such as 0.1).")


def check_window(config: RunConfig, window: int | None) -> None:
    """Refuse sequences that are longer than the positions that the model was made for. Raises UserError."""
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    if window is not None and prompt + response > window:
        raise UserError(
            f"data.max_prompt_length {prompt} and data.max_response_length {response} are {prompt + response} tokens, "
            f"but {config.model.path} has positions for {window}: lower one of them by {prompt + response - window}."
        )


def phrase_of(config: RunConfig, tokenizer: Any) -> tuple[int, ...]:
    """The tokens of `rollout.interruption.phrase`, or none. Raises UserError where none is left for the answer."""
    cut = config.rollout.interruption
    ids = tokenizer.encode(cut.phrase, add_special_tokens=False) if cut.enable else []
    if cut.enable and len(ids) >= cut.reserve:
        told = f"rollout.interruption.reserve is {cut.reserve}, but its phrase alone has {len(ids)} tokens"
        raise UserError(f"{told}: raise it.")
    return tuple(ids)


def check_metrics(config: RunConfig, names: set[str]) -> None:
    """Refuse metrics that no evaluation of data_sources and suites of these names has. Raises UserError."""
    parts, t = ("", *(f"/{name}" for name in names)), config.trainer
    known = {f"eval/pass@{k}{part}" for k in config.evaluation.pass_at for part in parts}
    for key, metric in (("early_stop.metric", t.early_stop.metric), ("keep_best", t.keep_best)):
        if metric is not None and metric not in known:
            raise UserError(
                f"trainer.{key} is {metric!r}, which no evaluation measures.{did_you_mean(metric, known)} There are "
                f"{', '.join(sorted(known))}."
            )


def warn_of_defaults(config: RunConfig) -> None:
    """Warn of defaults that are made for ladder models, where the model is another; verl's are named."""
    whole, critic = not config.model.lora_rank, config.algorithm.needs.critic
    rate, other, limit = config.actor.optim.lr, config.critic.optim.lr, config.data.max_response_length
    for key, unfit, value, verls in (
        ("actor.optim.lr", whole and rate > 1e-5, rate, "1e-6"),
        ("critic.optim.lr", critic and whole and other > 1e-4, other, "1e-5"),
        ("data.max_response_length", limit <= 16, limit, "512"),
    ):
        if unfit and not is_ladder(config.model.path):
            said = f"{key} is {value:g}, which suits ladder models, and model.path is {config.model.path!r}"
            warnings.warn(f"{said}: set it; verl's default is {verls}.", stacklevel=2)


def problems(metrics: Mapping[str, float], config: RunConfig, step: int) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of everything in a step's metrics that a person should look at. Raises RunStopped for a gap of
    log-probs where `rollout.sync_check_freq` asks for that."""
    m = defaultdict[str, float](float, metrics)
    cut, broken, gap = m["response_length/clip_ratio"], m["reward/grader_exceptions"], m["policy/logprob_gap"]
    late = "reward/timeouts" if m["reward/killed"] <= UNDECIDED < m["reward/timeouts"] else "reward/killed"
    scale, bound = metrics.get("actor/loss_scale"), config.max_logprob_gap
    told = {
        "cut": (cut > CLIPPED,
            f"{cut:.0%} of the responses were cut at data.max_response_length = {config.data.max_response_length}: "
            "raise it, or the policy learns from cut answers."),
        "undecided verdicts": (m[late] > UNDECIDED,
            f"{m[late]:.0%} of the answers are wrong because grading them took too long or broke down ({late}): "
            "raise reward.timeout, or lower reward.num_workers on a busy machine."),
        "grader exceptions": (broken > 0,
            f"A scorer raised an exception on {broken:.1%} of the answers, and they count as wrong: `rlkit score` "
            "shows it in their parts."),
        "equal rewards": (m["group/zero_variance"] == 1 and config.rollout.n > 1,
            "Every group got equal rewards, so there is nothing to learn from: change the difficulty."),
        "gradient": (scale is None and not math.isfinite(m["actor/grad_norm"]),
            "The gradient is not finite, and the step was skipped: lower actor.optim.lr, or look at the rewards."),
        "overflow": (scale is not None and scale < 1,
            f"Gradients overflow in float16 even at actor/loss_scale = {scale or 0:g}, and those steps are skipped: "
            "use model.dtype bfloat16."),
        "gap": (not m["rollout/lag"] and not gap <= bound,  # a NaN is no agreement
            f"The sampler's and the trainer's log-probs differ by {gap:.3g} nats a token, more than "
            f"rollout.max_logprob_gap = {bound:g}: the policy is not the one that sampled."),
    }  # fmt: skip
    for kind, (wrong, sentence) in told.items():
        if wrong and kind == "gap" and config.rollout.sync_check_freq:
            raise RunStopped(f"At step {step}: {sentence}")
        if wrong:
            yield kind, sentence
