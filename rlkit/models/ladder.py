"""The ladder: Qwen2-architecture models by nominal size, for studies on any machine.

The nominal size is the number of non-embedding parameters (within 11 %), the N of Kaplan et al.
(arXiv 2001.08361). Embeddings are tied. Head sizes are 32 or more because vLLM's attention kernels know no
smaller ones.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rlkit.errors import UserError, did_you_mean
from rlkit.models.tokenizer import END, PAD, byte_tokenizer
from rlkit.seeds import derive


@dataclass(frozen=True)
class Rung:
    """Layers, hidden size, MLP size and heads of one size."""

    layers: int
    hidden: int
    intermediate: int
    heads: int


LADDER = {
    "ladder-10k": Rung(1, 32, 64, 1),
    "ladder-30k": Rung(2, 32, 128, 1),
    "ladder-60k": Rung(3, 32, 160, 1),
    "ladder-100k": Rung(2, 64, 192, 2),
    "ladder-200k": Rung(3, 64, 256, 2),
    "ladder-300k": Rung(3, 96, 240, 3),
    "ladder-600k": Rung(4, 96, 384, 3),
    "ladder-1m": Rung(4, 128, 480, 4),
    "ladder-3m": Rung(5, 192, 768, 6),
    "ladder-10m": Rung(8, 320, 864, 10),
    "ladder-30m": Rung(10, 512, 1280, 8),
    "ladder-100m": Rung(14, 768, 2048, 12),
    "ladder-300m": Rung(24, 1024, 2688, 16),
}


def rung(name: str) -> Rung:
    """The shape of a size; an unknown one is a UserError that lists the sizes."""
    if name not in LADDER:
        raise UserError(
            f"model.path is {name!r}: no such ladder size.{did_you_mean(name, LADDER)} Sizes: {', '.join(LADDER)}."
        )
    return LADDER[name]


def ladder_config(name: str, max_position_embeddings: int = 4096) -> Qwen2Config:
    """The Hugging Face config of a size."""
    shape, tokenizer = rung(name), byte_tokenizer()
    pad = tokenizer.convert_tokens_to_ids(PAD)
    assert isinstance(pad, int)
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=max_position_embeddings,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=pad,
        bos_token_id=None,
        use_cache=True,
    )


def build_ladder_model(name: str, seed: int) -> PreTrainedModel:
    """A randomly initialised model of this size, float32; the same bits for the same seed.

    Initial weights have standard deviation 0.02·sqrt(768/hidden), since 0.02 alone leaves models this
    narrow with almost no signal, and output projections are scaled by 1/sqrt(2·layers) (GPT-2).
    """
    config = ladder_config(name)
    config.initializer_range = 0.02 * (768 / config.hidden_size) ** 0.5
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive("ladder", name, seed))
        model = Qwen2ForCausalLM(config)
        scale = (2 * config.num_hidden_layers) ** -0.5
        with torch.no_grad():
            layers: Any = model.model.layers
            for layer in layers:
                layer.self_attn.o_proj.weight.mul_(scale)
                layer.mlp.down_proj.weight.mul_(scale)
    return model.float()


def parameter_counts(model: Any) -> dict[str, int]:
    """Total, non-embedding (N) and trainable parameters, counted on the loaded weights; tied weights once.

    Embeddings are the input table and an untied output head; biases and norms count as non-embedding.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    embedding = {id(base.get_input_embeddings().weight)}
    if base.get_output_embeddings() is not None:
        embedding.add(id(base.get_output_embeddings().weight))
    own = {id(p): p for n, p in model.named_parameters() if "lora_" not in n}
    return {
        "parameters_total": sum(p.numel() for p in own.values()),
        "parameters_non_embedding": sum(p.numel() for key, p in own.items() if key not in embedding),
        "parameters_trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }
