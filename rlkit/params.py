"""Params files: YAML without its traps, dotted overrides, and validation as one clear sentence."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rlkit.errors import UserError, did_you_mean


class Loader(yaml.SafeLoader):
    """YAML 1.1 without its traps: 1e-5 is a float, yes/no/on/off are strings, 12:30 is a string, dates too."""


def _loader() -> type[Loader]:
    drop = {
        "tag:yaml.org,2002:bool",
        "tag:yaml.org,2002:int",
        "tag:yaml.org,2002:float",
        "tag:yaml.org,2002:timestamp",
    }
    Loader.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in rules if tag not in drop]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    add = Loader.add_implicit_resolver
    add("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    add("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
    number = (
        r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$"
        r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    )
    add("tag:yaml.org,2002:float", re.compile(number), list("-+.0123456789"))
    return Loader


_loader()


def parse_yaml(text: str) -> Any:
    """YAML by the rules above; a malformed text is a UserError with line and column."""
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"Malformed YAML{where}: {getattr(error, 'problem', None) or error}.") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError when it is missing, malformed or no mapping."""
    path = Path(path)
    try:
        text = path.read_text()
    except OSError as error:
        near = did_you_mean(
            path.name, [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        )
        raise UserError(f"Cannot read {path}: {error.strerror}.{near}") from None
    except UnicodeDecodeError:
        raise UserError(f"Cannot read {path}: it is not UTF-8 text.") from None
    try:
        content = parse_yaml(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a mapping of keys to values, not a {type(content).__name__}.")
    return content


def settings(path: str | Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A flat params file with overrides, which may change what the file sets and nothing else.

    Raises:
        UserError: as `read_yaml`; an override that the file does not set, or of another type.
    """
    content = read_yaml(path)
    for name, value in (overrides or {}).items():
        if name not in content:
            near = did_you_mean(name, content)
            raise UserError(f"{path} does not set {name!r}.{near} It sets: {', '.join(content)}.")
        given, wanted = type(value), type(content[name])
        if given is not wanted and (given, wanted) != (int, float) and content[name] is not None:
            raise UserError(
                f"{name} is {value!r}: give a {wanted.__name__}, as in {path} ({content[name]!r})."
            )
    return {**content, **(overrides or {})}


def override(content: Mapping[str, Any], dotted: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `content` with `{"actor.optim.lr": 1e-4}` set; missing sections are made, lists are
    indexed by number (`data.train.0.weight`)."""
    result: dict[str, Any] = _copy(content)
    for key, value in dotted.items():
        *parents, last = key.split(".")
        node: Any = result
        for part in parents:
            node = _descend(node, part, key)
        if isinstance(node, list):
            node[_index(node, last, key)] = _copy(value)
        else:
            node[last] = _copy(value)
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list | tuple) else value


def _descend(node: Any, part: str, key: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, key)]
    if node.get(part) is None:
        node[part] = {}
    if not isinstance(node[part], dict | list):
        raise UserError(f"Cannot set {key!r}: {part!r} holds the value {node[part]!r}, not a section.")
    return node[part]


def _index(node: list[Any], part: str, key: str) -> int:
    if not part.isdigit() or int(part) >= len(node):
        raise UserError(f"Cannot set {key!r}: {part!r} is no index into a list of {len(node)}.")
    return int(part)


def parse_overrides(items: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """`["actor.optim.lr=1e-4"]` as typed values, by YAML's rules."""
    result = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UserError(f"An override has the form key=value, not {item!r}.")
        result[key.strip()] = parse_yaml(value)
    return result


def validate(model: type[Any], content: Mapping[str, Any], where: str = "") -> Any:
    """An instance of a pydantic class, with every problem as one clear sentence in a UserError."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = [_sentence(model, problem) for problem in error.errors()]
        prefix = f"{where}: " if where else ""
        raise UserError("\n".join(prefix + line for line in dict.fromkeys(lines))) from None


def _sentence(model: type[Any], problem: Any) -> str:
    path = ".".join(
        str(p)
        for p in problem["loc"]
        if not (isinstance(p, str) and p.startswith(("function", "tuple", "literal")))
    )
    if problem["type"] == "extra_forbidden":
        return f"Unknown key {path!r}.{_nearest(model, path)}"
    value = problem.get("input")
    text = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if not path:
        key = "." in text.split(" ", 1)[0]  # a sentence that begins with a key keeps its spelling
        return (text if key else text[0].upper() + text[1:]) + ("" if text.endswith(".") else ".")
    if problem["type"] in ("tuple_type", "list_type"):
        text = f"write it as a list, {path}=[{value}]"
    if problem["type"] == "too_short":
        text = f"list at least {problem['ctx']['min_length']}"
    given = (
        path if isinstance(value, Mapping) else f"{path} is {value!r}"
    )  # of a section, the text names the key
    return f"{given}: {text[0].lower() + text[1:]}{'' if text.endswith('.') else '.'}"


def _nearest(model: type[Any], path: str) -> str:
    known = field_paths(model)
    direct = did_you_mean(path, known)
    last = path.rsplit(".", 1)[-1]
    elsewhere = [k for k in known if k.rsplit(".", 1)[-1] == last and k != path]
    return f" Did you mean {' or '.join(map(repr, elsewhere[:3]))}?" if elsewhere else direct


def field_paths(model: type[Any], prefix: str = "") -> list[str]:
    """Every dotted key of a config class."""
    paths = []
    for name, info in model.model_fields.items():
        paths.append(prefix + name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            paths += field_paths(info.annotation, f"{prefix}{name}.")
    return paths
