"""Does an environment keep its contract? What Gymnasium's checker is to spaces, this is to text worlds."""

import json
import pickle
from collections.abc import Iterator

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
    """Play `episodes` random ones and hold the environment to its contract.

    Checked: problems are JSON, reproducible and disjoint between splits; observations are strings and
    rewards finite; the same actions give the same results on a copy, on a pickle and on another instance;
    unknown actions and senseless parameters cost, and neither raise nor end the episode; every episode ends;
    action texts survive formatting and parsing; the scripted expert, where there is one, succeeds.

    Raises:
        UserError: one line a violation.
    """
    found: dict[str, None] = {}
    try:
        for violation in _violations(environment, episodes, seed):
            found[violation] = None
    except Exception as error:  # whatever the environment raises is what its author wants to know
        found[f"it raises {type(error).__name__}: {error}"] = None
    if found:
        raise UserError(
            f"{environment.kind_name!r} breaks the contract of an environment:\n- " + "\n- ".join(found)
        )


def _violations(environment: BaseEnvironment, episodes: int, seed: int) -> Iterator[str]:
    if not environment.actions:
        yield "`actions` is empty: name every action and say what it does"
        return
    problems = environment.problems("train", episodes, seed)
    if problems != environment.problems("train", episodes, seed):
        yield "problems() differs between two calls with the same seed: draw from `rng` alone"
    try:
        texts = {json.dumps(p, sort_keys=True) for p in problems}
    except TypeError as error:
        yield f"a problem is no JSON mapping: {error}"
        return
    test = {json.dumps(p, sort_keys=True) for p in environment.problems("test", episodes, seed)}
    if texts & test:
        yield "a problem occurs in both splits"
    for index, problem in enumerate(problems):
        yield from _episode(environment, problem, generator("check", seed, index))
        yield from _expert(environment, problem)


def _episode(environment: BaseEnvironment, problem: Problem, rng: np.random.Generator) -> Iterator[str]:
    observation = environment.reset(problem)
    if not isinstance(observation, str):
        yield f"reset() returns a {type(observation).__name__}, not a string"
        return
    yield from _garbage(environment, problem)
    environment.reset(problem)
    fresh = type(environment).model_validate(environment.model_dump())
    fresh.reset(problem)
    twins = [pickle.loads(pickle.dumps(environment)), environment.model_copy(deep=True), fresh]
    for _ in range(environment.max_steps):
        valid = environment.get_valid_actions()
        if not valid or not set(valid) <= set(environment.actions):
            yield f"get_valid_actions() returns {valid}: give names out of `actions`, at least one until done"
            return
        action = str(rng.choice(valid))
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
    if environment.get_valid_actions():
        yield "get_valid_actions() is not empty after the episode is over"


def _garbage(environment: BaseEnvironment, problem: Problem) -> Iterator[str]:
    result = environment.step("no_such_action")
    if result.info.get("valid") or result.reward > 0 or (result.done and environment.max_steps > 1):
        yield "an unknown action is not refused with a penalty"
    for action in environment.actions:
        for params in GARBAGE:
            environment.reset(problem)
            try:
                environment.step(action, params)
            except UserError as error:
                yield str(error)
            except Exception as error:
                yield f"{action} {str(params)[:40]} raises {type(error).__name__}, not InvalidAction: {error}"


def _expert(environment: BaseEnvironment, problem: Problem) -> Iterator[str]:
    environment.reset(problem)
    if type(environment).expert is BaseEnvironment.expert:
        return
    for _ in range(environment.max_steps):
        result = environment.step(*environment.expert())
        if not result.info["valid"]:
            yield f"the expert takes an invalid action: {result.observation}"
            return
        if result.done:
            if not result.info["success"]:
                yield "the expert does not succeed"
            return
    yield "the expert does not finish within max_steps"
