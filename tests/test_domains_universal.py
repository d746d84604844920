# ruff: noqa: E501
"""No answer is right for two different truths: over all scorers.

Add a row to SCORERS: a data_source, how an answer is marked, truths of which no two have the same value (none is another's
percentage, multiple of a thousand or neighbour within 0.1 %), and how one is written.
"""

import json
import random

import pytest
from cases import records

from rlkit.rewards.grading import grade

RNG = random.Random(5)
NUMBERS = [str(n) for n in (0, 1, -1, 7, *range(1001, 1009))] + [f"0.{n}37" for n in range(11, 17)]
FORMULAS = [rf"\sqrt{{{n}}}" for n in (2, 3, 5, 6, 7, 10, 11, 13, 14, 15)] + [
    r"2\pi", "e", "x^2+1", "x+y", "(2,3)", "[2,3)", r"\{4,5,6\}", "x=9", "x>3", "x<3", r"|x|<4", r"\infty", r"-\infty",
    r"\emptyset", r"\mathbb{R}", r"\frac{3}{7}", r"\frac{4}{7}", r"10^{20}", r"10^{-20}", r"e^{-100}", "1,234", r"3 \pmod 7",
    r"4 \pmod 7", r"x^2+C", r"x^3+C", r"\text{Monday}", r"\text{May 2020}", r"\text{May 5, 2020}", r"\text{May 5}",
    "3:4", "11_5", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{cases}x=1\\y=4\end{cases}", r"\frac{\pi}{4}+k\pi",
    "2n+1", r"(-\infty,8)\cup(9,\infty)", r"2\text{ hours }35\text{ minutes}", r"8\text{ hens}, 9\text{ goats}", "E", "i",
]  # fmt: skip
QUANTITIES = [
    "2.5 m", "1.6e-19 C", "20 degC", "451 K", "5 kJ/mol", "ribosome", "Na+", "H2O", "6.02e23", "17 W/Hz", "44 dB",
]  # fmt: skip
PRIMES = [n for n in range(11, 1300) if all(n % k for k in range(2, 37) if k < n)]
FIGURES = [
    *(str(n) for n in PRIMES[:60]),
    *(f"{n}.{n % 9 + 1}" for n in PRIMES[60:120]),
    *(f"-{n}" for n in PRIMES[120:140]),
    *(f"{n / 1000:.4f}" for n in PRIMES[140:160]),
    *(f"{n}.{n % 7 + 1}%" for n in PRIMES[160:180]),
    "0", "North", "South Dakota", "2019-20", "yes", "1|2", "1|2|3", "North|South", "8,765,432", "$9,200.5", "1e-9",
    "9007199254740992", "9007199254740993", "1999-2000", "n/a", "3rd", "5²", "A", "total", "1.6e-19",
]  # fmt: skip
NAMES = [a + b for a in "abcdefghij" for b in "klmnopqrstuvwxyzabcd"]
ORDERS = [RNG.sample(NAMES, 3 + k % 3) for k in range(80)]
GRIDS = [[[RNG.randrange(10) for _ in range(2 + k % 3)] for _ in range(3 + k % 4)] for k in range(200)]
TABLES = [
    {"header": ["House", "Pet"], "rows": [[str(i + 1), p] for i, p in enumerate(RNG.sample(NAMES, 3))]}
    for _ in range(80)
]
BOX, TAG = r"\boxed{%s}", "<answer>%s</answer>"
SCORERS = {
    "math__x": (BOX, NUMBERS + FORMULAS, str),
    "stem_web": (BOX, NUMBERS[4:] + QUANTITIES, str),
    "stem__supergpqa": (BOX, list("ABCDEFGHIJ"), str),
    "table__hitab": (BOX, FIGURES, str),
    "logic__ordering_puzzle_dataset": (TAG, ORDERS, ", ".join),
    "logic__graph_logical_dataset": (TAG, NAMES, str),
    "simulation__arcagi1": (TAG, GRIDS, json.dumps),
    "logic__zebra_puzzle_dataset": (TAG, TABLES, json.dumps),
}
ATOMS, ODD = (
    [case["text"] for case in records("odd_answers") if case["kind"] == kind] for kind in ("atom", "odd")
)
ODD += ["9" * 90, "9" * 5000, "[0x" + "f" * 5000 + "]"]


def right(name: str, answer: str) -> list:
    """The truths that an answer is right for."""
    form, truths, _ = SCORERS[name]
    rewards = [grade(name, form.replace("%s", answer), truth, {}) for truth in truths]
    assert not any(r.error or "exception" in r.parts for r in rewards), answer
    return [truth for truth, reward in zip(truths, rewards, strict=True) if reward.correct]


@pytest.mark.parametrize(
    "every", [15, pytest.param(1, marks=pytest.mark.slow(reason="each answer, for minutes"))]
)
@pytest.mark.parametrize("name", SCORERS)
def test_no_answer_is_right_for_two_truths(name, every):
    _, truths, text = SCORERS[name]
    spelled = list(map(text, truths))
    assert len(set(spelled)) == len(spelled)
    rng = random.Random(5)
    joined = ["".join(rng.choices(ATOMS, k=rng.randint(2, 4))) for _ in range(110)]
    of_sets = name in ("math__x", "stem_web")  # whose readers take long, and a list for a set
    for answer in [*ATOMS, *ODD, *joined][:: every if of_sets else min(every, 3)]:
        assert len(right(name, answer)) <= 1, answer
    if of_sets:
        return
    hedges = [f"{a} or {b}" for a, b in zip(spelled, spelled[7:], strict=False)][:20]
    for answer in [*hedges, "|".join(spelled), *(mark.join(spelled[:9]) for mark in (", ", " ", "\n"))]:
        assert right(name, answer) == [], answer


@pytest.mark.parametrize("name", SCORERS)
def test_every_truth_is_right_for_itself_alone(name):
    _, truths, text = SCORERS[name]
    for truth in truths[:: 1 if len(truths) < 50 else 5]:
        assert right(name, text(truth)) == [truth]
