"""The compute ledger: cumulative FLOPs by phase, tokens, optimizer steps and seconds of a run.

FLOPs are counted from shapes and token counts, a multiply-add as two (Kaplan et al., arXiv 2001.08361; attention as in
Chowdhery et al., arXiv 2204.02311, appendix B). Norms, activations, the softmax and the embedding look-up are left out
(under 2 % of a tiny model; checked against torch.utils.flop_counter). What is counted is what was computed: a prompt
once for its group, no padding, no sequences that the update skipped. `compute/train_6nt_flops` is the papers'
convention beside it: 6·N·T with N non-embedding parameters and T all tokens of all sequences.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rlkit.config import LINEAR
from rlkit.errors import UserError
from rlkit.types import Rollout

PHASES = ("sft", "rollout", "old_log_prob", "ref", "critic", "update")


@dataclass(frozen=True)
class Work:
    """Token counts of a forward pass in which groups share their prompt."""

    tokens: float = 0  # that go through the layers
    pairs: float = 0  # of a query and a key that it sees
    heads: float = 0  # tokens whose logits are computed

    @classmethod
    def of(cls, prompts: list[int], responses: list[tuple[int, int]]) -> Work:
        """Count a pass from prompt lengths (each distinct prompt once) and (prompt length, response length)
        of every sequence. The last response token is predicted but never an input."""
        starts, (s, t) = np.array(prompts, float), np.fromiter(chain(*responses), float).reshape(-1, 2).T
        inputs = np.maximum(t - 1, 0.0)
        pairs = (starts * (starts + 1) / 2).sum() + (inputs * s + inputs * (inputs + 1) / 2).sum()
        return cls(float(starts.sum() + inputs.sum()), float(pairs), float(t.sum()))


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Shape:
    """The dimensions of a decoder with grouped-query attention and a gated MLP, on which its parameters, memory and
    FLOPs depend. rlkit.models.shapes has those of known models."""

    layers: PositiveInt
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocab: PositiveInt  # rows of the output head; 1 is a critic's
    tied: bool = False  # input and output embeddings are one
    bias: bool = False  # of queries, keys and values (Qwen2)
    qk_norm: bool = False  # queries and keys are normed (Qwen3)
    adapter_weights: int = 0  # weights of LoRA adapters, which then train alone; 0 where all weights train

    @classmethod
    def of(cls, model: Any) -> Shape:
        """The shape of a loaded Hugging Face or peft model."""
        adapters = sum(p.numel() for n, p in model.named_parameters() if "lora_" in n)
        return replace(cls.from_config(model.config.to_dict()), adapter_weights=adapters)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "the model's") -> Shape:
        """The shape that a Hugging Face config.json describes. Raises UserError when it is no such decoder."""
        try:
            family, heads = config["model_type"], config["num_attention_heads"]
            return cls(
                layers=config["num_hidden_layers"], hidden=config["hidden_size"], vocab=config["vocab_size"],
                intermediate=config["intermediate_size"],
                heads=heads, kv_heads=config.get("num_key_value_heads") or heads,
                head_dim=config.get("head_dim") or config["hidden_size"] // heads,
                tied=bool(config.get("tie_word_embeddings")), qk_norm=family == "qwen3",
                bias=family == "qwen2" or bool(config.get("attention_bias")),
            )  # fmt: skip
        except KeyError as error:
            said = f"{where}/config.json has no {error}: it describes no decoder that runs here."
            raise UserError(said) from None

    @property
    def q(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim

    def linear(self, name: str) -> tuple[int, int]:
        """(inputs, outputs) of a layer's linear module, one of LINEAR."""
        d, mlp = self.hidden, self.intermediate
        sizes = ((d, self.q), (d, self.kv), (d, self.kv), (self.q, d), (d, mlp), (d, mlp), (mlp, d))
        return dict(zip(LINEAR, sizes, strict=True))[name]

    @property
    def layer_weights(self) -> int:
        """Matrix weights of all layers (no embedding, no head)."""
        return self.layers * sum(i * o for i, o in map(self.linear, LINEAR))

    @property
    def non_embedding(self) -> int:
        """N of the papers: matrices of the layers, biases and norms."""
        bias, normed = (self.q + 2 * self.kv) * self.bias, 2 * self.head_dim * self.qk_norm
        return self.layer_weights + self.layers * (2 * self.hidden + bias + normed) + self.hidden

    @property
    def parameters(self) -> int:
        """All of the base model: N, the input table and, where it is another, the output head."""
        return self.non_embedding + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def cache_width(self) -> int:
        """Numbers that a token keeps in the KV cache."""
        return 2 * self.layers * self.kv

    def lora(self, rank: int, targets: Collection[str] | Literal["all-linear"]) -> int:
        """Weights of a LoRA adapter of `rank` on the `targets` of every layer."""
        return self.layers * sum(rank * sum(self.linear(name)) for name in adapted(targets) if rank)

    def forward(self, work: Work) -> float:
        """FLOPs of a forward pass."""
        weights = self.layer_weights + self.adapter_weights
        return 2 * weights * work.tokens + self._attention(work) + 2 * self.vocab * self.hidden * work.heads

    def training(self, work: Work, checkpointing: bool = False) -> float:
        """FLOPs of a forward and a backward pass. With an adapter, no gradient is formed for the frozen weights, nor
        for the first layer's input. `checkpointing` computes layers again, up to the last activation that is read."""
        layers = 2 * (self.layer_weights + self.adapter_weights) * work.tokens + self._attention(work)
        if self.adapter_weights == 0:
            down = 2 * self.layers * math.prod(self.linear("down_proj")) * work.tokens
            return 3 * self.forward(work) + checkpointing * (layers - down)
        frozen = 2 * (self.layer_weights * work.tokens + self.vocab * self.hidden * work.heads)
        first = 2 * self.hidden * (self.q + 2 * self.kv) * work.tokens
        adapters = 3 * 2 * self.adapter_weights * work.tokens
        return 2 * frozen - first + 3 * self._attention(work) + adapters + checkpointing * layers

    def _attention(self, work: Work) -> float:
        return 4 * self.layers * self.q * work.pairs


