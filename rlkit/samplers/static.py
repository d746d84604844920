"""Decoding in buffers of fixed size, each step captured once as a CUDA graph and replayed.

A small model's step is a hundred kernels of a few microseconds, which cost more to launch than to run; captured, they
are one launch. A graph is bound to its buffers: weights are refreshed in place, rows come in powers of two, prompts are
padded to a rounded width. Without CUDA the same work runs as it is, which is how it is tested.
"""

from collections.abc import Callable
from functools import partial
from operator import le
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.attention import FullLayout
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.shapes import LAUNCH_BOUND, row_bucket, width_bucket
from rlkit.samplers.decode_attention import fastest_attention
from rlkit.samplers.drawing import Settings, draw

CHECK_EVERY = 8  # steps between looks at how many sequences still run: a look waits for the GPU
PROMPT_STEP = 8  # tokens; the finest step in which captured prompts are padded
MOST_PROMPT_TOKENS = 8_192  # padding included; more take longer to compute than to launch
MOST_PREFILLS = 8  # each holds the keys and values of its prompts; beyond, the same runs without a graph
MOST_REFRESHED = 2**29  # bytes of weights, which a captured refresh holds twice


class Buffers:
    """What the captured steps read and write: P prompts of S tokens, R sequences of T more, and one that is
    nobody's."""

    def __init__(self, decoder: Decoder, prompts: int, width: int, rows: int, max_tokens: int) -> None:
        dtype, device = decoder.dtype, decoder.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def cache(sequences: int, places: int) -> list[Tensor]:
            """Each layer's keys and values (2, sequences, K, places, D)."""
            size = 2, sequences, decoder.kv_heads, places, decoder.head_dim
            return [zeros(*size, dtype=dtype) for _ in range(decoder.layers)]

        self.size = prompts, width, rows, max_tokens
        self.prompt_cache, self.own_cache = cache(prompts, width), cache(rows + 1, max_tokens)
        self.prompt_lengths = zeros(prompts) + 1
        self.prompt = zeros(rows + 1)  # of each sequence
        self.hidden = zeros(rows, decoder.head_weight.shape[1], dtype=dtype)  # before the next token
        self.owner = zeros(rows)  # which sequence a row computes
        self.running = zeros(rows, dtype=torch.bool)
        self.turns = decoder.turns(torch.arange(width + max_tokens, device=device))  # by position
        self.step = zeros(1)  # how many tokens have been drawn
        self.uniform = zeros(rows + 1, max_tokens, dtype=torch.float32)  # (R + 1, T) by sequence
        self.tokens = zeros(rows + 1, max_tokens)
        self.logprobs = zeros(rows + 1, max_tokens, dtype=torch.float32)
        self.lengths = zeros(rows + 1)

    def fill(self, prefix: Prefix, index: Tensor, uniform: Tensor, max_tokens: int) -> None:
        """Begin: each sequence on the row of its number, rows beyond them idle."""
        b, (p, s) = len(index), prefix.mask.shape
        for mine, *theirs in zip(self.prompt_cache, prefix.keys, prefix.values, strict=True):
            for part, of_prompts in zip(mine, theirs, strict=True):
                part[:p, :, :s] = of_prompts
        self.prompt_lengths[:p] = prefix.lengths
        self.prompt[:b] = index
        self.hidden[:b] = prefix.last[index]
        self.owner.fill_(len(self.hidden))
        self.owner[:b] = torch.arange(b, device=index.device)
        self.running[:b], self.running[b:] = True, False
        self.step.zero_()
        self.uniform[:b, :max_tokens] = uniform
        self.lengths[:b] = max_tokens

    def compact(self) -> int:
        """Give the first rows to the sequences that still run; returns how many there are."""
        keep = self.running.nonzero()[:, 0]
        n = len(keep)
        for rows in (self.hidden, self.owner):
            rows[:n] = rows[keep]
        self.owner[n:] = len(self.hidden)
        self.running[:n], self.running[n:] = True, False
        return n


