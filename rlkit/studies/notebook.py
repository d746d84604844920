"""Strict execution of parameterized notebooks: papermill without its silent ways to go wrong.

papermill only warns of an unknown parameter, runs a notebook without a `parameters` cell with its
defaults, takes any type, and marks every cell completed when the kernel dies. Here each of these is an
error: names and types are compared with the tagged cell before anything starts, and a notebook has
succeeded only when a last cell, added for the purpose, has answered.

`python -m rlkit.studies.notebook SOURCE TARGET '{"name": value}'` does the same in a process of its own, which
ends when its parent does.
"""

import ast
import json
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rlkit.errors import UserError, did_you_mean
from rlkit.files import replacing

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookFailed(RuntimeError):
    """A cell raised or the kernel died; the message holds the last lines, the file what ran before."""


def execute(source: str | Path, target: str | Path, parameters: Mapping[str, Any] | None = None) -> Path:
    """Run a notebook with parameters and keep the executed copy.

    The kernel is this interpreter's, its working directory this process's. The copy appears at `target`
    when all cells ran; a failed one is kept beside it as <name>.failed.ipynb.

    Raises:
        UserError: no such notebook, no tagged cell, an unknown parameter, a value of the wrong type; or a
            cell raised a UserError.
        NotebookFailed: a cell raised, or the kernel died.
        KeyboardInterrupt: the kernel was interrupted.
    """
    import nbformat

    source, target = Path(source), Path(target)
    notebook = _read(source, partial(nbformat.reads, as_version=4))
    values = check_parameters(source, parameters or {})
    token = f"all cells ran {uuid.uuid4().hex}"
    notebook.cells.append(nbformat.v4.new_code_cell(f"print({token!r})"))
    failed = target.with_suffix(".failed.ipynb")
    with replacing(target) as temporary:
        error = None
        try:
            executed = _papermill(notebook, temporary, values)
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
    import nbformat

    notebook = _read(Path(executed), partial(nbformat.reads, as_version=4))
    cells = [c for c in notebook.cells if "result" in c.metadata.get("tags", [])]
    return [out["data"]["text/plain"] for cell in cells for out in cell.outputs if "data" in out]


def parameters_of(source: str | Path) -> dict[str, Any]:
    """The parameters of a notebook and their defaults (`...` for one that is no literal).

    Raises:
        UserError: there is no such notebook, or no single cell is tagged `parameters`.
    """
    stored = _read(Path(source), lambda text: json.loads(text)["cells"])  # nbformat takes seconds to import
    cells = [c for c in stored if "parameters" in c["metadata"].get("tags", [])]
    if len(cells) != 1:
        raise UserError(f"{source} has {len(cells)} cells tagged 'parameters' and needs one: tag the cell.")
    defaults: dict[str, Any] = {}
    for node in ast.parse("".join(cells[0]["source"])).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in (t.id for t in targets if isinstance(t, ast.Name)):
            try:
                defaults[name] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                defaults[name] = ...
    return defaults


def check_parameters(source: str | Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` in types that a notebook can hold, or a UserError for an unknown name or a wrong type."""
    defaults = parameters_of(source)
    for name, value in values.items():
        if name not in defaults:
            known = ", ".join(defaults)
            raise UserError(
                f"{source} has no parameter {name!r}.{did_you_mean(name, defaults)} It has: {known}."
            )
        default = defaults[name]
        plain = _plain(name, value)
        if not _fits(plain, default):
            raise UserError(
                f"The parameter {name!r} of {source} is {value!r}: give a {type(default).__name__} "
                f"(its default is {default!r})."
            )
    return {name: _plain(name, value) for name, value in values.items()}


def at_project_root() -> Path:
    """Change to the project's folder, the nearest parent with `params/`, and return it.

    JupyterLab starts a kernel in its notebook's folder, papermill in the caller's: after this, paths mean
    the same in both.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "params").is_dir():
            os.chdir(folder)
            break
    return Path.cwd()


def _read(source: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = did_you_mean(source.name, [p.name for p in source.parent.glob("*.ipynb")])
        raise UserError(f"There is no notebook {source}.{near}") from None
    except Exception as error:
        raise UserError(f"{source} is not a notebook: {error}") from None


def _papermill(notebook: Any, target: Path, values: dict[str, Any]) -> Any:
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # a kernel of the user's own may be another Python
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else each kernel warns of frozen modules
    import papermill

    return papermill.execute_notebook(
        notebook,
        target,
        values,
        kernel_name="python3",
        language="python",
        progress_bar=False,
        start_timeout=180,
    )


def _explained(error: BaseException, failed: Path) -> BaseException:
    """The error to raise for what happened in a notebook."""
    name, text = getattr(error, "ename", ""), getattr(error, "evalue", "") or str(error)
    if isinstance(error, KeyboardInterrupt) or name == "KeyboardInterrupt":
        return KeyboardInterrupt()
    if name == "UserError":
        return UserError(text)
    if "Kernel died" in text or "died" in type(error).__name__.lower():
        text = "the kernel died (out of memory, or killed)"
    kind = f"{name}: " if name else ""
    return NotebookFailed(f"{kind}{_ANSI.sub('', text).strip()} (see {failed})")


def _plain(name: str, value: Any) -> Any:
    """`value` in JSON's types; papermill would write a tuple as text and refuse numpy and paths."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise UserError(f"The parameter {name!r} is {value!r}: keys of a mapping must be text.")
        return {key: _plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(name, value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserError(
        f"The parameter {name!r} is a {type(value).__name__}: give a number, text, list or mapping."
    )


def _fits(value: Any, default: Any) -> bool:
    if default is None or default is ...:
        return True
    if isinstance(default, float):
        return isinstance(value, float | int) and not isinstance(value, bool)
    wanted = list if isinstance(default, tuple) else type(default)
    return type(value) is wanted


def end_with_parent() -> None:
    """End this process, and with it what it started, when the process that started it is gone; runs in a thread."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _main(source: str, target: str, parameters: str) -> int:
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        execute(source, target, json.loads(parameters))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except NotebookFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(_main(*sys.argv[1:]))
