"""Keys and values of a turn serve the next: a step of six turns takes 18 % longer without (ladder-100k on a CPU)."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.models.attention import pad_right, scatter
from rlkit.models.decoder import Decoder, Prefix

SHORT = {"cpu": 256, "cuda": 2048}  # tokens; longer prompts share a pass within a factor of two
MOST_CELLS = 2**26
"""Of a pass: the square of its longest prompt, times its prompts, which masks and scores take."""


def alike(lengths: np.ndarray, most: int, device: str) -> list[np.ndarray]:
    """Positions of prompts, grouped so that a long one does not pad many short ones; at most `most` a group."""
    kinds = np.ceil(np.log2(np.maximum(lengths / SHORT[device], 1)))
    groups = []
    for rows in (np.flatnonzero(kinds == kind) for kind in np.unique(kinds)):
        size = int(max(1, min(most, MOST_CELLS // int(lengths[rows].max()) ** 2)))
        groups += [rows[i : i + size] for i in range(0, len(rows), size)]
    return groups


class PrefixCache:
    """Keys and values of the last `keep` prompts, found again by their ids: a prompt that continues one of them is
    computed from there, to the rounding of differently shaped products, while the weights stay as they are."""

    def __init__(self, decoder: Decoder, keep: int) -> None:
        self.decoder, self.keep = decoder, keep
        self.calls: deque[tuple[list[bytes], Prefix]] = deque()  # ids of prompts, and what was computed

    def prefill(self, prompts: Sequence[np.ndarray]) -> Prefix:
        """The computed prompts (1-d arrays of ids), and keep them."""
        keys = [ids.astype(np.int64).tobytes() for ids in prompts]
        prefix = self._continued(prompts, self._origins(keys))
        self.calls.append((keys, prefix))
        while sum(len(own) for own, _ in self.calls) > self.keep:
            self.calls.popleft()
        return prefix

    def _origins(self, keys: list[bytes]) -> np.ndarray:
        """(P, 3): call and row of the longest kept prompt that each continues, and its known ids, all but the last."""
        kept = {key: (call, row) for call, (own, _) in enumerate(self.calls) for row, key in enumerate(own)}
        sizes, found = sorted({len(key) for key in kept}), np.zeros((len(keys), 3), np.int64)
        for i, key in enumerate(keys):
            for size in sizes:
                if origin := kept.get(key[:size]):
                    found[i] = *origin, min(size, len(key) - 8) // 8
        return found

    def _continued(self, prompts: Sequence[np.ndarray], origins: np.ndarray) -> Prefix:
        decoder, (calls, sources, known), width = self.decoder, origins.T, max(map(len, prompts))
        heads, kv, d, device = decoder.heads, decoder.kv_heads, decoder.head_dim, decoder.device
        padded = pad_right([ids[k:] for ids, k in zip(prompts, known, strict=True)], 0)
        (ids, new), start = (x.to(device) for x in padded), torch.from_numpy(known).to(device)
        (p, n), size = ids.shape, (2, len(ids), kv, width, d)
        layers = [torch.zeros(size, dtype=decoder.dtype, device=device) for _ in range(decoder.layers)]
        for call in np.unique(calls[known > 0]):
            into = np.flatnonzero((calls == call) & (known > 0))
            rows = torch.from_numpy(np.stack((into, sources[into]))).to(device)
            for layer, computed in zip(layers, self.calls[call][1].layers, strict=True):
                layer[:, rows[0], :, : known[into].max()] = computed[:, rows[1], :, : known[into].max()]
        last = start[:, None] + torch.arange(n, device=device)  # (P, n) the last place that a new token sees
        seen = torch.arange(width, device=device) <= last[..., None]
        seen = seen[:, None].repeat(1, 1, heads // kv, 1)  # (P, 1, g·n, W)
        (rows, _), cells, places = new.nonzero().T, new.flatten().nonzero()[:, 0], last[new]  # (N,) new ones

        def attend(layer: int, qkv: Tensor) -> Tensor:
            layers[layer][:, rows, :, places] = qkv[:, heads:].unflatten(1, (2, kv))
            q = scatter(qkv[:, :heads], cells, p * n).view(p, n, kv, -1, d).permute(0, 2, 3, 1, 4)
            q = q.reshape(p, kv, -1, d)  # (P, K, g·n, D)
            out = F.scaled_dot_product_attention(q, *layers[layer], attn_mask=seen)
            return out.view(p, kv, -1, n, d).permute(0, 3, 1, 2, 4).reshape(p * n, heads, d)[cells]

        hidden = decoder.run(ids[new], decoder.turns(places), attend)  # (N, d)
        return Prefix(hidden[new.sum(-1).cumsum(0) - 1], layers, start + new.sum(-1))
