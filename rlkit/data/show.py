"""Rows, sources and findings as the terminal and notebooks/data.ipynb show them."""

import json
from collections.abc import Iterable
from pathlib import Path

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlkit.data.check import CHECKS, Finding, Report
from rlkit.domains import Source, sources
from rlkit.types import Task

LONGEST = 1500
"""Characters of a prompt or ground truth that are shown."""
SHOWN = 3
"""Findings of a check that its line shows."""


def samples(tasks: Iterable[Task], each: int = 1) -> Group:
    """The first `each` tasks of every data_source, a panel each."""
    found: dict[str, list[Panel]] = {}
    for task in tasks:
        panels = found.setdefault(task.data_source, [])
        if len(panels) < each:
            truth = task.ground_truth if isinstance(task.ground_truth, str) else json.dumps(task.ground_truth)
            body = Text(_cut("\n".join(f"[{m['role']}] {m['content']}" for m in task.prompt)))
            body.append(f"\n→ {_cut(truth)}", style="green")
            panels.append(Panel(body, title=f"{task.data_source} ({task.ability})", title_align="left"))
    return Group(*(panel for source in sorted(found) for panel in found[source]))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


def sources_table() -> Table:
    """Every kind of source with its options and its first line of documentation."""
    table = Table("kind", "options", "what")
    for kind in sources:
        options = [
            name if field.is_required() else f"{name}={field.get_default(call_default_factory=True)!r}"
            for name, field in sources[kind].model_fields.items()
            if name not in ("kind", *Source.model_fields)
        ]
        table.add_row(kind, ", ".join(options), (sources[kind].__doc__ or "").split("\n\n")[0])
    return table


def findings_table(report: Report) -> Table:
    """For each check that found something: its severity, how many rows, what it means and the first of them."""
    found = {check: [f for f in report.findings if f.check == check] for check in CHECKS}
    clean = sum(not findings for findings in found.values())
    caption = f"{clean} checks clean" if report.findings else f"all {clean} checks clean"
    if report.ungraded:
        caption += f"; {report.ungraded:,} rows have no reference answer to grade"
    title = f"{len(report.sources):,} rows, {len(set(report.sources))} data sources"
    table = Table("check", "rows", "findings", title=title, caption=caption, show_lines=True)
    for check, (severity, meaning) in CHECKS.items():
        if findings := found[check]:
            lines = [f"{meaning}:", *(f"{_place(f, report)}: {f.detail}" for f in findings[:SHOWN])]
            lines += ["…"] if len(findings) > SHOWN else []
            style = {"error": "red", "warning": "yellow"}[severity]
            table.add_row(f"{check}\n{severity}", f"{len(findings):,}", Text("\n".join(lines)), style=style)
    return table


def _place(finding: Finding, report: Report) -> str:
    """Where a finding is, without the file's name where there is but one."""
    name = Path(finding.file).name
    if finding.row < 0:
        return name
    return f"row {finding.row}" if len(report.files) == 1 else f"{name}, row {finding.row}"
