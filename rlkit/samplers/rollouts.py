"""Rollouts: tasks through a sampler (and an environment), and their grading. Training and evaluation share it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlkit.environments.rollout import Limits, play_episodes
from rlkit.errors import UserError
from rlkit.models.loading import Policy
from rlkit.rewards import Router
from rlkit.seeds import derive
from rlkit.types import ENVIRONMENT, Finished, Reward, Rollout, Sampler, Task


class Grader:
    """Sends answers to the router as they come; equal ones once, unless a function of the user's own grades them."""

    def __init__(self, router: Router, policy: Policy) -> None:
        self.router, self.policy, self.begun = router, policy, dict[Any, Callable[[], tuple[Reward, float]]]()
        self.once = router.config.custom_reward_function is None

    def begin(self, tasks: Sequence[Task], responses: Sequence[np.ndarray]) -> list[Callable[[], Any]]:
        """Begin to grade responses (token ids), one to each task; what waits for reward and seconds of each."""
        answers = list(zip(tasks, self.policy.decode_all(responses), strict=True))
        keys = [(id(task), text) if self.once else object() for task, text in answers]
        new = {key: a for key, a in zip(keys, answers, strict=True) if key not in self.begun}
        rows = [(task.data_source, text, task.ground_truth, task.extra_info) for task, text in new.values()]
        outcomes = self.router.submit(rows)
        self.begun |= {key: partial(outcomes.__getitem__, i) for i, key in enumerate(new)}
        return [self.begun[key] for key in keys]


def sample(
    tasks: Sequence[Task], sampler: Sampler, policy: Policy, *, n: int, seed: int, limits: Limits, prompt_limit: int,
    router: Router | None = None, meanwhile: Iterator[None] | None = None,
) -> list[Rollout]:  # fmt: skip
    """`n` rollouts of each task, group by group, in the order of `tasks`. Episodes come back graded; a `router` begins
    to grade other answers when they end, and `grade` waits for it. `meanwhile` goes a step on whenever a GPU is left to
    decode, if it ever is. Raises UserError where a prompt is too long."""
    episodes, asked = [t for t in tasks if acts(t)], [t for t in tasks if not acts(t)]
    options: Any = {"n": n, "seed": seed, "prompt_limit": prompt_limit}
    played = play_episodes(episodes, sampler, policy, limits, **options) if episodes else []
    prompts, grading = prompt_ids(asked, policy, prompt_limit), {}
    grader = router and Grader(router, policy)

    def begin(ended: Finished) -> None:
        assert grader is not None
        if ended:
            outcomes = grader.begin([asked[i // n] for i, _ in ended], [ids for _, ids in ended])
            grading.update(zip([(i, ids.tobytes()) for i, ids in ended], outcomes, strict=True))
        if meanwhile is not None:
            next(meanwhile, None)

    most = limits.max_response_length - limits.reserve
    options = {"temperature": limits.temperature, "top_p": limits.top_p, "on_finished": grader and begin}
    groups = sampler.sample(prompts, n, seed=seed, max_tokens=most, **options) if asked else []
    answered = [
        Rollout(task, ids, s.ids, np.ones(len(s.ids), np.int64), s.logprobs, s.finish_reason)
        for task, ids, group in zip(asked, prompts, groups, strict=True)
        for s in group
    ]
    if limits.reserve:
        interrupt(answered, sampler, limits, seed)
    for i, rollout in enumerate(answered):  # of the same ids: a sampler may have begun again
        rollout.grading = grading.get((i, rollout.response_ids.tobytes()))
    acted = zip(played, (task for task in episodes for _ in range(n)), strict=True)
    in_order = (episode.rollout(task) for episode, task in acted), iter(answered)
    return [next(in_order[not acts(task)]) for task in tasks for _ in range(n)]


def acts(task: Task) -> bool:
    """Whether a task is to act in an environment rather than to answer."""
    return task.data_source.startswith(ENVIRONMENT)


def interrupt(rollouts: Sequence[Rollout], sampler: Sampler, limits: Limits, seed: int) -> None:
    """Continue cut answers by `limits.phrase`, masked, and what the policy samples in the rest of the reserve."""
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
    encoded = [np.array(ids, np.int64) for ids in policy.encode_all([task.prompt for task in tasks])]
    for task, ids in zip(tasks, encoded, strict=True):
        if len(ids) > limit:
            raise UserError(
                f"data.max_prompt_length is {limit}, but the prompt of task {task.id} ({task.data_source}) has "
                f"{len(ids)} tokens: raise it, or set data.filter_overlong_prompts."
            )
    return encoded


def grade(rollouts: Sequence[Rollout], router: Router, policy: Policy) -> None:
    """Set missing rewards, by tokens that were sampled or forced: text of an environment is never graded."""
    new = [r for r in rollouts if r.reward is None and r.grading is None]
    texts = [r.response_ids[(r.mask if r.forced is None else r.mask + r.forced) > 0] for r in new]
    for rollout, outcome in zip(new, Grader(router, policy).begin([r.task for r in new], texts), strict=True):
        rollout.grading = outcome
    for rollout in rollouts:
        if rollout.grading is not None:
            rollout.reward, rollout.grading = rollout.grading()[0], None


def sample_row(policy: Policy, rollout: Rollout, group: int) -> dict[str, Any]:
    """A rollout as people read it; `pieces` are its tokens, `logprobs` the sampler's, null where it observed."""
    sampled = zip(rollout.logprobs, rollout.mask, strict=True)
    return {
        "task_id": rollout.task.id,
        "data_source": rollout.task.data_source,
        "group": group,
        "prompt": rollout.task.prompt[-1]["content"],
        "response": policy.decode(rollout.response_ids),
        "ground_truth": rollout.task.ground_truth,
        **{name: getattr(rollout.reward, name, None) for name in ("value", "correct", "error")},
        "finish_reason": rollout.finish_reason,
        "tokens": len(rollout.response_ids),
        "turns": rollout.turns,
        "pieces": [policy.decode([token]) for token in rollout.response_ids],
        "logprobs": [round(float(logprob), 3) if mask else None for logprob, mask in sampled],
    }
