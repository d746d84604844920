"""Texts that nearly repeat each other: near-duplicates in a file, and held-out problems in training rows.

A text is a set of hashed n-grams of words, numbers and symbols. N-grams of more than a few texts are left out: they are
the template of a family of problems, not a problem.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

ALIKE = 0.7
"""Least share of n-grams that near-duplicates have in common, and that a copy has of a held-out text."""
LEAST_OWN, LEAST_OWN_SHARE = 8, 0.25
"""Own n-grams that a held-out text must have to be compared, and their least share of all its n-grams."""


def near_duplicates(texts: Sequence[str]) -> dict[int, int]:
    """Of each text that nearly repeats an earlier one, with the same numbers, the first such."""
    own, _ = _own_ngrams(texts, 3)
    sizes, numbers, found = own.sum(axis=1), _numbers(texts), dict[int, int]()
    for later, earlier, shared in _shared(own, own):
        alike = (earlier < later) & (shared >= ALIKE * (sizes[later] + sizes[earlier] - shared))
        for a, b in sorted(zip(later[alike].tolist(), earlier[alike].tolist(), strict=True)):
            if a not in found and numbers[a] == numbers[b]:
                found[a] = b
    return found


def copies(texts: Sequence[str], held_out: Sequence[str]) -> dict[int, tuple[int, float]]:
    """Of each text that has most n-grams of a held-out text, and all its numbers in their order, the nearest such text
    and the share."""
    own, sizes = _own_ngrams([*texts, *held_out], 5)
    mine, theirs = own[: len(texts)], own[len(texts) :]
    totals, numbers, asked = theirs.sum(axis=1), _numbers(texts), _numbers(held_out)
    comparable = totals >= np.maximum(LEAST_OWN, LEAST_OWN_SHARE * sizes[len(texts) :])
    found: dict[int, tuple[int, float]] = {}
    for text, other, shared in _shared(mine, theirs):
        share = shared / totals[other]
        alike = comparable[other] & (share >= ALIKE)
        nearest = zip(-share[alike], text[alike].tolist(), other[alike].tolist(), strict=True)
        for much, a, b in sorted(nearest):
            rest = iter(numbers[a])
            if a not in found and all(number in rest for number in asked[b]):
                found[a] = b, float(-much)
    return found


def _own_ngrams(texts: Sequence[str], n: int) -> tuple[Any, np.ndarray]:
    """(texts, n-grams) sparse, 1 where a text has one of those that only few texts have, and (texts,) the number of all
    distinct n-grams of each; a text shorter than n is one."""
    from scipy.sparse import csr_array

    grams = []
    for text in texts:
        words = re.findall(r"\d+|[^\W\d_]+|[^\w\s]|_", text.lower())
        starts = range(max(len(words) - n + 1, bool(words)))
        hashed = {zlib.crc32(" ".join(words[k : k + n]).encode()) for k in starts}
        grams.append(np.fromiter(hashed, np.uint32, len(hashed)))
    sizes = np.array([len(some) for some in grams], int)
    everything = np.concatenate([np.zeros(0, np.uint32), *grams])
    _, columns, counts = np.unique(everything, return_inverse=True, return_counts=True)
    own = counts[columns] <= min(10, max(2, len(texts) // 10))
    places = np.repeat(np.arange(len(texts)), sizes)[own], columns[own]
    return csr_array((np.ones(len(places[0]), int), places), shape=(len(texts), len(counts))), sizes


def _shared(left: Any, right: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of pairs of texts that have n-grams in common: place on the left, place on the right, and how many; a thousand
    of the left at a time."""
    for start in range(0, left.shape[0], 1000):
        pairs = (left[start : start + 1000] @ right.T).tocoo()
        yield pairs.row + start, pairs.col, pairs.data


def _numbers(texts: Sequence[str]) -> list[list[str]]:
    return [re.findall(r"\d+", text) for text in texts]
