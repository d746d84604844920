"""Sequences while they are decoded, and the keys and values that they attend to: in buffers of fixed size, to which a
CUDA graph can be bound, or in a cache that sequences leave when they stop."""

from functools import partial

import torch
from torch import Tensor

from rlkit.models.attention import HIDDEN_SCORE, scatter, slots_of
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.shapes import row_bucket
from rlkit.samplers.decode_attention import fastest_attention
from rlkit.samplers.drawing import Settings, draw

COMPACT_BELOW = 0.75  # re-pack the batch when fewer than this share still run; re-packing copies the cache


class Sequences:
    """What `count` sequences draw, in `rows` that compute them, and one sequence more that is nobody's: what idle rows
    draw goes to it. `stops` (n,) are the ids that end a sequence."""

    def __init__(self, decoder: Decoder, stops: Tensor, count: int, max_tokens: int) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=decoder.device)

        self.decoder, self.stops, self.nobody = decoder, stops, count
        self.prompt = zeros(count + 1)  # of each sequence
        self.hidden = zeros(count, decoder.head_weight.shape[1], dtype=decoder.dtype)  # before the next token
        self.owner = zeros(count)  # which sequence a row computes
        self.running = zeros(count, dtype=torch.bool)
        self.step = zeros(1)  # how many tokens have been drawn
        self.uniform = zeros(count + 1, max_tokens, dtype=torch.float32)  # by sequence
        self.tokens = zeros(count + 1, max_tokens)
        self.logprobs = zeros(count + 1, max_tokens, dtype=torch.float32)
        self.lengths = zeros(count + 1)

    def begin(self, prefix: Prefix, index: Tensor, uniform: Tensor) -> None:
        """Each sequence of prompts `index` (B,) on the row of its number, rows beyond them idle; `uniform` (B, T) are
        random numbers, one per token."""
        b, max_tokens = uniform.shape
        self.prompt[:b] = index
        self.hidden[:b] = prefix.last[index]
        self.owner.fill_(self.nobody)
        self.owner[:b] = torch.arange(b, device=index.device)
        self.running[:b], self.running[b:] = True, False
        self.step.zero_()
        self.uniform[:b, :max_tokens] = uniform
        self.lengths[:b] = max_tokens

    def draw(self, rows: int, settings: Settings) -> Tensor:
        """(rows,) a token for each of the first rows from its state, written where it belongs. No wait, no new
        shape."""
        owner, running, at = self.owner[:rows], self.running[:rows], self.step.expand(rows)
        token, logprob = draw(self.decoder.head(self.hidden[:rows]), self.uniform[owner, at], settings)
        to = torch.where(running, owner, self.nobody)
        self.tokens[to, at], self.logprobs[to, at] = token, logprob
        stopped = running & (token[:, None] == self.stops).any(-1)
        self.lengths.scatter_(0, torch.where(stopped, owner, self.nobody), at + 1)
        running &= ~stopped
        return token


class FixedCache(Sequences):
    """For P prompts of S tokens and R sequences of T more, one call after another. A row finds its keys by its
    `owner`, so that they stay where they are."""

    def __init__(self, decoder: Decoder, stops: Tensor, size: tuple[int, int, int, int]) -> None:
        self.size, (prompts, width, count, max_tokens) = size, size
        super().__init__(decoder, stops, count, max_tokens)
        device, self.attention = decoder.device, fastest_attention(decoder.device)

        def cache(sequences: int, places: int) -> list[Tensor]:
            """Each layer's keys and values (2, sequences, K, places, D)."""
            shape = 2, sequences, decoder.kv_heads, places, decoder.head_dim
            return [torch.zeros(shape, dtype=decoder.dtype, device=device) for _ in range(decoder.layers)]

        self.prompts, self.own = cache(prompts, width), cache(count + 1, max_tokens)
        self.prompt_lengths = torch.ones(prompts, dtype=torch.long, device=device)
        self.turns = decoder.turns(torch.arange(width + max_tokens, device=device))  # by position

    def begin(self, prefix: Prefix, index: Tensor, uniform: Tensor) -> None:
        """See `Sequences`."""
        super().begin(prefix, index, uniform)
        for mine, computed in zip(self.prompts, prefix.layers, strict=True):
            mine[:, : computed.shape[1], :, : computed.shape[3]] = computed
        self.prompt_lengths[: len(prefix.lengths)] = prefix.lengths

    def advance(self, rows: int, settings: Settings) -> None:
        """Draw a token for each row, and compute the state after it."""
        token, owner = self.draw(rows, settings), self.owner[:rows]
        places = self.prompt_lengths[self.prompt[owner]] + self.step.expand(rows)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            caches = self.prompts[layer], self.own[layer]
            return self.attention(qkv, *caches, owner, self.prompt, self.prompt_lengths, self.step)

        self.hidden[:rows] = self.decoder.run(token, self.turns[places], attend)
        self.step += 1

    def compact(self, rows: int, left: int) -> int:
        """Give the first rows to the `left` sequences that still run, where fewer are then computed; how many rows
        are."""
        if row_bucket(left) < rows:
            keep = self.running.nonzero()[:, 0]
            for values in (self.hidden, self.owner):
                values[:left] = values[keep]
            self.owner[left:] = self.nobody
            self.running[:left], self.running[left:] = True, False
        return row_bucket(left)


