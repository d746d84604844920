"""`rlkit data …`: list sources, look at, check and export rows; and what it prints, for notebooks/data.ipynb too."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import print
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rlkit.data.check import Report
    from rlkit.types import Task

app = typer.Typer(help="List sources; look at, check and export training rows.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Parquet or JSON files of rows.")]


@app.command()
def sources() -> None:
    """List the sources that `data.train` can name, with their options."""
    from rlkit.domains import Source
    from rlkit.domains import sources as known

    table = Table("kind", "options", "what")
    for kind in known:
        options = [
            name if field.is_required() else f"{name}={field.get_default(call_default_factory=True)!r}"
            for name, field in known[kind].model_fields.items()
            if name not in ("kind", *Source.model_fields)
        ]
        table.add_row(kind, ", ".join(options), (known[kind].__doc__ or "").split("\n\n")[0])
    print(table)


@app.command()
def show(
    files: Files, each: Annotated[int, typer.Option(help="Samples of each data_source.", min=1)] = 1
) -> None:
    """Look at rows: some of every data_source, readably."""
    from rlkit.data import rows

    print(samples((task for file in files for task in rows.tasks(file)), each))


@app.command()
def check(
    files: Files,
    held_out: Annotated[
        list[Path] | None, typer.Option(help="Rows that must not be trained on; repeatable.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A ladder size, folder or hub id: counts tokens.")
    ] = None,
    max_prompt_length: Annotated[int | None, typer.Option(help="The window, in tokens.", min=1)] = None,
    score: Annotated[bool, typer.Option("--score", help="Grade every ground truth against itself.")] = False,
) -> None:
    """Check rows before training. Exit status: 0 clean, 1 warnings, 2 errors."""
    from rlkit.data.check import lint
    from rlkit.models.loading import load_tokenizer

    counted = load_tokenizer(tokenizer) if tokenizer else None
    found = lint(
        files, held_out=held_out or [], tokenizer=counted, max_prompt_length=max_prompt_length, score=score
    )
    print(findings_table(found))
    raise typer.Exit(found.exit_status)


@app.command()
def export(
    params: Annotated[Path, typer.Argument(help="A YAML file with a data section.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("data/built"),
) -> None:
    """Write a run's rows in their order as parquet files: train, test and, with sft_ratio, sft."""
    from rlkit.config import load
    from rlkit.data.exporting import export as write
    from rlkit.params import parse_overrides

    written = write(load(str(params), parse_overrides(overrides or [])), out)
    typer.echo(", ".join(f"{name}: {n:,} rows" for name, n in written.items()))


LONGEST = 1500
"""Characters of a prompt or ground truth that are shown."""
SHOWN = 3
"""Findings of a check that its line shows."""


def samples(tasks: "Iterable[Task]", each: int = 1) -> Group:
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


def findings_table(report: "Report") -> Table:
    """For each check that found something: its severity, how many rows, what it means and the first of them."""
    from rlkit.data.check import CHECKS

    found = {check: [f for f in report.findings if f.check == check] for check in CHECKS}
    clean = sum(not findings for findings in found.values())
    caption = f"{clean} checks clean" if report.findings else f"all {clean} checks clean"
    if report.ungraded:
        caption += f"; {report.ungraded:,} rows have no reference answer to grade"
    title = f"{len(report.sources):,} rows, {len(set(report.sources))} data sources"
    table = Table("check", "rows", "findings", title=title, caption=caption, show_lines=True)
    for check, (severity, meaning) in CHECKS.items():
        if findings := found[check]:
            lines = [f"{meaning}:", *(f"{f.place}: {f.detail}" for f in findings[:SHOWN])]
            lines += ["…"] if len(findings) > SHOWN else []
            style = {"error": "red", "warning": "yellow"}[severity]
            table.add_row(f"{check}\n{severity}", f"{len(findings):,}", Text("\n".join(lines)), style=style)
    return table
