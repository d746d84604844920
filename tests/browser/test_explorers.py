"""The law explorer and the sample browser in a real browser: what a slider or a filter changes is seen."""

import nbformat
import pytest

from .conftest import SMALL
from .test_notebooks import RUN_ALL, pictures, shot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

LAW = """
import numpy as np
import pandas as pd
import rlkit

rng = np.random.default_rng(0)
N, D = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
loss = 1.7 + 400 * N**-0.34 + 410 * D**-0.28 + rng.normal(0, 0.005, N.size)
fit = rlkit.fit(pd.DataFrame({"N": N, "D": D, "loss": loss}), "chinchilla", y="loss", loss="ls", bootstrap=100)
rlkit.law_explorer(fit)
"""
SAMPLES = f"""
from rlkit.studies import notebook

notebook.at_project_root()
base = rlkit.launch("params/ablations.yaml", {SMALL!r}).wait()
rlkit.sample_browser(base.folder)
"""


def words(page) -> str:
    return page.locator(".widget-html-content", has_text="RMS residual").inner_text()


def test_explorers(lab, project):
    cells = [nbformat.v4.new_code_cell(source) for source in (LAW, SAMPLES)]
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = nbformat.v4.new_notebook(cells=cells, metadata=python)
    nbformat.write(content, project / "notebooks" / "explorers.ipynb")
    page = lab("explorers")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".widget-html-content:has-text('RMS residual')")
    page.wait_for_selector(".jp-OutputArea img")
    shot(page, "11-law")
    before, drawn = words(page), pictures(page)
    slider = page.locator(".widget-slider", has=page.locator("label", has_text="alpha")).first
    for _ in range(10):
        slider.locator(".noUi-handle").press("ArrowRight")
    page.wait_for_function("old => !document.body.innerText.includes(old)", arg=before)
    page.wait_for_function(
        "old => [...document.querySelectorAll('.jp-OutputArea img')].some(i => !old.includes(i.src))", arg=drawn
    )
    tried, fitted = (float(part.split()[-1]) for part in before.split(" at ")[:2])
    assert tried == fitted and float(words(page).split(" at ")[0].split()[-1]) > 2 * fitted
    shot(page, "12-law-moved")
    page.get_by_role("button", name="Back to the fit").click()
    page.wait_for_function("old => document.body.innerText.includes(old)", arg=before)

    page.wait_for_selector("td:text-is('wrong')")
    choose(page, "outcome", "correct")
    page.wait_for_selector("td:text-is('correct')")
    assert not page.locator("td:text-is('wrong')").count()
    choose(page, "outcome", "wrong")
    page.wait_for_selector("td:text-is('correct')", state="detached")
    onward, first = page.get_by_role("button", name="›"), page.locator(".jp-OutputArea").all_inner_texts()
    onward.click()
    page.wait_for_function(
        "old => ![...document.querySelectorAll('.jp-OutputArea')].every((a, i) => a.innerText === old[i])", arg=first
    )
    onward.scroll_into_view_if_needed()
    shot(page, "13-samples")


def choose(page, name: str, value: str) -> None:
    row = page.locator(".widget-dropdown", has=page.locator("label", has_text=name)).first
    row.locator("select").select_option(value)
