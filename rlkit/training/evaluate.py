"""Evaluation of a saved policy, on any tasks."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlkit.config import Evaluation, RewardConfig, RunConfig, load
from rlkit.environments.rollout import Limits
from rlkit.errors import UserError
from rlkit.evaluation.heldout import EvaluationResult, measure
from rlkit.params import validate
from rlkit.types import Task


def evaluate(
    model: Any,
    tasks: Sequence[Task],
    n: int = 4,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 256,
    seed: int = 0,
    pass_at: Sequence[int] = (1,),
    apply_chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> EvaluationResult:
    """Sample `n` responses to each task and grade them.

    Args:
        model: a run's folder (its newest whole checkpoint), a checkpoint's model folder, any other folder, a ladder
            size, a hub id, or a loaded Policy. A path is loaded onto the GPU where there is one, in the precision
            that its run trained in, or else in float32.
        temperature: 0 is greedy; then n must be 1.
        max_tokens: longest response, or longest episode for environment tasks.
        pass_at: the k of pass@k; none above n.
        apply_chat_template_kwargs: variables of the chat template, such as {"enable_thinking": False}; those that a
            run was trained with are part of its saved template.

    Raises:
        UserError: no tasks, k above n, a name that no variable can have, a model that cannot be loaded, a prompt beyond
            1 million tokens.
    """
    from rlkit.models.loading import Policy
    from rlkit.models.prompts import set_template_defaults
    from rlkit.rewards import Router
    from rlkit.samplers.torch import TorchSampler

    if not tasks:
        raise UserError("There are no tasks to evaluate on.")
    if max(pass_at) > n:
        raise UserError(f"pass@{max(pass_at)} needs at least that many samples a task, but n is {n}.")
    variables = dict(apply_chat_template_kwargs)
    validate(RunConfig, {"data": {"apply_chat_template_kwargs": variables}})
    policy = model if isinstance(model, Policy) else _opened(Path(model))
    if variables:
        policy = replace(policy, tokenizer=copy.deepcopy(policy.tokenizer))  # a caller's own stays as it is
        set_template_defaults(policy.tokenizer, variables)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    section = Evaluation(n=n, temperature=temperature, top_p=top_p, pass_at=tuple(pass_at), size=len(tasks))
    with Router(RewardConfig()) as router:
        limits = Limits(max_tokens, 0, temperature, top_p)
        return measure(policy, sampler, router, tasks, section, limits=limits, seed=seed)


def _opened(path: Path) -> Any:
    """The Policy of a path, where and in what precision its run would have it."""
    from rlkit.models.device import device_of
    from rlkit.models.loading import load_policy
    from rlkit.training.export import open_saved

    device = device_of(RunConfig.model_validate({}))
    run = next((folder for folder in path.parents if (folder / "config.yaml").is_file()), None)
    if path.name != "model" or run is None:
        return open_saved(path, device).policy
    section = load(run / "config.yaml").model
    if (path / "adapter_config.json").is_file():
        raise UserError(
            f"{path} holds an adapter alone: give the run's folder, {run}, or one that `rlkit export` wrote."
        )
    return load_policy(section, path=path, device=device)
