"""Attributes of an environment's class, as people write them."""

from typing import Annotated, Any, ClassVar, dataclass_transform

from pydantic import Field, PrivateAttr

from rlkit.params import SentencesMeta


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class AttributesMeta(SentencesMeta):
    """Class attributes may stand without an annotation: the new default of an option, or (in `starts`) a value with
    which every episode begins."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        notes = namespace.setdefault("__annotations__", {})
        starts, fields, known = {}, {}, set()
        for base in reversed(bases):
            starts |= getattr(base, "starts", {})
            fields |= getattr(base, "model_fields", {})
            known |= getattr(base, "__class_vars__", set()) | {"model_config"}
        for key, value in list(namespace.items()):
            if key.startswith("_") or key in notes or key in known or hasattr(type(value), "__get__"):
                continue
            if key in fields:
                notes[key] = Annotated[fields[key].annotation, *fields[key].metadata]
            elif not isinstance(value, type):
                notes[key] = ClassVar[Any]
                starts |= {} if key.isupper() else {key: value}  # capitals are of a constant
        made: Any = super().__new__(mcs, name, bases, namespace, **options)
        made.starts = starts
        return made
