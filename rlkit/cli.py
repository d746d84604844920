"""The command line: every command is a call of a public function, and its docstring the help text.

Heavy imports are inside the bodies: `rlkit --help` imports no torch. `main` prints a UserError as one sentence and
exits with status 2.
"""

import inspect
import json
import sys
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rlkit.config import RewardConfig, RunConfig, load
from rlkit.errors import RunStopped, UserError, did_you_mean, plain_warnings
from rlkit.files import existing, replacing, write_text
from rlkit.params import parse_overrides, read_yaml, settings, validate
from rlkit.serving import MAX_CONCURRENT, TIMEOUT
from rlkit.studies.file import load_one

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    help="Train, evaluate and fit the scaling laws of language-model reinforcement learning.",
    epilog="Begin with rlkit quickstart.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="List sources; check and export training rows.", no_args_is_help=True)
new = typer.Typer(help="Start a file of your own from a working template.", no_args_is_help=True)
app.add_typer(data, name="data", rich_help_panel="Data")
app.add_typer(new, name="new", rich_help_panel="Environments and serving")

Params = Annotated[Path, typer.Argument(help="A YAML file below params/.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, e.g. actor.optim.lr=1e-4.")
]
Root = Annotated[Path, typer.Option(help="The folder that results are written to.")]
Scale = Annotated[
    Literal["full", "tiny"],
    typer.Option(help="tiny: the smallest models and a few short steps on a CPU, to see that the file works."),
]


# --- Runs and studies ---------------------------------------------------------------------------------


@app.command(rich_help_panel="Runs and studies")
def run(
    params: Params,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    root: Root = Path("outputs"),
    scale: Scale = "full",
) -> None:
    """Train one run, or continue it where it was ended."""
    config = load_one(_scaled(params, scale, root), parse_overrides(overrides))  # before torch is loaded
    if dry_run:
        return _plan_run(config, root)
    from rlkit.backends import train
    from rlkit.studies.status import run_end

    result = train(config, root=root)
    typer.echo(run_end(result.status, result.folder, result.summary))
    if result.status == "stopped":  # by Ctrl-C, at a checkpoint
        raise typer.Exit(130)


def _scaled(params: Path, scale: str, root: Path) -> Path:
    """The params file, or its reduced form, which is written."""
    if scale == "full":
        return params
    from rlkit.config.tiny import write_tiny
    from rlkit.studies.file import read_study

    if "run" in read_yaml(params):
        read_study(params, {})  # a wrong file is an error before another one is made of it
    target = write_tiny(params, root)
    typer.echo(f"wrote {target}", err=True)
    return target


def _plan_run(config: RunConfig, root: Path) -> None:
    """Say what a run would do and whether it fits; of a run on verl its command, and write its configuration."""
    typer.echo("Checking the configuration, its first tasks and what it needs …", err=True)
    from rlkit.sizing.doctor import fit
    from rlkit.studies.dry_run import run_plan
    from rlkit.training.checks import preflight

    local = config.trainer.backend == "local"
    if not local:
        from rlkit.verl.checks import check

        check(config)
    preflight(config)
    typer.echo(run_plan(config, root))
    with nullcontext() if local else suppress(UserError):  # no GPU is here, or the model's shape is not known
        typer.echo(fit(config).verdict())
    if not local:
        typer.echo("Composing verl's configuration …", err=True)
        from rlkit.verl.backend import dry_run

        typer.echo(dry_run(config, root))


@app.command(rich_help_panel="Runs and studies")
def study(
    params: Params,
    overrides: Overrides = None,
    workers: Annotated[str, typer.Option(help="Runs at a time; 0: one a core or GPU; auto: what fits.")] = "0",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs and their cost.")] = False,
    root: Root = Path("outputs"),
    executor: Annotated[str, typer.Option(help="Where runs are executed: local or slurm.")] = "local",
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A long option of sbatch; repeatable.")
    ] = None,
    scale: Scale = "full",
) -> None:
    """Train every run of a study, then analyse it; what is finished is not repeated."""
    import rlkit

    if workers != "auto" and not workers.isdigit():
        raise UserError(f"--workers is {workers!r}: give a number of runs, 0, or auto.")
    result = rlkit.study(
        _scaled(params, scale, root), parse_overrides(overrides), workers="auto" if workers == "auto" else int(workers),
        dry_run=dry_run, root=root, executor=executor, options=parse_overrides(option),
    )  # fmt: skip
    if result.failed:
        raise typer.Exit(1)


