"""Runs that outlive the notebook: trained in a process of their own, found again by their folder, shown live.

    run = rlkit.launch("params/quickstart.yaml", {"model.path": "ladder-30k"})
    await run.watch()  # live curves; interrupting the cell stops the run at a checkpoint
    run.resume()  # from that checkpoint; so does calling launch again

The process is `rlkit run`, in a session of its own, with its output in the run's folder. Everything shown is
read from that folder, so a kernel that was killed and started again sees the same.
"""

import asyncio
import html
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
from filelock import FileLock
from IPython.display import DisplayHandle, Pretty

from rlkit import figures
from rlkit.config import RunConfig, load
from rlkit.errors import RunStopped, UserError
from rlkit.params import override, validate
from rlkit.results import store
from rlkit.results.read import read
from rlkit.results.run_state import LOG, START, RunState, is_alive, last_lines, process_of, run_state
from rlkit.studies.file import load_one
from rlkit.studies.status import duration

CURVES = ("critic/score/mean", "eval/pass@1", "actor/entropy", "actor/kl_loss", "actor/reward_kl_penalty")
_SHOWN, _CUT = 6, 300  # samples of the last logged step, and characters of a text
_LOOK = 0.3  # seconds between two looks at a run that is waited for
_ANEW = 2.0  # and between two drawings of what is watched


class RunFailed(RuntimeError):
    """The process of a run failed or was killed; the message holds the reason and the log's path."""


def launch(
    source: RunConfig | str | Path, overrides: Mapping[str, Any] | None = None, root: str | Path = "outputs"
) -> "Launched":
    """Train a run in a process of its own, which goes on when this one ends. The same call again finds the run: it is
    left alone while it trains or when it is finished, and continues from its newest checkpoint otherwise.

    Args:
        source: a RunConfig, or the file of a run, or of a study, whose cell the overrides then choose.
        overrides: dotted keys to values.
        root: folder of all studies.

    Raises UserError: the configuration is wrong, a study's cell is not chosen, or the run's folder cannot be written.
    """
    if isinstance(source, RunConfig):
        config = validate(RunConfig, override(source.model_dump(mode="json"), overrides or {}))
    else:
        config = load_one(source, overrides)
    return Launched(Path(root) / config.study / "runs" / config.id)._start(config)


def attach(run: str | Path, root: str | Path = "outputs") -> "Launched":
    """A run that was started before, by its folder or its id. Raises UserError for none, or several of this id."""
    found = [Path(run)] if (Path(run) / "config.yaml").exists() else sorted(Path(root).glob(f"*/runs/{run}"))
    if len(found) != 1:
        raise UserError(f"There is no one run {str(run)!r} in {root}: give its folder (rlkit status {root}).")
    return Launched(found[0])


