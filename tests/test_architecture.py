"""The order of rooms in docs/architecture.md is that of the imports: downwards, never up, lazy imports included."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from rooms import imports, in_order  # noqa: E402


def test_files_of_the_package_that_pages_name_are_there():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, name) for page in pages for name in re.findall(r"`(rlkit/[\w/.]+)`", page.read_text())
    }
    assert len(named) > 20 and [pair for pair in sorted(named) if not (ROOT / pair[1]).exists()] == []


def test_every_dependency_has_a_reason_and_is_imported():
    text = (ROOT / "pyproject.toml").read_text()
    base, extras = text[text.index("dependencies = [") : text.index("[project.scripts]")].split(
        "[project.opt"
    )
    rows = re.findall(r'^    "([\w.-]+).*", *(# .+)?$', base + extras, re.MULTILINE)
    assert len(rows) > 60 and [name for name, reason in rows if not reason] == []
    source = "\n".join(path.read_text() for path in (ROOT / "rlkit").rglob("*.py"))
    other = {"pyyaml": "yaml", "harper-py": "harper"}
    modules = {
        (other.get(m) or m.lower()).replace("-", "_")
        for m in re.findall(r'^    "([\w.-]+)', base, re.MULTILINE)
    }
    unused = {m for m in modules if not re.search(rf"^\s*(import|from) {m}\b", source, re.MULTILINE)}
    assert unused == {
        "jupyterlab",
        "ipykernel",
        "tensordict",
    }  # a command, a kernel, a pin of what verl needs


def test_every_room_has_its_place():
    order = in_order(ROOT)
    rooms = {p.stem for p in (ROOT / "rlkit").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert set(order) == rooms - {"__init__", "__main__"} and len(order) == len(set(order))
    assert len([room for room in order if (ROOT / "rlkit" / f"{room}.py").exists()]) <= 10


def test_every_folder_says_what_comes_in_and_what_goes_out():
    folders = [path for path in (ROOT / "rlkit").rglob("__init__.py") if path.parent != ROOT / "rlkit"]
    said = {path.parent.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in folders}
    assert [name for name, text in said.items() if "In: " not in text or "Out: " not in text] == []


def test_imports_run_downwards():
    order = in_order(ROOT)
    up = {
        (module, room)
        for module, rooms in imports(ROOT).items()
        for room in rooms
        if order.index(room) < order.index(module.split(".")[1])
    }
    assert up == set()
