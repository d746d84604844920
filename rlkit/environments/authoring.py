"""For authors of environments: `check_environment` holds one to its contract, as Gymnasium's checker does with spaces;
`new_environment` writes one that works, with its test (`rlkit new environment NAME`)."""

import json
import keyword
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

from numpy.random import Generator

from rlkit.environments.action_parsing import Params, as_action
from rlkit.environments.base import BaseEnvironment, Problem, environments
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.seeds import generator

TRIED = 50  # actions that get senseless parameters
GARBAGE: tuple[Params, ...] = (
    {}, {"value": ""}, {"value": "\x00🙂" * 50}, {"value": ["?"]}, {"surprise": None}, {"value": "9" * 5000},
)  # fmt: skip
TEST = '''"""The environment {name!r} keeps the contract, and its expert succeeds."""

from pathlib import Path

from rlkit.environments import check_environment, environments
from rlkit.registry import load_plugins

load_plugins([str(Path(__file__).with_name("{name}.py"))])


def test_{name}_keeps_the_contract():
    check_environment(environments.parse("{name}"))
'''


def check_environment(environment: BaseEnvironment, episodes: int = 10) -> None:
    """Play `episodes` random ones and hold the environment, written in its short or its full form, to its contract.

    Checked: problems are JSON, reproducible and disjoint between splits; the same actions give the same results on a
    copy and on a pickle; unknown actions and senseless parameters cost, and neither raise nor end the episode; some
    episode ends before `max_steps` ends it; action texts survive formatting and parsing; the scripted expert, where
    there is one, succeeds. Raises UserError with one line a violation."""
    found: list[str] = []
    try:
        found.extend(_violations(environment.fresh(), episodes))
    except (Exception, SystemExit) as error:  # whatever is raised, the environment's author wants to know
        known = isinstance(error, UserError)
        found.append(str(error) if known else f"it raises {type(error).__name__}: {error}")
    if found:
        lines = "\n- ".join(dict.fromkeys(found))
        raise UserError(f"{environment.kind_name!r} breaks the contract of an environment:\n- {lines}")


def _violations(environment: BaseEnvironment, episodes: int) -> Iterator[str]:
    problems, tests = (environment.problems(split, episodes) for split in ("train", "test"))
    if problems != environment.problems("train", episodes):
        yield "problems() differs between two calls with the same seed: draw from `rng` alone"
    if {json.dumps(p, sort_keys=True) for p in problems} & {json.dumps(p, sort_keys=True) for p in tests}:
        yield "a problem occurs in both splits"
    fresh, ended = environment.fresh(), []
    for index, problem in enumerate(problems):
        yield from _garbage(environment, problem)
        yield from _random(environment, fresh, problem, generator("check", 0, index), ended)
        yield from _expert(environment, problem, ended)
    if not any(ended):
        yield (
            f"no episode ended within max_steps = {environment.max_steps}: return done, with info['success'], write "
            "expert(), or raise max_steps"
        )


def _garbage(environment: BaseEnvironment, problem: Problem) -> Iterator[str]:
    environment.reset(problem)
    result = environment.step("no_such_action")
    if result.info.get("valid") or result.reward > 0 or (result.done and environment.max_steps > 1):
        yield "an unknown action is not refused with a penalty"
    for action in (list(environment.actions) or environment.offered_actions())[:TRIED]:
        for params in GARBAGE:
            environment.reset(problem)
            try:
                environment.step(action, params)
                environment.format_action(action, params)
            except UserError as error:
                yield f"{error} (Raise InvalidAction where an agent's parameters make no sense.)"
                return


def _random(
    environment: BaseEnvironment, fresh: BaseEnvironment, problem: Problem, rng: Generator, ended: list
) -> Iterator[str]:
    """Random play beside copies, of which one has never played; `ended` gets whether the environment ended it."""
    environment.reset(problem)
    twins = [pickle.loads(pickle.dumps(environment)), fresh.fresh()]
    twins[1].reset(problem)
    for _ in range(environment.max_steps):
        action = str(rng.choice(environment.offered_actions()))
        _, params = as_action((action, environment.call("sample_params", action, rng)), "sample_params")
        written = environment.format_action(action, params)
        if environment.parse_action(written) != (action, dict(params)):
            yield f"the action {written!r} is read as another: its name or value is not told apart"
        results = [e.step(action, params) for e in (environment, *twins)]
        if len({(r.observation, r.reward, r.done, r.info["valid"]) for r in results}) > 1:
            yield f"{written!r} gives different results on a pickle or a copy"
        if results[0].done:
            break
    ended.append(not results[0].info["truncated"])


def _expert(environment: BaseEnvironment, problem: Problem, ended: list) -> Iterator[str]:
    if type(environment).expert is BaseEnvironment.expert:
        return
    environment.reset(problem)
    while not (result := environment.step(*as_action(environment.call("expert"), "expert()"))).done:
        pass
    ended.append(not result.info["truncated"])
    if not result.info["success"]:
        yield f"the expert does not succeed within max_steps; it ends with: {result.observation}"


def new_environment(name: str, folder: Path) -> tuple[Path, Path]:
    """Write an environment, line_walk under another name, and its test into `folder`; both work as they are, and
    `plugins: [<name>.py]` makes a run know it. Raises UserError for a name that is none, or is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        what = "lower-case letters, digits and underscores, and no word of Python's, e.g. tic_tac_toe"
        raise UserError(f"The name is {name!r}: use {what}.")
    source, test = folder / f"{name}.py", folder / f"test_{name}.py"
    taken = next((p for p in (source, test) if p.exists()), None)
    if taken or name in environments:
        raise UserError(f"The name {name!r} is taken{f' ({taken} exists)' if taken else ''}: choose another.")
    title = name.replace("_", " ").capitalize()
    text = Path(__file__).with_name("line_walk.py").read_text()
    text = re.sub(r'^""".*"""', f'"""{title}: say in one line what happens here."""', text)
    text = text.replace("LineWalkWorld", "".join(w.capitalize() for w in name.split("_")) + "World")
    write_text(source, text.replace('"line_walk"', f'"{name}"'))
    write_text(test, TEST.format(name=name))
    return source, test
