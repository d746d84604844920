"""Decoding, each step captured once as a CUDA graph and replayed.

A small model's step is a hundred kernels of a few microseconds, which cost more to launch than to run; captured, they
are one launch. A graph is bound to its buffers: weights are refreshed in place, rows come in powers of two. Without
CUDA the cache grows; the fixed one works there too, which is how it is tested.
"""

from collections.abc import Callable
from operator import le

import numpy as np
import torch
from torch import Tensor

from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.shapes import row_bucket, width_bucket
from rlkit.samplers.cache import FixedCache, GrowingCache
from rlkit.samplers.drawing import Settings

CHECK_EVERY = 8  # steps between looks at how many sequences still run: a look waits for the GPU

Ended = Callable[[list[int], list[np.ndarray]], None]
"""Is told the numbers and the tokens of sequences that have ended while others run."""


class Decoding:
    """Runs whole generations on a frozen decoder, in a `fixed` cache or in growing ones; fixed buffers and their graphs
    are kept from call to call."""

    def __init__(self, decoder: Decoder, stop_ids: tuple[int, ...], fixed: bool) -> None:
        self.decoder, self.fixed, self.capture = decoder, fixed, decoder.device.type == "cuda"
        self.stops = torch.tensor(stop_ids, dtype=torch.long, device=decoder.device)
        self.cache: FixedCache | None = None
        self.graphs: dict[tuple, torch.cuda.CUDAGraph | None] = {}  # None before the capture
        self.pool: tuple[int, int] | None = None  # memory that all graphs share

    def decode(
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings, ended: Ended | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (B, T), their log-probs (B, T) and lengths (B,) of the sequences of prompts `index` (B,). `uniform`
        (B, T) are random numbers, one per token; of the last few steps `ended` is not told."""
        b, limit, rows, every = len(index), settings.max_tokens, len(index), 1
        if self.fixed:
            rows, every = row_bucket(b), CHECK_EVERY
            cache = self._room(len(prefix.lengths), prefix.layers[0].shape[3], b, limit)
            cache.begin(prefix, index, uniform)
        else:
            cache = GrowingCache(self.decoder, self.stops, prefix, index, uniform)
        running, fresh = np.ones(b, bool), np.zeros(0, np.int64)
        tokens: list[np.ndarray] = []
        for t in range(1, limit + 1):
            self._advance(cache, rows, settings)
            if t % every or t == limit:
                continue
            if ended is not None and len(fresh):
                ended(fresh.tolist(), tokens)  # the GPU computes the steps since the last look meanwhile
            lengths = cache.lengths[:b].cpu().numpy()
            fresh = np.flatnonzero(running & (lengths <= t))
            running[fresh] = False
            left = int(running.sum())
            if left == 0:
                break
            if ended is not None and len(fresh):
                drawn = cache.tokens[torch.from_numpy(fresh).to(cache.tokens.device)].cpu().numpy()
                tokens = [ids[:length] for ids, length in zip(drawn, lengths[fresh], strict=True)]
            rows = cache.compact(rows, left)
        return cache.tokens[:b, :limit], cache.logprobs[:b, :limit], cache.lengths[:b]

    def _advance(self, cache: FixedCache | GrowingCache, rows: int, settings: Settings) -> None:
        """A step: done as it is the first time, captured the second, replayed from then on."""
        key = rows, settings.temperature, settings.top_p
        if not self.capture or not self.fixed or key not in self.graphs:
            self.graphs[key] = None
            cache.advance(rows, settings)
            return
        if (graph := self.graphs[key]) is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                cache.advance(rows, settings)
            self.graphs[key] = graph
        graph.replay()

    def _room(self, *size: int) -> FixedCache:
        """Buffers for at least so many prompts, their tokens, rows and tokens of theirs; larger ones replace smaller
        ones and their graphs."""
        if self.cache is not None:
            if all(map(le, size, self.cache.size)):
                return self.cache
            size = tuple(map(max, size, self.cache.size))
        self.free()
        if self.capture:  # a pool ends with the last of its graphs
            self.pool = torch.cuda.graph_pool_handle()
        prompts, width, rows, max_tokens = size
        size = row_bucket(prompts), width_bucket(width), row_bucket(rows), max_tokens
        self.cache = FixedCache(self.decoder, self.stops, size)
        return self.cache

    def free(self) -> None:
        """Give the memory of buffers and graphs back to torch's allocator, and what that keeps to the device."""
        self.graphs.clear()
        self.cache = None
        if self.capture:
            torch.cuda.empty_cache()
