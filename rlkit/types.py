"""What crosses a border between two rooms, and the letters used for shapes.

P prompts a step · G samples a prompt (`rollout.n`) · B = P·G sequences · S prompt tokens ·
T response tokens · V vocabulary · K turns of an episode.

Nothing here imports torch at run time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from rlkit.seeds import content_hash

if TYPE_CHECKING:
    import torch

Message = dict[str, str]  # {"role": ..., "content": ...}
ENVIRONMENT = "environment__"  # data_source prefix of tasks that are acted in turn by turn
FinishReason = Literal["stop", "length", "done", "error"]


@dataclass(frozen=True)
class Task:
    """One problem: what the policy is asked and how its answer is scored.

    Attributes:
        data_source: routes to the scorer (rlkit.rewards) and groups every metric.
        prompt: chat messages, before the chat template.
        ground_truth: whatever the scorer of `data_source` compares with; any JSON value.
        ability: verl's name for the domain: math, codegen, logic, simulation, table, stem.
        extra_info: any JSON mapping; `index`, `split` and difficulty fields have conventional meaning.
    """

    data_source: str
    prompt: tuple[Message, ...]
    ground_truth: Any
    ability: str = "math"
    extra_info: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """Hash of what is asked and how it is scored: equal content, equal id, in any split or file."""
        return content_hash([self.data_source, list(self.prompt), self.ground_truth])

    @cached_property
    def problem(self) -> str:
        """Hash of what is asked, white space aside, whatever the data_source and the truth's spelling; in an
        environment, which asks all its problems in the same words, `id`."""
        if self.data_source.startswith(ENVIRONMENT):
            return self.id
        return content_hash(" ".join(" ".join(m["content"] for m in self.prompt).split()))

    @property
    def worked_answer(self) -> str:
        """What a correct response says: the worked solution, or else the ground truth as text."""
        return str(self.extra_info.get("solution") or self.ground_truth)

    @classmethod
    def ask(cls, data_source: str, question: str, ground_truth: Any, **fields: Any) -> Task:
        """A task whose prompt is one user message."""
        return cls(data_source, ({"role": "user", "content": question},), ground_truth, **fields)

    def to_row(self, split: str = "train") -> dict[str, Any]:
        """verl's columns, of a file that is the `split` train or test. The truth and extra_info are JSON strings, so
        that the rows of all domains have one Arrow schema; verl itself reads keys of extra_info, hence a struct."""
        index, extra = self.extra_info.get("index"), json.dumps(dict(self.extra_info))
        info = {"index": index if isinstance(index, int) else 0, "split": split, "json": extra}
        truth = {"style": "rule", "ground_truth": json.dumps(self.ground_truth)}
        known = {"data_source": self.data_source, "prompt": list(self.prompt), "ability": self.ability}
        return {**known, "reward_model": truth, "extra_info": info, "id": self.id}


@dataclass(frozen=True)
class Reward:
    """The outcome of grading one answer. Exactly one of `value` and `error` is set.

    Attributes:
        value: what trains; None when the answer could not be graded.
        correct: what is reported as pass@1; None when the answer could not be graded.
        parts: named pieces of the value and facts about the grading (share of cells, tests passed …).
        error: why the grader failed: never a zero, the sample is left out of its group and counted.
    """

    value: float | None = None
    correct: bool | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.error is None):
            raise ValueError("a Reward has either a value or an error")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a reward must be finite, not {self.value}")
        if self.error is None and self.correct is None:
            raise ValueError("a graded Reward says whether the answer is correct")

    @classmethod
    def of(cls, correct: bool, value: float | None = None, **parts: Any) -> Reward:
        """A graded answer; `value` defaults to 1.0 for a correct one and 0.0 otherwise."""
        return cls(float(correct) if value is None else float(value), bool(correct), parts)


@dataclass
class Rollout:
    """One sampled sequence. Token ids are only ever appended, never re-encoded.

    Attributes:
        prompt_ids: (S,) int64.
        response_ids: (T,) int64, everything after the prompt, observations of an environment included.
        mask: (T,) 1 where the policy sampled the token, 0 on observations.
        logprobs: (T,) float32, log-probability at which the sampler drew each token, at the sampling
            temperature; 0 on observations.
        finish_reason: "stop" (a stop token), "length" (cut), "done" (the environment ended), "error".
        turns: assistant turns.
        turn_rewards: reward of each turn, for environments that give any.
        forced: (T,) 1 on the tokens of an interruption, which graders read and the loss leaves out; None without.
        grading: waits for the reward and its seconds, where the response is being graded; None once `reward` is set.
    """

    task: Task
    prompt_ids: np.ndarray
    response_ids: np.ndarray
    mask: np.ndarray
    logprobs: np.ndarray
    finish_reason: FinishReason
    turns: int = 1
    turn_rewards: list[float] | None = None
    reward: Reward | None = None
    forced: np.ndarray | None = None
    grading: Callable[[], tuple[Reward, float]] | None = None


class Sample(NamedTuple):
    """What a sampler returns for one sequence: (T,) ids, (T,) log-probs and why it ended."""

    ids: np.ndarray
    logprobs: np.ndarray
    finish_reason: FinishReason


Finished = list[tuple[int, np.ndarray]]
"""Responses that have ended: (i·n + j, ids (T,)), sample j of prompt i."""


class Sampler(Protocol):
    """Anything that samples from the policy: samplers/torch.py, samplers/vllm.py."""

    def sample(
        self, prompts: Sequence[np.ndarray], n: int, *, seed: int, max_tokens: int, temperature: float = 1.0,
        top_p: float = 1.0, on_finished: Callable[[Finished], bool | None] | None = None,
    ) -> list[list[Sample]]:  # fmt: skip
        """`n` samples of each prompt of token ids, in order: P lists of n, with the log-probs of the distribution
        that was sampled from. Temperature 0 is greedy; `on_finished` may be told responses that have ended, and
        none while the device computes, as long as it returns that it has something else to do."""
        ...

    def sync(self, policy: Any) -> None:
        """Make the sampler's weights those of the trainer's policy."""
        ...

    def release(self) -> None:
        """Free what the next `sample` can bring back: called before an update needs the memory."""
        ...


@dataclass
class Batch:
    """What an update trains on: B sequences, prompts and responses padded on the right.

    Attributes:
        prompt_ids, prompt_mask: (P, S) the distinct prompts; `prompt_mask` is 1 on real tokens.
        prompt_index: (B,) row of `prompt_ids` for each sequence: a group shares its prompt, and is compared.
        response_ids, rewards: (B, T).
        mask, attention: (B, T) float, 1 where the policy sampled the token, and where there is one at all.
        sampler_logprobs, old_logprobs, ref_logprobs, values, advantages, returns: (B, T) float.
        baselines: (B,) reward of the greedy response to each sequence's prompt (remax).
        sum_pi_squared: (B, T) sum over the vocabulary of squared probabilities (optimal token baselines).
    """

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    prompt_index: torch.Tensor
    response_ids: torch.Tensor
    mask: torch.Tensor
    attention: torch.Tensor
    rewards: torch.Tensor
    sampler_logprobs: torch.Tensor
    old_logprobs: torch.Tensor | None = None
    ref_logprobs: torch.Tensor | None = None
    values: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    returns: torch.Tensor | None = None
    baselines: torch.Tensor | None = None
    sum_pi_squared: torch.Tensor | None = None

    def __len__(self) -> int:
        return self.response_ids.shape[0]
