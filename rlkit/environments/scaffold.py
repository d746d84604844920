"""`rlkit new environment NAME`: a working environment of one's own, with a test beside it."""

import keyword
import re
from pathlib import Path

from rlkit.environments.base import environments
from rlkit.errors import UserError
from rlkit.files import write_text

HERE = Path(__file__).parent

ENVIRONMENT = '''"""{title}: say in one line what happens here."""

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)


class State(NamedTuple):
    """What the world remembers between steps."""

    goal: int
    at: int = 0


@environments.register("{name}")
class {cls}(BaseEnvironment):
    """Walk on a line from 0 to the goal. Replace this by your world.

    Rewards: 1 for a step towards the goal, -1 for one away from it, 5 for stopping on it, -5 for stopping
    elsewhere.
    """

    purpose: ClassVar[str] = "Walk to the goal, then stop."
    actions: ClassVar[dict[str, str]] = {{
        "move": "by a whole number between -3 and 3, e.g. move 2",
        "stop": "end the walk here",
    }}

    kind: Literal["{name}"] = "{name}"
    farthest: int = 9
    """Largest distance of a goal."""

    def problem(self, rng: np.random.Generator) -> Problem:
        return {{"goal": int(rng.integers(-self.farthest, self.farthest + 1))}}

    def begin(self, problem: Problem) -> str:
        self._state = State(int(problem["goal"]))
        return self.render()

    def act(self, action: str, params: Params) -> ActionResult:
        state: State = self._state
        if action == "stop":
            success = state.at == state.goal
            return ActionResult(self.render(), 5.0 if success else -5.0, True, {{"success": success}})
        try:
            by = int(str(params.get("value")))
        except ValueError:
            raise InvalidAction("move needs a whole number.") from None
        if not 1 <= abs(by) <= 3:
            raise InvalidAction("move goes 1 to 3 places, to either side.")
        moved = state._replace(at=state.at + by)
        closer = abs(moved.goal - moved.at) < abs(state.goal - state.at)
        self._state = moved
        return ActionResult(self.render(), 1.0 if closer else -1.0, False)

    def expert(self) -> tuple[str, Params]:
        way = self._state.goal - self._state.at
        return ("move", {{"value": str(max(-3, min(3, way)))}}) if way else ("stop", {{}})

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        return {{"value": str(int(rng.choice((-3, -2, -1, 1, 2, 3))))}} if action == "move" else {{}}

    def render(self) -> str:
        return f"at {{self._state.at}}, goal {{self._state.goal}}"
'''

TEST = '''"""The environment {name!r} keeps the contract, and its expert knows what it is doing."""

from rlkit.environments import check_environment, environments
from rlkit.agents import ExpertAgent, RandomAgent, run_episodes


def test_{name}_keeps_the_contract():
    check_environment(environments.parse("{name}"))


def test_the_expert_of_{name}_beats_a_random_agent():
    env = environments.parse("{name}")
    problems = env.problems("test", 3)
    expert = run_episodes(ExpertAgent(), env, problems)
    random = run_episodes(RandomAgent(), env, problems)
    assert all(episode.success for episode in expert)
    assert sum(e.total_reward for e in expert) > sum(e.total_reward for e in random)
'''


def new_environment(
    name: str, folder: Path = HERE, tests: Path = HERE.parents[1] / "tests"
) -> tuple[Path, Path]:
    """Write the environment into `folder` and its test into `tests`; both work as they are.

    Raises:
        UserError: a name that is no lower-case identifier or a word of Python's, is taken, or whose file exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(
            f"The name is {name!r}: use lower-case letters, digits and underscores, and no word of Python's, e.g. "
            "tic_tac_toe."
        )
    paths = folder / f"{name}.py", tests / f"test_environments_{name}.py"
    taken = next((p for p in paths if p.exists()), None)
    if taken or name in environments:
        raise UserError(f"The name {name!r} is taken{f' ({taken} exists)' if taken else ''}: choose another.")
    words = name.split("_")
    fields = {
        "name": name,
        "cls": "".join(w.capitalize() for w in words),
        "title": " ".join(words).capitalize(),
    }
    for path, text in zip(paths, (ENVIRONMENT, TEST), strict=True):
        write_text(path, text.format(**fields))
    return paths