@app.command(rich_help_panel="Runs and studies")
def quickstart(
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs and their cost.")] = False,
    root: Root = Path("outputs"),
) -> None:
    """Train eighteen small models, fit a law over their sizes and draw it.

    The study is params/quickstart.yaml, which is written into this folder where it lacks it."""
    file = Path("params/quickstart.yaml")
    if not file.exists():
        write_text(file, (Path(__file__).parent / "studies" / file.name).read_text(encoding="utf-8"))
        typer.echo(f"wrote {file}")
    study(file, overrides, dry_run=dry_run, root=root)


@app.command(rich_help_panel="Runs and studies")
def status(
    path: Annotated[Path, typer.Argument(help="outputs or a folder of a study or run.")] = Path("outputs"),
    watch: Annotated[bool, typer.Option("--watch", help="Go on until every run has ended.")] = False,
) -> None:
    """Show the runs of a study: how far each is, how well it does, and whether it still lives."""
    from rlkit.studies.status import console, status_table, watch_status

    if watch:
        watch_status(path)
    else:
        console.print(status_table(path), soft_wrap=False)


@app.command(rich_help_panel="Runs and studies")
def config(
    params: Annotated[Path | None, typer.Argument(help="Show this file's complete configuration.")] = None,
    overrides: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of all keys.")] = False,
) -> None:
    """Show a file's complete configuration with all defaults (of a study: what its runs share), or the schema."""
    from rlkit.results.store import config_yaml

    if schema:
        return typer.echo(json.dumps(RunConfig.model_json_schema(), indent=2))
    if params is None:
        raise UserError("Give a YAML file to show, or --schema.")
    typer.echo(config_yaml(load(params, parse_overrides(overrides))), nl=False)


@app.command(rich_help_panel="Runs and studies")
def figures(
    path: Annotated[Path, typer.Argument(help="outputs/<study>.")],
    venue: Annotated[str, typer.Option(help="neurips, iclr, icml, icml-text, acl, jmlr …")] = "neurips",
    out: Annotated[Path | None, typer.Option(help="Default: the study's figures folder.")] = None,
    law: Annotated[str, typer.Option(help="A law over the runs; default: that of the analysis.")] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="One figure; repeatable.")] = None,
) -> None:
    """Write the figures and tables of a study for a paper: PDF, SVG, PNG, the data drawn, the sources."""
    from rlkit.figures.study import render

    files, missing, ungraded = render(path, venue, out, law, only or ())
    if ungraded:
        typer.echo(f"left out, without a graded sample before or after training: {', '.join(ungraded)}")
    if missing and not only:
        names = ", ".join(missing)
        typer.echo(f"not drawn, for want of data ({len(missing)}): {names}; --only NAME says what one lacks")
    for name, reason in missing.items() if only else ():
        typer.echo(f"{name}: {reason}")
    if files:
        typer.echo(f"wrote {len(files)} files to {files[0].parent}")


@app.command(rich_help_panel="Runs and studies")
def doctor(
    overrides: Overrides = None,
    fit: Annotated[str, typer.Option(metavar="MODEL|FILE", help="Predict memory and time of a run.")] = "",
    device: Annotated[str, typer.Option(help="With --fit: h100, h200, a100, l4 …, cpu, or here.")] = "here",
    prompt_tokens: Annotated[int, typer.Option(help="With --fit; 0 is the limit.", min=0)] = 0,
    response_tokens: Annotated[int, typer.Option(help="With --fit; 0 is the limit.", min=0)] = 0,
) -> None:
    """Say what this machine has, what works on it and how to mend the rest; or whether a run fits."""
    from rlkit.sizing import doctor

    if fit:
        found = doctor.fit(fit, parse_overrides(overrides), device, (prompt_tokens, response_tokens))
        typer.echo(found.summary())
        raise typer.Exit(int(not found.fits))
    if overrides:
        raise UserError(f"{overrides[0]!r} is an override, which only --fit has a use for.")
    from rlkit.sandbox.levels import report
    from rlkit.studies.status import console

    console.print(doctor.machine_table(), soft_wrap=False)
    typer.echo(report())


# --- Data ---------------------------------------------------------------------------------------------


@data.command()
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


@data.command()
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
    from rlkit.studies.status import counted

    known = load_tokenizer(tokenizer) if tokenizer else None
    found = lint(files, held_out=held_out or [], tokenizer=known, score=score)
    for name, same in groupby(found.findings, lambda finding: finding.check):
        severity, meaning = CHECKS[name]
        findings = list(same)
        typer.echo(f"{name} ({severity}, {counted(len(findings), 'row')}): {meaning}")
        for finding in findings[:3]:
            typer.echo(f"    {Path(finding.file).name}, row {finding.row}: {finding.detail}")
    ungraded = f", of which {found.ungraded:,} have no answer to grade" if found.ungraded else ""
    typer.echo(f"{counted(found.rows, 'row')}{ungraded}: {counted(len(found.findings), 'finding')}")
    raise typer.Exit(found.exit_status)


