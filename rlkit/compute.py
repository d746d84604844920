"""The compute ledger: cumulative FLOPs by phase, tokens, optimizer steps and seconds of a run.

FLOPs are counted from shapes and token counts, a multiply-add as two (Kaplan et al., arXiv 2001.08361, with
attention as in Chowdhery et al., arXiv 2204.02311, appendix B): a forward pass costs 2 a matrix weight and
token, plus 4·layers·(heads·head size) a pair of query and visible key; a backward pass costs twice the
forward, or once where the base weights are frozen (LoRA), plus the adapter's own. Norms, activations, the
softmax and the embedding look-up are left out (under 2 % of a tiny model; checked against
torch.utils.flop_counter).

What is counted is what was computed: a prompt once for its group, no padding, no sequences that the update
skipped (the zeros of the block-diagonal product that holds the adapters of one input are left out as well).
`compute/train_6nt_flops` is the papers' convention beside it: 6·N·T with N non-embedding parameters
and T all tokens of all sequences, prompts included, skipped or not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlkit.config import RunConfig

PHASES = ("rollout", "old_log_prob", "ref", "critic", "update")


@dataclass(frozen=True)
class Work:
    """Token counts of a forward pass in which groups share their prompt.

    Attributes:
        tokens: tokens that go through the layers.
        pairs: pairs of a query and a key that it sees.
        heads: tokens whose logits are computed.
    """

    tokens: float = 0
    pairs: float = 0
    heads: float = 0

    @classmethod
    def of(cls, prompts: list[int], responses: list[tuple[int, int]]) -> Work:
        """Count a pass from prompt lengths (each distinct prompt once) and (prompt length, response length)
        of every sequence. The last response token is predicted but never an input."""
        tokens = pairs = heads = 0.0
        for s in prompts:
            tokens, pairs = tokens + s, pairs + s * (s + 1) / 2
        for s, t in responses:
            inputs = max(t - 1, 0)
            tokens, heads = tokens + inputs, heads + t
            pairs += inputs * s + inputs * (inputs + 1) / 2
        return cls(tokens, pairs, heads)


@dataclass(frozen=True)
class Shape:
    """What the FLOPs of a decoder depend on.

    Attributes:
        layer_weights: matrix weights of all layers (no embedding, no head).
        head_weights: hidden size × vocabulary.
        attention_width: layers × heads × head size.
        adapter_weights: matrix weights of LoRA adapters; 0 when all weights train.
        non_embedding: N of the papers.
    """

    layer_weights: int
    head_weights: int
    attention_width: int
    adapter_weights: int
    non_embedding: int

    @classmethod
    def of(cls, model: Any) -> Shape:
        """Count a loaded Hugging Face or peft model."""
        from rlkit.models.ladder import parameter_counts

        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        config = base.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        matrices = {n: p.numel() for n, p in base.model.layers.named_parameters() if p.dim() == 2}
        return cls(
            layer_weights=sum(k for n, k in matrices.items() if "lora_" not in n),
            head_weights=config.hidden_size * config.vocab_size,
            attention_width=config.num_hidden_layers * config.num_attention_heads * head_dim,
            adapter_weights=sum(k for n, k in matrices.items() if "lora_" in n),
            non_embedding=parameter_counts(model)["parameters_non_embedding"],
        )

    def forward(self, work: Work) -> float:
        """FLOPs of a forward pass."""
        weights = self.layer_weights + self.adapter_weights
        return (
            2 * weights * work.tokens
            + 4 * self.attention_width * work.pairs
            + 2 * self.head_weights * work.heads
        )

    def training(self, work: Work) -> float:
        """FLOPs of a forward and a backward pass. With an adapter, gradients flow through the frozen
        weights but none is formed for them."""
        if self.adapter_weights == 0:
            return 3 * self.forward(work)
        frozen = 2 * (self.layer_weights * work.tokens + self.head_weights * work.heads)
        attention = 4 * self.attention_width * work.pairs
        adapter = 2 * self.adapter_weights * work.tokens
        return 2 * frozen + 3 * (attention + adapter)


@dataclass
class Ledger:
    """Running totals; `metrics()` is logged every step, `state_dict()` goes into every checkpoint."""

    flops: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    seconds: dict[str, float] = field(default_factory=dict)
    train_6nt: float = 0.0
    prompt_tokens: int = 0
    response_tokens: int = 0
    optimizer_steps: int = 0
    turns: int = 0
    environment_steps: int = 0

    def add(self, phase: str, flops: float) -> None:
        """Add FLOPs to a phase, one of PHASES."""
        self.flops[phase] += flops

    def time(self, phase: str, seconds: float) -> None:
        """Add wall-clock seconds to a phase (any name)."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def sequences(self, shape: Shape, prompt_tokens: int, response_tokens: int) -> None:
        """Count the tokens of a step's sequences, each with its own copy of the prompt."""
        self.prompt_tokens += prompt_tokens
        self.response_tokens += response_tokens
        self.train_6nt += 6.0 * shape.non_embedding * (prompt_tokens + response_tokens)

    @property
    def total(self) -> float:
        """FLOPs of all phases."""
        return sum(self.flops.values())

    def metrics(self) -> dict[str, float]:
        """Cumulative values under the names that the run store holds."""
        named = {f"compute/{phase}_flops": value for phase, value in self.flops.items()}
        return named | {
            "compute/total_flops": self.total,
            "compute/train_6nt_flops": self.train_6nt,
            "compute/seconds": self.seconds.get("step", 0.0),
            "tokens/prompt": self.prompt_tokens,
            "tokens/response": self.response_tokens,
            "training/optimizer_steps": self.optimizer_steps,
            "training/turns": self.turns,
            "training/environment_steps": self.environment_steps,
        }

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


