"""Notebooks run strictly: nothing that papermill lets pass goes wrong in silence."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from study_folder import write_notebook

from rlkit.errors import UserError
from rlkit.studies.notebook import NotebookFailed, at_project_root, check_parameters, execute, parameters_of

DEFAULTS = "lr = 1e-5\nsteps = 10\nname = 'x'\nflag = True\nsizes = [1]\nextra = None\noptions = {}"


def notebook(folder: Path, *cells: str, tag: str = "parameters") -> Path:
    return write_notebook(folder / "a.ipynb", DEFAULTS, *cells, tag=tag)


def outputs(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.get("text", "") for c in cells if c.cell_type == "code" for o in c.outputs)


def test_parameters_are_read_from_the_tagged_cell_and_others_are_errors(tmp_path):
    assert parameters_of(notebook(tmp_path)) == {
        "lr": 1e-5, "steps": 10, "name": "x", "flag": True, "sizes": [1], "extra": None, "options": {},
    }  # fmt: skip
    with pytest.raises(UserError, match=r"no parameter 'stesp'. Did you mean 'steps'"):
        execute(notebook(tmp_path), tmp_path / "out.ipynb", {"stesp": 3})
    assert not (tmp_path / "out.ipynb").exists()
    with pytest.raises(UserError, match="has 0 cells tagged 'parameters'"):
        execute(notebook(tmp_path, tag="other"), tmp_path / "out.ipynb")


def test_a_notebook_itself_refuses_a_parameter_that_it_lacks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    cells = ["", 'params = "a.yaml"', '# Parameters\nparams = "x"\n', "notebook.at_project_root()"]
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)  # as a kernel keeps them
    assert at_project_root() == tmp_path
    cells[2] = cells[2].replace("params", "parms")
    with pytest.raises(UserError, match="no parameter 'parms'. Did you mean 'params'"):
        at_project_root()


WRONG = [("flag", "true"), ("flag", 1), ("steps", 1.5), ("steps", True), ("lr", "1e-5"), ("name", None)]
WRONG += [("sizes", "[1, 2]"), ("options", [1]), ("lr", True)]
FORMLESS = [("extra", value) for value in ({1, 2}, complex(1), b"bytes")]


@pytest.mark.parametrize(("name", "value"), [*WRONG, *FORMLESS])
def test_a_value_of_the_wrong_type_or_without_a_notebook_form_is_an_error(tmp_path, name, value):
    of_extra = f"parameter 'extra' is a {type(value).__name__}"
    told = of_extra if name == "extra" else f"parameter '{name}'.*its default is"
    with pytest.raises(UserError, match=told):
        check_parameters(notebook(tmp_path), {name: value})


def test_values_arrive_as_they_were_meant_in_this_interpreter_and_folder(tmp_path):
    values = "print([lr, steps, name, sizes, extra])"
    source = notebook(tmp_path, values, "import os, sys\nprint([sys.executable, os.getcwd()])")
    given = dict(lr=np.float64(3), steps=np.int64(7), name=Path("a/b"), sizes=(1, 2), extra=np.ones(2))
    target = execute(source, tmp_path / "deep" / "out.ipynb", given)
    assert "[3.0, 7, 'a/b', [1, 2], [1.0, 1.0]]" in outputs(target)
    assert repr([sys.executable, str(Path.cwd())]) in outputs(target)
    saved = nbformat.read(target, as_version=4)
    nbformat.validate(saved)
    assert "all cells ran" not in outputs(target)
    assert saved.metadata.papermill.output_path == str(target)


def test_a_failed_notebook_is_kept_until_it_succeeds(tmp_path):
    source = notebook(tmp_path, "print('before')", "1 / steps", "print('after')")
    target = tmp_path / "out.ipynb"
    with pytest.raises(NotebookFailed, match=r"ZeroDivisionError: division by zero \(see .*failed\.ipynb\)"):
        execute(source, target, {"steps": 0})
    assert not target.exists()
    kept = outputs(tmp_path / "out.failed.ipynb")
    assert "before" in kept and "after" not in kept
    execute(source, target)
    assert not (tmp_path / "out.failed.ipynb").exists() and "after" in outputs(target)


EXITS = {"import os; os._exit(0)": "the kernel died", "import sys; sys.exit(0)": "ended before its last cell"}


@pytest.mark.parametrize(("cell", "why"), EXITS.items())
def test_a_dead_kernel_and_an_exit_are_failures_whatever_the_cells_say(tmp_path, cell, why):
    with pytest.raises(NotebookFailed, match=why):
        execute(notebook(tmp_path, "print('before')", cell, "print('after')"), tmp_path / "out.ipynb")
    assert "before" in outputs(tmp_path / "out.failed.ipynb")


def test_a_user_error_in_a_cell_keeps_its_sentence(tmp_path):
    source = notebook(tmp_path, "import rlkit", "rlkit.load('params/none.yaml')")
    command = [sys.executable, "-m", "rlkit.studies.notebook", source, tmp_path / "out.ipynb", json.dumps({})]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Cannot read params/none.yaml")