@data.command("export")
def export_rows(
    params: Params,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("data/built"),
) -> None:
    """Write a run's rows in their order as parquet files, train and test."""
    from rlkit.data import export

    written = export(load(params, parse_overrides(overrides)), out)
    typer.echo(", ".join(f"{name}: {n:,} rows" for name, n in written.items()))


# --- Rewards ------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Rewards")
def score(
    answers: Annotated[Path, typer.Argument(help="JSONL: data_source, response, ground_truth, extra_info.")],
    out: Annotated[Path | None, typer.Option(help="Default: NAME.scored.jsonl beside the input.")] = None,
    workers: Annotated[int, typer.Option(help="Grading processes; 0 is one a CPU core.", min=0)] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds an answer may take.")] = RewardConfig().timeout,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, rlimits or unsafe.")] = RewardConfig().sandbox,
) -> None:
    """Score a file of answers."""
    from rlkit.rewards import score_file

    options = {"num_workers": workers, "timeout": timeout, "sandbox": sandbox}
    counts = score_file(answers, out, validate(RewardConfig, options))
    typer.echo("{correct} of {rows} answers are right, {errors} could not be graded: {out}".format(**counts))


@app.command(rich_help_panel="Rewards")
def audit(out: Annotated[Path, typer.Option(help="Where the JSON result goes.")] = Path("outputs/audit.json")) -> None:
    """Measure the graders on known right and wrong answers, cheats and hangs."""
    from rlkit.rewards import files

    result = files.audit(out=out)
    typer.echo(f"{result.table()}\nEach case and its verdict: {out}")
    raise typer.Exit(int(bool(result.failures)))


# --- Environments and serving -------------------------------------------------------------------------


@app.command(rich_help_panel="Environments and serving")
def demo(
    name: Annotated[Literal["math"], typer.Argument(help="Which demonstration.")], overrides: Overrides = None
) -> None:
    """A model learns to act step by step: executes notebooks/agentic_math.ipynb and prints its table."""
    from rlkit.studies.notebook import execute, results

    chosen = parse_overrides(overrides)
    settings("params/agentic_math.yaml", chosen)  # a wrong key is an error before anything runs
    target = Path(f"outputs/demo-{name}/notebooks/agentic_{name}.ipynb")
    typer.echo(f"notebooks/agentic_{name}.ipynb: minutes on two cores with the defaults …")
    execute(f"notebooks/agentic_{name}.ipynb", target, {"overrides": chosen})
    typer.echo("\n".join([*results(target), f"pictures and episodes: {target}"]))


@new.command("environment")
def new_environment(name: str) -> None:
    """Write a working environment and its test into this folder, to be changed into yours."""
    from rlkit.environments.authoring import new_environment

    source, test = new_environment(name, Path())
    overrides = f"{{overrides: {{kind: {source.stem}, options: {{instructions: brief}}}}}}"
    typer.echo(
        f"wrote {source}\nwrote {test}\n"
        f"1. Make it your world, and test it: python -m pytest {test}\n"
        f"2. Agents, trajectories, training and a test of the model, in notebooks/custom_domain.ipynb:\n"
        f"   RLKIT_PLUGINS={source} papermill notebooks/custom_domain.ipynb {source.stem}.ipynb -y '{overrides}'"
    )


