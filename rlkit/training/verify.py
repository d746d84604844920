"""Proof that a killed run resumes to the same bits: run it twice, kill one, compare."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.store import config_yaml, read_jsonl
from rlkit.training import checkpoint

TIMING = ("timing_s/", "perf/", "compute/seconds", "time")


@dataclass(frozen=True)
class ResumeReport:
    """What `verify_resume` saw: how often the run was killed and at which logged steps, and every difference."""

    kills: int
    killed_after_steps: list[int]
    differences: list[str]


def verify_resume(
    config: RunConfig, *, kills: int = 2, seed: int | None = None, say: Callable[[str], None] = print
) -> ResumeReport:
    """Run `config` undisturbed, then again with SIGKILL at random moments and a restart after each; compare
    the last checkpoint's files, all metrics but timings, and all evaluation samples, bit for bit.

    Args:
        kills: how often the second run is killed; the report says how often it really was.
        seed: of the moments; None is a new one each time.

    Raises:
        UserError: one of the runs failed by itself.
    """
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        say("Running undisturbed …")
        whole = _whole_run(config, folder / "whole")
        say(f"Running with {kills} kills …")
        broken, after = folder / "killed", []
        steps = config.trainer.total_training_steps
        for target in sorted(moments.sample(range(steps), min(kills, steps))):
            step = _killed_run(config, broken, target, moments.uniform(0, 0.2))
            if step is not None:
                after.append(step)
                say(f"Killed after step {step}.")
        resumed = _whole_run(config, broken)
        return ResumeReport(len(after), after, differences(whole, resumed))


def differences(a: Path, b: Path) -> list[str]:
    """What differs between two finished runs' folders, timings aside; empty when nothing does."""
    import pandas as pd

    found = []
    rows = [list(read_jsonl(folder / "metrics.jsonl")) for folder in (a, b)]
    kept = [[{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in r] for r in rows]
    if [r["step"] for r in kept[0]] != [r["step"] for r in kept[1]]:
        found.append(f"metrics.jsonl: {len(kept[0])} against {len(kept[1])} steps, or other ones")
    for x, y in zip(*kept, strict=False):
        if x != y:
            names = [k for k in x.keys() | y.keys() if x.get(k) != y.get(k)]
            found.append(f"metrics.jsonl, step {x['step']}: {', '.join(sorted(names)[:5])}")
    evals = [pd.read_parquet(folder / "evals.parquet") for folder in (a, b)]
    if not evals[0].equals(evals[1]):
        found.append("evals.parquet: the samples differ")
    last = [checkpoint.folder_of(f / "checkpoints", checkpoint.steps(f / "checkpoints")[-1]) for f in (a, b)]
    for path in sorted(
        p for p in last[0].rglob("*") if p.is_file() and p.name not in ("state.pt", checkpoint.MANIFEST)
    ):
        name = path.relative_to(last[0])
        if not (last[1] / name).is_file() or path.read_bytes() != (last[1] / name).read_bytes():
            found.append(f"{last[0].name}/{name}: the bytes differ")
    if not _states_equal(last[0] / "state.pt", last[1] / "state.pt"):
        found.append(f"{last[0].name}/state.pt: optimizer, ledger or data position differ")
    return found


def _states_equal(a: Path, b: Path) -> bool:
    import torch

    left, right = (torch.load(p, weights_only=True) for p in (a, b))
    for state in (left, right):
        state["ledger"].pop("seconds")
    return _equal(left, right)


def _equal(a: object, b: object) -> bool:
    import torch

    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_equal, a, b))
    return a == b


def _start(config: RunConfig, root: Path) -> tuple[subprocess.Popen, Path]:
    root.mkdir(parents=True, exist_ok=True)
    params = root / "config.yaml"
    params.write_text(config_yaml(config))
    log = (root / "log.txt").open("ab")
    command = [sys.executable, "-m", "rlkit", "run", str(params), "--root", str(root)]
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    log.close()
    return process, root / config.study / "runs" / config.id


def _whole_run(config: RunConfig, root: Path) -> Path:
    process, folder = _start(config, root)
    if process.wait() != 0:
        lines = (root / "log.txt").read_text(errors="replace").strip().splitlines()
        raise UserError(f"The run failed by itself: {lines[-1] if lines else 'it said nothing'}")
    return folder


def _killed_run(config: RunConfig, root: Path, target: int, delay: float) -> int | None:
    """Start or continue the run and kill its whole session `delay` seconds after it logged step `target`;
    returns its last logged step, or None where it ended before the signal and so was not killed."""
    process, folder = _start(config, root)
    while process.poll() is None and _last_step(folder) < target:
        time.sleep(0.005)
    time.sleep(delay)
    if process.poll() is not None:
        return None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return _last_step(folder)


def _last_step(folder: Path) -> int:
    return max((row["step"] for row in read_jsonl(folder / "metrics.jsonl")), default=-1)
