"""What the terminal shows of runs: a live table of how far each is, and how one ended."""

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
from rich.table import Table
from rich.text import Text

from rlkit.config import RunConfig
from rlkit.results.labels import labels
from rlkit.results.progress import ACTIVE, RunState, config_of, kept_step, pace_of, run_state
from rlkit.results.read import flatten, run_folders
from rlkit.results.store import read_json
from rlkit.studies.inert import inert_keys, inert_sentences, set_keys

_COLOURS = {
    "running": "green",
    "starting": "green",
    "stopped": "yellow",
    "lost": "bold red",
    "failed": "bold red",
    "waiting": "dim",
}
_REASON = 160  # characters of why a run failed or stopped; run.json has all
console = Console(soft_wrap=True, highlight=False)


def status_table(path: str | Path) -> Table:
    """The runs under a run's, a study's or an outputs folder: state, step, reward, pass@1, time left (where one is
    running), device and how long ago each wrote. Runs that a study's file asks for and that have not begun are
    waiting."""
    states = {folder: run_state(folder) for folder in _folders(Path(path))}
    names = _names(list(states))
    devices = {state.device for state in states.values() if state.device}
    between = 1 if console.width > 90 else 0  # beside the box's own
    table = Table(title=str(path), box=SIMPLE_HEAD, pad_edge=False, padding=(0, between, 0, 0))
    running = any(state.left is not None for state in states.values())
    for name in ("run", "state", "step", "reward", "pass@1", *["left"] * running, "ago"):
        table.add_column(name, no_wrap=name != "run", overflow="fold")
    words = [len(word) for name in names for word in name.plain.split()]
    table.columns[0].min_width = max(words, default=0)  # an id is there to copy
    if len(devices) > 1:
        table.add_column("device")
    several, study = len({folder.parent.parent for folder in states}) > 1, None
    for name, (folder, state) in zip(names, states.items(), strict=True):
        if several and folder.parent.parent != study:
            study = folder.parent.parent
            table.add_row(Text(study.name, style="bold"))
        if about := state.phase or shorten(state.reason, _REASON, placeholder=" …"):
            name.append(f"\n{about}", style="dim")
        step = "" if state.step is None else f"{state.step}/{state.total}"
        reward = "" if state.reward is None else f"{state.reward:.3f}"
        left = ["" if state.left is None else duration(state.left)] * running
        ago = "" if state.updated is None else duration(max(0.0, time.time() - state.updated))
        status = Text(state.status, style=_COLOURS.get(state.status, ""))
        passed = state.passed().removeprefix("pass@1 ")
        device = [state.device] if len(devices) > 1 else []
        table.add_row(name, status, step, reward, passed, *left, ago, *device)
    counts = Counter(state.status for state in states.values())
    where = f" on {devices.pop()}" if len(devices) == 1 else ""
    table.caption = ", ".join(f"{count} {status}" for status, count in counts.items()) + where
    if same := _identical(states, names):
        table.caption += f"\nCaution: these runs are identical, step for step: {'; '.join(same)}."
    return table


def _identical(states: Mapping[Path, RunState], names: Sequence[Text]) -> list[str]:
    """Finished runs of one study and seed that ended alike to the last bit: what tells them apart had no effect."""
    found: dict[Any, list[str]] = {}
    for (folder, state), name in zip(states.items(), names, strict=True):
        if state.status == "finished" and state.ending:
            key = folder.parent, config_of(folder).get("seed"), state.step, state.ending
            found.setdefault(key, []).append(name.plain.partition("\n")[0])
    return [", ".join(group) for group in found.values() if len(group) > 1]


