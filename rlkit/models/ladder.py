"""The ladder: Qwen2-architecture models by nominal size, for studies on any machine.

The nominal size is the number of non-embedding parameters (within 11 %), the N of Kaplan et al.
(arXiv 2001.08361). Embeddings are tied. Head sizes are 32 or more because vLLM's attention kernels know no
smaller ones. The sizes themselves are in rlkit.models.rungs.
"""

from typing import Any

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rlkit.models.rungs import LADDER, Rung, rung
from rlkit.models.tokenizer import END, PAD, byte_tokenizer
from rlkit.seeds import derive

__all__ = ["LADDER", "Rung", "build_ladder_model", "ladder_config", "parameter_counts", "rung"]


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
