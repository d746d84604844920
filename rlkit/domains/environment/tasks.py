"""Problems of an environment as tasks."""

from typing import Literal

from rlkit.domains import Source, sources
from rlkit.environments.base import environments
from rlkit.environments.rollout import environment_task
from rlkit.seeds import generator
from rlkit.types import Task


@sources.register("environment")
class EnvironmentTasks(Source):
    """The generated problems of one environment: the policy acts in it until it is done.

    The task's ground truth is the problem and `extra_info["environment"]` the environment, from which
    `rlkit.environments.rollout` plays the episode. There is nothing to score afterwards.
    """

    kind: Literal["environment"] = "environment"
    environment: environments.field()  # pyright: ignore[reportInvalidTypeForm]
    """The environment, with its `kind` and options."""

    def task(self, index: int) -> Task:
        problem = self.environment.problem(generator("environment task", self.environment.kind_name, index))
        return environment_task(self.environment, problem)