class StaticDecoding:
    """Runs whole generations on a frozen decoder; graphs and buffers are kept from call to call."""

    def __init__(self, decoder: Decoder, stop_ids: tuple[int, ...]) -> None:
        self.decoder, self.capture = decoder, decoder.device.type == "cuda"
        self.attend = fastest_attention(decoder.device)
        self.parameters = sum(t.numel() for t in decoder.tensors())
        self.bytes = sum(t.nbytes for t in decoder.tensors())
        self.stops = torch.tensor(stop_ids, dtype=torch.long, device=decoder.device)
        self.buffers: Buffers | None = None
        self.prompts: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # ids and masks that prefills read
        self.graphs: dict[tuple, Any] = {}  # replay and its result; None before the capture
        self.pool: Any = None  # memory that all graphs share

    def refresh(self, model: Any) -> None:
        """`Decoder.refresh`; captured anew for parameters that lie elsewhere than before."""
        if self.bytes > MOST_REFRESHED:
            self.decoder.refresh(model)
        else:
            places = tuple(p.data_ptr() for p in model.parameters())
            self._graphed(("refresh", places), lambda: self.decoder.refresh(model))

    def prefill(self, ids: Tensor, mask: Tensor) -> Prefix:
        """`Decoder.prefill` of prompts (P, S), perhaps in memory that the next replay of a graph writes."""
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
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings,
        ended: Callable[[list[int], list[np.ndarray]], None] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Tokens (B, T), their log-probs (B, T) and lengths (B,) of the sequences of prompts `index` (B,).

        Args:
            uniform: (B, T) random numbers, one per token.
            ended: is told the numbers and the tokens of sequences that have ended while others run; those of the last
                few steps are not told.
        """
        b, limit, (p, s) = len(index), settings.max_tokens, prefix.mask.shape
        buffers, rows = self._room(p, s, b, limit), row_bucket(b)
        buffers.fill(prefix, index, uniform, limit)
        running, fresh = np.ones(b, bool), np.zeros(0, np.int64)
        tokens: list[np.ndarray] = []
        for t in range(limit):
            key = rows, settings.temperature, settings.top_p
            self._graphed(key, partial(self._advance, buffers, rows, settings))
            if (t + 1) % CHECK_EVERY or t + 1 == limit:
                continue
            if ended is not None and len(fresh):
                ended(fresh.tolist(), tokens)  # the GPU computes the steps since the last look meanwhile
            lengths = buffers.lengths[:b].cpu().numpy()
            fresh = np.flatnonzero(running & (lengths <= t + 1))
            running[fresh] = False
            left = int(running.sum())
            if left == 0:
                break
            if ended is not None and len(fresh):
                drawn = buffers.tokens[torch.from_numpy(fresh).to(buffers.tokens.device)].cpu().numpy()
                tokens = [ids[:length] for ids, length in zip(drawn, lengths[fresh], strict=True)]
            if row_bucket(left) < rows:
                rows = row_bucket(buffers.compact())
        return buffers.tokens[:b, :limit], buffers.logprobs[:b, :limit], buffers.lengths[:b]

    def _room(self, prompts: int, width: int, rows: int, max_tokens: int) -> Buffers:
        """Buffers that hold at least this; larger ones replace smaller ones and their graphs."""
        size = prompts, width, rows, max_tokens
        if self.buffers is not None:
            if all(map(le, size, self.buffers.size)):
                return self.buffers
            size = tuple(map(max, size, self.buffers.size))
        self.free()
        if self.capture:  # a pool ends with the last of its graphs
            self.pool = torch.cuda.graph_pool_handle()
        prompts, width, rows, max_tokens = size
        size = row_bucket(prompts), width_bucket(width), row_bucket(rows), max_tokens
        self.buffers = Buffers(self.decoder, *size)
        return self.buffers

    def free(self) -> None:
        """Give the memory of buffers and graphs back to torch's allocator, and what that keeps to the device."""
        self.graphs.clear()
        self.prompts.clear()
        self.buffers = None
        if self.capture:
            torch.cuda.empty_cache()

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
        replay, result = self.graphs[key]
        replay()
        return result

    def _advance(self, x: Buffers, rows: int, settings: Settings) -> None:
        """Draw a token for each row from its state, and compute the state after it. No wait, no new shape."""
        owner, running, at, nobody = x.owner[:rows], x.running[:rows], x.step.expand(rows), len(x.hidden)
        token, logprob = draw(self.decoder.head(x.hidden[:rows]), x.uniform[owner, at], settings)
        to = torch.where(running, owner, nobody)  # what idle rows draw goes to nobody
        x.tokens[to, at], x.logprobs[to, at] = token, logprob
        stopped = running & (token[:, None] == self.stops).any(-1)
        x.lengths.scatter_(0, torch.where(stopped, owner, nobody), at + 1)
        running &= ~stopped

        def attend(layer: int, qkv: Tensor) -> Tensor:
            return self.attend(
                qkv, x.prompt_cache[layer], x.own_cache[layer], owner, x.prompt, x.prompt_lengths, x.step
            )

        places = x.prompt_lengths[x.prompt[owner]] + at
        x.hidden[:rows] = self.decoder.run(token, x.turns[places], attend)
        x.step += 1
