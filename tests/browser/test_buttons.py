"""The buttons of a run that is watched: they work while its cell runs, and after it."""

import json

import pytest
from waiting import wait_for

from .test_notebooks import RUN_ALL, shot

RUNNING = ".jp-InputPrompt:text-is('[*]:')"
pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def status(info) -> str:
    """What the run's own file says: the words on the page stay a moment longer."""
    return json.loads(info.read_text())["status"]


def button(page, name: str):
    return page.locator("button.jupyter-button:not([disabled])", has_text=name)


def test_stop_and_resume(lab, project):
    text = (project / "notebooks" / "train.ipynb").read_text()
    (project / "notebooks" / "buttons.ipynb").write_text(
        text.replace("overrides = {", "overrides = {'study': 'buttons', ")
    )
    page = lab("buttons")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".jp-OutputArea :text('running')")
    page.wait_for_selector(".jp-OutputArea img")  # the first step
    (info,) = (project / "outputs" / "buttons" / "runs").glob("*/run.json")
    assert page.locator(RUNNING).count()
    button(page, "Stop").click()
    wait_for(lambda: status(info) == "stopped")
    page.wait_for_selector(RUNNING, state="detached")  # the cells after it have run, too
    shot(page, "9-stopped")
    button(page, "Resume").click()
    wait_for(lambda: status(info) == "running")
    button(page, "Stop").click()
    wait_for(lambda: status(info) == "stopped")
    button(page, "Resume").click()
    page.wait_for_selector(".jp-OutputArea :text('finished')", timeout=150_000)
    assert json.loads(info.read_text())["summary"]["steps"] == 150
    shot(page, "10-buttons")