def run_plan(config: RunConfig, root: Path) -> str:
    """What a run would do: its folder, what is trained, how far it is, and the predicted cost of the rest, from its own
    steps where it has some."""
    from rlkit.sizing.estimate import estimate

    folder, total = root / config.study / "runs" / config.id, config.trainer.total_training_steps
    step, cost, pace = kept_step(folder), estimate(config), pace_of(folder)
    about = "cost unknown"
    if cost is not None:
        about = f"{cost.flops * (1 - step / total):.1e} FLOPs"
        if config.trainer.backend == "local":
            seconds, measured = cost.left(step, pace), " (measured)" if pace else ""
            about += f", about {duration(seconds)} here: {pace or cost.step:.2g} s per step{measured}"
    standing = continuation(step, total) if step < total else "all steps are done"
    batch = f"{config.data.train_batch_size} prompts, {config.rollout.n} responses each"
    cautions = inert_sentences(inert_keys(config, set_keys(config)))
    return "\n".join(
        [
            f"{folder}: {config.model.path} by {config.algorithm.adv_estimator}, {total} steps of {batch}",
            f"{standing}: {about}{_warm_start(config) if step < total else ''}",
            *cautions,
        ]
    )


def _warm_start(config: RunConfig) -> str:
    """What a run's warm start will take, in words that follow; nothing where it has none or it is made."""
    from rlkit.sizing.estimate import estimate_warm_start
    from rlkit.training.warm_start import to_make

    folder = to_make(config)
    cost = estimate_warm_start(config) if folder else None
    if folder is None or cost is None:
        return ""
    return (
        f"\nbefore that a warm start of {config.model.warm_start.steps} steps: {cost[0]:.1e} FLOPs, about "
        f"{duration(cost[1])} here; it is kept in {folder.parent} for the runs that share it"
    )


def continuation(step: int, total: int) -> str:
    """What is next for a run whose newest checkpoint is of `step`, in words."""
    return f"continues at {step}/{total}" if step else "to do"


def run_end(status: str, folder: Path, summary: Mapping[str, Any]) -> str:
    """How a run ended: pass@1 before and after with intervals, where it is, and how a stopped one goes on."""
    lines = [f"{status}: {folder}"]
    first, last = summary.get("first"), summary.get("last")
    if first and last and status == "finished":
        before, after = (f"{e['pass@1']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" for e in (first, last))
        lines.append(f"held-out pass@1 {before} before, {after} after {summary['steps']} steps")
    if status == "stopped":
        steps = summary.get("steps", kept_step(folder))
        kept = f"{steps} steps are kept: the same command or cell goes on from there"
        lines.append(kept if steps else "it has no step yet: the same command or cell begins it again")
    return "\n".join(lines)


def watch_status(path: str | Path, every: float = 2.0) -> None:
    """Show `status_table`, again and again, until every run has ended; Ctrl-C ends the watching only."""
    with Live(status_table(path), console=console, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while any(run_state(f).status in ("waiting", *ACTIVE) for f in _folders(Path(path))):
            time.sleep(every)
            live.update(status_table(path), refresh=True)


def _folders(path: Path) -> list[Path]:
    """The folders of all runs, those of a study's file that have not begun too."""
    planned = read_json(path / "study.json").get("runs", {})
    found = run_folders(path) if not planned or any(path.glob("runs/*/config.yaml")) else []
    return list(dict.fromkeys([*(path / "runs" / run for run in planned), *found]))


def _names(folders: Sequence[Path]) -> list[Text]:
    """Each run's cell and seed. A run that no study's file asks for is named by what tells it from others of its
    kind, with its id, by which alone it is found."""
    plans = {
        parent: read_json(parent / "study.json").get("runs", {})
        for parent in {f.parent.parent for f in folders}
    }
    by_hand = [folder for folder in folders if folder.name not in plans[folder.parent.parent]]
    cells = dict(zip(by_hand, labels([flatten(config_of(folder)) for folder in by_hand]), strict=True))
    names = []
    for folder in folders:
        if folder in cells:
            name = Text(f"{cells[folder]}, seed {config_of(folder).get('seed')}\n")
            names.append(name.append(folder.name, style="dim"))
        else:
            run = plans[folder.parent.parent][folder.name]
            names.append(Text(f"{run['cell']}, seed {run['seed']}"))
    return names


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
