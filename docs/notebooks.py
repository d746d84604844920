"""Pages of the documentation from executed notebooks: python docs/notebooks.py outputs/NAME/notebooks/NAME.ipynb …

Writes docs/notebooks/NAME.md and its pictures. Stored notebooks have no outputs; these pages show what their cells
print and draw.
"""

import io
import re
import sys
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent / "notebooks"
COLOURS = 128  # of a picture: a third of the bytes, and no difference that is seen
WIDGET = "application/vnd.jupyter.widget-view+json"


def write_page(notebook: Path) -> Path:
    """The page of an executed notebook, and its pictures beside it. Raises ValueError: a cell was not executed."""
    import nbformat
    from nbconvert import MarkdownExporter
    from PIL import Image

    book = nbformat.read(notebook, 4)
    if any(cell.cell_type == "code" and cell.source and not cell.execution_count for cell in book.cells):
        raise ValueError(f"{notebook} has cells that were not executed: run it first, e.g. by rlkit study.")
    for cell in book.cells:
        cell.outputs = [shown for out in cell.get("outputs", ()) if (shown := _shown(out))]
    name = notebook.stem
    body, resources = MarkdownExporter().from_notebook_node(book, {"unique_key": name, "output_files_dir": "."})
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob(f"{name}_[0-9]*.png"):
        old.unlink()
    for path, data in resources["outputs"].items():
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        picture.quantize(COLOURS).save(PAGES / Path(path).name, optimize=True)
    page = PAGES / f"{name}.md"
    page.write_text(re.sub(r"\n{3,}", "\n\n", re.sub(r"\x1b\[[0-9;]*m", "", body)).strip() + "\n")
    return page


def _shown(output: Any) -> Any:
    """An output with its table in Markdown and without HTML; None for progress bars and widgets."""
    data = output.get("data", {})
    if output.get("name") == "stderr" or WIDGET in data or not "".join(data.get("text/plain", "-")).strip():
        return None
    if "<table" in (page := "".join(data.pop("text/html", ""))):
        data["text/markdown"] = _table(page)
    return output


def _table(page: str) -> str:
    from bs4 import BeautifulSoup

    rows = [
        [cell.get_text(" ", strip=True).replace("|", "\\|") for cell in row.find_all(["th", "td"])]
        for row in BeautifulSoup(page, "html.parser").find_all("tr")
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(write_page(Path(argument)))
