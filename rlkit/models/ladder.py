"""The ladder: Qwen2-architecture models by nominal size, for studies on any machine, and their tokenizer.

The nominal size is the number of non-embedding parameters (within 11 %), the N of Kaplan et al. (arXiv 2001.08361).
Embeddings are tied. Head sizes are 32 or more, as vLLM's attention kernels need. ladder.json has the sizes.
The tokenizer has 256 bytes and no merges, so that every text has one encoding and a newline is one token, three ChatML
specials, and the role names, by which the frame of a one-turn prompt costs 8 tokens instead of 26.
"""

from typing import Any, cast

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rlkit.compute import Shape
from rlkit.models.shapes import ROLES, WINDOW, shape_of
from rlkit.seeds import derive

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, with `len(tokenizer) == 262`, eos `<|im_end|>` and pad `<|endoftext|>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in (PAD, START, END)])
    core.add_tokens([AddedToken(t, normalized=False, special=False) for t in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, eos_token=END, model_max_length=WINDOW,
        clean_up_tokenization_spaces=False, chat_template=CHATML,
    )  # fmt: skip


def ladder_config(name: str) -> Qwen2Config:
    """The Hugging Face config of a size. Raises UserError, which lists the sizes, for an unknown one."""
    shape, tokenizer = shape_of(name), cast(Any, byte_tokenizer())
    return Qwen2Config(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.heads,
        max_position_embeddings=WINDOW, tie_word_embeddings=True, use_cache=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip


def build_ladder_model(name: str, seed: int) -> PreTrainedModel:
    """A randomly initialised model of this size, float32; the same bits for the same seed.

    Initial weights have standard deviation 0.02·sqrt(768/hidden), since 0.02 alone leaves models this narrow with
    almost no signal, and output projections are scaled by 1/sqrt(2·layers) (GPT-2).
    """
    config = ladder_config(name)
    config.initializer_range = 0.02 * (768 / config.hidden_size) ** 0.5
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive("ladder", name, seed))
        model = Qwen2ForCausalLM(config)
        scale = (2 * config.num_hidden_layers) ** -0.5
        layers: Any = model.model.layers
        for layer in layers:
            layer.self_attn.o_proj.weight.data.mul_(scale)
            layer.mlp.down_proj.weight.data.mul_(scale)
    return model.float()


def parameter_counts(model: Any) -> dict[str, int]:
    """Total, non-embedding (N, with biases and norms) and trainable parameters of a loaded model; tied ones once."""
    shape = Shape.of(model)
    return {
        "parameters_total": shape.parameters,
        "parameters_non_embedding": shape.non_embedding,
        "parameters_trainable": shape.adapter_weights or shape.parameters,
    }
