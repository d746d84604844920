"""What the terminal shows of runs and studies: the plan, the progress, the end."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlkit.results import run_facts, run_folders
from rlkit.store import read_jsonl

if TYPE_CHECKING:
    from rlkit.studies import Plan, PlannedRun

_LOOK = 1.0  # seconds between two looks at the logs of running runs
console = Console(soft_wrap=True, highlight=False)


@dataclass(frozen=True)
class RunState:
    """How far a run is: its last logged step, pass@1 at its first and last evaluation, and seconds."""

    step: int | None = None
    before: float | None = None
    now: float | None = None
    seconds: float = 0.0

    def passed(self) -> str:
        if self.before is None or self.now is None:
            return ""
        return f"pass@1 {self.before:.2f} → {self.now:.2f}"


def run_state(folder: Path) -> RunState:
    """Read from the run's log; empty for a run that has logged nothing."""
    rows = list(read_jsonl(folder / "metrics.jsonl"))
    if not rows:
        return RunState()
    passed = [row["eval/pass@1"] for row in rows if row.get("eval/pass@1") is not None]
    step = max(row["step"] for row in rows)
    first, last = (passed[0], passed[-1]) if passed else (None, None)
    return RunState(step, first, last, rows[-1]["time"] - rows[0]["time"])


def status_table(path: str | Path) -> Table:
    """The runs under a study's folder or an outputs folder: status, step, pass@1."""
    table = Table("run", "status", "step", "pass@1 before", "now", title=str(path))
    for folder in run_folders(path):
        state = run_state(folder)
        numbers = ["–" if n is None else f"{n:.3f}" for n in (state.before, state.now)]
        step = "–" if state.step is None else str(state.step)
        table.add_row(folder.name, str(run_facts(folder)["status"]), step, *numbers)
    return table


def show_plan(plan: "Plan", workers: int) -> None:
    """Print the runs of a study with their estimated cost."""
    unfinished = len(plan.to_do)
    if not unfinished:
        console.print(f"Study {plan.config.study}: all {len(plan.runs)} runs are finished.")
        return
    table = Table("run", "held out", "FLOPs", "about", "status", title=f"Study {plan.config.study}")
    for run in plan.runs:
        cost = plan.costs.get(run.name, {})
        finished = run not in plan.to_do
        numbers = ("", "") if finished else (f"{cost['flops']:.1e}", _duration(cost["seconds"]))
        table.add_row(run.label, "yes" if run.held_out else "", *numbers, "finished" if finished else "to do")
    console.print(table)
    flops, seconds = (sum(plan.costs[run.name][key] for run in plan.to_do) for key in ("flops", "seconds"))
    about = f"{flops:.1e} FLOPs, about {_duration(seconds / workers)} with {workers} at a time"
    console.print(f"{unfinished} of {len(plan.runs)} runs to do: {about}.")


def show_end(plan: "Plan", failed: Mapping[str, str]) -> None:
    """Print how a study ended: failures with their last lines, or the analysis's summary."""
    for name, lines in failed.items():
        console.print(f"\n{name} failed:", style="bold red")
        console.print(lines, markup=False)
    if failed:
        console.print(
            f"\nFailed: {', '.join(failed)}. Logs and partial notebooks are in {plan.folder / 'notebooks'}; "
            "the same command tries again, runs from their last checkpoints.",
            markup=False,
        )
        return
    summary = plan.folder / "analysis" / "summary.txt"
    if summary.exists():
        console.print("\n" + summary.read_text(encoding="utf-8").rstrip(), markup=False)


class Board:
    """Progress of a study: a bar over all runs and one for each running one; plain lines when the output
    is not a terminal."""

    def __init__(self, plan: "Plan") -> None:
        self.plan = plan
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        done = sum(plan.is_finished(run) for run in plan.runs)
        self._all = self._bars.add_task("runs", total=len(plan.runs), completed=done, note="")
        self._of: dict[str, tuple[PlannedRun, TaskID]] = {}
        self._next_look = 0.0

    def __enter__(self) -> "Board":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        self._bars.console.print(line)

    def started(self, run: "PlannedRun") -> None:
        if not console.is_terminal:
            self.say(f"{run.label}: started")
        steps = run.config.trainer.total_training_steps
        self._of[run.id] = run, self._bars.add_task(run.label, total=steps, note="starting")

    def refresh(self) -> None:
        if not console.is_terminal or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        for run, bar in self._of.values():
            folder = self.plan.run_folder(run)
            state = run_state(folder)
            note = state.passed() or ("warm start" if folder.exists() else "starting")
            self._bars.update(bar, completed=state.step or 0, note=note)

    def ended(self, run: "PlannedRun", problem: str | None) -> None:
        """Print how the run ended; `problem` holds its last lines when it failed."""
        _, bar = self._of.pop(run.id)
        self._bars.remove_task(bar)
        self._bars.advance(self._all)
        if problem is None:
            state = run_state(self.plan.run_folder(run))
            self.say(f"{run.label}: {state.passed() or 'finished'} in {_duration(state.seconds)}")
        else:
            self.say(f"{run.label}: failed: {problem.splitlines()[-1]}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
