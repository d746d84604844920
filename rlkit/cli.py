"""The command line. Every command is a few lines over a public function.

A new command goes under its room's heading below: a function with `@app.command(...)`, its heavy imports
inside the body (`rlkit --help` imports no torch), its inputs typed, its docstring the help text. Raise
UserError for bad input: `main` prints it as one sentence and exits with status 2.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlkit.data.cli import app as data_app
from rlkit.errors import RunStopped, UserError

app = typer.Typer(
    help="Train, evaluate and fit the scaling laws of language-model reinforcement learning.",
    epilog="Begin with: rlkit study params/quickstart.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Params = Annotated[Path, typer.Argument(help="A YAML file, e.g. params/quickstart.yaml.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, e.g. actor.optim.lr=1e-4.")
]
Root = Annotated[Path, typer.Option(help="The folder that results are written to.")]


# --- Runs and studies ---------------------------------------------------------------------------------


@app.command(rich_help_panel="Runs and studies")
def run(params: Params, overrides: Overrides = None, root: Root = Path("outputs")) -> None:
    """Train one run, or continue it where it was ended."""
    import rlkit
    from rlkit.config import parse_overrides

    result = rlkit.train(rlkit.load(params, parse_overrides(overrides or [])), root=root)
    typer.echo(f"{result.status}: {result.folder}")


@app.command(rich_help_panel="Runs and studies")
def study(
    params: Params,
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option(help="Runs at a time; 0 is one a CPU core or GPU.", min=0)] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs and their cost.")] = False,
    root: Root = Path("outputs"),
) -> None:
    """Train every run of a study, then analyse it; what is finished is not repeated."""
    import rlkit
    from rlkit.config import parse_overrides

    changes = parse_overrides(overrides or [])
    result = rlkit.study(params, changes, workers=workers, dry_run=dry_run, root=root)
    if result.failed:
        raise typer.Exit(1)


@app.command(rich_help_panel="Runs and studies")
def status(path: Annotated[Path, typer.Argument(help="outputs/<study>, or a run's folder.")]) -> None:
    """Show the runs of a study: how far each is and how well it does."""
    from rlkit.report import status_table

    _print(status_table(path))


@app.command(rich_help_panel="Runs and studies")
def config(
    params: Annotated[Path | None, typer.Argument(help="Show this file's complete configuration.")] = None,
    overrides: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of all keys.")] = False,
) -> None:
    """Show a file's complete configuration with all defaults, or the schema of all keys."""
    from rlkit.config import RunConfig, load, parse_overrides
    from rlkit.store import config_yaml

    if schema:
        typer.echo(json.dumps(RunConfig.model_json_schema(), indent=2))
    elif params is None:
        raise UserError("Give a YAML file to show, or --schema.")
    else:
        typer.echo(config_yaml(load(params, parse_overrides(overrides or []))), nl=False)


# --- Data ---------------------------------------------------------------------------------------------

app.add_typer(data_app, name="data", rich_help_panel="Data")

# --- Rewards ------------------------------------------------------------------------------------------

# --- Models, training and evaluation ------------------------------------------------------------------

# --- Environments and serving -------------------------------------------------------------------------

# --- Laws ---------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Laws")
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV, Parquet or JSON-lines file, or outputs/<study>.")],
    law: Annotated[str, typer.Option(help="The law, e.g. saturating_power, chinchilla, sigmoid.")],
    y: Annotated[str, typer.Option(help="The column to fit.")],
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=COLUMN", help="N=params, or D='flops / 6 / params'; repeatable."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Options of rlkit.fit, e.g. bootstrap=1000."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the fit as JSON to this file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the fit into this file.")] = None,
) -> None:
    """Fit a scaling law to a table from anywhere, or to the final points of a study."""
    from rlkit.laws.command import fit_file

    typer.echo(fit_file(data, law, y, columns or [], options or [], out, figure))


@app.command(rich_help_panel="Laws")
def plan(params: Params, overrides: Overrides = None) -> None:
    """Plan a study: the best use of a budget, what a design would show, and which runs to add."""
    from rlkit.config import parse_overrides
    from rlkit.laws import plan as make

    typer.echo(make(params, parse_overrides(overrides or [])).summary())


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)


def main() -> None:
    """The console script: bad input is one sentence and status 2, Ctrl-C is status 130."""
    import click

    try:
        status = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except UserError as error:
        status = _say(f"Error: {error}", 2)
    except RunStopped as error:
        status = _say(f"Stopped: {error}", 1)
    except (KeyboardInterrupt, click.Abort):
        status = _say("Interrupted.", 130)
    sys.exit(status if isinstance(status, int) else 0)


def _say(sentence: str, status: int) -> int:
    typer.echo(sentence, err=True)
    return status
