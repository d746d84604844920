"""Small models and batches that several test files build on."""

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rlkit.config import Model, RunConfig
from rlkit.models.loading import Policy, add_lora
from rlkit.params import override, validate
from rlkit.results.store import Run, read_jsonl
from rlkit.types import Batch

LETTERS = f"{Path(__file__).parent / 'benchmarks' / 'gpu_systems.py'}:compute_score"
"""A reward that varies within groups of random text: the share of letters."""
VOCAB = 40
SHAPE = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True,
)  # fmt: skip
FAMILIES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}

RUN = {
    "study": "test",
    "model": {"path": "ladder-10k", "warm_start": {"kind": "fixed", "steps": 150, "batch_size": 64, "lr": 3e-3}},
    "data": {
        "train": [{"kind": "arithmetic", "digits": 1}, {"kind": "string_trace", "length": 3}],
        "train_batch_size": 8, "max_response_length": 6, "max_prompt_length": 40,
    },
    "rollout": {"n": 4},
    "reward": {"num_workers": 1},
    "trainer": {"total_training_steps": 6, "test_freq": 3, "save_freq": 2, "num_threads": 1},
    "evaluation": {"size": 20, "n": 2},
}  # fmt: skip


def configured(base: dict[str, Any], **dotted: Any) -> RunConfig:
    """The run of `base`, with other values of some keys (`actor__optim__lr=1e-3`)."""
    return validate(RunConfig, override(base, {k.replace("__", "."): v for k, v in dotted.items()}))


config = partial(configured, RUN)
"""A run of six steps of the smallest model, with other values of some keys."""


def metrics_of(run: Run) -> list[dict[str, Any]]:
    """The logged steps of a run."""
    return list(read_jsonl(run.folder / "metrics.jsonl"))


def model(family: str = "qwen2", seed: int = 0, **changes) -> Any:
    """A random model with weights large enough that logits differ from uniform."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(seed)
    return model_class(config_class(**{**SHAPE, "initializer_range": 0.2, **changes})).eval()


def adapted(dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """The random model with a LoRA adapter on all its layers, over a frozen base of `dtype`."""
    return add_lora(model(seed=seed).to(dtype), Model(lora_rank=4), seed).eval()


def prompts(count: int, seed: int = 0, low: int = 3, high: int = 10) -> list[np.ndarray]:
    """Prompts of unequal length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCAB, rng.integers(low, high)) for _ in range(count)]


def assert_same(groups: Any, others: Any) -> None:
    """Samples of the same ids and ends and, but for rounding, log-probs."""
    for a, b in zip(chain(*groups), chain(*others), strict=True):
        assert a.ids.tolist() == b.ids.tolist() and a.finish_reason == b.finish_reason
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=2e-5)


def batch(lengths: list[int], group_size: int = 2, seed: int = 0, prompt_length: int = 5) -> Batch:
    """Sequences of the given response lengths in groups, with random rewards, log-probs and values."""
    rng = torch.Generator().manual_seed(seed)
    count, width, groups = len(lengths), max(lengths), len(lengths) // group_size
    mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).float()
    rewards = torch.zeros(count, width)
    rewards[torch.arange(count), torch.tensor(lengths) - 1] = torch.rand(count, generator=rng)
    index = torch.arange(groups).repeat_interleave(group_size)
    return Batch(
        prompt_ids=torch.randint(1, VOCAB, (groups, prompt_length), generator=rng),
        prompt_mask=torch.ones(groups, prompt_length, dtype=torch.bool),
        prompt_index=index,
        response_ids=torch.randint(1, VOCAB, (count, width), generator=rng),
        mask=mask,
        attention=mask,
        rewards=rewards,
        sampler_logprobs=-torch.rand(count, width, generator=rng) * mask,
    )


def policy(model: Any) -> Any:
    """The model as a policy that nobody asks for text."""
    tokenizer: Any = None
    return Policy(model, tokenizer, (), 0)


def reference_logprobs(model, prompt, response, temperature: float = 1.0) -> torch.Tensor:
    """(T,) log-probs of a response by the model's own forward on the unpadded sequence."""
    ids = torch.as_tensor(np.concatenate([prompt, response]))[None]
    logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
