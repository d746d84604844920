"""Whether two runs have the same bits, and runs that are killed on the way."""

import random
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from rlkit.config import RunConfig
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import config_yaml, read_jsonl
from rlkit.studies.executors import Job
from rlkit.training import checkpoint

TIMING = ("timing_s/", "perf/", "compute/seconds", "time")


def differences(a: Path, b: Path) -> list[str]:
    """What differs between two finished runs' folders, timings aside; empty when nothing does."""
    one, other, found = _rows(a), _rows(b), []
    for step in sorted(one.keys() | other.keys()):
        x, y = one.get(step, {}), other.get(step, {})
        if names := [k for k in x.keys() | y.keys() if x.get(k) != y.get(k)]:
            found.append(f"metrics.jsonl, step {step}: {', '.join(sorted(names)[:5])}")
    if not pd.read_parquet(a / "evals.parquet").equals(pd.read_parquet(b / "evals.parquet")):
        found.append("evals.parquet: the samples differ")
    kept = (a / "checkpoints", b / "checkpoints")
    last, same = (checkpoint.folder_of(folder, checkpoint_steps(folder)[-1]) for folder in kept)
    for path in sorted(p.relative_to(last) for p in (last / "model").rglob("*") if p.is_file()):
        if not (same / path).is_file() or (last / path).read_bytes() != (same / path).read_bytes():
            found.append(f"{last.name}/{path}: the bytes differ")
    states = [torch.load(folder / "state.pt", weights_only=True) for folder in (last, same)]
    for state in states:
        state["ledger"].pop("seconds")
    if not _equal(*states):
        found.append(f"{last.name}/state.pt: optimizer, ledger or data position differ")
    return found


def _rows(folder: Path) -> dict[int, dict]:
    """The metrics of each step, without timings."""
    rows = read_jsonl(folder / "metrics.jsonl")
    return {row["step"]: {k: v for k, v in row.items() if not k.startswith(TIMING)} for row in rows}


def _equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and a == b


def whole_run(config: RunConfig, root: Path) -> Path:
    """The folder of a run that a process of its own does, or goes on with, to its end."""
    job, folder = _start(config, root)
    assert job.problem() is None, job.problem()
    return folder


def killed_run(config: RunConfig, root: Path, kills: int, seed: int) -> list[int]:
    """Begin a run, kill its processes at random moments and start it again; the last logged steps then."""
    moments, after, steps = random.Random(seed), [], config.trainer.total_training_steps
    for target in sorted(moments.sample(range(steps), kills)):
        job, folder = _start(config, root)
        while not job.done() and max(_rows(folder), default=-1) < target:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.2))
        assert not job.done(), job.log.read_text()
        job.kill()
        while not job.done():
            time.sleep(0.005)
        after.append(max(_rows(folder), default=-1))
    return after


def _start(config: RunConfig, root: Path) -> tuple[Job, Path]:
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text(config_yaml(config))
    command = [sys.executable, "-m", "rlkit", "run", str(root / "config.yaml"), "--root", str(root)]
    return Job(command, root / "log.txt", {}), root / config.study / "runs" / config.id
