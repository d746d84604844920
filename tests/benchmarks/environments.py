"""Steps a second of the mathematics environment beside the same moves made with sympy, and episodes at once.

    python tests/benchmarks/environments.py [problems]

Both replay the same action sequences of a noisy expert, recorded beforehand; only resets and steps are timed,
in seconds of one core. The last line is JSON.
"""

import asyncio
import json
import sys
import time

import sympy

from rlkit.agents import ExpertAgent, NoisyAgent, run_episodes
from rlkit.environments.episode import Trajectory
from rlkit.environments.equations import Side, distance, parse_equation, parse_side
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError

FAMILIES = ("linear", "two_sided", "distribute", "combine", "fractions")
X = sympy.Symbol("x")


def ours(env: Mathematics, episodes: list[Trajectory]) -> float:
    """Steps a second of the environment."""
    began = time.process_time()
    for episode in episodes:
        env.reset(episode.problem)
        for step in episode.transitions:
            env.step(step.action, step.params)
    return sum(map(len, episodes)) / (time.process_time() - began)


def with_sympy(episodes: list[Trajectory]) -> float:
    """Steps a second of a plain sympy state: both sides rewritten, and each new state solved to check it."""
    began = time.process_time()
    for episode in episodes:
        left, right = map(to_sympy, parse_equation(episode.problem["equations"][0]))
        truth = sympy.solve(left - right, X)
        for step in episode.transitions:
            try:
                left, right = (move(side, step.action, str(step.params.get("value", ""))) for side in (left, right))
            except (UserError, ZeroDivisionError):
                continue
            assert sympy.solve(left - right, X) == truth
    return sum(map(len, episodes)) / (time.process_time() - began)


def to_sympy(side: Side) -> sympy.Expr:
    """The side as a sympy expression."""
    inner = (to_sympy(i) if isinstance(i, tuple) else X if i else 1 for _, i in side)
    return sympy.Add(*(sympy.Rational(c.numerator, c.denominator) * i for (c, _), i in zip(side, inner, strict=True)))


def move(side: sympy.Expr, action: str, value: str) -> sympy.Expr:
    """One side after an action."""
    if action in ("identify_operation", "state_answer"):
        return side
    if action in ("distribute", "combine_like_terms"):
        return sympy.expand(side)
    term = to_sympy(parse_side(value))
    if action in ("multiply_terms", "divide_terms"):
        if term in (0, 1) or term.free_symbols:
            return side
        return sympy.expand(side * term if action == "multiply_terms" else side / term)
    return side + term if action == "add_terms" else side - term


class Waiting(ExpertAgent):
    """An expert that thinks for 50 ms, as a model would; counts how many wait together."""

    waiting = most = 0

    async def select_action(self, state, valid_actions):
        Waiting.waiting += 1
        Waiting.most = max(Waiting.most, Waiting.waiting)
        await asyncio.sleep(0.05)
        Waiting.waiting -= 1
        return super().select_action(state, valid_actions)


def main(count: int = 2000) -> None:
    env = Mathematics(families=FAMILIES)
    problems = env.problems("train", count)
    episodes = run_episodes(NoisyAgent(ExpertAgent(), 0.2), env, problems)
    Waiting.most, began = 0, time.perf_counter()
    together = run_episodes(Waiting(), env, problems[:1000])
    seconds = time.perf_counter() - began
    distance.cache_clear()
    rates = {"rlkit, new problems": ours(env, episodes), "rlkit, problems seen before": ours(env, episodes)}
    peer = with_sympy(episodes[:50])
    print(f"{'':32} steps/s   ratio to sympy")
    for name, rate in {**rates, "sympy": peer}.items():
        print(f"{name:32} {rate:7.0f}   {rate / peer:7.1f}")
    print(f"{len(together)} episodes, {Waiting.most} at once: {seconds:.2f} s")
    result = {
        "steps_per_second": rates["rlkit, new problems"],
        "sympy_steps_per_second": peer,
        "episodes_at_once": Waiting.most,
        "seconds": seconds,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
