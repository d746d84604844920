"""Texts that nearly repeat each other: near-duplicates in a file, and held-out problems in training rows.

A text is a set of hashed n-grams of words, numbers and symbols. N-grams that more than `tolerated` rows
share are left out: they are the template of a family of problems, not a problem.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

_TOKEN = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")
LEAST_OWN, LEAST_OWN_SHARE = 8, 0.25
"""Own n-grams that a held-out text must have to be compared, and their least share of all its n-grams."""


def tolerated(rows: int) -> int:
    """In how many of `rows` texts an n-gram may stand before it counts as a template's: 2 to 10."""
    return min(10, max(2, rows // 10))


def ngrams(text: str, n: int, mask: bool = False) -> np.ndarray:
    """Sorted distinct 32-bit hashes of a text's n-grams; one of the whole text when it is shorter.

    With `mask`, all numbers are alike: the same problem with other numbers has the same n-grams.
    """
    words = _TOKEN.findall(text.lower())
    if mask:
        words = ["0" if word[0].isdigit() else word for word in words]
    grams = {
        zlib.crc32(" ".join(words[k : k + n]).encode()) for k in range(max(len(words) - n + 1, bool(words)))
    }
    return np.array(sorted(grams), np.uint32)


def numbers(text: str) -> list[str]:
    """The numbers of a text, in their order."""
    return [word for word in _TOKEN.findall(text.lower()) if word[0].isdigit()]


def common(sets: Sequence[np.ndarray]) -> np.ndarray:
    """The n-grams that stand in more than `tolerated` of the sets, sorted."""
    everything = np.concatenate([np.zeros(0, np.uint32), *sets])
    grams, counts = np.unique(everything, return_counts=True)
    return grams[counts > tolerated(len(sets))]


def repeats(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(text, earlier text) pairs that are nearly equal and have the same numbers, their common template aside."""
    sets = [ngrams(text, 3) for text in texts]
    template = common(sets)
    own = [np.setdiff1d(grams, template, assume_unique=True) for grams in sets]
    return near_duplicates(own, [zlib.crc32(" ".join(numbers(text)).encode()) for text in texts])


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


def copies(
    rows: Sequence[str], texts: Sequence[str], n: int, threshold: float, mask: bool = False
) -> Iterator[tuple[int, int, float]]:
    """(row, text, share) of each row that has most of the n-grams that are a held-out text's own and, unless numbers
    are masked, all of its numbers in their order.

    Args:
        n: length of the n-grams.
        threshold: least share of a text's own n-grams.
        mask: whether numbers count as alike.
    """
    sets = [ngrams(text, n, mask) for text in texts]
    known = np.unique(np.concatenate([np.zeros(0, np.uint32), *sets]))
    if not len(known):
        return
    held, found = _matrix(sets, known), _matrix((ngrams(row, n, mask) for row in rows), known)
    own = np.flatnonzero(held.sum(axis=0) + found.sum(axis=0) <= tolerated(len(texts) + len(rows)))
    sizes, held = held.sum(axis=1), held[:, own]
    totals = held.sum(axis=1)
    # What is mostly template has no content to copy.
    comparable = totals >= np.maximum(LEAST_OWN, LEAST_OWN_SHARE * sizes)
    shared = found[:, own] @ held.T
    for row in np.flatnonzero(np.diff(shared.indptr)):
        share = np.where(comparable, shared[[row]].toarray()[0] / np.maximum(totals, 1), 0)
        best = int(np.argmax(share))
        if share[best] >= threshold and (mask or _within(numbers(texts[best]), numbers(rows[int(row)]))):
            yield int(row), best, float(share[best])


def _matrix(sets: Iterable[np.ndarray], known: np.ndarray) -> Any:
    """(sets, known) sparse counts of which of the sorted known n-grams each set has."""
    from scipy.sparse import csr_array

    near = ((grams, np.searchsorted(known, grams).clip(max=len(known) - 1)) for grams in sets)
    places = [at[known[at] == grams] for grams, at in near]
    ends = np.cumsum([0, *map(len, places)])
    indices = np.concatenate([np.zeros(0, int), *places])
    return csr_array((np.ones(len(indices), int), indices, ends), shape=(len(places), len(known)))


def _within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether `part` is `whole` with some elements left out."""
    rest = iter(whole)
    return all(value in rest for value in part)
