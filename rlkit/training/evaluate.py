"""Evaluation of a saved policy, on any tasks."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rlkit.config import Evaluation, RewardConfig, RunConfig
from rlkit.environments.rollout import Limits
from rlkit.errors import UserError
from rlkit.evaluation.heldout import EvaluationResult, measure
from rlkit.models import device
from rlkit.models.loading import Policy
from rlkit.models.prompts import set_template_defaults
from rlkit.params import validate
from rlkit.rewards import Router
from rlkit.samplers.torch import TorchSampler
from rlkit.training.export import open_saved
from rlkit.types import Task


def evaluate(
    model: Any, tasks: Sequence[Task], n: int = 4, *, temperature: float = 1.0, top_p: float = 1.0,
    max_tokens: int = 256, seed: int = 0, pass_at: Sequence[int] = (1,),
    apply_chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> EvaluationResult:  # fmt: skip
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
    if not tasks:
        raise UserError("There are no tasks to evaluate on.")
    if max(pass_at) > n:
        raise UserError(f"pass@{max(pass_at)} needs at least that many samples a task, but n is {n}.")
    variables = dict(apply_chat_template_kwargs)
    config = validate(RunConfig, {"data": {"apply_chat_template_kwargs": variables}})
    policy = model if isinstance(model, Policy) else open_saved(model, device.device_of(config)).policy
    if variables:
        policy = replace(policy, tokenizer=copy.deepcopy(policy.tokenizer))  # a caller's own stays as it is
        set_template_defaults(policy.tokenizer, variables)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    section = Evaluation(n=n, temperature=temperature, top_p=top_p, pass_at=tuple(pass_at), size=len(tasks))
    limits = Limits(max_tokens, 0, temperature, top_p)
    with Router(RewardConfig()) as router:
        return measure(policy, sampler, router, tasks, section, limits=limits, seed=seed)
