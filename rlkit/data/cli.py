"""`rlkit data …`: list sources, look at, check and export rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="List sources; look at, check and export training rows.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Parquet or JSON files of rows.")]


@app.command()
def sources() -> None:
    """List the sources that `data.train` can name, with their options."""
    from rlkit.data.show import sources_table

    _print(sources_table())


@app.command()
def show(
    files: Files, each: Annotated[int, typer.Option(help="Samples of each data_source.", min=1)] = 1
) -> None:
    """Look at rows: some of every data_source, readably."""
    from rlkit.data import rows
    from rlkit.data.show import samples

    _print(samples((task for file in files for task in rows.tasks(file)), each))


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
    from rlkit.data.show import findings_table
    from rlkit.models.loading import load_tokenizer

    counted = load_tokenizer(tokenizer) if tokenizer else None
    found = lint(
        files, held_out=held_out or [], tokenizer=counted, max_prompt_length=max_prompt_length, score=score
    )
    _print(findings_table(found))
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


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)
