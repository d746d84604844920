"""What an episode leaves behind: its steps, and tables of many of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    """An episode; its attributes are its items, too: `episode["success"]`. `solution` is what it produced, `confidence`
    a model's probability of its last action's text, `world` the environment that it was played in a copy of."""

    environment: str
    problem: Mapping[str, Any]
    messages: tuple[dict[str, str], ...]
    transitions: list[Transition] = field(default_factory=list)
    success: bool = False
    truncated: bool = False
    confidence: float | None = None
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


def steps_frame(trajectories: Iterable[Trajectory]) -> "pd.DataFrame":
    """One row a step of many episodes: episode, step, action, reward, valid, success."""
    import pandas as pd

    steps = [(i, k, t, e) for i, e in enumerate(trajectories) for k, t in enumerate(e.transitions, 1)]
    rows = [(i, k, t.action, t.reward, t.valid, e.success) for i, k, t, e in steps]
    return pd.DataFrame(rows, columns=["episode", "step", "action", "reward", "valid", "success"])
