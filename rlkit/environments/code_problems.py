"""Programming problems with a constant baked in, a reference program and tests whose answers are computed."""

from collections.abc import Callable
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np


class Family(NamedTuple):
    """A kind of problem: what is asked, the answer as a function of (argument, k), a reference program, and
    whether the argument is a list of numbers ("xs") or a text ("s")."""

    ask: str
    answer: Callable[[Any, int], Any]
    reference: str
    argument: str = "xs"


def _longest_run(xs: list[int], k: int) -> int:
    return max((len(list(run)) for above, run in groupby(xs, lambda x: x > k) if above), default=0)


def _pairs(xs: list[int], k: int) -> int:
    return sum(xs[i] + xs[j] == k for i in range(len(xs)) for j in range(i))


FAMILIES: tuple[Family, ...] = (
    Family(
        "the sum of the numbers in xs that are divisible by {k}",
        lambda xs, k: sum(x for x in xs if x % k == 0),
        "def solve(xs):\n    return sum(x for x in xs if x % {k} == 0)\n",
    ),
    Family(
        "the list of sums of every {k} neighbouring numbers in xs, in order",
        lambda xs, k: [sum(xs[i : i + k]) for i in range(len(xs) - k + 1)],
        "def solve(xs):\n    total = sum(xs[:{k}])\n"
        "    sums = [total] if len(xs) >= {k} else []\n"
        "    for i in range({k}, len(xs)):\n        total += xs[i] - xs[i - {k}]\n"
        "        sums.append(total)\n"
        "    return sums\n",
    ),
    Family(
        "the number of pairs of positions in xs whose numbers add up to {k}",
        _pairs,
        "def solve(xs):\n    seen = {{}}\n    pairs = 0\n    for x in xs:\n"
        "        pairs += seen.get({k} - x, 0)\n"
        "        seen[x] = seen.get(x, 0) + 1\n    return pairs\n",
    ),
    Family(
        "the length of the longest run of neighbouring numbers in xs above {k}",
        _longest_run,
        "def solve(xs):\n    best = run = 0\n    for x in xs:\n        run = run + 1 if x > {k} else 0\n"
        "        best = max(best, run)\n    return best\n",
    ),
    Family(
        "the list of running sums of xs, each taken modulo {k}",
        lambda xs, k: [total % k for total in accumulate(xs)],
        "def solve(xs):\n    total = 0\n    sums = []\n    for x in xs:\n        total = (total + x) % {k}\n"
        "        sums.append(total)\n    return sums\n",
    ),
    Family(
        "xs rotated to the left by {k} places",
        lambda xs, k: xs[k % len(xs) :] + xs[: k % len(xs)] if xs else [],
        "def solve(xs):\n    if not xs:\n        return []\n    cut = {k} % len(xs)\n"
        "    return xs[cut:] + xs[:cut]\n",
    ),
    Family(
        "every {k}-th letter of s, beginning with the first",
        lambda s, k: s[::k],
        "def solve(s):\n    return s[::{k}]\n",
        "s",
    ),
    Family(
        "the letters that occur at least {k} times in s, sorted, as one string",
        lambda s, k: "".join(sorted(c for c in set(s) if s.count(c) >= k)),
        "def solve(s):\n    counts = {{}}\n    for c in s:\n        counts[c] = counts.get(c, 0) + 1\n"
        '    return "".join(sorted(c for c, n in counts.items() if n >= {k}))\n',
        "s",
    ),
)


def draw(rng: np.random.Generator, visible: int, hidden: int) -> dict[str, Any]:
    """A problem: description, reference, and [argument, answer] pairs that the agent may see or not."""
    family = FAMILIES[int(rng.integers(len(FAMILIES)))]
    k = int(rng.integers(2, 10))
    arguments = [_argument(family, rng, most) for most in [6] * visible + [0, 1] + [40] * (hidden - 2)]
    cases = [[argument, family.answer(argument, k)] for argument in arguments]
    return {
        "description": f"Write solve({family.argument}) that returns {family.ask.format(k=k)}.",
        "reference": family.reference.format(k=k),
        "visible": cases[:visible],
        "hidden": cases[visible:],
    }


def _argument(family: Family, rng: np.random.Generator, most: int) -> list[int] | str:
    size = most if most < 2 else int(rng.integers(most // 2, most + 1))
    if family.argument == "s":
        return "".join(chr(97 + int(c)) for c in rng.integers(5, size=size))
    return [int(x) for x in rng.integers(-9, 15, size=size)]
