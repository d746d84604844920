"""A run shown live, from its folder alone: in a notebook curves, samples and buttons, elsewhere a progress bar."""

import html
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.panels.live import Output, Worker
from rlkit.results.progress import RunState
from rlkit.results.store import read_jsonl
from rlkit.studies.report import console, duration

if TYPE_CHECKING:
    from rlkit.panels.launching import Launched

CURVES = ("critic/score/mean", "eval/pass@1", "actor/entropy", "actor/kl_loss", "actor/reward_kl_penalty")
SHOWN = 6  # samples of the last logged step
_COLUMNS = ("data_source", "prompt", "response", "value", "correct")


def watch(run: "Launched", every: float = 2.0) -> "NotebookView | None":
    """Show the run: in a notebook at once and from then on by itself, elsewhere until it ends, where an interrupt
    stops it at a checkpoint.

    Returns:
        What shows it, in a notebook.
    """
    if _in_notebook():
        view = NotebookView(run, every)
        view.show()
        return view
    terminal = TerminalView(run)
    try:
        terminal.follow(every)
    except KeyboardInterrupt:
        terminal.say("stopping at the next step border …")
        run.stop()
    terminal.end()
    return None


def sentence(state: RunState) -> str:
    """State, step, reward, pass@1 and time left, in one line."""
    parts = [state.status] + ([state.phase] if state.phase else [])
    if state.step is not None:
        parts.append(f"step {state.step} of {state.total}")
    if state.reward is not None:
        parts.append(f"reward {state.reward:.3f}")
    parts += [state.passed()] if state.passed() else []
    if state.left is not None:
        parts.append(f"{duration(state.left)} left")
    return " · ".join(parts) + (f" · {state.reason}" if state.reason else "")


def samples(folder: Path, count: int = SHOWN) -> list[dict[str, Any]]:
    """The last training samples that were logged, with their rewards."""
    rows = list(read_jsonl(folder / "samples.jsonl"))
    return [row for row in rows if row["step"] == rows[-1]["step"]][:count]


def samples_table(rows: Sequence[dict[str, Any]]) -> str:
    """Samples as an HTML table, texts escaped and long ones cut."""
    if not rows:
        return "<i>No samples yet.</i>"
    head = "".join(
        f"<th style='text-align:left'>{name}</th>" for name in ("source", *_COLUMNS[1:3], "reward", "correct")
    )
    body = "".join(f"<tr>{''.join(map(_cell, (row.get(name) for name in _COLUMNS)))}</tr>" for row in rows)
    return f"<table><caption>samples of step {rows[0]['step']}</caption><tr>{head}</tr>{body}</table>"


def picture(folder: Path) -> bytes | None:
    """The run's curves as PNG; None before the first metric."""
    from rlkit import figures
    from rlkit.results import read as results

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file that is being written is read whole the next time
            return figures.metric_panels(results.read(folder), CURVES, venue="tmlr").png()
    except UserError:
        return None


