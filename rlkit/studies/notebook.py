"""Strict execution of parameterized notebooks: papermill only warns of an unknown parameter, takes any type, and marks
every cell completed when the kernel dies. A notebook has succeeded only when a last cell, added here, has answered.

`python -m rlkit.studies.notebook SOURCE TARGET '{"name": value}'` does it in a process that ends with its parent."""

import ast
import json
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from rlkit.errors import UserError, did_you_mean
from rlkit.files import replacing

PACKAGED = Path(__file__).parent / "notebooks"


class NotebookFailed(RuntimeError):
    """A cell raised or the kernel died; the message holds the last lines, the file what ran before."""


def execute(source: str | Path, target: str | Path, parameters: Mapping[str, Any] | None = None) -> Path:
    """Run a notebook with parameters in a kernel of this interpreter and folder, and keep the executed copy: `target`
    when all cells ran, a failed one beside it as <name>.failed.ipynb. Raises a UserError as `check_parameters` or a
    cell did, NotebookFailed where a cell raised or the kernel died, KeyboardInterrupt where it was interrupted."""
    values = check_parameters(source, parameters or {})
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # a kernel of the user's own may be another Python
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else each kernel warns of frozen modules
    import nbformat
    import papermill

    target = Path(target)
    notebook, failed = nbformat.read(found(source), as_version=4), target.with_suffix(".failed.ipynb")
    token, error = f"all cells ran {uuid.uuid4().hex}", None
    notebook.cells.append(nbformat.v4.new_code_cell(f"print({token!r})"))
    options = {"kernel_name": "python3", "language": "python", "progress_bar": False, "start_timeout": 180}
    with replacing(target) as temporary:
        try:
            executed = papermill.execute_notebook(notebook, temporary, values, **options)
        except (Exception, KeyboardInterrupt) as problem:
            error = problem
            executed = nbformat.read(temporary, as_version=4) if temporary.exists() else notebook
        sentinel = executed.cells.pop()
        executed.metadata.setdefault("papermill", {}).update(input_path=str(source), output_path=str(target))
        if error is None and token not in json.dumps(sentinel.get("outputs", [])):
            error = NotebookFailed("it ended before its last cell: a cell called exit, or the kernel died")
        if error is not None:
            with replacing(failed) as copy:
                nbformat.write(executed, copy)
            raise _explained(error, failed) from None
        nbformat.write(executed, temporary)
    failed.unlink(missing_ok=True)
    return target


def results(executed: str | Path) -> list[str]:
    """What the cells tagged `result` of an executed notebook show, as text."""
    outputs = [output for cell in _tagged(Path(executed), "result") for output in cell["outputs"]]
    return ["".join(output["data"]["text/plain"]) for output in outputs if "data" in output]


def parameters_of(source: str | Path) -> dict[str, Any]:
    """The parameters of a notebook and their defaults (`...` for one that is no literal). A UserError where there is no
    such notebook, or no single cell is tagged `parameters`."""
    cells = _tagged(Path(source), "parameters")
    if len(cells) != 1:
        raise UserError(f"{source} has {len(cells)} cells tagged 'parameters' and needs one: tag the cell.")
    return _assigned("".join(cells[0]["source"]))


def _assigned(cell: str) -> dict[str, Any]:
    """The names that a cell assigns and their values, `...` for one that is no literal."""
    defaults: dict[str, Any] = {}
    for node in ast.parse(cell).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name):
            defaults[target.id] = ...
            with suppress(ValueError):
                defaults[target.id] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return defaults


def check_parameters(source: str | Path, values: Mapping[str, Any], defaults: Any = None) -> dict[str, Any]:
    """`values` in types that a notebook can hold, or a UserError for an unknown name or a wrong type."""
    defaults, plain = parameters_of(source) if defaults is None else defaults, {}
    for name, value in values.items():
        if name not in defaults:
            near, known = did_you_mean(name, defaults), ", ".join(defaults)
            raise UserError(f"{source} has no parameter {name!r}.{near} It has: {known}.")
        try:  # papermill would write a tuple as text and refuse numpy and paths
            text = json.dumps(value, default=lambda v: v.tolist() if hasattr(v, "tolist") else os.fspath(v))
        except (TypeError, ValueError):
            told = "give a number, text, list or mapping"
            raise UserError(f"The parameter {name!r} is a {type(value).__name__}: {told}.") from None
        plain[name], default = json.loads(text), defaults[name]
        kinds = {float: (float, int), tuple: (list,)}.get(type(default), (type(default),))
        if default is not None and default is not ... and type(plain[name]) not in kinds:
            told = f"give a {type(default).__name__} (its default is {default!r})"
            raise UserError(f"The parameter {name!r} of {source} is {value!r}: {told}.")
    return plain


def at_project_root() -> Path:
    """Change to the project's folder, the nearest parent with `params/`, and return it: JupyterLab starts a kernel in
    its notebook's folder, papermill in the caller's. A UserError for a parameter that the notebook lacks."""
    # The cells of the defaults, and of what papermill sets beside them.
    cells = getattr(sys.modules["__main__"], "In", [])[1:3]
    if len(cells) == 2 and cells[1].startswith("# Parameters\n"):
        check_parameters("This notebook", _assigned(cells[1]), _assigned(cells[0]))
    here = Path.cwd()
    os.chdir(next((folder for folder in (here, *here.parents) if (folder / "params").is_dir()), here))
    return Path.cwd()


def found(source: str | Path) -> Path:
    """A notebook's file; of one in notebooks/ that this folder lacks, the one that rlkit brings along."""
    own, source = PACKAGED / Path(source).name, Path(source)
    return own if source.parent == Path("notebooks") and own.exists() and not source.exists() else source


def _tagged(source: Path, tag: str) -> list[dict[str, Any]]:
    """The cells of a notebook that have a tag; nbformat, which would read them, takes seconds to import."""
    try:
        cells = json.loads(found(source).read_text(encoding="utf-8"))["cells"]
    except FileNotFoundError:
        names = [p.name for p in source.parent.glob("*.ipynb")]
        near = did_you_mean(source.name, names) or f" Call rlkit in the folder that has {source.parent}/."
        raise UserError(f"There is no notebook {source}.{near}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{source} is not a notebook: {error}") from None
    return [cell for cell in cells if tag in cell["metadata"].get("tags", [])]


def _explained(error: BaseException, failed: Path) -> BaseException:
    """The error to raise for what happened in a notebook."""
    name, text = getattr(error, "ename", ""), getattr(error, "evalue", "") or str(error)
    if isinstance(error, KeyboardInterrupt) or name == "KeyboardInterrupt":
        return KeyboardInterrupt()
    if name == "UserError":
        return UserError(text)
    if "Kernel died" in text or "died" in type(error).__name__.lower():
        text = "the kernel died (out of memory, or killed)"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).strip()  # without colours
    return NotebookFailed(f"{name and name + ': '}{plain} (see {failed})")


if __name__ == "__main__":
    parent = psutil.Process(os.getppid())  # this process ends, and with it what it started, when its parent is gone
    threading.Thread(target=lambda: (parent.wait(), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()
    try:
        execute(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except (UserError, NotebookFailed) as error:
        with suppress(BrokenPipeError):
            print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
