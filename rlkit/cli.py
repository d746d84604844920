"""The command line. Every command is a few lines over a public function.

A new command goes under its room's heading below: a function with `@app.command(...)`, its heavy imports
inside the body (`rlkit --help` imports no torch), its inputs typed, its docstring the help text. Raise
UserError for bad input: `main` prints it as one sentence and exits with status 2.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rlkit.data.cli import app as data_app
from rlkit.errors import RunStopped, UserError, plain_warnings

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
def run(
    params: Params,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    root: Root = Path("outputs"),
) -> None:
    """Train one run, or continue it where it was ended."""
    from rlkit.params import parse_overrides
    from rlkit.report import run_end, run_plan
    from rlkit.study_file import load_one

    config = load_one(params, parse_overrides(overrides or []))  # before torch is loaded
    if dry_run:
        from rlkit.sizing.fit import fit_run
        from rlkit.sizing.text import verdict

        typer.echo(f"{run_plan(config, root)}\n{verdict(fit_run(config))}")
        return
    from rlkit.training import train

    result = train(config, root=root)
    typer.echo(run_end(result.status, result.folder, result.summary))
    if result.status == "stopped":  # by Ctrl-C, at a checkpoint
        raise typer.Exit(130)


@app.command(rich_help_panel="Runs and studies")
def verl(
    params: Params,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the command of verl.")] = False,
    root: Root = Path("outputs"),
) -> None:
    """Train one run on verl, whatever its trainer.backend; or only show what verl would be told."""
    import shlex

    from rlkit.params import parse_overrides
    from rlkit.scaleout import backend
    from rlkit.study_file import load_one

    config = load_one(params, {"trainer.backend": "verl", **parse_overrides(overrides or [])})
    if not dry_run:
        result = backend.train(config, root=root)
        typer.echo(f"{result.status}: {result.folder}")
        raise typer.Exit(130 if result.status == "stopped" else 0)
    command, written = backend.dry_run(config, root)
    typer.echo(shlex.join(command))
    typer.echo(f"wrote {written}", err=True)


@app.command(rich_help_panel="Runs and studies")
def study(
    params: Params,
    overrides: Overrides = None,
    workers: Annotated[
        str, typer.Option(help="Runs at a time; 0 is one a CPU core or GPU, auto what a GPU's memory holds.")
    ] = "0",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs and their cost.")] = False,
    root: Root = Path("outputs"),
    executor: Annotated[str, typer.Option(help="Where runs are executed: local, ray or slurm.")] = "local",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Of ray (address, num_gpus) or slurm (submitit's); repeatable."
        ),
    ] = None,
) -> None:
    """Train every run of a study, then analyse it; what is finished is not repeated."""
    import rlkit
    from rlkit.params import parse_overrides

    result = rlkit.study(
        params, parse_overrides(overrides or []), workers=_workers(workers), dry_run=dry_run, root=root,
        executor=executor, options=parse_overrides(option or []),
    )  # fmt: skip
    if result.failed:
        raise typer.Exit(1)


@app.command(rich_help_panel="Runs and studies")
def status(
    path: Annotated[Path, typer.Argument(help="outputs, outputs/<study>, or a run's folder.")] = Path(
        "outputs"
    ),
    watch: Annotated[bool, typer.Option("--watch", help="Go on until every run has ended.")] = False,
) -> None:
    """Show the runs of a study: how far each is, how well it does, and whether it still lives."""
    from rlkit.report import status_table, watch_status

    if watch:
        watch_status(path)
    else:
        _print(status_table(path))


@app.command(rich_help_panel="Runs and studies")
def config(
    params: Annotated[Path | None, typer.Argument(help="Show this file's complete configuration.")] = None,
    overrides: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of all keys.")] = False,
) -> None:
    """Show a file's complete configuration with all defaults, or the schema of all keys."""
    from rlkit.config import RunConfig, load
    from rlkit.params import parse_overrides
    from rlkit.store import config_yaml

    if schema:
        typer.echo(json.dumps(RunConfig.model_json_schema(), indent=2))
    elif params is None:
        raise UserError("Give a YAML file to show, or --schema.")
    else:
        typer.echo(config_yaml(load(params, parse_overrides(overrides or []))), nl=False)


@app.command(rich_help_panel="Runs and studies")
def verify_resume(
    params: Params,
    overrides: Overrides = None,
    kills: Annotated[int, typer.Option(help="How often the run is killed.", min=1)] = 2,
) -> None:
    """Run twice, killing one at random moments, and compare both bit for bit."""
    import rlkit
    from rlkit.params import parse_overrides
    from rlkit.training import verify_resume as verify

    result = verify(rlkit.load(params, parse_overrides(overrides or [])), kills=kills, say=typer.echo)
    if result.differences:
        raise typer.Exit(_say("Different:\n" + "\n".join(result.differences), 1))
    typer.echo(f"Bit-identical after {result.kills} kills.")


