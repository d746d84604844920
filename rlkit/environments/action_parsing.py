"""The action in a model's answer, whatever markup, tool call or prose is around it."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rlkit.errors import UserError

Params = Mapping[str, Any]
NAMES = ("name", "action", "tool", "function", "tool_name")  # keys of tool calls that hold the action's name
ASIDE = ("thought", "thoughts", "reasoning", "id", "type")
VALUES = ("arguments", "parameters", "params", "args", "action_input", "input")  # and those of its parameters
CLOSING = {"[": "]", "\\boxed{": "}"}


def as_mapping(params: Any) -> Params:
    """An action's parameters as a mapping, however they were given."""
    return params if isinstance(params, Mapping) else {} if params is None else {"value": params}


def as_action(chosen: Any, who: str) -> tuple[str, Params]:
    """The name and parameters of what `who` chose: a name, or a pair of a name and a value. Raises UserError."""
    pair = isinstance(chosen, tuple | list) and len(chosen) == 2
    action, params = chosen if pair else (chosen, None)
    if not isinstance(action, str):
        raise UserError(f"{who} returned {chosen!r}: return an action's name, or its name and its value.")
    return action, as_mapping(params)


def read_action(text: str, names: Sequence[str], multiline: bool = False) -> tuple[str, dict[str, Any]]:
    """The first of `names` that begins a line, or else the first one, and its parameters: a JSON object, or as `value`
    what follows, its line alone unless values are `multiline`. A JSON tool call is read as one. Markdown, tags, prose
    and thoughts are not read. Without a name, the first word is the (invalid) action."""
    said = text.rpartition("</think>")[2]
    text = said if said.strip() else text
    spelt = (re.escape(n).replace("_", r"\\?_") for n in sorted(names, key=len, reverse=True))
    name, flags = rf"(?<!\w)({'|'.join(spelt)})(?!\w)", re.IGNORECASE | re.MULTILINE
    first = rf"^\W*(?:\d+[.)]\W*)?(?:action\W+)?{name}"
    found = (re.search(first, text, flags) or re.search(name, text, flags)) if names else None
    if found is None:
        return (text.split() or [""])[0][:40], {}
    start, end = found.span(1)
    if (brace := text.find("{", 0, start)) >= 0:
        with contextlib.suppress(ValueError, RecursionError):
            if call := _tool_call(json.JSONDecoder().raw_decode(text, brace)[0], names):
                return call
    action, rest = _known(found[1].replace("\\", ""), names), text[end:]
    if opening := re.search(r"(?:<(\w+)>\s*|\\boxed\{|\[|[*`]+)$", text[:start]):
        mark = f"</{opening[1]}>" if opening[1] else CLOSING.get(opening[0], opening[0])
        inside, closed, after = rest.partition(mark)
        rest = (inside if inside.strip(" :") else after) if closed else rest
    rest = re.sub(r"^\s*\n\s*(?:action.input|arguments?|value)\s*:", "", rest, flags=re.IGNORECASE)
    rest = re.sub(r"^[ \t]*(?:->|=>|→|=)", "", rest).lstrip(" :\t").rstrip()
    if rest.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            return action, json.JSONDecoder().raw_decode(rest)[0]
    value = rest.lstrip("\n") if multiline else _first_sentence(rest)
    if _enclosed(value, "()") or (text[end : end + 1] == "[" and _enclosed(value, "[]")):
        value = re.sub(r"^value\s*=\s*", "", value[1:-1]).strip("\"'“”")
    return action, {"value": value} if value else {}


def _known(name: str, names: Sequence[str]) -> str:
    return name if name in names else next(n for n in names if n.lower() == name.lower())


def _tool_call(call: Any, names: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """The action of {"name": …, "arguments": …}, {"action": …, "value": …} or {name: value}, also inside of others."""
    if isinstance(call, list):
        return next(filter(None, (_tool_call(one, names) for one in call)), None)
    if not isinstance(call, dict):
        return None
    lower = {n.lower() for n in names}
    for key in NAMES:
        if str(name := call.get(key)).lower() in lower:
            rest = {k: v for k, v in call.items() if k not in (key, *ASIDE)}
            given = next((call[k] for k in VALUES if k in call), rest)
            if isinstance(given, str):
                with contextlib.suppress(ValueError):
                    given = decoded if isinstance(decoded := json.loads(given), dict) else given
            return _known(str(name), names), dict(as_mapping(given))
    for key, value in call.items():
        if key.lower() in lower:
            return _known(key, names), dict(as_mapping(value))
    return _tool_call(list(call.values()), names)


def _first_sentence(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    return re.split(r"(?<=[\w)])[.!;]\s+(?=[A-Z])", line)[0].strip("`*\"'$“” ")


def _enclosed(value: str, pair: str) -> bool:
    """Whether the first bracket of a value is closed by its last."""
    opened, closed = pair
    if not (value.startswith(opened) and value.endswith(closed)):
        return False
    return min(accumulate((c == opened) - (c == closed) for c in value[1:-1]), default=0) >= 0
