"""`rlkit data …`: make, import, look at, check and export training rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rlkit.errors import UserError

app = typer.Typer(help="Make, import, look at, check and export training rows.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Parquet or JSON files of rows.")]
Params = Annotated[Path, typer.Argument(help="A YAML file with a data section.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")]


@app.command()
def sources() -> None:
    """List the sources that `data.train` can name, with their options."""
    from rlkit.data.show import sources_table

    _print(sources_table())


@app.command()
def build(
    params: Params,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder for train, test and sft rows.")] = Path("data/built"),
) -> None:
    """Make a run's rows: mixed, ordered, apart from the held-out ones; with sft_ratio also SFT rows."""
    export("rows", out, params, overrides)


@app.command(name="import")
def import_(
    what: Annotated[str, typer.Argument(help="guru")],
    source: Annotated[list[str], typer.Option("--from", help="hub, folders or files; repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder for the converted files.")] = Path("data/guru"),
) -> None:
    """Convert Guru-RL-92k, from the hub or from files, into rows."""
    from rlkit.data.guru import import_guru
    from rlkit.data.show import imported_table

    if what != "guru":
        raise UserError(f"Cannot import {what!r}: guru is what can be imported.")
    _print(imported_table(import_guru(source, out)))


@app.command()
def show(
    files: Files, each: Annotated[int, typer.Option(help="Samples of each data_source.", min=1)] = 1
) -> None:
    """Look at rows: some of every data_source, readably."""
    from rlkit.data import rows
    from rlkit.data.show import panels, samples

    _print(panels(samples((t for f in files for t in rows.tasks(f)), each)))


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

    found = lint(
        files,
        held_out=held_out or [],
        tokenizer=_tokenizer(tokenizer) if tokenizer else None,
        max_prompt_length=max_prompt_length,
        score=score,
    )
    _print(findings_table(found))
    raise typer.Exit(found.exit_status)


@app.command()
def export(
    form: Annotated[str, typer.Argument(help="verl, trl, jsonl or rows.")],
    out: Annotated[Path, typer.Argument(help="Folder, or for --file the file's name without suffix.")],
    params: Annotated[Path | None, typer.Argument(help="A YAML file: the rows of its run, in order.")] = None,
    overrides: Overrides = None,
    file: Annotated[
        list[Path] | None, typer.Option(help="Prepared rows to convert instead; repeatable.")
    ] = None,
) -> None:
    """Write a run's rows, or prepared files, for verl, for TRL or as JSON lines."""
    from rlkit.config import load
    from rlkit.data import exporting as module
    from rlkit.params import parse_overrides

    if form not in ("verl", "trl", "jsonl", "rows"):
        raise UserError(f"Cannot export to {form!r}: use verl, trl, jsonl or rows.")
    if (params is None) == (not file):
        raise UserError("Give either a YAML file or --file with prepared rows to export.")
    if file:
        written = {out.name: module.convert(file, out, form)}
    else:
        written = module.export(load(str(params), parse_overrides(overrides or [])), out, form)
    typer.echo(", ".join(f"{name}: {n:,} rows" for name, n in written.items()))


def _tokenizer(name: str) -> Any:
    from rlkit.models.loading import pretrained
    from rlkit.models.tokenizer import byte_tokenizer

    if name.startswith("ladder"):
        return byte_tokenizer()
    from transformers import AutoTokenizer

    with pretrained(name, "--tokenizer") as found:
        return AutoTokenizer.from_pretrained(**found)


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)
