"""A run shown live, from its folder alone: curves, samples and buttons in a notebook."""

import asyncio
import html
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.results.progress import RunState
from rlkit.results.store import read_jsonl
from rlkit.studies.terminal import duration

if TYPE_CHECKING:
    from rlkit.panels.launching import Launched

CURVES = ("critic/score/mean", "eval/pass@1", "actor/entropy", "actor/kl_loss", "actor/reward_kl_penalty")
_SHOWN, _CUT = 6, 300  # samples of the last logged step, and characters of a text


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    module = sys.modules.get("IPython")
    return getattr(module.get_ipython() if module else None, "kernel", None) is not None


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
    """Calls `refresh` every `every` seconds on the kernel's own loop, between its cells, while it returns true; `say`
    is told of its exceptions. (A front end's clicks may come in a thread with another loop.)"""

    def __init__(self, refresh: Callable[[], bool], say: Callable[[str], None], every: float = 2.0) -> None:
        self._refresh, self._say, self._every = refresh, say, every
        self._loop: asyncio.AbstractEventLoop | None = None
        self._following: Future[None] | None = None

    def begin(self) -> None:
        """Call it now, in the cell, and from now on where there is a loop."""
        self._refresh()
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self.follow()

    def follow(self) -> None:
        """Something has changed: call it soon, and from then on."""
        if self._loop is not None:
            if self._following is not None:
                self._following.cancel()
            self._following = asyncio.run_coroutine_threadsafe(self._refreshed(), self._loop)

    async def _refreshed(self) -> None:
        while True:
            try:
                if not self._refresh():
                    return
            except Exception as problem:  # such as a file that is being replaced
                self._say(f"not drawn: {type(problem).__name__}: {problem}")
            await asyncio.sleep(self._every)


class RunView:
    """Buttons with a bar, the curves and the samples of a run, shown in the cell that makes it. The buttons work
    whenever the kernel takes a click: between cells, and in one that awaits (ipykernel from 7.4 on)."""

    def __init__(self, run: "Launched", every: float) -> None:
        import ipywidgets
        from IPython.display import DisplayHandle

        self.run, self._live = run, Live(self.refresh, self.say, every)
        self._drawn: tuple[int | None, str] = (None, "")
        self._controls, self._curves, self._samples = DisplayHandle(), DisplayHandle(), DisplayHandle()
        self.bar = ipywidgets.IntProgress(layout={"width": "12em"})
        self.text, self.message = ipywidgets.HTML(), ipywidgets.HTML()
        to_stop, to_resume = "at its next step border, with a checkpoint", "from the newest checkpoint"
        self.stop = button("Stop", "stop", self._stop, to_stop, say=self.say)
        self.resume = button("Resume", "play", self._resume, to_resume, say=self.say)
        self.box = ipywidgets.HBox([self.stop, self.resume, self.bar, self.text, self.message])
        show(self.box, self._controls, self._curves, self._samples)
        self._live.begin()

    def refresh(self) -> bool:
        """Show what the folder holds now; true while the run trains. A finished one has words for buttons."""
        from IPython.display import Pretty

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

    def say(self, line: str) -> None:
        """A line beside the bar, until the run's status changes."""
        self.message.value = html.escape(line)

    def _draw(self) -> None:
        import pandas as pd

        from rlkit import figures
        from rlkit.results.read import read

        self._curves.update(figures.metric_panels(read(self.run.folder), CURVES, venue="tmlr"))
        if rows := list(read_jsonl(self.run.folder / "samples.jsonl")):
            step = rows[-1]["step"]
            last = pd.DataFrame([row for row in rows if row["step"] == step][:_SHOWN])
            last = last.assign(**{name: last[name].str.slice(0, _CUT) for name in ("prompt", "response")})
            shown = figures.table(last, "data_source", "prompt", "response", "value", "correct")
            self._samples.update(shown.set_caption(f"samples of step {step}"))

    def _stop(self) -> str:
        self.run.stop(wait=False)
        self._live.follow()
        return "stopping at the next step border …"

    def _resume(self) -> None:
        self.run.resume()
        self._live.follow()


def show(box: Any, first: Any, *places: Any) -> None:
    """Show a box of widgets in the first of some display handles, and take a place below it for each of the others."""
    from IPython.display import Pretty

    first.display(box)
    for place in places:
        place.display(Pretty(""))


def button(text: str, icon: str, action: Callable[[], Any], tooltip: str = "", say: Any = print) -> Any:
    """A button that calls `action` when it is clicked; `say` is told the sentence that comes back, or the UserError."""
    import ipywidgets

    def clicked(_: Any) -> None:
        try:
            line = action()
        except UserError as problem:
            line = str(problem)
        if line:
            say(line)

    made = ipywidgets.Button(description=text, icon=icon, tooltip=tooltip)
    made.on_click(clicked)
    return made
