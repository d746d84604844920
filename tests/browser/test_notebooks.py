"""The notebooks in a real JupyterLab in a real browser, as a person uses them."""

import json

import pytest
from waiting import wait_for

from rlkit import load

from .conftest import SHOTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

RUN_ALL = "void window.jupyterapp.commands.execute('notebook:run-all-cells')"  # void: do not wait for the cells
MOVED = "old => [...document.querySelectorAll('.jp-OutputArea img')].some(image => !old.includes(image.src))"
CHANGED = ".rlkit-panel .rlkit-changed"


def press(page, name: str, key: str = "ArrowRight") -> None:
    """Press a key on a slider, and wait until the panel says what has changed."""
    row = page.locator(".rlkit-panel .widget-slider", has=page.locator("label", has_text=name)).first
    before = page.locator(CHANGED).inner_text()
    row.locator(".noUi-handle").press(key)
    page.wait_for_function(f"old => document.querySelector('{CHANGED}').innerText !== old", arg=before)


def pictures(page) -> list[str]:
    return page.eval_on_selector_all(".jp-OutputArea img", "images => images.map(i => i.src)")


def shot(page, name: str) -> None:
    page.screenshot(path=SHOTS / f"{name}.png")


def test_ablations(lab, project):
    page = lab("ablations")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".rlkit-panel")
    page.wait_for_selector("td:has-text('base')")
    page.locator(".rlkit-panel").scroll_into_view_if_needed()
    shot(page, "1-panel")

    press(page, "lr")
    assert "actor.optim.lr" in page.locator(CHANGED).inner_text()
    page.locator(".rlkit-panel button", has_text="Launch").click()
    page.wait_for_selector("td:has-text('running')")
    before = pictures(page)
    for key in ("ArrowRight", "ArrowLeft", "ArrowRight", "ArrowLeft"):  # it answers while the run trains
        press(page, "rollout.n", key)
    assert page.locator("td:has-text('running')").count()
    shot(page, "2-training")
    page.wait_for_function(MOVED, arg=before)
    page.wait_for_selector("td:has-text('running')", state="detached")
    (found,) = (project / "outputs" / "ablations-panel" / "runs").glob("*/run.json")
    assert json.loads(found.read_text())["status"] == "finished"

    page.locator(".rlkit-panel button", has_text="Save as params").click()
    page.wait_for_selector(".rlkit-panel :text('wrote params/ablations-panel.yaml')")
    saved = load(project / "params" / "ablations-panel.yaml")
    assert saved.actor.optim.lr != load(project / "params" / "ablations.yaml").actor.optim.lr
    assert saved.trainer.total_training_steps == 60
    shot(page, "3-saved")

    page.evaluate("void window.jupyterapp.commands.execute('notebook:restart-run-all')")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.wait_for_selector(".rlkit-panel", state="detached")
    page.wait_for_selector(".rlkit-panel")
    page.wait_for_selector("td:has-text('lr =')")
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    shot(page, "4-after-restart")
    page.get_by_role("heading", name="A law", exact=True).scroll_into_view_if_needed()
    page.wait_for_selector("caption:has-text('samples of')", state="attached")
    shot(page, "5-samples")
    page.evaluate("void window.jupyterapp.commands.execute('docmanager:save')")
    wait_for(lambda: "image/png" in (project / "notebooks" / "ablations.ipynb").read_text(), 15)


def test_train_is_interrupted_and_resumed(lab, project):
    page = lab("train")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".jp-OutputArea :text('running')")
    page.wait_for_selector(".jp-OutputArea img")
    shot(page, "6-train")
    page.evaluate("void window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.wait_for_selector(".jp-OutputArea :text('stopped')")
    (info,) = (project / "outputs" / "train" / "runs").glob("*/run.json")
    stopped = json.loads(info.read_text())
    assert stopped["status"] == "stopped" and 0 < stopped["summary"]["steps"] < 150
    shot(page, "7-interrupted")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".jp-OutputArea :text('finished')", timeout=120_000)
    assert json.loads(info.read_text())["summary"]["steps"] == 150
    shot(page, "8-resumed")
