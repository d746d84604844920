"""Editing a study's params file in place: its comments and its form stay."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.studies.plan import make_plan


def add_variant(path: Path, name: str, changes: Mapping[str, Any]) -> str:
    """Add a variant to a study's file; values of the grid's keys go into the grid.

    The first variant comes with one of the name `base` that changes nothing, so that the cells there were stay.
    What was written before is restored when the study would not be valid.

    Returns:
        How many runs the study has now, and had.

    Raises:
        UserError: nothing changed, the name is taken, or the study would not be valid.
    """
    from ruamel.yaml import YAML

    if not changes:
        raise UserError("Nothing is changed, so there is nothing to add: move a control first.")
    before = path.read_text(encoding="utf-8")
    had = len(make_plan(path).runs)
    editor = YAML()
    editor.preserve_quotes, editor.width = True, 110
    editor.indent(mapping=2, sequence=4, offset=2)
    content = editor.load(before)
    grid = content.get("grid") or {}
    for key in [key for key in changes if key in grid]:
        if changes[key] not in grid[key]:
            grid[key].append(changes[key])
    own = {key: value for key, value in changes.items() if key not in grid}
    if own:
        variants = content.get("variants") or {"base": {}}
        if name in variants:
            raise UserError(f"{path} has a variant {name!r} already: give this one another name.")
        variants[name] = own
        content["variants"] = variants
    buffer = io.StringIO()
    editor.dump(content, buffer)
    write_text(path, buffer.getvalue())
    try:
        now = len(make_plan(path).runs)
    except UserError:
        write_text(path, before)
        raise
    return f"{path} has {now} runs now ({had} before): rlkit study {path} trains the new ones."
