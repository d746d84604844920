"""The buttons of a run that is watched: they serve when the cell was interrupted."""

import json

import pytest

from .test_notebooks import RUN_ALL, shot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def until(page, info, status: str) -> None:
    """Wait until the run's own file says so: the words on the page stay a moment longer."""
    for _ in range(300):
        if json.loads(info.read_text())["status"] == status:
            return
        page.wait_for_timeout(300)
    raise AssertionError(f"never {status}: {info.read_text()}")


def test_stop_and_resume(lab, project):
    text = (project / "notebooks" / "train.ipynb").read_text()
    (project / "notebooks" / "buttons.ipynb").write_text(
        text.replace("overrides = {", "overrides = {'study': 'buttons', ")
    )
    page = lab("buttons")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".jp-OutputArea :text('running')")
    page.evaluate("void window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    (info,) = (project / "outputs" / "buttons" / "runs").glob("*/run.json")
    until(page, info, "stopped")
    page.locator("button.jupyter-button:not([disabled])", has_text="Resume").click()
    until(page, info, "running")
    page.locator("button.jupyter-button:not([disabled])", has_text="Stop").click()
    until(page, info, "stopped")
    page.locator("button.jupyter-button:not([disabled])", has_text="Resume").click()
    page.wait_for_selector(".jp-OutputArea :text('finished')", timeout=150_000)
    assert json.loads(info.read_text())["summary"]["steps"] == 150
    shot(page, "9-buttons")