_START, _STEP = 15.0, 0.015  # seconds of a start, and of a step of the smallest models, measured on a CPU


def estimate(config: RunConfig) -> dict[str, float]:
    """FLOPs and seconds that a run will take here, from its config: every response at half its limit, a
    matrix product timed now on the threads of `trainer.num_threads`, a third of its speed reached, and what starting
    and each step take however small the model is. Good to a factor of two on a machine that does nothing else.

    Builds the model's shape only (no weights); for a hub id that is not cached, both numbers are NaN.
    """
    try:
        shape, s, t = _assumed(config)
    except OSError:
        return {"flops": float("nan"), "seconds": float("nan")}
    prompts, n, steps = config.data.train_batch_size, config.rollout.n, config.trainer.total_training_steps
    work = Work.of([s] * prompts, [(s, t)] * (prompts * n))
    train = (shape.forward(work) + shape.training(work)) * steps
    evaluations = 2 + steps // config.trainer.test_freq if config.trainer.test_freq else 2
    size, k = config.evaluation.size, config.evaluation.n
    held = Work.of([s] * size, [(s, t)] * (size * k))
    flops = train + evaluations * shape.forward(held)
    speed = matmul_speed(config.trainer.num_threads) / 3
    return {"flops": flops, "seconds": flops / speed + _STEP * steps + _START}


def estimate_warm_start(config: RunConfig) -> dict[str, float]:
    """FLOPs and seconds of a ladder run's warm start, which is made on the CPU, as `estimate` has those of its run; of
    a matched one, the most that it may take."""
    shape, s, t = _assumed(config)
    size, steps = config.model.warm_start.batch_size, config.model.warm_start.steps
    flops = steps * shape.training(Work.of([s] * size, [(s, t)] * size))
    speed = matmul_speed(config.trainer.num_threads, "cpu") / 3
    return {"flops": flops, "seconds": flops / speed + _STEP * steps}


def _assumed(config: RunConfig) -> tuple[Shape, int, int]:
    """The model's shape, and tokens of a prompt and of a response. Raises OSError for a hub id that is not cached."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from rlkit.models.ladder import LADDER, ladder_config

    path = config.model.path
    hf = ladder_config(path) if path in LADDER else AutoConfig.from_pretrained(path, local_files_only=True)
    with torch.device("meta"):
        shape = Shape.of(AutoModelForCausalLM.from_config(hf))
    s = min(config.data.max_prompt_length, 16 if path in LADDER else 256)
    return shape, s, config.data.max_response_length // 2 + 1


@lru_cache(8)
def matmul_speed(threads: int = 0, device: str = "") -> float:
    """FLOPs a second of a 512 × 512 float32 product (a tenth of a second).

    Args:
        threads: of a CPU; 0 is as many as torch uses.
        device: default: that which a run would use.
    """
    import time

    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    a = torch.randn(512, 512, device=device)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    torch.set_num_threads(before)
    return 2 * 512**3 / best
