"""Rollouts: tasks through a sampler (and an environment), and their grading. Training and evaluation share it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlkit.environments.rollout import Limits, play_episodes
from rlkit.errors import UserError
from rlkit.models.loading import Policy
from rlkit.rewards import Router
from rlkit.seeds import derive
from rlkit.types import ENVIRONMENT, Finished, Reward, Rollout, Sampler, Task

TOGETHER = 256  # answers that become texts at once: they are graded while the next do; fewer do not pay


class Grader:
    """Sends answers to the router as they come; equal ones once, unless a function of the user's own grades them."""

    def __init__(self, router: Router, policy: Policy) -> None:
        self.router, self.policy, self.begun = router, policy, dict[Any, Callable[[], tuple[Reward, float]]]()
        self.once = router.config.custom_reward_function is None

    def begin(self, places: Iterable[int], tasks: Sequence[Task], read: Sequence[np.ndarray]) -> list[Any]:
        """Begin to grade what is `read` (ids) of a response to each task; what waits for reward and seconds."""
        who = map(id, tasks) if self.once else places
        keys = [(one, ids.tobytes()) for one, ids in zip(who, read, strict=True)]
        new = [*{key: i for i, key in enumerate(keys) if key not in self.begun}.items()]
        for part in (new[i : i + TOGETHER] for i in range(0, len(new), TOGETHER)):
            texts = self.policy.decode_all([read[i] for _, i in part])
            asked = zip((tasks[i] for _, i in part), texts, strict=True)
            rows = [(task.data_source, text, task.ground_truth, task.extra_info) for task, text in asked]
            outcomes = self.router.submit(rows)
            self.begun |= {key: partial(outcomes.__getitem__, i) for i, (key, _) in enumerate(part)}
        return [self.begun[key] for key in keys]

    def attach(self, rollouts: Sequence[Rollout], read: Sequence[np.ndarray]) -> None:
        """Have each rollout wait for the grading of its tokens that are `read`, which begins where it has not."""
        outcomes = self.begin(range(len(rollouts)), [r.task for r in rollouts], read)
        for rollout, outcome in zip(rollouts, outcomes, strict=True):
            rollout.grading = outcome


def sample(
    tasks: Sequence[Task], sampler: Sampler, policy: Policy, *, n: int, seed: int, limits: Limits, prompt_limit: int,
    router: Router | None = None, meanwhile: Iterator[bool] = iter(()),  # noqa: B008
) -> list[Rollout]:  # fmt: skip
    """`n` rollouts of each task, group by group, in the order of `tasks`. Episodes come back graded; a `router` begins
    to grade other answers when they end, and `grade` waits for it. `meanwhile` goes on while a GPU decodes, and yields
    True as long as there is more. Raises UserError where a prompt is too long."""
    episodes, asked = [t for t in tasks if acts(t)], [t for t in tasks if not acts(t)]
    options: Any = {"n": n, "seed": seed, "prompt_limit": prompt_limit}
    played = play_episodes(episodes, sampler, policy, limits, **options) if episodes else []
    prompts, grader = prompt_ids(asked, policy, prompt_limit), router and Grader(router, policy)

    def begin(ended: Finished) -> bool:
        assert grader is not None
        if ended:
            grader.begin((i for i, _ in ended), [asked[i // n] for i, _ in ended], [ids for _, ids in ended])
        return not ended and next(meanwhile, False)

    most = limits.max_response_length - limits.reserve
    options = {"temperature": limits.temperature, "top_p": limits.top_p, "on_finished": grader and begin}
    groups = sampler.sample(prompts, n, seed=seed, max_tokens=most, **options) if asked else []
    ones = np.ones(limits.max_response_length, np.int64)
    answered = [
        Rollout(task, ids, sampled, ones[: len(sampled)], logprobs, reason)
        for task, ids, group in zip(asked, prompts, groups, strict=True)
        for sampled, logprobs, reason in group
    ]
    if limits.reserve:
        interrupt(answered, sampler, limits, seed)
    if grader is not None:
        grader.attach(answered, [r.response_ids for r in answered])
    acted = zip(played, (task for task in episodes for _ in range(n)), strict=True)
    in_order = (episode.rollout(task) for episode, task in acted), iter(answered)
    return [next(in_order[not acts(task)]) for task in tasks for _ in range(n)] if episodes else answered


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
    read = [r.response_ids[(r.mask if r.forced is None else r.mask + r.forced) > 0] for r in new]
    Grader(router, policy).attach(new, read)
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
