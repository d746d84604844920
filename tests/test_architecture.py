"""The order of rooms in docs/architecture.md is that of the imports: downwards, never up, lazy imports included."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from rooms import imports, in_order  # noqa: E402


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
