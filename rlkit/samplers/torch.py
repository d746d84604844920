"""Batched decoding with a key-value cache: a group's prompt is computed once, sequences that have stopped leave the
batch, and the random numbers of a sequence depend on the call's seed and its own place only."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from operator import le
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.attention import pad_right
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.kernels import EAGER, Kernels
from rlkit.models.shapes import row_bucket, width_bucket
from rlkit.samplers.cache import FixedCache, GrowingCache, Reading, Replayed
from rlkit.samplers.draw_tokens import Settings, require_numbers
from rlkit.types import Finished, Sample

PREFILLED = 65_536  # tokens of prompts, padding included, in one pass: activations of more would fill a GPU
NOBODY = np.zeros(0, np.int64)
# Those of the largest pass of a small model that is kept as a CUDA graph. A step of ladder-3m takes 44 ms on an H200,
# and 7 more where prompts and the refresh of the weights are launched kernel by kernel.
REPLAYED = 16_384


class TorchSampler:
    """Samples, `max_num_seqs` at a time, of a copy of a model's weights. `stop_ids` end a response and are scored."""

    def __init__(
        self, model: torch.nn.Module, stop_ids: Sequence[int], pad_id: int = 0, max_num_seqs: int = 4096,
        kernels: Kernels = EAGER,
    ) -> None:  # fmt: skip
        self.stop_ids, self.pad_id, self.max_num_seqs = tuple(stop_ids), pad_id, max_num_seqs
        self.decoder = Decoder(model, frozen=True, kernels=kernels)
        self.stops = torch.tensor(self.stop_ids, dtype=torch.long, device=self.decoder.device)
        self.fixed = self.decoder.device.type == "cuda"  # decode in a FixedCache
        self.cache: FixedCache | None = None  # kept from call to call
        # Of prompts, by padded shape.
        self.passes = dict[tuple[int, int], tuple[Tensor, Tensor, Replayed]]()
        self.refresh: tuple[Any, Replayed] | None = None  # of a policy

    def sync(self, policy: torch.nn.Module) -> None:
        """Take the policy's weights as they are now: fused copies, adapters merged into the copy in float32."""
        if not self.decoder.pads_prompts:
            self.decoder.refresh(policy)
        else:
            if self.refresh is None or self.refresh[0] is not policy:
                work = partial(self.decoder.refresh, policy)
                self.refresh = policy, Replayed(work, self.decoder.device)
            self.refresh[1]()

    def release(self) -> None:
        """Nothing: the cache is small beside an update's activations."""

    @torch.inference_mode()
    def sample(
        self, prompts: Sequence[np.ndarray], n: int, *, seed: int, max_tokens: int, temperature: float = 1.0,
        top_p: float = 1.0, on_finished: Callable[[Finished], bool | None] | None = None,
    ) -> list[list[Sample]]:  # fmt: skip
        """See `rlkit.types.Sampler`. Log-probs of greedy decoding (temperature 0) are those at temperature 1. On a GPU
        `on_finished` is told every few steps of what has ended; elsewhere never."""
        draws = torch.rand(len(prompts) * n, max_tokens, generator=torch.Generator().manual_seed(seed))
        settings, told = Settings(temperature, top_p), on_finished if self.fixed else None
        while True:
            most, samples = max(1, self.max_num_seqs // n), list[Sample]()
            try:
                for i in range(0, len(prompts), most):
                    samples += self._decode(prompts[i : i + most], i * n, n, draws, settings, told)
                return [samples[i : i + n] for i in range(0, len(samples), n)]
            except torch.cuda.OutOfMemoryError:
                if (together := min(self.max_num_seqs, len(prompts) * n) // 2) < n:
                    raise
            self._free()
            self.passes.clear()
            self.max_num_seqs, why = together, "The GPU's memory does not hold all sequences"
            warnings.warn(f"{why}: decoding {together} together.", stacklevel=2)

    def _decode(
        self, prompts: Sequence[np.ndarray], first: int, n: int, draws: Tensor, settings: Settings,
        on_finished: Callable[[Finished], bool | None] | None,
    ) -> list[Sample]:  # fmt: skip
        """The samples of prompts that are decoded together, from place `first` of the call on."""
        prefix, device = self._prefill(prompts), self.decoder.device
        index = torch.arange(len(prompts), device=device).repeat_interleave(n)  # (B,)
        uniform = draws[first : first + len(index)].to(device)  # (B, T), in [0, 1)

        def ended(which: np.ndarray, ids: list[np.ndarray]) -> bool | None:
            assert on_finished is not None
            return on_finished(list(zip((first + which).tolist(), ids, strict=True)))

        drawn = self.draw(prefix, index, uniform, settings, on_finished and ended)
        # Fixed buffers are filled again.
        ids, logprobs, lengths = (x.to("cpu", copy=True).numpy() for x in drawn)
        require_numbers(logprobs)
        stopped = np.isin(np.take_along_axis(ids, lengths[:, None] - 1, 1)[:, 0], self.stop_ids)
        rows = zip(ids, logprobs, lengths.tolist(), stopped.tolist(), strict=True)
        return [Sample(i[:size], p[:size], "stop" if end else "length") for i, p, size, end in rows]

    def draw(
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings,
        ended: Callable[[np.ndarray, list[np.ndarray]], bool | None] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Tokens (B, T), their log-probs (B, T) and lengths (B,) of the sequences of prompts `index` (B,), by `uniform`
        (B, T) random numbers; `ended` is told numbers and tokens of sequences when they end, and of none as long as
        it has something else to do and the GPU has steps to compute."""
        b, limit = uniform.shape
        cache = self._cache((len(prefix.lengths), prefix.layers[0].shape[3], b, limit))
        cache.begin(prefix, index, uniform)
        running, looked, look = np.ones(b, bool), 0, None
        for t in range(1, limit + 1):
            cache.advance(settings)
            if t % cache.every == 0 or t == limit:
                looked, look = t, Reading(cache.lengths[:b], *([cache.tokens[:b, :limit]] if ended else []))
            if look is None or (t - looked < cache.every // 2 and t < limit):
                continue
            while ended is not None and t < limit and ended(NOBODY, []) and not look.there:
                pass
            (lengths, *drawn), look = look.wait(), None
            fresh = np.flatnonzero(running & (lengths <= looked))
            running[fresh] = False
            if ended is not None and len(fresh):
                ended(fresh, [ids[:length] for ids, length in zip(drawn[0][fresh], lengths[fresh], strict=True)])
            if not running.any():
                break
            cache.compact(int(running.sum()))
        return cache.tokens[:b, :limit], cache.logprobs[:b, :limit], cache.lengths[:b]

    def _cache(self, size: tuple[int, ...]) -> FixedCache | GrowingCache:
        """A cache for so many prompts, their tokens, sequences and their tokens; a larger one replaces a smaller."""
        if not self.fixed:
            return GrowingCache(self.decoder, self.stops, *size[2:])
        held = self.cache.size if self.cache else (0, 0, 0, 0)
        if self.cache is None or not all(map(le, size, held)):
            self._free()
            prompts, width, rows, max_tokens = map(max, size, held)
            size = row_bucket(prompts), width_bucket(width), row_bucket(rows), max_tokens
            self.cache = FixedCache(self.decoder, self.stops, size)
        return self.cache

    def _free(self) -> None:
        """Give the memory of buffers and graphs back to torch's allocator, and what that keeps to the device."""
        self.cache = None
        torch.cuda.empty_cache()

    def _prefill(self, prompts: Sequence[np.ndarray]) -> Prefix:
        """The computed prompts, PREFILLED tokens at a time."""
        ids, mask = (x.to(self.decoder.device) for x in pad_right(prompts, self.pad_id))
        p, s = row_bucket(len(ids)), width_bucket(ids.shape[1])
        if self.decoder.pads_prompts and p * s <= REPLAYED:
            return self._replayed(ids, mask, p, s)
        rows = max(1, PREFILLED // ids.shape[1])
        parts = [self.decoder.prefill(*x) for x in zip(ids.split(rows), mask.split(rows), strict=True)]
        if len(parts) == 1:
            return parts[0]
        last, layers, lengths = zip(*parts, strict=True)
        joined = [torch.cat(parts, 1) for parts in zip(*layers, strict=True)]
        return Prefix(torch.cat(last), joined, torch.cat(lengths))

    def _replayed(self, ids: Tensor, mask: Tensor, p: int, s: int) -> Prefix:
        """The computed prompts `ids`, and of a token each up to `p` of them, padded to `s`; the next call with these
        sizes overwrites them."""
        if (p, s) not in self.passes:
            inputs = ids.new_zeros(p, s), mask.new_zeros(p, s)
            self.passes[p, s] = *inputs, Replayed(partial(self.decoder.prefill, *inputs), ids.device)
        *inputs, run = self.passes[p, s]
        for whole, given in zip(inputs, (ids, mask), strict=True):
            whole.copy_(F.pad(given, (0, s - given.shape[1], 0, p - len(given))))
        inputs[1][:, 0] = True
        return run()
