"""What stands twice agrees, and notebooks are committed clean."""

import re
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from rlkit.studies.notebook import parameters_of
from rlkit.studies.plan import make_plan

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_conda_installs_the_project_with_its_tests_on_the_same_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    python = next(item for item in environment["dependencies"] if str(item).startswith("python"))
    assert python.removeprefix("python") == PROJECT["requires-python"].replace(" ", "") and pip == [
        "-e .[test]"
    ]


def test_every_dependency_has_its_reason():
    lines = re.findall(
        r'^ +"[\w.\[\],-]+(?:[<>=!][^"]*)?",.*$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert len(lines) > 50 and [line for line in lines if "# " not in line] == []


def test_there_are_notebooks():
    assert {"train.ipynb", "analysis.ipynb"} <= {path.name for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_clean_thin_and_parameterized(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    for cell in code:
        assert cell.outputs == [] and cell.execution_count is None
        assert not re.search(r"^\s*(def|class|async def) ", cell.source, re.MULTILINE), (
            "code belongs in rlkit/"
        )
        assert len([x for x in cell.source.splitlines() if not x.startswith(("import ", "from "))]) <= 15
    assert parameters_of(path), "one cell is tagged parameters"
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


STUDIES = [p for p in sorted((ROOT / "params").glob("*.yaml")) if "run" in yaml.safe_load(p.read_text())]


def test_there_are_studies():
    assert "quickstart.yaml" in {path.name for path in STUDIES}


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_every_study_can_be_planned(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert make_plan(path).runs


def test_the_quickstart_is_what_it_claims_to_be(monkeypatch):
    """At least five sizes over nearly a decade, three seeds each with a warm start of its own, the largest held out."""
    monkeypatch.chdir(ROOT)
    runs = make_plan("params/quickstart.yaml").runs
    units = {"k": 1e3, "m": 1e6}
    sizes = {run.config.model.path: run for run in runs}
    counts = [float(name[7:-1]) * units[name[-1]] for name in sizes]
    assert len(counts) >= 5 and max(counts) / min(counts) >= 9
    assert all(len([r for r in runs if r.config.model.path == name]) >= 3 for name in sizes)
    assert all(run.config.model.warm_start.seed == run.config.seed for run in runs)
    largest = f"ladder-{round(max(counts) / 1e3)}k"
    assert {run.config.model.path for run in runs if run.held_out} == {largest}
