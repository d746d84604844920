"""The documentation builds without a warning (links, anchors, names of the reference), and holds what it says; every
code block of README and the pages of docs/ does what it says: Python runs, in small; commands and their overrides are
read by the command line, and files of parameters by what loads them."""

import ast
import asyncio
import base64
import importlib.util
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
import study_folder
import typer
import yaml
from nbformat import v4
from PIL import Image

from rlkit.cli import app
from rlkit.config import RunConfig
from rlkit.laws import laws
from rlkit.laws.planning import PlanConfig
from rlkit.params import parse_overrides, validate
from rlkit.registry import PLUGINS
from rlkit.studies.file import load_one
from rlkit.studies.plan import make_plan
from rlkit.types import Task

ROOT = Path(__file__).parent.parent


def test_every_law_key_and_command_is_documented_and_the_reference_has_the_docstrings(tmp_path):
    pytest.importorskip("mkdocs", reason="needs pip install -e '.[docs]'")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    texts = {name: (site / f"{name}.html").read_text() for name in ("concepts/laws", "reference/configuration")}
    built_in = [name for name in laws if laws[name].function.__module__ == "rlkit.laws.forms"]
    assert [name for name in built_in if f"<code>{name}</code>" not in texts["concepts/laws"]] == []
    assert "<code>actor.optim.lr</code>" in texts["reference/configuration"]
    commands = (site / "reference" / "cli.html").read_text()
    for command, option in {"rlkit figures": "--venue", "rlkit data check": "--held-out"}.items():
        assert f">{command}<" in commands and f"<code>{option}</code>" in commands
    for page, words in {"runs": "The RunConfig of a YAML file", "figures": "legend beside the axes"}.items():
        assert words in (site / "reference" / f"{page}.html").read_text()


DOCS = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))]
PAGES = ["README.md", "CONTRIBUTING.md"] + [p for p in DOCS if not p.startswith("docs/notebooks/")]
BLOCK = re.compile(r"^```(python|sh|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SMALL = {  # of examples that train for a minute or more
    '"train", 2000)': '"train", 24)', '"test", 200)': '"test", 2)', "ladder-100k": "ladder-10k",
    '"train", 256)': '"train", 16)', "Qwen/Qwen2.5-Coder-0.5B-Instruct": "ladder-10k",
    "range(14, 27)] * 20": "range(18, 23)]", 'step"] > 100': 'step"] > 30',
    '{"actor.optim.lr": 1e-3}': '{"model.path": "ladder-10k", "model.warm_start.kind": "none", '
    '"trainer.total_training_steps": 1, "evaluation.size": 4, "evaluation.n": 1}',
}  # fmt: skip
KNOWN = """
import rlkit
from rlkit import figures
from rlkit.measures import summary
df = metrics = rlkit.read("outputs/quickstart")
run = df["run"].iloc[0]
table = figures.curve_table(df, "step", "eval/pass@1", "cell").rename(columns={"step": "x", "eval/pass@1": "y"})
"""


def blocks(language: str) -> list:
    found = [(page, *block) for page in PAGES for block in BLOCK.findall((ROOT / page).read_text())]
    return [pytest.param(page, text, id=page) for page, kind, text in found if kind == language]


def python(code: str) -> str:
    """What code prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project folder with a finished study under each name that the pages read."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("params", "notebooks", "data"):
        (folder / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_folder, "STEPS", range(0, 50, 5))  # a curve that a law can be fitted to
        study = study_folder.write_study(folder / "written")
    for name in ("quickstart", "lr", "model_scale", "data_scale", "allocation"):
        shutil.copytree(study, folder / "outputs" / name)
    return folder


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_runs(page, text, project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for large, small in SMALL.items():
        text = text.replace(large, small)
    names: dict[str, Any] = {"__name__": "__main__"}
    if "register(" in text or "@rlkit.law" in text:  # names that a process may have once
        python(f"import rlkit\n{text}")
        return
    exec(KNOWN, names)
    code = compile(text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, names)
    if inspect.iscoroutine(made):
        made = asyncio.run(made)
    assert made is None and names.keys() - {"__name__", "__builtins__"}, "it leaves what it named"


def commands(text: str) -> list[list[str]]:
    """The words of each command of rlkit, also behind `&&`."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    split = [part for line in words for part in " \0 ".join(line).split(" \0 && \0 ")]
    found = [part.split(" \0 ") for part in split]
    return [part[1:] for part in found if part[0].removeprefix(".venv/bin/") == "rlkit"]


