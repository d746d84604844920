"""Many episodes of a language model at once: a turn is one call of the sampler for all that still live."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlkit.environments.base import BaseEnvironment, environments
from rlkit.environments.chat import ChatTokens
from rlkit.environments.trajectory import Trajectory, Transition
from rlkit.errors import UserError
from rlkit.seeds import derive
from rlkit.types import FinishReason, Reward, Rollout, Sample, Sampler, Task


@dataclass(frozen=True)
class Limits:
    """How far an episode goes and how its turns are drawn.

    Attributes:
        max_response_length: tokens of a whole episode, observations included.
        max_turn_length: tokens of one turn; 0 is what is left of the episode.
        temperature, top_p: of sampling; temperature 0 is greedy.
    """

    max_response_length: int
    max_turn_length: int = 0
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass
class Episode:
    """A running episode: its environment, its ids so far and what each turn earned."""

    task: Task
    environment: BaseEnvironment
    observation: str
    prompt_ids: np.ndarray
    pieces: list[np.ndarray] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    logprobs: list[np.ndarray] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    length: int = 0
    finish: FinishReason | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def extend(self, ids: np.ndarray, logprobs: np.ndarray | None = None) -> None:
        """Append sampled ids with their log-probs, or observed ids without."""
        sampled = logprobs is not None
        self.pieces.append(ids)
        self.masks.append(np.full(len(ids), int(sampled), np.int64))
        self.logprobs.append(logprobs if logprobs is not None else np.zeros(len(ids), np.float32))
        self.length += len(ids)

    @property
    def context(self) -> np.ndarray:
        """All ids so far."""
        return np.concatenate([self.prompt_ids, *self.pieces])

    def advance(self, sample: Sample, chat: ChatTokens, limits: Limits) -> None:
        """Take one turn: append the sampled ids, act, and append the observation if another turn follows."""
        room = limits.max_response_length - self.length
        ids, logprobs = sample.ids[:room], sample.logprobs[:room]
        self.extend(ids, logprobs)
        text = chat.decode(ids)
        try:
            action, params = self.environment.parse_action(text)
            result = self.environment.step(action, params)
        except Exception as error:  # a defect of the environment is the episode's error, never a zero
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = (
                "" if isinstance(error, UserError) else f" ({Path(place.filename).name}, line {place.lineno})"
            )
            self.finish, self.error = "error", f"{type(error).__name__}: {error}{where}"
            return
        self.transitions.append(
            Transition(
                self.observation,
                action,
                params,
                text,
                result.reward,
                result.observation,
                result.info["valid"],
            )
        )
        self.observation, self.info = result.observation, result.info
        if result.done:
            self.finish = "done"
            return
        follow = chat.follow(result.observation, int(ids[-1]))
        if self.length + len(follow) >= limits.max_response_length:
            self.finish = "length"  # before the observation: an episode ends on a token of the policy
        else:
            self.extend(follow)

    def reward(self) -> Reward:
        """The undiscounted return; `correct` is success."""
        if self.error is not None:
            return Reward.failed(self.error)
        valid = sum(t.valid for t in self.transitions) / len(self.transitions)
        cut = self.finish == "length" or bool(self.info.get("truncated"))
        success = bool(self.info.get("success", False))
        total = sum(t.reward for t in self.transitions)
        return Reward.of(success, total, steps=len(self.transitions), valid_actions=valid, truncated=cut)

    def rollout(self) -> Rollout:
        """The episode as the trainer reads it."""
        return Rollout(
            self.task,
            self.prompt_ids,
            np.concatenate(self.pieces),
            np.concatenate(self.masks),
            np.concatenate(self.logprobs).astype(np.float32),
            self.finish or "error",
            turns=max(len(self.transitions), 1),
            turn_rewards=[t.reward for t in self.transitions] if self.error is None else None,
            reward=self.reward(),
        )

    def trajectory(self) -> Trajectory:
        """The episode as people and offline training read it. Raises UserError if its environment failed."""
        if self.error is not None:
            raise UserError(f"An episode of {self.environment.kind_name!r} failed: {self.error}")
        sampled = [logprobs for logprobs, mask in zip(self.logprobs, self.masks, strict=True) if mask.all()]
        return Trajectory(
            self.environment.kind_name,
            self.task.ground_truth,
            self.task.prompt,
            self.transitions,
            success=bool(self.info.get("success", False)),
            truncated=self.finish == "length" or bool(self.info.get("truncated")),
            confidence=float(np.exp(sampled[-1].sum())),
            solution=self.environment.solution(),
            options=self.environment.model_dump(mode="json"),
        )


def environment_task(environment: BaseEnvironment, problem: str | Mapping[str, Any]) -> Task:
    """The task of acting in `environment` on `problem`, which is its ground truth."""
    environment = environment.model_copy()
    problem = environment.read(problem) if isinstance(problem, str) else problem
    messages = environment.messages(environment.reset(problem))
    name = environment.kind_name
    extra = {"environment": environment.model_dump(mode="json")}
    return Task(f"environment__{name}", messages, dict(problem), ability=name, extra_info=extra)


def play_episodes(
    tasks: Sequence[Task],
    sampler: Sampler,
    policy,
    limits: Limits,
    *,
    n: int = 1,
    seed: int = 0,
    on_turn: Callable[[int, int], Any] | None = None,
) -> list[Episode]:
    """`n` episodes of each task, task by task (a group is consecutive).

    Args:
        tasks: made by `environment_task` (or the source of kind `environment`); each names its environment.
        policy: has `tokenizer` and `stop_ids`.
        seed: of sampling; turn k draws from the stream (seed, "turn", k).
        on_turn: called with the turn and the number of live episodes before each sampler call.

    An episode ends when its environment does ("done"), when `max_response_length` leaves no room for another
    turn ("length"), or with a defect of its environment ("error").
    """
    chat = ChatTokens(policy)
    prompts = [chat.prompt(task.prompt) for task in tasks]
    episodes = [_start(task, ids) for task, ids in zip(tasks, prompts, strict=True) for _ in range(n)]
    turn, sampler = 0, sampler.session(len(episodes))
    while live := [e for e in episodes if e.finish is None]:
        if on_turn:
            on_turn(turn, len(live))
        room = limits.max_response_length - min(e.length for e in live)
        options = {
            "seed": derive(seed, "turn", turn),
            "max_tokens": min(room, limits.max_turn_length or room),
            "temperature": limits.temperature,
            "top_p": limits.top_p,
        }
        if turn == 0:  # the episodes of a task share their prompt
            groups = sampler.sample(prompts, n, **options)
            samples = [sample for group in groups for sample in group]
        else:
            samples = [group[0] for group in sampler.sample([e.context for e in live], 1, **options)]
        for episode, sample in zip(live, samples, strict=True):
            episode.advance(sample, chat, limits)
        turn += 1
    return episodes


def _start(task: Task, prompt_ids: np.ndarray) -> Episode:
    if "environment" not in task.extra_info:
        raise UserError(f"The task {task.id} of {task.data_source!r} names no environment to act in.")
    environment = environments.parse(dict(task.extra_info["environment"]))
    return Episode(task, environment, environment.reset(task.ground_truth), prompt_ids)


def rollout(
    tasks: Sequence[Task], sampler: Sampler, policy, limits: Limits, *, n: int, seed: int
) -> list[Rollout]:
    """`play_episodes` as Rollouts: P·n of them, rewards included."""
    return [episode.rollout() for episode in play_episodes(tasks, sampler, policy, limits, n=n, seed=seed)]


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Turns, environment steps, and the shares of valid actions, successes and cut episodes."""
    graded = [r for r in rollouts if r.reward is not None and r.reward.error is None]
    turns = np.array([r.turns for r in rollouts], float)
    result = {
        "environment/turns/mean": float(turns.mean()),
        "environment/turns/max": float(turns.max()),
        "environment/steps": float(turns.sum()),
    }
    if graded:
        rewards = [r.reward for r in graded if r.reward is not None]
        result["environment/valid_actions"] = float(np.mean([r.parts["valid_actions"] for r in rewards]))
        result["environment/success"] = float(np.mean([bool(r.correct) for r in rewards]))
        result["environment/truncated"] = float(np.mean([bool(r.parts["truncated"]) for r in rewards]))
    return result