@app.command(rich_help_panel="Environments and serving")
def serve(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    host: Annotated[str, typer.Option(help="Any but this machine needs RLKIT_API_KEY.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_concurrent: Annotated[
        int, typer.Option(help="Episodes that run at a time; others wait.", min=1)
    ] = MAX_CONCURRENT,
    timeout: Annotated[
        float, typer.Option(help="Seconds of an episode, and four times those of waiting; 429 beyond.", min=0.1)
    ] = TIMEOUT,
    max_turn_length: Annotated[
        int | None, typer.Option(help="Tokens of a turn; default what the run was trained with.", min=1)
    ] = None,
) -> None:
    """Answer problems over HTTP with a trained policy.

    POST /solve, /docs for the rest. Ctrl-C or SIGTERM ends it: running requests have 30 s to finish."""
    try:
        import rlkit.serving.http as http
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed, which serving needs: pip install 'rlkit[serving]'.") from None

    settings = http.Settings(max_concurrent=max_concurrent, timeout=timeout, max_turn_length=max_turn_length)
    http.serve(path, host, port, settings, typer.echo)


@app.command("export", rich_help_panel="Environments and serving")
def export_policy(
    path: Annotated[str, typer.Argument(help="A run's folder, or any model.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Write a policy as a Hugging Face folder (adapter merged)."""
    from rlkit.training.export import export

    typer.echo(f"wrote {export(path, folder)}")


# --- Laws ---------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Laws")
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV, Parquet or JSON-lines file, or outputs/<study>.")],
    law: Annotated[str, typer.Option(help="The law, e.g. saturating_power, chinchilla, sigmoid.")],
    y: Annotated[str, typer.Option(help="The column to fit.")],
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=COLUMN", help="The law's column = the table's; repeatable."),
    ] = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Of rlkit.fit, e.g. bootstrap=1000.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the fit to this file, JSON or .tex.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the fit into this file.")] = None,
) -> None:
    """Fit a scaling law to a table from anywhere, or to the final points of a study."""
    from rlkit.laws import fit as fit_law
    from rlkit.laws.law import resolve
    from rlkit.laws.report import escaped
    from rlkit.laws.table import as_rules, column
    from rlkit.measures.summary import final
    from rlkit.results.read import read

    if bad := [item for item in columns or () if "=" not in item]:
        raise UserError(f"--map is {bad[0]!r}: write NAME=COLUMN, e.g. --map N=parameters.")
    x = {name: told.strip() for name, _, told in (item.partition("=") for item in columns or ())}
    chosen: dict[str, Any] = parse_overrides(options)
    known = [p for p in inspect.signature(fit_law).parameters if p not in ("df", "law", "y", "x")]
    for key in (key for key in chosen if key not in known):
        raise UserError(f"Unknown option {key!r}.{did_you_mean(key, known)} Options: {', '.join(known)}.")
    table, form = final(read(data)).reset_index(drop=True) if data.is_dir() else _read_table(data), resolve(law)
    used = {x.get(name, name): f"the column for --map {name}=COLUMN" for name in form.columns} | {y: "--y"}
    gaps = [{name: None} for name, role in used.items() if column(table, name, role).isna().any()]
    chosen["exclude"] = as_rules(chosen.get("exclude")) + gaps
    result = fit_law(table, form, y=y, x=x or None, **chosen)
    fits = result if isinstance(result, dict) else {"": result}
    if out is not None and out.suffix == ".tex":
        tables = (escaped(str(name)) + "\n\n" * bool(name) + one.to_latex() for name, one in fits.items())
        write_text(out, "\n\n".join(tables) + "\n")
    elif out is not None:
        records = {str(name): json.loads(one.to_json()) for name, one in fits.items()}
        write_text(out, json.dumps(records.get("", records), indent=2) + "\n")
    if figure is not None:
        from rlkit import figures

        drawing = figures.law(result).figure
        if (kind := figure.suffix[1:]) not in (kinds := drawing.canvas.get_supported_filetypes()):
            raise UserError(f"--figure is {figure}: give a name that ends in one of {', '.join(kinds)}.")
        with figures.styled(), replacing(figure) as temporary:
            drawing.savefig(temporary, format=kind, dpi=200)
    typer.echo("\n\n".join((f"== {name} ==\n" if name else "") + one.summary() for name, one in fits.items()))


def _read_table(path: Path) -> "pd.DataFrame":
    """A CSV, TSV, Parquet or JSON-lines file; a UserError for any other, and for one that cannot be read."""
    import pandas as pd

    separated = partial(pd.read_csv, encoding="utf-8-sig")
    readers = {
        ".csv": separated, ".tsv": partial(separated, sep="\t"), ".parquet": pd.read_parquet,
        ".jsonl": partial(pd.read_json, lines=True),
    }  # fmt: skip
    known = f"{', '.join(readers)}, or a results folder"
    if existing(path, f" Give one of {known}.").suffix not in readers:
        raise UserError(f"{path} is not read: give one of {known}.")
    try:
        table = readers[path.suffix](path)
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    return table.rename(columns=lambda name: str(name).strip())


@app.command(rich_help_panel="Laws")
def plan(params: Params, overrides: Overrides = None) -> None:
    """Plan a study: the best use of a budget, or what a design would show."""
    from rlkit.laws.planning import plan as make

    typer.echo(make(params, parse_overrides(overrides)).summary())


def main() -> None:
    """The console script: bad input is one sentence and status 2, Ctrl-C is status 130."""
    plain_warnings()
    try:
        return app()
    except UserError as error:
        sentence, status = f"Error: {error}", 2
    except RunStopped as error:
        sentence, status = f"Stopped: {error}", 1
    except KeyboardInterrupt:
        sentence, status = "Interrupted.", 130
    typer.echo(sentence, err=True)
    sys.exit(status)
