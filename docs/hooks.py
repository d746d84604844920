"""Tables of the documentation that come from the code: laws, configuration keys, commands."""

import re
from collections.abc import Iterator
from typing import Any


def laws_table() -> str:
    """Every law with its columns, parameters, formula and source."""
    from rlkit.laws import laws

    rows = ["| law | columns | parameters | formula and source |", "|---|---|---|---|"]
    for name in laws:
        law = laws[name]
        rows.append(
            f"| `{name}` | {', '.join(law.columns)} | {', '.join(law.parameters)} | {_cell(law.source)} |"
        )
    return "\n".join(rows)


def config_table() -> str:
    """Every key of RunConfig with its default and description, a section a table."""
    from rlkit.config import RunConfig

    parts = []
    for section, lines in _sections(RunConfig, "").items():
        parts.append(
            f"## {section or 'Top level'}\n\n| key | default | meaning |\n|---|---|---|\n" + "\n".join(lines)
        )
    return "\n\n".join(parts)


def commands() -> str:
    """Every command with its help."""
    import typer
    from typer.testing import CliRunner

    from rlkit.cli import app

    group: Any = typer.main.get_command(app)
    parts = []
    for name in group.commands:
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
        parts.append(f"## rlkit {name}\n\n```text\n{shown.strip()}\n```")
    return "\n\n".join(parts)


TABLES = {"laws": laws_table, "configuration": config_table, "commands": commands}


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