def adapted(targets: Collection[str] | Literal["all-linear"]) -> tuple[str, ...]:
    """The linear modules of a layer that `model.target_modules` gives an adapter; of one layer's, in every layer."""
    given = LINEAR if targets == "all-linear" else [name.rpartition(".")[2] for name in targets]
    return tuple(name for name in LINEAR if name in given)


@dataclass
class Ledger:
    """Running totals; `metrics()` is logged every step, `state_dict()` goes into every checkpoint."""

    flops: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    seconds: float = 0.0  # of steps
    train_6nt: float = 0.0
    prompt_tokens: int = 0
    response_tokens: int = 0
    optimizer_steps: int = 0
    turns: int = 0
    environment_steps: int = 0

    def add(self, phase: str, flops: float) -> None:
        """Add FLOPs to a phase, one of PHASES."""
        self.flops[phase] += flops

    def sampled(self, shape: Shape, rollouts: Sequence[Rollout], n: int) -> int:
        """Count rollouts, `n` of each task side by side: the FLOPs of sampling them, with a group's prompt once; turns;
        and tokens, each sequence with its own copy of the prompt, which are returned."""
        lengths = [(len(r.prompt_ids), len(r.response_ids)) for r in rollouts]
        # What an interruption was appended to is computed again.
        again = [len(r.prompt_ids) + int(r.forced.argmax()) for r in rollouts if r.forced is not None]
        self.add("rollout", shape.forward(Work.of([s for s, _ in lengths[::n]] + again, lengths)))
        prompts, responses = map(sum, zip(*lengths, strict=True))
        self.prompt_tokens += prompts
        self.response_tokens += responses
        self.train_6nt += 6.0 * shape.non_embedding * (prompts + responses)
        self.turns += sum(r.turns for r in rollouts)
        self.environment_steps += sum(len(r.turn_rewards or ()) for r in rollouts)
        return prompts + responses

    @property
    def total(self) -> float:
        return sum(self.flops.values())

    def metrics(self) -> dict[str, float]:
        """Cumulative values under the names that the run store holds."""
        named = {f"compute/{phase}_flops": value for phase, value in self.flops.items()}
        return named | {
            "compute/total_flops": self.total, "compute/train_6nt_flops": self.train_6nt,
            "compute/seconds": self.seconds, "tokens/prompt": self.prompt_tokens,
            "tokens/response": self.response_tokens, "training/optimizer_steps": self.optimizer_steps,
            "training/turns": self.turns, "training/environment_steps": self.environment_steps,
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.flops = dict.fromkeys(PHASES, 0.0) | self.flops
        if isinstance(self.seconds, dict):  # by phase, as checkpoints had them
            self.seconds = self.seconds.get("step", 0.0)
