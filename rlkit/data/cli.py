"""`rlkit data …`: list sources, check and export rows."""

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List sources; check and export training rows.", no_args_is_help=True)


@app.command()
def sources() -> None:
    """List the sources that `data.train` can name, with their options."""
    from rlkit.domains import Source
    from rlkit.domains import sources as known

    for kind in known:
        typer.echo(f"{kind}: {' '.join((known[kind].__doc__ or '').split()).partition('. ')[0].rstrip('.')}")
        for name, field in known[kind].model_fields.items():
            if name not in ("kind", *Source.model_fields):
                default = "" if field.is_required() else f"={field.get_default(call_default_factory=True)!r}"
                typer.echo(f"    {name}{default}")


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Parquet or JSON-lines files of rows.")],
    held_out: Annotated[list[Path] | None, typer.Option(help="Rows not to train on; repeatable.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A ladder size, folder or hub id, whose control tokens are looked for.")
    ] = None,
    score: Annotated[bool, typer.Option("--score", help="Grade every ground truth against itself.")] = False,
) -> None:
    """Check rows before training. Exit status: 0 clean, 1 warnings, 2 errors."""
    from rlkit.data.check import CHECKS, lint
    from rlkit.models.loading import load_tokenizer

    known = load_tokenizer(tokenizer) if tokenizer else None
    found = lint(files, held_out=held_out or [], tokenizer=known, score=score)
    for name, same in groupby(found.findings, lambda finding: finding.check):
        severity, meaning = CHECKS[name]
        findings = list(same)
        typer.echo(f"{name} ({severity}, {len(findings):,} rows): {meaning}")
        for finding in findings[:3]:
            typer.echo(f"    {Path(finding.file).name}, row {finding.row}: {finding.detail}")
    ungraded = f", of which {found.ungraded:,} have no answer to grade" if found.ungraded else ""
    typer.echo(f"{found.rows:,} rows{ungraded}: {len(found.findings):,} findings")
    raise typer.Exit(found.exit_status)


@app.command()
def export(
    params: Annotated[Path, typer.Argument(help="A YAML file with a data section.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("data/built"),
) -> None:
    """Write a run's rows in their order as parquet files, train and test."""
    from rlkit.config import load
    from rlkit.data.exporting import export as write
    from rlkit.params import parse_overrides

    written = write(load(str(params), parse_overrides(overrides or [])), out)
    typer.echo(", ".join(f"{name}: {n:,} rows" for name, n in written.items()))
