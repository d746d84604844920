"""Batched decoding with a static key-value cache.

The prompt of a group is computed once for its n samples, sequences that have stopped leave the batch, and
the random numbers of a sequence depend on the call's seed and its own place only, not on who else is still
running. Token ids are appended, never re-encoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlkit.models.attention import decode_attention
from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.layout import HIDDEN_SCORE
from rlkit.samplers.drawing import Settings, draw
from rlkit.samplers.static import StaticDecoding
from rlkit.types import Sample

COMPACT_BELOW = 0.75  # re-pack the batch when fewer than this share still run; re-packing copies the cache


class TorchSampler:
    """Samples from a copy of the policy's weights (see `sync`).

    Args:
        policy: a Policy, or any Hugging Face / peft model that `Decoder` supports.
        stop_ids: token ids that end a response; the stop token belongs to the response and is scored.
        pad_id: filler behind shorter prompts; never attended to.
        max_num_seqs: sequences decoded together.
    """

    def __init__(
        self, model: torch.nn.Module, stop_ids: Sequence[int], pad_id: int = 0, max_num_seqs: int = 4096
    ):
        self.stop_ids, self.pad_id, self.max_num_seqs = tuple(stop_ids), pad_id, max_num_seqs
        self.decoder = Decoder(model, frozen=True)
        on_gpu = self.decoder.device.type == "cuda"
        self.static = StaticDecoding(self.decoder, self.stop_ids) if on_gpu else None

    def sync(self, policy: torch.nn.Module) -> None:
        """Take the policy's weights as they are now: fused copies, adapters merged into the copy in float32."""
        self.decoder.refresh(policy)

    def release(self) -> None:
        """Nothing: the cache is small beside an update's activations."""

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[np.ndarray],
        n: int,
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> list[list[Sample]]:
        """`n` samples of each prompt (1-d arrays of token ids), in order.

        Log-probs are those of the distribution drawn from (after temperature, top-k and top-p); for greedy
        decoding (temperature 0) those at temperature 1.
        """
        device = self.decoder.device
        generator = torch.Generator().manual_seed(seed)
        draws = torch.rand(len(prompts) * n, max_tokens, generator=generator)  # (P·n, T), in [0, 1)
        settings = Settings(temperature, top_p, top_k, max_tokens)
        step = max(1, self.max_num_seqs // n)
        samples: list[list[Sample]] = []
        for start in range(0, len(prompts), step):
            chunk = prompts[start : start + step]
            uniform = draws[start * n : (start + len(chunk)) * n].to(device)
            rows = self._decode(chunk, n, uniform, settings)
            samples += [rows[i * n : (i + 1) * n] for i in range(len(chunk))]
        return samples

    def _decode(
        self, prompts: Sequence[np.ndarray], n: int, uniform: Tensor, settings: Settings
    ) -> list[Sample]:
        ids, mask = pad_right(prompts, self.pad_id)
        prefix = self.decoder.prefill(ids.to(uniform.device), mask.to(uniform.device))
        index = torch.arange(len(prompts), device=uniform.device).repeat_interleave(n)  # (B,)
        if self.static is not None:
            return self._collect(*self.static.decode(prefix, index, uniform, settings))
        return self._collect(*self._shrinking(prefix, index, uniform, settings))

    def _shrinking(
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, log-probs (B, T) and lengths (B,), from a batch that sequences leave when they stop."""
        device, total = uniform.device, len(index)
        cache = Cache.of(prefix, index, settings.max_tokens)
        rows = torch.arange(total, device=device)  # where each running sequence came from
        tokens = torch.full((total, settings.max_tokens), self.pad_id, dtype=torch.long, device=device)
        logprobs = torch.zeros(total, settings.max_tokens, device=device)
        lengths = torch.full((total,), settings.max_tokens, device=device)
        running = torch.ones(total, dtype=torch.bool, device=device)  # among `rows`
        stops = torch.tensor(self.stop_ids, device=device)
        hidden = prefix.last[index]  # (B, d)
        for t in range(settings.max_tokens):
            token, logprob = draw(self.decoder.head(hidden), uniform[rows, t], settings)
            live = rows[running]
            tokens[live, t], logprobs[live, t] = token[running], logprob[running]
            stopped = running & torch.isin(token, stops)
            lengths[rows[stopped]] = t + 1
            running = running & ~stopped
            left = int(running.sum())
            if left == 0 or t + 1 == settings.max_tokens:
                break
            if left < COMPACT_BELOW * len(rows):
                keep = running.nonzero()[:, 0]
                rows, token, running = rows[keep], token[keep], running[keep]
                cache.select(keep)
            hidden = self._step(token, cache, t)
        return tokens, logprobs, lengths

    def _step(self, token: Tensor, cache: "Cache", t: int) -> Tensor:
        """Append `token` (A,) as response token t and return the states (A, d) after it."""
        end, bias = cache.width + t + 1, cache.bias(cache.width + t + 1)
        heads, kv = self.decoder.heads, self.decoder.kv_heads

        def attend(layer, qkv):
            keys, values = cache.keys[layer], cache.values[layer]
            q, keys[:, :, end - 1], values[:, :, end - 1] = qkv.split((heads, kv, kv), 1)
            return decode_attention(q, keys, values, end, bias)

        return self.decoder.run(token, cache.lengths + t, attend)

    def _collect(self, tokens: Tensor, logprobs: Tensor, lengths: Tensor) -> list[Sample]:
        ids, logps, sizes = tokens.cpu().numpy(), logprobs.float().cpu().numpy(), lengths.cpu().numpy()
        last = np.take_along_axis(ids, sizes[:, None] - 1, 1)[:, 0]
        finished = np.isin(last, self.stop_ids)
        return [
            Sample(ids[i, :size], logps[i, :size], "stop" if finished[i] else "length")
            for i, size in enumerate(sizes)
        ]


@dataclass
class Cache:
    """Keys and values of the running sequences: (A, Hkv, S + T, D) a layer, prompts first."""

    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor  # (A,) prompt lengths
    mask: Tensor | None  # (A, S) where prompts differ in length
    width: int  # S

    @classmethod
    def of(cls, prefix, index: Tensor, max_tokens: int) -> "Cache":
        def grown(prompt: Tensor) -> Tensor:
            _, heads, width, dim = prompt.shape
            cache = prompt.new_empty(len(index), heads, width + max_tokens, dim)
            cache[:, :, :width] = prompt.index_select(0, index)
            return cache

        mask = None if bool(prefix.mask.all()) else prefix.mask[index]
        keys, values = [grown(k) for k in prefix.keys], [grown(v) for v in prefix.values]
        return cls(keys, values, prefix.lengths[index], mask, prefix.mask.shape[1])

    def bias(self, end: int) -> Tensor | None:
        """(A, 1, 1, end) that hides padding behind prompts; None where there is none."""
        if self.mask is None:
            return None
        hidden = torch.zeros(len(self.mask), end, device=self.mask.device)
        hidden[:, : self.width].masked_fill_(~self.mask, HIDDEN_SCORE)
        return hidden[:, None, None]

    def select(self, keep: Tensor) -> None:
        """Only these sequences go on."""
        self.keys = [k.index_select(0, keep) for k in self.keys]
        self.values = [v.index_select(0, keep) for v in self.values]
        self.lengths = self.lengths[keep]
        self.mask = None if self.mask is None else self.mask[keep]


def pad_right(sequences: Sequence[np.ndarray], fill: int) -> tuple[Tensor, Tensor]:
    """(n, S) ids and (n, S) mask (1 on real tokens) of 1-d arrays of unequal length."""
    lengths = np.array([len(s) for s in sequences])
    ids = np.full((len(sequences), int(lengths.max())), fill, dtype=np.int64)
    mask = np.arange(ids.shape[1])[None] < lengths[:, None]
    ids[mask] = np.concatenate(sequences)
    return torch.from_numpy(ids), torch.from_numpy(mask)
