"""Params files: YAML 1.2 without its traps, dotted overrides, sections, and validation as one clear sentence."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic._internal._model_construction import ModelMetaclass  # as type(BaseModel), for type checkers
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from rlkit.errors import UserError, did_you_mean

Share = Annotated[float, Field(ge=0, le=1)]


class _Constructor(SafeConstructor):
    """Dates stay text; sets and bytes are refused."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
for _kind in ("set", "binary"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", SafeConstructor.construct_undefined)


def parse_yaml(text: str) -> Any:
    """Nested mappings, lists, text, numbers, booleans and None, by YAML 1.2: yes, on, 12:30 and dates are text, 1e-5
    is a number.

    Raises:
        UserError: malformed text (with line and column), a key that occurs twice, too many levels, a collection that
            holds itself, or a value of another kind.
    """
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    try:
        content = reader.load(text.removeprefix("\ufeff"))
        json.dumps(content, ensure_ascii=False).encode()  # raises for what is not JSON's, or holds itself
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        if isinstance(error, DuplicateKeyError):
            problem = f"the key {problem.split(chr(34))[1]!r} occurs twice in one section; keep one of them"
        raise UserError(f"Malformed YAML{where}: {problem}.") from None
    except RecursionError:
        raise UserError("The YAML is nested too deeply.") from None
    except (TypeError, ValueError, IndexError) as error:  # a text tagged as a number, or thousands of digits
        raise UserError(f"Malformed YAML: {error}.") from None
    return content


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError when it is missing, malformed or no mapping."""
    path = Path(path)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        near = did_you_mean(path.name, [other.name for other in path.parent.glob("*.yaml")])
        near = near or " Give the path of a YAML file, such as params/quickstart.yaml."
        raise UserError(f"Cannot read {path}: {error.strerror}.{near}") from None
    except UnicodeDecodeError:
        raise UserError(f"Cannot read {path}: it is not UTF-8 text.") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if not isinstance(content, dict | None):
        raise UserError(f"{path} must hold a mapping of keys to values, not a {type(content).__name__}.")
    return content or {}


def settings(path: str | Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A params file that is no run's, with overrides under dotted keys, which may change what the file sets, and below
    its sections add to it.

    Raises:
        UserError: as `read_yaml`; an override that the file does not set, or of another type.
    """
    content = read_yaml(path)
    for name, value in (overrides or {}).items():
        first, *rest = name.split(".")
        if first not in content or (rest and not isinstance(content[first], Mapping)):
            near = did_you_mean(first, content)
            raise UserError(f"{path} does not set {name!r}.{near} It sets: {', '.join(content)}.")
        kinds = type(content[first]), type(value)
        if not (rest or content[first] is None or kinds[0] is kinds[1] or kinds == (float, int)):
            wanted = f"give a {kinds[0].__name__}, as in {path} ({content[name]!r})"
            raise UserError(f"{name} is {value!r}: {wanted}.")
    return override(content, overrides or {})


def override(content: Mapping[str, Any], dotted: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `content` with `{"actor.optim.lr": 1e-4}` set; missing sections are made, lists are
    indexed by number (`data.train.0.weight`)."""
    result: dict[str, Any] = _copy(content)
    for key, value in dotted.items():
        *parents, last = key.split(".")
        if not all([*parents, last]):
            raise UserError(f"Cannot set {key!r}: write a key as names with single dots between them.")
        node: Any = result
        for part in parents:
            place = _place(node, part, key)
            if isinstance(node, dict) and node.get(place) is None:
                node[place] = {}
            node = node[place]
            if not isinstance(node, dict | list):
                raise UserError(f"Cannot set {key!r}: {part!r} holds the value {_shown(node)}, not a section.")
        node[_place(node, last, key)] = _copy(value)
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list | tuple) else value


def _place(node: Any, part: str, key: str) -> Any:
    if isinstance(node, dict):
        return part
    if not part.isdigit() or int(part) >= len(node):
        raise UserError(f"Cannot set {key!r}: {part!r} is no index into a list of {len(node)}.")
    return int(part)


def parse_overrides(items: Iterable[str] | None) -> dict[str, Any]:
    """`["actor.optim.lr=1e-4"]` as typed values, by YAML's rules."""
    result = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UserError(f"An override has the form key=value, not {item!r}.")
        result[key.strip()] = parse_yaml(value)
    return result


def validate(model: type[Any], content: Mapping[str, Any] | BaseModel, where: str = "") -> Any:
    """An instance of a pydantic class, with every problem as one clear sentence in a UserError."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _told(model, error, f"{where}: " if where else "") from None


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class SentencesMeta(ModelMetaclass):
    """Of pydantic classes that people construct: a wrong value is a UserError, as `validate` tells it."""

    if not TYPE_CHECKING:  # which would lose the fields' types

        def __call__(cls, *args: Any, **values: Any) -> Any:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise _told(cls, error) from None


class Section(BaseModel, metaclass=SentencesMeta):
    """A frozen part of the config; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False, use_attribute_docstrings=True
    )


def refuse(*rows: tuple[Any, str]) -> None:
    """Raise the sentence of the first row that is wrong."""
    for wrong, sentence in rows:
        if wrong:
            raise ValueError(sentence)


def _told(model: type[Any], error: ValidationError, prefix: str = "") -> UserError:
    lines = [_sentence(model, problem) for problem in error.errors()]
    return UserError("\n".join(prefix + line for line in dict.fromkeys(lines)))


def _sentence(model: type[Any], problem: Any) -> str:
    inner = ("function", "tuple", "literal")  # steps of pydantic's own
    path = ".".join(str(p) for p in problem["loc"] if not str(p).startswith(inner))
    if problem["type"] == "extra_forbidden":
        return f"Unknown key {path!r}.{_nearest(model, path)}"
    value = problem.get("input")
    text = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").removesuffix(".")
    if not path:
        key = "." in text.split(" ", 1)[0]  # a sentence that begins with a key keeps its spelling
        return f"{text if key else text[0].upper() + text[1:]}."
    if problem["type"] in ("tuple_type", "list_type"):
        text = f"write it as a list, {path}=[{value}]"
    if problem["type"] == "too_short":
        text = f"list at least {problem['ctx']['min_length']}"
    given = path if isinstance(value, Mapping) else f"{path} is {_shown(value)}"
    return f"{given}: {text[0].lower() + text[1:]}."


def _shown(value: Any) -> str:
    """The value as Python writes it, cut at 100 characters."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:80]}… ({len(text):,} characters)"


def _nearest(model: type[Any], path: str) -> str:
    known, (section, _, last) = field_paths(model), path.rpartition(".")
    alike = [k for k in known if k != path and f"_{k.rpartition('.')[2]}".endswith(f"_{last}")]
    alike.sort(key=lambda k: (k.rpartition(".")[0] != section, k.rpartition(".")[2] != last, len(k)))
    beside = [k for k in known if k.rpartition(".")[0] == section]
    found = [*difflib.get_close_matches(path, beside, n=1, cutoff=0.85), *alike]
    shown = list(dict.fromkeys(found))[:3]
    return f" Did you mean {' or '.join(map(repr, shown))}?" if shown else did_you_mean(path, known)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys to values: lists of sections by index (`data.train.0.kind`), other lists as JSON text."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value) if isinstance(value, list) else value
    return flat


def field_paths(model: type[Any], prefix: str = "") -> list[str]:
    """Every dotted key of a config class."""
    paths = []
    for name, info in model.model_fields.items():
        paths.append(prefix + name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            paths += field_paths(info.annotation, f"{prefix}{name}.")
    return paths
