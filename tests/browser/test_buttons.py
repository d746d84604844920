"""The buttons of a run that is watched: they serve when the cell was interrupted."""

import json

import pytest

from .test_notebooks import RUN_ALL, shot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def test_stop_and_resume(lab, project):
    text = (project / "notebooks" / "train.ipynb").read_text()
    (project / "notebooks" / "buttons.ipynb").write_text(
        text.replace("overrides = {", "overrides = {'study': 'buttons', ")
    )
    page = lab("buttons")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".jp-OutputArea :text('running')")
    page.evaluate("void window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.wait_for_selector(".jp-OutputArea :text('stopped')")
    (info,) = (project / "outputs" / "buttons" / "runs").glob("*/run.json")
    page.locator("button.jupyter-button:not([disabled])", has_text="Resume").click()
    page.locator("button.jupyter-button:not([disabled])", has_text="Stop").click()
    page.wait_for_selector(".jp-OutputArea :text('stopped')")
    assert json.loads(info.read_text())["status"] == "stopped"
    page.locator("button.jupyter-button:not([disabled])", has_text="Resume").click()
    page.wait_for_selector(".jp-OutputArea :text('finished')", timeout=150_000)
    assert json.loads(info.read_text())["summary"]["steps"] == 150
    shot(page, "9-buttons")
