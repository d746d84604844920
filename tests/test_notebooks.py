"""Every notebook runs top to bottom at its smallest size, and reads well without widgets.

The runs of a study are trained in this process before its notebook asks for them, which spares a kernel each;
tests/test_studies.py covers how a study executes them. The quickstart and the panel, which keeps widgets, run in a real
kernel; the cells of the others run in this process, without a kernel's start.
"""

import ast
import contextlib
import io
import json
from pathlib import Path
from unittest import mock

import matplotlib
import nbformat
import pandas as pd
import pytest
import yaml
from cases import records
from IPython.core.formatters import DisplayFormatter
from typer.testing import CliRunner

import rlkit
from rlkit.backends import train
from rlkit.cli import app
from rlkit.data.rows import tasks
from rlkit.figures.study import render
from rlkit.studies.notebook import check_parameters, execute, parameters_of
from rlkit.studies.plan import make_plan
from rlkit.training.interrupt import Interrupt, Interrupted
from rlkit.training.run import TrainingRun

ROOT = Path(__file__).parent.parent
ALL = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
STUDIES = {case["study"]: case for case in records("notebooks_small")}
SMALL = STUDIES.pop("every")["overrides"]  # a second a run; everything else is as the params file has it
ONE = {key.removeprefix("run."): value for key, value in SMALL.items() if key.startswith("run.")}  # of one run


def trained(name: str, root: Path) -> dict:
    """Train the study's runs here; the parameters of its notebook."""
    params, overrides = f"params/{name}.yaml", {**SMALL, **STUDIES[name]["overrides"]}
    plan = make_plan(params, overrides, root)
    plan.record()
    for run in plan.runs:
        assert train(run.config, root=root, progress=False).status == "finished"
        run.notebook.parent.mkdir(exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(), run.notebook)
    return {"params": params, "overrides": overrides, "root": str(root)}


def run_cells(name: str, values: dict) -> list[dict]:
    """The data of every output of a notebook whose cells run in this process, streams as text/plain."""
    path = f"notebooks/{name}.ipynb"
    values = check_parameters(path, values)
    cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    shown: list[object] = []
    names: dict = {"display": lambda *things: shown.extend(things)}
    caught = mock.patch("IPython.display.display", names["display"])
    options = matplotlib.rc_context(), pd.option_context("display.max_colwidth", 50)
    with caught, options[0], options[1], contextlib.redirect_stdout(io.StringIO()) as said:
        for i, source in enumerate(cells):
            *body, last = ast.parse(source).body
            is_shown = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
            exec(compile(ast.Module(body if is_shown else [*body, last], []), name, "exec"), names)
            if is_shown:
                shown.append(eval(compile(ast.Expression(last.value), name, "eval"), names))
            names |= values if i == 0 else {}
    formatted = [DisplayFormatter().format(thing)[0] for thing in shown if thing is not None]
    return [{"text/plain": said.getvalue()}, *formatted]


