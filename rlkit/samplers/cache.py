"""Sequences while they are decoded, and the keys and values that they attend to: in buffers of fixed size, to which a
CUDA graph can be bound, or in a cache that sequences leave when they stop.

Captured, the hundred kernels of a small model's step are one launch. Weights are refreshed in place, and rows come in
a few sizes. Without CUDA the cache grows; the fixed one works there too, which is how it is tested.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.attention import HIDDEN_SCORE, scatter, slots_of
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.kernels import missing_compiler
from rlkit.models.logprobs import logits_of
from rlkit.models.shapes import row_bucket
from rlkit.samplers.draw_tokens import Settings, draw

COMPACT_BELOW = 0.75  # re-pack the batch when fewer than this share still run; re-packing copies the cache


class Sequences:
    """What `count` sequences draw, computed by the first `rows` rows, and one sequence more that is nobody's: what idle
    rows draw goes to it. `stops` (n,) are the ids that end a sequence."""

    every = 1  # steps between looks at which sequences still run, each read half as many steps later

    def __init__(self, decoder: Decoder, stops: Tensor, count: int, max_tokens: int) -> None:
        self.decoder, self.stops, self.nobody, self.rows = decoder, stops, count, count
        self.hidden = self._zeros(count, decoder.head_weight.shape[1], dtype=decoder.dtype)  # of a row
        self.owner = self._zeros(count)  # which sequence a row computes
        self.running = self._zeros(count, dtype=torch.bool)
        self.step = self._zeros(1)  # how many tokens have been drawn
        self.uniform = self._zeros(count + 1, max_tokens, dtype=torch.float32)  # by sequence
        self.tokens = self._zeros(count + 1, max_tokens)
        self.logprobs = self._zeros(count + 1, max_tokens, dtype=torch.float32)
        self.lengths = self._zeros(count + 1)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.decoder.device)

    def begin(self, prefix: Prefix, index: Tensor, uniform: Tensor) -> None:
        """Each sequence of prompts `index` (B,) on its row, other rows idle; `uniform` (B, T) are random numbers."""
        b, max_tokens = uniform.shape
        self.hidden[:b] = prefix.last[index]
        self.owner.fill_(self.nobody)
        self.owner[:b] = torch.arange(b, device=index.device)
        self.running[:b], self.running[b:] = True, False
        self.step.zero_()
        self.uniform[:b, :max_tokens] = uniform
        self.lengths[:b] = max_tokens

    def draw(self, settings: Settings) -> Tensor:
        """(rows,) a token for each row from its state, written where it belongs. No wait, no new shape."""
        r = self.rows
        owner, running, at = self.owner[:r], self.running[:r], self.step.expand(r)
        logits = logits_of(self.hidden[:r], self.decoder.head_weight)
        token, logprob = draw(logits, self.uniform[owner, at], settings)
        to = torch.where(running, owner, self.nobody)
        self.tokens[to, at], self.logprobs[to, at] = token, logprob
        stopped = running & (token[:, None] == self.stops).any(-1)
        self.lengths.scatter_(0, torch.where(stopped, owner, self.nobody), at + 1)
        running &= ~stopped
        return token


class Reading:
    """Copies of `values` as they are now, on their way to the host; a GPU goes on with what it is told next."""

    def __init__(self, *values: Tensor) -> None:
        on_gpu = values[0].is_cuda
        self._copies = [torch.empty(v.shape, dtype=v.dtype, pin_memory=on_gpu) for v in values]
        for copy, value in zip(self._copies, values, strict=True):
            copy.copy_(value, non_blocking=True)
        self._event = torch.cuda.Event() if on_gpu else None
        if self._event is not None:
            self._event.record()

    @property
    def there(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> list[np.ndarray]:
        """The copies, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        return [copy.numpy() for copy in self._copies]


