"""Looking at rows: samples of every data_source, for terminal and notebook, and tables of what there is."""

import html
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlkit.data.guru import Imported, domain
from rlkit.domains import Source
from rlkit.domains import sources as registry
from rlkit.types import Task

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1500
"""Characters of a prompt or ground truth that are shown."""


def samples(tasks: Iterable[Task], each: int = 1) -> list[Task]:
    """The first `each` tasks of every data_source, by name."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if len(found.setdefault(task.data_source, [])) < each:
            found[task.data_source].append(task)
    return [task for source in sorted(found) for task in found[source]]


def panels(tasks: Sequence[Task]) -> Group:
    """The tasks for the terminal, one panel each."""
    shown = []
    for task in tasks:
        body = Text(_cut("\n".join(f"[{m['role']}] {m['content']}" for m in task.prompt)))
        body.append(f"\n→ {_truth(task)}", style="green")
        shown.append(Panel(body, title=f"{task.data_source} ({task.ability})", title_align="left"))
    return Group(*shown)


def cards(tasks: Sequence[Task]) -> str:
    """The tasks as HTML for a notebook; grids are drawn in ARC's colours."""
    return "\n".join(
        f"<div style='border:1px solid #ccc;border-radius:6px;padding:.6rem;margin:.5rem 0'>"
        f"<b>{html.escape(t.data_source)}</b> <small>{html.escape(t.ability)}</small>"
        "<pre style='white-space:pre-wrap;text-align:left'>"
        f"{html.escape(_cut(t.prompt[-1]['content']))}</pre>"
        f"<div style='color:#176b2c'>→ {_answer_html(t)}</div></div>"
        for t in tasks
    )


_COLOURS = (
    "#000",
    "#0074d9",
    "#ff4136",
    "#2ecc40",
    "#ffdc00",
    "#aaa",
    "#f012be",
    "#ff851b",
    "#7fdbff",
    "#870c25",
)


def _answer_html(task: Task) -> str:
    grid = task.ground_truth
    if not (isinstance(grid, list) and grid and all(isinstance(row, list) for row in grid)):
        return html.escape(_truth(task))
    lines = "".join(
        "<tr>"
        + "".join(f"<td style='width:14px;height:14px;background:{_COLOURS[c % 10]}'></td>" for c in row)
        for row in grid
    )
    return f"<table style='border-spacing:1px;display:inline-table'>{lines}</table>"


def counts_frame(tasks: Iterable[Task]) -> "pd.DataFrame":
    """One row a data_source: domain, rows, distinct tasks, mean characters of a prompt."""
    import pandas as pd

    frame = pd.DataFrame(
        {"data_source": t.data_source, "id": t.id, "characters": sum(len(m["content"]) for m in t.prompt)}
        for t in tasks
    )
    frame = frame.groupby("data_source").agg(
        rows=("id", "size"), distinct=("id", "nunique"), characters=("characters", "mean")
    )
    frame.insert(0, "domain", [domain(str(s)) for s in frame.index])
    return frame.reset_index()


def sources_table() -> Table:
    """Every kind of source with its options and its first line of documentation."""
    table = Table("kind", "options", "what")
    hidden = {"kind", *Source.model_fields}
    for kind in registry:
        source = registry[kind]
        options = [
            name if field.is_required() else f"{name}={field.get_default(call_default_factory=True)!r}"
            for name, field in source.model_fields.items()
            if name not in hidden
        ]
        table.add_row(kind, ", ".join(options), (source.__doc__ or "").split("\n\n")[0])
    return table


def imported_table(imported: Imported) -> Table:
    """Rows of each domain against the published number, and what was already converted."""
    unchanged = f", {len(imported.unchanged)} of them unchanged" if imported.unchanged else ""
    table = Table("domain", "rows", "published (about)", title=f"{len(imported.counts)} files{unchanged}")
    for name, rows, published in imported.table():
        table.add_row(name, f"{rows:,}", f"{published:,}")
    return table


def _truth(task: Task) -> str:
    truth: Any = task.ground_truth
    return _cut(truth if isinstance(truth, str) else json.dumps(truth))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"
