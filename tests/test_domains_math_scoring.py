"""Mathematics: what no case of tests/data/verdicts/math.jsonl says."""

import random
from itertools import product

import sympy

from rlkit.domains.math.tasks import score


def graded(answer, truth):
    return score(f"So it is $\\boxed{{{answer}}}$.", truth, {}).correct


def test_one_letter_can_be_negative_without_another():
    forms = ("|%s%s|", "|%s|%s", "%s|%s|")
    for a, b in product("acxyz", "pqrstu"):
        assert not any(graded(form % (a, b), a + b) for form in forms), (a, b)
        assert not graded(f"|{a}|-{b}", f"{a}-{b}"), (a, b)
        assert not any(graded(rf"\max({a},{b})", truth) for truth in (a, b)), (a, b)


def test_random_polynomials_equal_their_expansions_and_not_their_neighbours():
    """An independent check with sympy on expressions that nobody chose."""
    rng = random.Random(5)
    x, y = sympy.symbols("x y")
    for _ in range(40):
        a, b, c = (rng.randint(-9, 9) for _ in range(3))
        factored = f"({a}*x+({b}))*(y+({c}))"
        expanded = str(sympy.expand((a * x + b) * (y + c))).replace("**", "^")
        assert graded(factored, expanded) and not graded(factored, f"{expanded}+1")
