"""What the terminal shows of runs and studies: how far each run is, and how it ended (dry_run.py: what is to come)."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rlkit.config.run import labels
from rlkit.files import read_json
from rlkit.params import flatten
from rlkit.results.read import planned_runs, run_folders
from rlkit.results.run_state import ACTIVE, config_of, kept_step, run_state
from rlkit.studies.plan import Plan, PlannedRun

_COLOURS = dict.fromkeys(ACTIVE, "green") | {
    "stopped": "yellow", "lost": "bold red", "failed": "bold red", "unreadable": "bold red", "waiting": "dim",
}  # fmt: skip
console = Console(soft_wrap=True, highlight=False)


def status_table(path: str | Path, folders: Sequence[Path] | None = None) -> Table:
    """The runs under a run's, a study's or an outputs folder: state, step, reward, pass@1, time left (where one is
    running) and how long ago each wrote; those of `folders` only. Runs of a study that are to come are waiting."""
    states = {folder: run_state(folder) for folder in folders or _folders(Path(path))}
    names = _names(list(states))
    left = any(state.left is not None for state in states.values())
    beside = 1 if console.width > 90 else 0  # the box's own
    table = Table(title=escape(str(path)), box=SIMPLE_HEAD, pad_edge=False, padding=(0, beside, 0, 0))
    for name in ("run", "state", "step", "reward", "pass@1", *["left"] * left, "ago"):
        table.add_column(name, no_wrap=name != "run", overflow="fold")
    words = [len(word) for name in names for word in name.plain.split()]
    table.columns[0].min_width = max(words, default=0)  # an id is there to copy
    several, study = len({folder.parent.parent for folder in states}) > 1, None
    for name, (folder, state) in zip(names, states.items(), strict=True):
        if several and folder.parent.parent != study:
            study = folder.parent.parent
            table.add_row(Text(study.name, style="bold"))
        if about := state.phase or shorten(state.reason, 160, placeholder=" …"):  # run.json has all
            name.append(f"\n{about}", style="dim")
        table.add_row(
            name,
            Text(state.status, style=_COLOURS.get(state.status, "")),
            "" if state.step is None else f"{state.step}/{state.total}",
            "" if state.reward is None else f"{state.reward:.3f}",
            state.passed().removeprefix("pass@1 "),
            *["" if state.left is None else duration(state.left)] * left,
            "" if state.updated is None else duration(max(0.0, time.time() - state.updated)),
        )
    counts = Counter(state.status for state in states.values())
    devices = sorted({state.device for state in states.values() if state.device})
    where = f" on {', '.join(devices)}" if devices else ""
    table.caption = escape(", ".join(f"{count} {status}" for status, count in counts.items()) + where)
    return table


def watch_status(path: str | Path) -> None:
    """Show `status_table`, again and again, until every run has ended; Ctrl-C ends the watching only."""
    with Live(status_table(path), console=console, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while any(run_state(f).status in ("waiting", *ACTIVE) for f in _folders(Path(path))):
            time.sleep(2.0)
            live.update(status_table(path), refresh=True)


def _folders(path: Path) -> list[Path]:
    """The folders of all runs, those of a study's file that have not begun too."""
    planned = planned_runs(path)
    found = run_folders(path) if not planned or any(path.glob("runs/*/config.yaml")) else []
    return list(dict.fromkeys([*(path / "runs" / run for run in planned), *found]))


def _names(folders: Sequence[Path]) -> list[Text]:
    """Each run's cell and seed. A run that no study's file asks for is named by what tells it from others of its
    kind, with its id, by which alone it is found."""
    plans = {study: planned_runs(study) for study in {folder.parent.parent for folder in folders}}
    asked = {folder: plans[folder.parent.parent].get(folder.name) for folder in folders}
    by_hand = {folder: config_of(folder) for folder, run in asked.items() if run is None}
    cells = dict(zip(by_hand, labels([flatten(config) for config in by_hand.values()]), strict=True))
    return [
        Text(f"{run['cell']}, seed {run.get('seed')}") if run is not None else
        Text(f"{cells[folder]}, seed {by_hand[folder].get('seed')}\n").append(folder.name, style="dim")
        for folder, run in asked.items()
    ]  # fmt: skip


def run_end(status: str, folder: Path, summary: Mapping[str, Any]) -> str:
    """How a run ended: pass@1 before and after with intervals, where it is, and how a stopped one goes on."""
    lines = [f"{status}: {folder}"]
    first, last = summary.get("first"), summary.get("last")
    if first and last and status == "finished":
        before, after = (f"{e['pass@1']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" for e in (first, last))
        lines.append(f"held-out pass@1 {before} before, {after} after {counted(summary['steps'], 'step')}")
    if status == "stopped":
        steps, same = summary.get("steps", kept_step(folder)), "the same command or cell"
        kept = f"{counted(steps, 'step')} kept: {same} goes on from there"
        lines.append(kept if steps else f"it has no step yet: {same} begins it again")
    return "\n".join(lines)


def show_end(plan: Plan, failed: Mapping[str, str], reading: bool = True) -> None:
    """Print how a study ended: failures, or the analysis's summary and, where `reading`, how to go on from there."""
    folder, summary = plan.folder, plan.folder / "analysis" / "summary.txt"
    for name, lines in failed.items():
        say(f"\n{name} failed:", style="bold red")
        say(lines)
    words = summary.read_text(encoding="utf-8").rstrip() if summary.exists() else ""
    if failed:
        words = f"Failed: {', '.join(failed)}. Logs and partial notebooks are in {folder / 'notebooks'}; "
        words += "the same command tries again, runs from their last checkpoints."
    elif reading:
        words += f'\n\nAs tables     rlkit.read("{folder}"), rlkit.read_evals("{folder}")'
        words += f"\nfor a paper   rlkit figures {folder} --venue icml"
    say("\n" + words.strip())


def say(line: str, style: str | None = None) -> None:
    """Print a line as it is."""
    console.print(line, style=style, markup=False)


class Board:
    """Progress of a study: lines as runs begin, warn and end, and in a terminal the states of those that run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began: dict[PlannedRun, float] = {}
        self._warned: set[str] = set()

    def __enter__(self) -> "Board":
        if self.plan.to_do:
            say(f"Each run's state, from any terminal: rlkit status {self.plan.folder} --watch")
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, run: PlannedRun) -> None:
        say(f"{run.label}: started")
        self._began[run] = time.monotonic()

    def refresh(self) -> None:
        """Show the running runs and what they warn of."""
        for run in self._began:
            self._warn(run)
        if console.is_terminal and self._began:
            table = status_table(self.plan.folder, [run.folder for run in self._began])
            self._live.update(table, refresh=True)

    def _warn(self, run: PlannedRun) -> None:
        """Say what a run has warned of since the last look."""
        for sentence in read_json(run.folder / "run.json").get("warnings", {}).values():
            if (line := f"{run.label}: {sentence}") not in self._warned:
                self._warned.add(line)
                say(line)

    def ended(self, run: PlannedRun, problem: str | None, again: bool = False) -> None:
        """Print how a run ended; `problem`: last lines of one that failed or, tried `again`, was lost."""
        self._warn(run)
        took = duration(time.monotonic() - self._began.pop(run))
        words = f"{run_state(run.folder).passed() or 'finished'} in {took}"
        if problem is not None:
            last = problem.splitlines()[-1]
            words = f"{last}; it continues from its last checkpoint" if again else f"failed: {last}"
        say(f"{run.label}: {words}")


def counted(number: int, thing: str) -> str:
    """A number of things, one in the singular."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
