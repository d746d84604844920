"""A run shown live, from its folder alone: in a notebook curves, samples and buttons, elsewhere a progress bar."""

import base64
import html
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.progress import RunState
from rlkit.report import console, duration
from rlkit.store import read_jsonl

if TYPE_CHECKING:
    from rlkit.launching import Launched

CURVES = ("critic/score/mean", "eval/pass@1", "actor/entropy", "actor/kl_loss", "actor/reward_kl_penalty")
SHOWN = 6  # samples of the last logged step
_COLUMNS = ("data_source", "prompt", "response", "value", "correct")


def watch(run: "Launched", every: float = 2.0) -> None:
    """Show the run until it ends; an interrupt stops it at a checkpoint and then returns."""
    view = NotebookView(run, every) if _in_notebook() else TerminalView(run)
    try:
        view.follow(every)
    except KeyboardInterrupt:
        view.say("stopping at the next step border …")
        run.stop()
    view.end()


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
    from rlkit import figures, results

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file that is being written is read whole the next time
            return figures.metric_panels(results.read(folder), CURVES, venue="tmlr").png()
    except UserError:
        return None


class NotebookView:
    """Three outputs that are updated in place: buttons with a bar, the curves, the samples.

    Curves and samples are a picture and a table from the first moment, so a saved notebook shows them without
    JavaScript. While the cell runs, the kernel takes no click (ipykernel gives those on a widget to the shell
    that made it): its interrupt is the stop. The buttons serve from then on.
    """

    def __init__(self, run: "Launched", every: float) -> None:
        import ipywidgets
        from IPython.display import display

        self.run, self.every = run, every
        self._drawn: tuple[int | None, str] | None = None
        self._follower: threading.Thread | None = None
        self._cell_runs = True
        self.bar = ipywidgets.IntProgress(layout=ipywidgets.Layout(width="12em"))
        self.text = ipywidgets.HTML()
        self.stop = ipywidgets.Button(description="Stop", icon="stop")
        self.resume = ipywidgets.Button(
            description="Resume", icon="play", tooltip="from the newest checkpoint"
        )
        self.stop.on_click(self._stop)
        self.resume.on_click(self._resume)
        self.box = ipywidgets.HBox([self.stop, self.resume, self.bar, self.text])
        blank = {"text/plain": ""}
        self._controls: Any = display(self._bundle(run.state), raw=True, display_id=True)
        self._picture: Any = display(blank, raw=True, display_id=True)
        self._samples: Any = display(blank, raw=True, display_id=True)

    def follow(self, every: float) -> None:
        """Update until the run is not trained any more."""
        while self.refresh().active:
            time.sleep(every)

    def refresh(self) -> RunState:
        """Show what the folder holds now; curves and samples only when there is a new step."""
        state = self.run.state
        self.bar.max, self.bar.value = state.total or 1, state.step or 0
        self.say(sentence(state))
        self.stop.disabled, self.resume.disabled = (
            not state.active,
            state.active or state.status == "finished",
        )
        if (state.step, state.status) != self._drawn:
            self._drawn = state.step, state.status
            self._draw(state)
        return state

    def say(self, line: str) -> None:
        """A line beside the bar."""
        self.text.value = html.escape(line)

    def end(self) -> None:
        """Leave the last state as plain text, with the buttons while there is something to resume."""
        self._cell_runs = False
        state = self.refresh()
        if state.status == "finished":
            self.box.close()
        self._controls.update(self._bundle(state), raw=True)

    def _draw(self, state: RunState) -> None:
        line = f"{self.run.id}: {sentence(state)}"
        if png := picture(self.run.folder):
            content = {"image/png": base64.b64encode(png).decode(), "text/plain": line}
            self._picture.update(content, raw=True)
            rows = samples(self.run.folder)
            self._samples.update({"text/html": samples_table(rows), "text/plain": _plain(rows)}, raw=True)

    def _bundle(self, state: RunState) -> dict[str, Any]:
        """The buttons for a front end that has them, and the state in words for all others."""
        line = f"{self.run.id}: {sentence(state)}"
        words = {"text/html": f"<code>{html.escape(line)}</code>", "text/plain": line}
        if state.status == "finished":
            return words
        model = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"application/vnd.jupyter.widget-view+json": model, **words}

    def _stop(self, _: Any) -> None:
        self.say("stopping at the next step border …")
        self.stop.disabled = True
        self.run.stop(wait=False)

    def _resume(self, _: Any) -> None:
        self.resume.disabled = True
        self.run.resume()
        before = self._follower  # may still be drawing the end
        self._follower = threading.Thread(target=self._follow_on, args=(before,), daemon=True)
        self._follower.start()

    def _follow_on(self, before: threading.Thread | None) -> None:
        """Go on showing after the cell has ended."""
        if before is not None:
            before.join()
        self.follow(self.every)
        self.end()


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


def _cell(value: Any) -> str:
    text = "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= 300 else text[:300] + " …"
    style = "text-align:left;white-space:pre-wrap;max-width:30em"
    return f"<td style='{style}'>{html.escape(text)}</td>"


def _plain(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"reward {row['value']}: {row['prompt'][-80:]!r} → {row['response'][:80]!r}" for row in rows]
    return "\n".join(lines) or "No samples yet."