def read_command(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The name and the parsed parameters of a command. Raises the command line's own errors."""
    command: Any = typer.main.get_command(app)
    name, context = "", None
    while hasattr(command, "resolve_command"):
        context = command.context_class(command, parent=context)
        name, command, words = command.resolve_command(context, words)
    return name, command.make_context(name, list(words), parent=context).params


@pytest.mark.parametrize(("page", "text"), blocks("sh"))
def test_commands_and_their_overrides_are_read(page, text, project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv(PLUGINS, "")
    for words in commands(text):
        name, given = read_command(words)
        if name == "run" and Path(given["params"]).exists():
            told = [o for o in given["overrides"] or [] if "my_world" not in o and "parity" not in o]
            assert isinstance(load_one(given["params"], parse_overrides(told)), RunConfig)
    for file in re.findall(r"(?:params|notebooks)/[\w.]+", text):
        if not any(name in file for name in ("sizes.yaml", "lr.yaml")):  # the files that the page shows
            assert (ROOT / file).exists(), file


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_files_of_parameters_are_read(page, text, project, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, "")
    for name in ("notebooks", "params"):
        Path(name).symlink_to(ROOT / name)
    content = yaml.safe_load(text)
    if "fit" in content:  # of rlkit plan
        assert set(content) <= set(PlanConfig.model_fields)
    elif "study" in content or set(content) & {"grid", "baselines"}:
        whole = {"study": "page", "run": {"trainer": {"total_training_steps": 2}}, "seeds": [0]}
        grid = {} if "grid" in content else {"grid": {"actor.optim.lr": [1.0e-4, 3.0e-4]}}
        Path("study.yaml").write_text(yaml.safe_dump(whole | grid | content))
        assert make_plan(Path("study.yaml")).runs
    elif "plugins" in content:
        code = (ROOT / page).read_text()
        Path("my_world.py").write_text(next(b for _, b in BLOCK.findall(code) if "@sources.register" in b))
        Path("run.yaml").write_text(text)
        python("from rlkit.config import load; load('run.yaml')")
    else:
        lists = content.get("data", {}).get("train", []), content.get("evaluation", {}).get("suites", [])
        for source in chain(*lists):
            if isinstance(source, dict) and "path" in source:  # a file that is to be downloaded
                (path := Path(source["path"])).parent.mkdir(parents=True, exist_ok=True)
                rows = [Task.ask("math__x", f"{k} + 1", str(k + 1)).to_row() for k in range(4)]
                pd.DataFrame(rows).to_parquet(path)
        assert validate(RunConfig, content)


def test_the_example_domain_makes_and_grades_tasks():
    found = BLOCK.findall((ROOT / "docs/how-to/extend.md").read_text())
    (example,) = (text for kind, text in found if kind == "python" and "@sources.register" in text)
    graded = python(f"""{example}
from rlkit.domains import scorers, sources
task = sources.parse("parity").task(3)
print([(r.correct, r.value) for r in (scorers["parity"](a, task.ground_truth, {{}}) for a in ("no", "yes"))])
""")
    assert graded == "[(True, 1.0), (False, 0.0)]\n"


spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "notebooks.py")
assert spec is not None and spec.loader is not None
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)


def test_the_page_of_an_executed_notebook_has_its_text_tables_and_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "PAGES", tmp_path / "pages")
    drawn = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(drawn, "PNG")
    picture = {"image/png": base64.b64encode(drawn.getvalue()).decode(), "text/plain": "<Figure>"}
    table = {"text/html": "<table><tr><th>size</th><th>a|b</th></tr><tr><td>10k</td><td>0.1</td></tr></table>"}
    shown = [{"output_type": "display_data", "metadata": {}, "data": data} for data in (picture, table)]
    shown += [{"output_type": "stream", "name": name, "text": text}
              for name, text in (("stdout", "\x1b[1mpower law\x1b[0m\n"), ("stderr", "100%|####|\n"))]  # fmt: skip
    cells = [v4.new_markdown_cell("# A study"), v4.new_code_cell("show()", execution_count=1)]
    cells[1].outputs = [nbformat.from_dict(output) for output in shown]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "sizes.ipynb")
    page = pages.write_page(tmp_path / "sizes.ipynb").read_text()
    assert "show()" in page and "power law" in page and "\x1b" not in page and "####" not in page
    assert "| size | a\\|b |\n|---|---|\n| 10k | 0.1 |" in page
    (drawing,) = (tmp_path / "pages").glob("sizes_*.png")
    assert f"({drawing.name})" in page.replace("./", "") and Image.open(drawing).size == (4, 4)


def test_a_notebook_that_was_not_executed_has_no_page(tmp_path):
    with pytest.raises(ValueError, match="not executed"):
        pages.write_page(ROOT / "notebooks" / "quickstart.ipynb")


def test_every_study_notebook_has_an_executed_page_with_pictures():
    texts = {p.stem: p.read_text() for p in (ROOT / "params").glob("*.yaml")}
    studies = [name for name, text in texts.items() if f"notebook: notebooks/{name}.ipynb" in text]
    assert len(studies) > 6
    for name in studies:
        page = (ROOT / "docs" / "notebooks" / f"{name}.md").read_text()
        assert ".png)" in page and "Traceback" not in page, name
        assert f"notebooks/{name}.md" in (ROOT / "mkdocs.yml").read_text()
