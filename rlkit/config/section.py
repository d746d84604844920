"""What every section of the configuration is: frozen, and strict about its keys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlkit.domains import sources as source_registry
from rlkit.params import SentencesMeta

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
if TYPE_CHECKING:
    Source = Any  # a component; which one, the registry decides at run time
else:
    Source = source_registry.field()


class Section(BaseModel, metaclass=SentencesMeta):
    """A frozen part of the config; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )
    older: ClassVar[Mapping[str, Any]] = {}
    """Keys that configs of older runs have, with values that hashes still hold."""

    @model_validator(mode="before")
    @classmethod
    def _without_older(cls, value: Any) -> Any:
        return {k: v for k, v in value.items() if k not in cls.older} if isinstance(value, Mapping) else value


def refuse(*rows: tuple[Any, str]) -> None:
    """Raise the sentence of the first row that is wrong."""
    for wrong, sentence in rows:
        if wrong:
            raise ValueError(sentence)
