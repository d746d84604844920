"""Many episodes of a language model at once: a turn is one call of the sampler for all that still live."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from rlkit.domains import Source, sources
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.environments.episode import Episode
from rlkit.errors import UserError
from rlkit.models.prompts import MarkedChat, control_tokens, encode_chats
from rlkit.seeds import derive, generator
from rlkit.types import Message, Rollout, Sample, Sampler, Task

MARK = "rlkit"  # stands for the assistant's words when the template is asked what follows them
THREADS = 32  # in which slow environments step side by side
ATTEMPTS = 200  # draws until a problem of the train split comes, which four of five are


class ChatTokens:
    """The ids of prompts, and of what a chat template puts between two assistant turns.

    Sampled ids are never decoded and encoded again: a turn is appended as the template's own text from the end of the
    assistant's words to the start of the next answer, so training ids are the sampled ones even where the policy's text
    has several encodings. `policy` has `tokenizer` and `stop_ids` (rlkit.models.loading.load_policy).
    """

    def __init__(self, policy) -> None:
        self.tokenizer, self.stop_ids = policy.tokenizer, frozenset(policy.stop_ids)
        self._follow = lru_cache(1024)(self._encode_follow)

    def prompt(self, messages: Sequence[Message]) -> np.ndarray:
        """(S,) int64: the chat so far, ready for an answer."""
        return np.asarray(encode_chats(self.tokenizer, [messages])[0], np.int64)

    def follow(self, observation: str, after: int) -> np.ndarray:
        """(n,) int64: what comes between the last sampled token `after` and the next answer. It begins with the
        template's end of turn, unless the policy ended its turn itself."""
        ids = self._follow(observation)
        return ids[1:] if after in self.stop_ids else ids

    def _encode_follow(self, observation: str) -> np.ndarray:
        roles = {"user": MARK, "assistant": MARK}
        chat = [{"role": role, "content": text} for role, text in (*roles.items(), ("user", observation))]
        marked = MarkedChat(self.tokenizer, chat, control_tokens(self.tokenizer))
        text = self.tokenizer.apply_chat_template(marked.messages, add_generation_prompt=True, tokenize=False)
        ids = np.asarray(marked.encode(text.split(MARK, 2)[2]), np.int64)
        if int(ids[0]) not in self.stop_ids:
            raise UserError(
                "The chat template ends an assistant's turn with none of the model's stop tokens, so turns "
                "cannot be appended: set the tokenizer's eos_token to the template's end of turn."
            )
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """The words of sampled ids, without special tokens."""
        # Otherwise transformers warns of tokenizers whose configuration asks for a cleaning that it does not do.
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Limits:
    """How far an episode goes and how its turns are drawn.

    Attributes:
        max_response_length: tokens of a whole episode, observations included.
        max_turn_length: tokens of one turn; 0 is what is left of the episode.
        temperature, top_p: of sampling; temperature 0 is greedy.
        reserve, phrase: last tokens of an answer, and the token ids that begin them where it has not ended by then
            (`rollout.interruption`); 0 interrupts none.
    """

    max_response_length: int
    max_turn_length: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    reserve: int = 0
    phrase: tuple[int, ...] = ()


@dataclass
class SampledEpisode:
    """An episode as token ids: the prompt's, then `pieces` of sampled ids with log-probs, observed ones without."""

    episode: Episode
    prompt_ids: np.ndarray
    pieces: list[tuple[np.ndarray, np.ndarray | None]] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens after the prompt."""
        return sum(len(ids) for ids, _ in self.pieces)

    @property
    def context(self) -> np.ndarray:
        """All ids so far."""
        return np.concatenate([self.prompt_ids, *(ids for ids, _ in self.pieces)])

    def take(self, sample: Sample, chat: ChatTokens, limits: Limits) -> str:
        """Append a turn's sampled ids; their text."""
        room = limits.max_response_length - self.length
        ids = sample.ids[:room]
        self.pieces.append((ids, sample.logprobs[:room]))
        return chat.decode(ids)

    def observe(self, chat: ChatTokens, limits: Limits) -> None:
        """Append the observation if another turn follows."""
        if self.episode.finish is None:
            follow = chat.follow(self.episode.observation, int(self.pieces[-1][0][-1]))
            if self.length + len(follow) >= limits.max_response_length:
                # Before the observation: an episode ends on a token of the policy.
                self.episode.finish = "length"
            else:
                self.pieces.append((follow, None))

    async def play(
        self, sample: Callable[[np.ndarray, int], Awaitable[Sample]], chat: ChatTokens, limits: Limits
    ) -> None:
        """Play to the end; `sample` draws a turn after the ids so far (S,), of at most so many tokens."""
        while self.episode.finish is None:
            room = limits.max_response_length - self.length
            turn = await sample(self.context, min(room, limits.max_turn_length or room))
            text = self.take(turn, chat, limits)
            if self.episode.environment.slow:
                await asyncio.to_thread(self.episode.say, text)
            else:
                self.episode.say(text)
            self.observe(chat, limits)

    def rollout(self, task: Task) -> Rollout:
        """The episode of a task as the trainer reads it."""
        episode, turns = self.episode, self.episode.transitions
        ids = np.concatenate([ids for ids, _ in self.pieces])
        mask = np.concatenate([np.full(len(ids), int(p is not None), np.int64) for ids, p in self.pieces])
        logprobs = np.concatenate([np.zeros(len(ids)) if p is None else p for ids, p in self.pieces])
        sampled = task, self.prompt_ids, ids, mask, logprobs.astype(np.float32)
        rewards = [t.reward for t in turns] if episode.error is None else None
        played: Any = {"turns": max(len(turns), 1), "turn_rewards": rewards, "reward": episode.reward()}
        return Rollout(*sampled, episode.finish or "error", **played)


