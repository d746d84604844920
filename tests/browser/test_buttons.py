"""The buttons of a run that is watched: they work while its cell runs, and after it."""

import json

import pytest

from .test_notebooks import RUN_ALL, shot

RUNNING = ".jp-InputPrompt:text-is('[*]:')"
pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]


def until(page, info, status: str) -> None:
    """Wait until the run's own file says so: the words on the page stay a moment longer."""
    for _ in range(300):
        if json.loads(info.read_text())["status"] == status:
            return
        page.wait_for_timeout(300)
    raise AssertionError(f"never {status}: {info.read_text()}")


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
    until(page, info, "stopped")
    page.wait_for_selector(RUNNING, state="detached")  # the cells after it have run, too
    shot(page, "9-stopped")
    button(page, "Resume").click()
    until(page, info, "running")
    button(page, "Stop").click()
    until(page, info, "stopped")
    button(page, "Resume").click()
    page.wait_for_selector(".jp-OutputArea :text('finished')", timeout=150_000)
    assert json.loads(info.read_text())["summary"]["steps"] == 150
    shot(page, "10-buttons")
