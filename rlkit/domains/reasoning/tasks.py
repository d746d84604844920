"""reasoning-gym (Stojanovski et al. 2025, arXiv 2505.24760) as a source of tasks."""

import json
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Task

LISTED = ("acre", "gsm_symbolic", "list_functions")
"""Data sets that draw a list as long as themselves: they are made anew for each item."""
REFUSED = {
    **dict.fromkeys(
        ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note"),
        "its items change with Python's hash seed",
    ),
    "time_intervals": "its items change with the date",
    **dict.fromkeys(
        ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"),
        "it has no reference answers",
    ),
    **dict.fromkeys(
        ("arc_agi", "rearc"), "its entries do not survive JSON; the source 'arc' has these grids"
    ),
    "word_ladder": "its items depend on the data set's size",
    "composite": "a mixture belongs into data.train, one source a data set",
}
ABILITY = {
    **dict.fromkeys(("arithmetic", "algebra", "geometry", "probability"), "math"),
    "code": "simulation",
}


@sources.register("reasoning_gym")
class ReasoningGym(Source):
    """One of reasoning-gym's data sets, answered in <answer> tags and scored by its own scorer.

    Item i of a data set with seed s is drawn from Random(s + i), so data sets with neighbouring seeds
    are nearly the same: here the seed is always 0, and training and held-out tasks differ by index.
    """

    makes: ClassVar[tuple[str, ...]] = ("reasoning_gym__*",)
    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    """Name of the data set: chain_sum, knights_knaves, mini_sudoku …"""
    level: Annotated[int, Field(ge=0)] | None = None
    """Level of reasoning-gym's curriculum for every attribute (its last one where it has fewer); None is
    the data set's default."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Fields of the data set's own configuration."""

    def task(self, index: int) -> Task:
        listed = self.dataset in LISTED
        items = _items(
            self.dataset, self.level, json.dumps(self.options, sort_keys=True), index if listed else 0
        )
        entry = items[0 if listed else index]
        question = entry["question"].strip() + "\nGive the final answer in <answer> </answer> tags."
        return Task.ask(
            f"reasoning_gym__{self.dataset}",
            question,
            entry["answer"],
            ability=ABILITY.get(items.category, "logic"),
            extra_info={
                "index": index,
                "difficulty": self.level or 0,
                "entry": {"answer": entry["answer"], "metadata": json.loads(json.dumps(entry["metadata"]))},
            },
        )


@lru_cache(64)
def _items(dataset: str, level: int | None, options: str, seed: int) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if dataset in REFUSED:
        raise UserError(
            f"data.train reasoning_gym: dataset is {dataset!r}, but {REFUSED[dataset]}: use another one."
        )
    if dataset not in DATASETS:
        near = did_you_mean(dataset, DATASETS)
        raise UserError(f"data.train reasoning_gym: unknown dataset {dataset!r}.{near}")
    size = 1 if dataset in LISTED else 2**62
    values = {**_at_level(dataset, level), **json.loads(options), "seed": seed, "size": size}
    try:
        return reasoning_gym.create_dataset(dataset, **values)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(
            f"data.train reasoning_gym: dataset {dataset!r} refuses its options: {error}."
        ) from None


def _at_level(dataset: str, level: int | None) -> dict[str, Any]:
    """The data set's configuration with every attribute at a level of its curriculum."""
    from dataclasses import asdict

    from reasoning_gym.factory import CURRICULA, create_curriculum

    if level is None:
        return {}
    if dataset not in CURRICULA:
        raise UserError(f"data.train reasoning_gym: dataset {dataset!r} has no levels: use options instead.")
    curriculum = create_curriculum(dataset)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
    return asdict(curriculum.generate_configuration())
