"""A JupyterLab on a copy of the project's notebooks, and a page of headless Chromium on it.

Screenshots go to tests/browser/screenshots (RLKIT_SCREENSHOTS names another folder).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
import waiting

ROOT = Path(__file__).parent.parent.parent
SHOTS = Path(os.environ.get("RLKIT_SCREENSHOTS", Path(__file__).parent / "screenshots"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
SMALL = {
    "model.path": "ladder-10k", "model.warm_start.steps": 60, "evaluation.size": 60,
    "trainer.total_training_steps": 60, "trainer.test_freq": 20,
}  # fmt: skip
HARMLESS = ("ResizeObserver loop",)  # of the browser, and of no consequence


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = None if "browser" in (config.getoption("-m") or "") else "takes minutes: make test-browser"
    why = why if CHROMIUM else "needs chromium: apt-get install chromium"
    for item in items:
        if why and item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason=f"browser: {why}"))


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """A folder with the project's params and notebooks, set to the smallest runs."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "params", folder / "params")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    set_up(folder, "ablations", {"overrides": SMALL})
    long = {"trainer.total_training_steps": 150, "trainer.test_freq": 50, "trainer.save_freq": 50}
    set_up(folder, "train", {"overrides": {**SMALL, **long}})
    return folder


def set_up(folder: Path, name: str, parameters: dict) -> None:
    """A copy of a notebook with other defaults in its parameters cell."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    lines = [line for line in cell.source.splitlines() if line.split(" =")[0] not in parameters]
    cell.source = "\n".join([*lines, *(f"{key} = {value!r}" for key, value in parameters.items())])
    nbformat.write(notebook, folder / "notebooks" / f"{name}.ipynb")


@pytest.fixture(scope="session")
def server(project, tmp_path_factory):
    """The address of a JupyterLab on the project's folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = tmp_path_factory.mktemp("jupyter")
    quiet = home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    dirs = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    env = {f"JUPYTER_{key}": str(home / value) for key, value in dirs.items()}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "spaces")}
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--port={port}", "--IdentityProvider.token=", "--ServerApp.password=", f"--notebook-dir={project}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    with open(home / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **env, "OMP_NUM_THREADS": "1"}, cwd=project
        )
    try:
        waiting.wait_for(lambda: process.poll() is not None or answers(f"http://127.0.0.1:{port}/api"))
        assert process.poll() is None, (home / "server.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def answers(url: str) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(url, timeout=1).status == 200
    return False


@pytest.fixture
def lab(server):
    """A function that opens a notebook in a fresh page; after the test the browser's console is checked."""
    from playwright.sync_api import sync_playwright

    SHOTS.mkdir(parents=True, exist_ok=True)
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1700})
        page.set_default_timeout(90_000)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))

        def open_notebook(name: str):
            page.goto(f"{server}/lab/tree/notebooks/{name}.ipynb?reset")
            page.wait_for_selector(".jp-Notebook .jp-Cell")
            page.wait_for_function(READY)
            return page

        try:
            yield open_notebook
        finally:
            page.screenshot(path=SHOTS / "last.png")
            browser.close()
    assert [e for e in errors if not any(known in e for known in HARMLESS)] == []