def environment_task(environment: BaseEnvironment, problem: str | Mapping[str, Any]) -> Task:
    """The task of acting in `environment` on `problem`, which is its ground truth."""
    begun, name = Episode.begin(environment, problem), environment.kind_name
    extra = {"environment": environment.model_dump(mode="json")}
    return Task(f"environment__{name}", begun.messages, dict(begun.problem), ability=name, extra_info=extra)


@sources.register("environment")
class EnvironmentTasks(Source):
    """The generated problems of one environment's train split: the policy acts in it until it is done. Problems of
    the test split (`environment.problems("test", …)`) never occur, so they measure what a run has learnt."""

    kind: Literal["environment"] = "environment"
    environment: environments.field()  # pyright: ignore[reportInvalidTypeForm]
    """The environment, with its `kind` and options."""

    def task(self, index: int) -> Task:
        environment = self.environment
        for attempt in range(ATTEMPTS):
            rng = generator("environment task", environment.kind_name, index, attempt)
            problem = environment.draw(rng)
            if environment.split_of(problem) == "train":
                return environment_task(environment, problem)
        raise UserError(f"{environment.kind_name!r} gives no problems of its train split: widen its options.")


def play_episodes(
    tasks: Sequence[Task],
    sampler: Sampler,
    policy,
    limits: Limits,
    *,
    n: int = 1,
    seed: int = 0,
    environment: BaseEnvironment | None = None,
    prompt_limit: int | None = None,
) -> list[SampledEpisode]:
    """`n` episodes of each task, task by task (a group is consecutive).

    Args:
        tasks: made by `environment_task` (or the source of kind `environment`).
        policy: has `tokenizer` and `stop_ids`.
        seed: of sampling; turn k draws from the stream (seed, "turn", k).
        environment: to act in, one that no registry knows; otherwise each task names its own.
        prompt_limit: most tokens of a prompt; a UserError for a longer one.
    """
    chat, episodes = ChatTokens(policy), []
    prompts = [chat.prompt(task.prompt) for task in tasks]
    for task, ids in zip(tasks, prompts, strict=True):
        if prompt_limit and len(ids) > prompt_limit:
            told = f"A prompt of {task.ability!r} has {len(ids)} tokens, and {prompt_limit} are allowed"
            where, fix = "data.max_prompt_length in a run", "fewer actions, or `instructions: brief`"
            raise UserError(f"{told} ({where}): {fix}.")
        world = environment or environments.parse(dict(task.extra_info["environment"]))
        episodes += [SampledEpisode(Episode.begin(world, task.ground_truth), ids) for _ in range(n)]
    turn = 0
    while live := [e for e in episodes if e.episode.finish is None]:
        room = limits.max_response_length - min(e.length for e in live)
        room = min(room, limits.max_turn_length or room)
        options: Any = {"temperature": limits.temperature, "top_p": limits.top_p, "max_tokens": room}
        options["seed"] = derive(seed, "turn", turn)
        if turn == 0:  # the episodes of a task share their prompt
            groups = sampler.sample(prompts, n, **options)
            samples = [sample for group in groups for sample in group]
        else:
            samples = [group[0] for group in sampler.sample([e.context for e in live], 1, **options)]
        with ThreadPoolExecutor(THREADS) as pool:  # which waits for the steps; what one raises is its episode's error
            for e, sample in zip(live, samples, strict=True):
                text = e.take(sample, chat, limits)
                if e.episode.environment.slow:
                    pool.submit(e.episode.say, text)
                else:
                    e.episode.say(text)
        for e in live:
            e.observe(chat, limits)
        turn += 1
    return episodes


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Turns, environment steps, and the shares of valid actions, successes and cut episodes."""
    turns = np.array([r.turns for r in rollouts], float)
    result = {"turns/mean": turns.mean(), "turns/max": turns.max(), "steps": turns.sum()}
    if rewards := [r.reward for r in rollouts if r.reward is not None and r.reward.error is None]:
        result["success"] = np.mean([bool(r.correct) for r in rewards])
        for part in ("valid_actions", "truncated"):
            result[part] = np.mean([float(r.parts[part]) for r in rewards])
    return {f"environment/{name}": float(value) for name, value in result.items()}
