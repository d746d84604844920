"""Where tasks come from and in which order: `data.*`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from rlkit.domains import sources
from rlkit.params import Section, Share, refuse

if TYPE_CHECKING:
    Source = Any  # a component; which one, the registry decides at run time
else:
    Source = sources.field()


class Stage(Section):
    """Mixture weights from one step on."""

    start: PositiveInt
    """First step of the stage; the first stage starts at 1."""
    weights: tuple[NonNegativeFloat, ...]
    """One weight a source of `data.train`, in its order."""


class Data(Section):
    """Where tasks come from, and in which order they are trained on."""

    train: tuple[Source, ...] = Field(default=({"kind": "arithmetic"},), validate_default=True)
    """Sources of training tasks, each with a `kind`, a `weight` and its own options."""
    train_batch_size: PositiveInt = 64
    """Prompts a step (P)."""
    max_prompt_length: PositiveInt = 256
    """Longest prompt in tokens; a longer one, of training or held-out tasks, is an error before the first step."""
    filter_overlong_prompts: bool = False
    """Leave out training and held-out tasks with longer prompts, and say how many, instead."""
    apply_chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables of the chat template, e.g. {enable_thinking: false}; a saved model keeps them in its template."""
    max_response_length: PositiveInt = 16
    """Most tokens sampled for one response; for an environment, for the whole episode."""
    train_max_samples: Annotated[int, Field(ge=-1)] = -1
    """Unique training tasks (data volume D); -1 is as many as the steps ask for. A smaller D is part of a larger
    one."""
    order: Literal["mixed", "curriculum", "sequential", "stages"] = "mixed"
    """mixed: sources by weight in every batch. curriculum: the same, each source from easy to hard. sequential:
    source after source. stages: weights by step."""
    difficulty_field: str = "difficulty"
    """Field of extra_info that a curriculum sorts by, ascending; a leading "-" sorts descending
    (`-qwen2.5_7b_pass_rate`: solved most often first)."""
    stages: tuple[Stage, ...] = ()
    """The weights of `order: stages`."""
    sft_ratio: Share = 0.0
    """Share of the task pool set aside for supervised training; the RL stream never shows it."""
    drop_solved_above: Annotated[float, Field(gt=0, le=1)] | None = None
    """Pass rate over the run so far from which on a problem is no longer drawn (no-positive-resampling, ScaleRL,
    arXiv 2510.13786), e.g. 0.9. Unset draws every problem again in each pass over the data."""

    @field_validator("apply_chat_template_kwargs")
    @classmethod
    def _variables(cls, value: dict[str, Any]) -> dict[str, Any]:
        told = "is no name of a template's variable, such as enable_thinking"
        refuse(*((not name.isidentifier(), f"{name!r} {told}") for name in value))
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Data":
        starts = [s.start for s in self.stages]
        counted = [s.count is not None for s in self.train if s.weight]
        refuse(
            (not self.train, "train is empty: name at least one source"),
            (not sum(s.weight for s in self.train),
             "the weights of train sum to 0: give at least one source a weight above 0"),
            (any(counted) and not all(counted),
             "some sources of train have a count and others none: give all of them one, or none"),
            (any(counted) and self.train_max_samples > 0,
             f"train_max_samples is {self.train_max_samples}, but the sources have counts: set it to -1"),
            ((self.order == "stages") != bool(self.stages),
             f"order is {self.order} with {len(self.stages)} stages: order stages goes with stages"),
            (starts and (starts[0] != 1 or sorted(set(starts)) != starts),
             f"stages start at {starts}: the first starts at 1, the others after the one before"),
            *((len(stage.weights) != len(self.train) or not sum(stage.weights),
               f"the stage from step {stage.start} has weights {list(stage.weights)}: give {len(self.train)} weights, "
               "one a source, that do not sum to 0") for stage in self.stages),
        )  # fmt: skip
        return self