class Launched:
    """A run by its folder (outputs/<study>/runs/<id>), whichever process trains it; `log` is what that printed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.id, self.log = folder, folder.name, folder / LOG
        self._view: RunView | None = None

    def __repr__(self) -> str:
        return f"<run {self.id}: {sentence(self.state)}>"

    @property
    def state(self) -> RunState:
        """How far it is, and whether its process lives."""
        return run_state(self.folder)

    @property
    def status(self) -> str:
        """The word of `state` (see `rlkit.results.run_state.RunState`)."""
        return self.state.status

    @property
    def summary(self) -> dict[str, Any]:
        """Steps, pass@1 with intervals at both ends, FLOPs, seconds; empty before it ends."""
        return store.read_json(self.folder / "run.json").get("summary", {})

    def stop(self, wait: bool = True) -> "Launched":
        """End it at its next step border, with a checkpoint, and `wait` for that; a run that is not being trained stays
        as it is. Raises UserError where it is trained on another machine."""
        info = store.read_json(self.folder / "run.json")
        process = process_of(info)
        if process is None:
            if self.state.active:
                host = info["process"]["host"]
                raise UserError(f"The run {self.id} is trained on the machine {host}: stop it there.")
            return self
        process.terminate()
        deadline = time.monotonic() + 1.0
        while is_alive(process) and (wait or time.monotonic() < deadline):
            time.sleep(0.05)
        if not is_alive(process) and store.read_json(self.folder / "run.json").get("status") == "starting":
            store.announce(self.folder, pid=process.pid, status="stopped")
        return self

    def resume(self) -> "Launched":
        """Continue it from its newest checkpoint; a run that is being trained or is finished stays as it is."""
        return self._start(load(self.folder / "config.yaml"))

    def wait(self) -> "Launched":
        """Return when it has finished or was stopped.

        Raises:
            UserError, RunStopped: what its process said before it ended.
            RunFailed: it failed otherwise, or was killed.
        """
        while self.state.active:
            time.sleep(_LOOK)
        return self.ended()

    def watch(self) -> "Launched":
        """Show it live in a notebook: curves, time left, samples and buttons. This returns at once and what it shows
        lives on; `await run.watch()` lasts until the run has ended. (In a terminal `rlkit status FOLDER --watch` shows
        it.)"""
        self._view = RunView(self)
        return self

    def __await__(self) -> Generator[Any, None, "Launched"]:
        """As `wait`, in a cell whose buttons work meanwhile; interrupting it stops the run at a checkpoint."""
        return self._until_end().__await__()

    async def _until_end(self) -> "Launched":
        try:
            while self.state.active:
                await asyncio.sleep(_LOOK)
        except asyncio.CancelledError:  # what an interrupt is for a coroutine
            if self._view is not None:
                self._view.say("stopping at the next step border …")
            await asyncio.to_thread(self.stop)
        if self._view is not None:
            self._view.refresh()
        return self.ended()

    def ended(self) -> "Launched":
        """Itself, when it is finished or was stopped on request; else what went wrong is raised (see `wait`)."""
        state = self.state
        if state.status == "stopped" and state.reason:
            raise RunStopped(state.reason)
        if state.status in ("failed", "lost", "unreadable"):
            if last_lines(self.log, 1).startswith("Error: ") and state.status == "failed":
                raise UserError(state.reason)
            raise RunFailed(f"{state.reason} (see {self.log}); resume() continues from the last checkpoint")
        return self

    def _start(self, config: RunConfig) -> "Launched":
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".launch.lock"):  # two calls at once start one process
            state = self.state
            if state.active or state.status == "finished":
                return self
            root, file = self.folder.parent.parent.parent, self.folder / "config.yaml"
            command = [sys.executable, "-m", "rlkit", "run", str(file), "--root", str(root)]
            store.prepare(self.folder, config)
            with open(self.log, "ab") as log:
                log.write(f"{START} {' '.join(command)}\n".encode())
                log.flush()
                env = {**os.environ, "TQDM_MININTERVAL": "60"}  # a bar in a log is a line a redraw
                streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                # A session of its own: a kernel's interrupt and end reach the kernel alone.
                child = subprocess.Popen(command, env=env, start_new_session=True, **streams)
            store.announce(self.folder, pid=child.pid, status="starting")
        return self


def sentence(state: RunState) -> str:
    """State, step, reward, pass@1 and time left, in one line."""
    parts = [state.status, state.phase]
    if state.step is not None:
        parts.append(f"step {state.step} of {state.total}")
    if state.reward is not None:
        parts.append(f"reward {state.reward:.3f}")
    parts.append(state.passed())
    if state.left is not None:
        parts.append(f"{duration(state.left)} left")
    return " · ".join(filter(None, [*parts, state.reason]))


class Live:
    """What a notebook shows of runs, with a `message` and buttons: `refresh` is called every two seconds on the
    kernel's own loop, between its cells, while it returns true, and its exceptions are said. (A front end's clicks may
    come in a thread with another loop.)"""

    def __init__(self) -> None:
        self.message = ipywidgets.HTML()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._following: Future[None] | None = None

    def refresh(self) -> bool:
        """Show what the folders hold now; true while a run is being trained."""
        raise NotImplementedError

    def say(self, line: str) -> None:
        """Show a line as the message."""
        self.message.value = html.escape(line)

    def button(self, text: str, icon: str, action: Callable[[], Any], tooltip: str = "") -> Any:
        """A button that calls `action` when it is clicked. The sentence that comes back, or the UserError, is the
        message, and what has changed is shown soon."""

        def clicked(_: Any) -> None:
            try:
                line = action()
            except UserError as problem:
                line = str(problem)
            if isinstance(line, str):
                self.say(line)
            self.follow()

        made = ipywidgets.Button(description=text, icon=icon, tooltip=tooltip)
        made.on_click(clicked)
        return made

    def begin(self) -> None:
        """Refresh now, in the cell, and from now on where there is a loop."""
        self.refresh()
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self.follow()

    def follow(self) -> None:
        """Something has changed: refresh soon, and from then on."""
        if self._loop is not None:
            if self._following is not None:
                self._following.cancel()
            self._following = asyncio.run_coroutine_threadsafe(self._refreshed(), self._loop)

    async def _refreshed(self) -> None:
        while True:
            try:
                if not self.refresh():
                    return
            except Exception as problem:  # such as a file that is being replaced
                self.say(f"not drawn: {type(problem).__name__}: {problem}")
            await asyncio.sleep(_ANEW)


class RunView(Live):
    """Buttons with a bar, the curves and the samples of a run, shown in the cell that makes it. The buttons work
    whenever the kernel takes a click: between cells, and in one that awaits (ipykernel from 7.4 on)."""

    def __init__(self, run: Launched) -> None:
        super().__init__()
        self.run = run
        self._drawn: tuple[int | None, str] = (None, "")
        self._controls, self._curves, self._samples = DisplayHandle(), DisplayHandle(), DisplayHandle()
        self.bar = ipywidgets.IntProgress(layout={"width": "12em"})
        self.text = ipywidgets.HTML()
        self.stop = self.button("Stop", "stop", self._stop, "at its next step border, with a checkpoint")
        self.resume = self.button("Resume", "play", run.resume, "from the newest checkpoint")
        self.box = ipywidgets.HBox([self.stop, self.resume, self.bar, self.text, self.message])
        show(self.box, self._controls, self._curves, self._samples)
        self.begin()

    def refresh(self) -> bool:
        """As `Live`; the message lasts until the run's status changes, and a finished run has words for buttons."""
        state = self.run.state
        self.bar.max, self.bar.value = state.total or 1, state.step or 0
        self.stop.disabled = not state.active
        self.resume.disabled = state.active or state.status == "finished"
        self.text.value = html.escape(sentence(state))
        if state.status != self._drawn[1]:
            self.say("")
        if (state.step, state.status) != self._drawn:
            self._drawn = state.step, state.status
            with suppress(UserError):  # nothing is logged yet
                self._draw()
            if state.status == "finished":
                self._controls.update(Pretty(f"{self.run.id}: {sentence(state)}"))
                self.box.close()
        return state.active

    def _draw(self) -> None:
        self._curves.update(figures.metric_panels(read(self.run.folder), CURVES, venue="tmlr"))
        if rows := list(store.read_jsonl(self.run.folder / "samples.jsonl")):
            step = rows[-1]["step"]
            last = pd.DataFrame([row for row in rows if row["step"] == step][:_SHOWN])
            last = last.assign(**{name: last[name].str.slice(0, _CUT) for name in ("prompt", "response")})
            shown = figures.table(last, "data_source", "prompt", "response", "value", "correct")
            self._samples.update(shown.set_caption(f"samples of step {step}"))

    def _stop(self) -> str:
        self.run.stop(wait=False)
        return "stopping at the next step border …"


def show(box: Any, first: Any, *places: Any) -> None:
    """Show a box of widgets in the first of some display handles, and take a place below it for each of the others."""
    first.display(box)
    for place in places:
        place.display(Pretty(""))
