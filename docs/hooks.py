"""Tables of the documentation that come from the code: laws, configuration keys, commands."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def laws_table() -> str:
    """Every law with its columns, parameters, formula (MathML, which browsers set without scripts) and source."""
    from latex2mathml.converter import convert

    from rlkit.figures.laws import equation
    from rlkit.laws import laws

    rows = ["| law | formula | columns | parameters | meaning and source |", "|---|---|---|---|---|"]
    for name in laws:
        law = laws[name]
        names = f"{', '.join(law.columns)} | {', '.join(law.parameters)}"
        _, *said = re.split(r" (?=\([A-Z][a-z])|[:;,] ", law.source, maxsplit=1)  # behind its formula
        rows.append(f"| `{name}` | {convert(equation(law).strip('$'))} | {names} | {_cell(''.join(said))} |")
    return "\n".join(rows)


def config_table() -> str:
    """Every key of RunConfig with its default and description, a section a table."""
    from rlkit.config import RunConfig

    parts = []
    for section, lines in _sections(RunConfig, "").items():
        parts.append(f"## {section or 'Top level'}\n\n| key | default | meaning |\n|---|---|---|\n" + "\n".join(lines))
    return "\n\n".join(parts)


def commands() -> str:
    """Every command, those of groups included, with what it does, its arguments and its options."""
    import typer

    from rlkit.cli import app

    return "\n\n".join(_command("rlkit", typer.main.get_command(app)))


def _command(name: str, command: Any) -> Iterator[str]:
    """The sections of a command, or of each command of a group."""
    if hasattr(command, "commands"):
        for word, one in command.commands.items():
            yield from _command(f"{name} {word}", one)
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(p.metavar or (p.name or "").upper() for p in arguments)])
    yield f"## {name}\n\n{_escaped_text(command.help or '')}\n\n```sh\n{usage}\n```"
    rows = [
        f"| {_named(p)} | {'' if p.default in (None, False, ()) or callable(p.default) else f'`{p.default}`'} "
        f"| {_cell(getattr(p, 'help', None) or '')} |"
        for p in command.params
        if getattr(p, "help", None) or p not in arguments
    ]
    if rows:
        yield "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows])


def _named(parameter: Any) -> str:
    names = parameter.opts if parameter.param_type_name == "option" else [(parameter.name or "").upper()]
    return ", ".join(f"`{name}`" for name in names)


def _escaped_text(text: str) -> str:
    """Paragraphs of help as Markdown."""
    return "\n\n".join(_cell(part) for part in text.replace("\b", "").split("\n\n"))


def rooms() -> str:
    """The picture of the rooms and their imports."""
    sys.path.insert(0, str(Path(__file__).parent))
    from rooms import picture

    return picture(Path(__file__).parent.parent)


TABLES = {"laws": laws_table, "configuration": config_table, "commands": commands, "rooms": rooms}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill `<!-- laws -->` and the like."""
    return re.sub(r"<!-- (\w+) -->", lambda match: TABLES[match[1]](), markdown)


def _sections(model: Any, prefix: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {prefix.rstrip("."): []}
    for name, info in model.model_fields.items():
        if hasattr(info.annotation, "model_fields"):
            found |= _sections(info.annotation, f"{prefix}{name}.")
        else:
            default = "required" if info.is_required() else info.get_default(call_default_factory=True)
            row = f"| `{prefix}{name}` | `{_cell(str(default))}` | {_cell(info.description or '')} |"
            found[prefix.rstrip(".")].append(row)
    return {section: rows for section, rows in found.items() if rows}


def _cell(text: str) -> str:
    return " ".join(_escaped(text))


def _escaped(text: str) -> Iterator[str]:
    for word in text.split():
        yield word.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")
