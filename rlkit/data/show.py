"""Looking at rows: samples, tables and pictures, for the terminal and for notebooks/data.ipynb."""

import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlkit.data.check import CHECKS, Finding, Report
from rlkit.data.guru import domain
from rlkit.data.stream import TaskStream
from rlkit.domains import Source
from rlkit.domains import sources as registry
from rlkit.figures import Drawing, styled
from rlkit.types import Task

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1500
"""Characters of a prompt or ground truth that are shown."""
SHOWN = 3
"""Findings of a check that its line shows."""


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
"""ARC's, of the cells 0 to 9."""


def _answer_html(task: Task) -> str:
    grid = task.ground_truth
    rows = grid if isinstance(grid, list) and all(isinstance(row, list) for row in grid) else []
    if not rows or not all(isinstance(cell, int) for row in rows for cell in row):
        return html.escape(_truth(task))
    cell = "<td style='width:14px;height:14px;background:{}'></td>"
    lines = "".join(f"<tr>{''.join(cell.format(_COLOURS[c % 10]) for c in row)}</tr>" for row in rows)
    return f"<table style='border-spacing:1px;display:inline-table'>{lines}</table>"


def _truth(task: Task) -> str:
    truth: Any = task.ground_truth
    return _cut(truth if isinstance(truth, str) else json.dumps(truth))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


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


def imported_table(imported: Mapping[str, Counter[str]]) -> Table:
    """Rows of each domain in converted files."""
    found: Counter[str] = Counter()
    for counts in imported.values():
        for source, n in counts.items():
            found[domain(source)] += n
    table = Table("domain", "rows", title=f"{len(imported)} files")
    for name, n in sorted(found.items()):
        table.add_row(name, f"{n:,}")
    return table


def findings_table(report: Report) -> Table:
    """For each check that found something: its severity, how many rows, what it means and the first of them."""
    counts = report.counts()
    clean = len(CHECKS) - len(counts)
    caption = f"{clean} checks clean" if counts else f"all {clean} checks clean"
    if report.ungraded:
        caption += f"; {report.ungraded:,} rows have no reference answer to grade"
    title = f"{len(report.sources):,} rows, {len(set(report.sources))} data sources"
    result = Table("check", "rows", "findings", title=title, caption=caption, show_lines=True)
    for check, (severity, meaning) in CHECKS.items():
        if counts[check]:
            first = [f for f in report.findings if f.check == check][:SHOWN]
            lines = [f"{meaning}:", *(f"{_place(f, report)}: {f.detail}" for f in first)]
            lines += ["…"] if counts[check] > len(first) else []
            style = {"error": "red", "warning": "yellow"}[severity]
            result.add_row(f"{check}\n{severity}", f"{counts[check]:,}", Text("\n".join(lines)), style=style)
    return result


def _place(finding: Finding, report: Report) -> str:
    """Where a finding is, without the file's name where there is but one."""
    name = Path(finding.file).name
    if finding.row < 0:
        return finding.data_source or name
    return f"row {finding.row}" if len(report.files) == 1 else f"{name}, row {finding.row}"


def findings_frame(report: Report) -> "pd.DataFrame":
    """One row a finding: check, severity, file, row, data_source, detail."""
    import pandas as pd

    columns = ["check", "severity", "file", "row", "data_source", "detail"]
    return pd.DataFrame([[getattr(f, c) for c in columns] for f in report.findings], columns=columns)


def sources_frame(report: Report) -> "pd.DataFrame":
    """One row a data_source: domain, rows, and the quartiles of its prompts' lengths."""
    import pandas as pd

    frame = pd.DataFrame({"data_source": report.sources, "length": report.lengths})
    groups = frame.groupby("data_source")["length"]
    result = groups.agg(rows="size", shortest="min", median="median", longest="max").reset_index()
    result.insert(1, "domain", [domain(str(s)) for s in result["data_source"]])
    return result


def balance(counts: "pd.DataFrame") -> Drawing:
    """Bars: rows of each data_source, of a table with the columns data_source and rows."""
    ordered = counts.sort_values("rows")
    with styled():
        figure, axes = _axes(0.6 + 0.2 * len(ordered))
        axes.barh(ordered["data_source"], ordered["rows"], color="#4878a8")
        axes.set_xlabel("rows")
    return Drawing(figure, ordered)


def lengths(report: Report) -> Drawing:
    """Histograms of prompt length, one line a domain."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame({"domain": [domain(s) for s in report.sources], "length": report.lengths})
    with styled():
        figure, axes = _axes(2.4)
        if len(table):
            edges = np.geomspace(max(1, table["length"].min()), table["length"].max() + 1, 40)
            for name, part in table.groupby("domain"):
                axes.hist(part["length"], edges, histtype="step", label=str(name))
            axes.set_xscale("log")
            axes.legend()
        axes.set(xlabel=f"{report.length_unit} a prompt", ylabel="rows")
    return Drawing(figure, table)


def exposure(stream: TaskStream) -> Drawing:
    """Areas: tasks of each source in each step of the run (not for an adaptive order)."""
    import matplotlib
    import pandas as pd

    steps = range(1, stream.config.trainer.total_training_steps + 1)
    shown = pd.DataFrame([stream.exposure(step) for step in steps], index=steps).filter(like="data/tasks/")
    shown.columns = shown.columns.str.removeprefix("data/tasks/")
    table = shown.diff().fillna(shown)
    with styled():
        figure, axes = _axes(2.6)
        colours = matplotlib.colormaps["tab20"].colors[: table.shape[1]]  # type: ignore[attr-defined]
        axes.stackplot(list(steps), table.T, labels=list(table.columns), colors=colours, step="mid")
        axes.set(xlabel="step", ylabel="tasks of each source")
        figure.legend(loc="outside right center")
    return Drawing(figure, table.rename_axis("step").reset_index())


def _axes(height: float) -> tuple[Any, Any]:
    """A figure of this height in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, height))
    return figure, figure.subplots()
