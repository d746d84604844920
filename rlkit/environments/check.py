"""Does an environment keep its contract? What Gymnasium's checker is to spaces, this is to text worlds."""

import json
import pickle
from collections.abc import Generator, Iterator

import numpy as np

from rlkit.environments.base import BaseEnvironment, Params, Problem
from rlkit.errors import UserError
from rlkit.seeds import generator

GARBAGE: tuple[Params, ...] = (
    {},
    {"value": ""},
    {"value": "\x00🙂" * 50},
    {"value": ["?"]},
    {"surprise": None},
    {"value": "9" * 5000},
)


def check_environment(environment: BaseEnvironment, episodes: int = 10, seed: int = 0) -> None:
    """Play `episodes` random ones and hold the environment, written in its short or its full form, to its contract.

    Checked: problems are JSON, reproducible and disjoint between splits; observations are strings and
    rewards finite; the same actions give the same results on a copy, on a pickle and on another instance;
    unknown actions and senseless parameters cost, and neither raise nor end the episode; some episode ends before
    `max_steps` ends it; action texts survive formatting and parsing; the scripted expert, where there is one,
    succeeds.

    Raises:
        UserError: one line a violation.
    """
    found: dict[str, None] = {}
    try:
        for violation in _violations(environment, episodes, seed):
            found[violation] = None
    except UserError as error:
        found[str(error)] = None
    except Exception as error:  # whatever the environment raises is what its author wants to know
        found[f"it raises {type(error).__name__}: {error}"] = None
    if found:
        raise UserError(
            f"{environment.kind_name!r} breaks the contract of an environment:\n- " + "\n- ".join(found)
        )


def _violations(environment: BaseEnvironment, episodes: int, seed: int) -> Iterator[str]:
    problems, ended = environment.problems("train", episodes, seed), False
    if problems != environment.problems("train", episodes, seed):
        yield "problems() differs between two calls with the same seed: draw from `rng` alone"
    texts = {json.dumps(p, sort_keys=True) for p in problems}
    test = {json.dumps(p, sort_keys=True) for p in environment.problems("test", episodes, seed)}
    if texts & test:
        yield "a problem occurs in both splits"
    for index, problem in enumerate(problems):
        ended |= yield from _episode(environment, problem, generator("check", seed, index))
        ended |= yield from _expert(environment, problem)
    if not ended:
        yield (
            f"no episode ended within max_steps = {environment.max_steps}: return done, with info['success'], write "
            "expert(), or raise max_steps"
        )


def _episode(
    environment: BaseEnvironment, problem: Problem, rng: np.random.Generator
) -> Generator[str, None, bool]:
    """Random play; returns whether the environment ended it."""
    fresh = _another(environment)
    yield from _garbage(environment, problem)
    environment.reset(problem)
    fresh.reset(problem)
    twins = [pickle.loads(pickle.dumps(environment)), environment.model_copy(deep=True), fresh]
    for _ in range(environment.max_steps):
        action = str(rng.choice(environment.offered_actions()))
        params = environment.sample_params(action, rng)
        if environment.parse_action(environment.format_action(action, params)) != (action, dict(params)):
            yield f"{action} {params} does not survive format_action and parse_action"
        results = [e.step(action, params) for e in (environment, *twins)]
        if any(r != results[0] for r in results[1:]):
            yield f"{action} {params} gives different results on a pickle, a copy or another instance"
        if not isinstance(environment.render(), str):
            yield "render() returns no string"
        if results[0].done:
            break
    return not results[0].info["truncated"]


def _another(environment: BaseEnvironment) -> BaseEnvironment:
    """Another instance with the same options; a copy where the class has an __init__ of its own that takes none."""
    try:
        return type(environment).model_validate(environment.model_dump())
    except TypeError:
        return environment.own_copy()


def _garbage(environment: BaseEnvironment, problem: Problem) -> Iterator[str]:
    environment.reset(problem)
    names = list(environment.actions) or environment.offered_actions()
    result = environment.step("no_such_action")
    if result.info.get("valid") or result.reward > 0 or (result.done and environment.max_steps > 1):
        yield "an unknown action is not refused with a penalty"
    for action in names:
        for params in GARBAGE:
            environment.reset(problem)
            try:
                environment.step(action, params)
            except UserError as error:
                yield f"{error} Raise InvalidAction where an agent's parameters make no sense."


def _expert(environment: BaseEnvironment, problem: Problem) -> Generator[str, None, bool]:
    """The expert's play; returns whether the environment ended it."""
    environment.reset(problem)
    if type(environment).expert is BaseEnvironment.expert:
        return False
    for _ in range(environment.max_steps):
        result = environment.step(*environment.expert())
        if not result.info["valid"]:
            yield f"the expert takes an invalid action: {result.observation}"
            break
        if result.done and not result.info["truncated"]:
            if not result.info["success"]:
                yield "the expert does not succeed"
            return True
    else:
        yield "the expert does not finish within max_steps"
    return False
