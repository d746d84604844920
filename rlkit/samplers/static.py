"""Decoding in buffers of fixed size, each step captured once as a CUDA graph and replayed.

A small model's step is a hundred kernels of a few microseconds: launching them costs more than running them. Captured,
they are one launch, and so are the prompts before them and the refresh of the weights. A graph is bound to its buffers,
so weights are refreshed in place, rows come in powers of two, prompts are padded to a rounded width, and the cache is
read up to one. Without CUDA the same work runs as it is, which is how it is tested.
"""

from collections.abc import Callable
from functools import partial
from operator import le
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.attention import decode_attention
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.layout import HIDDEN_SCORE, FullLayout
from rlkit.models.shapes import LAUNCH_BOUND, row_bucket, width_bucket
from rlkit.samplers.drawing import Settings, draw

CHECK_EVERY = 8  # steps between looks at how many sequences still run: a look waits for the GPU
PROMPT_STEP = 8  # tokens; the finest step in which captured prompts are padded
MOST_PROMPT_TOKENS = 8_192  # padding included; more take longer to compute than to launch
MOST_PREFILLS = 8  # each holds the keys and values of its prompts; beyond, the same runs without a graph
MOST_REFRESHED = 2**29  # bytes of weights, which a captured refresh holds twice


class Buffers:
    """What the captured steps read and write, on the decoder's device: R rows, W places in the cache, T tokens. The
    last of R + 1 sequences is nobody's."""

    def __init__(self, decoder: Decoder, rows: int, width: int, max_tokens: int) -> None:
        dtype, device = decoder.dtype, decoder.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        cache = 2, rows, decoder.kv_heads, width, decoder.head_dim
        self.cache = [
            zeros(*cache, dtype=dtype) for _ in range(decoder.layers)
        ]  # keys and values (2, R, K, W, D)
        self.bias = zeros(rows, 1, 1, width, dtype=dtype)  # hides padding and what is not written yet
        self.hidden = zeros(
            rows, decoder.head_weight.shape[1], dtype=dtype
        )  # what the next tokens are drawn from
        self.owner = zeros(rows)  # which sequence a row computes
        self.running = zeros(rows, dtype=torch.bool)
        self.positions = zeros(rows)  # prompt lengths
        self.turns = decoder.turns(
            torch.arange(width, device=device)
        )  # (W, D/2) rotary embedding's, by position
        self.step = zeros(1)  # how many tokens have been drawn
        self.place = zeros(1)  # where the cache is written next
        self.uniform = zeros(rows + 1, max_tokens, dtype=torch.float32)  # (R + 1, T) by sequence
        self.tokens = zeros(rows + 1, max_tokens)
        self.logprobs = zeros(rows + 1, max_tokens, dtype=torch.float32)
        self.lengths = zeros(rows + 1)

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, places in the cache, and tokens that they hold."""
        return len(self.hidden), self.bias.shape[-1], self.uniform.shape[1]

    def fill(self, prefix: Prefix, index: Tensor, uniform: Tensor, max_tokens: int) -> None:
        """Begin: each sequence on the row of its number, rows beyond them idle."""
        b, s = len(index), prefix.mask.shape[1]
        for mine, *prompt in zip(self.cache, prefix.keys, prefix.values, strict=True):
            for part, of_prompts in zip(mine, prompt, strict=True):
                part[:b, :, :s] = of_prompts.index_select(0, index)
        self.bias.fill_(HIDDEN_SCORE)
        self.bias[:b, 0, 0, :s].masked_fill_(prefix.mask[index], 0.0)
        self.bias[b:, ..., 0] = 0.0  # idle rows see something, so that their softmax is a number
        self.hidden[:b], self.positions[:b] = prefix.last[index], prefix.lengths[index]
        self.owner.fill_(len(self.uniform) - 1)
        self.owner[:b] = torch.arange(b, device=index.device)
        self.running[:b], self.running[b:] = True, False
        self.step.zero_()
        self.place.fill_(s)
        self.uniform[:b, :max_tokens] = uniform
        self.lengths[:b] = max_tokens

    def compact(self, width: int) -> int:
        """Move the running rows to the front; returns how many there are."""
        keep = self.running.nonzero()[:, 0]
        n = len(keep)
        for cache in self.cache:
            for part in cache:
                part[:n, :, :width] = part[keep, :, :width]
        for rows in (self.bias, self.hidden, self.owner, self.positions):
            rows[:n] = rows[keep]
        self.owner[n:] = len(self.uniform) - 1
        self.running[:n], self.running[n:] = True, False
        return n


class StaticDecoding:
    """Runs whole generations on one decoder; graphs and buffers are kept from call to call.

    Args:
        decoder: a frozen decoder whose weights are refreshed in place.
        stop_ids: token ids that end a response.
    """

    def __init__(self, decoder: Decoder, stop_ids: tuple[int, ...]) -> None:
        self.decoder, self.capture = decoder, decoder.device.type == "cuda"
        self.parameters = sum(t.numel() for t in decoder.tensors())
        self.bytes = sum(t.nbytes for t in decoder.tensors())
        self.stops = torch.tensor(stop_ids, dtype=torch.long, device=decoder.device)
        self.buffers: Buffers | None = None
        self.prompts: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # ids and masks that prefills read
        self.graphs: dict[tuple, tuple[Callable[[], None], Any] | None] = {}
        self.pool: Any = None  # memory that all graphs share

    def refresh(self, model: Any) -> None:
        """`Decoder.refresh`; captured anew for parameters that lie elsewhere than before."""
        if self.bytes > MOST_REFRESHED:
            self.decoder.refresh(model)
        else:
            places = tuple(p.data_ptr() for p in model.parameters())
            self._graphed(("refresh", places), lambda: self.decoder.refresh(model))

    def prefill(self, ids: Tensor, mask: Tensor) -> Prefix:
        """`Decoder.prefill` of prompts (P, S). What it returns may be a graph's own memory, which the next replay of
        any graph may write: `decode` copies it first."""
        device, (p, s) = self.decoder.device, ids.shape
        size = p, width_bucket(s, PROMPT_STEP)
        if self.parameters > LAUNCH_BOUND or p * size[1] > MOST_PROMPT_TOKENS:
            return self.decoder.prefill(ids.to(device), mask.to(device))
        ids, mask = (F.pad(x, (0, size[1] - s)).to(device) for x in (ids, mask))
        if size in self.prompts or len(self.prompts) < MOST_PREFILLS:
            own = self.prompts.setdefault(size, (ids, mask))
            own[0].copy_(ids)
            own[1].copy_(mask)
            full = self._graphed(("prefill", size), lambda: self.decoder.prefill(*own, FullLayout))
        else:
            full = self.decoder.prefill(ids, mask, FullLayout)
        keys, values = ([x[:, :, :s] for x in cache] for cache in (full.keys, full.values))
        return Prefix(full.last, keys, values, full.mask[:, :s], full.lengths)

    def decode(
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (B, T), their log-probs (B, T) and lengths (B,) of the sequences of prompts `index` (B,).

        `uniform` (B, T) are the random numbers, one per token.
        """
        b, s, limit = len(index), prefix.mask.shape[1], settings.max_tokens
        buffers, rows = self._room(b, s + limit, limit), row_bucket(b)
        buffers.fill(prefix, index, uniform, limit)
        for t in range(limit):
            width = width_bucket(s + t + 1)
            key = rows, width, settings.temperature, settings.top_p
            self._graphed(key, partial(self._advance, buffers, rows, width, settings))
            if (t + 1) % CHECK_EVERY == 0 and t + 1 < limit:
                left = int(buffers.running.sum())
                if left == 0:
                    break
                if row_bucket(left) < rows:
                    rows = row_bucket(buffers.compact(s + t + 1))
        return buffers.tokens[:b, :limit], buffers.logprobs[:b, :limit], buffers.lengths[:b]

    def _room(self, rows: int, width: int, max_tokens: int) -> Buffers:
        """Buffers that hold at least this; larger ones replace smaller ones and their graphs."""
        size = rows, width, max_tokens
        if self.buffers is not None:
            if all(map(le, size, self.buffers.size)):
                return self.buffers
            size = tuple(map(max, size, self.buffers.size))
        self.graphs.clear()
        self.prompts.clear()
        self.buffers = None  # free the old ones first
        if self.capture:  # a pool ends with the last of its graphs
            self.pool = torch.cuda.graph_pool_handle()
        rows, width, max_tokens = size
        self.buffers = Buffers(self.decoder, row_bucket(rows), width_bucket(width), max_tokens)
        return self.buffers

    def _graphed(self, key: tuple, work: Callable[[], Any]) -> Any:
        """What `work` returns: done as it is the first time, captured the second, replayed from then on."""
        if key not in self.graphs or not self.capture:
            self.graphs[key] = None
            return work()
        if self.graphs[key] is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                result = work()
            self.graphs[key] = graph.replay, result
        held = self.graphs[key]
        assert held is not None
        replay, result = held
        replay()
        return result

    def _advance(self, x: Buffers, rows: int, width: int, settings: Settings) -> None:
        """Draw a token for each row from its state, and compute the state after it. No wait, no new shape."""
        owner, running, step = x.owner[:rows], x.running[:rows], x.step
        at = step.expand(rows)
        token, logprob = draw(self.decoder.head(x.hidden[:rows]), x.uniform[owner, at], settings)
        to = torch.where(running, owner, len(x.uniform) - 1)  # what idle rows draw goes to nobody
        x.tokens[to, at], x.logprobs[to, at] = token, logprob
        stopped = running & (token[:, None] == self.stops).any(-1)
        x.lengths.scatter_(0, torch.where(stopped, owner, len(x.uniform) - 1), at + 1)
        running &= ~stopped
        bias, heads, kv = x.bias[:rows, ..., :width], self.decoder.heads, self.decoder.kv_heads
        x.bias[:rows].index_fill_(3, x.place, 0.0)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            cache, new = x.cache[layer][:, :rows], qkv[:, heads:].unflatten(1, (2, kv)).transpose(0, 1)
            cache.index_copy_(3, x.place, new[:, :, :, None])
            keys, values = cache.unbind()
            return decode_attention(qkv[:, :heads], keys, values, width, bias)

        x.hidden[:rows] = self.decoder.run(token, x.turns[x.positions[:rows] + at], attend)
        step += 1
        x.place += 1
