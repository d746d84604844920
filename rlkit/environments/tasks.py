"""Problems of an environment as tasks."""

from typing import Literal

from rlkit.domains import Source, sources
from rlkit.environments.base import environments
from rlkit.environments.rollout import environment_task
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Task

ATTEMPTS = 200  # draws until a problem of the train split comes, which four of five are


@sources.register("environment")
class EnvironmentTasks(Source):
    """The generated problems of one environment's train split: the policy acts in it until it is done. Problems of the
    test split (`environment.problems("test", …)`) never occur, so they measure what a run has learnt.

    The task's ground truth is the problem and `extra_info["environment"]` the environment, from which
    `rlkit.environments.rollout` plays the episode. There is nothing to score afterwards.
    """

    kind: Literal["environment"] = "environment"
    environment: environments.field()  # pyright: ignore[reportInvalidTypeForm]
    """The environment, with its `kind` and options."""

    def task(self, index: int) -> Task:
        environment = self.environment
        for attempt in range(ATTEMPTS):
            problem = environment.problem(
                generator("environment task", environment.kind_name, index, attempt)
            )
            if environment.split_of(problem) == "train":
                return environment_task(environment, problem)
        raise UserError(f"{environment.kind_name!r} gives no problems of its train split: widen its options.")
