"""The algebra against sympy, the documented rewards, and what cannot be farmed."""

import pytest
import sympy
from cases import cases, table
from sympy.parsing.sympy_parser import implicit_multiplication_application, parse_expr, standard_transformations

from rlkit.environments.equations import distance, parse_equation, parse_side, render, rewrite, solve
from rlkit.environments.mathematics import Mathematics
from rlkit.seeds import generator

FAMILIES = ("linear", "two_sided", "distribute", "combine", "fractions")


def sympy_solution(text: str) -> dict[str, sympy.Rational]:
    """Solve a rendered state with sympy's own parser, which shares no code with ours."""
    rules = (*standard_transformations, implicit_multiplication_application)
    left, right = (parse_expr(side, transformations=rules) for side in text.split("="))
    (symbol,) = (left - right).free_symbols
    (found,) = sympy.solve(left - right, symbol)
    return {str(symbol): found}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_changes_the_solution_by_sympys_reckoning(family):
    env = Mathematics(families=(family,))
    rng = generator("mathematics test", family)
    seen = 0
    for problem in env.problems("train", 12, 3):
        truth = {name: sympy.Rational(v) for name, v in problem["solution"].items()}
        env.reset(problem)
        assert sympy_solution(env.render()) == truth
        while actions := [a for a in env.get_valid_actions() if a.endswith("terms") or a == "distribute"]:
            before = env.render()
            action = str(rng.choice(actions))
            env.step(action, env.sample_params(action, rng))
            if env.render() != before:
                seen += 1
                assert sympy_solution(env.render()) == truth, (before, action)
    assert seen > 30


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_solves_every_family_and_what_it_earns_is_what_was_possible(family):
    env = Mathematics(families=(family,))
    for problem in env.problems("test", 40, 1):
        env.reset(problem)
        start = distance(parse_equation(problem["equations"][0]))
        total, steps = 0.0, 0
        while env.get_valid_actions():
            result = env.step(*env.expert())
            total, steps = total + result.reward, steps + 1
        assert result.info["success"]
        assert total == 1.5 + 2.0 * start + 3.0 and steps == start + 2


@pytest.mark.parametrize(("action", "value"), cases("impossible_steps"))
def test_impossible_steps_cost_and_leave_the_state(action, value):
    env = Mathematics()
    env.reset("3x + 7 = 16")
    result = env.step(action, {"value": value})
    assert (result.info["valid"], result.reward, result.done) == (False, -1.0, False)
    assert env.render() == "3x + 7 = 16"


@pytest.mark.parametrize(*table("equations_rendered"))
def test_rendering_is_read_back_as_the_same_state(text):
    equation = parse_equation(text)
    assert parse_equation(render(equation)) == equation
    assert solve(equation) == sympy_solution(render(equation))["x"]


def test_unusual_writing_is_understood():
    assert parse_side("2 x − 3(x+1)") == parse_side("2*x - 3*(x + 1)")


def test_long_runs_of_steps_keep_the_state_small():
    equation = parse_equation("3x + 7 = 16")
    with pytest.raises(Exception, match="too long"):
        for _ in range(40):
            equation = rewrite(equation, "multiply_terms", "9")
