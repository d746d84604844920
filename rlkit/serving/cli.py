"""`rlkit new`, `rlkit serve` and `rlkit export`: agents, from an environment to answers over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
new = typer.Typer(no_args_is_help=True)
app.add_typer(new, name="new", rich_help_panel="Environments and serving")


@new.command("environment")
def new_environment(name: str) -> None:
    """Write a working environment and its test into this folder, to be changed into yours."""
    from rlkit.environments.scaffold import new_environment

    source, test = new_environment(name, Path())
    overrides = f"{{overrides: {{kind: {source.stem}, options: {{instructions: brief}}}}}}"
    typer.echo(
        f"wrote {source}\nwrote {test}\n"
        f"1. Make it your world, and test it: python -m pytest {test}\n"
        f"2. Agents, trajectories, training and a test of the model, in notebooks/custom_domain.ipynb:\n"
        f"   RLKIT_PLUGINS={source} papermill notebooks/custom_domain.ipynb {source.stem}.ipynb -y '{overrides}'"
    )


@new.callback(help="Start a file of your own from a working template.")
def _new() -> None: ...


@app.command(rich_help_panel="Environments and serving")
def serve(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    host: Annotated[str, typer.Option(help="Any but this machine needs RLKIT_API_KEY.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_concurrent: Annotated[int, typer.Option(help="Episodes that run or wait; 429 beyond.", min=1)] = 256,
    timeout: Annotated[float, typer.Option(help="Seconds of an episode; 504 beyond.", min=0.1)] = 60.0,
    max_turn_length: Annotated[
        int | None, typer.Option(help="Tokens of a turn; default what the run was trained with.", min=1)
    ] = None,
) -> None:
    """Answer problems over HTTP with a trained policy: POST /solve, /docs for the rest. Ctrl-C or SIGTERM ends it:
    running requests have 30 s to finish."""
    from rlkit.serving.app import serve as run_server
    from rlkit.serving.solver import Settings

    settings = Settings(max_concurrent=max_concurrent, timeout=timeout, max_turn_length=max_turn_length)
    run_server(path, host, port, settings, typer.echo)


@app.command("export", rich_help_panel="Environments and serving")
def export_policy(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Write a policy as a Hugging Face folder (adapter merged)."""
    from rlkit.training.export import export

    typer.echo(f"wrote {export(path, folder)}")