def fastest_attention(device: torch.device) -> Callable[..., Tensor]:
    """`decode_attention`, or the kernel that computes the same where there is a GPU and what compiles for it."""
    if device.type != "cuda":
        return decode_attention
    if (missing := missing_compiler()) is not None:
        warnings.warn(f"Decoding is slower and takes more memory here, which lacks {missing}.", stacklevel=2)
        return decode_attention
    from rlkit.samplers.decode_kernel import attend

    return attend


def decode_attention(
    qkv: Tensor, prompts: Tensor, own: Tensor, owner: Tensor, prompt: Tensor, lengths: Tensor, step: Tensor
) -> Tensor:
    """Outputs (R, H, D) of rotated qkv (R, H + 2K, D), whose keys and values are written to the cache first.

    No step of it waits for the device, and its shapes are those of the caches: it can be captured in a CUDA graph.
    `decode_kernel.attend` computes the same, and reads only what is there.

    Args:
        prompts: keys and values (2, P, K, S, D) of the prompts.
        own: those (2, B, K, T, D) of the sequences' drawn tokens.
        owner: (R,) the sequence that each row computes.
        prompt: (B,) the prompt of each sequence.
        lengths: (P,) tokens of each prompt.
        step: (1,) how many tokens of each sequence are in the cache.
    """
    kv, s, t = prompts.shape[2], prompts.shape[3], own.shape[3]
    heads, at, of = qkv.shape[1] - 2 * kv, step.expand(len(qkv)), prompt[owner]
    own[:, owner, :, at] = qkv[:, heads:].unflatten(1, (2, kv))
    keys, values = torch.cat((prompts[:, of], own[:, owner]), 3)  # (R, K, S + T, D) each
    places = torch.arange(max(s, t), device=qkv.device)
    seen = torch.cat((places[:s] < lengths[of, None], places[:t] <= at[:, None]), 1)  # (R, S + T)
    # query heads that share a key head are queries of one attention
    q = qkv[:, :heads].unflatten(1, (kv, -1))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None, None]).flatten(1, 2)


class Replayed:
    """Work on tensors that stay where they are. On a GPU it is done as it is the first time, captured as a CUDA graph
    the second, and replayed from then on, into the tensors that the capture returned."""

    def __init__(self, work: Callable[[], Any], device: torch.device, pool: Any = None) -> None:
        self.work, self.capture, self.pool = work, device.type == "cuda", pool
        self.calls, self.graph, self.result = 0, None, None

    def __call__(self) -> Any:
        self.calls += 1
        if not self.capture or self.calls == 1:
            return self.work()
        if self.graph is None:
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self.pool):
                    self.result = self.work()
            except RuntimeError as error:  # such as another process that took the memory meanwhile
                warnings.warn(f"Decoding goes on without a CUDA graph, slower: {error}", stacklevel=2)
                self.capture = False
                return self.work()
            self.graph = graph
        self.graph.replay()
        return self.result


