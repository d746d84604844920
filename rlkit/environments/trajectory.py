"""What an episode leaves behind: its steps, and tables of many of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from rlkit.errors import UserError
from rlkit.files import write_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Transition:
    """One step: the observation before it, the action, its reward and the observation after it.

    `text` is the action as it was written, `valid` whether the environment carried it out, `formatted` whether the
    text is an action and nothing else, as the environment writes it.
    """

    state: str
    action: str
    params: Mapping[str, Any]
    text: str
    reward: FiniteFloat
    next_state: str
    valid: bool = True
    formatted: bool = True


@dataclass
class Trajectory:
    """An episode; its attributes are its items, too: `episode["success"]`.

    Attributes:
        solution: what it produced.
        confidence: the model's probability of its last action's text, where a model acted.
        options: the whole environment, as its registry reads it.
    """

    environment: str
    problem: Mapping[str, Any]
    messages: tuple[dict[str, str], ...]
    transitions: list[Transition] = field(default_factory=list)
    success: bool = False
    truncated: bool = False
    confidence: float | None = None
    solution: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

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

        frame = pd.DataFrame(
            {
                "step": range(1, len(self) + 1),
                "state": [t.state for t in self.transitions],
                "action": [t.text for t in self.transitions],
                "reward": [t.reward for t in self.transitions],
                "observation": [t.next_state for t in self.transitions],
            }
        )
        return frame.assign(total=frame["reward"].cumsum())


def steps_frame(trajectories: Iterable[Trajectory]) -> "pd.DataFrame":
    """One row a step of many episodes: episode, step, action, reward, valid, success."""
    import pandas as pd

    rows = [
        {
            "episode": i,
            "step": k,
            "action": t.action,
            "reward": t.reward,
            "valid": t.valid,
            "success": e.success,
        }
        for i, e in enumerate(trajectories)
        for k, t in enumerate(e.transitions, 1)
    ]
    return pd.DataFrame(rows, columns=["episode", "step", "action", "reward", "valid", "success"])


def save_trajectories(trajectories: Iterable[Trajectory], path: str | Path) -> Path:
    """Write one JSON line an episode, atomically."""
    # item: numpy's numbers
    lines = (json.dumps(asdict(t), default=lambda value: value.item()) for t in trajectories)
    write_text(path, "".join(f"{line}\n" for line in lines))
    return Path(path)


def load_trajectories(path: str | Path) -> list[Trajectory]:
    """The episodes that `save_trajectories` wrote. Raises UserError naming the file or its first malformed line."""
    if not Path(path).is_file():
        raise UserError(f"There is no file {path} with trajectories.")
    reader, episodes = TypeAdapter(Trajectory), []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            episodes.append(reader.validate_json(line, strict=True))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise UserError(f"{path}, line {number} holds no trajectory ({where}: {first['msg']}).") from None
    return episodes
