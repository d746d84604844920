"""One episode, whoever acts in it (an agent, the sampler of a run, verl's workers), and what it leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rlkit.environments.action_parsing import Params, as_mapping
from rlkit.environments.base import BaseEnvironment, BrokenEnvironment, Problem, as_environment
from rlkit.types import FinishReason, Message, Reward

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Transition:
    """One step: `text` is the action as it was written, `valid` whether the environment carried it out, `formatted`
    whether the text is an action and nothing else, as the environment writes it."""

    state: str
    action: str
    params: Mapping[str, Any]
    text: str
    reward: float
    next_state: str
    valid: bool = True
    formatted: bool = True


@dataclass
class Trajectory:
    """An episode; its attributes are its items, too: `episode["success"]`. `solution` is what it produced, `world`
    the environment that it was played in a copy of."""

    environment: str
    problem: Mapping[str, Any]
    messages: tuple[dict[str, str], ...]
    transitions: list[Transition] = field(default_factory=list)
    success: bool = False
    truncated: bool = False
    solution: str = ""
    world: Any = field(default=None, repr=False, compare=False)

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return sum(t.reward for t in self.transitions)

    def __len__(self) -> int:
        return len(self.transitions)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or not hasattr(self, name):
            raise KeyError(name)
        return getattr(self, name)

    def to_frame(self) -> "pd.DataFrame":
        """A readable table: step, state, action, reward, observation, return so far."""
        import pandas as pd

        rows = [(k, t.state, t.text, t.reward, t.next_state) for k, t in enumerate(self.transitions, 1)]
        frame = pd.DataFrame(rows, columns=["step", "state", "action", "reward", "observation"])
        return frame.assign(total=frame["reward"].cumsum())


@dataclass
class Episode:
    """A running episode.

    Attributes:
        world, environment: the given one, and the copy that is this episode's own.
        messages: the chat that it began with.
        observation, info: of the last step.
        finish: None while it goes on; "done" (by the environment), "length" (no room for another turn) or "error".
        error: the environment's defect.
    """

    world: BaseEnvironment
    environment: BaseEnvironment
    problem: Problem
    messages: tuple[Message, ...]
    observation: str
    transitions: list[Transition] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    finish: FinishReason | None = None
    error: str | None = None

    @classmethod
    def begin(cls, environment: BaseEnvironment | str, problem: str | Problem) -> Self:
        """An episode on a copy of `environment`. Raises UserError for a problem that makes no sense in it."""
        world = as_environment(environment)
        environment = world.fresh()
        problem = environment.read(problem) if isinstance(problem, str) else problem
        observation = environment.reset(problem)
        return cls(world, environment, problem, environment.messages(observation), observation)

    def say(self, text: str) -> None:
        """Take the step that a model's answer names."""
        try:
            action, params = self.environment.parse_action(text)
        except Exception as error:
            return self._fail(error)
        self.act(action, params, text)

    def act(self, action: str, params: str | Params | None, text: str | None = None) -> None:
        """Take a step, written as `text`. A defect of the environment is the episode's error, never a zero."""
        params = as_mapping(params)
        try:
            written = self.environment.format_action(action, params)
            result = self.environment.step(action, params)
        except Exception as error:
            return self._fail(error)
        text = written if text is None else text
        known = not self.environment.actions or action in self.environment.actions
        formatted = known and text.strip().removeprefix("Action:").strip() == written.strip()
        before, valid = self.observation, bool(result.info["valid"])
        self.observation, self.info = result.observation, result.info
        facts = result.reward, self.observation, valid, formatted
        self.transitions.append(Transition(before, action, params, text, *facts))
        if result.done:
            self.finish = "done"

    def _fail(self, error: Exception) -> None:
        name = "" if isinstance(error, BrokenEnvironment) else f"{type(error).__name__}: "
        self.finish, self.error = "error", f"{name}{error}"

    @property
    def success(self) -> bool:
        return self.finish == "done" and bool(self.info.get("success", False))

    @property
    def truncated(self) -> bool:
        """A limit ended it: the environment's own, or that of the agent's tokens."""
        return self.finish == "length" or bool(self.info.get("truncated"))

    def reward(self) -> Reward:
        """The undiscounted return; `correct` is success."""
        if self.error is not None:
            return Reward(error=self.error)
        turns = self.transitions
        facts = {"valid_actions": sum(t.valid for t in turns) / len(turns), "truncated": self.truncated}
        return Reward.of(self.success, sum(t.reward for t in turns), steps=len(turns), **facts)

    def trajectory(self) -> Trajectory:
        """The episode as people and offline training read it. Raises BrokenEnvironment if its environment failed."""
        if self.error is not None:
            raise BrokenEnvironment(f"An episode of {self.environment.kind_name!r} failed: {self.error}")
        played = (self.world.kind_name, self.problem, self.messages, self.transitions)
        solution = str(self.environment.call("solution"))
        return Trajectory(*played, self.success, self.truncated, solution, self.world)
