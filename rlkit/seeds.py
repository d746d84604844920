"""Named random streams: every random choice is a pure function of the run's seed and of what it is for.

Sums of seeds collide and `np.random.SeedSequence((1, 2))` equals `SeedSequence((1, 2, 0))`, so names are
hashed instead. Because a stream depends on names such as ("rollout", step) and on no earlier draw, a
resumed run needs no generator state to continue with the same bits.
"""

import hashlib
import json
from pathlib import Path

import numpy as np


def derive(*names: str | int) -> int:
    """A 63-bit seed for the stream with these names, e.g. `derive("eval", seed, step)`."""
    text = json.dumps(names, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*names: str | int) -> np.random.Generator:
    """A numpy generator on the stream with these names."""
    return np.random.default_rng(derive(*names))


def content_hash(value: object, length: int = 16) -> str:
    """Hex digits of the SHA-256 of `value` as canonical JSON (sorted keys, no spaces).

    Raises TypeError when `value` holds something JSON has no form for.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def file_hash(path: str | Path) -> str:
    """The hex digits of the SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
