"""Where a verl run keeps its files."""

from dataclasses import dataclass
from pathlib import Path

from rlkit.results.progress import verl_step


@dataclass(frozen=True)
class Files:
    """What a verl run reads and writes, all under its folder `<run>/verl` but the model.

    Attributes:
        folder: `<run>/verl`.
        model: a Hugging Face folder or hub id.
        answers: the answers log of this attempt.
    """

    folder: Path
    model: str
    answers: Path

    @classmethod
    def of(cls, run: Path, model: str, attempt: int = 1) -> "Files":
        """The files of one attempt of the run in folder `run`; paths are absolute, as Ray's workers need."""
        folder = run.absolute() / "verl"
        return cls(folder, model, folder / f"attempt-{attempt}" / "answers")

    @property
    def attempt(self) -> Path:
        return self.answers.parent

    @property
    def checkpoints(self) -> Path:
        """verl's own, sharded ones."""
        return self.folder / "checkpoints"

    @property
    def kept_step(self) -> int:
        """The step of verl's newest whole checkpoint; 0 without one."""
        return verl_step(self.checkpoints)

    @property
    def loops(self) -> Path:
        """The agent loop's options."""
        return self.folder / "agent_loops.yaml"
