"""Line walk: the smallest world, from which `rlkit new environment` makes yours."""

from typing import Literal

from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments


@environments.register("line_walk")
class LineWalkWorld(BaseEnvironment):
    """Walk on a line from 0 to the goal: 1 for a step towards it, -1 for one away, 5 for stopping on it, -5 for
    stopping elsewhere."""

    purpose = "Walk to the goal, then stop."
    actions = {  # noqa: RUF012
        "move": "by a whole number between -3 and 3, e.g. move 2",
        "stop": "end the walk here",
    }
    kind: Literal["line_walk"] = "line_walk"
    farthest: int = 9
    """An option: the largest distance of a goal."""
    goal = at = 0  # of an episode: each begins with these

    def problem(self, rng):
        return {"goal": int(rng.integers(-self.farthest, self.farthest + 1))}

    def reset(self, problem):
        self.goal = int(problem["goal"])
        return self.render()

    def step(self, action, params=None):
        if action == "stop":
            success = self.at == self.goal
            return ActionResult(self.render(), 5.0 if success else -5.0, True, {"success": success})
        if str(params) not in ("-3", "-2", "-1", "1", "2", "3"):
            raise InvalidAction("move needs a whole number of 1 to 3, or of -1 to -3.")
        before, self.at = abs(self.goal - self.at), self.at + int(str(params))
        return ActionResult(self.render(), 1.0 if abs(self.goal - self.at) < before else -1.0, False)

    def expert(self):
        way = self.goal - self.at
        return ("move", str(max(-3, min(3, way)))) if way else ("stop", None)

    def sample_params(self, action, rng):
        return str(rng.choice((-3, -2, -1, 1, 2, 3))) if action == "move" else {}

    def render(self):
        return f"at {self.at}, goal {self.goal}"
