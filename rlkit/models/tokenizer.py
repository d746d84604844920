"""The ladder's tokenizer: 256 bytes, three ChatML specials and the three role names.

Byte-level and without merges, so that every text has exactly one encoding and a newline is one token. The role names
are single tokens because they are in every prompt: the ChatML frame of a one-turn prompt costs 8 tokens instead of 26.
"""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant")

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
        tokenizer_object=core, pad_token=PAD, eos_token=END, model_max_length=4096,
        clean_up_tokenization_spaces=False, chat_template=CHATML,
    )  # fmt: skip