class NotebookView:
    """Buttons with a bar, the curves and the samples, which a thread of its own keeps up to date.

    Curves and samples are a picture and a table, so a saved notebook shows them without JavaScript. The buttons
    work whenever the kernel takes a click: between cells, and in one that awaits (ipykernel from 7.4 on).

    Attributes:
        settled: is set while everything shows a run that is not being trained.
    """

    def __init__(self, run: "Launched", every: float) -> None:
        import ipywidgets

        self.run, self.settled = run, threading.Event()
        self._drawn: tuple[int | None, str] | None = None
        self._controls: Any = None
        self._picture, self._samples = Output(), Output()
        self._worker = Worker(self.refresh, self._failed, every)
        self.bar = ipywidgets.IntProgress(layout=ipywidgets.Layout(width="12em"))
        self.text = ipywidgets.HTML()
        self.stop = ipywidgets.Button(
            description="Stop", icon="stop", tooltip="at its next step border, with a checkpoint"
        )
        self.resume = ipywidgets.Button(
            description="Resume", icon="play", tooltip="from the newest checkpoint"
        )
        self.stop.on_click(self._stop)
        self.resume.on_click(self._resume)
        self.box = ipywidgets.HBox([self.stop, self.resume, self.bar, self.text])

    def show(self) -> None:
        """Take three places in the cell's output, and begin to keep them up to date."""
        from IPython.display import display

        self._controls = display(self._buttons(), raw=True, display_id=True)
        self._picture.show()
        self._samples.show()
        self.refresh()
        self._worker.start()

    def refresh(self) -> bool:
        """Show what the folder holds now, curves and samples only when there is a new step; true while the run
        is being trained."""
        state = self.run.state
        self.bar.max, self.bar.value = state.total or 1, state.step or 0
        self.stop.disabled = not state.active
        self.resume.disabled = state.active or state.status == "finished"
        if (state.step, state.status) != self._drawn:
            self._drawn = state.step, state.status
            self._draw(state)
        self.say(sentence(state))
        if not state.active:
            self._settle(state)
        return state.active

    def say(self, line: str) -> None:
        """A line beside the bar."""
        self.text.value = html.escape(line)

    def stopping(self) -> None:
        """Say that the run has been asked to end."""
        self.stop.disabled = True
        self.say("stopping at the next step border …")

    def _draw(self, state: RunState) -> None:
        if png := picture(self.run.folder):
            self._picture.picture(png, f"{self.run.id}: {sentence(state)}")
            rows = samples(self.run.folder)
            self._samples.html(samples_table(rows), _plain(rows))

    def _settle(self, state: RunState) -> None:
        """A finished run leaves words in the buttons' place."""
        if state.status == "finished":
            line = f"{self.run.id}: {sentence(state)}"
            self._controls.update(_words(line), raw=True)
            self.box.close()
            self._worker.stop()
        self.settled.set()

    def _buttons(self) -> dict[str, Any]:
        """For a front end that has widgets, and the run's name for all others.

        Shown once: JupyterLab loses hold of a widget that is shown a second time in the same place, and says so
        in the browser's console when that is closed.
        """
        model = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"application/vnd.jupyter.widget-view+json": model, **_words(self.run.id)}

    def _failed(self, problem: Exception) -> None:
        self.say(f"not drawn: {type(problem).__name__}: {problem}")

    def _stop(self, _: Any) -> None:
        self.stopping()
        self.run.stop(wait=False)
        self._worker.wake()

    def _resume(self, _: Any) -> None:
        self.settled.clear()
        self.resume.disabled = True
        self.run.resume()
        self._worker.wake()


class TerminalView:
    """A progress bar; where the output is no terminal, a line an evaluation."""

    def __init__(self, run: "Launched") -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self.run, self._said = run, ""
        columns = (BarColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task("")
        console.print(f"{run.id}: its output is in {run.log}", markup=False)

    def follow(self, every: float) -> None:
        """Update until the run is not trained any more."""
        with self._bar:
            while (state := self.run.state).active:
                self._bar.update(
                    self._task, total=state.total, completed=state.step or 0, description=sentence(state)
                )
                if not console.is_terminal and state.passed() != self._said:
                    self._said = state.passed()
                    self.say(sentence(state))
                time.sleep(every)

    def say(self, line: str) -> None:
        """A line of its own."""
        console.print(line, markup=False)

    def end(self) -> None:
        """The last samples and how it ended."""
        if rows := samples(self.run.folder):
            self.say(_plain(rows))
        self.say(f"{self.run.id}: {sentence(self.run.state)}")


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    return getattr(shell, "kernel", None) is not None


def _words(line: str) -> dict[str, str]:
    return {"text/html": f"<code>{html.escape(line)}</code>", "text/plain": line}


def _cell(value: Any) -> str:
    text = "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= 300 else text[:300] + " …"
    style = "text-align:left;white-space:pre-wrap;max-width:30em"
    return f"<td style='{style}'>{html.escape(text)}</td>"


def _plain(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"reward {row['value']}: {row['prompt'][-80:]!r} → {row['response'][:80]!r}" for row in rows]
    return "\n".join(lines) or "No samples yet."
