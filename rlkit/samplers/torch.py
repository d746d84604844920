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

from rlkit.models.attention import HIDDEN_SCORE, decode_attention
from rlkit.models.decoder import Decoder
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
        self.sync(model)

    def sync(self, policy: torch.nn.Module) -> None:
        """Take the policy's weights as they are now: fused copies, adapters merged into the copy in float32."""
        self.decoder = Decoder(policy, frozen=True)

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
        self, prompts: Sequence[np.ndarray], n: int, uniform: Tensor, settings: "Settings"
    ) -> list[Sample]:
        device, total = uniform.device, len(prompts) * n
        ids, mask = pad_right(prompts, self.pad_id)
        prefix = self.decoder.prefill(ids.to(device), mask.to(device))
        index = torch.arange(len(prompts), device=device).repeat_interleave(n)  # (B,)
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
        return self._collect(tokens, logprobs, lengths, stops)

    def _step(self, token: Tensor, cache: "Cache", t: int) -> Tensor:
        """Append `token` (A,) as response token t and return the states (A, d) after it."""
        end, bias = cache.width + t + 1, cache.bias(cache.width + t + 1)
        heads, kv = self.decoder.heads, self.decoder.kv_heads

        def attend(layer, qkv):
            keys, values = cache.keys[layer], cache.values[layer]
            q, keys[:, :, end - 1], values[:, :, end - 1] = qkv.split((heads, kv, kv), 1)
            return decode_attention(q, keys, values, end, bias)

        return self.decoder.run(token, cache.lengths + t, attend)

    def _collect(self, tokens: Tensor, logprobs: Tensor, lengths: Tensor, stops: Tensor) -> list[Sample]:
        last = tokens.gather(1, (lengths - 1)[:, None])[:, 0]
        finished = torch.isin(last, stops).cpu().numpy()
        ids, logps, sizes = tokens.cpu().numpy(), logprobs.float().cpu().numpy(), lengths.cpu().numpy()
        return [
            Sample(ids[i, :size].copy(), logps[i, :size].copy(), "stop" if finished[i] else "length")
            for i, size in enumerate(sizes)
        ]


@dataclass(frozen=True)
class Settings:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int


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


def draw(logits: Tensor, uniform: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Tokens (A,) and their log-probs (A,) from logits (A, V), by inverting the distribution at `uniform` (A,)."""
    logits = logits.float()
    if settings.temperature == 0:
        logprobs = logits.log_softmax(-1)
        token = logprobs.argmax(-1)
        return token, logprobs.gather(1, token[:, None])[:, 0]
    logits = truncated(logits if settings.temperature == 1 else logits / settings.temperature, settings)
    cumulative = logits.softmax(-1).cumsum(-1)  # (A, V)
    # A token of probability zero adds nothing to the sum, so the first sum above the draw is never its own.
    point = uniform.clamp(max=1 - 1e-6) * cumulative[:, -1]
    token = torch.searchsorted(cumulative, point[:, None], right=True)
    return token[:, 0], logits.gather(1, token)[:, 0] - logits.logsumexp(-1)


def truncated(logits: Tensor, settings: Settings) -> Tensor:
    """Logits with everything outside top-k and the nucleus (Holtzman et al., arXiv 1904.09751) at -inf."""
    if 0 < settings.top_k < logits.shape[-1]:
        bound = logits.topk(settings.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < bound, -torch.inf)
    if settings.top_p < 1:
        ordered, order = logits.sort(descending=True)
        p = ordered.softmax(-1)
        outside = p.cumsum(-1) - p >= settings.top_p  # what comes before already fills the nucleus
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -torch.inf)
    return logits


def pad_right(sequences: Sequence[np.ndarray], fill: int) -> tuple[Tensor, Tensor]:
    """(n, S) ids and (n, S) mask (1 on real tokens) of 1-d arrays of unequal length."""
    lengths = np.array([len(s) for s in sequences])
    ids = np.full((len(sequences), int(lengths.max())), fill, dtype=np.int64)
    mask = np.arange(ids.shape[1])[None] < lengths[:, None]
    ids[mask] = np.concatenate(sequences)
    return torch.from_numpy(ids), torch.from_numpy(mask)
