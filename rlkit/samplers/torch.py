"""Batched decoding with a key-value cache.

The prompt of a group is computed once for its n samples, sequences that have stopped leave the batch, and the random
numbers of a sequence depend on the call's seed and its own place only. Token ids are appended, never re-encoded.
"""

import copy
import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rlkit.models.decoder import Decoder, Prefix
from rlkit.models.kernels import EAGER, Kernels
from rlkit.models.layout import pad_right
from rlkit.samplers.cache import Cache
from rlkit.samplers.drawing import Settings, draw, require_numbers
from rlkit.samplers.prefixes import PrefixCache, alike
from rlkit.samplers.static import StaticDecoding
from rlkit.types import Sample

PREFILLED = 65_536  # tokens of prompts, padding included, in one pass: activations of more would fill a GPU
COMPACT_BELOW = 0.75  # re-pack the batch when fewer than this share still run; re-packing copies the cache


class TorchSampler:
    """Samples from a copy of the policy's weights (see `sync`).

    Args:
        policy: a Policy, or any Hugging Face / peft model that `Decoder` supports.
        stop_ids: token ids that end a response; the stop token belongs to the response and is scored.
        pad_id: filler behind shorter prompts; never attended to.
        max_num_seqs: sequences decoded together.
        kernels: what computes norms, rotary embedding and SwiGLU.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        stop_ids: Sequence[int],
        pad_id: int = 0,
        max_num_seqs: int = 4096,
        kernels: Kernels = EAGER,
    ):
        self.stop_ids, self.pad_id, self.max_num_seqs = tuple(stop_ids), pad_id, max_num_seqs
        self.decoder = Decoder(model, frozen=True, kernels=kernels)
        on_gpu = self.decoder.device.type == "cuda"
        self.static = StaticDecoding(self.decoder, self.stop_ids) if on_gpu else None
        self.memory: PrefixCache | None = None

    def session(self, keep: int) -> "TorchSampler":
        """This sampler, remembering the last `keep` prompts: one that continues another is computed from there."""
        session = copy.copy(self)  # the same weights, buffers and graphs
        session.memory = PrefixCache(self.decoder, min(keep, self.max_num_seqs))
        return session

    def sync(self, policy: torch.nn.Module) -> None:
        """Take the policy's weights as they are now: fused copies, adapters merged into the copy in float32."""
        (self.static or self.decoder).refresh(policy)
        if self.memory is not None:
            self.memory.calls.clear()

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
    ) -> list[list[Sample]]:
        """`n` samples of each prompt (1-d arrays of token ids), in order.

        Log-probs are those of the distribution drawn from (after temperature and top-p); for greedy decoding
        (temperature 0) those at temperature 1.
        """
        draws = torch.rand(len(prompts) * n, max_tokens, generator=torch.Generator().manual_seed(seed))
        draws = draws.view(len(prompts), n, max_tokens)  # in [0, 1)
        settings = Settings(temperature, top_p, max_tokens)
        samples: list[list[Sample]] = [[]] * len(prompts)
        try:
            for rows in self._parts(prompts, max(1, self.max_num_seqs // n)):
                uniform = draws[torch.from_numpy(rows)].flatten(0, 1).to(self.decoder.device)  # (rows·n, T)
                drawn = self._decode([prompts[row] for row in rows], n, uniform, settings)
                for i, row in enumerate(rows):
                    samples[row] = drawn[i * n : (i + 1) * n]
            return samples
        except torch.cuda.OutOfMemoryError:
            if (together := min(self.max_num_seqs, len(prompts) * n) // 2) < n:
                raise
        self.max_num_seqs = together
        warnings.warn(
            f"The GPU's memory does not hold all sequences: decoding {together} together.", stacklevel=2
        )
        if self.static is not None:
            self.static.free()
        return self.sample(prompts, n, seed=seed, max_tokens=max_tokens, temperature=temperature, top_p=top_p)

    def _parts(self, prompts: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
        """Positions of the prompts that are decoded together."""
        if self.memory is not None:
            return alike(np.array([len(ids) for ids in prompts]), most, self.decoder.device.type)
        return [np.arange(i, min(i + most, len(prompts))) for i in range(0, len(prompts), most)]

    def _prefill(self, prompts: Sequence[np.ndarray], device: torch.device) -> Prefix:
        if self.memory is not None:
            return self.memory.prefill(prompts)
        ids, mask = pad_right(prompts, self.pad_id)
        rows = max(1, PREFILLED // ids.shape[1])
        if self.static is not None and len(ids) <= rows:
            return self.static.prefill(ids, mask)
        parts = zip(ids.split(rows), mask.split(rows), strict=True)
        return Prefix.joined([self.decoder.prefill(i.to(device), m.to(device)) for i, m in parts])

    def _decode(
        self, prompts: Sequence[np.ndarray], n: int, uniform: Tensor, settings: Settings
    ) -> list[Sample]:
        prefix = self._prefill(prompts, uniform.device)
        index = torch.arange(len(prompts), device=uniform.device).repeat_interleave(n)  # (B,)
        decode = self.static.decode if self.static is not None else self._shrinking
        return self._collect(*decode(prefix, index, uniform, settings))

    def _shrinking(
        self, prefix: Prefix, index: Tensor, uniform: Tensor, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, log-probs (B, T) and lengths (B,), from a batch that sequences leave when they stop."""
        device, total = uniform.device, len(index)
        cache = Cache(prefix, index, settings.max_tokens)
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
                cache.select(keep, t)
            turns, attend = self.decoder.turns(cache.lengths + t), partial(cache.attend, t=t)
            hidden = self.decoder.run(token, turns, attend)
        return tokens, logprobs, lengths

    def _collect(self, tokens: Tensor, logprobs: Tensor, lengths: Tensor) -> list[Sample]:
        ids, logps, sizes = tokens.cpu().numpy(), logprobs.float().cpu().numpy(), lengths.cpu().numpy()
        require_numbers(logps)
        last = np.take_along_axis(ids, sizes[:, None] - 1, 1)[:, 0]
        finished = np.isin(last, self.stop_ids)
        return [
            Sample(ids[i, :size], logps[i, :size], "stop" if finished[i] else "length")
            for i, size in enumerate(sizes)
        ]
