"""How far a run is and whether its process still lives, read from its folder alone."""

import itertools
import socket
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from rlkit.errors import UserError
from rlkit.files import read_json
from rlkit.results.store import DAMAGE, parse_lines, read_config

LOG = "run.log"
START = "[rlkit] started:"  # begins the log of each attempt
ACTIVE = ("starting", "running")
_RECENT = 20  # steps that the time left is estimated from
_CLOCKS = 60.0  # seconds that two clocks of one machine may differ


@dataclass(frozen=True)
class RunState:
    """How far a run is. Status: waiting (nothing written), starting, running, finished, stopped (at a checkpoint),
    failed, unreadable (a file is damaged), or lost: its process is gone, or on another machine silent for
    trainer.stall_timeout seconds."""

    status: str = "waiting"
    step: int | None = None  # the last logged one
    total: int | None = None  # the last one to do
    reward: float | None = None  # mean of the last logged step
    before: float | None = None  # held-out pass@1 at the first evaluation
    now: float | None = None  # and at the last one
    pace: float | None = None  # seconds of a step, as the last ones took
    left: float | None = None  # seconds to the last step
    updated: float | None = None  # when it last wrote anything, seconds since the epoch
    device: str = ""
    reason: str = ""  # why it failed or stopped by itself
    phase: str = ""  # what is being prepared or started; empty once it samples

    @property
    def active(self) -> bool:
        """It is being trained now."""
        return self.status in ACTIVE

    def passed(self) -> str:
        """pass@1 before and now, in words; empty before the first evaluation."""
        known = self.before is not None and self.now is not None
        return f"pass@1 {self.before:.2f} → {self.now:.2f}" if known else ""


def run_state(folder: Path) -> RunState:
    """The state of the run in `folder`: "waiting" where there is none, "unreadable" where a file is damaged."""
    try:
        return _state(folder)
    except DAMAGE as error:
        what = f"{type(error).__name__}: {error}"[:200]
        told = f"a file in {folder} is damaged ({what}): restore it, or delete the run"
        return RunState("unreadable", reason=told)


def _state(folder: Path) -> RunState:
    info, log = read_json(folder / "run.json"), folder / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    # of thousands of runs of hundreds of steps each, only these lines are parsed
    rows = list(parse_lines([*lines[:1], *lines[1:][-_RECENT - 1 :]]))
    evaluated = parse_lines(line for line in lines if '"eval/pass@1":' in line)
    passed = [float(row["eval/pass@1"]) for row in evaluated if row.get("eval/pass@1") is not None]
    config = config_of(folder)
    trainer = config.get("trainer") or {}
    written = [file.stat().st_mtime for file in (log, folder / "run.json") if file.exists()]
    updated = max(written, default=None)
    status, reason = _status(folder, info, updated, float(trainer.get("stall_timeout", 1800)))
    step, total = max((row["step"] for row in rows), default=None), trainer.get("total_training_steps")
    # the median of recent steps: an evaluation or a pause does not count
    pairs = itertools.pairwise(rows[-_RECENT - 1 :])
    gaps = [b["time"] - a["time"] for a, b in pairs if b["step"] > a["step"]]
    pace, left = statistics.median(gaps) if gaps else None, None
    if status == "running" and pace is not None and step is not None and total is not None:
        left = pace * (total - step)
    rewards = [float(row["critic/score/mean"]) for row in rows if row.get("critic/score/mean") is not None]
    machine = info.get("hardware") or {}
    device = "cpu" if machine else ""
    if (gpus := machine.get("gpus")) and trainer.get("device") != "cpu":
        count = int(trainer.get("nnodes", 1)) * int(trainer.get("n_gpus_per_node", 1))
        device = (f"{count} × " if count > 1 else "") + str(gpus[0]).partition(",")[0]
    return RunState(
        status=status, step=step, total=total, pace=pace, left=left, updated=updated,
        reward=rewards[-1] if rewards else None,
        before=passed[0] if passed else None, now=passed[-1] if passed else None,
        device=device, reason=reason,
        phase=str(info.get("phase") or "") if status == "running" else "",
    )  # fmt: skip


def kept_step(folder: Path) -> int:
    """The step of the newest checkpoint of the run in `folder`, verl's own included; 0 where there is none."""
    return max([*checkpoint_steps(folder / "checkpoints"), verl_step(folder / "verl" / "checkpoints")])


def checkpoint_steps(root: Path) -> list[int]:
    """Steps that have a checkpoint, ascending; whole or not."""
    return sorted(int(p.name.removeprefix("step_")) for p in root.glob("step_*") if p.name[5:].isdigit())


def verl_step(root: Path) -> int:
    """The step of verl's newest whole checkpoint; 0 without one."""
    with suppress(OSError, ValueError):
        return int((root / "latest_checkpointed_iteration.txt").read_text())
    return 0


def process_of(info: Mapping[str, Any]) -> psutil.Process | None:
    """The process of this machine that has the run open, from what run.json says of it; none that began later."""
    owner = info.get("process") or {}
    if owner.get("host") != socket.gethostname():
        return None
    with suppress(psutil.Error, KeyError, ValueError):
        process = psutil.Process(owner["pid"])
        began = datetime.fromisoformat(owner["started"]).timestamp()
        if process.create_time() <= began + _CLOCKS and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs. psutil's wait raises OSError for one that is just ending (its issue 2715)."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def last_lines(log: Path, count: int = 5) -> str:
    """The last lines of a log's last attempt, without what a kernel says of itself."""
    if not log.exists():
        return ""
    _, started, text = log.read_text(errors="replace").rpartition(START)
    lines = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()[bool(started) :]]
    return "\n".join([line for line in lines if line and not line.startswith("[IPKernelApp]")][-count:])


def config_of(folder: Path) -> dict[str, Any]:
    """The configuration of the run in `folder` as its file holds it; empty where there is none or it is broken."""
    with suppress(UserError):
        return read_config(folder)
    return {}


def _status(folder: Path, info: Mapping[str, Any], updated: float | None, patience: float) -> tuple[str, str]:
    """The status of a run, and why it ended there."""
    stored, reason = str(info.get("status", "waiting")), str(info.get("reason") or "")
    if stored not in ACTIVE or process_of(info) is not None:
        return stored, reason if stored in ("stopped", "failed") else ""
    here = (info.get("process") or {}).get("host") == socket.gethostname()
    if here and stored == "starting":
        last = last_lines(folder / LOG, 1).removeprefix("Error: ")
        return "failed", last or "it ended before its first step"
    if not here and updated is not None and time.time() - updated < patience:
        return stored, ""
    return "lost", "its process is gone (killed, out of memory, or the machine went down)"
