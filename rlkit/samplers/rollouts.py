"""Rollouts: tasks through a sampler (and an environment), and their grading. Training and evaluation share it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlkit.environments.rollout import Limits
from rlkit.environments.rollout import rollout as play
from rlkit.errors import UserError
from rlkit.models.loading import Policy
from rlkit.rewards import Router
from rlkit.seeds import derive
from rlkit.types import ENVIRONMENT, Rollout, Sampler, Task


def sample(
    tasks: Sequence[Task],
    sampler: Sampler,
    policy: Policy,
    *,
    n: int,
    seed: int,
    limits: Limits,
    prompt_limit: int,
) -> list[Rollout]:
    """`n` rollouts of each task, group by group, in the order of `tasks`. Episodes come back graded.

    Raises:
        UserError: a prompt is longer than data.max_prompt_length.
    """
    acted = [t.data_source.startswith(ENVIRONMENT) for t in tasks]
    episodes, answers = (
        [t for t, act in zip(tasks, acted, strict=True) if act is kind] for kind in (True, False)
    )
    played = play(episodes, sampler, policy, limits, n=n, seed=seed) if episodes else []
    prompts = prompt_ids(answers, policy, prompt_limit)
    options = {"temperature": limits.temperature, "top_p": limits.top_p}
    most = limits.max_response_length - limits.reserve
    groups = sampler.sample(prompts, n, seed=seed, max_tokens=most, **options) if answers else []
    answered = [
        [Rollout(task, ids, s.ids, np.ones(len(s.ids), np.int64), s.logprobs, s.finish_reason) for s in group]
        for task, ids, group in zip(answers, prompts, groups, strict=True)
    ]
    if limits.reserve:
        interrupt([r for group in answered for r in group], sampler, limits, seed)
    in_order = {True: iter([played[i : i + n] for i in range(0, len(played), n)]), False: iter(answered)}
    return [rollout for act in acted for rollout in next(in_order[act])]


def interrupt(rollouts: Sequence[Rollout], sampler: Sampler, limits: Limits, seed: int) -> None:
    """Continue every cut answer by the tokens of `limits.phrase`, which are masked, and by what the policy then samples
    in the rest of `limits.reserve`."""
    cut, phrase = [r for r in rollouts if r.finish_reason == "length"], np.array(limits.phrase, np.int64)
    answers = sampler.sample(
        [np.concatenate([r.prompt_ids, r.response_ids, phrase]) for r in cut], 1, seed=derive(seed, "interruption"),
        max_tokens=limits.reserve - len(phrase), temperature=limits.temperature, top_p=limits.top_p,
    ) if cut else []  # fmt: skip
    for r, (answer,) in zip(cut, answers, strict=True):
        sampled = np.ones(len(answer.ids), np.int64)
        r.forced = np.concatenate([np.zeros_like(r.mask), np.ones_like(phrase), np.zeros_like(sampled)])
        r.mask = np.concatenate([r.mask, np.zeros_like(phrase), sampled])
        r.response_ids = np.concatenate([r.response_ids, phrase, answer.ids])
        r.logprobs = np.concatenate([r.logprobs, np.zeros(len(phrase), np.float32), answer.logprobs])
        r.finish_reason = answer.finish_reason


def prompt_ids(tasks: Sequence[Task], policy: Policy, limit: int) -> list[np.ndarray]:
    """The prompts' token ids. Raises UserError where one has more than `limit` tokens, and says which."""
    encoded = policy.encode_all([task.prompt for task in tasks]) if tasks else []
    for task, ids in zip(tasks, encoded, strict=True):
        if len(ids) > limit:
            raise UserError(
                f"data.max_prompt_length is {limit}, but the prompt of task {task.id} ({task.data_source}) has "
                f"{len(ids)} tokens: raise it, or set data.filter_overlong_prompts."
            )
    return [np.array(ids, np.int64) for ids in encoded]


def grade(rollouts: Sequence[Rollout], router: Router, policy: Policy) -> None:
    """Set `reward` on every rollout that has none: the sampled text goes through the router.

    Only tokens that the policy sampled and those of an interruption are read, so that text printed by an environment is
    never graded. Equal
    answers to a task, of which the samples of a group have many, are graded once, unless by a function of the
    user's own, which may ask a judge that does not say the same twice.
    """
    open_ = [r for r in rollouts if r.reward is None]
    own = router.config.custom_reward_function is not None
    read = [r.mask if r.forced is None else r.mask + r.forced for r in open_]
    texts = policy.decode_all([r.response_ids[m > 0] for r, m in zip(open_, read, strict=True)])
    keys = [(i if own else id(r.task), text) for i, (r, text) in enumerate(zip(open_, texts, strict=True))]
    answers = {key: (r.task, key[1]) for key, r in zip(keys, open_, strict=True)}
    rewards = dict(zip(answers, router.grade(answers.values()), strict=True))
    for key, rollout in zip(keys, open_, strict=True):
        rollout.reward = rewards[key]


def sample_row(policy: Policy, rollout: Rollout, group: int) -> dict[str, Any]:
    """A rollout as people read it; `pieces` are its tokens, `logprobs` the sampler's, null where it observed."""
    reward = rollout.reward
    sampled = zip(rollout.logprobs, rollout.mask, strict=True)
    return {
        "task_id": rollout.task.id,
        "data_source": rollout.task.data_source,
        "group": group,
        "prompt": rollout.task.prompt[-1]["content"],
        "response": policy.decode(rollout.response_ids),
        "ground_truth": rollout.task.ground_truth,
        "value": reward.value if reward else None,
        "correct": reward.correct if reward else None,
        "error": reward.error if reward else None,
        "finish_reason": rollout.finish_reason,
        "tokens": len(rollout.response_ids),
        "turns": rollout.turns,
        "pieces": [policy.decode([token]) for token in rollout.response_ids],
        "logprobs": [round(float(logprob), 3) if mask else None for logprob, mask in sampled],
    }