def outputs(path: Path) -> list[dict]:
    """The data of every output of a notebook, streams as text/plain."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    found = [output for cell in cells for output in cell.outputs]
    assert not [output for output in found if output.output_type == "error"]
    return [output.get("data") or {"text/plain": output.get("text", "")} for output in found]


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory) -> Path:
    """The executed notebook of the quickstart, beside its study."""
    root = tmp_path_factory.mktemp("outputs")
    with contextlib.chdir(ROOT):
        return execute("notebooks/quickstart.ipynb", root / "quickstart.ipynb", trained("quickstart", root))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_notebook_ends_with_figures_and_a_table(name, tmp_path, quickstart):
    in_kernel = name == "quickstart"
    shown = outputs(quickstart) if in_kernel else run_cells(name, trained(name, tmp_path))
    folder = quickstart.parent / name if in_kernel else tmp_path / name
    pictures = [data["image/png"] for data in shown if "image/png" in data]
    saved = {path.stem for path in (folder / "figures").glob("*.pdf")}
    assert len(pictures) >= 3 and len(saved) >= 3
    assert {picture[:4] for picture in pictures} <= {b"\x89PNG", "iVBO"}, "a file's bytes, or in base 64"
    assert all((folder / "figures" / f"{stem}.csv").read_text() for stem in saved)
    assert (name != "sft_rl_ratio") or {"differences", "learning_curves"} <= saved
    again, missing, _ = render(folder, only=[STUDIES[name]["figure"]], out=tmp_path / "again")
    assert not missing and {path.stem for path in again} <= saved
    for path in (path for path in again if path.suffix in (".png", ".csv")):
        assert path.read_bytes() == (folder / "figures" / path.name).read_bytes(), path.name
    said = " ".join(str(data) for data in shown)
    assert STUDIES[name]["says"] in said and "Traceback" not in said
    made = shown[-1]["text/html"]
    runs = json.loads((folder / "study.json").read_text())["runs"]
    assert all(run in made for run in runs) and "torch" in made and "commit" in made
    if in_kernel:
        written = nbformat.read(quickstart, as_version=4).metadata.papermill
        assert written.parameters["overrides"]["seeds"] == [0]


@pytest.mark.parametrize("name", [*STUDIES, "train", "agentic_math", "custom_domain", "data"])
def test_a_notebook_is_parameterized_by_a_file_and_overrides(name):
    defaults = parameters_of(f"notebooks/{name}.ipynb")
    file = defaults.get("params", defaults.get("config"))
    assert file == f"params/{name}.yaml" and defaults["overrides"] == {}
    for path in (ROOT / "params" / f"{name}.yaml", ROOT / "params" / f"{name}_gpu.yaml"):
        assert yaml.safe_load(path.read_text())
    assert "Qwen/Qwen2.5" in (ROOT / "params" / f"{name}_gpu.yaml").read_text()
    others = {"train", "analysis", "agentic_math", "custom_domain", "data", "ablations"}
    assert set(ALL) == {*STUDIES, *others}  # each is executed by a test


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_run_stopped_before_its_first_step_ends_its_notebook_well(evaluated, tmp_path, monkeypatch, capsys):
    def stop(_):
        raise Interrupted

    if evaluated:
        monkeypatch.setattr(Interrupt, "defer", lambda self: setattr(self, "requested", True))
    else:
        monkeypatch.setattr(TrainingRun, "evaluate", stop)
    run = train(rlkit.load("params/train.yaml", {**ONE, "model.path": "ladder-10k"}), root=tmp_path)
    cells = [c.source for c in nbformat.read("notebooks/train.ipynb", 4).cells if c.cell_type == "code"]
    after = 1 + next(i for i, source in enumerate(cells) if "rlkit.train(" in source)
    shown: list[object] = []
    names = {"run": run, "display": shown.append}
    for source in [cells[1].partition("notebook.at_project_root()")[0], *cells[after:]]:
        exec(source, names)
    assert run.status == "stopped" and len(shown) == (2 if evaluated else 0)
    assert "no step yet: the same command or cell begins it again" in capsys.readouterr().out


def test_the_analysis_notebook_reads_any_study(quickstart):
    study = quickstart.parent / "quickstart"
    shown = run_cells("analysis", {"study": str(study), "law": "power", "bootstrap": 50})
    assert sum("image/png" in data for data in shown) >= 6
    assert (study / "analysis" / "law.json").exists() and (study / "figures" / "scaling_law.pdf").exists()


def test_the_notebook_of_the_demonstration(tmp_path):
    small = {"total_training_steps": 2}, {"n": 4, "max_turn_length": 10}, {"size": 4, "n": 1}
    overrides = {"model": "ladder-10k", "episodes": 40, "problems": 8, "training.epochs": 1}
    overrides |= {f"{of}.max_response_length": 60 for of in ("training", "online.data")}
    overrides |= {f"online.{k}": v for k, v in zip(("trainer", "rollout", "evaluation"), small, strict=True)}
    overrides |= {"training.max_turn_length": 20, "online.data.train_batch_size": 4}
    shown = run_cells("agentic_math", {"overrides": overrides, "root": str(tmp_path)})
    assert sum("image/png" in data for data in shown) >= 2
    assert "torch" in shown[-1]["text/html"]


@pytest.mark.slow(reason="trains a small model twice, a minute")
def test_the_command_of_the_demonstration_prints_its_table(tmp_path, monkeypatch):
    for folder in ("notebooks", "params"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    keys = ["model=ladder-10k", "episodes=40", "problems=4", "training.epochs=1", "online.evaluation.size=4"]
    keys += [f"online.trainer.{key}=1" for key in ("total_training_steps", "test_freq", "save_freq")]
    done = CliRunner().invoke(app, ["demo", "math", *keys])
    assert done.exit_code == 0, done.output
    assert "success" in done.output and "online sampled" in done.output
    (executed,) = tmp_path.glob("outputs/demo-math/notebooks/agentic_math.ipynb")
    assert str(executed.relative_to(tmp_path)) in done.output
    wrong = CliRunner().invoke(app, ["demo", "math", "epsodes=3"])
    assert "Did you mean 'episodes'" in str(wrong.exception)


@pytest.mark.parametrize(("params", "kind"), [("", "business"), ("_environments", "mathematics")])
def test_the_notebook_of_a_domain_of_ones_own(tmp_path, params, kind):
    training = {"epochs": 1, "max_response_length": 60}
    overrides = {"model": "ladder-10k", "episodes": 20, "problems": 4, "training": training}
    overrides |= {"distinct": [2, 5, 10]} if params else {}
    values = {"params": f"params/custom_domain{params}.yaml", "overrides": overrides, "root": str(tmp_path)}
    shown = run_cells("custom_domain", values)
    assert sum("image/png" in data for data in shown) >= 1
    assert (tmp_path / kind / "offline" / "model.safetensors").exists()
    counted = [data["text/html"] for data in shown if "environments" in data.get("text/html", "")]
    if params:  # a row for each number of environments, on problems that were seen and on held-out ones
        assert counted and all(counted[0].count(on) == 3 for on in ("held out", "seen"))
    assert "torch" in shown[-1]["text/plain"]


def test_the_notebook_of_the_data(tmp_path):
    overrides = {"data.train_max_samples": 120, "trainer.total_training_steps": 1, "evaluation.size": 22}
    overrides |= {"data.train_batch_size": 32}
    shown = run_cells("data", {"overrides": overrides, "out": str(tmp_path / "rows"), "score": False})
    assert sum("image/png" in data for data in shown) == 3
    assert len(list(tasks(tmp_path / "rows" / "train.parquet"))) == 32


def test_the_notebook_of_the_panel(tmp_path):
    values = {"overrides": {**ONE, "model.path": "ladder-10k"}, "root": str(tmp_path)}
    target = execute("notebooks/ablations.ipynb", tmp_path / "out.ipynb", {**values, "law_study": "none"})
    cells = [[set(o.get("data", ())) for o in c.get("outputs", ())] for c in nbformat.read(target, 4).cells]
    widget = "application/vnd.jupyter.widget-view+json"
    with_widgets = [cell for cell in cells if any(widget in output for output in cell)]
    assert outputs(target) and len(with_widgets) == 2
    assert all(any({"image/png", "text/html"} & output for output in cell) for cell in with_widgets)
