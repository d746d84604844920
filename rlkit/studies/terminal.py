"""What the terminal shows of a study: the plan with its cost, the progress, the end."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlkit.results.progress import kept_step, run_state
from rlkit.results.provenance import hardware, load, usable_cores
from rlkit.results.store import read_json
from rlkit.studies.inert import inert_factors, inert_sentences
from rlkit.studies.report import console, continuation, duration

if TYPE_CHECKING:
    from rlkit.studies.plan import Plan, PlannedRun

_LOOK = 1.0  # seconds between two looks at the logs of running runs


def show_plan(plan: "Plan", workers: int, here: bool = True) -> None:
    """Print the runs of a study with their estimated cost.

    Args:
        here: they run on this machine, whose load then counts.
    """
    if not plan.to_do:
        console.print(f"Study {plan.config.study}: all {len(plan.runs)} runs are finished.")
        return
    table = Table("run", "held out", "FLOPs", "about", "status", title=f"Study {plan.config.study}")
    left: list[dict[str, float]] = list(plan.warm_starts.values())
    for name, cost in plan.warm_starts.items():
        about = f"{cost['flops']:.1e}", duration(cost["seconds"])
        table.add_row(f"warm start of {name}", "", *about, "made once")
    for run in plan.runs:
        status, share = _standing(plan, run)
        cost = {key: share * value for key, value in plan.costs.get(run.name, {}).items()}
        known = share > 0 and math.isfinite(cost["flops"])
        numbers = (f"{cost['flops']:.1e}", duration(cost["seconds"])) if known else ("", "")
        table.add_row(run.label, "yes" if run.held_out else "", *numbers, status)
        left += [cost] if share > 0 else []
    console.print(table)
    about = left_words(left, workers, load() if here and not hardware()["gpus"] else 0.0)
    console.print(f"{len(plan.to_do)} of {len(plan.runs)} runs to do: {about}.")
    for caution in inert_sentences(inert_factors(plan.runs)):
        console.print(caution, style="yellow", markup=False)


def _standing(plan: "Plan", run: "PlannedRun") -> tuple[str, float]:
    """How far a run of a study is, in words, and the share of it that is left to do."""
    if plan.is_finished(run):
        return "done", 0.0
    folder = plan.run_folder(run)
    if read_json(folder / "run.json").get("status") == "finished":
        return "trained, without its notebook", 0.0
    step, total = kept_step(folder), run.config.trainer.total_training_steps
    return continuation(step, total), 1 - step / total


def left_words(left: Sequence[Mapping[str, float]], workers: int, busy: float) -> str:
    """What runs will cost together, in words.

    Args:
        busy: processes that already compete for the cores.
    """
    if not left:
        return "trained, only their notebooks are missing"
    flops = sum(cost["flops"] for cost in left)
    if not math.isfinite(flops):
        return "the cost is unknown where the model is not on this machine yet"
    ends = [0.0] * workers
    for cost in left:  # each on the worker that is free first
        ends[ends.index(min(ends))] += cost["seconds"]
    idle = f"{flops:.1e} FLOPs, about {duration(max(ends))} with {workers} at a time on an idle machine"
    cores = usable_cores()
    if busy < cores / 4:
        return idle
    rather = duration(max(ends) * (1 + busy / cores))
    return f"{idle}.\nThis one is busy (load {busy:.1f} on {cores} cores), so rather {rather}"


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


def show_reading(folder: Path) -> None:
    """Print how to go on from a study's results."""
    console.print(f'\nAs tables     rlkit.read("{folder}"), rlkit.read_evals("{folder}")', markup=False)
    console.print(f"for a paper   rlkit figures {folder} --venue icml", markup=False)


class Board:
    """Progress of a study: a bar over all runs and one for each running one, plain lines when the output is not a
    terminal; and what runs warn of."""

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
        self._began: dict[str, float] = {}
        self._warned: set[tuple[str, str]] = set()
        self._next_look = 0.0

    def __enter__(self) -> "Board":
        if self.plan.to_do:
            self.say(f"Each run's state, from any terminal: rlkit status {self.plan.folder} --watch")
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
        self._warned |= set(self._warnings(run))  # of an earlier attempt
        self._began[run.id] = time.monotonic()
        self._of[run.id] = run, self._bars.add_task(run.label, total=steps, note="starting")

    def refresh(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        for run, bar in self._of.values():
            self._warn(run)
            if console.is_terminal:
                folder = self.plan.run_folder(run)
                state = run_state(folder)
                note = state.passed() or ("warm start" if folder.exists() else "starting")
                left = "" if state.left is None else f", {duration(state.left)} left"
                self._bars.update(bar, completed=state.step or 0, note=note + left)

    def _warn(self, run: "PlannedRun") -> None:
        """Print what the run has warned of since the last look."""
        for of, sentence in self._warnings(run):
            if (of, sentence) not in self._warned:
                self._warned.add((of, sentence))
                self.say(f"{run.label}: {sentence}")

    def _warnings(self, run: "PlannedRun") -> list[tuple[str, str]]:
        found = read_json(self.plan.run_folder(run) / "run.json").get("warnings", {})
        return [(run.id, sentence) for sentence in found.values()]

    def lost(self, run: "PlannedRun", problem: str) -> None:
        """Print that a run was lost with its machine and waits for another try."""
        _, bar = self._of.pop(run.id)
        self._bars.remove_task(bar)
        self.say(f"{run.label}: {problem}; it continues from its last checkpoint")

    def ended(self, run: "PlannedRun", problem: str | None) -> None:
        """Print how the run ended; `problem` holds its last lines when it failed."""
        _, bar = self._of.pop(run.id)
        self._bars.remove_task(bar)
        self._bars.advance(self._all)
        self._warn(run)
        if problem is None:
            state = run_state(self.plan.run_folder(run))
            took = duration(time.monotonic() - self._began[run.id])
            self.say(f"{run.label}: {state.passed() or 'finished'} in {took}")
        else:
            self.say(f"{run.label}: failed: {problem.splitlines()[-1]}")
