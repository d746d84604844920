"""How the policy is measured on tasks that it is not trained on: `evaluation.*`."""

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator

from rlkit.config.data import Source
from rlkit.params import Section


class Evaluation(Section):
    """How the policy is measured on held-out tasks."""

    sources: tuple[Source, ...] | None = None
    """Held-out tasks; default: the held-out part of each training source."""
    size: PositiveInt = 200
    """Held-out tasks, spread evenly over the sources."""
    suites: tuple[Source, ...] = ()
    """Benchmarks and files that are evaluated whole, each apart from the held-out tasks and from the others, and kept
    out of training: a benchmark's name, or a source with its options."""
    seed: int = 0
    """Seed of the held-out choice: the same set for every run of a study."""
    n: PositiveInt = 4
    """Samples a task."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature; 0 is greedy (then n must be 1)."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of evaluation samples."""
    pass_at: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1,)
    """The k of pass@k; none above n."""

    @field_validator("suites", mode="before")
    @classmethod
    def _benchmarks(cls, value: Any) -> Any:
        """A name alone is a benchmark's."""
        each = value if isinstance(value, list | tuple) else [value]
        return tuple({"kind": "benchmark", "name": v} if isinstance(v, str) else v for v in each)
