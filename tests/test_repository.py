"""Imports follow the order of rooms in docs/architecture.md; notebooks are clean; every study can be planned."""

import ast
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from rlkit.studies.notebook import parameters_of
from rlkit.studies.plan import make_plan

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from rooms import imports, in_order  # noqa: E402


def test_files_of_the_package_that_pages_name_and_readme_s_links_are_there():
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    local = [link for link in links if not link.startswith("http")]
    assert local and [link for link in local if not (ROOT / link).exists()] == []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"`(rlkit/[\w/.]+)`", page.read_text())}
    assert len(named) > 20 and [name for name in sorted(named) if not (ROOT / name).exists()] == []
    shown = [(page.parent / name) for page in pages for name in re.findall(r"!\[[^]]*\]\(([^):]+)\)", page.read_text())]
    assert len(shown) > 100 and [path for path in shown if not path.exists()] == []


def test_every_dependency_has_a_reason_and_is_imported():
    text = (ROOT / "pyproject.toml").read_text()
    listed = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    rows = re.findall(r'^    "([\w.-]+).*", *(# .+)?$', listed, re.MULTILINE)
    assert len(rows) > 60 and [name for name, reason in rows if not reason] == []
    source = "\n".join(path.read_text() for path in (ROOT / "rlkit").rglob("*.py"))
    names = re.findall(r'^    "([\w.-]+)', listed.split("[project.opt")[0], re.MULTILINE)
    other = {"pyyaml": "yaml", "harper-py": "harper"}
    modules = {(other.get(name) or name.lower()).replace("-", "_") for name in names}
    unused = {m for m in modules if not re.search(rf"^\s*(import|from) {m}\b", source, re.MULTILINE)}
    # a command, a kernel, pins of what verl needs
    assert unused == {"jupyterlab", "ipykernel", "tensordict", "ray", "cachetools"}


def test_every_room_has_its_place_and_imports_run_downwards():
    order = in_order(ROOT)
    rooms = {p.stem for p in (ROOT / "rlkit").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert set(order) == rooms - {"__init__", "__main__"} and len(order) == len(set(order))
    assert len([room for room in order if (ROOT / "rlkit" / f"{room}.py").exists()]) <= 10
    pairs = [(module, room) for module, rooms in imports(ROOT).items() for room in rooms]
    assert [p for p in pairs if order.index(p[1]) < order.index(p[0].split(".")[1])] == []


def test_every_folder_says_what_comes_in_and_what_goes_out():
    folders = [path for path in (ROOT / "rlkit").rglob("__init__.py") if path.parent != ROOT / "rlkit"]
    said = {path.parent.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in folders}
    assert [name for name, text in said.items() if "In: " not in text or "Out: " not in text] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_conda_installs_the_project_with_its_tests_on_the_same_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    python = next(item for item in environment["dependencies"] if str(item).startswith("python"))
    assert python.removeprefix("python") == PROJECT["requires-python"].replace(" ", "") and pip == ["-e .[test]"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_clean_thin_and_parameterized(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    for cell in code:
        assert cell.outputs == [] and cell.execution_count is None
        assert not re.search(r"^\s*(def|class|async def) ", cell.source, re.MULTILINE), "code belongs in rlkit/"
        assert len([x for x in cell.source.splitlines() if not x.startswith(("import ", "from "))]) <= 15
    assert parameters_of(path), "one cell is tagged parameters"
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


STUDIES = [p for p in sorted((ROOT / "params").glob("*.yaml")) if "run" in yaml.safe_load(p.read_text())]


WHOLE = pytest.param({}, marks=pytest.mark.slow(reason="makes all tasks of every shipped study: two minutes"))


@pytest.mark.parametrize("changes", [{"run.trainer.total_training_steps": 20}, WHOLE], ids=["short", "whole"])
@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_every_study_can_be_planned(path, changes, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert make_plan(path, changes).runs


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


def begin(venv: Path, script: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    command = ["sh", str(ROOT / "setup-progress.sh"), str(venv), "sh", "-c", script]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_an_installation_that_succeeds_is_quiet_and_one_that_fails_shows_its_end(tmp_path):
    process = begin(tmp_path, "echo Collecting torch; echo careful >&2")
    assert (*process.communicate(), process.returncode) == ("", "", 0)
    assert (tmp_path / "install.log").read_text() == "Collecting torch\ncareful\n"
    process = begin(tmp_path / "again", "seq 100; echo ERROR: no such version >&2; exit 3")
    *shown, last = process.communicate()[1].splitlines()
    assert process.returncode == 3
    assert shown == [*map(str, range(82, 101)), "ERROR: no such version"]
    assert last.endswith(f"is in {tmp_path}/again/install.log.")


def test_a_terminal_sees_how_far_an_installation_is(tmp_path):
    site, seen = tmp_path / "lib" / "python3.11" / "site-packages", "while [ ! -e {} ]; do sleep 0.05; done; "
    steps = "echo Collecting torch; " + seen.format(tmp_path / "first")
    steps += f"echo 'Installing collected packages: numpy, torch, rlkit'; mkdir {site}/numpy-2.dist-info; "
    ours, theirs = pty.openpty()
    process = begin(tmp_path, steps + seen.format(tmp_path / "second"), stdout=theirs)
    texts = {"first": "s: 1 packages found. Collecting torch", "second": "s: 1 of 3 packages installed"}
    shown = dict.fromkeys(texts, "")
    for go_on, text in texts.items():
        while text not in shown[go_on] and shown[go_on].count("\r") < 60:  # a line a second
            shown[go_on] += os.read(ours, 10_000).decode()
        (tmp_path / go_on).touch()
    assert process.wait() == 0 and all(text in shown[go_on] for go_on, text in texts.items())
    os.close(ours)
    os.close(theirs)
