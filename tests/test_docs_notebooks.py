"""The documentation's pages of executed notebooks: docs/notebooks.py."""

import base64
import importlib.util
import io
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from PIL import Image

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "notebooks.py")
assert spec is not None and spec.loader is not None
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)


def executed(*outputs: dict) -> nbformat.NotebookNode:
    cells = [v4.new_markdown_cell("# A study"), v4.new_code_cell("show()", execution_count=1)]
    cells[1].outputs = [nbformat.from_dict(output) for output in outputs]
    return v4.new_notebook(cells=cells)


def test_the_page_of_an_executed_notebook_has_its_text_tables_and_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "PAGES", tmp_path / "pages")
    drawn = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(drawn, "PNG")
    picture = {"image/png": base64.b64encode(drawn.getvalue()).decode(), "text/plain": "<Figure>"}
    table = {
        "text/html": "<table><tr><th>size</th><th>a|b</th></tr><tr><td>10k</td><td>0.1</td></tr></table>"
    }
    shown = [{"output_type": "display_data", "metadata": {}, "data": data} for data in (picture, table)]
    shown += [{"output_type": "stream", "name": name, "text": text}
              for name, text in (("stdout", "\x1b[1mpower law\x1b[0m\n"), ("stderr", "100%|####|\n"))]  # fmt: skip
    nbformat.write(executed(*shown), tmp_path / "sizes.ipynb")
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