class FixedCache(Sequences):
    """For P prompts of S tokens and R sequences of T more (`size`), call after call. A row finds its keys by its
    `owner`, so that they stay where they are. Each step is `Replayed`."""

    every = 8

    def __init__(self, decoder: Decoder, stops: Tensor, size: tuple[int, int, int, int]) -> None:
        self.size, (prompts, width, count, max_tokens) = size, size
        super().__init__(decoder, stops, count, max_tokens)
        self.attention, layers = fastest_attention(decoder.device), range(decoder.layers)
        kv, d, dtype = decoder.kv_heads, decoder.head_dim, decoder.dtype
        self.prompts = [self._zeros(2, prompts, kv, width, d, dtype=dtype) for _ in layers]
        self.own = [self._zeros(2, count + 1, kv, max_tokens, d, dtype=dtype) for _ in layers]
        self.prompt, self.prompt_lengths = self._zeros(count + 1), self._zeros(prompts) + 1
        self.turns = decoder.turns(torch.arange(width + max_tokens, device=decoder.device))  # by position
        # Memory that all graphs share.
        self.pool = torch.cuda.graph_pool_handle() if decoder.device.type == "cuda" else None
        self.steps = dict[tuple[int, Settings], Replayed]()  # by rows

    def begin(self, prefix: Prefix, index: Tensor, uniform: Tensor) -> None:
        super().begin(prefix, index, uniform)
        self.prompt[: len(index)] = index
        self.prompt_lengths[: len(prefix.lengths)] = prefix.lengths
        for mine, computed in zip(self.prompts, prefix.layers, strict=True):
            mine[:, : computed.shape[1], :, : computed.shape[3]] = computed
        self.rows = row_bucket(len(index))

    def advance(self, settings: Settings) -> None:
        """Draw a token for each row, and compute the state after it."""
        if (key := (self.rows, settings)) not in self.steps:
            self.steps[key] = Replayed(partial(self._advance, settings), self.decoder.device, self.pool)
        self.steps[key]()

    def _advance(self, settings: Settings) -> None:
        token, owner = self.draw(settings), self.owner[: self.rows]
        places = self.prompt_lengths[self.prompt[owner]] + self.step.expand(self.rows)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            caches = self.prompts[layer], self.own[layer]
            return self.attention(qkv, *caches, owner, self.prompt, self.prompt_lengths, self.step)

        self.hidden[: self.rows] = self.decoder.run(token, self.turns[places], attend)
        self.step += 1

    def compact(self, left: int) -> None:
        """Give the first rows to the sequences that still run, at most `left`, where fewer are then computed. No wait:
        some have stopped since they were counted."""
        if row_bucket(left) < self.rows:
            keep = self.running.argsort(descending=True, stable=True)[:left]
            for values in (self.hidden, self.owner, self.running):
                values[:left] = values[keep]
            self.owner[left:], self.running[left:] = self.nobody, False
            self.rows = row_bucket(left)


class GrowingCache(Sequences):
    """For the B sequences of one call, which have places among P × G slots, G the largest group: a step's queries of a
    group meet their prompt, which is kept once, in one matrix product."""

    token: Tensor  # (A,) the last of each row

    def begin(self, prefix: Prefix, index: Tensor, uniform: Tensor) -> None:
        super().begin(prefix, index, uniform)
        self.prompts = [layer.flatten(1, 2) for layer in prefix.layers]  # (2, P·K, S, D) each
        _, _, self.kv, s, d = prefix.layers[0].shape
        self.own = [x.new_empty(2, len(index), self.kv, uniform.shape[1], d) for x in prefix.layers]
        there = torch.arange(s, device=index.device) < prefix.lengths[:, None]
        self.bias = None  # (P, 1, S) hides what is behind a shorter prompt
        if not bool(there.all()):
            self.bias = torch.where(there, 0.0, HIDDEN_SCORE)[:, None]
        self.index, self.prompt_lengths = index, prefix.lengths[index]  # (A,) of the rows
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

    def advance(self, settings: Settings) -> None:
        """Compute the state after the last token of each row, and draw the next."""
        if t := int(self.step):
            turns = self.decoder.turns(self.prompt_lengths + (t - 1))
            self.hidden = self.decoder.run(self.token, turns, partial(self.attend, t=t - 1))
        self.token = self.draw(settings)
        self.step += 1

    def compact(self, left: int) -> None:
        """Drop the rows that have stopped, and the prompts that nobody has left, where many have."""
        if left >= COMPACT_BELOW * self.rows:
            return
        # The last token is not kept yet.
        keep, t, self.rows = (self.running.nonzero()[:, 0], int(self.step) - 1, left)
        self.owner, self.running, self.token = self.owner[keep], self.running[keep], self.token[keep]
        self.prompt_lengths = self.prompt_lengths[keep]
        used, self.index = self.index[keep].unique(return_inverse=True)
        for i, layer in enumerate(self.own):
            self.own[i] = layer.new_empty(2, left, *layer.shape[2:])
            self.own[i][..., :t, :] = layer[:, keep, :, :t]
        if len(used) < self.count:
            of_used = (used[:, None] * self.kv + torch.arange(self.kv, device=used.device)).flatten()
            self.prompts = [layer[:, of_used] for layer in self.prompts]
            self.bias = None if self.bias is None else self.bias[used]
        self._arrange()
