"""The next step's tasks and their token ids, made while a GPU is busy with this one's."""

from collections.abc import Generator, Mapping

from rlkit.data import TaskStream
from rlkit.models.loading import Policy
from rlkit.samplers.rollouts import ENVIRONMENT
from rlkit.types import Task

AT_ONCE = 8  # prompts encoded together


class Upcoming:
    """A step's tasks, made little by little before they are asked for.

    Args:
        stream: the run's tasks. Where they depend on how earlier steps went, nothing is made ahead.
        policy: encodes their prompts.
        last: the run's last step.
    """

    def __init__(self, stream: TaskStream, policy: Policy, last: int) -> None:
        self.stream, self.policy, self.last = stream, policy, last
        self.prepare(0)

    def prepare(self, step: int) -> None:
        """From here on `advance` works on the tasks of `step`."""
        self._step, self._encoded = step, dict[int, list[int]]()
        self._tasks: list[Task] | None = None
        self._failed: Exception | None = None
        self._work = self._pieces() if self.stream.foreseen and 0 < step <= self.last else None

    def advance(self) -> bool:
        """Do a piece of the work, a task or a few prompts; whether there is more. What fails is told by `take`, in the
        step that it belongs to."""
        if self._work is None:
            return False
        try:
            next(self._work)
            return True
        except StopIteration:
            pass
        except Exception as error:
            self._failed = error
        self._work = None
        return False

    def take(self, step: int) -> tuple[list[Task], Mapping[int, list[int]]]:
        """The tasks of `TaskStream.batch`, and token ids of the prompts encoded ahead, by `id` of the task."""
        if step != self._step:
            return self.stream.batch(step), {}
        while self._tasks is None and self.advance():
            pass
        if self._failed is not None:
            raise self._failed
        return self.stream.batch(step) if self._tasks is None else self._tasks, self._encoded

    def _pieces(self) -> Generator[None]:
        drawn = []
        for task in self.stream.drawn(self._step):
            drawn.append(task)
            yield
        self._tasks = self.stream.shuffled(self._step, drawn)
        yield
        answers = [t for t in self._tasks if not t.data_source.startswith(ENVIRONMENT)]
        for i in range(0, len(answers), AT_ONCE):
            part = answers[i : i + AT_ONCE]
            self._encoded |= zip(map(id, part), self.policy.encode_all([t.prompt for t in part]), strict=True)
            yield
