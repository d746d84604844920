# ruff: noqa: E501
"""No answer is right for two different truths: over all scorers.

Add a row to SCORERS: a data_source, how an answer is marked, truths of which no two have the same value (none is another's
percentage, multiple of a thousand or neighbour within 0.1 %), and how one is written.
"""

import json
import random

import pytest

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
ATOMS = [
    "1e999", "-1e999", "1e-999", "0.000000", "0", r"\infty", r"\frac{0}{0}", r"\frac{1}{0}", r"\emptyset", r"\{\}", "()",
    "[]", "x", "y", "i", "e", "E", r"\pi", "nan", "inf", "K", r"\text{ K}", r"\text{degF}", "units", r"\text{unit}", "=",
    r"\approx", "<", r"\in", r"\mathbb{R}", r"\cup", r"\pm", "or", "and", ",", "|", ":", ";", "!", "^", "_", "10^{10^{10}}",
    "e^{-1000}", "0!", r"\log 0", r"\ln(-1)", "0^0", r"\sum_{n=1}^{\infty}n", r"\int", r"\lim", r"\binom{0}{0}",
    r"0.\overline{9}", "0...", "$", r"\$", "a", "A", "(A)", "B.", "(A) or (B)", "A. B. C. D.", "total", "old", "million",
    "\u221e", "\u0660", r"\ldots", r"\mod 7", r"\equiv", "C", "k", "for all", "none", "1,234", "234, 1", "May 29, 2020",
    "dBm/Hz", "m^9^9^9^9", r"\begin{cases}", r"\\", "{", "}",
]  # fmt: skip
ODD = [
    "", " ", "-0", "0.0", "1e308 billion", "NaN%", "-inf", "∞", "0/0", "1e5000", "9" * 90, "9" * 5000, "0x10", "1_000", "None",
    "null", "True", "any", "all", "*", ".*", "%", "?", "n", "{}", "[[]]", "[[[]]]", "||", ".", "...", "1|2|3|4", "yes or no",
    "5 or 7", "≈", "about", "5 million", "5%", "500%", "0.05", "50", "1 200", "1,2", "1 2", "12 or 13", "11|13|17",
    "11, 13, 17", "11 to 1300", "11-1300", ">10", "<1300", "≥ 11", "11±1300", "11…1300", "2018.5", "101.5", "9.007e15",
    "9007199254740992.5", "North or South", "North South", "North, South Dakota", "none of the above", "both", "A, B, C, D",
    "ABCD", "\u200b", "\x00", "\ud800", "é", "９", "１１", "①", "²", "½", "Ⅻ", "٥", "one", "zero", "eleven or thirteen", "twenty",
    "dozen", "%s", "<answer>", "</answer>", "</think>", "<think>", "Final Decision: Yes", "correct", "the right answer",
    "as in the table", "see above", "[0-9]+", "\\d+", "^$", "0 0\n0 0", "[[0, 0], [0, 0]]", "[[0,0],[0,0]] or [[1,1],[1,1]]",
    "0\n0", "[[0-9]]", "[[.5, .5], [.5, .5]]", "[[True]]", "[[1e0]]", "['a', 'b'] or ['b', 'a']", "[['a', 'b'], ['b', 'a']]",
    "{'a', 'b'}", "a -> a -> a", "a|b", "not a", "{'header': [], 'rows': []}", "{'header': ['House', 'Pet'], 'rows': [[]]}",
    "{'header': ['House', 'Pet'], 'rows': [['1', ''], ['2', ''], ['3', '']]}", "[0x" + "f" * 5000 + "]", "'" * 99, '"', "`",
    "{'header': ['House', 'Pet'], 'rows': [['1', None], ['2', None], ['3', None]]}", "**",
]  # fmt: skip


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
    for answer in [*ATOMS, *ODD, *joined][:: every if of_sets else 1]:
        assert len(right(name, answer)) <= 1, answer
    if of_sets:
        return
    hedges = [f"{a} or {b}" for a, b in zip(spelled, spelled[7:], strict=False)][:20]
    for answer in [*hedges, "|".join(spelled), *(mark.join(spelled[:9]) for mark in (", ", " ", "\n"))]:
        assert right(name, answer) == [], answer


@pytest.mark.parametrize("name", SCORERS)
def test_every_truth_is_right_for_itself_alone(name):
    _, truths, text = SCORERS[name]
    for truth in truths[:: 1 if len(truths) < 80 else 7]:
        assert right(name, text(truth)) == [truth]
