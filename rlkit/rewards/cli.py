"""`rlkit score` and `rlkit audit`: grade a file of answers, and measure the graders."""

from pathlib import Path
from typing import Annotated

import typer

from rlkit.config import RewardConfig
from rlkit.params import validate
from rlkit.rewards import files

app = typer.Typer()
Scorer = Annotated[str, typer.Option(help="strict: rlkit's. verl: verl's own, by data_source.")]


@app.command(rich_help_panel="Rewards")
def score(
    answers: Annotated[Path, typer.Argument(help="JSONL: data_source, response, ground_truth, extra_info.")],
    out: Annotated[Path | None, typer.Option(help="Default: NAME.scored.jsonl beside the input.")] = None,
    scorer: Scorer = "strict",
    workers: Annotated[int, typer.Option(help="Grading processes; 0 is one a CPU core.", min=0)] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds an answer may take.")] = 10.0,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, rlimits or unsafe.")] = "auto",
) -> None:
    """Score a file of answers."""
    options = {"scorer": scorer, "num_workers": workers, "timeout": timeout, "sandbox": sandbox}
    counts = files.score_file(answers, out, validate(RewardConfig, options))
    typer.echo("{correct} of {rows} answers are right, {errors} could not be graded: {out}".format(**counts))


@app.command(rich_help_panel="Rewards")
def audit(
    scorer: Scorer = "strict",
    out: Annotated[Path, typer.Option(help="Where the JSON result goes.")] = Path("outputs/audit.json"),
) -> None:
    """Measure the graders on known right and wrong answers, cheats and hangs."""
    config = validate(RewardConfig, {"scorer": scorer, "timeout": files.AUDIT_SECONDS})
    result = files.audit(config, out)
    typer.echo(f"{result.table()}\nEach case and its verdict: {out}")
    raise typer.Exit(int(bool(result.failures)))
