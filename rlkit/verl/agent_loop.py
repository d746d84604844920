"""The agent loop that verl's rollout workers run for every sample: an answer, or an episode turn by turn.

One class for both, chosen by the row's data_source, so that a mixture may hold both. Token ids are only ever
appended: verl's token builder adds what stands between two turns, with mask 0.

Limits of verl 0.9.1: the rewards of an episode's turns reach its trainer as their sum, on the last token
(per-turn rewards are in the answers log); an answer that cannot be graded, or an episode whose environment
fails, is dropped from its group.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from rlkit.data.rows import from_verl
from rlkit.environments.base import environments
from rlkit.environments.episode import Episode
from rlkit.models.prompts import MarkedChat, encode_chats
from rlkit.samplers.rollouts import ENVIRONMENT
from rlkit.verl.answers import record
from rlkit.verl.reward import PLACE, score_of


class RlkitAgentLoop(AgentLoopBase):
    """`max_turn_length` is of tokens (0: what is left of the response), `answers` the folder of the answers log."""

    def __init__(self, *args: Any, max_turn_length: int = 0, answers: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.words: Any = self.tokenizer  # verl's annotation names a factory
        self.max_turn_length, self.answers = max_turn_length, answers
        self.response_length = self.rollout_config.response_length

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One sample of a row. Raises UngradedAnswer for an episode whose environment failed."""
        sequence = _Sequence(self, sampling_params, kwargs)
        if str(kwargs["data_source"]).startswith(ENVIRONMENT):
            return await self._episode(sequence, kwargs)
        await sequence.start()
        await sequence.turn(self.response_length)
        return sequence.output(self._place(sequence, kwargs, sequence.finish))

    async def _episode(self, sequence: "_Sequence", row: Mapping[str, Any]) -> AgentLoopOutput:
        problem, info = from_verl(row["reward_model"]["ground_truth"], row["extra_info"])
        episode = Episode.begin(environments.parse(dict(info["environment"])), problem)
        await sequence.start()
        while episode.finish is None:
            room = self.response_length - len(sequence.mask)
            text = await sequence.turn(min(room, self.max_turn_length or room))
            await asyncio.to_thread(episode.say, text)
            if episode.finish is None and not await sequence.observe(episode.observation):
                episode.finish = "length"  # before the observation: an episode ends on a token of the policy
        rewards = [step.reward for step in episode.transitions]
        reward = episode.reward()
        if reward.error is None:
            reward = replace(reward, parts={**reward.parts, "turn_rewards": rewards})
        place = self._place(sequence, row, episode.finish)
        if self.answers:
            record(self.answers, place, row["data_source"], sequence.text(), reward)
        return sequence.output(place, score_of(reward), rewards)

    def _place(self, sequence: "_Sequence", row: Mapping[str, Any], finish: str) -> dict[str, Any]:
        prompt, mask = len(sequence.ids) - len(sequence.mask), sequence.mask
        return {
            "step": int(row["global_steps"]), "split": str(row["extra_info"]["split"]), "uid": str(row["uid"]),
            "sample": int(row["session_id"]), "task_id": str(row["id"]), "prompt_tokens": prompt, "tokens": sum(mask),
            "response_tokens": len(mask), "finish_reason": finish, "turns": sequence.turns,
        }  # fmt: skip


class _Sequence:
    """A growing token sequence with its mask and log-probs."""

    def __init__(self, loop: RlkitAgentLoop, sampling: dict[str, Any], row: Mapping[str, Any]) -> None:
        self.loop, self.sampling = loop, sampling
        self.messages: list[dict[str, Any]] = [dict(m) for m in row["raw_prompt"]]
        self.priority = int(row.get("priority", 0))
        self.request = uuid4().hex
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] | None = [] if sampling.get("logprobs") else None
        self.fields: dict[str, Any] = {}
        self.turns, self.seconds, self.finish = 0, 0.0, "stop"

    async def start(self) -> None:
        """Tokenize the prompt."""
        if MarkedChat(self.loop.words, self.messages).names:  # which verl would encode as control tokens
            options = self.loop.apply_chat_template_kwargs
            self.ids = encode_chats(self.loop.words, [self.messages], **options)[0]
        else:
            self.ids = await self.loop.ct_build_initial_tokens(self.messages)

    async def turn(self, most: int) -> str:
        """Sample at most `most` tokens; their text."""
        began = time.perf_counter()
        out = await self.loop.server_manager.generate(
            request_id=self.request,
            prompt_ids=self.ids,
            sampling_params={**self.sampling, "max_tokens": most},
            priority=self.priority,
        )
        self.seconds += time.perf_counter() - began
        sampled = list(out.token_ids)[:most]
        logprobs = list(out.log_probs)[:most] if self.logprobs is not None and out.log_probs else None
        merged, self.mask, self.logprobs = await self.loop.ct_merge_assistant_token(
            self.ids, sampled, self.mask, self.logprobs, assistant_logprobs=logprobs
        )
        self.ids, self.turns = merged.token_ids, self.turns + 1
        first = self.fields.get("min_global_steps", out.extra_fields.get("min_global_steps"))
        self.fields = {**out.extra_fields, "min_global_steps": first}
        text = self.loop.words.decode(sampled, skip_special_tokens=True)
        self.messages.append({"role": "assistant", "content": text})
        eos = self.loop.words.eos_token_id
        ended = bool(sampled) and sampled[-1] in (eos if isinstance(eos, list) else [eos])
        self.finish = "length" if len(sampled) >= most and not ended else "stop"
        return text

    async def observe(self, observation: str) -> bool:
        """Append an observation if another turn fits behind it; whether it did."""
        before = list(self.messages)
        after = [*before, {"role": "user", "content": observation}]
        tokens = self.ids, self.mask, self.logprobs
        merged, mask, logprobs = await self.loop.ct_merge_context_msg(before, after, *tokens)
        if len(mask) >= self.loop.response_length:
            return False
        self.messages, self.ids, self.mask, self.logprobs = after, merged.token_ids, mask, logprobs
        return True

    def text(self) -> str:
        """The response as people read it, observations included."""
        return self.loop.words.decode(self.ids[len(self.ids) - len(self.mask) :], skip_special_tokens=True)

    def output(
        self,
        place: dict[str, Any],
        scores: dict[str, float] | None = None,
        turn_rewards: Sequence[float] = (),
    ) -> AgentLoopOutput:
        """What verl trains on. `scores` are given for an episode; an answer is graded by compute_score."""
        cut = len(self.ids) - len(self.mask)
        extra = {**self.fields, PLACE: place, "turn_scores": list(turn_rewards), "tool_rewards": []}
        if scores is not None:
            extra["reward_extra_info"] = scores
        return AgentLoopOutput(
            prompt_ids=self.ids[:cut],
            response_ids=self.ids[cut:],
            response_mask=self.mask,
            response_logprobs=self.logprobs,
            reward_score=None if scores is None else scores["score"],
            num_turns=2 * self.turns,
            metrics={"generate_sequences": self.seconds},  # pyright: ignore[reportArgumentType]  # pydantic builds it
            extra_fields=extra,
        )
