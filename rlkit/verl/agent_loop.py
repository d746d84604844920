"""The agent loop that verl's rollout workers run for every sample: an answer, or an episode turn by turn.

One class for both, chosen by the row's data_source, so that a mixture may hold both. Prompts, turns and observations
become tokens as in a local run: ids are only ever appended, and text of a row or an environment is never a control
token.

Limits of verl 0.9.1: the rewards of an episode's turns reach its trainer as their sum, on the last token
(per-turn rewards are in the answers log); an answer that cannot be graded, or an episode whose environment
fails, is dropped from its group.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
from transformers import GenerationConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from rlkit.data.rows import from_verl
from rlkit.environments.base import environments
from rlkit.environments.episode import Episode
from rlkit.environments.rollout import ChatTokens, Limits, SampledEpisode
from rlkit.models.prompts import set_template_defaults
from rlkit.samplers.rollouts import acts
from rlkit.types import Rollout, Sample, Task
from rlkit.verl.compute_score import PLACE, record, score_of


class RlkitAgentLoop(AgentLoopBase):
    """verl makes one for every sample. `max_turn_length` is of tokens (0: what is left of the response), `answers` the
    folder of the answers log."""

    def __init__(self, *args: Any, max_turn_length: int = 0, answers: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        words: Any = self.tokenizer  # verl's annotation names a factory
        set_template_defaults(words, self.apply_chat_template_kwargs)
        stops = stop_ids(str(self.config.actor_rollout_ref.model.path), words.eos_token_id)
        self.chat = ChatTokens(SimpleNamespace(tokenizer=words, stop_ids=stops))
        self.limits = Limits(self.rollout_config.response_length, max_turn_length)
        self.answers, self.request, self.seconds = answers, uuid4().hex, 0.0
        self.fields: dict[str, Any] = {}  # what verl's server says of the last turn

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One sample of a row. Raises UngradedAnswer for an episode whose environment failed."""
        truth, info = from_verl(row["reward_model"]["ground_truth"], row["extra_info"])
        messages = tuple(dict(message) for message in row["raw_prompt"])
        task = Task(str(row["data_source"]), messages, truth, extra_info=info)
        options = {"sampling_params": sampling_params, "priority": int(row.get("priority", 0))}
        rollout = await (self._episode(task, options) if acts(task) else self._answer(task, options))
        place = {
            "step": int(row["global_steps"]), "split": str(row["extra_info"]["split"]), "uid": str(row["uid"]),
            "sample": int(row["session_id"]), "task_id": str(row["id"]), "prompt_tokens": len(rollout.prompt_ids),
            "tokens": int(rollout.mask.sum()), "response_tokens": len(rollout.mask),
            "finish_reason": rollout.finish_reason, "turns": rollout.turns,
        }  # fmt: skip
        turns, scores = rollout.turn_rewards or [], None
        if (reward := rollout.reward) is not None:  # of an episode; an answer is graded by compute_score
            if reward.error is None:
                reward = replace(reward, parts={**reward.parts, "turn_rewards": turns})
            if self.answers:
                record(self.answers, place, task.data_source, self.chat.decode(rollout.response_ids), reward)
            scores = score_of(reward)
        extra = {**self.fields, PLACE: place, "turn_scores": turns, "tool_rewards": []}
        return AgentLoopOutput(
            prompt_ids=rollout.prompt_ids.tolist(),
            response_ids=rollout.response_ids.tolist(),
            response_mask=rollout.mask.tolist(),
            response_logprobs=rollout.logprobs.tolist() if sampling_params.get("logprobs") else None,
            reward_score=scores["score"] if scores else None,
            num_turns=2 * rollout.turns,
            metrics={"generate_sequences": self.seconds},  # pyright: ignore[reportArgumentType]  # pydantic builds it
            extra_fields=extra | ({"reward_extra_info": scores} if scores else {}),
        )

    async def _answer(self, task: Task, options: Mapping[str, Any]) -> Rollout:
        ids = self.chat.prompt(task.prompt)
        sample = await self._sample(options, ids, self.limits.max_response_length)
        return Rollout(task, ids, sample.ids, np.ones_like(sample.ids), sample.logprobs, sample.finish_reason)

    async def _episode(self, task: Task, options: Mapping[str, Any]) -> Rollout:
        world = environments.parse(dict(task.extra_info["environment"]))
        playing = SampledEpisode(Episode.begin(world, task.ground_truth), self.chat.prompt(task.prompt))
        await playing.play(partial(self._sample, options), self.chat, self.limits)
        return playing.rollout(task)

    async def _sample(self, options: Mapping[str, Any], ids: np.ndarray, most: int) -> Sample:
        """What verl's server samples after `ids` (S,), at most `most` tokens."""
        began, sampling = time.perf_counter(), {**options["sampling_params"], "max_tokens": most}
        asked = {**options, "sampling_params": sampling, "request_id": self.request}
        out = await self.server_manager.generate(prompt_ids=ids.tolist(), **asked)
        self.seconds += time.perf_counter() - began
        first = self.fields.get("min_global_steps", out.extra_fields.get("min_global_steps"))
        self.fields = {**out.extra_fields, "min_global_steps": first}
        sampled = np.asarray(out.token_ids[:most], np.int64)
        logprobs = np.asarray(out.log_probs[:most] if out.log_probs else np.zeros(len(sampled)), np.float32)
        cut = len(sampled) >= most and int(sampled[-1]) not in self.chat.stop_ids
        return Sample(sampled, logprobs, "length" if cut else "stop")


@cache
def stop_ids(path: str, eos: int) -> tuple[int, ...]:
    """Tokens that end a turn of the model at `path`: its tokenizer's, and those of its generation config."""
    found: Any = None
    with suppress(OSError):
        found = GenerationConfig.from_pretrained(path).eos_token_id
    return tuple({eos, *(found if isinstance(found, list) else [found])} - {None})