class GrowingCache(Sequences):
    """For the B sequences of one call. A group's prompt is kept once, and read once per step for the whole group:
    sequences have places among P × G slots, G the largest group, so that a step's queries of a group meet their prompt
    in one matrix product."""

    def __init__(
        self, decoder: Decoder, stops: Tensor, prefix: Prefix, index: Tensor, uniform: Tensor
    ) -> None:
        super().__init__(decoder, stops, *uniform.shape)
        self.begin(prefix, index, uniform)
        self.prompts = [layer.flatten(1, 2) for layer in prefix.layers]  # (2, P·K, S, D) each
        _, _, self.kv, s, d = prefix.layers[0].shape
        self.own = [x.new_empty(2, len(index), self.kv, uniform.shape[1], d) for x in prefix.layers]
        there = torch.arange(s, device=index.device) < prefix.lengths[:, None]
        self.bias = None  # (P, 1, S) hides what is behind a shorter prompt
        if not bool(there.all()):
            self.bias = torch.where(there, 0.0, HIDDEN_SCORE)[:, None]
        self.index, self.places, self.token = index, prefix.lengths[index], None  # (A,) of the rows
        self._arrange()

    def _arrange(self) -> None:
        self.count = self.prompts[0].shape[1] // self.kv  # P
        slots, self.group, in_order = slots_of(self.index, self.count)
        self.slots = None if in_order else slots

    def _by_prompt(self, x: Tensor) -> Tensor:
        """Rows (A, K, g, X) of sequences as (P·K, G·g, X)."""
        _, kv, g, size = x.shape
        slots = scatter(x, self.slots, self.count * self.group).view(self.count, self.group, kv, g, size)
        return slots.transpose(1, 2).reshape(self.count * kv, self.group * g, size)

    def _by_sequence(self, x: Tensor) -> Tensor:
        """The inverse of `_by_prompt`."""
        g, size = x.shape[1] // self.group, x.shape[2]
        rows = x.view(self.count, self.kv, self.group, g, size).transpose(1, 2).reshape(-1, self.kv, g, size)
        return rows if self.slots is None else rows.index_select(0, self.slots)

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
        scores = torch.cat((self._by_sequence(on_prompt), q @ keys[:, :, : t + 1].transpose(2, 3)), -1)
        weights = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
        of_prompt = self._by_sequence(self._by_prompt(weights[..., :s]) @ prompt_values)
        return (of_prompt + weights[..., s:] @ values[:, :, : t + 1]).reshape(a, heads, d)

    def advance(self, rows: int, settings: Settings) -> None:
        """Compute the state after the last token of each row, and draw the next."""
        if self.token is not None:
            turns, attend = self.decoder.turns(self.places), partial(self.attend, t=int(self.step) - 1)
            self.hidden = self.decoder.run(self.token, turns, attend)
            self.places = self.places + 1
        self.token = self.draw(rows, settings)
        self.step += 1

    def compact(self, rows: int, left: int) -> int:
        """Drop the rows that have stopped and the prompts that nobody has left, where many have; how many rows are
        left."""
        if left >= COMPACT_BELOW * rows:
            return rows
        keep, t = self.running.nonzero()[:, 0], int(self.step) - 1  # the last token is not in the cache
        self.owner, self.running, self.places = self.owner[keep], self.running[keep], self.places[keep]
        self.token = None if self.token is None else self.token[keep]
        used, self.index = self.index[keep].unique(return_inverse=True)
        for i, layer in enumerate(self.own):
            self.own[i] = layer.new_empty(2, left, *layer.shape[2:])
            self.own[i][..., :t, :] = layer[:, keep, :, :t]
        if len(used) < self.count:
            rows_of = (used[:, None] * self.kv + torch.arange(self.kv, device=used.device)).flatten()
            self.prompts = [layer[:, rows_of] for layer in self.prompts]
            self.bias = None if self.bias is None else self.bias[used]
        self._arrange()
        return left
