"""Texts that nearly repeat each other: near-duplicates in a file, and held-out problems in training rows.

A text is a set of hashed n-grams of words, numbers and symbols. N-grams that more than `tolerated` rows
share are left out: they are the template of a family of problems, not a problem.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

_TOKEN = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: Fibonacci hashing
_MASKED = np.uint64(1)  # stands for every number


def tolerated(rows: int) -> int:
    """In how many of `rows` texts an n-gram may stand before it counts as a template's: 2 to 10."""
    return min(10, max(2, rows // 10))


@lru_cache(1 << 18)
def _hash(token: str) -> int:
    """33 bits, the lowest of which says whether the token is a number."""
    return zlib.crc32(token.encode()) << 1 | token[0].isdigit()


class Tokens:
    """A text as (tokens,) hashes; `number` marks those that are numbers."""

    def __init__(self, text: str) -> None:
        words = _TOKEN.findall(text.lower())
        self.hashes = np.fromiter(map(_hash, words), np.uint64, len(words))
        self.number = (self.hashes & np.uint64(1)).astype(bool)

    def __len__(self) -> int:
        return len(self.hashes)

    def grams(self, n: int, mask: bool = False) -> np.ndarray:
        """Sorted distinct 32-bit hashes of the n-grams; one of the whole text when it is shorter.

        With `mask`, all numbers are alike: the same problem with other numbers has the same n-grams.
        """
        hashes = np.where(self.number, _MASKED, self.hashes) if mask else self.hashes
        width = min(n, len(hashes))
        if width == 0:
            return np.zeros(0, np.uint32)
        total = np.zeros(len(hashes) - width + 1, np.uint64)
        for k in range(width):
            total = (total + hashes[k : k + len(total)] + np.uint64(k + 1)) * _MULTIPLIER
        return np.unique((total >> np.uint64(32)).astype(np.uint32))

    def numbers(self) -> np.ndarray:
        """The hashes of the numbers, in their order."""
        return self.hashes[self.number]


def common(sets: Sequence[np.ndarray]) -> np.ndarray:
    """The n-grams that stand in more than `tolerated` of the sets, sorted."""
    everything = np.concatenate([np.zeros(0, np.uint32), *sets])
    grams, counts = np.unique(everything, return_counts=True)
    return grams[counts > tolerated(len(sets))]


def near_duplicates(
    sets: Sequence[np.ndarray], keys: Sequence[int], threshold: float = 0.7
) -> Iterator[tuple[int, int]]:
    """(row, earlier row) pairs whose n-gram sets overlap by at least `threshold` (Jaccard).

    Candidates come from MinHash with locality-sensitive hashing (Broder 1997), and are then compared
    exactly. Rows with different `keys` never match: a problem with other numbers is another problem.
    """
    from datasketch import MinHash, MinHashLSH

    permutations = MinHash(num_perm=64, scheme="affine32").permutations
    # 16 bands of 4: finds 98.8 % of the pairs at Jaccard 0.7 and 99.99 % at 0.8
    index = MinHashLSH(num_perm=64, params=(16, 4))
    for row, (grams, key) in enumerate(zip(sets, keys, strict=True)):
        if not len(grams):
            continue
        sketch = MinHash(num_perm=64, scheme="affine32", hashfunc=int, permutations=permutations)
        sketch.update_batch((grams ^ np.uint32(key)).tolist())
        for earlier in sorted(index.query(sketch)):  # type: ignore[type-var] - the keys are integers
            if keys[earlier] == key and _jaccard(grams, sets[earlier]) >= threshold:
                yield row, earlier
                break
        index.insert(row, sketch, check_duplication=False)


def _jaccard(a: np.ndarray, b: np.ndarray) -> float:
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)


class HeldOut:
    """Held-out texts that training rows are compared with, one row at a time.

    A row repeats a held-out text when it has most of the n-grams that are the text's own and, unless
    numbers are masked, all of its numbers in their order.

    Args:
        texts: the held-out texts.
        n: length of the n-grams.
        threshold: share of a text's own n-grams that makes a row a copy.
        mask: whether numbers count as alike.
    """

    least = 8
    """Own n-grams that a held-out text must have to be compared …"""
    least_share = 0.25
    """… and their least share of all its n-grams: what is mostly template has no content to copy."""

    def __init__(self, texts: Sequence[Tokens], n: int, threshold: float, mask: bool = False) -> None:
        self.n, self.mask, self.threshold = n, mask, threshold
        sets = [t.grams(n, mask) for t in texts]
        self._numbers = [t.numbers() for t in texts]
        self._sizes = np.array([len(s) for s in sets], int)
        flat = np.concatenate([np.zeros(0, np.uint32), *sets])
        order = np.argsort(flat, kind="stable")
        self._grams, self._owner = flat[order], np.repeat(np.arange(len(sets)), self._sizes)[order]
        self._rows_with = _repeats(self._grams)  # texts, and later rows, that have the n-gram
        self._hits: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._rows = 0

    def add(self, row: int, text: Tokens) -> None:
        """Compare a training row."""
        self._rows += 1
        grams = text.grams(self.n, self.mask)
        low, high = np.searchsorted(self._grams, grams, "left"), np.searchsorted(self._grams, grams, "right")
        found = np.flatnonzero(high > low)
        if len(found):
            places = np.concatenate([np.arange(low[k], high[k]) for k in found])
            self._rows_with[places] += 1
            self._hits.append((row, places, text.numbers()))

    def found(self) -> Iterator[tuple[int, int, float]]:
        """(row, held-out text, share of its own n-grams) of each row that repeats one."""
        own = self._rows_with <= tolerated(len(self._sizes) + self._rows)
        totals = np.bincount(self._owner[own], minlength=len(self._sizes))
        comparable = totals >= np.maximum(self.least, self.least_share * self._sizes)
        for row, places, numbers in self._hits:
            shared = np.bincount(self._owner[places[own[places]]], minlength=len(totals))
            share = np.where(comparable, shared / np.maximum(totals, 1), 0)
            best = int(share.argmax())
            if share[best] >= self.threshold and (self.mask or _within(self._numbers[best], numbers)):
                yield row, best, float(share[best])


def _repeats(ordered: np.ndarray) -> np.ndarray:
    """How often the value at each place of a sorted array stands in it."""
    _, inverse, counts = np.unique(ordered, return_inverse=True, return_counts=True)
    return counts[inverse]


def _within(part: np.ndarray, whole: np.ndarray) -> bool:
    """Whether `part` is `whole` with some elements left out."""
    rest = iter(whole.tolist())
    return all(value in rest for value in part.tolist())
