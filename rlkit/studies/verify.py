"""Whether a killed run resumes to the same bits: run it twice, kill one at random moments, compare."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.progress import checkpoint_steps, last_lines
from rlkit.results.store import config_yaml, read_jsonl
from rlkit.training import checkpoint

TIMING = ("timing_s/", "perf/", "compute/seconds", "time")


def differences(a: Path, b: Path) -> list[str]:
    """What differs between two finished runs' folders, timings aside; empty when nothing does."""
    import pandas as pd
    import torch

    rows, found = [_rows(folder) for folder in (a, b)], []
    for step in sorted(rows[0].keys() | rows[1].keys()):
        x, y = (table.get(step, {}) for table in rows)
        if names := [k for k in x.keys() | y.keys() if x.get(k) != y.get(k)]:
            found.append(f"metrics.jsonl, step {step}: {', '.join(sorted(names)[:5])}")
    evals = [pd.read_parquet(folder / "evals.parquet") for folder in (a, b)]
    if not evals[0].equals(evals[1]):
        found.append("evals.parquet: the samples differ")
    last = [checkpoint.folder_of(f / "checkpoints", checkpoint_steps(f / "checkpoints")[-1]) for f in (a, b)]
    for path in sorted(p for p in (last[0] / "model").rglob("*") if p.is_file()):
        other = last[1] / path.relative_to(last[0])
        if not other.is_file() or path.read_bytes() != other.read_bytes():
            found.append(f"{last[0].name}/{path.relative_to(last[0])}: the bytes differ")
    states = [torch.load(folder / "state.pt", weights_only=True) for folder in last]
    for state in states:
        state["ledger"].pop("seconds")
    if not _equal(*states):
        found.append(f"{last[0].name}/state.pt: optimizer, ledger or data position differ")
    return found


def _rows(folder: Path) -> dict[int, dict]:
    """The metrics of each step, without timings."""
    rows = read_jsonl(folder / "metrics.jsonl")
    return {row["step"]: {k: v for k, v in row.items() if not k.startswith(TIMING)} for row in rows}


def _equal(a: object, b: object) -> bool:
    import torch

    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_equal, a, b))
    return a == b


def verify_resume(
    config: RunConfig, kills: int = 2, seed: int | None = None, say: Callable[[str], None] = print
) -> list[str]:
    """Run `config` undisturbed, then again with SIGKILL at random moments (of `seed`) and a restart after each. Returns
    what differs between the two, to the last bit: checkpoint, metrics but for timings, evaluated samples. A UserError
    where one of the runs failed by itself, or ended before it could be killed."""
    with tempfile.TemporaryDirectory() as temporary:
        one, other = Path(temporary, "whole"), Path(temporary, "killed")
        say("Running undisturbed …")
        whole = whole_run(config, one)
        say(f"Running with {kills} kills …")
        after = killed_run(config, other, kills, seed)
        say(f"Killed after steps {', '.join(map(str, after))}.")
        return differences(whole, whole_run(config, other))


def whole_run(config: RunConfig, root: Path) -> Path:
    """The folder of a run that a process of its own does, or goes on with, to its end. Raises UserError as it fails."""
    process, folder = _start(config, root)
    if process.wait():
        raise UserError(f"The run failed: {last_lines(root / 'log.txt')}")
    return folder


def killed_run(config: RunConfig, root: Path, kills: int, seed: int | None) -> list[int]:
    """Begin a run, kill its processes with SIGKILL at random moments and start it again; the last logged steps then. A
    UserError where it ended before one of the moments."""
    moments, after, steps = random.Random(seed), [], config.trainer.total_training_steps
    for target in sorted(moments.sample(range(steps), min(kills, steps))):
        process, folder = _start(config, root)
        while process.poll() is None and max(_rows(folder), default=-1) < target:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.2))
        if process.poll() is not None:
            lines = last_lines(root / "log.txt")
            raise UserError(f"The run ended before it could be killed after step {target}: {lines}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        after.append(max(_rows(folder), default=-1))
    return after


def _start(config: RunConfig, root: Path) -> tuple[subprocess.Popen, Path]:
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text(config_yaml(config))
    command = [sys.executable, "-m", "rlkit", "run", str(root / "config.yaml"), "--root", str(root)]
    with (root / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    return process, root / config.study / "runs" / config.id
