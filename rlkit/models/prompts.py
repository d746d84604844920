"""Chats as token ids by a tokenizer's own template. Text of a row never becomes a control token."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from rlkit.errors import UserError
from rlkit.models.shapes import ROLES
from rlkit.types import Message


def control_tokens(tokenizer: Any) -> list[str]:
    """The texts that the tokenizer turns into control tokens, such as <|im_end|>, the longest first."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted({*added, *tokenizer.all_special_tokens} - {""}, key=lambda text: (-len(text), text))


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of plain text, in which a control token's name is text too."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def encode_chats(tokenizer: Any, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
    """Token ids of each chat up to where the assistant's turn begins, by the chat template. A control token's name in
    a message is encoded as text. Raises UserError where the template refuses a chat."""
    names = control_tokens(tokenizer)
    marked = [MarkedChat(tokenizer, chat, names) for chat in chats]
    options = {"add_generation_prompt": True, "tokenize": False}
    try:
        texts = tokenizer.apply_chat_template([m.messages for m in marked], **options) if marked else []
    except TemplateError as error:
        raise UserError(f"The model's chat template refuses a prompt: {str(error).rstrip('.')}.") from None
    pairs = list(zip(marked, texts, strict=True))
    plain = [text for chat, text in pairs if not chat.names]  # one call for all of them
    encoded = iter(tokenizer(plain, add_special_tokens=False).input_ids if plain else ())
    return [chat.encode(text) if chat.names else next(encoded) for chat, text in pairs]


def ladder_length(chat: Sequence[Message]) -> int:
    """Tokens of a chat by the ladder's tokenizer and template, without transformers, which take seconds to load."""
    texts = [text for message in chat for text in (message["role"], message["content"])]
    named = sum(text.count(role) * (len(role) - 1) for text in texts for role in ROLES)
    return sum(len(text.encode()) for text in texts) - named + 4 * len(chat) + 3


class MarkedChat:
    """A chat's `messages` for a template, with marks in place of the `names` of `control` tokens."""

    def __init__(self, tokenizer: Any, chat: Sequence[Message], control: Sequence[str]) -> None:
        self.tokenizer, self.names = tokenizer, list[str]()
        pattern = "|".join(map(re.escape, control)) or "(?!)"  # re keeps what it compiled
        texts = "".join(text for message in chat for text in message.values())
        # A private-use character, which no tokenizer's control token has.
        self.mark = next(char for char in map(chr, range(0xE000, 0xF900)) if char not in texts)
        self.messages = [{k: re.sub(pattern, self._named, text) for k, text in m.items()} for m in chat]

    def _named(self, match: re.Match[str]) -> str:
        self.names.append(match.group())
        return f"{self.mark}{len(self.names) - 1}{self.mark}"

    def encode(self, text: str) -> list[int]:
        """Token ids of what a template made of `messages`, or of a part of it."""
        ids: list[int] = []
        for k, piece in enumerate(text.split(self.mark) if self.names else [text]):
            if k % 2:
                ids += encode_text(self.tokenizer, self.names[int(piece)])
            else:
                ids += self.tokenizer.encode(piece, add_special_tokens=False)
        return ids


def set_template_defaults(tokenizer: Any, values: Mapping[str, Any]) -> None:
    """Give variables of the chat template values, which a saved model keeps in its template."""
    lines = "".join(  # Jinja's literals of JSON values are Python's
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}"
        for name, value in sorted(values.items())
    )

    def extended(template: Any) -> Any:
        if isinstance(template, dict):
            return {name: extended(text) for name, text in template.items()}
        return template if template.startswith(lines) else lines + template

    tokenizer.chat_template = extended(tokenizer.chat_template)
