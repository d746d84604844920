"""Keys and values of running sequences: a group's prompt is kept once, and read once per step for the whole group."""

import torch
from torch import Tensor

from rlkit.models.attention import HIDDEN_SCORE, scatter, slots_of
from rlkit.models.decoder import Prefix


class Cache:
    """What A running sequences of prompts `index` (A,) of P attend to, which grow by up to `max_tokens`; K key heads of
    dimension D. Sequences have places among P × G slots, G the largest group, so that a step's queries of a group meet
    their prompt in one matrix product."""

    def __init__(self, prefix: Prefix, index: Tensor, max_tokens: int) -> None:
        pairs = zip(prefix.keys, prefix.values, strict=True)
        self.prompts = [(k.flatten(0, 1), v.flatten(0, 1)) for k, v in pairs]  # (P·K, S, D) a layer
        _, kv, _, d = prefix.keys[0].shape
        size = len(index), kv, max_tokens, d
        self.own = [(k.new_empty(size), k.new_empty(size)) for k in prefix.keys]  # (A, K, T, D) a layer
        self.bias = None  # (P, 1, S) hides what is behind a shorter prompt
        if not bool(prefix.mask.all()):
            self.bias = torch.where(prefix.mask, 0.0, HIDDEN_SCORE)[:, None]
        self.index, self.lengths = index, prefix.lengths[index]  # (A,) prompts and their lengths
        self._arrange()

    def _arrange(self) -> None:
        self.count = len(self.prompts[0][0]) // self.own[0][0].shape[1]  # P
        slots, self.group, in_order = slots_of(self.index, self.count)
        self.places = None if in_order else slots

    def _by_prompt(self, x: Tensor) -> Tensor:
        """Rows (A, K, g, X) of sequences as (P·K, G·g, X)."""
        _, kv, g, size = x.shape
        slots = scatter(x, self.places, self.count * self.group).view(self.count, self.group, kv, g, size)
        return slots.transpose(1, 2).reshape(self.count * kv, self.group * g, size)

    def _by_sequence(self, x: Tensor, kv: int) -> Tensor:
        """The inverse of `_by_prompt`."""
        g, size = x.shape[1] // self.group, x.shape[2]
        rows = x.view(self.count, kv, self.group, g, size).transpose(1, 2).reshape(-1, kv, g, size)
        return rows if self.places is None else rows.index_select(0, self.places)

    def attend(self, layer: int, qkv: Tensor, t: int) -> Tensor:
        """Keep the keys and values of response token t in qkv (A, H + 2K, D); the outputs (A, H, D) of its queries."""
        (keys, values), (prompt_keys, prompt_values) = self.own[layer], self.prompts[layer]
        (a, kv, _, d), s = keys.shape, prompt_keys.shape[1]
        heads = qkv.shape[1] - 2 * kv
        q, keys[:, :, t], values[:, :, t] = qkv.split((heads, kv, kv), 1)
        q = (q * d**-0.5).view(a, kv, heads // kv, d)
        on_prompt = self._by_prompt(q) @ prompt_keys.transpose(1, 2)  # (P·K, G·g, S)
        if self.bias is not None:
            on_prompt.view(self.count, -1, s).add_(self.bias)
        scores = torch.cat((self._by_sequence(on_prompt, kv), q @ keys[:, :, : t + 1].transpose(2, 3)), -1)
        weights = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
        of_prompt = self._by_sequence(self._by_prompt(weights[..., :s]) @ prompt_values, kv)
        return (of_prompt + weights[..., s:] @ values[:, :, : t + 1]).reshape(a, heads, d)

    def select(self, keep: Tensor, t: int) -> None:
        """Only the sequences `keep` go on, each with t tokens of its own; prompts that nobody has left are dropped."""
        used, self.index = self.index[keep].unique(return_inverse=True)
        self.lengths = self.lengths[keep]
        for i, layer in enumerate(self.own):
            keys, values = (x.new_empty(len(keep), *x.shape[1:]) for x in layer)
            keys[:, :, :t], values[:, :, :t] = (x[keep, :, :t] for x in layer)
            self.own[i] = keys, values
        if len(used) < self.count:
            kv = self.own[0][0].shape[1]
            rows = (used[:, None] * kv + torch.arange(kv, device=used.device)).flatten()
            self.prompts = [(k[rows], v[rows]) for k, v in self.prompts]
            self.bias = None if self.bias is None else self.bias[used]
        self._arrange()
