"""Line walk: the smallest world, from which `rlkit new environment` makes yours."""

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.base import Params, Problem


class Walk(NamedTuple):
    """What the world remembers between steps."""

    goal: int
    at: int = 0


@environments.register("line_walk")
class LineWalkWorld(BaseEnvironment):
    """Walk on a line from 0 to the goal: 1 for a step towards it, -1 for one away, 5 for stopping on it, -5 for
    stopping elsewhere."""

    purpose: ClassVar[str] = "Walk to the goal, then stop."
    actions: ClassVar[dict[str, str]] = {
        "move": "by a whole number between -3 and 3, e.g. move 2",
        "stop": "end the walk here",
    }

    kind: Literal["line_walk"] = "line_walk"
    farthest: int = 9
    """Largest distance of a goal."""

    def problem(self, rng: np.random.Generator) -> Problem:
        return {"goal": int(rng.integers(-self.farthest, self.farthest + 1))}

    def begin(self, problem: Problem) -> str:
        self._state = Walk(int(problem["goal"]))
        return self.render()

    def act(self, action: str, params: Params) -> ActionResult:
        walk: Walk = self._state
        if action == "stop":
            success = walk.at == walk.goal
            return ActionResult(self.render(), 5.0 if success else -5.0, True, {"success": success})
        try:
            by = int(str(params.get("value")))
        except ValueError:
            raise InvalidAction("move needs a whole number.") from None
        if not 1 <= abs(by) <= 3:
            raise InvalidAction("move goes 1 to 3 places, to either side.")
        self._state = walk._replace(at=walk.at + by)
        closer = abs(walk.goal - walk.at - by) < abs(walk.goal - walk.at)
        return ActionResult(self.render(), 1.0 if closer else -1.0, False)

    def expert(self) -> tuple[str, Params]:
        way = self._state.goal - self._state.at
        return ("move", {"value": str(max(-3, min(3, way)))}) if way else ("stop", {})

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        return {"value": str(int(rng.choice((-3, -2, -1, 1, 2, 3))))} if action == "move" else {}

    def render(self) -> str:
        return f"at {self._state.at}, goal {self._state.goal}"
