"""Chats as token ids that are only ever appended to."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rlkit.errors import UserError
from rlkit.models.prompts import MarkedChat, encode_chats
from rlkit.types import Message

MARK = "rlkit"  # stands for the assistant's words when the template is asked what follows them


class ChatTokens:
    """The ids of prompts, and of what a chat template puts between two assistant turns.

    Sampled ids are never decoded and encoded again: a turn is appended as the template's own text from the
    end of the assistant's words to the start of the next answer. So training ids are the sampled ones even
    where the policy's text has several encodings.

    Args:
        policy: has `tokenizer` and `stop_ids` (rlkit.models.load_policy).
    """

    def __init__(self, policy) -> None:
        self.tokenizer, self.stop_ids = policy.tokenizer, frozenset(policy.stop_ids)
        self._follow = lru_cache(8192)(self._encode_follow)

    def prompt(self, messages: Sequence[Message]) -> np.ndarray:
        """(S,) int64: the chat so far, ready for an answer."""
        return np.asarray(encode_chats(self.tokenizer, [messages])[0], np.int64)

    def follow(self, observation: str, after: int) -> np.ndarray:
        """(n,) int64: what comes between the last sampled token `after` and the next answer.

        It begins with the template's end of turn, unless the policy ended its turn itself.
        """
        ids = self._follow(observation)
        return ids[1:] if after in self.stop_ids else ids

    def _encode_follow(self, observation: str) -> np.ndarray:
        chat = [
            {"role": "user", "content": MARK},
            {"role": "assistant", "content": MARK},
            {"role": "user", "content": observation},
        ]
        marked = MarkedChat(self.tokenizer, chat)
        text = self.tokenizer.apply_chat_template(marked.messages, add_generation_prompt=True, tokenize=False)
        ids = np.asarray(marked.encode(text.split(MARK, 2)[2]), np.int64)
        if int(ids[0]) not in self.stop_ids:
            raise UserError(
                "The chat template ends an assistant's turn with none of the model's stop tokens, so turns "
                "cannot be appended: set the tokenizer's eos_token to the template's end of turn."
            )
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """The words of sampled ids, without special tokens."""
        # Otherwise transformers warns of tokenizers whose configuration asks for a cleaning that it does not do.
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