@app.command(rich_help_panel="Runs and studies")
def figures(
    path: Annotated[Path, typer.Argument(help="outputs/<study>.")],
    venue: Annotated[str, typer.Option(help="neurips, iclr, icml, icml-text, acl, jmlr …")] = "neurips",
    out: Annotated[Path | None, typer.Option(help="Default: the study's figures folder.")] = None,
    law: Annotated[str, typer.Option(help="A law over the runs; default: that of the analysis.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help="Say why figures are left out.")] = False,
) -> None:
    """Write all figures and tables of a study for a paper: PDF, SVG, PNG, the data drawn, the sources."""
    from rlkit.figures.study import render

    files, missing = render(path, venue, out, law)
    if missing:
        names = ", ".join(missing)
        hint = "" if verbose else "; --verbose says what"
        typer.echo(f"not drawn, for this study lacks what they need ({len(missing)}): {names}{hint}")
    for name, reason in missing.items() if verbose else ():
        typer.echo(f"  {name}: {reason}")
    typer.echo(f"wrote {len(files)} files to {files[0].parent}")


@app.command(rich_help_panel="Runs and studies")
def sync(path: Annotated[Path, typer.Argument(help="A run's folder, outputs/<study> or outputs.")]) -> None:
    """Upload runs to Weights & Biases: the steps that it does not have yet."""
    from rlkit.training.tracking import sync as upload

    for run, steps in upload(path).items():
        typer.echo(f"{run}: {steps} steps uploaded")


@app.command(rich_help_panel="Runs and studies")
def doctor(
    overrides: Overrides = None,
    fit: Annotated[
        str,
        typer.Option(metavar="MODEL|FILE", help="Predict memory and seconds of a run of this model or file."),
    ] = "",
    device: Annotated[str, typer.Option(help="With --fit: h100, h200, a100, l4 …, cpu, or here.")] = "here",
    prompt_tokens: Annotated[int, typer.Option(help="With --fit: of a prompt; 0 is the limit.", min=0)] = 0,
    response_tokens: Annotated[
        int, typer.Option(help="With --fit: of a response; 0 is the limit.", min=0)
    ] = 0,
) -> None:
    """Say what this machine has, what works on it and how to mend the rest; or whether a run fits."""
    from rlkit.params import parse_overrides
    from rlkit.sizing import text

    if not fit:
        if overrides:
            raise UserError(f"{overrides[0]!r} is an override, which only --fit has a use for.")
        from rlkit.rewards.sandbox.levels import report

        _print(text.machine_table())
        typer.echo(report())
        return
    from rlkit.sizing.fit import fit as predict

    found = predict(fit, parse_overrides(overrides or []), device, (prompt_tokens, response_tokens))
    typer.echo(found.summary())
    raise typer.Exit(int(not found.fits))


# --- Data ---------------------------------------------------------------------------------------------

app.add_typer(data_app, name="data", rich_help_panel="Data")

# --- Rewards ------------------------------------------------------------------------------------------

Scorer = Annotated[str, typer.Option(help="strict, or guru: what Reasoning360 computes.")]
Workers = Annotated[int, typer.Option(help="Grading processes; 0 is one a CPU core.", min=0)]


@app.command(rich_help_panel="Rewards")
def score(
    answers: Annotated[
        Path, typer.Argument(help="JSON lines: data_source, response, ground_truth, extra_info.")
    ],
    out: Annotated[Path | None, typer.Option(help="Default: NAME.scored.jsonl beside the input.")] = None,
    scorer: Scorer = "strict",
    workers: Workers = 0,
    timeout: Annotated[float, typer.Option(help="Seconds an answer may take.")] = 10.0,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, rlimits or unsafe.")] = "auto",
) -> None:
    """Score a file of answers; an interrupted call goes on where it was."""
    from rlkit.config import RewardConfig
    from rlkit.params import validate
    from rlkit.rewards import score_file

    options = {"scorer": scorer, "num_workers": workers, "timeout": timeout, "sandbox": sandbox}
    counts = score_file(answers, out, validate(RewardConfig, options))
    typer.echo("{correct} of {rows} answers are right, {errors} could not be graded: {out}".format(**counts))


@app.command(rich_help_panel="Rewards")
def audit(
    data: Annotated[
        Path | None, typer.Option(help="A data file: each truth against itself and another's.")
    ] = None,
    scorer: Scorer = "strict",
    out: Annotated[Path, typer.Option(help="Where the result is stored as JSON.")] = Path(
        "outputs/audit.json"
    ),
) -> None:
    """Measure the graders on known right and wrong answers, cheats and hangs."""
    from rlkit import rewards
    from rlkit.config import RewardConfig
    from rlkit.params import validate

    config = validate(RewardConfig, {"scorer": scorer, "timeout": 5.0})
    result = rewards.audit(config, data, out)
    typer.echo(result.table())
    raise typer.Exit(int(bool(result.failures)))


# --- Environments and serving -------------------------------------------------------------------------

demo = typer.Typer(help="Whole examples, from data to a trained model.", no_args_is_help=True)
new = typer.Typer(help="Start a file of your own from a working template.", no_args_is_help=True)
app.add_typer(demo, name="demo", rich_help_panel="Environments and serving")
app.add_typer(new, name="new", rich_help_panel="Environments and serving")


@demo.command("math")
def demo_math(
    model: Annotated[
        str, typer.Option(help="Ladder size, packaged model, folder or hub id.")
    ] = "ladder-100k",
    episodes: Annotated[int, typer.Option(help="Demonstrations to train on.", min=1)] = 2000,
    online_steps: Annotated[
        int, typer.Option(help="Steps of online RL in the environment; 0 for none.", min=0)
    ] = 60,
    problems: Annotated[int, typer.Option(help="Held-out equations.", min=2)] = 200,
    seed: int = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    root: Root = Path("outputs"),
) -> None:
    """Teach a small model to solve equations step by step: offline, then by acting."""
    from rlkit.environments.metrics import metrics_text
    from rlkit.params import validate
    from rlkit.training.agentic_demo import MathDemo, math_demo

    settings = {
        "model": model, "episodes": episodes, "online_steps": online_steps, "problems": problems, "seed": seed
    }  # fmt: skip
    if dry_run:
        typer.echo(validate(MathDemo, settings).plan(root))
        return
    result = math_demo(root=root, say=typer.echo, **settings)
    typer.echo(metrics_text(result.table).to_string())
    if result.run is not None:
        typer.echo(f"Serve it: rlkit serve {result.run.folder}")


@demo.callback()
def _demo() -> None:
    """Whole examples, from data to a trained model."""


@new.command("environment")
def new_environment(name: str) -> None:
    """Write a working environment and its test, to be changed into yours."""
    from rlkit.environments.scaffold import new_environment

    source, test = new_environment(name)
    overrides = f"{{overrides: {{kind: {source.stem}, options: {{instructions: brief}}}}}}"
    typer.echo(
        f"wrote {source}\nwrote {test}\n"
        f"1. Make it your world, and test it: python -m pytest {test}\n"
        f"2. Agents, trajectories, training and a test of the model, in notebooks/custom_domain.ipynb:\n"
        f"   papermill notebooks/custom_domain.ipynb {source.stem}.ipynb -y '{overrides}'\n"
        f"3. Online training of the model that the notebook keeps:\n   {_online(source.stem)}"
    )


def _online(kind: str) -> str:
    """The command that trains in an environment, sized for a new world: few problems, short episodes."""
    data = f"'data.train=[{{kind: environment, environment: {{kind: {kind}, instructions: brief}}}}]'"
    return (
        f"rlkit run params/train.yaml study={kind} model.path=outputs/{kind}/offline {data} data.train_batch_size=16 "
        "data.max_prompt_length=256 data.max_response_length=300 rollout.max_turn_length=40 evaluation.size=6 "
        "trainer.total_training_steps=20"
    )


@new.callback()
def _new() -> None:
    """Start a file of your own from a working template."""


@app.command(rich_help_panel="Environments and serving")
def serve(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    host: Annotated[str, typer.Option(help="Any but this machine needs RLKIT_API_KEY.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    constrained: Annotated[bool, typer.Option("--constrained", help="Allow valid actions only.")] = False,
    max_concurrent: Annotated[int, typer.Option(help="Episodes at a time; 429 beyond.", min=1)] = 256,
    timeout: Annotated[float, typer.Option(help="Seconds of an episode; 504 beyond.", min=0.1)] = 60.0,
) -> None:
    """Answer problems over HTTP with a trained policy: POST /solve, /docs for the rest.

    Ctrl-C or SIGTERM ends it: running requests have 30 s to finish.
    """
    from rlkit.serving import Settings
    from rlkit.serving import serve as run_server

    settings = Settings(constrained=constrained, max_concurrent=max_concurrent, timeout=timeout)
    run_server(path, host, port, settings, typer.echo)


@app.command("export", rich_help_panel="Environments and serving")
def export_policy(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Write a policy as a Hugging Face folder (adapter merged) with a model card."""
    from rlkit.export import export

    typer.echo(f"wrote {export(path, folder)}")


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
    """Plan a study: the best use of a budget, what a design would show, which runs to add; or how many GPUs a
    model needs (a file with `sizing`)."""
    from rlkit.laws.planning import plan as make
    from rlkit.params import override, parse_overrides, read_yaml

    changes = parse_overrides(overrides or [])
    content = override(read_yaml(params), changes)
    if "sizing" in content:
        from rlkit.scaleout.sizing import size

        typer.echo(size(content, str(params)).summary())
    else:
        typer.echo(make(params, changes).summary())


def _workers(value: str) -> "int | Literal['auto']":
    if value == "auto":
        return "auto"
    if not value.isdigit():
        raise UserError(f"--workers is {value!r}: give a number of runs, 0, or auto.")
    return int(value)


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)


def main() -> None:
    """The console script: bad input is one sentence and status 2, Ctrl-C is status 130."""
    plain_warnings()
    try:
        app()
    except UserError as error:
        sys.exit(_say(f"Error: {error}", 2))
    except RunStopped as error:
        sys.exit(_say(f"Stopped: {error}", 1))
    except KeyboardInterrupt:
        sys.exit(_say("Interrupted.", 130))


def _say(sentence: str, status: int) -> int:
    typer.echo(sentence, err=True)
    return status
